package rowheaders

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type member struct {
	name, value string
	kind        Kind
}

func scan(text string) ([]member, error) {
	var s Scanner
	s.Reset([]byte(text))
	var got []member
	for s.Next() {
		got = append(got, member{string(s.Name), string(s.Value), s.Kind})
	}
	return got, s.Err()
}

func TestMembersComeInOrderWithTheirTexts(t *testing.T) {
	got, err := scan(` { "b" : "x" , "a":1.50e+3,"t":true, "f":false,"n":null,"o": {"z":[1, "}"]} ,"l":[ ], "e":"" } `)
	require.NoError(t, err)
	require.Equal(t, []member{
		{"b", "x", Text},
		{"a", "1.50e+3", Literal},
		{"t", "true", Literal},
		{"f", "false", Literal},
		{"n", "", Null},
		{"o", `{"z":[1, "}"]}`, Nested},
		{"l", "[ ]", Nested},
		{"e", "", Text},
	}, got)
}

func TestEscapesBecomeText(t *testing.T) {
	got, err := scan(`{"q\"\u00e9": "\\\/\b\f\n\r\t\u0041\ud83d\ude00", "half": "\ud83dx\ude00\ud83d\ud83d\ude00"}`)
	require.NoError(t, err)
	require.Equal(t, []member{
		{`q"é`, "\\/\b\f\n\r\tA😀", Text},
		{"half", "\ufffdx\ufffd\ufffd😀", Text},
	}, got)
}

func TestNoHeadersIsNotAnError(t *testing.T) {
	for _, text := range []string{"", "  ", "null", " null ", "{}", " { } "} {
		got, err := scan(text)
		require.NoError(t, err, "%q", text)
		require.Empty(t, got)
	}
}

func TestWhatIsNoObjectIsRefused(t *testing.T) {
	for text, want := range map[string]error{
		"[]":                                  ErrNotObject,
		`"x"`:                                 ErrNotObject,
		"1":                                   ErrNotObject,
		"nul":                                 ErrNotObject,
		"{":                                   ErrSyntax,
		`{"a"}`:                               ErrSyntax,
		`{"a":}`:                              ErrSyntax,
		`{"a":1,}`:                            ErrSyntax,
		`{,"a":1}`:                            ErrSyntax,
		`{"a":1} x`:                           ErrSyntax,
		`{"a":01}`:                            ErrSyntax,
		`{"a":1.}`:                            ErrSyntax,
		`{"a":-}`:                             ErrSyntax,
		`{"a":1e}`:                            ErrSyntax,
		`{"a":"x`:                             ErrSyntax,
		`{"a":"\x"}`:                          ErrSyntax,
		`{"a":"\u12"}`:                        ErrSyntax,
		`{"a":{"b"}}`:                         ErrSyntax,
		`{"a":[1,]}`:                          ErrSyntax,
		`{"a":tru}`:                           ErrSyntax,
		`{a:1}`:                               ErrSyntax,
		"{\"a\":\"\n\"}":                      ErrSyntax,
		"{\"a\":\"x\"}\x00":                   ErrSyntax,
		`{"a":` + strings.Repeat("[", 20_000): ErrTooDeep,
	} {
		_, err := scan(text)
		require.ErrorIs(t, err, want, "%.40q", text)
	}
}

func TestPlainValuesAliasTheText(t *testing.T) {
	text := []byte(`{"a":"plain","b":12}`)
	var s Scanner
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Reset(text)
		for s.Next() {
		}
	}))
}

func TestEscapedValuesOutliveTheScan(t *testing.T) {
	var s Scanner
	s.Reset([]byte(`{"a":"\u0041","b":"\u0042"}`))
	var values [][]byte
	for s.Next() {
		values = append(values, s.Value)
	}
	require.Equal(t, "A", string(values[0]))
	require.Equal(t, "B", string(values[1]))
}

// reference reads the same members with encoding/json.
func reference(text []byte) ([]member, bool) {
	if len(bytes.Trim(text, " \t\r\n")) == 0 {
		return nil, true
	}
	if !json.Valid(text) {
		return nil, false
	}
	if string(bytes.Trim(text, " \t\r\n")) == "null" {
		return nil, true
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	var out []member
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, false
		}
		m := member{name: name.(string)}
		switch raw[0] {
		case 'n':
			m.kind = Null
		case '"':
			m.kind = Text
			if err := json.Unmarshal(raw, &m.value); err != nil {
				return nil, false
			}
		case '{', '[':
			m.kind, m.value = Nested, string(appendValid(nil, raw))
		default:
			m.kind, m.value = Literal, string(raw)
		}
		out = append(out, m)
	}
	return out, true
}

func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, ``, `{"a":"b"}`, `{"a":1,"b":[1,{"c":null}],"d":"\u00e9\ud83d\ude00\ud800"}`, `{"a":-0.5e-7}`,
		"{\"a\":\"\xff\",\"\xfe\":[\"\xff\"]}", `{"a":"\\"}`, ` {"a" : true } `, `{"a":1}{`, `[1]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want, ok := reference(text)
		got, err := scan(string(text))
		require.Equal(t, ok, err == nil, "%q: %v", text, err)
		if ok {
			require.Equal(t, want, got, "%q", text)
		}
	})
}
