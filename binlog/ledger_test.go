package binlog

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever joins whatever: a position never lies before its bound, and never behind a wanted event that follows it.
func TestLedgerNeverPassesAWantedEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type step struct {
			sid    int
			n      int64
			wanted bool
		}
		sids := []*sid{{uuid: [16]byte{1}}, {uuid: [16]byte{2}}, {uuid: [16]byte{1}, tag: "t"}}
		l := &ledger{at: folded{set: newGTIDSet()}}
		file := &fileRef{name: "binlog.000001"}
		var steps []step
		next := map[int]int64{}
		asked := uint64(0)
		for range rapid.IntRange(1, 40).Draw(t, "transactions") {
			s := step{sid: rapid.IntRange(0, 2).Draw(t, "sid"), wanted: rapid.IntRange(0, 3).Draw(t, "wanted") == 0}
			next[s.sid] += rapid.Int64Range(1, 2).Draw(t, "gap")
			s.n = next[s.sid]
			steps = append(steps, s)
			at := uint64(len(steps))
			l.add(group{first: at, last: at, file: file, pos: at * 100, ran: gtidRun{sids[s.sid], s.n, s.n}}, s.wanted)
			if rapid.IntRange(0, 2).Draw(t, "ask") > 0 {
				continue
			}
			asked = rapid.Uint64Range(asked, at).Draw(t, "at")
			got := l.fold(asked)
			k := 0
			for i, s := range steps {
				if got.set.has(*sids[s.sid], s.n) {
					if i != k {
						t.Fatalf("transaction %d is in %s, one before it is not", i+1, got.set)
					}
					k++
				}
			}
			if uint64(k) < asked {
				t.Fatalf("asked for %d, the position covers %d", asked, k)
			}
			for i := int(asked); i < k; i++ {
				if steps[i].wanted {
					t.Fatalf("asked for %d, the position %d is behind the wanted event of %d", asked, k, i+1)
				}
			}
			if k > 0 && got.pos != uint64(k)*100 {
				t.Fatalf("the set covers %d, the file position is %d", k, got.pos)
			}
		}
		groups := 0
		for _, s := range steps {
			if s.wanted {
				groups++
			}
		}
		if len(l.groups) > groups+1 {
			t.Fatalf("%d groups for %d wanted transactions", len(l.groups), groups)
		}
	})
}

func TestGapsDoNotGrowTheLedger(t *testing.T) {
	l := &ledger{at: folded{set: newGTIDSet()}}
	s := &sid{uuid: [16]byte{1}}
	for i := int64(1); i <= 100_000; i += 2 { // a replica without preserve_commit_order: first the odd ones, then the even ones
		l.add(group{first: uint64(i), last: uint64(i), ran: gtidRun{s, i, i}}, false)
		l.add(group{first: uint64(i), last: uint64(i), ran: gtidRun{s, i ^ 2, i ^ 2}}, false)
	}
	require.Len(t, l.groups, 1)
}

func TestLagSpansFiles(t *testing.T) {
	files := []binlogFile{{"b.000001", 100}, {"b.000002", 200}, {"b.000003", 300}}
	end := logSpan{place{"b.000003", 250}, files, -1}
	require.Equal(t, int64(50), bytesUntil(place{"b.000003", 200}, end))
	require.Equal(t, int64(90+200+250), bytesUntil(place{"b.000001", 10}, end))
	require.Equal(t, int64(0), bytesUntil(place{"b.000004", 4}, end))
	require.Equal(t, int64(0), bytesUntil(place{"b.000003", 300}, end))
	require.Equal(t, int64(-1), bytesUntil(place{"b.000000", 4}, end))
}
