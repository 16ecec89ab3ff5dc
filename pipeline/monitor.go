package pipeline

import (
	"context"
	"time"
)

// monitor samples the gauges once a second.
func (p *Pipeline) monitor(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	o, name := p.opts.Observer, p.opts.Name
	var waits patience
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			p.takeBack()
			events, bytes, oldest := p.w.gauges()
			o.InFlight(name, events, bytes)
			var age time.Duration
			if !oldest.IsZero() {
				age = max(0, now.Sub(oldest))
			}
			o.OldestUnacked(name, age)
			if d := p.opts.DeadLetters; d != nil {
				var since time.Duration
				if at := d.Oldest(name); !at.IsZero() {
					since = max(0, now.Sub(at))
				}
				open := p.w.openParked()
				o.DeadLetters(name, open, since)
				if waits.over(since) {
					p.log.Warn("parked events wait for a person", "events", open, "oldest", since.Round(time.Second).String(),
						"hint", waitingHint(name))
				}
			}
			p.mu.Lock()
			open, last := p.session != nil, p.lastTx
			p.mu.Unlock()
			lag := Lag{Bytes: -1, RetainedBytes: -1, RetentionLeft: -1}
			if open {
				lag = p.opts.Source.Lag()
			}
			behind := age
			if events == 0 && lag.Bytes > 1<<20 && !last.IsZero() {
				behind = max(0, now.Sub(last))
			}
			o.Lag(name, behind.Seconds(), lag)
		}
	}
}

// patience says when it is time to speak again of parked events that wait: after an hour, then each time that their age has doubled,
// and every day. Pure.
type patience struct{ next time.Duration }

func (w *patience) over(age time.Duration) bool {
	if age < time.Hour {
		w.next = time.Hour
		return false
	}
	if age < w.next {
		return false
	}
	w.next = age + min(age, 24*time.Hour)
	return true
}
