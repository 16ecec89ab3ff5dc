package pipeline

import (
	"time"

	"github.com/outtail/outtail/event"
)

// The ack tracker answers one question: up to where has everything been acked, filtered or parked without a gap?
//
// The naive designs both lose events. Storing the position of the latest ack skips whatever before it is still in
// flight; counting acks says how many but not which. So every event gets a number in commit order, acks may arrive in
// any order, and only the longest prefix without a gap counts (I1). A bound, the position between two transactions, may
// be stored once the prefix has reached the number at which it stands; the part of the prefix beyond the last reached
// bound lies in one transaction and is told as a number of rows.
//
// Invariants: base <= every unsettled seq < next; slots holds exactly [base, next); bounds are in order of seq and at,
// and all but the reached one lie in (base, next]; a slot below base is never looked at again.
//
// Pure: no clock, no lock. The window guards it.
type ackTracker struct {
	base, next uint64
	slots      ring[slot]
	bounds     ring[seqBound]

	// reached is the last bound that the prefix has reached in this session; 0 with hasReached false: none yet.
	reached    uint64
	hasReached bool
	// inTx is the last passed event beyond the reached bound; nil where the prefix ends at a bound.
	inTx   *event.Tx
	inRows uint64

	events int   // events in [base, next)
	bytes  int64 // bytes that they keep alive
	passed uint64
}

type slot struct {
	state  slotState
	size   int
	tx     *event.Tx
	index  uint64
	topic  string
	sentAt int64 // monotonic nanoseconds of the hand-over, 0 if never sent
	flight *flight
	// ev and m are what may have to be kept in the dead-letter store; replay is the entry that is sent again from there.
	ev     *event.Event
	m      *event.Message
	replay *replayed
}

type slotState uint8

const (
	pending slotState = iota
	settled
)

type seqBound struct {
	seq, at uint64
}

// flight is a batch whose events have not all passed. Its buffers go back to the source when they have.
type flight struct {
	release func()
	left    int  // events not yet passed
	closed  bool // all events of the batch were added
}

func (f *flight) pass() {
	f.left--
	f.settle()
}

func (f *flight) settle() {
	if f.closed && f.left == 0 && f.release != nil {
		f.release()
		f.release = nil
	}
}

// session forgets bounds and transactions of an earlier session: its ordinals mean nothing in the new one. Events of the
// earlier session keep their slots, so that the prefix cannot pass them.
func (t *ackTracker) session() {
	t.bounds.reset()
	t.hasReached, t.reached, t.inTx, t.inRows = false, 0, nil, 0
	for i := 0; i < t.slots.len(); i++ {
		t.slots.at(i).tx = nil
	}
}

// add takes the next event and returns its number.
func (t *ackTracker) add(s slot) uint64 {
	seq := t.next
	t.next++
	t.slots.push(s)
	t.events++
	t.bytes += int64(s.size)
	return seq
}

// bound says that ordinal at stands before the next event.
func (t *ackTracker) bound(at uint64) {
	if n := t.bounds.len(); n > 0 && t.bounds.at(n-1).seq == t.next {
		t.bounds.at(n - 1).at = at
	} else {
		t.bounds.push(seqBound{t.next, at})
	}
	t.advance()
}

// find gives the slot of a seq; nil where the prefix has passed it or it was never given.
func (t *ackTracker) find(seq uint64) *slot {
	if seq < t.base || seq >= t.next {
		return nil
	}
	return t.slots.at(int(seq - t.base))
}

// settle marks a seq as acked, filtered or parked, and advances. It reports whether the mark was new.
func (t *ackTracker) settle(seq uint64) bool {
	s := t.find(seq)
	if s == nil || s.state == settled {
		return false
	}
	s.state = settled
	if seq == t.base {
		t.advance()
	}
	return true
}

// reopen takes a settlement back. False: the prefix has passed the seq, so the sink broke its contract.
func (t *ackTracker) reopen(seq uint64) bool {
	s := t.find(seq)
	if s == nil {
		return false
	}
	s.state = pending
	return true
}

// advance moves the prefix over settled slots and the bounds that it reaches.
func (t *ackTracker) advance() {
	for {
		for t.bounds.len() > 0 && t.bounds.at(0).seq <= t.base {
			t.reached, t.hasReached = t.bounds.at(0).at, true
			t.inTx, t.inRows = nil, 0
			t.bounds.pop()
		}
		if t.slots.len() == 0 || t.slots.at(0).state != settled {
			return
		}
		s := t.slots.at(0)
		t.events--
		t.bytes -= int64(s.size)
		if s.tx != nil {
			t.inTx, t.inRows = s.tx, s.index+1
		}
		t.base++
		// A replay was counted when it was parked; what a lost session read is read again, and counted then.
		if s.replay == nil && s.tx != nil {
			t.passed++
		}
		f := s.flight
		t.slots.pop()
		if f != nil {
			f.pass()
		}
	}
}

// oldest is the commit time of the lowest unsettled event; zero where nothing is in flight.
func (t *ackTracker) oldest() time.Time {
	for i := 0; i < t.slots.len(); i++ {
		if s := t.slots.at(i); s.state == pending && s.tx != nil {
			return s.tx.Commit
		}
	}
	return time.Time{}
}

// ring is a growing first-in first-out queue with random access. It keeps its memory.
type ring[T any] struct {
	buf     []T
	head, n int
}

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		grown := make([]T, max(64, 2*len(r.buf)))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.buf, r.head = grown, 0
	}
	r.n++
	*r.at(r.n - 1) = v
}

func (r *ring[T]) pop() {
	var zero T
	r.buf[r.head] = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
}

func (r *ring[T]) reset() {
	clear(r.buf)
	r.head, r.n = 0, 0
}
