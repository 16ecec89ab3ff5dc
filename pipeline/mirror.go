package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// Mirror copies what is put into a pipeline's dead-letter store to a topic. It reads the store, beside the pipeline and with a sink
// of its own, so that a mirror that is down delays nobody: what has no copy yet waits in the store, where it is safe anyway, and is copied
// when the mirror is back. A copy is made at least once, unless its event is replayed or skipped before. Nothing is ever read
// from the topic: the store alone says what is parked.
type Mirror struct {
	o    MirrorOptions
	seq  uint64
	from int64 // everything before is copied; orders only grow while a process lives

	mu      sync.Mutex
	answers []mirrorAnswer
	wake    chan struct{}
}

// MirrorOptions are what a mirror is made of; all are required.
type MirrorOptions struct {
	Pipeline    string
	Topic       string
	Letters     MirrorStore
	Transformer Transformer
	Log         *slog.Logger
	// Condition is told what keeps copies from being made; nil clears.
	Condition func(key string, f *event.Fault)
}

// MirrorStore is the side of the dead-letter store that a mirror sees; see DeadLetters.
type MirrorStore interface {
	Each(pipeline string, from int64, visit func(*event.Parked) error) error
	Get(pipeline string, order int64) (*event.Parked, error)
	// Mirrored notes that entries have their copies. Durable when it returns.
	Mirrored(ctx context.Context, pipeline string, orders []int64) error
}

type mirrorAnswer struct {
	seq uint64
	err error
}

// mirrorChunk and mirrorBytes bound what is on its way at once; mirrorEvery is how often the store is looked at.
const (
	mirrorChunk = 256
	mirrorBytes = 4 << 20
	mirrorEvery = 500 * time.Millisecond
)

// NewMirror makes a mirror; its Acks belong to the sink that Run is given.
func NewMirror(o MirrorOptions) *Mirror {
	return &Mirror{o: o, wake: make(chan struct{}, 1), from: -1 << 63}
}

// Acked implements Acks.
func (m *Mirror) Acked(seq uint64) { m.Failed(seq, nil) }

// Failed implements Acks.
func (m *Mirror) Failed(seq uint64, err error) {
	m.mu.Lock()
	m.answers = append(m.answers, mirrorAnswer{seq, err})
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Reopened implements Acks. The copy arrives once more; nothing depends on it.
func (m *Mirror) Reopened(uint64) {}

// Run copies until ctx ends, and closes the sink.
func (m *Mirror) Run(ctx context.Context, sink Sink) {
	defer func() {
		if err := sink.Close(); err != nil {
			m.o.Log.Debug("closing the mirror", "error", err)
		}
	}()
	wait := backoff{first: 200 * time.Millisecond, most: 30 * time.Second}
	for opened := false; ctx.Err() == nil; {
		err := error(nil)
		if !opened {
			_, err = sink.Open(ctx)
			opened = err == nil
		}
		more := false
		if opened {
			more, err = m.copy(ctx, sink)
		}
		switch {
		case ctx.Err() != nil:
		case err == nil:
			wait.reset()
			m.o.Condition("mirror", nil)
			if !more {
				_ = sleep(ctx, mirrorEvery)
			}
		default:
			f := event.AsFault(err)
			if f == nil {
				f = faultUnclassified("copy parked events", err)
			}
			m.o.Condition("mirror", f)
			if f.Class != event.Retry && f.Class != event.Config && f.Class != event.Environment {
				return // the pipeline meets the same cluster, and the same store
			}
			_ = sleep(ctx, wait.next())
		}
	}
}

// copy sends the next entries that have no copy, and waits for their acks.
func (m *Mirror) copy(ctx context.Context, sink Sink) (more bool, err error) {
	var orders []int64
	var bytes int64
	next := m.from
	err = m.o.Letters.Each(m.o.Pipeline, m.from, func(e *event.Parked) error {
		if e.Ended == event.Open && !e.Mirrored {
			if len(orders) == mirrorChunk || len(orders) > 0 && bytes+e.Size > mirrorBytes {
				return errEnough
			}
			orders = append(orders, e.Order)
			bytes += e.Size
		}
		next = e.Order + 1
		return nil
	})
	more = errors.Is(err, errEnough)
	if err != nil && !more {
		return false, err
	}
	if len(orders) > 0 {
		if err := m.send(ctx, sink, orders); err != nil {
			return false, err
		}
		if err := m.o.Letters.Mirrored(ctx, m.o.Pipeline, orders); err != nil {
			return false, err
		}
	}
	m.from = next
	return more, nil
}

// mirrored is a copy on its way. bare: it goes without what the row holds.
type mirrored struct {
	entry *event.Parked
	m     *event.Message
	bare  bool
}

func (m *Mirror) send(ctx context.Context, sink Sink, orders []int64) error {
	flying := map[uint64]mirrored{}
	put := func(e *event.Parked, bare bool) error {
		m.seq++
		c := mirrored{e, m.message(e, bare), bare}
		c.m.Seq = m.seq
		flying[m.seq] = c
		return sink.Send(ctx, c.m)
	}
	for _, order := range orders {
		e, err := m.o.Letters.Get(m.o.Pipeline, order)
		if err == nil && e != nil { // nil: it ended, or was moved and is met again
			err = put(e, false)
		}
		if err != nil {
			return err
		}
	}
	for len(flying) > 0 {
		answers, err := m.answered(ctx)
		if err != nil {
			return err
		}
		for _, a := range answers {
			c, known := flying[a.seq]
			delete(flying, a.seq)
			if a.err == nil || !known {
				continue
			}
			f := event.AsFault(a.err)
			if f == nil || f.Class != event.Record {
				return a.err
			}
			sink.Discard([]uint64{a.seq})
			if c.bare {
				m.o.Log.Warn("a parked event has no copy in the mirror topic", "code", f.Code, "id", c.m.ID, "place", c.m.Place, "text", f.Text, "hint", f.Hint)
				continue
			}
			// Most likely it is too large for this topic as well. What happened to it is worth having without what it holds.
			m.o.Log.Warn("the copy of a parked event goes without payload", "code", f.Code, "id", c.m.ID, "place", c.m.Place, "text", f.Text, "hint", f.Hint)
			if err := put(c.entry, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// answered waits for answers.
func (m *Mirror) answered(ctx context.Context) ([]mirrorAnswer, error) {
	for {
		m.mu.Lock()
		got := m.answers
		m.answers = nil
		m.mu.Unlock()
		if len(got) > 0 {
			return got, nil
		}
		select {
		case <-m.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// message is the copy of an entry: the message that it would have been, as far as it can be made, and why it is none, in headers
// behind the others.
func (m *Mirror) message(e *event.Parked, bare bool) *event.Message {
	c := &event.Message{Partition: -1, Timestamp: e.Commit}
	if e.Row != nil && !bare {
		tx := &event.Tx{ID: e.Tx, Source: e.Source, Commit: e.Commit}
		ev := &event.Event{Tx: tx, Index: e.Index, Table: e.Table, Row: *e.Row}
		if err := m.o.Transformer.Transform(ev, c); err != nil {
			c = &event.Message{Partition: -1, Timestamp: e.Commit, Value: e.Row[event.Payload].Bytes}
		}
	}
	if c.Key = e.Key; c.Key == nil && e.Row != nil && e.Row[event.AggregateID].Present() {
		c.Key = e.Row[event.AggregateID].Bytes // no route gave it one; copies of an aggregate stay together all the same
	}
	c.Topic, c.ID, c.Place, c.Commit = m.o.Topic, e.ID, e.Place(), e.Commit
	reason := e.Text
	if e.Behind {
		reason = "waits behind another of its aggregate or key"
	}
	for _, h := range [...][2]string{
		{"dead_letter_pipeline", m.o.Pipeline}, {"dead_letter_class", e.Class}, {"dead_letter_code", e.Code}, {"dead_letter_reason", reason},
		{"dead_letter_topic", e.Topic}, {"dead_letter_position", e.Place()}, {"dead_letter_table", e.Table}, {"dead_letter_id", e.ID},
		{"dead_letter_time", e.ParkedAt.UTC().Format(time.RFC3339)},
	} {
		if h[1] != "" {
			c.Headers = append(c.Headers, event.Header{Name: h[0], Value: []byte(h[1])})
		}
	}
	if bare && e.Row != nil {
		left := strconv.Itoa(len(e.Row[event.Payload].Bytes))
		c.Headers = append(c.Headers, event.Header{Name: "dead_letter_payload_left_out", Value: []byte(left)})
	}
	return c
}
