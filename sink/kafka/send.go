package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/topicname"
)

// Send takes a message over. It blocks only while MaxBufferedBytes are unacked. The message must stay as it is until everything
// up to it is acked.
func (s *Sink) Send(ctx context.Context, m *event.Message) error {
	s.mu.Lock()
	for {
		if s.closed || s.client == nil {
			s.mu.Unlock()
			return closed()
		}
		if s.c.MaxBufferedBytes <= 0 || s.window.n == 0 || s.bytes+payload(m) <= s.c.MaxBufferedBytes {
			break
		}
		wait := s.watch()
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	e := s.entry(m)
	s.window.push(e)
	s.bytes += e.bytes
	s.place(e)
	return nil
}

// place decides what becomes of a message that was just sent: failed, held or flying. Call it with mu held.
func (s *Sink) place(e *entry) {
	m := e.m
	if s.over {
		s.foreign(e, s.fault)
		s.hold(e)
		return
	}
	t := s.topics[m.Topic]
	if t == nil {
		switch {
		case !topicname.Valid(m.Topic):
			s.fail(e, topicInvalid(m))
			return
		case !s.c.allowed(m.Topic):
			s.fail(e, topicNotAllowed(m))
			return
		}
		t = newTopic(m.Topic)
		s.topics[m.Topic] = t
	}
	e.t, e.looks = t, t.looks
	if !validHeaders(m.Headers) {
		s.fail(e, headerInvalid(m))
		return
	}
	if s.blocked.stops(m) || !s.open(e) || !s.fits(e) {
		s.hold(e)
		return
	}
	s.queue(e)
}

// open says whether the topic takes this message now, and has the topic looked up if nobody knows. Call it with mu held.
func (s *Sink) open(e *entry) bool {
	t := e.t
	if s.rebuilding || t.halted && e.seq > t.haltedAt {
		return false
	}
	if !t.ready {
		s.tendTo(t)
		return false
	}
	return !t.probing || t.flying == 0
}

// fits compares the message with what the topic takes. Where it does not fit, the topic is looked up again, since somebody may
// have changed it: what was sent before that lookup fails, what was sent after it waits for it. Call it with mu held; the topic
// is ready.
func (s *Sink) fits(e *entry) bool {
	t, m := e.t, e.m
	var f *event.Fault
	if n := batchSize(m); n > t.limit {
		f = s.c.tooLarge(m, n, t.limit)
	} else if int(m.Partition) >= len(t.parts) {
		f = partitionMissing(m, len(t.parts))
	}
	if f == nil {
		return true
	}
	if t.looks > e.looks {
		s.fail(e, f)
		return false
	}
	s.fence(t)
	s.tendTo(t)
	return false
}

// Fits says why a message would be refused, by what its topic takes now; nothing is sent. nil also where the cluster does not answer, or
// the topic is not there yet: what is sent waits then.
func (s *Sink) Fits(ctx context.Context, m *event.Message) error {
	switch {
	case !topicname.Valid(m.Topic):
		return topicInvalid(m)
	case !s.c.allowed(m.Topic):
		return topicNotAllowed(m)
	case !validHeaders(m.Headers):
		return headerInvalid(m)
	}
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if client == nil {
		return nil
	}
	topic, f := s.describe(ctx, client, m.Topic)
	if f != nil {
		return nil
	}
	if n := batchSize(m); n > topic.limit {
		return s.c.tooLarge(m, n, topic.limit)
	}
	if int(m.Partition) >= topic.partitions {
		return partitionMissing(m, topic.partitions)
	}
	return nil
}

// hold keeps a message in the sink, unless it has just failed. Call it with mu held.
func (s *Sink) hold(e *entry) {
	if e.state == failed {
		return
	}
	e.state = held
	s.waiting++
	s.blocked.add(e.m)
}

// queue gives a message its partition, and hands it over if it is the partition's turn: nothing is handed over while something
// of the partition is flying. The client fails all that is buffered for a partition and at once takes more, so what is handed
// over between a failure and its promise would overtake what failed (I3). Batches are what gathers while the last ones fly.
// While little is on its way, partitions go together, see convoy. Call it with mu held; the topic is open.
func (s *Sink) queue(e *entry) {
	t := e.t
	e.part = t.partition(e.m)
	p := &t.parts[e.part]
	gathers := p.flying == 0 && s.gathers(t)
	if p.flying == 0 && len(p.queue) == 0 && !gathers {
		s.hand(e)
		return
	}
	e.state = queued
	p.queue = append(p.queue, e)
	switch {
	case p.flying > 0:
	case !gathers:
		s.turn(t, p)
	case len(p.queue) == 1:
		s.gather(t, p)
	}
}

// turn hands over what waited for a partition's turn. Call it with mu held; the topic is open.
func (s *Sink) turn(t *topic, p *part) {
	if s.over || s.closed {
		return
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	n := t.turn.take(p.queue)
	for _, e := range p.queue[:n] {
		s.hand(e)
	}
	p.queue = slices.Delete(p.queue, 0, n)
}

// fence stops a topic: what waited for a turn waits for the topic now. Call it with mu held.
func (s *Sink) fence(t *topic) {
	t.ready = false
	for i := range t.parts {
		p := &t.parts[i]
		for j, e := range p.queue {
			p.queue[j] = nil
			s.hold(e)
		}
		p.queue = p.queue[:0]
	}
}

// hand gives a message to the client. Produce does not block: the client has no limits of its own, and its promises come from
// another goroutine. Call it with mu held.
func (s *Sink) hand(e *entry) {
	m, r := e.m, &e.record
	r.Topic, r.Key, r.Value, r.Timestamp = m.Topic, m.Key, m.Value, m.Timestamp
	r.Context, r.Partition = context.Background(), e.part
	r.Headers = r.Headers[:0]
	for i := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: m.Headers[i].Name, Value: m.Headers[i].Value})
	}
	e.state = flying
	e.t.flying++
	e.t.parts[e.part].flying++
	e.t.handed = true
	s.flying++
	s.client.Produce(context.Background(), r, e.promise)
}

// release hands out, in order, what waits and need not wait any longer. Call it with mu held.
func (s *Sink) release() {
	if s.over || s.rebuilding || s.waiting == 0 {
		return
	}
	s.blocked.reset()
	s.waiting = 0
	for i := range s.window.n {
		e := s.window.at(i)
		switch e.state {
		case failed:
			s.blocked.add(e.m)
		case held:
			if s.blocked.stops(e.m) || !s.open(e) || !s.fits(e) {
				s.hold(e)
				continue
			}
			s.queue(e)
		}
	}
}
