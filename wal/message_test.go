package wal

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
)

func logicalMsg(flags byte, prefix, content string) message {
	return append(msg('M').u8(flags).u64(5).text(prefix).u32(uint32(len(content))), content...)
}

func messageDecoder(limit int) *decoder {
	o := &Options{Slot: "s", Host: "h", Port: 1, Database: "d", RowLimit: limit, Messages: true}
	o.Columns[event.Tenant] = event.Mapping{Constant: "acme", IsConst: true}
	return newDecoder(o, nil, 10, nil)
}

func TestAMessageIsAnEventInItsPlaceBetweenTheRows(t *testing.T) {
	o := &Options{Slot: "s", Host: "h", Port: 1, Database: "d", RowLimit: 1000, Columns: outboxColumns(), Messages: true}
	d, l := newDecoder(o, []target{{text: "public.outbox", relid: 60}}, 10, nil), testLoad()
	ignored := 0
	d.ignored = func() { ignored++ }
	decodeAll(t, d, l,
		logicalMsg(0, "outtail", `{"id": "outside of a transaction"}`), logicalMsg(0, "outtail.heartbeat", ""),
		begin(100), outboxRelation, outboxRow("a", "{}"), logicalMsg(1, "outtail", `{"id": "b", "payload": {"x": 1}}`),
		logicalMsg(1, "somebody else", `{"id": "x"}`), outboxRow("c", "{}"), commit(100, 120))
	require.Equal(t, 1, ignored)
	require.Len(t, l.batch.Events, 3)
	for i, id := range []string{"a", "b", "c"} {
		require.Equal(t, id, string(l.batch.Events[i].Row[event.ID].Bytes))
		require.EqualValues(t, i, l.batch.Events[i].Index)
		require.Nil(t, l.batch.Events[i].Err)
	}
	require.Equal(t, `{"x": 1}`, string(l.batch.Events[1].Row[event.Payload].Bytes))
	require.Equal(t, "order", string(l.batch.Events[1].Row[event.EventType].Bytes), "a constant stands for what the message does not say")
}

func TestWithoutTheSwitchMessagesAreNobodysEvents(t *testing.T) {
	d, l := testDecoder(outboxColumns(), 1000), testLoad()
	decodeAll(t, d, l, begin(100), logicalMsg(1, "outtail", `{"id": "b"}`), commit(100, 120))
	require.Empty(t, l.batch.Events)
}

func TestTheValuesOfAMessage(t *testing.T) {
	null, text := event.Value{Set: true, Null: true}, func(s string) event.Value { return event.Value{Set: true, Bytes: []byte(s)} }
	for name, c := range map[string]struct {
		content string
		role    event.Role
		want    event.Value
	}{
		"the payload is the JSON as written": {`{"id":"1", "payload" :  {"a" : 1,"a":2, "n": 12345678901234567890.10e400} }`, event.Payload, text(`{"a" : 1,"a":2, "n": 12345678901234567890.10e400}`)},
		"a text as payload stays JSON":       {`{"id":"1","payload":"a\u0000b"}`, event.Payload, text(`"a\u0000b"`)},
		"a number as payload":                {`{"payload":1.50 ,"id":"1"}`, event.Payload, text(`1.50`)},
		"JSON null as payload":               {`{"id":"1","payload":null}`, event.Payload, text(`null`)},
		"no payload is SQL NULL":             {`{"id":"1"}`, event.Payload, event.Value{}},
		"a text":                             {`{"id":"1","aggregate_id":"ü 7"}`, event.AggregateID, text("ü 7")},
		"an empty text":                      {`{"id":"1","aggregate_id":""}`, event.AggregateID, text("")},
		"escapes":                            {`{"id":"1","aggregate_id":"a\"\\ud83d\ud83d\ude00\ufffd"}`, event.AggregateID, text("a\"\\ud83d😀\ufffd")},
		"a number":                           {`{"id":"1","aggregate_id": 12345678901234567890 }`, event.AggregateID, text("12345678901234567890")},
		"null":                               {`{"id":"1","key":null}`, event.Key, null},
		"true":                               {`{"id":"1","key":true}`, event.Key, text("true")},
		"headers":                            {`{"id":"1","headers":{"a": "b"}}`, event.Headers, text(`{"a": "b"}`)},
		"a constant is overruled":            {`{"id":"1","tenant":"other"}`, event.Tenant, text("other")},
		"a constant":                         {`{"id":"1"}`, event.Tenant, text("acme")},
		"blanks around":                      {" \n{ \"id\" : \"1\" }\t", event.ID, text("1")},
	} {
		t.Run(name, func(t *testing.T) {
			d, l := messageDecoder(1000), testLoad()
			decodeAll(t, d, l, begin(1), logicalMsg(1, "outtail", c.content))
			e := l.batch.Events[0]
			require.Nil(t, e.Err)
			require.Equal(t, c.want, e.Row[c.role])
		})
	}
}

func TestAMalformedMessageFailsForItself(t *testing.T) {
	for name, content := range map[string]string{
		"nothing":           ``,
		"no JSON":           `secret`,
		"half":              `{"id": "secret"`,
		"two":               `{"id": "secret"} {}`,
		"a list":            `["secret"]`,
		"null":              `null`,
		"not UTF-8":         "{\"id\": \"secret\xff\"}",
		"no id":             `{"payload": "secret"}`,
		"id null":           `{"id": null, "payload": "secret"}`,
		"an unknown field":  `{"id": "1", "secret": 1}`,
		"twice":             `{"id": "secret", "id": "secret"}`,
		"an object":         `{"id": "1", "key": {"secret": 1}}`,
		"headers as text":   `{"id": "1", "headers": "secret"}`,
		"half of a pair":    `{"id": "secret\ud83d"}`,
		"the other half":    `{"id": "secret\ude00 "}`,
		"halves apart":      `{"id": "secret\ud83d \ude00"}`,
		"two first halves":  `{"id": "secret\ud83d\ud83d"}`,
		"an escape between": `{"id": "secret\ud83d\n\ude00"}`,
	} {
		t.Run(name, func(t *testing.T) {
			d, l := messageDecoder(1000), testLoad()
			decodeAll(t, d, l, begin(0x64), logicalMsg(1, "outtail", content), logicalMsg(1, "outtail", `{"id":"next"}`))
			require.Len(t, l.batch.Events, 2)
			f := l.batch.Events[0].Err
			require.NotNil(t, f)
			require.Equal(t, CodeMessage, f.Code)
			require.Equal(t, event.Record, f.Class)
			require.Equal(t, "message outtail 0/64#0", f.Place)
			require.NotContains(t, f.Error()+f.Hint, "secret")
			require.Nil(t, l.batch.Events[1].Err)
		})
	}
}

func TestAMessageBeyondTheLimitFailsForItself(t *testing.T) {
	for _, size := range []int{2000, 400_000, 900_000} { // beyond the limit, beyond the buffer, beyond what is buffered at all
		content := `{"id":"1","payload":"` + strings.Repeat("x", size) + `"}`
		d := messageDecoder(1000)
		if size == 400_000 {
			d = messageDecoder(200_000)
		}
		var stream []byte
		for _, m := range []message{begin(100), logicalMsg(1, "outtail", content), logicalMsg(1, "outtail", `{"id":"2"}`),
			logicalMsg(1, "outtailer", content), logicalMsg(0, "outtail", content), commit(100, 120)} {
			stream = append(stream, data(m)...)
		}
		l := testLoad()
		s := &reader{conn: &pieces{stream, all}, dec: d, maxFrame: 2*d.rowLimit + 1<<10, replied: func() {}}
		require.ErrorIs(t, drain(s, l), io.EOF)
		require.Len(t, l.batch.Events, 2)
		require.Equal(t, CodeRowTooLarge, l.batch.Events[0].Err.Code)
		require.EqualValues(t, 1, l.batch.Events[1].Index)
		require.Equal(t, "2", string(l.batch.Events[1].Row[event.ID].Bytes))
		require.Equal(t, []event.Bound{{After: 2, At: 120}}, l.batch.Bounds)
	}
}

func TestAnyContentIsAnEventOrAFault(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.OneOf(rapid.String(), rapid.StringMatching(`\{("(id|payload|headers|key)": ?("[a-z\\u0-9df]*"|[0-9]{1,3}|null|\{\}|\[\]),?){0,3}\}`)).Draw(t, "content")
		d, l := messageDecoder(1000), testLoad()
		require.Nil(t, d.message(l, begin(1)))
		require.Nil(t, d.message(l, logicalMsg(1, "outtail", content)))
		e := l.batch.Events[0]
		require.True(t, e.Err != nil || e.Row[event.ID].Present())
	})
}

// FuzzMessage feeds arbitrary contents: nothing may panic, and what is accepted says what the JSON library says; payload and headers
// are cut out as they stand.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{`{"id":"1","payload":{"a" : 1},"headers":{"x":"y"}}`, `{"id":"a\"\\ud83d😀","key":null}`, `{"payload":1.50 ,"id":7}`, `{"id":"\ud83d"}`, `{"id":"1","id":"2"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var row event.Row
		if readMessage(&row, bytes.Clone(content)) != "" {
			return
		}
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(content, &want))
		for name, raw := range want {
			role, ok := event.ParseRole(name)
			require.True(t, ok, "%q", name)
			v := row[role]
			switch {
			case role == event.Payload, role == event.Headers && !v.Null:
				require.Equal(t, string(raw), string(v.Bytes))
			case string(raw) == "null":
				require.True(t, v.Null)
			case raw[0] == '"':
				var s string
				require.NoError(t, json.Unmarshal(raw, &s))
				require.Equal(t, s, string(v.Bytes))
			default:
				require.Equal(t, string(raw), string(v.Bytes))
			}
		}
	})
}
