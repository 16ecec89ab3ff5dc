package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/sink/sinktest"
	"github.com/outtail/outtail/test/harness"
)

var servers harness.Pool

// The engine's client keeps connections; what the sink starts has to end.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(runner(func() int { return servers.Run(m) }),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

type runner func() int

func (r runner) Run() int { return r() }

// patience bounds every wait of a test; only a defect uses it up.
const patience = 90 * time.Second

// rig is a sink on a fake cluster, with what it answers and tells.
type rig struct {
	*Sink
	t      *testing.T
	ctx    context.Context
	broker *kfake.Cluster
	ledger *sinktest.Ledger
	told   *told
}

// told keeps the conditions that stand, and all that ever stood.
type told struct {
	mu      sync.Mutex
	now     map[string]*event.Fault
	codes   []string
	unknown int
	changed chan struct{}
}

func newTold() *told { return &told{now: map[string]*event.Fault{}, changed: make(chan struct{})} }

func (c *told) condition(key string, f *event.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f == nil {
		delete(c.now, key)
	} else {
		c.now[key] = f
		c.codes = append(c.codes, f.Code)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *told) countUnknown(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unknown += n
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait blocks until ok holds of the conditions.
func (c *told) wait(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for {
		c.mu.Lock()
		done, changed := ok(), c.changed
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			require.Fail(t, "never told: "+what)
		}
	}
}

// code waits until a condition of this code stands.
func (r *rig) code(code string) (f *event.Fault) {
	r.t.Helper()
	r.told.wait(r.ctx, r.t, code, func() bool {
		for _, f = range r.told.now {
			if f.Code == code {
				return true
			}
		}
		return false
	})
	return f
}

// calmed waits until no condition stands.
func (r *rig) calmed() {
	r.t.Helper()
	r.told.wait(r.ctx, r.t, "all clear", func() bool { return len(r.told.now) == 0 })
}

func quick(s *Sink) {
	s.pace = pace{
		lookMin: 5 * time.Millisecond, lookMax: 40 * time.Millisecond, tick: 5 * time.Millisecond, stall: 100 * time.Millisecond, cluster: time.Hour, refresh: time.Hour, gather: gatherFor,
		metadata: 10 * time.Millisecond, retry: func(int) time.Duration { return 5 * time.Millisecond },
	}
}

func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// setUp makes and opens a sink whose pauses are short.
func setUp(t *testing.T, c *kfake.Cluster, change ...func(*Options)) *rig {
	t.Helper()
	return setUpPaced(t, c, func(*pace) {}, change...)
}

// setUpPaced is setUp with some pauses changed.
func setUpPaced(t *testing.T, c *kfake.Cluster, paced func(*pace), change ...func(*Options)) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, broker: c, ledger: sinktest.NewLedger(), told: newTold()}
	o := Options{
		Brokers: c.ListenAddrs(), Acks: r.ledger, Conditions: r.told.condition, Compression: "lz4",
		Observe: Observe{Unknown: r.told.countUnknown},
	}
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	require.NoError(t, err)
	quick(s)
	paced(&s.pace)
	r.Sink = s
	_, err = s.Open(ctx)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.Empty(t, r.ledger.Illegal())
	})
	return r
}

// send sends a message of one key, which is also its aggregate.
func (r *rig) send(seq uint64, topic, key string) {
	r.t.Helper()
	r.sendMessage(sinktest.Message(seq, topic, key, fmt.Sprintf("%06d", seq)))
}

func (r *rig) sendMessage(m *event.Message) {
	r.t.Helper()
	require.NoError(r.t, sinktest.Send(r.ctx, r.Sink, r.ledger, m))
}

func (r *rig) flush() {
	r.t.Helper()
	require.NoError(r.t, r.Flush(r.ctx))
}

// failure waits for the first Failed and gives it.
func (r *rig) failure() (uint64, *event.Fault) {
	r.t.Helper()
	require.NoError(r.t, r.ledger.Wait(r.ctx, func(l *sinktest.Ledger) bool { return len(l.Failures()) > 0 }))
	for seq, err := range r.ledger.Failures() {
		f := event.AsFault(err)
		require.NotNil(r.t, f)
		return seq, f
	}
	panic("unreachable")
}

// values gives what a topic holds, in order per partition.
func (r *rig) values(topics ...string) []string {
	r.t.Helper()
	var all []string
	for _, rec := range consume(r.t, r.broker.ListenAddrs(), topics...) {
		all = append(all, string(rec.Value))
	}
	return all
}

// consume reads topics from their beginnings to their ends.
func consume(t *testing.T, brokers []string, topics ...string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topics...), kgo.DisableClientMetrics(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(t, err)
	defer cl.Close()
	want := ends(ctx, t, cl, topics)
	var all []*kgo.Record
	for int64(len(all)) < want {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, ctx.Err())
		fetches.EachRecord(func(r *kgo.Record) { all = append(all, r) })
	}
	return all
}
