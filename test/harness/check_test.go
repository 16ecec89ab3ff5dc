package harness

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// history commits n events of key "a" in topic "t": a0, a1, …
func history(n int) []Committed {
	var out []Committed
	for i := range n {
		id := "a" + strconv.Itoa(i)
		out = append(out, Committed{ID: id, Topic: "t", Key: "a", Digest: Digest([]byte(id))})
	}
	return out
}

// log delivers events of key "a" in partition 0 by their numbers.
func log(numbers string) []Delivered {
	var out []Delivered
	for i, n := range strings.Fields(strings.ReplaceAll(numbers, "|", "")) {
		id := "a" + n
		out = append(out, Delivered{ID: id, Topic: "t", Key: "a", Offset: int64(i), Digest: Digest([]byte(id))})
	}
	return out
}

func TestCheckOrder(t *testing.T) {
	for _, c := range []struct {
		name, log string
		n, kills  int
		lost      int
		disorder  int
		broken    int
		reruns    int
		late      int
	}{
		{name: "in order", log: "0 1 2 3", n: 4},
		{name: "nothing committed, nothing delivered", log: "", n: 0},
		{name: "the last one lost", log: "0 1 2", n: 4, lost: 1},
		{name: "one lost in the middle shows as out of order too", log: "0 1 3", n: 4, lost: 1, disorder: 1},
		{name: "two swapped", log: "0 2 1 3", n: 4, disorder: 3},
		{name: "a re-run after a crash", log: "0 1 2 | 1 2 3", n: 4, kills: 1, reruns: 1},
		{name: "a re-run needs no kill: a lost ack is enough", log: "0 1 2 | 2 3", n: 4, reruns: 1},
		{name: "the same one twice in a row", log: "0 1 1 2 2 2 3", n: 4, reruns: 3},
		{name: "a re-run from the start", log: "0 1 2 3 | 0 1 2 3", n: 4, reruns: 1},
		{name: "a crash within the re-run", log: "0 1 2 3 | 1 2 | 1 2 3 4", n: 5, kills: 2, reruns: 2},
		{name: "a crash within the re-run, further back", log: "0 1 2 3 | 2 | 0 1 2 3 4", n: 5, kills: 2, reruns: 2},
		{name: "a re-run that skips one", log: "0 1 2 3 | 0 2 3 4", n: 5, kills: 1, broken: 1, reruns: 1},
		{name: "a re-run that skips to where it had been, without a kill", log: "0 1 2 3 | 1 | 4", n: 5, broken: 1, reruns: 1, late: 1},
		{name: "a late request after the successor's re-run", log: "0 1 2 | 1 2 3 | 2 | 4", n: 5, kills: 1, reruns: 2, late: 1},
		{name: "a late request before the successor's re-run", log: "0 1 2 3 | 2 3 4", n: 5, kills: 1, reruns: 1},
		{name: "a late request within the re-run", log: "0 1 2 3 | 0 1 | 1 | 2 3 4", n: 5, kills: 1, reruns: 2},
		{name: "a late request at the very end", log: "0 1 2 3 | 2", n: 4, kills: 1, reruns: 1, late: 1},
		{name: "an old one at the very end and nobody killed", log: "0 1 2 3 | 2", n: 4, broken: 1, reruns: 1, late: 1},
		{name: "more late requests than kills", log: "0 1 2 | 1 | 3 | 1 | 4", n: 5, kills: 1, broken: 1, reruns: 2, late: 2},
		{name: "a late request in a broken-off re-run", log: "0 1 2 3 | 1 2 | 0 | 3 4", n: 5, kills: 2, reruns: 2, late: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Check(history(c.n), log(c.log), c.kills)
			require.Equal(t, []int{c.lost, c.disorder, c.broken, c.reruns, c.late},
				[]int{len(r.Lost), len(r.OutOfOrder), len(r.Broken), r.Reruns, r.Late}, "lost, out of order, broken, re-runs, late\n%s", r)
			require.Equal(t, c.lost+c.disorder+c.broken > 0, r.Err() != nil)
			if c.n > 0 && c.lost == 0 {
				require.Equal(t, len(log(c.log))-c.n, r.Duplicates)
			}
		})
	}
}

func TestCheckContents(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d []Delivered) []Delivered
		fault  func(r *Report) []string
	}{
		{"a record that never committed", func(d []Delivered) []Delivered {
			return append(d, Delivered{ID: "rolled back", Topic: "t", Key: "a", Offset: 9})
		}, func(r *Report) []string { return r.Invented }},
		{"a record without an id", func(d []Delivered) []Delivered {
			return append(d, Delivered{Topic: "t", Key: "a", Offset: 9})
		}, func(r *Report) []string { return r.Invented }},
		{"other bytes", func(d []Delivered) []Delivered { d[1].Digest = Digest([]byte{}); return d }, func(r *Report) []string { return r.Altered }},
		{"other bytes on the second delivery", func(d []Delivered) []Delivered {
			again := d[3]
			again.Offset, again.Digest = 4, "other"
			return append(d, again)
		}, func(r *Report) []string { return r.Altered }},
		{"another key", func(d []Delivered) []Delivered { d[3].Key = "b"; return d }, func(r *Report) []string { return r.Altered }},
		{"another topic", func(d []Delivered) []Delivered { d[3].Topic = "u"; return d }, func(r *Report) []string { return r.Altered }},
		{"another partition", func(d []Delivered) []Delivered { d[3].Partition = 1; return d }, func(r *Report) []string { return r.Scattered }},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, Check(history(4), log("0 1 2 3"), 0).Err())
			r := Check(history(4), c.change(log("0 1 2 3")), 0)
			require.Len(t, c.fault(r), 1, r.String())
			require.Error(t, r.Err())
		})
	}
}

func TestCheckKeysAreIndependent(t *testing.T) {
	committed := append(history(2), Committed{ID: "b0", Topic: "t", Key: "b"}, Committed{ID: "a0'", Topic: "u", Key: "a"})
	delivered := append([]Delivered{{ID: "b0", Topic: "t", Key: "b", Offset: -1}, {ID: "a0'", Topic: "u", Key: "a", Partition: 3}}, log("0 1")...)
	require.NoError(t, Check(committed, delivered, 0).Err())
}

func TestCheckNamesAtMostTwentyOfAKindAndCountsAll(t *testing.T) {
	r := Check(history(100), nil, 0)
	require.Len(t, r.Lost, 20)
	require.Equal(t, 100, r.Count())
	require.Contains(t, r.String(), "lost 100")
}

func TestDigestTellsNullFromEmpty(t *testing.T) {
	require.NotEqual(t, Digest(nil), Digest([]byte{}))
}

// A connector that crashes at random points and resumes at or before its last ack is always legal; taking one record
// away, or swapping two neighbours that were delivered once, is always found.
func TestCheckAgainstRandomCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 40).Draw(t, "n")
		var numbers []string
		sent, kills := 0, 0
		for next := 0; next < n; {
			upto := rapid.IntRange(next+1, n).Draw(t, "upto")
			for i := next; i < upto; i++ {
				numbers = append(numbers, strconv.Itoa(i))
			}
			sent = max(sent, upto)
			if upto == n && sent == n {
				break
			}
			kills++
			next = rapid.IntRange(0, min(upto, sent)).Draw(t, "resume")
		}
		all := log(strings.Join(numbers, " "))
		if r := Check(history(n), all, kills); r.Err() != nil {
			t.Fatalf("%v: %s", numbers, r)
		}

		count := map[string]int{}
		for _, d := range all {
			count[d.ID]++
		}
		i := rapid.IntRange(0, len(all)-1).Draw(t, "remove")
		if count[all[i].ID] == 1 {
			without := append(append([]Delivered{}, all[:i]...), all[i+1:]...)
			if len(Check(history(n), without, kills).Lost) != 1 {
				t.Fatal(fmt.Sprint("a record was taken away and not missed: ", numbers, " at ", i))
			}
		}
		if i > 0 && count[all[i].ID] == 1 && count[all[i-1].ID] == 1 {
			all[i].Offset, all[i-1].Offset = all[i-1].Offset, all[i].Offset
			if len(Check(history(n), all, kills).OutOfOrder) == 0 {
				t.Fatal(fmt.Sprint("two were swapped unnoticed: ", numbers, " at ", i))
			}
		}
	})
}
