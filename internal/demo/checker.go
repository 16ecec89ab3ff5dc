package demo

import (
	"slices"
	"sync"
	"time"
)

// EventID is a UUID in its 16 bytes.
type EventID [16]byte

// Delivery is one record as the consumer read it, in the order of its partition.
type Delivery struct {
	Aggregate string
	// Number counts the committed events of the aggregate from 1, without gaps.
	Number uint64
	ID     EventID
	// Digest stands for key and value.
	Digest uint64
	// Committed is when the service asked for the commit; Read is now.
	Committed, Read time.Time
}

// Tally is what a Checker has counted.
type Tally struct {
	Committed  uint64 // orders whose commit was confirmed
	Delivered  uint64 // different events that arrived
	Duplicates uint64 // arrivals beyond the first, absorbed by event id
	// OutOfOrder counts first arrivals that came after a newer event of their aggregate, and re-runs that skipped or
	// did not reach the newest event (I3).
	OutOfOrder uint64
	// Invented counts arrivals whose id is not that of the committed event with this number (I2).
	Invented uint64
	// Changed counts redeliveries that differ from the first delivery (I8), or from the row (I7).
	Changed uint64
	// LateAppends counts what I3 allows: a request that the broker had got from a killed process, appended late.
	LateAppends uint64
	// Behind is how many committed events did not arrive yet, and Lag the age of the oldest of them.
	Behind uint64
	Lag    time.Duration
	// Missing counts events that were jumped over: lost, or out of order should they still come.
	Missing uint64
	// Recent holds the commit-to-consumer times of first arrivals of the last seconds, sorted.
	Recent []time.Duration
}

// Quantile of Recent, 0 where there is none.
func (t Tally) Quantile(q float64) time.Duration {
	if len(t.Recent) == 0 {
		return 0
	}
	return t.Recent[int(q*float64(len(t.Recent)-1))]
}

// recentWindow is how far back Tally.Recent reaches, and recentLimit how many arrivals it keeps at most.
const (
	recentWindow = 5 * time.Second
	recentLimit  = 4096
)

// Checker follows each aggregate's sequence. It is told what was committed and what arrived, from any goroutine; per
// aggregate each in its order. It keeps 24 bytes per event, so that a run of hours fits in memory.
//
// The rule (I3): first arrivals come in the order of commits. After a crash an aggregate may jump back to an event that
// was already there, once per re-run and as often as there are crashes, but then goes on without a gap until it is again
// where it was: never an old event after a newer one without the newer one following again.
type Checker struct {
	mu         sync.Mutex
	aggregates map[string]*sequence
	kills      int
	tally      Tally
	recent     []arrival
	next       int // where recent is overwritten
}

type arrival struct {
	at   time.Time
	took time.Duration
}

// sequence is what is known of one aggregate.
type sequence struct {
	seen     []seen              // by number-1; an unset entry did not arrive
	missing  map[uint64]struct{} // jumped over, may arrive late
	last     uint64              // number of the latest arrival; below len(seen) a re-run is under way
	returnTo uint64              // the latest arrival before the latest jump back
	late     int                 // late appends that were allowed
	pending  []commit            // committed, not arrived, in order
}

type seen struct {
	id     EventID
	digest uint64
	set    bool
}

type commit struct {
	number uint64
	at     time.Time
}

// NewChecker knows nothing yet.
func NewChecker() *Checker { return &Checker{aggregates: map[string]*sequence{}} }

func (c *Checker) of(aggregate string) *sequence {
	s := c.aggregates[aggregate]
	if s == nil {
		s = &sequence{missing: map[uint64]struct{}{}}
		c.aggregates[aggregate] = s
	}
	return s
}

// Committed says that an event was committed. Its arrival may have been told before: outtail can be faster than the
// service's own thread.
func (c *Checker) Committed(aggregate string, number uint64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.of(aggregate)
	c.tally.Committed++
	if !s.has(number) {
		s.pending = append(s.pending, commit{number, at})
	}
}

// Killed says that outtail was killed: one more late append per aggregate is allowed (I3's exception).
func (c *Checker) Killed() {
	c.mu.Lock()
	c.kills++
	c.mu.Unlock()
}

// Arrived judges one arrival and reports whether it was the first of its event.
func (c *Checker) Arrived(d Delivery) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.of(d.Aggregate)
	if d.Number == 0 {
		c.tally.Invented++
		return false
	}
	c.follow(s, d.Number)

	if s.has(d.Number) {
		c.tally.Duplicates++
		switch was := s.seen[d.Number-1]; {
		case was.id != d.ID:
			// Two rows with one number: one of them was rolled back, or the id is not stable.
			c.tally.Invented++
		case was.digest != d.Digest:
			c.tally.Changed++
		}
		return false
	}
	if n := int(d.Number); n > len(s.seen) {
		s.seen = append(s.seen, make([]seen, n-len(s.seen))...)
	}
	s.seen[d.Number-1] = seen{id: d.ID, digest: d.Digest, set: true}
	c.tally.Delivered++
	for len(s.pending) > 0 && s.has(s.pending[0].number) {
		s.pending = s.pending[1:]
	}
	c.remember(arrival{d.Read, d.Read.Sub(d.Committed)})
	return true
}

func (s *sequence) has(number uint64) bool {
	return number <= uint64(len(s.seen)) && s.seen[number-1].set
}

// follow applies the order rule to the step from s.last to n.
func (c *Checker) follow(s *sequence, n uint64) {
	if _, jumped := s.missing[n]; jumped {
		// A first arrival after a newer one: what must never be. The newer one stays the place to go on from.
		delete(s.missing, n)
		c.tally.OutOfOrder++
		return
	}
	newest := uint64(len(s.seen))
	switch {
	case n == s.last+1:
	case n <= s.last: // a re-run begins
		s.returnTo = s.last
	case s.last < newest: // a jump forward inside a re-run
		if n == s.returnTo+1 && s.late < c.kills {
			s.late++
			c.tally.LateAppends++
		} else {
			c.tally.OutOfOrder++
		}
	}
	for m := newest + 1; m < n; m++ {
		s.missing[m] = struct{}{} // late or lost, which the future tells
	}
	s.last = n
}

func (c *Checker) remember(a arrival) {
	if len(c.recent) < recentLimit {
		c.recent = append(c.recent, a)
		return
	}
	c.recent[c.next] = a
	c.next = (c.next + 1) % recentLimit
}

// Tally is the state at now.
func (c *Checker) Tally(now time.Time) Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tally
	for _, s := range c.aggregates {
		t.Missing += uint64(len(s.missing))
		for _, p := range s.pending {
			if s.has(p.number) {
				continue // it came, but one before it did not
			}
			t.Behind++
			t.Lag = max(t.Lag, now.Sub(p.at))
		}
	}
	for _, a := range c.recent {
		if now.Sub(a.at) <= recentWindow {
			t.Recent = append(t.Recent, a.took)
		}
	}
	slices.Sort(t.Recent)
	return t
}

// Row is one row of the outbox table as the database holds it in the end.
type Row struct {
	Aggregate string
	Number    uint64
	ID        EventID
	Digest    uint64
}

// Verdict is the outcome of a run.
type Verdict struct {
	Tally
	// Rows is how many rows the outbox table holds: what should have arrived, whatever the service believed.
	Rows uint64
	// Lost counts rows that did not arrive (I1).
	Lost       uint64
	RolledBack uint64
	Kills      int
	Took       time.Duration
}

// Judge compares what arrived with the rows of the table, at the end, when nothing is under way any more.
func (c *Checker) Judge(rows []Row) Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := Verdict{Tally: c.tally, Rows: uint64(len(rows)), Kills: c.kills}
	var matched uint64
	for _, r := range rows {
		s := c.aggregates[r.Aggregate]
		if s == nil || r.Number == 0 || !s.has(r.Number) || s.seen[r.Number-1].id != r.ID {
			v.Lost++
			continue
		}
		matched++
		if s.seen[r.Number-1].digest != r.Digest {
			v.Changed++
		}
	}
	// What arrived and is in no row was rolled back or never written (I2).
	v.Invented += c.tally.Delivered - matched
	for _, s := range c.aggregates {
		unfinished := s.last < uint64(len(s.seen))
		if unfinished && s.returnTo == uint64(len(s.seen)) && s.late < c.kills {
			v.LateAppends++
		} else if unfinished {
			v.OutOfOrder++
		}
	}
	return v
}

// Good reports whether every promise was kept.
func (v Verdict) Good() bool {
	return v.Lost == 0 && v.OutOfOrder == 0 && v.Invented == 0 && v.Changed == 0
}
