package pipeline

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// loop is the one goroutine that reads, routes, transforms and hands to the sink, so that order needs no thought (I3).
// It ends with the source's error, or the cause of ctx.
func (p *Pipeline) loop(ctx context.Context, s *session) error {
	for {
		b, err := p.opts.Source.Read(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		if err := p.deliver(ctx, b); err != nil {
			return err
		}
	}
}

// deliver takes a batch event by event: admission is per event, never per batch or transaction (I11), and a bound is
// placed as soon as the events before it are in.
func (p *Pipeline) deliver(ctx context.Context, b *event.Batch) error {
	f := &flight{release: b.Release}
	defer p.w.close(f)
	if n := len(b.Events); n > 0 {
		p.opts.Observer.Read(p.opts.Name, n)
		p.mu.Lock()
		p.lastTx = b.Events[n-1].Tx.Commit
		p.mu.Unlock()
	}
	messages := make([]event.Message, len(b.Events))
	bounds := b.Bounds
	var sent runLength
	defer func() { sent.flush(p) }()
	for i := range b.Events {
		for len(bounds) > 0 && bounds[0].After <= i {
			p.w.bound(bounds[0].At)
			bounds = bounds[1:]
		}
		if err := p.one(ctx, &b.Events[i], &messages[i], f, &sent); err != nil {
			return err
		}
	}
	for _, bd := range bounds {
		p.w.bound(bd.At)
	}
	return nil
}

// one takes one event through routing and transformation into the window and the sink.
func (p *Pipeline) one(ctx context.Context, ev *event.Event, m *event.Message, f *flight, sent *runLength) error {
	if err := p.rate.wait(ctx); err != nil {
		return err
	}
	if err := p.w.admit(ctx, ev.Size); err != nil {
		return err
	}
	if err := p.lockSending(ctx, ev); err != nil {
		return err
	}
	defer p.sending.Unlock()
	m.Partition = -1
	m.Commit, m.Size = ev.Tx.Commit, ev.Size
	decision, err := p.prepare(ev, m)
	if m.OnPoison != event.Halt {
		m.ID = cmp.Or(m.ID, idOf(ev))
	}
	sl := slot{size: ev.Size, tx: ev.Tx, index: ev.Index, flight: f, ev: ev, m: m}
	if err == nil && decision == Drop {
		if seq, moves := p.w.leaveOut(sl); !moves {
			p.w.settle(seq)
		}
		p.opts.Observer.Filtered(p.opts.Name, "dropped", 1)
		return nil
	}
	if err == nil {
		sl.topic, sl.sentAt = m.Topic, time.Now().UnixNano()
	}
	seq, verdict, known := p.w.enter(sl)
	m.Seq = seq
	switch verdict {
	case behind:
		return nil // the parker settles it
	case keptBefore:
		p.w.settle(seq)
		return nil
	case endedBefore:
		if known.ended == event.Skipped {
			p.w.settle(seq)
			p.opts.Observer.Filtered(p.opts.Name, "skipped", 1)
			return nil
		}
		// It was replayed, and is sent again in its place in the form that was accepted.
		err = p.asAccepted(known.order, ev, m, err)
	}
	if err != nil {
		return p.unprepared(ctx, seq, ev, m, err)
	}
	if err := p.opts.Sink.Send(ctx, m); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		fault := event.AsFault(err)
		if fault == nil {
			fault = faultUnclassified("send", err)
		}
		p.fail(fault, m.Seq)
		return errFailed
	}
	p.rate.spend()
	sent.add(p, m.Topic)
	return nil
}

// lockSending takes the turn to hand something to the sink. It is uncontended but for replays, which may shut the loop out for
// as long as they empty a queue, and keep it waiting in front of the row of what they have handed over.
func (p *Pipeline) lockSending(ctx context.Context, ev *event.Event) error {
	for {
		p.sending.Lock()
		var wait <-chan struct{}
		if shut := p.shut.Load(); shut != nil {
			wait = *shut
		} else if wait = p.w.leaving(ev); wait == nil {
			return nil
		}
		p.sending.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// shutLoop keeps the loop from handing anything to the sink until open is called.
func (p *Pipeline) shutLoop() (open func()) {
	shut := make(chan struct{})
	p.shut.Store(&shut)
	p.handedOver()
	return sync.OnceFunc(func() {
		p.shut.Store(nil)
		close(shut)
	})
}

// handedOver waits until what somebody has begun to hand to the sink is in its hands.
func (p *Pipeline) handedOver() {
	p.sending.Lock()
	p.sending.Unlock() //nolint:staticcheck // SA2001: nothing is to be done in between
}

// prepare routes and transforms. Where the row itself is damaged it is routed all the same, as far as it can be read, so that
// its aggregate and its policy are known.
func (p *Pipeline) prepare(ev *event.Event, m *event.Message) (Decision, error) {
	d, err := p.opts.Router.Route(ev, m)
	if ev.Err != nil {
		if !p.wholeAggregate(ev) {
			m.Aggregate, m.Key = "", nil
		}
		return Deliver, ev.Err
	}
	if err != nil || d == Drop {
		return d, err
	}
	return Deliver, p.opts.Transformer.Transform(ev, m)
}

// wholeAggregate says whether what names the aggregate of a damaged row could be read.
func (p *Pipeline) wholeAggregate(ev *event.Event) bool {
	for _, role := range []event.Role{event.AggregateType, event.AggregateID, event.Key} {
		if p.opts.Columns[role].Mapped() && !ev.Row[role].Set {
			return false
		}
	}
	return true
}

// unprepared deals with an event that cannot become a message: its slot stands, unsettled, until its policy was applied. Where
// that is to halt, nothing is read behind it.
func (p *Pipeline) unprepared(ctx context.Context, seq uint64, ev *event.Event, m *event.Message, err error) error {
	cause := event.AsFault(err)
	if cause == nil {
		cause = faultUnclassified("prepare an event", err)
	}
	p.opts.Observer.SendError(p.opts.Name, cause.Class)
	if cause.Class != event.Record {
		p.fail(cause, seq)
	} else {
		p.poison(seq, m, ev, cause, false)
	}
	if p.failed() != nil {
		<-ctx.Done() // fail ends the context of reading
		return errFailed
	}
	return nil
}

// idOf is the event's id for messages to operators, "" where it is not known.
func idOf(ev *event.Event) string {
	if v := ev.Row[event.ID]; v.Present() && len(v.Bytes) <= 128 {
		return string(v.Bytes)
	}
	return ""
}

// placeOf is where the event was read, in the form of the source header.
func placeOf(ev *event.Event) string { return string(event.AppendPlace(nil, ev)) }

// runLength counts messages of one topic in a row, so that the observer is called once per run and not per message.
type runLength struct {
	topic string
	n     int
}

func (r *runLength) add(p *Pipeline, topic string) {
	if topic != r.topic && r.n > 0 {
		r.flush(p)
	}
	r.topic = topic
	r.n++
}

func (r *runLength) flush(p *Pipeline) {
	if r.n > 0 {
		p.opts.Observer.Sent(p.opts.Name, r.topic, r.n)
		r.n = 0
	}
}
