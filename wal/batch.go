package wal

import (
	"sync"
	"unsafe"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/slab"
)

const (
	// eventCost is what an event weighs besides its bytes.
	eventCost = int(unsafe.Sizeof(event.Event{}))
	// usualArena is what a batch of small rows fills, one read of the socket after the other. Larger ones are for larger values.
	usualArena = 64 << 10
)

// load is a batch with the memory behind it. It belongs to the session while it is filled and to the caller until Release.
type load struct {
	batch event.Batch
	arena []byte   // values are cut from its front
	full  [][]byte // arenas before it, which events refer to
	ahead int      // bytes of the log that are read and not decoded
	txs   []event.Tx
	pool  *sync.Pool
}

func newLoad(pool *sync.Pool) *load {
	l := &load{pool: pool}
	l.batch.Release = l.release
	return l
}

// release forgets what the batch held and gives its memory back.
func (l *load) release() {
	clear(l.batch.Events)
	l.batch.Events = l.batch.Events[:0]
	l.batch.Bounds = l.batch.Bounds[:0]
	for i, b := range l.full {
		slab.Give(b)
		l.full[i] = nil
	}
	slab.Give(l.arena)
	l.full, l.arena = l.full[:0], nil
	l.pool.Put(l)
}

// grab cuts n bytes that stay where they are.
func (l *load) grab(n int) []byte {
	if l.arena == nil || cap(l.arena)-len(l.arena) < n { // never nil: an empty value is not SQL NULL
		if cap(l.arena) > 0 {
			l.full = append(l.full, l.arena)
		}
		// No larger than what there is to put into it: thousands of batches of one event may wait for the broker (I11).
		l.arena = slab.Take(max(n, min(n+l.ahead, usualArena)))
	}
	at := len(l.arena)
	l.arena = l.arena[:at+n]
	return l.arena[at : at+n : at+n]
}

// next appends an event in place.
func (l *load) next() *event.Event {
	l.batch.Events = append(l.batch.Events, event.Event{})
	return &l.batch.Events[len(l.batch.Events)-1]
}

// bound says that everything up to here, with the events so far, ends at lsn; one per place is enough.
func (l *load) bound(lsn event.LSN) {
	b := event.Bound{After: len(l.batch.Events), At: uint64(lsn)}
	if n := len(l.batch.Bounds); n > 0 && l.batch.Bounds[n-1].After == b.After {
		l.batch.Bounds[n-1] = b
		return
	}
	l.batch.Bounds = append(l.batch.Bounds, b)
}

func (l *load) empty() bool { return len(l.batch.Events) == 0 && len(l.batch.Bounds) == 0 }
