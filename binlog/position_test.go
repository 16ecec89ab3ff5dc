package binlog

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
)

// Where a log leads the position, and what is stored with it.

func (w *logWriter) previousGTIDs(g *gtidSet) { w.event(evPreviousGTIDs, 0, g.encode()) }

func (w *logWriter) mariaGTID(server uint32, seq uint64, domain uint32) {
	body := binary.LittleEndian.AppendUint64(nil, seq)
	body = binary.LittleEndian.AppendUint32(body, domain)
	body = append(body, 0, 0, 0, 0, 0, 0, 0) // no flags: ends with XID or COMMIT
	w.server = server
	w.event(evMariaGTID, 0, body)
}

func (w *logWriter) mariaList(list ...mariaGTID) {
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(list)))
	for _, g := range list {
		body = binary.LittleEndian.AppendUint32(body, g.domain)
		body = binary.LittleEndian.AppendUint32(body, g.server)
		body = binary.LittleEndian.AppendUint64(body, g.seq)
	}
	w.event(evMariaGTIDList, 0, body)
}

func (w *logWriter) inserted(id uint64, payload string) {
	w.query("BEGIN")
	w.outboxMap()
	w.rows(id, payload)
	w.xid()
}

func byFile(st *stream) { st.ledger.at.set, st.ledger.at.maria, st.byFile = nil, nil, true }

func TestGTIDPositionBeyond4GiBIsStoredAsItIs(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	w.pos = 1<<32 - 100
	w.heartbeat("binlog.000001")
	w.gtid(1)
	w.inserted(1, "a")
	s, st := feed(t, w, io.EOF)
	d := drainAll(s)
	require.Equal(t, []string{"a"}, d.payloads)
	require.Greater(t, d.pos.Pos, uint64(maxPos))
	require.Equal(t, st.pos, d.pos.Pos)
	require.Contains(t, d.pos.GTID, ":1")
	// Such a place cannot be named to a server by file: its set is.
	require.Greater(t, parseWitness(event.MySQL, d.pos.Mark).from, uint64(1<<32-100-1))
}

func TestPositionBeyond4GiBGoesOnInTheNextFile(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	w.pos = 1<<32 - 100
	w.heartbeat("binlog.000001")
	w.anonymous()
	w.inserted(1, "a")
	w.rotateTo("binlog.000002", 4)
	w.pos = 4
	w.description(0)
	w.anonymous()
	w.inserted(2, "b")
	s, st := feed(t, w, io.EOF)
	byFile(st)
	d := drainAll(s)
	require.Equal(t, []string{"a", "b"}, d.payloads)
	require.Equal(t, "binlog.000002", d.pos.File)
	require.Equal(t, uint64(w.pos), d.pos.Pos)
}

func TestSetIsTakenOverWhereTransactionsHaveGTIDs(t *testing.T) {
	before, err := parseGTIDSet("bb000000-0000-0000-0000-000000000000:1-7:blue:1")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		begin func(w *logWriter)
		want  string
	}{
		"the first has one": {func(w *logWriter) { w.gtid(1) }, "aa000000-0000-0000-0000-000000000000:1," + before.String()},
		"the first has none": {func(w *logWriter) {
			w.anonymous()
			w.inserted(9, "x")
			w.gtid(1)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &logWriter{}
			w.file("binlog.000001")
			w.previousGTIDs(before)
			c.begin(w)
			w.inserted(1, "a")
			s, st := feed(t, w, io.EOF)
			byFile(st)
			s.server.gtids = false // what gtid_mode was at connect does not matter
			require.Equal(t, c.want, drainAll(s).pos.GTID)
		})
	}
}

func TestPlaceInsideOfATransactionIsRefused(t *testing.T) {
	for name, write := range map[string]func(w *logWriter){
		"before its rows": func(w *logWriter) { w.outboxMap(); w.rows(1, "a"); w.xid() },
		"before its end":  func(w *logWriter) { w.xid() },
	} {
		t.Run(name, func(t *testing.T) {
			w := &logWriter{}
			w.file("binlog.000001")
			write(w)
			s, _ := feed(t, w, io.EOF)
			d := drainAll(s)
			f := event.AsFault(d.err)
			require.NotNil(t, f)
			require.Equal(t, codeDump, f.Code)
			require.Equal(t, event.Safety, f.Class)
			require.Empty(t, d.payloads)
		})
	}
}

func TestLogThatBeginsAnewUnderARunningDumpEndsIt(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000007")
	w.gtid(1)
	w.inserted(1, "a")
	w.file("binlog.000001")
	w.gtid(2)
	w.inserted(2, "b")
	s, _ := feed(t, w, io.EOF)
	d := drainAll(s)
	require.Equal(t, []string{"a"}, d.payloads)
	require.Equal(t, "binlog.000007", d.pos.File)
	f := event.AsFault(d.err)
	require.Equal(t, event.Retry, f.Class)
	require.Contains(t, f.Text, "reset")
}

// The witness that is stored is found again by its place, and by nothing that differs.
func TestWitnessOfTheStreamIsTheEventAtItsPlace(t *testing.T) {
	write := func(payload string) (*logWriter, event.Position) {
		w := &logWriter{}
		w.file("binlog.000001")
		w.gtid(1)
		w.inserted(1, payload)
		w.gtid(2)
		w.inserted(2, payload)
		copied := &logWriter{}
		copied.Write(w.Bytes())
		s, _ := feed(t, copied, io.EOF)
		return w, drainAll(s).pos
	}
	w, pos := write("a")
	wit := parseWitness(event.MySQL, pos.Mark)
	require.Equal(t, int64(2), wit.mysql.gno)
	require.Equal(t, uint64(1_000_000), wit.mysql.commit)
	ev := w.Bytes()[w.begins[uint32(wit.from)]+5:]
	h, ok := parseHeader(ev)
	require.True(t, ok)
	require.Equal(t, byte(evGTID), h.kind)
	body := ev[headerLen : h.size-4]
	require.Equal(t, wit.sum, eventSum(h, body))
	body = slices.Clone(body)
	body[42]++ // a microsecond later
	require.NotEqual(t, wit.sum, eventSum(h, body))
}

// Numbers that go back within a domain end the GTID position until they are higher than all before; file and offset go on.
func TestNumbersThatGoBackInADomainEndTheGTIDPosition(t *testing.T) {
	type step struct {
		server uint32
		seq    uint64
		domain uint32
	}
	for name, c := range map[string]struct {
		steps []step
		want  string
	}{
		"in order":                         {[]step{{1, 6, 0}, {1, 7, 0}, {1, 1, 7}}, "0-1-7,7-1-1"},
		"another server of the domain":     {[]step{{1, 6, 0}, {2, 7, 0}}, "0-2-7"},
		"back":                             {[]step{{1, 9, 0}, {1, 6, 0}}, ""},
		"the same of another server":       {[]step{{1, 6, 0}, {2, 6, 0}}, ""},
		"one domain back, the other not":   {[]step{{1, 6, 0}, {1, 5, 0}, {1, 1, 7}}, ""},
		"back and not yet higher again":    {[]step{{1, 9, 0}, {1, 6, 0}, {1, 7, 0}}, ""},
		"back and then higher than ever":   {[]step{{1, 9, 0}, {1, 6, 0}, {1, 1, 7}, {1, 10, 0}}, "0-1-10,7-1-1"},
		"a number that was before we read": {[]step{{1, 5, 0}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := &logWriter{}
			w.file("binlog.000001")
			var want []string
			for i, x := range c.steps {
				w.mariaGTID(x.server, x.seq, x.domain)
				w.inserted(uint64(i+1), fmt.Sprint(i))
				want = append(want, fmt.Sprint(i))
			}
			s, st := feed(t, w, io.EOF, func(o *Options) { o.Kind = event.MariaDB })
			start := mariaPos{0: {0, 1, 5}}
			st.ledger.at = folded{maria: start.clone()}
			st.domains = newDomains(start)
			d := drainAll(s)
			require.Equal(t, want, d.payloads)
			require.Equal(t, c.want, d.pos.GTID)
			require.Equal(t, uint64(w.pos), d.pos.Pos)
		})
	}
}

func TestMariaDBPositionIsTakenOverAtTheTopOfAFile(t *testing.T) {
	w := &logWriter{}
	w.file("binlog.000001")
	w.mariaList(mariaGTID{0, 1, 5}, mariaGTID{0, 2, 6}, mariaGTID{7, 1, 3})
	w.mariaGTID(1, 7, 0)
	w.inserted(1, "a")
	s, st := feed(t, w, io.EOF, func(o *Options) { o.Kind = event.MariaDB })
	byFile(st)
	pos := drainAll(s).pos
	require.Equal(t, "0-1-7,7-1-3", pos.GTID)
	wit := parseWitness(event.MariaDB, pos.Mark)
	require.Equal(t, "0-1-7", wit.maria.String())
	require.Equal(t, "0-2-6", wit.before.String())
}

// A MariaDB position against a naive model: a log is a list of GTIDs, a position the last of each domain.
func TestB041MariaDBPositionIsTheLastOfEachDomain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var log []mariaGTID
		next := map[uint32]uint64{}
		for range rapid.IntRange(0, 20).Draw(t, "transactions") {
			d := rapid.Uint32Range(0, 3).Draw(t, "domain")
			next[d] += rapid.Uint64Range(1, 3).Draw(t, "step")
			log = append(log, mariaGTID{d, rapid.Uint32Range(1, 2).Draw(t, "server"), next[d]})
		}
		at := func(n int) mariaPos {
			m := mariaPos{}
			for _, g := range log[:n] {
				m[g.domain] = g
			}
			return m
		}
		state := func(n int) mariaState {
			var parts []string
			last := map[[2]uint32]mariaGTID{}
			for _, g := range log[:n] {
				last[[2]uint32{g.domain, g.server}] = g
			}
			for _, g := range last {
				parts = append(parts, g.String())
			}
			s, err := parseMariaState(strings.Join(parts, ","))
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		end := rapid.IntRange(0, len(log)).Draw(t, "the server's end")
		read := rapid.IntRange(0, len(log)).Draw(t, "what was read")
		purged := rapid.IntRange(0, end).Draw(t, "what was purged")

		back, err := parseMariaPos(at(read).String())
		if err != nil || back.String() != at(read).String() || len(back) != len(at(read)) {
			t.Fatalf("%s is read back as %s: %v", at(read), back, err)
		}
		lacks := at(read).lacking(state(end))
		for d, g := range at(read) {
			there := slices.Contains(log[:end], g)
			if _, told := lacks[d]; told == there {
				t.Fatalf("%s in %v: %v, told %v", g, log[:end], there, told)
			}
			if fork, ok := state(end).fork(g); ok && !slices.Contains(log[:end], fork) {
				t.Fatalf("%s was never in %v", fork, log[:end])
			}
		}
		gone := at(read).missing(at(purged))
		for d := range uint32(4) {
			want := false
			for i, g := range log[:purged] {
				want = want || g.domain == d && i >= read
			}
			if _, told := gone[d]; told != want {
				t.Fatalf("domain %d: read %v, purged %v: told %v", d, log[:read], log[:purged], told)
			}
		}
	})
}

// What arrives in whatever order, overlapping, repeated and with gaps: the set never shrinks and keeps those that are silent.
func TestB041TheSetOnlyGrowsAndKeepsSilentServers(t *testing.T) {
	silent, err := parseGTIDSet("11111111-0000-0000-0000-000000000000:1-5:7:9-11,22222222-0000-0000-0000-000000000000:1:old:1-3:8")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		l := &ledger{at: folded{set: silent.clone()}}
		one := &sid{uuid: [16]byte{3}}
		seen := map[int64]bool{}
		before := silent.clone()
		for i := range rapid.IntRange(1, 60).Draw(t, "transactions") {
			n := rapid.Int64Range(1, 20).Draw(t, "number")
			seen[n] = true
			at := uint64(i + 1)
			l.add(group{first: at, last: at, ran: gtidRun{one, n, n}}, rapid.Bool().Draw(t, "wanted"))
			if !rapid.Bool().Draw(t, "ask") {
				continue
			}
			now := l.fold(at).set
			if !now.contains(before) || !now.contains(silent) {
				t.Fatalf("%s became %s", before, now)
			}
			for n := int64(1); n <= 20; n++ {
				if now.has(*one, n) != seen[n] {
					t.Fatalf("%d in %s: %v", n, now, !seen[n])
				}
			}
			before = now
		}
	})
}
