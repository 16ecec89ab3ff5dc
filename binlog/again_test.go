package binlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
)

// drawTransaction writes a transaction of rows and savepoints, and gives the rows that count where it commits.
func drawTransaction(t *rapid.T, w *logWriter, n int64, end func()) (kept []string) {
	w.gtid(n)
	w.query("BEGIN")
	w.outboxMap()
	type save struct {
		name string
		kept int
	}
	var saves []save
	row := 0
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		switch rapid.IntRange(0, 9).Draw(t, "step") {
		case 0:
			s := save{string(rune('a' + rapid.IntRange(0, 2).Draw(t, "name"))), len(kept)}
			for i := range saves {
				if saves[i].name == s.name {
					saves = append(saves[:i], saves[i+1:]...)
					break
				}
			}
			saves = append(saves, s)
			w.query("SAVEPOINT `" + s.name + "`")
		case 1:
			if len(saves) > 0 {
				i := rapid.IntRange(0, len(saves)-1).Draw(t, "back to")
				kept, saves = kept[:saves[i].kept], saves[:i+1]
				w.query("ROLLBACK TO `" + saves[i].name + "`")
			}
		default:
			var rows []string
			for range rapid.IntRange(1, 4).Draw(t, "rows") {
				row++
				rows = append(rows, fmt.Sprintf("%d.%d %s", n, row, strings.Repeat("z", rapid.SampledFrom([]int{0, 1000, 20_000}).Draw(t, "size"))))
			}
			w.rows(1, rows...)
			kept = append(kept, rows...)
		}
	}
	end()
	return append([]string(nil), kept...)
}

// Whatever the limits, and wherever a stored prefix ends, the rows, their numbers and the position are those of a reading that
// keeps everything in memory.
func TestATransactionBeyondLimitsSpillReadsLikeOthers(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		w := &logWriter{}
		w.file("binlog.000001")
		var want []string
		var first []string
		for n := range int64(rapid.IntRange(1, 4).Draw(t, "transactions")) {
			commit := rapid.IntRange(0, 3).Draw(t, "commit") > 0
			kept := drawTransaction(t, w, n+1, func() {
				if commit {
					w.xid()
				} else {
					w.query("ROLLBACK")
				}
			})
			if commit {
				want = append(want, kept...)
				if n == 0 {
					first = kept
				}
			}
		}
		log := bytes.Clone(w.Bytes())
		var prefix *event.Prefix
		if len(first) > 0 && rapid.Bool().Draw(t, "prefix") {
			prefix = &event.Prefix{Tx: "aa000000-0000-0000-0000-000000000000:1", Rows: uint64(rapid.IntRange(1, len(first)).Draw(t, "prefix rows"))}
			want = want[prefix.Rows:]
		}
		var tb quietTB
		space := &SpillSpace{}
		s, st := feed(&tb, bytes.NewReader(log), io.EOF, func(o *Options) {
			o.SpillDir, o.SpillSpace = dir, space
			o.SpillLimit = int64(rapid.SampledFrom([]int{100, 5000, 50_000, 1 << 20}).Draw(t, "limit"))
		})
		st.spillAt = rapid.SampledFrom([]int{1, 3000, 30_000}).Draw(t, "memory")
		st.prefix = prefix
		st.redial = func(_ context.Context, from origin) (*wireReader, error) {
			again := bytes.NewReader(w.from(log, from.file, from.pos))
			return newWireReader(&fedConn{Reader: again, end: io.EOF, wake: make(chan struct{}, 1)}, time.Minute, s.readLimit()), nil
		}
		d := drainAll(s)
		if f := event.AsFault(d.err); f == nil || f.Code != codeLost {
			t.Fatalf("it ends as the log does: %v", d.err)
		}
		if fmt.Sprint(want) != fmt.Sprint(d.payloads) {
			t.Fatalf("want %.20q\ngot  %.20q", want, d.payloads)
		}
		for i := 1; i < len(d.txs); i++ {
			if d.txs[i] == d.txs[i-1] && d.indexes[i] != d.indexes[i-1]+1 || d.txs[i] != d.txs[i-1] && d.indexes[i] != 0 {
				t.Fatalf("row %d of %s follows row %d of %s", d.indexes[i], d.txs[i], d.indexes[i-1], d.txs[i-1])
			}
		}
		if d.pos.Pos != uint64(w.pos) {
			t.Fatalf("the position is %d, the log ends at %d", d.pos.Pos, w.pos)
		}
		_ = s.Close()
		if n := space.used.Load(); n != 0 {
			t.Fatalf("%d bytes are still counted as spilled", n)
		}
	})
}

// The second reading hands rows out before it has come to the transaction's end: nothing waits for all of it.
func TestASecondReadingFlows(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	w.gtid(1)
	w.query("BEGIN")
	w.outboxMap()
	for i := range 100 {
		w.rows(1, fmt.Sprintf("%d %s", i, strings.Repeat("x", 10_000)))
	}
	half := w.Len()
	for i := range 100 {
		w.rows(1, fmt.Sprintf("%d %s", 100+i, strings.Repeat("x", 10_000)))
	}
	w.xid()
	log := bytes.Clone(w.Bytes())
	s, st := feed(t, bytes.NewReader(log), io.EOF, func(o *Options) { o.SpillLimit = 100_000 })
	st.spillAt = 50_000
	st.redial = func(_ context.Context, from origin) (*wireReader, error) {
		again := bytes.NewReader(w.from(log[:half], from.file, from.pos))
		return newWireReader(&fedConn{Reader: again, end: io.EOF, wake: make(chan struct{}, 1)}, time.Minute, s.readLimit()), nil
	}
	d := drainAll(s)
	require.Len(t, d.payloads, 100)
	require.Equal(t, codeLost, event.AsFault(d.err).Code)
	require.Zero(t, d.pos.Pos, "no position beyond a transaction that was not read to its end")
}

func TestAServerThatChangesItsStoryIsNotBelieved(t *testing.T) {
	big := strings.Repeat("x", 10_000)
	write := func(rows int, end func(*logWriter)) *logWriter {
		w := &logWriter{at: 1}
		w.file("binlog.000001")
		w.gtid(1)
		w.query("BEGIN")
		w.outboxMap()
		for range rows {
			w.rows(1, big)
		}
		end(w)
		return w
	}
	first := write(20, (*logWriter).xid)
	for name, c := range map[string]struct {
		second *logWriter
		code   string
	}{
		"other rows":   {write(19, (*logWriter).xid), codeUnread},
		"rolled back":  {write(20, func(w *logWriter) { w.query("ROLLBACK") }), codeUnread},
		"another file": {func() *logWriter { w := write(20, (*logWriter).xid); w.at = 77; return w }(), codeDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			s, st := feed(t, bytes.NewReader(bytes.Clone(first.Bytes())), io.EOF, func(o *Options) { o.SpillLimit = 50_000 })
			st.spillAt = 30_000
			st.redial = func(_ context.Context, from origin) (*wireReader, error) {
				head := &logWriter{at: c.second.at}
				head.rotateTo(from.file, from.pos)
				head.description(flagArtificial)
				again := io.MultiReader(head, bytes.NewReader(c.second.Bytes()[c.second.begins[uint32(from.pos)]:]))
				return newWireReader(&fedConn{Reader: again, end: io.EOF, wake: make(chan struct{}, 1)}, time.Minute, s.readLimit()), nil
			}
			d := drainAll(s)
			require.Equal(t, c.code, event.AsFault(d.err).Code, "%v", d.err)
			require.Zero(t, d.pos.Pos)
		})
	}
}

func TestSavepointsOfOneNameDoNotPileUp(t *testing.T) {
	var tx txState
	for range 1000 {
		tx.save("a")
		tx.save("b")
	}
	require.Len(t, tx.saves, 2)
}
