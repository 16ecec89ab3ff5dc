package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// window bounds what is in flight, in events and in bytes (I11), and guards the ack tracker. The reader admits, acks
// from any goroutine settle.
type window struct {
	maxEvents int
	maxBytes  int64

	mu   sync.Mutex
	t    ackTracker
	room chan struct{} // signalled, capacity 1, when waiting and something passed
	wait bool
	zero chan struct{} // closed and replaced when nothing is in flight

	ackedSince int       // passed since the last snapshot
	idleAt     time.Time // when the last event passed and left nothing in flight
	moved      bool      // a bound was reached since the last snapshot

	// notify is called, outside the lock, when the committer should look again: the first progress, the 4,000th ack, idle.
	notify func()
	now    func() time.Time
}

func newWindow(maxEvents int, maxBytes int64, notify func(), now func() time.Time) *window {
	w := &window{maxEvents: maxEvents, maxBytes: maxBytes, room: make(chan struct{}, 1), notify: notify, now: now}
	w.idleAt = now()
	return w
}

// admit waits until an event of this size may be added. An event above the byte bound is admitted alone, when the
// window is empty.
func (w *window) admit(ctx context.Context, size int) error {
	for {
		w.mu.Lock()
		ok := w.t.events == 0 || (w.t.events < w.maxEvents && w.t.bytes+int64(size) <= w.maxBytes)
		w.wait = !ok
		w.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-w.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// add numbers an admitted event.
func (w *window) add(s slot) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
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
	passed := w.t.passed
	ok = w.t.settle(seq)
	n := int(w.t.passed - passed)
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
		if w.wait {
			w.wait = false
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

// place is where an event in flight was read, in the form of the source header; false where that is not known any more.
func (w *window) place(seq uint64) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.t.find(seq)
	if s == nil || s.tx == nil {
		return "", false
	}
	return placeOf(&event.Event{Tx: s.tx, Index: s.index}), true
}

// reopen takes an ack back; false where the prefix has passed it.
func (w *window) reopen(seq uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.t.reopen(seq)
}

// session begins a new source session.
func (w *window) session() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t.session()
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
	inFlight int
}

func (w *window) take() progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ackedSince, w.moved = 0, false
	return progress{at: w.t.reached, reached: w.t.hasReached, tx: w.t.inTx, rows: w.t.inRows, passed: w.t.passed, inFlight: w.t.events}
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
