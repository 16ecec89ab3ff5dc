package binlog

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// What a person vouched for holds from its place on, until the table is changed.
func TestTheWordForColumnsHoldsFromItsPlaceUntilTheNextChange(t *testing.T) {
	vouchedFor := definition{{"id", "bigint", ""}, {"payload", "longtext", "utf8mb4"}}
	read := func(t *testing.T, w *logWriter, k known) (payloads []string, code string, dep depends) {
		// Nobody listens there: a definition that has to be asked for is none.
		s, st := feed(t, w, io.EOF, func(o *Options) { o.Host, o.Port = "127.0.0.1", 1 })
		s.known[&s.tables[0]] = &k
		s.unproved = 1
		s.reading = t.Context()
		d := drainAll(s)
		f := event.AsFault(d.err)
		require.NotNil(t, f)
		return d.payloads, f.Code, parseDepends(s.dependsNow(st))
	}
	begin := func() *logWriter {
		w := &logWriter{}
		w.file("binlog.000001")
		return w
	}
	insert := func(w *logWriter, n int64, payload string) {
		w.gtid(n)
		w.query("BEGIN")
		w.outboxMap()
		w.rows(uint64(n), payload)
		w.xid()
	}
	at := func(w *logWriter) *vouched {
		return &vouched{ServerUUID: uuidA, File: "binlog.000001", Pos: uint64(w.pos), Columns: vouchedFor}
	}

	t.Run("a change before it does not matter", func(t *testing.T) {
		w := begin()
		w.gtid(1)
		w.query("ALTER TABLE outbox ADD COLUMN x INT")
		word := at(w)
		insert(w, 2, "a")
		insert(w, 3, "b")
		got, code, dep := read(t, w, known{proved: definition{{"nr", "bigint", ""}, {"payload", "longtext", "utf8mb4"}}, word: word})
		require.Equal(t, []string{"a", "b"}, got)
		require.Equal(t, codeLost, code, "the end of the bytes")
		require.Equal(t, map[string]definition{"shop.outbox": vouchedFor}, dep.Tables, "from now on it is stored as proved")
		require.Empty(t, dep.Vouched)
	})
	t.Run("it wins over what was stored, from its place on", func(t *testing.T) {
		w := begin()
		insert(w, 1, "a")
		word := at(w)
		insert(w, 2, "b")
		got, code, dep := read(t, w, known{proved: definition{{"id", "bigint", ""}, {"payload", "longblob", ""}}, word: word})
		require.Equal(t, []string{"a", "b"}, got)
		require.Equal(t, codeLost, code)
		require.Equal(t, vouchedFor, dep.Tables["shop.outbox"])
	})
	t.Run("a change behind it ends it", func(t *testing.T) {
		w := begin()
		word := at(w)
		insert(w, 1, "a")
		w.gtid(2)
		w.query("ALTER TABLE outbox ADD COLUMN x INT")
		insert(w, 3, "b")
		got, code, dep := read(t, w, known{word: word})
		require.Equal(t, []string{"a"}, got)
		require.Equal(t, codeUnreachable, code, "the server is asked")
		require.Empty(t, dep.Tables)
		require.Empty(t, dep.Vouched)
	})
	t.Run("before its place it says nothing, and waits", func(t *testing.T) {
		w := begin()
		word := at(w)
		word.Pos += 1000
		insert(w, 1, "a")
		got, code, dep := read(t, w, known{word: word})
		require.Empty(t, got)
		require.Equal(t, codeUnreachable, code)
		require.Equal(t, word, dep.Vouched["shop.outbox"])
	})
}
