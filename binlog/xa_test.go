package binlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
)

// shelf is a Prepared that survives its sessions, as a file does, and can refuse to write.
type shelf struct {
	id     string
	values map[string][]byte
	writes int
	refuse func(write int) error
}

func (s *shelf) ID() (string, error) { return s.id, nil }

func (s *shelf) Create() (string, error) {
	if s.id == "" {
		s.id, s.values = "shelf", map[string][]byte{}
	}
	return s.id, nil
}

func (s *shelf) Write(puts map[string][]byte, drops []string) error {
	s.writes++
	if s.refuse != nil {
		if err := s.refuse(s.writes); err != nil {
			return err
		}
	}
	for k, v := range puts {
		s.values[k] = bytes.Clone(v)
	}
	for _, d := range drops {
		maps.DeleteFunc(s.values, func(k string, _ []byte) bool { return strings.HasPrefix(k, d) })
	}
	return nil
}

func (s *shelf) Get(key string) ([]byte, error) { return bytes.Clone(s.values[key]), nil }

func (s *shelf) Each(prefix string, visit func(string, []byte) error) error {
	keys := slices.Collect(maps.Keys(s.values))
	sort.Strings(keys)
	for _, k := range keys {
		if strings.HasPrefix(k, prefix) {
			if err := visit(k, s.values[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

func withShelf(s *shelf) func(*Options) { return func(o *Options) { o.Prepared = s } }

// prepare writes the group of a prepared transaction.
func (w *logWriter) prepare(gno int64, x xid, payloads ...string) {
	w.gtid(gno)
	w.query("XA START " + x.String())
	if len(payloads) > 0 {
		w.outboxMap()
		w.rows(uint64(gno)*1000, payloads...)
	} else {
		w.tableMap(8, "shop", "other", []byte{typeLongLong, typeBlob}, []byte{4})
		w.event(evWriteRows, 0, []byte{8, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff, 1, 2, 3})
	}
	w.xaPrepare(x, false)
}

func (w *logWriter) decide(gno int64, what string, x xid) {
	w.gtid(gno)
	w.query("XA " + what + " " + x.String())
}

func (w *logWriter) plain(gno int64, payloads ...string) {
	w.gtid(gno)
	w.query("BEGIN")
	w.outboxMap()
	w.rows(uint64(gno)*1000, payloads...)
	w.xid()
}

func TestRowsOfPreparedTransactionsWaitForTheirDecision(t *testing.T) {
	a, b := xid{1, "a", ""}, xid{1, "b", ""}
	odd := xid{4294967295, "\x00\xff'", "b q\n"}
	for _, c := range []struct {
		name  string
		write func(*logWriter)
		want  string // GTID number and payload, in order
		kept  int    // transactions that are still open
	}{
		{"commit, from another connection, others between", func(w *logWriter) {
			w.prepare(1, a, "a1", "a2")
			w.plain(2, "p")
			w.decide(3, "COMMIT", a)
		}, "2:p 3:a1 3:a2", 0},
		{"rollback", func(w *logWriter) { w.prepare(1, a, "a1"); w.plain(2, "p"); w.decide(3, "ROLLBACK", a) }, "2:p", 0},
		{"undecided", func(w *logWriter) { w.prepare(1, a, "a1"); w.plain(2, "p") }, "2:p", 1},
		{"interleaved, decided in another order", func(w *logWriter) {
			w.prepare(1, a, "a1")
			w.prepare(2, b, "b1")
			w.decide(3, "COMMIT", b)
			w.decide(4, "COMMIT", a)
		}, "3:b1 4:a1", 0},
		{"a name that is used again", func(w *logWriter) {
			w.prepare(1, a, "a1")
			w.decide(2, "ROLLBACK", a)
			w.prepare(3, a, "a2")
			w.decide(4, "COMMIT", a)
		}, "4:a2", 0},
		{"a name that is used again for foreign tables", func(w *logWriter) {
			w.prepare(1, a, "a1")
			w.decide(2, "COMMIT", a)
			w.prepare(3, a)
			w.decide(4, "COMMIT", a)
		}, "2:a1", 0},
		{"a server that lost what it had prepared", func(w *logWriter) {
			w.prepare(1, a, "lost")
			w.prepare(2, a)
			w.decide(3, "COMMIT", a)
		}, "", 0},
		{"foreign tables only", func(w *logWriter) { w.prepare(1, a); w.decide(2, "COMMIT", a); w.plain(3, "p") }, "3:p", 0},
		{"binary names and a large format", func(w *logWriter) { w.prepare(1, odd, "o"); w.prepare(2, a, "a1"); w.decide(3, "COMMIT", odd) }, "3:o", 1},
		{"a format that a restart of the server shortened", func(w *logWriter) {
			w.prepare(1, xid{1<<32 + 7, "g", ""}, "o")
			w.decide(2, "COMMIT", xid{7, "g", ""})
		}, "2:o", 0},
		{"in one phase", func(w *logWriter) {
			w.gtid(1)
			w.query("XA START " + a.String())
			w.outboxMap()
			w.rows(1, "one")
			w.xaPrepare(a, true)
		}, "1:one", 0},
		{"savepoints", func(w *logWriter) {
			w.gtid(1)
			w.query("XA START " + a.String())
			w.outboxMap()
			w.rows(1, "a1")
			w.query("SAVEPOINT s")
			w.rows(2, "gone")
			w.query("ROLLBACK TO s")
			w.rows(3, "a2")
			w.xaPrepare(a, false)
			w.decide(2, "COMMIT", a)
		}, "2:a1 2:a2", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, kept := &logWriter{}, &shelf{}
			w.file("binlog.000001")
			c.write(w)
			s, st := feed(t, w, io.EOF, withShelf(kept))
			d := drainAll(s)
			require.Equal(t, codeLost, event.AsFault(d.err).Code, "%v", d.err)
			var got []string
			index := map[string]uint64{}
			for i, p := range d.payloads {
				got = append(got, d.txs[i][37:]+":"+p)
				require.Equal(t, index[d.txs[i]], d.indexes[i], "rows are counted within the commit")
				index[d.txs[i]]++
			}
			require.Equal(t, c.want, strings.Join(got, " "))
			require.Len(t, st.xa.open, c.kept)
			// The position passed everything, so that the next session finds nothing but what is undecided.
			after, err := loadPrepared(kept, 1<<30, reachOf(d.pos))
			require.NoError(t, err)
			require.Len(t, after.open, c.kept)
			if c.kept == 0 {
				require.Empty(t, kept.values)
			}
			if strings.HasPrefix(c.name, "foreign") || c.name == "in one phase" {
				require.Empty(t, kept.id, "what does not concern us costs nothing")
				require.Zero(t, kept.writes)
			}
		})
	}
}

func TestAPreparedTransactionIsDurableBeforeThePositionPassesIt(t *testing.T) {
	a, b := xid{1, "a", ""}, xid{1, "b", ""}
	const set = "aa000000-0000-0000-0000-000000000000:1"
	var pieces []io.Reader
	w := &logWriter{}
	w.file("binlog.000001")
	for _, write := range []func(){
		func() { w.plain(1, "p"); w.prepare(2, a, "a1") },
		func() { w.prepare(3, b, "b1") },
		func() { w.decide(4, "ROLLBACK", a) },
		func() { w.decide(5, "ROLLBACK", b) },
	} {
		write()
		pieces = append(pieces, strings.NewReader(w.String()))
		w.Reset()
	}
	kept := &shelf{}
	s, st := feed(t, io.MultiReader(pieces...), io.EOF, withShelf(kept))
	last := func() uint64 {
		bt, err := s.Read(t.Context())
		require.NoError(t, err)
		return bt.Bounds[len(bt.Bounds)-1].At
	}
	at := last()
	require.Len(t, kept.values, 2, "head and rows are durable with the batch that passes them")
	for group, changed := range []func() bool{
		func() bool { return len(st.xa.open) == 2 },
		func() bool { return len(st.xa.open) == 1 },
		func() bool { return len(st.xa.open) == 0 },
	} {
		// The stream reads on, and nobody has asked for a batch behind it yet.
		writes := kept.writes
		for !changed() {
			require.NoError(t, st.step(t.Context()))
		}
		require.Equal(t, writes, kept.writes)
		p, _ := s.Position(at)
		require.Equal(t, fmt.Sprintf("%s-%d", set, group+2), p.GTID, "what is not durable is not passed by an earlier bound")
		st.emptyAt = time.Time{}
		at = last()
		require.Equal(t, writes+1, kept.writes)
	}
	require.Equal(t, set+"-5", func() string { p, _ := s.Position(at); return p.GTID }())
}

// step of the property below: one group of the log.
type xaStep struct {
	what string // plain, prepare, foreign, COMMIT, ROLLBACK
	x    xid
	rows []string
}

func drawXASteps(t *rapid.T) (steps []xaStep) {
	names := []xid{{1, "a", ""}, {1, "a", "b"}, {2, "a", ""}}
	prepared := map[xid]bool{}
	n := rapid.IntRange(1, 14).Draw(t, "groups")
	for g := range n {
		x := rapid.SampledFrom(names).Draw(t, "name")
		s := xaStep{what: "plain", x: x}
		if rapid.IntRange(0, 3).Draw(t, "kind") > 0 {
			switch {
			case prepared[x]:
				s.what = rapid.SampledFrom([]string{"COMMIT", "COMMIT", "ROLLBACK"}).Draw(t, "decision")
			default:
				s.what = rapid.SampledFrom([]string{"prepare", "prepare", "foreign"}).Draw(t, "preparation")
			}
			prepared[x] = !prepared[x]
		}
		if s.what == "plain" || s.what == "prepare" {
			for i := range rapid.IntRange(1, 3).Draw(t, "rows") {
				s.rows = append(s.rows, fmt.Sprintf("g%d.%d", g+1, i))
			}
		}
		steps = append(steps, s)
	}
	return steps
}

// I1, I2, I3: whatever the instants of crashes, and whichever write fails, each session delivers exactly what commits behind
// the stored position, in the order of the commits.
func TestNoCrashLosesOrInventsRowsOfPreparedTransactions(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawXASteps(rt)
		// What each group commits, by a model without positions.
		commits := make([][]string, len(steps)+1)
		waiting := map[xid][]string{}
		for i, s := range steps {
			switch s.what {
			case "plain":
				commits[i+1] = s.rows
			case "prepare", "foreign":
				waiting[s.x] = s.rows
			case "COMMIT":
				commits[i+1] = waiting[s.x]
			}
		}
		kept := &shelf{}
		stored, rows := 0, uint64(0) // groups and rows of the next one that are done
		for session := 0; stored < len(steps) && session < 40; session++ {
			// Groups behind the stored position, in pieces that arrive one by one.
			w := &logWriter{}
			w.file("binlog.000001")
			var pieces []io.Reader
			piece := func() {
				pieces = append(pieces, bytes.NewReader(bytes.Clone(w.Bytes())))
				w.Reset()
			}
			w.pos = 1000 * uint32(stored+1)
			for g := stored; g < len(steps); g++ {
				n := int64(g + 1)
				w.pos = 1000 * uint32(g+1)
				switch s := steps[g]; s.what {
				case "plain":
					w.plain(n, s.rows...)
				case "prepare", "foreign":
					w.prepare(n, s.x, s.rows...)
				default:
					w.decide(n, s.what, s.x)
				}
				if rapid.Bool().Draw(rt, "a pause") {
					piece()
				}
			}
			piece()
			last := session == 39 || rapid.IntRange(0, 3).Draw(rt, "to the end") == 0
			kept.refuse, kept.writes = nil, 0
			if fail := rapid.IntRange(0, 4).Draw(rt, "failing write"); fail > 0 && !last {
				kept.refuse = func(n int) error {
					if n == fail {
						return &event.Fault{Code: "OT4005", Class: event.Retry}
					}
					return nil
				}
			}
			s, st := feed(t, io.MultiReader(pieces...), io.EOF, withShelf(kept))
			sa, _ := parseGTIDSet("aa000000-0000-0000-0000-000000000000:1-" + fmt.Sprint(max(stored, 1)))
			if stored == 0 {
				sa = newGTIDSet()
			}
			st.ledger.at = folded{set: sa, file: &fileRef{name: "binlog.000001"}, pos: uint64(1000 * (stored + 1))}
			if rows > 0 {
				st.prefix = &event.Prefix{Tx: fmt.Sprintf("aa000000-0000-0000-0000-000000000000:%d", stored+1), Rows: rows}
			}
			s.mark = &xaMark{}
			if err := s.openPrepared(s.position(st.ledger.fold(0))); err != nil {
				_ = s.Close()
				continue
			}
			var expect []string
			for g := stored + 1; g <= len(steps); g++ {
				expect = append(expect, commits[g]...)
			}
			expect = expect[rows:]
			got := 0
			for reads := 0; ; reads++ {
				b, err := s.Read(context.Background())
				if err != nil {
					if code := event.AsFault(err).Code; code != codeLost && code != "OT4005" {
						rt.Fatalf("%v", err)
					}
					break
				}
				for i := range b.Events {
					if got >= len(expect) || string(b.Events[i].Row[event.Payload].Bytes) != expect[got] {
						rt.Fatalf("event %d is %q of %q, behind %d groups", got, b.Events[i].Row[event.Payload].Bytes, expect, stored)
					}
					got++
				}
				// Some of it is acked and stored.
				upTo := rapid.IntRange(0, len(b.Events)).Draw(rt, "acked")
				if last {
					upTo = len(b.Events)
				}
				at := uint64(0)
				for _, bd := range b.Bounds {
					if bd.After <= upTo {
						at = bd.At
					}
				}
				if at > 0 {
					p, _ := s.Position(at)
					rows = 0
					_, err := fmt.Sscan(p.GTID[strings.LastIndexAny(p.GTID, "-:")+1:], &stored)
					if err != nil {
						rt.Fatalf("%v", err)
					}
					if rapid.Bool().Draw(rt, "confirmed") {
						s.Confirm(p)
						st.xa.sweptAt = time.Time{}
					}
				}
				for i := range b.Events[:upTo] {
					var g int
					tx := b.Events[i].Tx.ID
					fmt.Sscan(tx[strings.LastIndexByte(tx, ':')+1:], &g)
					if g == stored+1 {
						rows = b.Events[i].Index + 1
					}
				}
				if b.Release != nil {
					b.Release()
				}
				if !last && (upTo < len(b.Events) || rapid.IntRange(0, 3).Draw(rt, "a crash") == 0) {
					break
				}
			}
			_ = s.Close()
			if last && got != len(expect) {
				rt.Fatalf("%d of %d events, behind %d groups", got, len(expect), stored)
			}
		}
		if stored < len(steps) {
			rt.Fatalf("stored %d of %d groups", stored, len(steps))
		}
		kept.refuse = nil
		end, err := loadPrepared(kept, 1<<30, reach{set: mustSet(fmt.Sprintf("aa000000-0000-0000-0000-000000000000:1-%d", len(steps)))})
		if err != nil || len(end.decided) > 0 {
			rt.Fatalf("%v %v", err, end)
		}
		if len(end.open) == 0 && len(kept.values) > 0 {
			rt.Fatalf("%d values are left", len(kept.values))
		}
	})
}

func mustSet(text string) *gtidSet {
	g, err := parseGTIDSet(text)
	if err != nil {
		panic(err)
	}
	return g
}

func TestAFullPlaceHoldsThePosition(t *testing.T) {
	a, b := xid{1, "a", ""}, xid{1, "b", ""}
	big := strings.Repeat("x", 3000)
	write := func(w *logWriter) {
		w.plain(1, "p")
		w.prepare(2, a, big)
		w.prepare(3, b, big)
		w.plain(4, "q")
		w.decide(5, "COMMIT", a)
		w.decide(6, "COMMIT", b)
	}
	start := func(t *testing.T, limit int64, kept *shelf) (*Source, *stream, chan *event.Fault) {
		w := &logWriter{}
		w.file("binlog.000001")
		write(w)
		said := make(chan *event.Fault, 100)
		s, st := feed(t, w, nil, withShelf(kept), func(o *Options) {
			o.XALimit = limit
			o.Conditions = func(key string, f *event.Fault) {
				if key == conditionXA && f != nil {
					said <- f
				}
			}
		})
		return s, st, said
	}
	until := func(t *testing.T, s *Source, n int) (payloads []string, pos event.Position) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			bt, err := s.Read(ctx)
			require.NoError(t, err)
			for i := range bt.Events {
				payloads = append(payloads, string(bt.Events[i].Row[event.Payload].Bytes))
			}
			for _, bd := range bt.Bounds {
				pos, _ = s.Position(bd.At)
			}
			if strings.HasSuffix(pos.GTID, fmt.Sprint(n)) {
				return payloads, pos
			}
		}
	}
	t.Run("until somebody decides what fills it", func(t *testing.T) {
		s, st, said := start(t, 6000, &shelf{})
		names := make(chan []xid, 100)
		names <- []xid{a}
		st.askPrepared = func(context.Context) ([]xid, bool) {
			select {
			case n := <-names:
				return n, true
			default:
				return nil, true
			}
		}
		got, pos := until(t, s, 2)
		require.Equal(t, []string{"p"}, got)
		require.Equal(t, "aa000000-0000-0000-0000-000000000000:1-2", pos.GTID, "the position waits before what has no room")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-said; cancel() }()
		_, err := s.Read(ctx)
		require.ErrorIs(t, err, context.Canceled, "nothing is read on")
		f := st.fullFault()
		require.Contains(t, f.Text, "X'61',X'',1")
		require.Contains(t, f.Hint, "XA RECOVER")
		got, _ = until(t, s, 6)
		require.Equal(t, []string{"q", big, big}, got)
	})
	t.Run("until the stored position leaves what is decided behind", func(t *testing.T) {
		kept := &shelf{}
		w := &logWriter{}
		w.file("binlog.000001")
		w.prepare(1, a, big)
		w.decide(2, "COMMIT", a)
		w.prepare(3, b, big)
		w.decide(4, "COMMIT", b)
		s, st := feed(t, w, nil, withShelf(kept), func(o *Options) { o.XALimit = 6000 })
		got, pos := until(t, s, 2)
		require.Equal(t, []string{big}, got)
		require.NotNil(t, st.holding)
		s.Confirm(pos)
		got, _ = until(t, s, 4)
		require.Equal(t, []string{big}, got)
	})
	t.Run("for ever where one alone is larger, and a larger limit goes on from there", func(t *testing.T) {
		kept := &shelf{}
		s, st, said := start(t, 2000, kept)
		_, pos := until(t, s, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-said; cancel() }()
		_, err := s.Read(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Contains(t, st.fullFault().Text, "more than limits.xa (2000)")
		require.Equal(t, "aa000000-0000-0000-0000-000000000000:1", pos.GTID)
		require.Empty(t, kept.values)
		s, _, _ = start(t, 20000, kept)
		got, _ := until(t, s, 6)
		require.Equal(t, []string{"p", "q", big, big}, got)
	})
}

func TestALargePreparedTransactionGoesThroughTheFile(t *testing.T) {
	w, kept := &logWriter{}, &shelf{}
	w.file("binlog.000001")
	var want []string
	rows := func(gno int64, n int) {
		w.gtid(gno)
		w.query("XA START " + xid{1, fmt.Sprint(gno), ""}.String())
		w.outboxMap()
		for i := range n {
			p := fmt.Sprintf("%d.%d:", gno, i) + strings.Repeat("x", 100<<10)
			want = append(want, p)
			w.rows(uint64(i), p)
		}
		w.xaPrepare(xid{1, fmt.Sprint(gno), ""}, false)
	}
	rows(1, 100) // through the spill file
	rows(2, 20)  // in memory, but not with others in a batch
	want = append(want, "p")
	w.plain(3, "p")
	w.decide(4, "COMMIT", xid{1, "1", ""})
	w.decide(5, "COMMIT", xid{1, "2", ""})
	order := append([]string{"p"}, want[:120]...)
	s, _ := feed(t, w, io.EOF, withShelf(kept))
	d := drainAll(s)
	require.Equal(t, codeLost, event.AsFault(d.err).Code)
	require.Equal(t, len(order), len(d.payloads))
	for i := range order {
		require.True(t, order[i] == d.payloads[i], "row %d", i)
	}
	require.Greater(t, d.batches, 10, "piece by piece")
	require.Equal(t, uint64(99), d.indexes[100])
	for k, v := range kept.values {
		require.LessOrEqual(t, len(v), chunkBytes, "%q", k)
	}
	t.Run("a crash while it is written leaves nothing that counts", func(t *testing.T) {
		w := &logWriter{}
		w.file("binlog.000001")
		w.gtid(1)
		w.query("XA START X'31',X'',1")
		w.outboxMap()
		for i := range 150 {
			w.rows(uint64(i), strings.Repeat("x", 100<<10))
		}
		w.xaPrepare(xid{1, "1", ""}, false)
		kept := &shelf{refuse: func(n int) error {
			if n == 4 {
				return &event.Fault{Code: "OT4005", Class: event.Retry}
			}
			return nil
		}}
		s, _ := feed(t, w, io.EOF, withShelf(kept))
		d := drainAll(s)
		require.Equal(t, "OT4005", event.AsFault(d.err).Code)
		require.NotEmpty(t, kept.values)
		after, err := loadPrepared(kept, 1<<30, reach{set: newGTIDSet()})
		require.NoError(t, err)
		require.Empty(t, after.open)
		require.Empty(t, kept.values)
	})
}
