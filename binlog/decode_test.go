package binlog

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

// The bytes are MySQL 9.7's, or written by hand after the server's sources; real servers are asked in the tests beside this one.
func TestBinaryJSONIsPrintedAsTheServerDoes(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "null",
		"04 00":                             "null",
		"04 01":                             "true",
		"04 02":                             "false",
		"05 ffff":                           "-1",
		"06 ffff":                           "65535",
		"07 00000080":                       "-2147483648",
		"08 ffffffff":                       "4294967295",
		"09 ffffffffffffffff":               "-1",
		"0a ffffffffffffffff":               "18446744073709551615",
		"0b 000000000000f03f":               "1.0",
		"0b 9a9999999999b93f":               "0.1",
		"0c 05 61 22 5c 0a 01":              `"a\"\\\n\u0001"`,
		"00 0000 0400":                      "{}",
		"02 0000 0400":                      "[]",
		"02 0200 0a00 05 0100 04 0000":      "[1, null]",
		"00 0100 0c00 0b00 0100 05 0700 61": `{"a": 7}`,
		"0f f6 04 03 02 81 32":              "1.50",
		"0f fc 02 00ff":                     `"base64:type252:AP8="`,
	} {
		got, err := appendJSON(nil, unhex(t, in))
		require.NoError(t, err, in)
		require.Equal(t, want, string(got), in)
	}
	for _, bad := range []string{"04", "04 03", "05 00", "0b 00", "0c", "0c 05 61", "0c ffffffffff", "00 0100 0400", "02 0100 ff00 05", "0d", "0f", "0f f6 01 05",
		"02 0100 0700 00 0400" /* a value inside of the entries */, "00 0100 0b00 ff00 0100 05 0700"} {
		_, err := appendJSON(nil, unhex(t, bad))
		require.Error(t, err, bad)
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{"", "0400", "020200 0a00 05 0100 04 0000", "00 0100 0c00 0b00 0100 05 0700 61", "0f f6 03 0302 8132", "0c 02 6162", "0f 0c 08 0000000000000000", "02 0200 1200 00 0a00 00 0a00 0000 0400"} {
		b, _ := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		f.Add(b)
	}
	f.Add([]byte(jsonDocument()))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := appendJSON([]byte("before"), b)
		if !bytes.HasPrefix(out, []byte("before")) {
			t.Fatal("what was there is gone")
		}
		if err != nil || len(b) == 0 {
			return
		}
		// Text in other than UTF-8 and doubles that are no numbers cannot be stored; everything else is JSON.
		if text := out[len("before"):]; !json.Valid(text) && !bytes.Contains(text, []byte("Inf")) && !bytes.Contains(text, []byte("NaN")) {
			t.Fatalf("%x is printed as %q", b, text)
		}
	})
}

func TestNumbersArePrintedAsTheServerDoes(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 1: "1", -1.5: "-1.5", 1e14: "100000000000000", 1e15: "1e15", 1e-14: "0.00000000000001", 1e-16: "1e-16",
		math.MaxFloat64: "1.7976931348623157e308", 5e-324: "5e-324", 123456.789: "123456.789", 0.30000000000000004: "0.30000000000000004",
	} {
		require.Equal(t, want, string(appendDouble(nil, f, 0)))
	}
	require.Equal(t, "3.14159", string(appendFloat(nil, 3.14159274, 0)))
	require.Equal(t, "16777200", string(appendFloat(nil, 16777216, 0)))
	for in, want := range map[string]string{"800000 7b 2d": "123.45", "7fffff 84 d2": "-123.45", "800000 00 00": "0.00"} {
		got, rest, err := appendDecimal(nil, unhex(t, in), 10, 2)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, want, string(got))
	}
	_, _, err := appendDecimal(nil, []byte{1}, 10, 2)
	require.Error(t, err)
	_, _, err = appendDecimal(nil, []byte{1}, 2, 10)
	require.Error(t, err)
	require.Equal(t, "00042", string(zerofill([]byte("42"), 0, 5)))
}

func TestColumnTypesOfTheCatalogue(t *testing.T) {
	for text, want := range map[string]column{
		"bigint unsigned":                {kind: typeLongLong, unsigned: true},
		"int(5) unsigned zerofill":       {kind: typeLong, unsigned: true, width: 5},
		"decimal(10,2)":                  {kind: typeNewDecimal},
		"decimal(6,2) unsigned zerofill": {kind: typeNewDecimal, unsigned: true, width: 7},
		"double(7,3)":                    {kind: typeDouble, decimals: 4},
		"varchar(255)":                   {kind: typeVarchar},
		"enum('a','b''c','d,e')":         {kind: typeEnum, labels: [][]byte{[]byte("a"), []byte("b'c"), []byte("d,e")}, labelsUTF8: true},
		"timestamp(6)":                   {kind: typeTimestamp2, meta: 6},
	} {
		got, err := parseColumnType(text)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
	for _, bad := range []string{"", "hyperreal", "decimal(10"} {
		_, err := parseColumnType(bad)
		require.Error(t, err, bad)
	}
}

func FuzzTableMap(f *testing.F) {
	w := &logWriter{}
	w.outboxMap()
	f.Add(w.Bytes()[5+headerLen : w.Len()-4])
	full := "73000000000001000473686f70000162000203fc0104 0200 01 01 80 02 03fcff00 04 05 02 6964 01 62 08 01 00"
	b, _ := hex.DecodeString(strings.ReplaceAll(full, " ", ""))
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		tm, err := parseTableMap(b, len(b)%2 == 0)
		if err != nil {
			return
		}
		newLayout("t", tm.columns, event.Columns{}, func(int) string { return "utf8mb4" }, charsets{})
		tm.complete()
	})
}

func FuzzRows(f *testing.F) {
	w := &logWriter{}
	w.rows(1, "a", "bb")
	f.Add(w.Bytes()[5+headerLen:w.Len()-4], []byte{typeLongLong, typeBlob}, []byte{0, 4})
	f.Add([]byte{9, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3, 7, 0, 1, 2, 3, 4, 5, 6, 7, 8}, []byte{typeNewDecimal, typeTime2, typeDatetime2}, []byte{10, 6, 3})
	for k := range 256 {
		f.Add([]byte{9, 0, 0, 0, 0, 0, 1, 0, 2, 0, 1, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8}, []byte{byte(k)}, []byte{2})
	}
	f.Fuzz(func(t *testing.T, b, kinds, meta []byte) {
		if len(kinds) > 40 {
			return
		}
		columns := make([]column, len(kinds))
		var mapping event.Columns
		for i, k := range kinds {
			columns[i] = column{kind: k, name: string(rune('a' + i)), charset: 45, unsigned: i%2 == 0, labels: [][]byte{[]byte("x")}}
			if i < len(meta) {
				columns[i].meta = uint16(meta[i])
			}
			mapping[i%int(event.RoleCount)] = event.Mapping{Column: columns[i].name, As: event.Form(i % 3)}
		}
		l := newLayout("t", columns, mapping, func(id int) string { return map[int]string{45: "utf8mb4"}[id] }, charsets{})
		head, ok := parseRowsHead(evWriteRows, b)
		if !ok {
			return
		}
		img, rows, ok := parseRowImage(head.body)
		if !ok {
			return
		}
		l.lacks(img)
		tm := &tableMap{columns: columns}
		tm.countRows(head.body, true, len(columns)-1)
		tm.skipRow(&img, rows, len(columns)-1)
		s := &segment{}
		for len(rows) > 0 {
			before := len(rows)
			var err error
			if rows, _, _, err = l.decode(s, &event.Event{}, img, rows); err != nil || len(rows) == before {
				return
			}
		}
	})
}

func FuzzEvents(f *testing.F) {
	w := &logWriter{}
	w.gtid(5)
	w.query("BEGIN")
	w.heartbeat("binlog.000001")
	for _, b := range [][]byte{w.Bytes(), {2, 0, 0, 0}} {
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		parseHeader(b)
		parseGTID(b)
		parseGTIDTagged(b, "tag")
		parseQuery(b)
		parseFormatDescription(b)
		parseRotate(b)
		parseMariaGTID(b, 1)
		parseHeartbeatV2(b)
		parsePayload(b)
		_, _ = inflateQuery(b, 1<<16)
	})
}

func TestTaggedGTIDEventOfARealServer(t *testing.T) {
	// mysql::serialization by hand: version 1, size, last field; flags, uuid (each byte of variable length), number, tag, clock, time
	body := []byte{2, 100, 8, 0, 0, 2}
	for range 16 {
		body = append(body, 0x54) // 0x2a
	}
	body = append(body, 4, 5<<2, 6, 3<<1)
	body = append(body, "abc"...)
	body = append(body, 8, 4, 10, 8, 12, 0xff)
	body = append(body, 0x40, 0x42, 0x0f, 0, 0, 0, 0, 0)
	g, ok := parseGTIDTagged(body, "")
	require.True(t, ok)
	require.Equal(t, "2a2a2a2a-2a2a-2a2a-2a2a-2a2a2a2a2a2a:abc", g.sid.String())
	require.Equal(t, int64(5), g.gno)
	require.Equal(t, uint64(1000000), g.commit)
}
