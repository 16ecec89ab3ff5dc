package pipeline

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// strictSink behaves as the Kafka sink does: in order per key, a refused message keeps what comes behind it of its key, until
// it is discarded.
type strictSink struct {
	b    *broker
	acks Acks

	mu      sync.Mutex
	queue   []*event.Message
	refused map[uint64]bool
	wake    chan struct{}
	closed  chan struct{}
	hold    bool   // nothing is answered
	away    string // a topic that is missing: what is for it is held
	// sending, where not nil, is called before a message is taken, and discarded when some were let go of.
	sending   func(*event.Message)
	discarded func()
}

func newStrictSink(b *broker) *strictSink {
	return &strictSink{b: b, refused: map[uint64]bool{}, wake: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (s *strictSink) answerTo(a Acks) { s.acks = a }

func (s *strictSink) Open(context.Context) (event.SinkID, error) {
	go s.run() // ends with Close
	return event.SinkID{Kind: "kafka", ClusterID: "one"}, nil
}

func (s *strictSink) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *strictSink) Send(_ context.Context, m *event.Message) error {
	if s.sending != nil {
		s.sending(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, m)
	s.kick()
	return nil
}

// waits has nothing answered until it is called with false.
func (s *strictSink) waits(hold bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = hold
	s.kick()
}

func (s *strictSink) run() {
	for {
		select {
		case <-s.closed:
			return
		case <-s.wake:
		}
		for s.step() {
			select {
			case <-s.closed:
				return
			case <-time.After(rand.N(3 * time.Millisecond)):
			}
		}
	}
}

// step answers one message that may be answered, any but the first of them included; false where there is none.
func (s *strictSink) step() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold {
		return false
	}
	seen := map[string]bool{}
	var ready []int
	for i, m := range s.queue {
		if k := m.Aggregate; !seen[k] && !s.refused[m.Seq] && (s.away == "" || m.Topic != s.away) {
			ready = append(ready, i)
		}
		seen[m.Aggregate] = true
	}
	if len(ready) == 0 {
		return false
	}
	i := ready[rand.IntN(len(ready))]
	m := s.queue[i]
	s.b.mu.Lock()
	bad := s.b.bad[string(m.Value)]
	alive := bad || s.b.die.step(func() {
		s.b.log = append(s.b.log, string(m.Value))
		s.b.to[string(m.Value)], s.b.key[string(m.Value)] = m.Topic, string(m.Key)
	})
	s.b.mu.Unlock()
	if !alive {
		s.hold = true
		return false
	}
	if bad {
		s.refused[m.Seq] = true
		s.acks.Failed(m.Seq, &event.Fault{Code: "OT5009", Class: event.Record, Op: "send", Text: "too large"})
		if s.b.heard != nil {
			s.b.heard(string(m.Value))
		}
		return true
	}
	s.queue = slices.Delete(s.queue, i, i+1)
	s.acks.Acked(m.Seq)
	return true
}

func (s *strictSink) Discard(seqs []uint64) (dropped []uint64) {
	if s.discarded != nil {
		defer s.discarded() // the lock is free then
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = slices.DeleteFunc(s.queue, func(m *event.Message) bool {
		if slices.Contains(seqs, m.Seq) {
			dropped = append(dropped, m.Seq)
			return true
		}
		return false
	})
	s.kick()
	return dropped
}

func (s *strictSink) Flush(ctx context.Context) error {
	for {
		s.mu.Lock()
		n := len(s.queue)
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func (s *strictSink) Close() error {
	close(s.closed)
	return nil
}
