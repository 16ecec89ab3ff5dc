package pipeline

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff grows from first to most by doubling, each wait drawn between half and the whole of it, so that many
// connectors that lost one server do not come back in step. reset after success.
type backoff struct {
	first, most time.Duration
	n           int
}

func (b *backoff) reset() { b.n = 0 }

// next is the following wait.
func (b *backoff) next() time.Duration {
	d := b.most
	if b.n < 30 && b.first<<b.n < b.most {
		d = b.first << b.n
	}
	b.n++
	return d/2 + rand.N(d/2+1)
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
