package pipeline

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// parker writes events into the dead-letter store, behind the back of the loop: many in one transaction, since they come in
// bursts. An event's slot is settled only when it is durable there, so the position cannot pass it before (I1), and what
// waits to be written is bounded by the window (I11).
type parker struct {
	p *Pipeline

	mu     sync.Mutex
	queue  []keeping
	sweeps []int64
	busy   bool // something is being written
	over   bool // nothing is written any more
	wake   chan struct{}
	idle   chan struct{} // closed and replaced when the queue is empty and nothing is being written; nil: nobody waits
}

func newParker(p *Pipeline) *parker { return &parker{p: p, wake: make(chan struct{}, 1)} }

// put queues what is to be kept. Any goroutine; it never blocks.
func (k *parker) put(jobs ...keeping) {
	k.mu.Lock()
	k.queue = append(k.queue, jobs...)
	k.mu.Unlock()
	k.kick()
}

// sweep queues entries that ended and whose rows will not be read again.
func (k *parker) sweep(orders []int64) {
	if len(orders) == 0 {
		return
	}
	k.mu.Lock()
	k.sweeps = append(k.sweeps, orders...)
	k.mu.Unlock()
	k.kick()
}

func (k *parker) kick() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// settled waits until everything that was queued is durable, or nothing more will be.
func (k *parker) settled(ctx context.Context) error {
	k.mu.Lock()
	if k.over || len(k.queue) == 0 && !k.busy {
		k.mu.Unlock()
		return nil
	}
	if k.idle == nil {
		k.idle = make(chan struct{})
	}
	idle := k.idle
	k.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run writes until ctx ends, or something cannot be written.
func (k *parker) run(ctx context.Context) {
	defer k.end()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		}
		k.mu.Lock()
		jobs, sweeps := k.queue, k.sweeps
		k.queue, k.sweeps, k.busy = nil, nil, true
		k.mu.Unlock()
		if len(jobs) > 0 && !k.write(ctx, jobs) {
			return
		}
		if len(sweeps) > 0 {
			if err := k.p.opts.DeadLetters.Sweep(ctx, k.p.opts.Name, sweeps); err != nil {
				k.p.log.Debug("sweeping the dead-letter store", "error", err) // they are swept at the next start
			}
		}
		k.mu.Lock()
		k.busy = false
		if len(k.queue) == 0 && k.idle != nil {
			close(k.idle)
			k.idle = nil
		}
		k.mu.Unlock()
	}
}

// end lets go who waits: what is still queued is read again by the next start.
func (k *parker) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	if k.idle != nil {
		close(k.idle)
		k.idle = nil
	}
}

// write makes jobs durable and settles them; false where the pipeline is over.
func (k *parker) write(ctx context.Context, jobs []keeping) bool {
	p := k.p
	ops := make([]event.Parking, 0, len(jobs))
	now := time.Now().UTC()
	for i := range jobs {
		switch j := &jobs[i]; {
		case j.lost:
		case j.moves:
			ops = append(ops, event.Parking{From: j.from, Order: j.order})
		default:
			e := p.entry(j, now)
			ops = append(ops, event.Parking{Entry: &e, Order: j.order})
		}
	}
	for wait := (backoff{first: 200 * time.Millisecond, most: 5 * time.Second}); len(ops) > 0; {
		err := p.opts.DeadLetters.Park(ctx, p.opts.Name, ops)
		if err == nil {
			p.Condition("dead letters", nil)
			break
		}
		if ctx.Err() != nil {
			return false
		}
		f := event.AsFault(err)
		if f == nil {
			f = faultUnclassified("park an event", err)
		}
		if f.Class != event.Retry && f.Class != event.Config && f.Class != event.Environment {
			p.fail(f, jobs[0].seq) // full, or damaged: the position stays in front of the event
			return false
		}
		p.Condition("dead letters", f)
		if sleep(ctx, wait.next()) != nil {
			return false
		}
	}
	// Before the slots are settled: what has passed belongs to its source again.
	for i := range jobs {
		if f := jobs[i].fault; f != nil {
			p.opts.Observer.Parked(p.opts.Name, f.Code, 1)
			p.log.Warn("parked", "code", f.Code, "place", placeOf(jobs[i].ev), "id", jobs[i].m.ID, "alone", jobs[i].alone, "text", f.Error(), "hint", parkedHint(f.Hint, p.opts.Name, jobs[i].m.ID, jobs[i].order))
		} else if !jobs[i].lost && !jobs[i].moves {
			p.opts.Observer.Parked(p.opts.Name, reasonBehind, 1)
		}
	}
	var sent []uint64
	for i := range jobs {
		if jobs[i].sent {
			sent = append(sent, jobs[i].seq)
		} else {
			p.w.settle(jobs[i].seq)
		}
	}
	if len(sent) > 0 {
		slices.Sort(sent)
		// What was numbered when these were chosen may be among them, and not be in the sink's hands yet: it would arrive alone then.
		p.handedOver()
		for _, seq := range p.opts.Sink.Discard(sent) {
			p.w.settle(seq)
		}
	}
	return true
}

// reasonBehind is the reason of events that are good in themselves.
const reasonBehind = "behind"

// entry is what the store keeps of an event.
func (p *Pipeline) entry(k *keeping, now time.Time) event.Parked {
	ev, m := k.ev, k.m
	e := event.Parked{
		Order: k.order, Tx: ev.Tx.ID, Index: ev.Index, Selection: p.selection(), Table: ev.Table, Source: ev.Tx.Source, Commit: ev.Tx.Commit,
		ID: m.ID, Aggregate: m.Aggregate, Topic: m.Topic, Key: m.Key, Behind: k.fault == nil, Alone: k.alone,
		ParkedAt: now, Row: &ev.Row,
	}
	if f := k.fault; f != nil {
		e.Code, e.Class, e.Text, e.Hint, e.Tries = f.Code, f.Class.String(), f.Text, f.Hint, 1
	}
	e.Size = entryOverhead + int64(len(e.Aggregate)+len(e.Topic)+2*len(e.Key)+len(e.ID)+len(e.Text)+len(e.Hint))
	for _, v := range ev.Row {
		e.Size += int64(len(v.Bytes))
	}
	return e
}

// entryOverhead is about what an entry takes besides what differs.
const entryOverhead = 512

func (p *Pipeline) selection() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return ""
	}
	return p.session.start.Selection
}

// poison applies the policy of an event that failed for its own sake, before it was sent or behind. It never blocks.
func (p *Pipeline) poison(seq uint64, m *event.Message, ev *event.Event, f *event.Fault, sent bool) {
	policy := m.OnPoison
	if policy != event.Halt && policy != event.Skip && p.opts.DeadLetters == nil {
		policy = event.Halt
	}
	if policy == event.Park && m.Aggregate == "" && m.Key == nil {
		p.fail(faultUnparkable(m.ID, placeOf(ev), f), seq)
		return
	}
	if policy != event.Halt && p.w.staleFailed(seq) {
		return
	}
	switch policy {
	case event.Skip:
		p.opts.Observer.Filtered(p.opts.Name, "skipped", 1)
		p.log.Warn("skipped", "code", f.Code, "place", placeOf(ev), "id", m.ID, "text", f.Error(), "hint", f.Hint)
		p.parker.put(keeping{seq: seq, sent: sent, lost: true, ev: ev, m: m})
	case event.Park, event.Alone:
		p.w.poisoned(seq, f, policy == event.Alone)
	default:
		p.fail(faultHalted(m.ID, placeOf(ev), f), seq)
	}
}
