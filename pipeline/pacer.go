package pipeline

import (
	"context"
	"sync"
	"time"
)

// pacer holds events to a rate: a token bucket, kept as the time at which it is full again. It holds a few milliseconds' worth, so
// that the flow is smooth and what was not used in a quiet hour does not come as a burst. Whether there is a token is asked
// before, and it is taken only when something was sent, so that what is filtered or parked costs none; two who ask at once may both
// go, and the next waits for both.
type pacer struct {
	every time.Duration // one token

	mu   sync.Mutex
	full time.Time
}

// paceDepth is what the bucket holds, as time: above the resolution of timers, below what anybody would call a burst.
const paceDepth = 10 * time.Millisecond

// newPacer makes one for so many events per second; nil, which holds nothing up, where rate is not above 0.
func newPacer(rate float64) *pacer {
	if rate <= 0 {
		return nil
	}
	return &pacer{every: max(1, time.Duration(float64(time.Second)/rate)), full: time.Now()}
}

// wait blocks until there is a token.
func (p *pacer) wait(ctx context.Context) error {
	if p == nil {
		return nil
	}
	for {
		p.mu.Lock()
		d := time.Until(p.full) - paceDepth
		p.mu.Unlock()
		if d <= 0 {
			return nil
		}
		if err := sleep(ctx, d); err != nil {
			return context.Cause(ctx)
		}
	}
}

// spend takes a token.
func (p *pacer) spend() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.full.Before(now) {
		p.full = now
	}
	p.full = p.full.Add(p.every)
}
