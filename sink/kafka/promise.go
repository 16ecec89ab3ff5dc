package kafka

import (
	"fmt"

	"github.com/outtail/outtail/event"
)

// done is every record's promise. The client calls it from one goroutine at a time, and never under a lock of its own.
func (s *Sink) done(e *entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	t := e.t
	p := &t.parts[e.part]
	t.flying--
	p.flying--
	s.flying--
	switch {
	case e.state != flying: // told as failed meanwhile (the cluster changed)
	case err == nil:
		s.acked(e)
		if p.flying == 0 && len(p.queue) > 0 {
			if s.flying == 0 || s.gathers(t) {
				s.gather(t, p)
			} else {
				s.turn(t, p)
			}
		}
	default:
		s.broke(e, err)
	}
	if t.flying == 0 && !t.ready {
		t.kick() // a tender may wait for this
	}
	if s.flying == 0 {
		s.depart()
		s.notify()
	}
}

// acked passes an ack on and lets go of what is behind it. Call it with mu held.
func (s *Sink) acked(e *entry) {
	t := e.t
	e.state = acked
	s.acks++
	s.rebuilds = 0
	t.refusals = 0
	seq, first := e.seq, s.window.at(0) == e
	if len(s.conditions) > 0 {
		if first || !s.firstStalls {
			s.lower(conditionKafka)
		}
		if t.ready {
			s.lower(conditionTopic + t.name)
		}
	}
	if first {
		s.pass()
	}
	s.c.Acks.Acked(seq)
	if t.probing && !t.broken {
		if seq >= t.probeTo {
			t.probing = false
			t.turn.innocent()
		}
		s.release()
	}
	if !t.ready && !t.broken {
		t.kick() // it answers after all: look at once
	}
}

// pass lets go of what is answered at the head of the window. Call it with mu held.
func (s *Sink) pass() {
	for s.window.n > 0 && (s.window.at(0).state == acked || s.window.at(0).state == dropped) {
		s.bytes -= s.window.at(0).bytes
		s.window.pop()
	}
	s.notify()
}

// broke takes a record back that the client gave up. Call it with mu held.
func (s *Sink) broke(e *entry, err error) {
	t, alone := e.t, e.t.probing && !e.t.broken
	v := judge(err)
	large := tooLargeForBroker(err)
	if v == refusedRecord && alone {
		if large {
			t.turn.culprit(batchSize(e.m))
		}
		s.fail(e, recordRefused(e.m, err))
		return
	}
	if !t.broken {
		t.broken = true
		s.c.Logger.Warn("records were given back and will be sent again", "topic", t.name, "err", err)
	}
	p := &t.parts[e.part]
	if !p.broken || e.seq < p.lowest {
		p.broken, p.lowest = true, e.seq
	}
	if large {
		p.refused += batchSize(e.m)
	}
	s.fence(t)
	s.hold(e)
	switch v {
	case refusedRecord:
		t.probing, t.probeTo = true, max(t.probeTo, e.seq)
	case refusedTopic:
		if t.refusals == 0 || !s.conditions[conditionTopic+t.name] {
			s.raise(conditionTopic+t.name, s.c.appendRefused(t.name, err))
		}
		t.refused = true
	case recreatedTopic:
		s.rebuild(fmt.Sprintf("the broker does not know topic %s as it was: %v", t.name, err), nil)
	default:
		f := s.c.interruption(err)
		s.rebuild(f.Error(), f)
	}
	s.tendTo(t)
}

// fail reports a message as failed. Nothing of its topic, its aggregate or its key that was sent after it goes out any more:
// the pipeline halts, and what it read behind the failed event must not overtake it. Call it with mu held.
func (s *Sink) fail(e *entry, f *event.Fault) {
	e.state, e.fault = failed, f
	s.blocked.add(e.m)
	if t := e.t; t != nil && (!t.halted || e.seq < t.haltedAt) {
		t.halted, t.haltedAt = true, e.seq
	}
	if s.fault == nil {
		s.fault = f
	}
	s.c.Acks.Failed(e.seq, f)
	s.notify()
}

// repartition gives a topic another number of partitions. Nothing of it is flying. What is acked in the window keeps its ack:
// its partition of then is none of now. Call it with mu held.
func (s *Sink) repartition(t *topic, n int) {
	for i := range s.window.n {
		if e := s.window.at(i); e.t == t {
			e.part = -1
		}
	}
	t.parts = make([]part, n)
}

// rewind holds again everything of a partition from the lowest record that was given back on, taking acks back that came for
// later ones: the client acknowledges in order, but refuses some records before they are in it. Nothing of the topic is flying.
// Call it with mu held.
func (s *Sink) rewind(t *topic) {
	if !t.broken {
		return
	}
	for i := range s.window.n {
		e := s.window.at(i)
		if e.t != t || e.state != acked || e.part < 0 {
			continue
		}
		if p := &t.parts[e.part]; p.broken && e.seq > p.lowest {
			s.c.Acks.Reopened(e.seq)
			s.hold(e)
		}
	}
	for i := range t.parts {
		p := &t.parts[i]
		t.turn.suspect(p.refused)
		p.broken, p.refused = false, 0
	}
	t.broken = false
}
