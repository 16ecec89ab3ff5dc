package kafka

import "slices"

// Discard takes back what failed, and what is held or queued behind it, because it is kept elsewhere now, and gives the numbers
// of what it let go of: nothing is answered for these any more. What is flying or acked stays what it is. seqs ascend.
func (s *Sink) Discard(seqs []uint64) (gone []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.over {
		return nil
	}
	for i := range s.window.n {
		e := s.window.at(i)
		if _, ok := slices.BinarySearch(seqs, e.seq); !ok {
			continue
		}
		switch e.state {
		case held:
			s.waiting--
		case queued:
			p := &e.t.parts[e.part]
			p.queue = slices.DeleteFunc(p.queue, func(q *entry) bool { return q == e })
		case failed:
		default:
			continue
		}
		e.state = dropped
		gone = append(gone, e.seq)
	}
	if len(gone) == 0 {
		return nil
	}
	s.forget()
	s.rehalt()
	s.pass()
	// What waited behind them need not wait any longer. release looks at all that is held only while something is.
	s.waiting = max(s.waiting, 1)
	s.release()
	return gone
}

// forget lets go of topics that were never found and that nothing waits for any more, since a replay to a mistyped one was ended, say: nobody
// looks them up, and they are no reason to be degraded. Call it with mu held.
func (s *Sink) forget() {
	wanted := map[*topic]bool{}
	for i := range s.window.n {
		if e := s.window.at(i); e.state != dropped {
			wanted[e.t] = true
		}
	}
	for name, t := range s.topics {
		if t.looks == 0 && !wanted[t] {
			delete(s.topics, name)
			s.lower(conditionTopic + name)
			t.kick()
		}
	}
}

// rehalt finds what is still failed: topics are halted behind that, and behind nothing else. Call it with mu held.
func (s *Sink) rehalt() {
	for _, t := range s.topics {
		t.halted = false
	}
	s.fault = nil
	for i := range s.window.n {
		e := s.window.at(i)
		if e.state != failed {
			continue
		}
		if s.fault == nil {
			s.fault = e.fault
		}
		if t := e.t; t != nil && (!t.halted || e.seq < t.haltedAt) {
			t.halted, t.haltedAt = true, e.seq
		}
	}
}
