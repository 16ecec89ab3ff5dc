package pipeline

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// When positions are saved (design: pipeline). A bbolt commit is two fdatasyncs, so there is one committer per process,
// and one transaction takes along every pipeline that has something to save.
const (
	saveAfterEvents  = 4000
	saveAtMostEvery  = 10 * time.Millisecond
	saveWhenIdleFor  = 20 * time.Millisecond
	saveProgressEach = time.Second
)

// need is what decides when a pipeline is to be saved.
type need struct {
	acked    int       // events passed since the last save
	moved    bool      // a bound was reached without events
	inFlight int       // events in flight
	idleAt   time.Time // since when nothing is
	lastSave time.Time
}

// due is when to save; false where nothing is to be saved.
func (n need) due(interval time.Duration) (time.Time, bool) {
	var at time.Time
	earliest := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if n.acked > 0 {
		earliest(n.lastSave.Add(interval))
		if n.acked >= saveAfterEvents {
			earliest(n.lastSave)
		}
		if n.inFlight == 0 {
			earliest(n.idleAt.Add(saveWhenIdleFor))
		}
	}
	if n.moved {
		earliest(n.lastSave.Add(saveProgressEach))
	}
	if at.IsZero() {
		return at, false
	}
	if floor := n.lastSave.Add(saveAtMostEvery); at.Before(floor) {
		at = floor
	}
	return at, true
}

// Committer saves the positions of all pipelines of the process: after the broker's acks, before the source is told
// (I4). Run it once; it ends with its context.
type Committer struct {
	store    Store
	interval time.Duration
	log      *slog.Logger
	observer Observer
	wake     chan struct{}
	requests chan saveRequest

	mu        sync.Mutex
	pipelines []*Pipeline
}

type saveRequest struct {
	p    *Pipeline
	cp   *event.Checkpoint // nil: what the pipeline has reached
	done chan error
}

// NewCommitter makes the committer of a process. interval is checkpoint.interval.
func NewCommitter(store Store, interval time.Duration, log *slog.Logger, o Observer) *Committer {
	return &Committer{
		store: store, interval: interval, log: log, observer: o,
		wake: make(chan struct{}, 1), requests: make(chan saveRequest),
	}
}

func (c *Committer) register(p *Pipeline) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pipelines = append(c.pipelines, p)
}

func (c *Committer) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run saves until ctx ends. Pipelines save for the last time by themselves while draining, so ctx must outlive them.
func (c *Committer) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	retry := backoff{first: 200 * time.Millisecond, most: 5 * time.Second}
	var holdUntil time.Time
	for {
		now := time.Now()
		next := now.Add(time.Hour)
		var ready []*Pipeline
		for _, p := range c.snapshotPipelines() {
			if at, ok := p.need().due(c.interval); ok {
				if at.Before(holdUntil) {
					at = holdUntil
				}
				if !at.After(now) {
					ready = append(ready, p)
				} else if at.Before(next) {
					next = at
				}
			}
		}
		if len(ready) > 0 {
			if err := c.save(ctx, ready); err != nil {
				holdUntil = time.Now().Add(retry.next())
			} else {
				retry.reset()
			}
			continue
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.wake:
		case r := <-c.requests:
			if r.cp != nil {
				r.done <- c.write(ctx, map[*Pipeline]saving{r.p: {cp: *r.cp}})
			} else {
				r.done <- c.save(ctx, []*Pipeline{r.p})
			}
		}
	}
}

func (c *Committer) snapshotPipelines() []*Pipeline {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pipelines[:len(c.pipelines):len(c.pipelines)]
}

type saving struct {
	cp   event.Checkpoint
	s    *session
	base uint64 // the events before it are what cp stands behind
}

func (c *Committer) save(ctx context.Context, ps []*Pipeline) error {
	entries := make(map[*Pipeline]saving, len(ps))
	for _, p := range ps {
		if s, ok := p.snapshot(); ok {
			entries[p] = s
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return c.write(ctx, entries)
}

func (c *Committer) write(ctx context.Context, entries map[*Pipeline]saving) error {
	byName := make(map[string]event.Checkpoint, len(entries))
	for p, s := range entries {
		byName[p.opts.Name] = s.cp
	}
	start := time.Now()
	err := c.store.Save(ctx, byName)
	now := time.Now()
	for p, s := range entries {
		if err != nil {
			p.saveFailed(err)
			continue
		}
		c.observer.Saved(p.opts.Name, now.Sub(start), now)
		p.saved(s, now)
	}
	return err
}

// request saves now and waits for the result. cp nil saves what the pipeline has reached.
func (c *Committer) request(ctx context.Context, p *Pipeline, cp *event.Checkpoint) error {
	r := saveRequest{p: p, cp: cp, done: make(chan error, 1)}
	select {
	case c.requests <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
