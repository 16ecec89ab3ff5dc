package binlog

import (
	"slices"
	"sync"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/slab"
)

// Rows are decoded once, straight into a segment: the events and the bytes that their values point to. The rows of an open
// transaction lie behind those of finished ones; a commit moves the mark behind them, a rollback cuts them off. A batch is
// one segment, or the finished part of it, so that the log's own buffer is free again at once and foreign rows keep nothing
// alive (I11).
type segment struct {
	events []event.Event
	buf    []byte
	bounds []event.Bound
}

const (
	segmentEvents = 1024
	segmentBytes  = 128 << 10
	// smallBytes and smallEvents: what is below is copied into memory of its own size, because a whole segment kept alive
	// by each of some thousand single events would be gigabytes.
	smallBytes  = 64 << 10
	smallEvents = 128
	// eventOverhead is what an Event takes besides the bytes of its values.
	eventOverhead = 512
)

func (s *segment) full() bool {
	return len(s.events) >= segmentEvents || len(s.buf) >= segmentBytes-segmentBytes/8
}

// mark is a place in the queue of segments.
type mark struct {
	seg, events, buf int
}

// assembler holds the segments that were not handed out. The session's goroutine owns it.
type assembler struct {
	pool *sync.Pool
	segs []*segment // never empty; rows go into the last
	done mark       // everything before it is finished
}

func newAssembler(pool *sync.Pool) *assembler {
	a := &assembler{pool: pool}
	a.segs = append(a.segs, a.segment())
	return a
}

func newSegmentPool() *sync.Pool {
	return &sync.Pool{New: func() any { return new(segment) }}
}

func (a *assembler) segment() *segment {
	s := a.pool.Get().(*segment)
	s.buf = slab.Take(segmentBytes)
	return s
}

func (a *assembler) recycle(s *segment) {
	slab.Give(s.buf)
	clear(s.events)
	if cap(s.events) > 4*len(s.events)+smallEvents { // rows are larger now: a segment holds few of them
		s.events = nil
	}
	s.events, s.buf, s.bounds = s.events[:0], nil, s.bounds[:0]
	a.pool.Put(s)
}

// fits reports whether a row of about n bytes goes into the segment; an empty one gets a buffer for it. A buffer that had to grow
// would be there twice, since the events before refer to it, and only one of the two would be used again.
func (s *segment) fits(n int) bool {
	if s.full() || len(s.events) > 0 && cap(s.buf)-len(s.buf) < n {
		return false
	}
	if len(s.buf) == 0 && cap(s.buf) < n {
		slab.Give(s.buf)
		s.buf = slab.Take(n)
	}
	return true
}

// room gives the segment for the next row, of about n bytes.
func (a *assembler) room(n int) *segment {
	s := a.segs[len(a.segs)-1]
	if !s.fits(n) {
		s = a.segment()
		a.segs = append(a.segs, s)
		s.fits(n)
	}
	return s
}

// here is the mark behind the last row.
func (a *assembler) here() mark {
	s := a.segs[len(a.segs)-1]
	return mark{len(a.segs) - 1, len(s.events), len(s.buf)}
}

// commit finishes everything so far and puts a bound behind it.
func (a *assembler) commit(at uint64) {
	a.done = a.here()
	s := a.segs[a.done.seg]
	if n := len(s.bounds); n > 0 && s.bounds[n-1].After == a.done.events {
		s.bounds[n-1].At = at
		return
	}
	s.bounds = append(s.bounds, event.Bound{After: a.done.events, At: at})
}

// settle finishes everything so far, inside of a transaction that is known to have committed.
func (a *assembler) settle() { a.done = a.here() }

// cut drops everything behind a mark.
func (a *assembler) cut(m mark) {
	for _, s := range a.segs[m.seg+1:] {
		a.recycle(s)
	}
	clear(a.segs[m.seg+1:])
	a.segs = a.segs[:m.seg+1]
	s := a.segs[m.seg]
	clear(s.events[m.events:])
	s.events, s.buf = s.events[:m.events], s.buf[:m.buf]
}

// rollback drops the open transaction's rows.
func (a *assembler) rollback() { a.cut(a.done) }

// truncate drops the open transaction's rows from the index on.
func (a *assembler) truncate(index uint64) {
	at := a.done
	for seg := at.seg; seg < len(a.segs); seg++ {
		from := 0
		if seg == at.seg {
			from = at.events
		}
		for i := from; i < len(a.segs[seg].events); i++ {
			if a.segs[seg].events[i].Index >= index {
				// The bytes of dropped rows stay in the buffer until the segment is reused: nothing refers to them.
				a.cut(mark{seg, i, len(a.segs[seg].buf)})
				return
			}
		}
	}
}

// pending is how many bytes the open transaction's rows take.
func (a *assembler) pending() int {
	if a.done.seg == len(a.segs)-1 {
		s := a.segs[a.done.seg]
		return len(s.buf) - a.done.buf + (len(s.events)-a.done.events)*eventOverhead
	}
	n := 0
	for _, s := range a.segs[a.done.seg:] {
		n += cap(s.buf) + cap(s.events)*eventOverhead
	}
	return n
}

// each visits the open transaction's rows.
func (a *assembler) each(visit func(*event.Event) error) error {
	for seg := a.done.seg; seg < len(a.segs); seg++ {
		from := 0
		if seg == a.done.seg {
			from = a.done.events
		}
		for i := from; i < len(a.segs[seg].events); i++ {
			if err := visit(&a.segs[seg].events[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole reports whether a segment is finished to its end and another one begun.
func (a *assembler) whole() bool { return a.done.seg > 0 }

// finished reports whether there is anything to hand out, and whether it has events.
func (a *assembler) finished() (any, events bool) {
	return a.done.seg > 0 || len(a.segs[0].bounds) > 0 || a.done.events > 0, a.done.seg > 0 || a.done.events > 0
}

// take hands out the first finished segment, or the finished part of the only one.
func (a *assembler) take() *event.Batch {
	s := a.segs[0]
	if a.done.seg > 0 {
		a.segs = append(a.segs[:0], a.segs[1:]...)
		a.done.seg--
		return a.batch(s)
	}
	n := a.done.events
	if n <= smallEvents && a.done.buf <= smallBytes {
		out := &segment{events: make([]event.Event, n), bounds: append([]event.Bound(nil), s.bounds...)}
		copyRows(out, out.events, s.events[:n])
		// What is left moves to the front. Its bytes stay where they are: only an empty rest gives the buffer back.
		rest := copy(s.events, s.events[n:])
		clear(s.events[rest:])
		s.events, s.bounds = s.events[:rest], s.bounds[:0]
		if rest == 0 {
			s.buf = s.buf[:0]
		}
		a.done = mark{}
		return &event.Batch{Events: out.events, Bounds: out.bounds}
	}
	next := a.segment()
	next.events = slices.Grow(next.events, len(s.events)-n)[:len(s.events)-n]
	copyRows(next, next.events, s.events[n:])
	clear(s.events[n:])
	s.events = s.events[:n]
	a.segs[0] = next
	a.done = mark{}
	return a.batch(s)
}

func (a *assembler) batch(s *segment) *event.Batch {
	return &event.Batch{Events: s.events, Bounds: s.bounds, Release: func() { a.recycle(s) }}
}

// copyRows copies events and their bytes into a segment's own buffer.
func copyRows(to *segment, out, in []event.Event) {
	size := 0
	for i := range in {
		for r := range in[i].Row {
			size += len(in[i].Row[r].Bytes)
		}
	}
	if cap(to.buf)-len(to.buf) < size {
		to.buf = append(make([]byte, 0, len(to.buf)+size), to.buf...)
	}
	for i := range in {
		out[i] = in[i]
		for r := range out[i].Row {
			v := &out[i].Row[r]
			if len(v.Bytes) > 0 {
				at := len(to.buf)
				to.buf = append(to.buf, v.Bytes...)
				v.Bytes = to.buf[at:len(to.buf):len(to.buf)]
			}
		}
	}
}
