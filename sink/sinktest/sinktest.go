// Package sinktest is one conformance suite for all sinks: what a pipeline may rely on whatever is behind it. It is run over
// fakes and over the real thing.
package sinktest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// Sink is what a pipeline sees of a sink.
type Sink interface {
	Open(ctx context.Context) (event.SinkID, error)
	Send(ctx context.Context, m *event.Message) error
	Flush(ctx context.Context) error
	Close() error
}

// Acks is what a sink answers to.
type Acks interface {
	Acked(seq uint64)
	Failed(seq uint64, err error)
	Reopened(seq uint64)
}

// Arrived is one message as the outside has it.
type Arrived struct {
	Topic     string
	Key       []byte
	Value     []byte
	Headers   []event.Header
	Timestamp time.Time
}

// Subject is one sink with its outside.
type Subject struct {
	Sink Sink
	// Arrived gives everything that arrived, in order per topic and key.
	Arrived func(t *testing.T) []Arrived
	// Block keeps the outside from acknowledging until unblock is called.
	Block func(t *testing.T) (unblock func())
	// Topics are two that may be sent to.
	Topics [2]string
}

// Make builds a subject that buffers at most maxBytes of unacked messages, and cleans up after the test.
type Make func(t *testing.T, acks Acks, maxBytes int64) Subject

// patience bounds every wait: generous, since nothing but a defect uses it up.
const patience = 90 * time.Second

// Run runs the suite.
func Run(t *testing.T, build Make) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Make)
	}{
		{"each Send ends in one Acked and arrives in order per topic and key", inOrder},
		{"bytes arrive as they were sent", bytesAsSent},
		{"Flush waits for the acks, and not longer than its context", flushes},
		{"Send blocks while too much is unacked, and ends with its context", backpressure},
		{"Close does not wait for unacked messages and ends the answers", closes},
		{"a message larger than the bound is taken alone", largeAlone},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, build) })
	}
}

// Message makes a small valid message.
func Message(seq uint64, topic, key, value string) *event.Message {
	m := &event.Message{
		Seq: seq, Topic: topic, Key: []byte(key), Partition: -1, Value: []byte(value), Aggregate: key,
		ID: fmt.Sprintf("id-%d", seq), Timestamp: time.UnixMilli(1_700_000_000_000 + int64(seq)).UTC(),
	}
	m.Size = len(m.Key) + len(m.Value)
	return m
}

// Send sends and keeps the ledger.
func Send(ctx context.Context, s Sink, l *Ledger, m *event.Message) error {
	l.Sent(m.Seq)
	err := s.Send(ctx, m)
	if err != nil {
		l.NotTaken(m.Seq)
	}
	return err
}

func start(t *testing.T, build Make, maxBytes int64) (Subject, *Ledger, context.Context) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	l := NewLedger()
	s := build(t, l, maxBytes)
	_, err := s.Sink.Open(ctx)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Sink.Close())
		require.Empty(t, l.Illegal())
	})
	return s, l, ctx
}

func inOrder(t *testing.T, build Make) {
	s, l, ctx := start(t, build, 0)
	const events, keys = 600, 7
	for i := range uint64(events) {
		m := Message(10+3*i, s.Topics[i%2], fmt.Sprintf("key-%d", i%keys), fmt.Sprintf("%06d", i))
		require.NoError(t, Send(ctx, s.Sink, l, m))
	}
	require.NoError(t, s.Sink.Flush(ctx))
	require.Equal(t, events, l.Acks())
	require.Empty(t, l.Failures())

	last, n := map[string]string{}, 0
	for _, a := range s.Arrived(t) {
		at := a.Topic + "/" + string(a.Key)
		require.Less(t, last[at], string(a.Value), "order of %s", at)
		last[at] = string(a.Value)
		n++
	}
	require.Equal(t, events, n, "each arrives once where nothing fails")
}

func bytesAsSent(t *testing.T, build Make) {
	s, l, ctx := start(t, build, 0)
	sent := []*event.Message{
		Message(1, s.Topics[0], "text", `{"a": 1}`),
		Message(2, s.Topics[0], "binary", "\x00\xff\xfe\x80 \" \\ \n"),
		Message(3, s.Topics[0], "headers", "x"),
		Message(4, s.Topics[0], "tombstone", ""),
		Message(5, s.Topics[0], "empty value", ""),
		Message(6, s.Topics[0], "ключ", "значение"),
		Message(7, s.Topics[0], "", "no key"),
	}
	sent[2].Headers = []event.Header{{Name: "id", Value: []byte("42")}, {Name: "id", Value: []byte("43")}, {Name: "empty", Value: []byte{}}}
	sent[3].Value = nil
	sent[6].Key = nil
	for _, m := range sent {
		require.NoError(t, Send(ctx, s.Sink, l, m))
	}
	require.NoError(t, s.Sink.Flush(ctx))
	require.Equal(t, len(sent), l.Acks())

	byKey := map[string]Arrived{}
	for _, a := range s.Arrived(t) {
		byKey[string(a.Key)] = a
	}
	require.Len(t, byKey, len(sent))
	for _, m := range sent {
		a := byKey[string(m.Key)]
		require.Equal(t, m.Topic, a.Topic)
		require.Equal(t, m.Key == nil, a.Key == nil, "key of %s", m.ID)
		require.Equal(t, m.Value, a.Value, "value of %s", m.ID)
		require.Len(t, a.Headers, len(m.Headers))
		for i, h := range m.Headers {
			require.Equal(t, h.Name, a.Headers[i].Name)
			require.Equal(t, string(h.Value), string(a.Headers[i].Value))
		}
		require.True(t, m.Timestamp.Equal(a.Timestamp), "time of %s: %s and %s", m.ID, m.Timestamp, a.Timestamp)
	}
}

func flushes(t *testing.T, build Make) {
	s, l, ctx := start(t, build, 0)
	require.NoError(t, s.Sink.Flush(ctx), "nothing to wait for")
	unblock := s.Block(t)
	for i := range uint64(20) {
		require.NoError(t, Send(ctx, s.Sink, l, Message(i, s.Topics[0], "k", "v")))
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, s.Sink.Flush(short), context.Canceled)
	require.Equal(t, 20, l.Unanswered(), "the outside is blocked")
	unblock()
	require.NoError(t, s.Sink.Flush(ctx))
	require.Equal(t, 20, l.Acks())
}

func backpressure(t *testing.T, build Make) {
	const bound, size = 10_000, 1_000
	s, l, ctx := start(t, build, bound)
	unblock := s.Block(t)
	// The first is taken at once. Later ones get a short time each: one of them must not be taken, since nothing is acked.
	value := string(filler(size))
	require.NoError(t, Send(ctx, s.Sink, l, Message(0, s.Topics[0], "k", value)))
	taken := uint64(1)
	var err error
	for err == nil && taken <= 2*bound/size {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		if err = Send(short, s.Sink, l, Message(taken, s.Topics[0], "k", value)); err == nil {
			taken++
		}
		cancel()
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.LessOrEqual(t, taken, uint64(bound/size))
	unblock()
	require.NoError(t, s.Sink.Flush(ctx))
	require.Equal(t, int(taken), l.Acks())
	require.NoError(t, Send(ctx, s.Sink, l, Message(1000, s.Topics[0], "k", "again")))
	require.NoError(t, s.Sink.Flush(ctx))
	require.True(t, l.IsAcked(1000))
}

func closes(t *testing.T, build Make) {
	s, l, ctx := start(t, build, 0)
	unblock := s.Block(t)
	for i := range uint64(20) {
		require.NoError(t, Send(ctx, s.Sink, l, Message(i, s.Topics[0], "k", "v")))
	}
	closing := make(chan error, 1)
	go func() { closing <- s.Sink.Close() }() // ends with Close, which the test waits for
	select {
	case err := <-closing:
		require.NoError(t, err)
	case <-ctx.Done():
		require.Fail(t, "Close hangs")
	}
	l.Closed()
	unblock()
	require.Error(t, s.Sink.Send(ctx, Message(100, s.Topics[0], "k", "v")), "closed")
	require.Error(t, s.Sink.Flush(ctx), "closed")
}

func largeAlone(t *testing.T, build Make) {
	s, l, ctx := start(t, build, 1_000)
	for i := range uint64(5) {
		size := 10
		if i == 2 {
			size = 50_000
		}
		require.NoError(t, Send(ctx, s.Sink, l, Message(i, s.Topics[0], "k", string(filler(size)))))
	}
	require.NoError(t, s.Sink.Flush(ctx))
	require.Equal(t, 5, l.Acks())
}

func filler(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}
