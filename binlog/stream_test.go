package binlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
)

// drained is all that a source delivers until its log ends.
type drained struct {
	payloads []string
	txs      []string
	indexes  []uint64
	pos      event.Position
	err      error
	batches  int
}

func drainAll(s *Source) (d drained) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		b, err := s.Read(ctx)
		if err != nil {
			d.err = err
			return d
		}
		d.batches++
		for i := range b.Events {
			e := &b.Events[i]
			d.payloads = append(d.payloads, string(e.Row[event.Payload].Bytes))
			d.txs = append(d.txs, e.Tx.ID)
			d.indexes = append(d.indexes, e.Index)
		}
		for _, bound := range b.Bounds {
			d.pos, _ = s.Position(bound.At)
		}
		if b.Release != nil {
			b.Release()
		}
	}
}

func TestRowsAreReleasedByTheEndOfTheirTransaction(t *testing.T) {
	begin := func(w *logWriter, n int64) { w.gtid(n); w.query("BEGIN"); w.outboxMap() }
	for _, c := range []struct {
		name  string
		write func(*logWriter)
		want  []string
		set   string
	}{
		{"XID", func(w *logWriter) { begin(w, 1); w.rows(1, "a", "b"); w.xid() }, []string{"a", "b"}, ":1"},
		{"COMMIT", func(w *logWriter) { begin(w, 1); w.rows(1, "a"); w.query("COMMIT") }, []string{"a"}, ":1"},
		{"ROLLBACK", func(w *logWriter) { begin(w, 1); w.rows(1, "a"); w.query("ROLLBACK") }, nil, ":1"},
		{"no end", func(w *logWriter) { begin(w, 1); w.rows(1, "a"); w.xid(); begin(w, 2); w.rows(2, "b") }, []string{"a"}, ":1"},
		{"the next group begins without an end", func(w *logWriter) { begin(w, 1); w.rows(1, "a"); begin(w, 2); w.rows(2, "b"); w.xid() }, []string{"b"}, ":2"},
		{"savepoints", func(w *logWriter) {
			begin(w, 1)
			w.rows(1, "a")
			w.query("SAVEPOINT `x`")
			w.rows(2, "gone")
			w.query("SAVEPOINT `y`")
			w.rows(3, "gone")
			w.query("ROLLBACK TO `x`")
			w.rows(4, "d")
			w.query("ROLLBACK TO `x`")
			w.rows(5, "e")
			w.xid()
		}, []string{"a", "e"}, ":1"},
		{"XA in one phase", func(w *logWriter) { begin(w, 1); w.rows(1, "a"); w.event(evXAPrepare, 0, []byte{1, 0, 0, 0, 0}) }, []string{"a"}, ":1"},
		{"foreign rows", func(w *logWriter) {
			begin(w, 1)
			w.tableMap(8, "shop", "other", []byte{typeLongLong, typeBlob}, []byte{4})
			w.event(evWriteRows, 0, []byte{8, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff, 1, 2, 3})
			w.rows(1, "a")
			w.xid()
			w.gtid(2)
			w.query("CREATE TABLE x (a INT)")
		}, []string{"a"}, ":1-2"},
		{"deletes and unknown ignorable events", func(w *logWriter) {
			begin(w, 1)
			w.event(evDeleteRows, 0, []byte{9, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff, 0})
			w.event(200, flagIgnorable, []byte{1})
			w.xid()
		}, nil, ":1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &logWriter{}
			w.file("binlog.000001")
			c.write(w)
			s, _ := feed(t, w, io.EOF)
			d := drainAll(s)
			f := event.AsFault(d.err)
			require.NotNil(t, f)
			require.Equal(t, codeLost, f.Code, "%v", f)
			require.Equal(t, c.want, d.payloads)
			require.Equal(t, "aa000000-0000-0000-0000-000000000000"+c.set, d.pos.GTID)
			require.Equal(t, "binlog.000001", d.pos.File)
		})
	}
}

func TestWhatCannotBeReadStops(t *testing.T) {
	for name, c := range map[string]struct {
		write func(*logWriter)
		code  string
		class event.Class
	}{
		"incident":         {func(w *logWriter) { w.event(evIncident, 0, []byte{1, 0, 0}) }, codeIncident, event.Safety},
		"an unknown event": {func(w *logWriter) { w.event(200, 0, nil) }, codeUnread, event.Safety},
		"prepared XA": {func(w *logWriter) {
			w.gtid(1)
			w.query("XA START X'61',X'',1")
			w.outboxMap()
			w.rows(1, "a")
			w.xaPrepare(xid{1, "a", ""}, false)
		}, codeXA, event.Safety},
		"a statement":            {func(w *logWriter) { w.gtid(1); w.query("BEGIN"); w.query("INSERT INTO outbox VALUES (1)") }, codeStatement, event.Safety},
		"rows without table map": {func(w *logWriter) { w.gtid(1); w.query("BEGIN"); w.rows(1, "a") }, codeDamaged, event.Retry},
		"a column of the mapping is not in the image": {func(w *logWriter) {
			w.gtid(1)
			w.query("BEGIN")
			w.outboxMap()
			w.event(evWriteRows, 0, []byte{9, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8})
		}, codePartial, event.Safety},
		"a flipped bit": {func(w *logWriter) {
			w.gtid(1)
			w.query("BEGIN")
			w.outboxMap()
			w.rows(1, "a")
			b := w.Bytes()
			b[len(b)-6] ^= 1
		}, codeDamaged, event.Retry},
		"1236": {func(w *logWriter) {
			w.packet([]byte("\xff\xd4\x04#HY000Client requested source to start replication from impossible position"))
		}, codeDump, event.Safety},
		"our id twice": {func(w *logWriter) {
			w.packet([]byte("\xff\xd4\x04#HY000A replica with the same server_uuid/server_id as this replica has connected to the source"))
		}, codeServerID, event.Retry},
		"the end": {func(w *logWriter) { w.packet([]byte{0xfe, 0, 0, 0, 0}) }, codeLost, event.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			w := &logWriter{}
			w.file("binlog.000001")
			w.gtid(7)
			w.query("BEGIN")
			w.outboxMap()
			w.rows(70, "before")
			w.xid()
			c.write(w)
			s, _ := feed(t, w, io.EOF)
			d := drainAll(s)
			f := event.AsFault(d.err)
			require.NotNil(t, f)
			require.Equal(t, c.code, f.Code, "%v", f)
			require.Equal(t, c.class, f.Class)
			require.Equal(t, []string{"before"}, d.payloads, "what finished before is delivered first")
			_, err := s.Read(context.Background())
			require.Error(t, err, "and the session stays over")
		})
	}
}

func TestAcceptedFindingsPassOnce(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	for n := range int64(2) {
		w.gtid(2*n + 1)
		w.query("BEGIN")
		w.query("INSERT INTO outbox VALUES (1)")
		w.xid()
		w.gtid(2*n + 2)
		w.query("BEGIN")
		w.outboxMap()
		w.rows(1, fmt.Sprint(n))
		w.xid()
	}
	s, st := feed(t, w, io.EOF)
	st.accepted = []string{codeStatement}
	d := drainAll(s)
	require.Equal(t, []string{"0"}, d.payloads)
	require.Equal(t, codeStatement, event.AsFault(d.err).Code)
}

func TestPrefixCountsOnlyForTheNextTransactionOfOurs(t *testing.T) {
	log := func() *logWriter {
		w := &logWriter{}
		w.file("binlog.000001")
		for n := int64(1); n <= 3; n++ {
			w.gtid(n)
			w.query("BEGIN")
			w.outboxMap()
			w.rows(1, fmt.Sprintf("%d.0", n), fmt.Sprintf("%d.1", n))
			w.rows(3, fmt.Sprintf("%d.2", n))
			w.xid()
		}
		return w
	}
	id := func(n int) string { return fmt.Sprintf("aa000000-0000-0000-0000-000000000000:%d", n) }
	for _, c := range []struct {
		prefix *event.Prefix
		want   string
	}{
		{nil, "1.0 1.1 1.2 2.0 2.1 2.2 3.0 3.1 3.2"},
		{&event.Prefix{Tx: id(1), Rows: 2}, "1.2 2.0 2.1 2.2 3.0 3.1 3.2"},
		{&event.Prefix{Tx: id(1), Rows: 3}, "2.0 2.1 2.2 3.0 3.1 3.2"},
		{&event.Prefix{Tx: id(2), Rows: 2}, "1.0 1.1 1.2 2.0 2.1 2.2 3.0 3.1 3.2"}, // a re-run is contiguous (I3)
	} {
		s, st := feed(t, log(), io.EOF)
		st.prefix = c.prefix
		d := drainAll(s)
		require.Equal(t, c.want, strings.Join(d.payloads, " "))
		if c.prefix != nil && c.prefix.Rows == 2 && c.prefix.Tx == id(1) {
			require.Equal(t, uint64(2), d.indexes[0])
		}
		require.Equal(t, id(1)[:37]+"1-3", d.pos.GTID)
	}
}

func TestAnonymousTransactionsEndTheGTIDPosition(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	w.gtid(1)
	w.query("BEGIN")
	w.outboxMap()
	w.rows(1, "a")
	w.xid()
	w.anonymous()
	w.query("BEGIN")
	w.outboxMap()
	w.rows(2, "b")
	w.xid()
	s, _ := feed(t, w, io.EOF)
	d := drainAll(s)
	require.Equal(t, []string{"a", "b"}, d.payloads)
	require.Empty(t, d.pos.GTID)
	require.Equal(t, uint64(w.pos), d.pos.Pos)
	require.Regexp(t, `^binlog.000001:\d+$`, d.txs[1])
}

func TestPositionBeyond4GiBWaitsForTheNextFile(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	commit := func(p string) {
		w.anonymous()
		w.query("BEGIN")
		w.outboxMap()
		w.rows(1, p)
		w.xid()
	}
	commit("a")
	before := w.pos
	w.pos = 1<<32 - 200 // a foreign transaction of almost 4 GiB went by
	w.heartbeat("binlog.000001")
	commit("b")
	s, st := feed(t, w, io.EOF)
	st.ledger.at.set, st.byFile = nil, true
	d := drainAll(s)
	require.Equal(t, []string{"a", "b"}, d.payloads)
	require.Greater(t, st.pos, uint64(maxPos))
	require.LessOrEqual(t, d.pos.Pos, uint64(maxPos))
	require.GreaterOrEqual(t, d.pos.Pos, uint64(before))
}

func TestSpilledTransactionsReadLikeOthers(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	w.gtid(1)
	w.query("BEGIN")
	w.outboxMap()
	big := strings.Repeat("x", 128<<10)
	var want []string
	row := func(keep bool) {
		p := fmt.Sprintf("%d:%s", w.pos, big)
		w.rows(1, p)
		if keep {
			want = append(want, p)
		}
	}
	row(true)
	w.query("SAVEPOINT a")
	for range 70 {
		row(false)
	}
	w.query("ROLLBACK TO a")
	row(true)
	w.query("SAVEPOINT b")
	row(false)
	w.query("ROLLBACK TO b")
	for range 40 {
		row(true)
	}
	w.xid()
	w.gtid(2)
	w.query("BEGIN")
	w.outboxMap()
	for range 40 {
		row(false)
	}
	w.query("ROLLBACK")
	w.gtid(3)
	w.query("BEGIN")
	w.outboxMap()
	row(true)
	w.xid()
	s, _ := feed(t, w, io.EOF)
	d := drainAll(s)
	require.Equal(t, len(want), len(d.payloads))
	for i := range want {
		require.True(t, want[i] == d.payloads[i], "row %d", i)
	}
	require.Equal(t, uint64(41), d.indexes[41])
	require.Greater(t, d.batches, 5, "released piece by piece")
	require.Equal(t, "aa000000-0000-0000-0000-000000000000:1-3", d.pos.GTID)

	t.Run("where the file cannot be written", func(t *testing.T) {
		w := &logWriter{}
		w.file("binlog.000001")
		w.gtid(1)
		w.query("BEGIN")
		w.outboxMap()
		for range 40 {
			w.rows(1, big)
		}
		w.xid()
		log := bytes.Clone(w.Bytes())
		dir := filepath.Join(t.TempDir(), "spill")
		require.NoError(t, os.WriteFile(dir, nil, 0o600))
		var held *event.Fault
		into := func(o *Options) {
			o.SpillDir = dir
			o.Conditions = func(key string, f *event.Fault) {
				require.Equal(t, "spill", key)
				held = f
			}
		}
		s, _ := feed(t, bytes.NewReader(log), io.EOF, into)
		f := event.AsFault(drainAll(s).err)
		require.NotNil(t, f)
		require.Equal(t, event.Retry, f.Class)
		require.Equal(t, f, held)

		require.NoError(t, os.Remove(dir))
		s, _ = feed(t, bytes.NewReader(log), io.EOF, into)
		require.Len(t, drainAll(s).payloads, 40)
		require.Nil(t, held)
	})
	t.Run("where the disk is full", func(t *testing.T) {
		w := &logWriter{}
		w.file("binlog.000001")
		w.gtid(1)
		w.query("BEGIN")
		w.outboxMap()
		for range 40 {
			w.rows(1, big)
		}
		w.xid()
		log := bytes.Clone(w.Bytes())
		var held *event.Fault
		dir := t.TempDir()
		into := func(o *Options) {
			o.SpillDir = dir
			o.Conditions = func(_ string, f *event.Fault) { held = f }
		}
		fullDisk(t, dir, "orders")()
		s, _ := feed(t, bytes.NewReader(log), io.EOF, into)
		f := event.AsFault(drainAll(s).err)
		require.Equal(t, codeSpill, f.Code)
		require.Equal(t, event.Retry, f.Class)
		require.Equal(t, f, held)
		s, _ = feed(t, bytes.NewReader(log), io.EOF, into)
		require.Len(t, drainAll(s).payloads, 40, "with room again, the next session has all of it")
		require.Nil(t, held)
	})
	t.Run("where other pipelines have taken limits.spill", func(t *testing.T) {
		w := &logWriter{}
		w.file("binlog.000001")
		w.gtid(1)
		w.query("BEGIN")
		w.outboxMap()
		for range 40 {
			w.rows(1, big)
		}
		w.xid()
		log := bytes.Clone(w.Bytes())
		space := &SpillSpace{}
		other, err := newSpill(t.TempDir(), "other", 10<<20, space)
		require.NoError(t, err)
		require.NoError(t, other.reserve(8<<20))
		var held *event.Fault
		into := func(o *Options) {
			o.SpillLimit, o.SpillSpace = 10<<20, space
			o.Conditions = func(_ string, f *event.Fault) { held = f }
		}
		s, _ := feed(t, bytes.NewReader(log), io.EOF, into)
		f := event.AsFault(drainAll(s).err)
		require.Equal(t, codeSpill, f.Code)
		require.Equal(t, event.Retry, f.Class, "it is waited for the others")
		require.Equal(t, f, held)
		require.NoError(t, s.Close())
		require.Equal(t, int64(8<<20), space.used.Load(), "what we had is given back")
		require.NoError(t, other.discard())
		s, _ = feed(t, bytes.NewReader(log), io.EOF, into)
		require.Len(t, drainAll(s).payloads, 40)
		require.Nil(t, held)
		require.Zero(t, space.used.Load())
	})
}

// Whatever the pieces in which the network delivers, and wherever a context ends, the same is read.
func TestReadingDoesNotDependOnHowBytesArrive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &logWriter{}
		w.file("binlog.000001")
		var want []string
		for n := range rapid.IntRange(1, 12).Draw(t, "transactions") {
			w.gtid(int64(n + 1))
			w.query("BEGIN")
			w.outboxMap()
			var rows []string
			for range rapid.IntRange(0, 3).Draw(t, "events") {
				p := fmt.Sprintf("%d-%d-%s", n, len(rows), strings.Repeat("y", rapid.SampledFrom([]int{0, 10, 3000, 300_000}).Draw(t, "size")))
				w.rows(1, p)
				rows = append(rows, p)
			}
			if rapid.Bool().Draw(t, "commit") {
				w.xid()
				want = append(want, rows...)
			} else {
				w.query("ROLLBACK")
			}
		}
		pieces := &pieceReader{r: w, t: t}
		s, _ := feedRapid(pieces)
		var got []string
		for {
			ctx, cancel := context.WithCancel(context.Background())
			if rapid.IntRange(0, 3).Draw(t, "cancel") == 0 {
				cancel()
			}
			b, err := s.Read(ctx)
			cancel()
			if errors.Is(err, context.Canceled) {
				continue
			}
			if err != nil {
				break
			}
			for i := range b.Events {
				got = append(got, string(b.Events[i].Row[event.Payload].Bytes))
			}
			if b.Release != nil {
				b.Release()
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d rows, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("row %d differs", i)
			}
		}
	})
}

type pieceReader struct {
	r io.Reader
	t *rapid.T
}

func (p *pieceReader) Read(b []byte) (int, error) {
	n := rapid.SampledFrom([]int{1, 3, 20, 500, 70_000, 1 << 20}).Draw(p.t, "piece")
	return p.r.Read(b[:min(n, len(b))])
}

func feedRapid(r io.Reader) (*Source, *stream) {
	var tb quietTB
	return feed(&tb, r, io.EOF, func(o *Options) { o.SpillDir = "" })
}

// quietTB is a testing.TB for helpers inside of a property.
type quietTB struct{ testing.TB }

func (*quietTB) TempDir() string                { return "" }
func (*quietTB) Cleanup(func())                 {}
func (*quietTB) Helper()                        {}
func (*quietTB) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
func (*quietTB) FailNow()                       { panic("failed") }

func TestIdlePositionFollowsTheHeartbeat(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	w.pos = 12345
	w.heartbeat("binlog.000001")
	s, _ := feed(t, w, io.EOF)
	require.Equal(t, uint64(12345), drainAll(s).pos.Pos)
}

func TestReadEndsWithItsContext(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	s, _ := feed(t, w, nil)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Millisecond, cancel)
	_, err := s.Read(ctx)
	for err == nil {
		_, err = s.Read(ctx)
	}
	require.ErrorIs(t, err, context.Canceled)
}

// What a giant event has beyond the limit cannot be written: the disk is to blame, not the connection.
func TestAGiantEventThatTheDiskDoesNotTake(t *testing.T) {
	var held *event.Fault
	s, st := feed(t, strings.NewReader(""), io.EOF, func(o *Options) {
		o.Conditions = func(_ string, f *event.Fault) { held = f }
	})
	full := fullDisk(t, s.o.SpillDir, "orders.payload")
	full()
	kept := make([]byte, 1+headerLen)
	kept[5] = evTransactionPayload
	w, err := st.overflow(kept)
	require.NoError(t, err)
	_, err = w.Write(make([]byte, 10))
	f := event.AsFault(s.dumpFault(err))
	require.Equal(t, codeSpill, f.Code)
	require.Equal(t, event.Retry, f.Class)
	require.Equal(t, f, held)
	st.giant.limit = 10
	_, err = w.Write(make([]byte, 1))
	f = event.AsFault(s.dumpFault(err))
	require.Equal(t, codeSpill, f.Code)
	require.Equal(t, event.Safety, f.Class, "limits.spill")
}

// fullDisk gives what makes the next spill file of a name one that takes nothing.
func fullDisk(t *testing.T, dir, name string) func() {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	return func() { require.NoError(t, os.Symlink("/dev/full", filepath.Join(dir, name+".rows"))) }
}
