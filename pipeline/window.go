package pipeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outtail/outtail/event"
)

// window bounds what is in flight, in events and in bytes (I11), and guards the ack tracker. The reader admits, acks
// from any goroutine settle.
type window struct {
	maxEvents int
	maxBytes  int64

	mu      sync.Mutex
	t       ackTracker
	parked  parkedSet
	room    chan struct{} // signalled when something passed and somebody waits: the loop, a replay, or both
	waiting int
	zero    chan struct{} // closed and replaced when nothing is in flight
	// out counts the entries whose rows may be read again and that are on their way out of the store; ended is closed and replaced when
	// they are not any more.
	out   atomic.Int32
	ended chan struct{}

	ackedSince int       // passed since the last snapshot
	idleAt     time.Time // when the last event passed and left nothing in flight
	moved      bool      // a bound was reached since the last snapshot

	// notify is called, outside the lock, when the committer should look again: the first progress, the 4,000th ack, idle.
	notify func()
	// keep queues what is to be written into the dead-letter store. Called with mu held; it never blocks.
	keep func(...keeping)
	now  func() time.Time
}

func newWindow(maxEvents int, maxBytes int64, notify func(), now func() time.Time) *window {
	w := &window{maxEvents: maxEvents, maxBytes: maxBytes, room: make(chan struct{}, 2), ended: make(chan struct{}), notify: notify, now: now, parked: newParkedSet()}
	w.idleAt = now()
	return w
}

// admit waits until an event of this size may be added. An event above the byte bound is admitted alone, when the
// window is empty.
func (w *window) admit(ctx context.Context, size int) error {
	for {
		w.mu.Lock()
		ok := w.t.events == 0 || (w.t.events < w.maxEvents && w.t.bytes+int64(size) <= w.maxBytes)
		if !ok {
			w.waiting++
		}
		w.mu.Unlock()
		if ok {
			return nil
		}
		var err error
		select {
		case <-w.room:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		w.mu.Lock()
		w.waiting--
		w.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// number gives an admitted event its place. Call it with mu held.
func (w *window) number(s slot) uint64 {
	if s.flight != nil {
		s.flight.left++
	}
	return w.t.add(s)
}

// bound adds a position between transactions behind everything added so far.
func (w *window) bound(at uint64) {
	w.mu.Lock()
	w.t.bound(at)
	first := !w.moved && w.t.hasReached && w.t.reached == at
	if first {
		w.moved = true
	}
	w.mu.Unlock()
	if first {
		w.notify()
	}
}

// closed says that all events of a batch were added.
func (w *window) close(f *flight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.closed = true
	f.settle()
}

// settle marks an event as acked or filtered and returns what was known of it; ok is false where that was so before.
func (w *window) settle(seq uint64) (s slot, ok bool) {
	w.mu.Lock()
	if p := w.t.find(seq); p != nil {
		s = *p
	}
	base := w.t.base
	ok = w.t.settle(seq)
	n := int(w.t.base - base)
	look := false
	if n > 0 {
		look = w.ackedSince == 0 || (w.ackedSince < saveAfterEvents && w.ackedSince+n >= saveAfterEvents)
		w.ackedSince += n
		if w.t.events == 0 {
			w.idleAt = w.now()
			look = true
			if w.zero != nil {
				close(w.zero)
				w.zero = nil
			}
		}
		for range w.waiting {
			select {
			case w.room <- struct{}{}:
			default:
			}
		}
	}
	w.mu.Unlock()
	if look {
		w.notify()
	}
	return s, ok
}

// look gives what is known of an event in flight; false where it is none.
func (w *window) look(seq uint64) (slot, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.t.find(seq); s != nil {
		return *s, true
	}
	return slot{}, false
}

// unsettled says that an event is in flight and not answered.
func (w *window) unsettled(seq uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.t.find(seq)
	return s != nil && s.state == pending
}

// reopen takes an ack back; false where the prefix has passed it.
func (w *window) reopen(seq uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.t.reopen(seq)
}

// passedBelow forgets parked events that the stored position is behind now; see parkedSet.passed.
func (w *window) passedBelow(base uint64) []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parked.passed(base)
}

// openParked is how many events wait in the dead-letter store.
func (w *window) openParked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parked.open
}

// session begins a new source session.
func (w *window) session() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.session()
	w.parked.session()
}

// empty waits until nothing is in flight.
func (w *window) empty(ctx context.Context) error {
	w.mu.Lock()
	if w.t.events == 0 {
		w.mu.Unlock()
		return nil
	}
	if w.zero == nil {
		w.zero = make(chan struct{})
	}
	zero := w.zero
	w.mu.Unlock()
	select {
	case <-zero:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// passedBefore waits until every event below seq has passed.
func (w *window) passedBefore(ctx context.Context, seq uint64) error {
	for {
		w.mu.Lock()
		done := w.t.base >= seq
		w.mu.Unlock()
		if done {
			return nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// progress is what the prefix has reached, for the committer. taken says that it is about to be saved.
type progress struct {
	at       uint64
	reached  bool // false: no bound yet in this session
	tx       *event.Tx
	rows     uint64
	passed   uint64
	base     uint64 // the number of the first event that has not passed
	inFlight int
}

func (w *window) take() progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ackedSince, w.moved = 0, false
	return progress{at: w.t.reached, reached: w.t.hasReached, tx: w.t.inTx, rows: w.t.inRows, passed: w.t.passed, base: w.t.base, inFlight: w.t.events}
}

// need is what the committer decides by.
func (w *window) need() (acked int, moved bool, inFlight int, idleAt time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ackedSince, w.moved, w.t.events, w.idleAt
}

// gauges are for metrics: events and bytes in flight, and the commit time of the oldest unacked.
func (w *window) gauges() (events int, bytes int64, oldest time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.t.events, w.t.bytes, w.t.oldest()
}

// unsaved says that what was taken could not be saved, so that it stays due.
func (w *window) unsaved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ackedSince = max(w.ackedSince, 1)
}
