package pipeline

import (
	"context"
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
	if err := p.w.admit(ctx, ev.Size); err != nil {
		return err
	}
	m.Partition = -1
	m.Commit, m.Size = ev.Tx.Commit, ev.Size
	decision, err := p.prepare(ev, m)
	if err != nil {
		return p.poison(ctx, ev, m, f, err)
	}
	sl := slot{size: ev.Size, tx: ev.Tx, index: ev.Index, flight: f}
	if decision == Drop {
		seq := p.w.add(sl)
		p.w.settle(seq)
		p.opts.Observer.Filtered(p.opts.Name, "dropped", 1)
		return nil
	}
	sl.topic, sl.sentAt = m.Topic, time.Now().UnixNano()
	m.Seq = p.w.add(sl)
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
	sent.add(p, m.Topic)
	return nil
}

func (p *Pipeline) prepare(ev *event.Event, m *event.Message) (Decision, error) {
	if ev.Err != nil {
		return Deliver, ev.Err
	}
	d, err := p.opts.Router.Route(ev, m)
	if err != nil || d == Drop {
		return d, err
	}
	return Deliver, p.opts.Transformer.Transform(ev, m)
}

// poison applies the policy halt to an event that cannot be delivered for its own sake: it takes its place in the order,
// unsettled, so that no position passes it, and the pipeline ends.
func (p *Pipeline) poison(ctx context.Context, ev *event.Event, m *event.Message, f *flight, err error) error {
	cause := event.AsFault(err)
	if cause == nil {
		cause = faultUnclassified("prepare an event", err)
	}
	seq := p.w.add(slot{size: ev.Size, tx: ev.Tx, index: ev.Index, flight: f})
	p.opts.Observer.SendError(p.opts.Name, cause.Class)
	if cause.Class == event.Record {
		cause = faultHalted(idOf(ev), placeOf(ev), cause)
	}
	p.fail(cause, seq)
	<-ctx.Done() // fail ends the context of reading
	return errFailed
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
