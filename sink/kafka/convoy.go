package kafka

import "time"

// A broker answers the requests of a connection one after the other, so that partitions whose turns go one by one wait for each other: with
// six of them a record waits for up to five other requests in front of its own. While little is unacked, a partition that could go waits
// until nothing flies instead, and all that gathered goes in one request. Nothing waits longer than for the request in front of it, nor than
// gatherFor: a partition whose leader does not answer holds up no other one.
const (
	gatherFor = 2 * time.Millisecond
	// gatherMost and gatherBytes bound what is unacked for this: what drains a backlog has full batches, and wants many of them on their way.
	gatherMost  = 256
	gatherBytes = 256 << 10
)

// convoy is what gathers: partitions of which nothing flies and something is queued.
type convoy struct {
	seats []seat
	late  *time.Timer // departs without waiting any longer
}

type seat struct {
	t *topic
	p *part
}

// gathers says whether a partition of the topic of which nothing flies waits for what does. Call it with mu held.
func (s *Sink) gathers(t *topic) bool {
	return s.flying > 0 && s.window.n <= gatherMost && s.bytes <= gatherBytes && !t.probing
}

// gather lets a partition wait that has something queued. Call it with mu held.
func (s *Sink) gather(t *topic, p *part) {
	if len(s.convoy.seats) == 0 {
		s.convoy.late.Reset(s.pace.gather)
	}
	s.convoy.seats = append(s.convoy.seats, seat{t, p})
}

// depart hands over what gathered; what was fenced meanwhile is not queued any more. Call it with mu held.
func (s *Sink) depart() {
	for _, c := range s.convoy.seats {
		if c.p.flying == 0 && len(c.p.queue) > 0 {
			s.turn(c.t, c.p)
		}
	}
	clear(s.convoy.seats)
	s.convoy.seats = s.convoy.seats[:0]
}

func (s *Sink) departLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.depart()
}
