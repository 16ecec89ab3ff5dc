package pipeline

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// mirrorTopic is a topic with what arrived in it; it takes nothing above limit, and nothing at all while it is away.
type mirrorTopic struct {
	acks Acks

	mu     sync.Mutex
	away   bool
	limit  int
	copies []*event.Message
	held   []*event.Message
	gone   []uint64
}

func (s *mirrorTopic) Open(context.Context) (event.SinkID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return event.SinkID{}, &event.Fault{Code: "OT5001", Class: event.Retry, Op: "reach kafka", Text: "down"}
	}
	return event.SinkID{}, nil
}

func (s *mirrorTopic) Send(_ context.Context, m *event.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, m)
	s.answer()
	return nil
}

// answer acks what may arrive, as the Kafka sink holds what it cannot send.
func (s *mirrorTopic) answer() {
	if s.away {
		return
	}
	for _, m := range s.held {
		if len(m.Value) > s.limit {
			s.acks.Failed(m.Seq, &event.Fault{Code: "OT5009", Class: event.Record, Op: "send", Text: "too large"})
			continue
		}
		s.copies = append(s.copies, m)
		s.acks.Acked(m.Seq)
	}
	s.held = nil
}

func (s *mirrorTopic) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
	s.answer()
}

func (s *mirrorTopic) Discard(seqs []uint64) []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = append(s.gone, seqs...)
	return seqs
}

func (s *mirrorTopic) Flush(context.Context) error { return nil }
func (s *mirrorTopic) Close() error                { return nil }

func (s *mirrorTopic) values() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.copies {
		all = append(all, string(m.Value))
	}
	return all
}

func headerOf(m *event.Message, name string) string {
	for _, h := range m.Headers {
		if h.Name == name {
			return string(h.Value)
		}
	}
	return ""
}

// parkRows puts rows into a store, as a pipeline does.
func parkRows(t *testing.T, d *fakeDead, first int64, values ...string) {
	t.Helper()
	var ops []event.Parking
	for i, v := range values {
		e := event.Parked{
			Order: first + int64(i), ID: v, Tx: "7", Index: uint64(i), Source: "postgres/s/0/1", Table: "outbox", Aggregate: keyOf(v), Key: []byte(keyOf(v)), Topic: "orders",
			Code: "OT5009", Class: "record", Text: "too large", Size: int64(len(v)), ParkedAt: time.Now(), Behind: i > 0,
		}
		row := event.Row{}
		row[event.Payload] = event.Value{Set: true, Bytes: []byte(v)}
		e.Row = &row
		ops = append(ops, event.Parking{Entry: &e, Order: e.Order})
	}
	require.NoError(t, d.Park(t.Context(), "p", ops))
}

// mirrors runs a mirror; the returned function ends it.
func mirrors(t *testing.T, d *fakeDead, topic *mirrorTopic, held *sync.Map) (end func()) {
	m := NewMirror(MirrorOptions{
		Pipeline: "p", Topic: "dead", Letters: d, Transformer: &keyed{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Condition: func(key string, f *event.Fault) {
			if held.Delete(key); f != nil {
				held.Store(key, f.Code)
			}
		},
	})
	topic.acks = m
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx, topic) }()
	return func() { cancel(); <-done }
}

func TestAMirrorCopiesEachParkedEventOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, topic, held := newDead(), &mirrorTopic{limit: 1 << 20, away: true}, &sync.Map{}
		parkRows(t, dead, 0, "a:0", "a:1")
		end := mirrors(t, dead, topic, held)
		pass(10 * time.Second)
		code, _ := held.Load("mirror")
		require.Equal(t, "OT5001", code, "a mirror that is down is told")
		topic.set(false)
		pass(time.Minute)
		_, told := held.Load("mirror")
		require.False(t, told)
		require.Equal(t, []string{"a:0", "a:1"}, topic.values())
		first, second := topic.copies[0], topic.copies[1]
		require.Equal(t, "dead", first.Topic)
		require.Equal(t, "a", string(first.Key))
		for name, want := range map[string]string{
			"dead_letter_pipeline": "p", "dead_letter_class": "record", "dead_letter_code": "OT5009", "dead_letter_reason": "too large", "dead_letter_topic": "orders",
			"dead_letter_position": "postgres/s/0/1#0", "dead_letter_table": "outbox", "dead_letter_id": "a:0",
		} {
			require.Equal(t, want, headerOf(first, name), name)
		}
		require.Contains(t, headerOf(second, "dead_letter_reason"), "waits behind")

		// While it is away the store takes more, and one entry is done with and one is moved before they were copied.
		topic.set(true)
		parkRows(t, dead, 2, "b:0", "b:1", "c:0")
		pass(time.Minute)
		_, err := dead.End(t.Context(), "p", []event.Ending{{Order: 0, How: event.Replayed}, {Order: 4, How: event.Skipped}})
		require.NoError(t, err)
		require.NoError(t, dead.Park(t.Context(), "p", []event.Parking{{From: 2, Order: 5}}))
		end()
		topic.held = nil

		// Another process: numbers may begin anew, copies do not.
		topic.set(false)
		end = mirrors(t, dead, topic, held)
		pass(time.Minute)
		require.Equal(t, []string{"a:0", "a:1", "b:1", "b:0"}, topic.values())
		parkRows(t, dead, 6, "d:0")
		pass(time.Second)
		require.Equal(t, "d:0", topic.values()[4])
		end()
	})
}

func TestAnEventThatIsTooLargeForTheMirrorToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, topic := newDead(), &mirrorTopic{limit: 100}
		large := "a:0" + strings.Repeat("x", 200)
		parkRows(t, dead, 0, large, "a:1")
		end := mirrors(t, dead, topic, &sync.Map{})
		pass(time.Second)
		end()
		require.Equal(t, []string{"a:1", ""}, topic.values())
		bare := topic.copies[1]
		require.Nil(t, bare.Value)
		require.Equal(t, fmt.Sprint(len(large)), headerOf(bare, "dead_letter_payload_left_out"))
		require.Equal(t, "OT5009", headerOf(bare, "dead_letter_code"))
		require.Len(t, topic.gone, 1, "the refused one is taken off the sink's hands, so that others may follow")
		require.Equal(t, []string{large, "a:1"}, dead.open(), "the store has all of it")
	})
}

func TestManyParkedEventsAreCopiedInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, topic := newDead(), &mirrorTopic{limit: 8 << 20}
		var values []string
		for i := range 3*mirrorChunk + 1 {
			values = append(values, fmt.Sprint("a:", i))
		}
		values[5] += strings.Repeat("x", mirrorBytes+1)
		parkRows(t, dead, 0, values...)
		end := mirrors(t, dead, topic, &sync.Map{})
		pass(time.Second)
		end()
		require.Equal(t, values, topic.values())
	})
}
