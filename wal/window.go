package wal

import (
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// windowSteps is into how many steps a window of time is divided; a sample is kept for each.
const windowSteps = 256

// Moment says that a position was stored at a time.
type Moment struct {
	At       time.Time
	Position event.Position
}

// window holds the confirmed position behind the stored one, so that the server can still send what a person wants
// again. The stored position is never held back: only the answer to the server is (I4).
//
// The naive window asks at what time each confirmed position was stored, and forgets it with the process. This one keeps
// samples, some hundred of them, and begins with those that the checkpoint's history has. Where it knows nothing it holds
// back more, never less: a sample is the lowest position of its time.
type window struct {
	age  time.Duration // 0: not by time
	size uint64        // bytes of log; 0: not by size
	now  func() time.Time

	mu      sync.Mutex
	samples []sample // in order of time and position
	floor   event.LSN
}

type sample struct {
	at  time.Time
	lsn event.LSN
}

func newWindow(o *Options) *window {
	return &window{age: o.RewindWindow, size: uint64(max(0, o.RewindBytes)), now: time.Now}
}

func (w *window) none() bool { return w.age <= 0 && w.size == 0 }

// begin starts a session at a position: the slot stands at confirmed, which is as far back as anybody can go. Samples
// beyond the position are of a time from which a person has gone back.
func (w *window) begin(p event.Position, confirmed event.LSN, past []Moment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.floor = min(confirmed, p.LSN)
	if w.age <= 0 {
		return
	}
	if len(w.samples) == 0 {
		for _, m := range past {
			q := m.Position
			if q.Kind == event.Postgres && q.SystemID == p.SystemID && q.Slot == p.Slot && q.LSN <= p.LSN {
				w.add(m.At, q.LSN, 0)
			}
		}
	}
	for n := len(w.samples); n > 0 && w.samples[n-1].lsn > p.LSN; n-- {
		w.samples = w.samples[:n-1]
	}
	w.add(w.now(), p.LSN, 0)
}

// add keeps a sample that is at least a step behind the one before. A clock that was set back, or a position that was,
// takes what came after it away: then more is held.
func (w *window) add(at time.Time, lsn event.LSN, step time.Duration) {
	for n := len(w.samples); n > 0 && (w.samples[n-1].at.After(at) || w.samples[n-1].lsn > lsn); n-- {
		w.samples = w.samples[:n-1]
	}
	if n := len(w.samples); n > 0 && at.Sub(w.samples[n-1].at) < step {
		return
	}
	w.samples = append(w.samples, sample{at, lsn})
}

// held is what may be confirmed while durable is stored. It never decreases and never exceeds durable.
func (w *window) held(durable event.LSN) event.LSN {
	if w.none() {
		return durable
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size > 0 {
		if uint64(durable) > w.size {
			w.floor = max(w.floor, durable-event.LSN(w.size))
		}
		return min(w.floor, durable)
	}
	now := w.now()
	w.add(now, durable, w.age/windowSteps)
	passed := 0
	for i, s := range w.samples {
		if now.Sub(s.at) < w.age {
			break
		}
		w.floor = max(w.floor, s.lsn)
		passed = i
	}
	w.samples = append(w.samples[:0], w.samples[passed:]...)
	return min(w.floor, durable)
}
