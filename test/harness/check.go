package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Committed is one event that committed. A list of them is in commit order.
type Committed struct {
	ID     string
	Topic  string
	Key    string // the message key, within which order holds
	Digest string // of what a consumer must see, e.g. Digest(payload)
}

// Delivered is one record that a consumer saw.
type Delivered struct {
	ID        string
	Topic     string
	Partition int32
	Offset    int64
	Key       string
	Digest    string
}

// Digest is a short hash of bytes; nil (SQL NULL) and empty differ.
func Digest(b []byte) string {
	if b == nil {
		return "null"
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

// FromKafka reads records as outtail sends them: the id from the header of that name, the digest of the value.
func FromKafka(records []*kgo.Record) []Delivered {
	out := make([]Delivered, len(records))
	for i, r := range records {
		out[i] = Delivered{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Digest: Digest(r.Value)}
		for _, h := range r.Headers {
			if h.Key == "id" {
				out[i].ID = string(h.Value)
			}
		}
	}
	return out
}

// Report says how what was delivered differs from what committed. Lists name at most the first 20 of a kind; Counts has
// them all.
type Report struct {
	Committed, Delivered, Duplicates int
	// Reruns counts, over all keys, how often delivery went back to an earlier event.
	Reruns int
	// Late counts re-runs that broke off and after which delivery went on where it had been: a request that the broker had
	// received from a killed process and appended afterwards. Allowed once per key and kill (I3).
	Late int

	Lost       []string // committed, never delivered (I1)
	Invented   []string // delivered, never committed (I2)
	Altered    []string // delivered with other bytes, another key or in another topic (I7, I8)
	OutOfOrder []string // first delivered before an earlier event of its key (I3)
	Broken     []string // re-runs that skip events or are not followed by the newer ones again (I3)
	Scattered  []string // keys of a topic that were seen in more than one partition (I3)
	counts     map[string]int
}

// Count is how many faults there are.
func (r *Report) Count() int {
	n := 0
	for _, c := range r.counts {
		n += c
	}
	return n
}

// Err is nil where every promise was kept.
func (r *Report) Err() error {
	if r.Count() == 0 {
		return nil
	}
	return fmt.Errorf("promises broken: %s", r)
}

// String is one paragraph for people.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "committed %d, delivered %d, duplicates %d in %d re-runs, late %d", r.Committed, r.Delivered, r.Duplicates, r.Reruns, r.Late)
	for _, k := range []struct {
		name string
		list []string
	}{
		{"lost", r.Lost}, {"invented", r.Invented}, {"altered", r.Altered},
		{"out of order", r.OutOfOrder}, {"broken re-runs", r.Broken}, {"scattered", r.Scattered},
	} {
		if n := r.counts[k.name]; n > 0 {
			fmt.Fprintf(&b, "\n%s %d: %s", k.name, n, strings.Join(k.list, "; "))
		}
	}
	return b.String()
}

func (r *Report) fault(name string, list *[]string, format string, args ...any) {
	if r.counts[name]++; r.counts[name] <= 20 {
		*list = append(*list, fmt.Sprintf(format, args...))
	}
}

type orderKey struct{ topic, key string }

// Check compares. Delivered may come in any order; within a partition offsets decide. Kills is how many processes were
// killed while they may have had requests under way: each may leave one late request per key behind.
func Check(committed []Committed, delivered []Delivered, kills int) *Report {
	r := &Report{Committed: len(committed), Delivered: len(delivered), counts: map[string]int{}}
	type place struct {
		key orderKey
		at  int // ordinal within the key
		i   int
	}
	places := make(map[string]place, len(committed))
	perKey := map[orderKey]int{}
	for i, c := range committed {
		k := orderKey{c.Topic, c.Key}
		places[c.ID] = place{key: k, at: perKey[k], i: i}
		perKey[k]++
	}

	sorted := slices.Clone(delivered)
	slices.SortFunc(sorted, func(a, b Delivered) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		if a.Partition != b.Partition {
			return int(a.Partition) - int(b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	partitions, streams := map[orderKey]int32{}, map[orderKey]*stream{}
	seen := make([]bool, len(committed))
	for _, d := range sorted {
		p, ok := places[d.ID]
		if !ok {
			r.fault("invented", &r.Invented, "%q at %s/%d@%d", d.ID, d.Topic, d.Partition, d.Offset)
			continue
		}
		c := committed[p.i]
		if d.Topic != c.Topic || d.Key != c.Key || d.Digest != c.Digest {
			r.fault("altered", &r.Altered, "%s at %s/%d@%d: topic %s, key %q, digest %s, committed as topic %s, key %q, digest %s",
				d.ID, d.Topic, d.Partition, d.Offset, d.Topic, d.Key, d.Digest, c.Topic, c.Key, c.Digest)
			if d.Topic != c.Topic || d.Key != c.Key {
				continue // it has no place in the order of its key
			}
		}
		if first, ok := partitions[p.key]; !ok {
			partitions[p.key] = d.Partition
		} else if first != d.Partition {
			r.fault("scattered", &r.Scattered, "key %q of %s in partitions %d and %d", d.Key, d.Topic, first, d.Partition)
			partitions[p.key] = d.Partition
		}
		if seen[p.i] {
			r.Duplicates++
		}
		seen[p.i] = true
		s := streams[p.key]
		if s == nil {
			s = &stream{cur: -1, newest: -1, seen: map[int]bool{}}
			streams[p.key] = s
		}
		s.step(r, d, p.at)
	}
	for i, c := range committed {
		if !seen[i] {
			r.fault("lost", &r.Lost, "%s (key %q, topic %s)", c.ID, c.Key, c.Topic)
		}
	}
	for k, s := range streams {
		s.finish()
		r.Late += s.late
		if s.late > kills {
			r.fault("broken re-runs", &r.Broken, "key %q of %s: %d re-runs went back without the newer events following again, %d killed processes explain as many",
				k.key, k.topic, s.late, kills)
		}
	}
	return r
}

// stream follows one key through its partition. A legal stream goes on by one, or goes back and then on by one until it
// is past where it was (a re-run, itself perhaps broken off by the next one). What goes back and then jumps forward to
// just where it had been is a late request.
type stream struct {
	cur, newest int
	before      []int // where each re-run that has not caught up yet went back from
	seen        map[int]bool
	late        int
}

func (s *stream) step(r *Report, d Delivered, at int) {
	switch {
	case at == s.cur+1:
	case !s.seen[at]:
		// First seen, and not the next one: fine only after late requests.
		s.resume(at)
		if at != s.cur+1 {
			r.fault("out of order", &r.OutOfOrder, "%s (number %d of key %q) at %s/%d@%d came after number %d", d.ID, at, d.Key, d.Topic, d.Partition, d.Offset, s.cur)
			s.before = nil
		}
	case at <= s.cur:
		r.Reruns++
		s.before = append(s.before, s.cur)
	default:
		s.resume(at)
		if at != s.cur+1 {
			r.fault("broken re-runs", &r.Broken, "%s at %s/%d@%d: the re-run of key %q skips from number %d to %d", d.ID, d.Topic, d.Partition, d.Offset, d.Key, s.cur, at)
			s.before = nil
		}
	}
	s.cur = at
	s.seen[at] = true
	s.newest = max(s.newest, at)
	for len(s.before) > 0 && s.cur >= s.before[len(s.before)-1] {
		s.before = s.before[:len(s.before)-1] // caught up
	}
}

// resume takes the innermost re-runs as late requests where the stream went on from before them.
func (s *stream) resume(at int) {
	for i := len(s.before) - 1; i >= 0; i-- {
		if s.before[i]+1 == at {
			s.late += len(s.before) - i
			s.cur = s.before[i]
			s.before = s.before[:i]
			return
		}
	}
}

// finish takes re-runs that never caught up as late requests.
func (s *stream) finish() {
	if s.cur < s.newest {
		s.late += max(1, len(s.before))
	}
}
