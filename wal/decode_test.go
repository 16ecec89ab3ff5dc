package wal

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func decodeAll(t *testing.T, d *decoder, l *load, ms ...message) {
	t.Helper()
	for _, m := range ms {
		require.Nil(t, d.message(l, m), "%q", m)
	}
}

func TestRowsOfATransaction(t *testing.T) {
	d, l := testDecoder(outboxColumns(), 1000), testLoad()
	decodeAll(t, d, l,
		begin(100), outboxRelation, relationMsg(61, "public", "other", column{"x", 23}),
		insertMsg(61, 1).value("7"), outboxRow("a", "{}"), outboxRow("b", ""),
		msg('U'), msg('D'), msg('T'), msg('Y'), msg('O'), logicalMsg(1, "somebody", ""),
		insertMsg(60, 4).value("c").null().null().null(), commit(100, 120),
		begin(200), commit(200, 220))
	require.Equal(t, []event.Bound{{After: 3, At: 220}}, l.batch.Bounds, "one bound for one place")
	require.Len(t, l.batch.Events, 3)
	a, b, c := &l.batch.Events[0], &l.batch.Events[1], &l.batch.Events[2]
	require.Equal(t, "0/64", a.Tx.ID)
	require.Equal(t, "postgres/s/0/64", a.Tx.Source)
	require.Equal(t, time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC), a.Tx.Commit)
	require.Same(t, a.Tx, c.Tx)
	require.Equal(t, []uint64{0, 1, 2}, []uint64{a.Index, b.Index, c.Index})
	require.Equal(t, "public.outbox", a.Table)
	require.Equal(t, event.Value{Bytes: []byte("{}"), Set: true}, a.Row[event.Payload])
	require.Equal(t, event.Value{Bytes: []byte{}, Set: true}, b.Row[event.Payload], "empty is not NULL")
	require.Equal(t, event.Value{Set: true, Null: true}, c.Row[event.Payload])
	require.Equal(t, event.Value{Bytes: []byte("order"), Set: true}, c.Row[event.EventType])
	require.Equal(t, event.Value{}, c.Row[event.Tenant])
	require.Equal(t, eventCost+3, a.Size)
}

func TestBinaryColumns(t *testing.T) {
	sixteen := "000102030405060708090a0b0c0d0e0f"
	for name, c := range map[string]struct {
		role event.Role
		as   event.Form
		typ  uint32
		in   string
		want string
		bad  bool
	}{
		"payload is the bytes":        {event.Payload, event.Hex, typeBytea, `\x00ff`, "\x00\xff", false},
		"payload ignores the form":    {event.Payload, event.UUID, typeBytea, `\x00ff`, "\x00\xff", false},
		"an empty payload":            {event.Payload, event.Hex, typeBytea, `\x`, "", false},
		"hex":                         {event.Key, event.Hex, typeBytea, `\x00ff`, "00ff", false},
		"base64":                      {event.Key, event.Base64, typeBytea, `\x00ff10`, "AP8Q", false},
		"uuid":                        {event.Key, event.UUID, typeBytea, `\x` + sixteen, "00010203-0405-0607-0809-0a0b0c0d0e0f", false},
		"uuid of 15 bytes":            {event.Key, event.UUID, typeBytea, `\x` + sixteen[2:], "", true},
		"a domain over bytea":         {event.Payload, event.Hex, 900, `\x41`, "A", false},
		"text that looks like binary": {event.Payload, event.Hex, 25, `\x41`, `\x41`, false},
		"not hex":                     {event.Payload, event.Hex, typeBytea, `\xzz`, "", true},
		"escape format":               {event.Payload, event.Hex, typeBytea, `abc`, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			var cols event.Columns
			cols[c.role] = event.Mapping{Column: "v", As: c.as}
			d, l := testDecoder(cols, 1000), testLoad()
			decodeAll(t, d, l, begin(1), relationMsg(60, "public", "outbox", column{"v", c.typ}), insertMsg(60, 1).value(c.in))
			e := &l.batch.Events[0]
			if c.bad {
				require.NotNil(t, e.Err)
				require.Equal(t, event.Record, e.Err.Class)
				require.NotContains(t, e.Err.Error(), c.in)
				return
			}
			require.Nil(t, e.Err)
			require.Equal(t, event.Value{Bytes: []byte(c.want), Set: true}, e.Row[c.role])
		})
	}
}

func TestOneColumnMayPlaySeveralRoles(t *testing.T) {
	cols := outboxColumns()
	cols[event.Key] = event.Mapping{Column: "id"}
	d, l := testDecoder(cols, 1000), testLoad()
	decodeAll(t, d, l, begin(1), outboxRelation, outboxRow("a", "{}"))
	require.Equal(t, "a", string(l.batch.Events[0].Row[event.ID].Bytes))
	require.Equal(t, "a", string(l.batch.Events[0].Row[event.Key].Bytes))
}

func TestARelationIsRespectedWhenItChanges(t *testing.T) {
	d, l := testDecoder(outboxColumns(), 1000), testLoad()
	decodeAll(t, d, l, begin(1), outboxRelation, outboxRow("a", "1"),
		// Columns swapped and the table renamed: the OID is still the table's.
		relationMsg(60, "public", "renamed", column{"payload", 25}, column{"id", 25}), insertMsg(60, 2).value("2").value("b"),
		// A former table of the same name.
		relationMsg(55, "public", "outbox", column{"id", 25}, column{"payload", 25}), insertMsg(55, 2).value("c").value("3"),
		// The name in another schema is another table.
		relationMsg(56, "other", "outbox", column{"id", 25}, column{"payload", 25}), insertMsg(56, 2).value("d").value("4"))
	var got []string
	for _, e := range l.batch.Events {
		got = append(got, string(e.Row[event.ID].Bytes)+string(e.Row[event.Payload].Bytes))
	}
	require.Equal(t, []string{"a1", "b2", "c3"}, got)
}

func TestAMissingColumnStopsUnlessAccepted(t *testing.T) {
	without := relationMsg(60, "public", "outbox", column{"id", 25})
	d, l := testDecoder(outboxColumns(), 1000), testLoad()
	decodeAll(t, d, l, begin(1), without)
	f := d.message(l, insertMsg(60, 1).value("a"))
	require.NotNil(t, f)
	require.Equal(t, CodeColumnGone, f.Code)
	require.Equal(t, event.Safety, f.Class)

	d, l = testDecoder(outboxColumns(), 1000), testLoad()
	d.tolerant = true
	decodeAll(t, d, l, begin(1), without, insertMsg(60, 1).value("a"))
	require.False(t, l.batch.Events[0].Row[event.Payload].Set)
}

func TestRowFailures(t *testing.T) {
	d, l := testDecoder(outboxColumns(), 8), testLoad()
	decodeAll(t, d, l, begin(1), outboxRelation, outboxRow("a", "12345678"),
		insertMsg(60, 4).value("b").null().u8('u').null(), outboxRow("c", "1"))
	require.Equal(t, CodeRowTooLarge, l.batch.Events[0].Err.Code)
	require.Equal(t, "public.outbox 0/1#0", l.batch.Events[0].Err.Place)
	require.Equal(t, CodeUnchangedToast, l.batch.Events[1].Err.Code)
	require.Nil(t, l.batch.Events[2].Err)
	require.EqualValues(t, 2, l.batch.Events[2].Index, "a failed row has its place in the order")
}

func TestAStoredPrefixIsSkippedOnce(t *testing.T) {
	rows := func(final uint64) []message {
		return []message{begin(final), outboxRow("a", "1"), outboxRow("b", "2"), outboxRow("c", "3"), commit(final, final+10)}
	}
	for name, c := range map[string]struct {
		prefix event.Prefix
		want   []uint64
	}{
		"none":                  {event.Prefix{}, []uint64{0, 1, 2, 0, 1, 2}},
		"two rows":              {event.Prefix{Tx: "0/64", Rows: 2}, []uint64{2, 0, 1, 2}},
		"all rows":              {event.Prefix{Tx: "0/64", Rows: 3}, []uint64{0, 1, 2}},
		"the next transaction":  {event.Prefix{Tx: "0/C8", Rows: 1}, []uint64{0, 1, 2, 1, 2}},
		"a transaction between": {event.Prefix{Tx: "0/96", Rows: 1}, []uint64{0, 1, 2, 0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			d, l := testDecoder(outboxColumns(), 1000), testLoad()
			d.prefix = &c.prefix
			decodeAll(t, d, l, begin(20), outboxRelation, commit(20, 30))
			decodeAll(t, d, l, rows(100)...)
			decodeAll(t, d, l, rows(200)...)
			var got []uint64
			for _, e := range l.batch.Events {
				got = append(got, e.Index)
			}
			require.Equal(t, c.want, got)
			require.EqualValues(t, 210, d.at)
		})
	}
}

func TestAKeepaliveMovesThePositionOnlyBetweenTransactions(t *testing.T) {
	d, l := testDecoder(outboxColumns(), 1000), testLoad()
	d.keepalive(l, 50)
	d.keepalive(l, 40)
	require.Equal(t, []event.Bound{{After: 0, At: 50}}, l.batch.Bounds)
	decodeAll(t, d, l, begin(100), outboxRelation, outboxRow("a", "1"))
	d.keepalive(l, 300)
	require.Equal(t, []event.Bound{{After: 0, At: 50}}, l.batch.Bounds)
	decodeAll(t, d, l, commit(100, 120))
	d.keepalive(l, 110) // written before the commit was
	require.Equal(t, []event.Bound{{After: 0, At: 50}, {After: 1, At: 120}}, l.batch.Bounds)
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	good := []message{begin(100), outboxRelation, outboxRow("a", "1"), commit(100, 120)}
	for i := range good {
		d := testDecoder(outboxColumns(), 1000)
		l := testLoad()
		decodeAll(t, d, l, good[:i]...)
		m := good[i]
		if m[0] == 'I' {
			m = m[:len(m)-4] // the last columns are not mapped, so that their absence would not be seen
		}
		f := d.message(l, m[:len(m)-3])
		require.NotNil(t, f, "%c", m[0])
		require.Equal(t, event.Internal, f.Class)
	}
	for name, ms := range map[string][]message{
		"empty":                    {{}},
		"unknown":                  {msg('!')},
		"insert without begin":     {outboxRelation, outboxRow("a", "1")},
		"insert without relation":  {begin(1), outboxRow("a", "1")},
		"begin in a transaction":   {begin(1), begin(2)},
		"commit without begin":     {commit(100, 120)},
		"commit before what was":   {begin(1), commit(1, 5)},
		"other number of columns":  {begin(1), outboxRelation, insertMsg(60, 1).value("a")},
		"key instead of new tuple": {begin(1), outboxRelation, msg('I').u32(60).u8('K').u16(4)},
		"a negative length":        {begin(1), outboxRelation, insertMsg(60, 4).u8('t').u32(^uint32(0))},
	} {
		d, l := testDecoder(outboxColumns(), 1000), testLoad()
		var f *event.Fault
		for _, m := range ms {
			f = d.message(l, m)
		}
		require.NotNil(t, f, name)
		require.Equal(t, event.Internal, f.Class, name)
	}
}

func TestABatchsMemoryIsReusedOnlyAfterRelease(t *testing.T) {
	d, l := testDecoder(outboxColumns(), 1<<20), testLoad()
	decodeAll(t, d, l, begin(1), outboxRelation)
	for i := range 3000 {
		decodeAll(t, d, l, outboxRow(fmt.Sprint(i), fmt.Sprintf("payload %d", i)))
	}
	tx := l.batch.Events[0].Tx
	for i := range l.batch.Events {
		require.Equal(t, fmt.Sprint(i), string(l.batch.Events[i].Row[event.ID].Bytes))
		require.Equal(t, fmt.Sprintf("payload %d", i), string(l.batch.Events[i].Row[event.Payload].Bytes))
	}
	l.batch.Release()
	require.True(t, l.empty())
	decodeAll(t, d, l, commit(1, 20), begin(30), outboxRow("x", "y"))
	require.Equal(t, "0/1", tx.ID, "a transaction outlives its batch")
	require.Equal(t, "0/1E", l.batch.Events[0].Tx.ID)
}

// FuzzDecoder feeds arbitrary messages: nothing may panic, and what our decoder accepts must say what pglogrepl's says.
func FuzzDecoder(f *testing.F) {
	for _, m := range []message{begin(100), commit(100, 120), outboxRelation, outboxRow("a", "{}"), insertMsg(60, 4).null().u8('u').value("").null(), msg('Y').u32(1).text("a").text("b")} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		d, l := testDecoder(outboxColumns(), 1<<20), testLoad()
		decodeAll(t, d, l, outboxRelation)
		if len(m) > 0 && m[0] != 'B' {
			decodeAll(t, d, l, begin(100))
		}
		if fault := d.message(l, m); fault != nil {
			return
		}
		same(t, d, l, m)
	})
}

// same compares with pglogrepl, which is strict in other places: only what both accept is compared.
func same(t *testing.T, d *decoder, l *load, m []byte) {
	want := parseElsewhere(bytes.Clone(m))
	switch w := want.(type) {
	case *pglogrepl.BeginMessage:
		require.EqualValues(t, w.FinalLSN, d.final)
		if max(d.commit, -d.commit) < 1<<50 { // pglogrepl counts in nanoseconds, which overflow
			require.True(t, w.CommitTime.Equal(time.UnixMicro(d.commit+postgresEpoch)))
		}
	case *pglogrepl.CommitMessage:
		require.EqualValues(t, w.TransactionEndLSN, d.at)
	case *pglogrepl.RelationMessage:
		r := d.relations[w.RelationID]
		require.NotNil(t, r)
		ours := w.RelationID == 60 || w.Namespace == "public" && w.RelationName == "outbox"
		require.Equal(t, !ours, r.foreign)
		if ours {
			require.Len(t, r.plan, len(w.Columns))
		}
	case *pglogrepl.InsertMessage:
		require.Len(t, l.batch.Events, 1)
		e := &l.batch.Events[0]
		for i, role := range map[int]event.Role{0: event.ID, 2: event.Payload} {
			v := e.Row[role]
			switch c := w.Tuple.Columns[i]; c.DataType {
			case 'n':
				require.True(t, v.Null)
			case 't':
				require.Equal(t, c.Data, v.Bytes)
			}
		}
	}
}

// parseElsewhere is pglogrepl's parser, which panics over some malformed messages; nil where it does not accept one.
func parseElsewhere(m []byte) (out pglogrepl.Message) {
	defer func() {
		if recover() != nil {
			out = nil
		}
	}()
	if claimsMore(m) {
		return nil
	}
	out, err := pglogrepl.Parse(m)
	if err != nil {
		return nil
	}
	return out
}

// claimsMore says that a message is none that ours looks into, or claims values that it has not: pglogrepl makes room for as many
// gigabytes as are claimed before it looks.
func claimsMore(m []byte) bool {
	w := wire{b: m}
	switch w.byte() {
	case 'T', 'U', 'D':
		return true
	case 'I':
		w.u32()
		w.byte()
		for range w.u16() {
			if kind := w.byte(); kind == 't' || kind == 'b' {
				w.take(int(w.u32()))
			}
		}
	case 'M':
		w.byte()
		w.u64()
		w.text()
		w.take(int(w.u32()))
	}
	return w.bad
}

// testdata/*.hex are messages of real servers, one in hex per line, as Postgres 15 and 17 sent them.
func TestMessagesOfRealServersDecodeAsPglogreplDecodesThem(t *testing.T) {
	files, err := filepath.Glob("testdata/*.hex")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		d := testDecoder(outboxColumns(), 1<<20)
		d.targets[0].relid = 0
		rows := 0
		names := map[uint32]*pglogrepl.RelationMessage{}
		for _, line := range bytes.Fields(text) {
			m, err := hex.DecodeString(string(line))
			require.NoError(t, err)
			l := testLoad()
			require.Nil(t, d.message(l, m), "%q", m)
			want, err := pglogrepl.Parse(m)
			require.NoError(t, err)
			if r, ok := want.(*pglogrepl.RelationMessage); ok {
				names[r.RelationID] = r
			}
			in, ok := want.(*pglogrepl.InsertMessage)
			if !ok || names[in.RelationID].RelationName != "outbox" {
				require.Empty(t, l.batch.Events)
				continue
			}
			require.Len(t, l.batch.Events, 1)
			rows++
			for i, c := range in.Tuple.Columns {
				var role event.Role
				switch names[in.RelationID].Columns[i].Name {
				case "id":
					role = event.ID
				case "payload":
					role = event.Payload
				default:
					continue
				}
				v := l.batch.Events[0].Row[role]
				require.Equal(t, c.DataType == 'n', v.Null)
				require.Equal(t, string(c.Data), string(v.Bytes))
			}
		}
		require.Positive(t, rows, file)
	}
}
