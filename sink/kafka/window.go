package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/event"
)

// state is where one sent message is.
type state uint8

const (
	held    state = iota // waits in the sink for its topic, or behind a held one
	queued               // waits in the sink for its partition's turn
	flying               // handed to the client
	acked                // acknowledged, behind an unacked one
	failed               // reported as Failed; blocks what must not overtake it
	dropped              // discarded: kept elsewhere
)

// entry is one sent message. Entries are reused, with their record, headers and promise, so that a message costs no
// allocation once the window has reached its size.
type entry struct {
	record  kgo.Record
	promise func(*kgo.Record, error)
	m       *event.Message
	t       *topic
	part    int32 // partition, from queued on; -1 where it was another layout's
	seq     uint64
	bytes   int64
	looks   uint64 // the topic's lookups when this was sent: a refusal needs a later one
	state   state
	unsure  bool         // counted as unknown outcome
	fault   *event.Fault // of failed
}

// window is the queue of entries in the order of Send; the first is the lowest that is not acked.
type window struct {
	ring []*entry // length is a power of two
	head int
	n    int
	free []*entry
}

func (w *window) at(i int) *entry { return w.ring[(w.head+i)&(len(w.ring)-1)] }

func (w *window) push(e *entry) {
	if w.n == len(w.ring) {
		ring := make([]*entry, max(64, 2*len(w.ring)))
		for i := range w.n {
			ring[i] = w.at(i)
		}
		w.ring, w.head = ring, 0
	}
	w.ring[(w.head+w.n)&(len(w.ring)-1)] = e
	w.n++
}

// pop removes the first entry and keeps it for reuse.
func (w *window) pop() {
	e := w.ring[w.head]
	w.ring[w.head] = nil
	w.head = (w.head + 1) & (len(w.ring) - 1)
	w.n--
	clear(e.record.Headers)
	e.record = kgo.Record{Headers: e.record.Headers[:0]}
	e.m, e.t, e.fault = nil, nil, nil
	w.free = append(w.free, e)
}

// entry gives one for m, new or used.
func (s *Sink) entry(m *event.Message) *entry {
	w := &s.window
	var e *entry
	if n := len(w.free); n > 0 {
		e = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		e = new(entry)
		e.promise = func(_ *kgo.Record, err error) { s.done(e, err) }
	}
	e.m, e.seq, e.bytes, e.state, e.unsure = m, m.Seq, payload(m), held, false
	return e
}

// blockade knows what later entries must not overtake: the aggregates, and the places, of held and failed entries.
type blockade struct {
	aggregates map[string]struct{}
	places     map[place]struct{}
}

type place struct{ topic, key string }

func (b *blockade) reset() {
	clear(b.aggregates)
	clear(b.places)
}

func (b *blockade) add(m *event.Message) {
	if b.aggregates == nil {
		b.aggregates, b.places = make(map[string]struct{}), make(map[place]struct{})
	}
	b.aggregates[m.Aggregate] = struct{}{}
	if m.Key != nil {
		b.places[place{m.Topic, string(m.Key)}] = struct{}{}
	}
}

// stops reports whether m must wait. It costs nothing while nothing is held.
func (b *blockade) stops(m *event.Message) bool {
	if len(b.aggregates) == 0 {
		return false
	}
	if _, ok := b.aggregates[m.Aggregate]; ok {
		return true
	}
	if m.Key == nil {
		return false
	}
	_, ok := b.places[place{m.Topic, string(m.Key)}]
	return ok
}
