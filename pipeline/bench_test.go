package pipeline

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/outtail/outtail/event"
)

// ackingSink acks at once: what is measured is the loop.
type ackingSink struct {
	fakeSink
	acks Acks
}

func (s *ackingSink) Send(_ context.Context, m *event.Message) error {
	s.acks.Acked(m.Seq)
	return nil
}

// benchRoute gives each event the aggregate and the key of its row.
type benchRoute struct{}

func (benchRoute) Route(ev *event.Event, m *event.Message) (Decision, error) {
	m.Topic, m.Key, m.OnPoison = "orders", ev.Row[event.Key].Bytes, event.Park
	m.Aggregate = string(ev.Row[event.AggregateID].Bytes)
	return Deliver, nil
}

func (benchRoute) Transform(ev *event.Event, m *event.Message) error {
	m.Value = ev.Row[event.Payload].Bytes
	return nil
}

const benchBatch = 512

func benchPipeline(rate float64, parked int) (*Pipeline, *event.Batch) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	sink := &ackingSink{}
	p := New(Options{
		Name: "p", Source: &fakeSource{log: newLog()}, Sink: sink, Router: benchRoute{}, Transformer: benchRoute{}, Observer: nothing{}, Log: log, DeadLetters: newDead(),
		Committer: NewCommitter(&fakeStore{}, time.Hour, log, nothing{}), InFlightEvents: 4096, InFlightBytes: 32 << 20, MaxRate: rate,
	})
	sink.acks = p
	for i := range parked {
		name := fmt.Sprint("parked-", i)
		p.w.parked.load(&event.Parked{Order: int64(i), Tx: "0", Index: uint64(i), Aggregate: name, Topic: "orders", Key: []byte(name)}, true)
	}
	b := &event.Batch{Release: func() {}}
	tx := &event.Tx{ID: "1", Source: "fake/1", Commit: time.Now()}
	for i := range benchBatch {
		ev := event.Event{Tx: tx, Index: uint64(i), Size: 400}
		name := fmt.Appendf(nil, "order-%d", i)
		ev.Row[event.AggregateID] = event.Value{Set: true, Bytes: name}
		ev.Row[event.Key] = event.Value{Set: true, Bytes: name}
		ev.Row[event.Payload] = event.Value{Set: true, Bytes: make([]byte, 200)}
		b.Events = append(b.Events, ev)
	}
	return p, b
}

// deliverPlainly is deliver as it would be if nothing could ever be parked, replayed, or held to a rate: what these cost is the
// difference.
func (p *Pipeline) deliverPlainly(ctx context.Context, b *event.Batch) error {
	f := &flight{release: b.Release}
	defer p.w.close(f)
	p.opts.Observer.Read(p.opts.Name, len(b.Events))
	messages := make([]event.Message, len(b.Events))
	var sent runLength
	defer func() { sent.flush(p) }()
	for i := range b.Events {
		ev, m := &b.Events[i], &messages[i]
		if err := p.w.admit(ctx, ev.Size); err != nil {
			return err
		}
		m.Partition, m.Commit, m.Size = -1, ev.Tx.Commit, ev.Size
		if _, err := p.prepare(ev, m); err != nil {
			return err
		}
		m.ID = idOf(ev)
		p.w.mu.Lock()
		m.Seq = p.w.number(slot{size: ev.Size, tx: ev.Tx, index: ev.Index, flight: f, ev: ev, m: m, topic: m.Topic, sentAt: time.Now().UnixNano()})
		p.w.mu.Unlock()
		if err := p.opts.Sink.Send(ctx, m); err != nil {
			return err
		}
		sent.add(p, m.Topic)
	}
	return nil
}

// loopArms are the ways of an event through the loop that are compared, with a sink that costs nothing: what is parked, and a limit that
// is not reached, against a loop that knows of neither.
var loopArms = []struct {
	name   string
	parked int
	rate   float64
	plain  bool
}{
	{name: "plain", plain: true},
	{name: "nothing-parked"},
	{name: "10000-parked", parked: 10_000},
	{name: "rate-not-reached", rate: 1e9},
}

// compareLoops runs the arms in turn, a batch each, and gives what an event costs in each: the lower quartile of the batches, which leaves out
// those in which the machine did something else.
func compareLoops(t testing.TB, rounds int) []float64 {
	took := make([][]time.Duration, len(loopArms))
	deliver := make([]func(context.Context, *event.Batch) error, len(loopArms))
	batches := make([]*event.Batch, len(loopArms))
	for i, arm := range loopArms {
		var p *Pipeline
		p, batches[i] = benchPipeline(arm.rate, arm.parked)
		if deliver[i] = p.deliver; arm.plain {
			deliver[i] = p.deliverPlainly
		}
	}
	for range rounds {
		for i := range loopArms {
			began := time.Now()
			if err := deliver[i](t.Context(), batches[i]); err != nil {
				t.Fatal(err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	costs := make([]float64, len(loopArms))
	for i := range took {
		slices.Sort(took[i])
		costs[i] = float64(took[i][len(took[i])/4].Nanoseconds()) / benchBatch
	}
	return costs
}

func BenchmarkLoop(b *testing.B) {
	costs := compareLoops(b, max(b.N, 100))
	for i, arm := range loopArms {
		b.ReportMetric(costs[i], arm.name+"-ns/event")
		b.ReportMetric(costs[i]/costs[0], arm.name+"/plain")
	}
}

// A drain keeps its rate whatever is parked: the limit is far above what is measured (docs/PERFORMANCE.md) and far below what a search
// through what is parked would cost.
func TestParkedAggregatesDoNotSlowOthersDown(t *testing.T) {
	costs := compareLoops(t, 100)
	for i, arm := range loopArms {
		t.Logf("%s: %.0f ns an event, %.2f of plain", arm.name, costs[i], costs[i]/costs[0])
		if costs[i] > 2*costs[0]+500 {
			t.Errorf("%s: %.0f ns an event, %.0f without any of it", arm.name, costs[i], costs[0])
		}
	}
}
