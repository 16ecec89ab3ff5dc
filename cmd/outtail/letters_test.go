package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/metrics"
	"github.com/outtail/outtail/pipeline"
)

// letterBox is a process that does not run, with a store and what stands beside its pipeline.
func letterBox(t *testing.T, log io.Writer, brokers, deadLetters string) (*process, config.Pipeline, *pipeline.Pipeline) {
	t.Helper()
	cfg, err := config.Parse("outtail.yaml", fmt.Appendf(nil, `
data_dir: %s
pipelines:
  - name: orders
    source: { postgres: { user: u, database: d, tables: [public.outbox], start: now } }
    routes: [{ topic: orders }]
    dead_letters: { %s }
    sink: { kafka: { brokers: [%s] } }
`, t.TempDir(), deadLetters, brokers), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	store, err := checkpoint.Open(checkpoint.Options{Dir: cfg.DataDir, Version: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	p := &process{cfg: cfg, store: store, observer: metrics.New(metrics.Options{Pipelines: []string{"orders"}}), log: slog.New(slog.NewTextHandler(log, nil)), stdout: io.Discard}
	p.committer = pipeline.NewCommitter(store, time.Second, p.log, p.observer)
	pl, err := p.build(cfg.Pipelines[0])
	require.NoError(t, err)
	return p, cfg.Pipelines[0], pl
}

func letter(order int64, age time.Duration, payload string) event.Parking {
	var row event.Row
	row[event.ID] = event.Value{Set: true, Bytes: fmt.Appendf(nil, "id-%d", order)}
	row[event.Payload] = event.Value{Set: true, Bytes: []byte(payload)}
	return event.Parking{Order: order, Entry: &event.Parked{
		Order: order, Tx: "0/1", Index: uint64(order), Source: "postgres/s/0/1", Table: "public.outbox", ID: fmt.Sprint("id-", order), Aggregate: "order\x007", Topic: "orders", Key: []byte("7"),
		Code: "OT5009", Class: "record", Text: "too large", Size: int64(len(payload)), ParkedAt: time.Now().Add(-age), Row: &row,
	}}
}

// The mirror with the client that it has: what its topic does not take goes without payload and does not stand in the way of others, and a topic
// that is not there is waited for.
func TestTheMirrorWithItsClient(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	p, pc, pl := letterBox(t, io.Discard, strings.Join(c.ListenAddrs(), ","), "mirror_topic: dead")
	letters := p.store.DeadLetters()
	require.NoError(t, letters.Park(t.Context(), "orders", []event.Parking{letter(0, 0, "a"), letter(1, 0, strings.Repeat("x", 2<<20)), letter(2, 0, "c")}))

	mirror, err := p.mirror(pc, pl)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); mirror(ctx) }()
	defer func() { cancel(); <-done }()
	codes := func() (all []string) {
		_, _, why := pl.State()
		for _, r := range why {
			all = append(all, r.Fault.Code)
		}
		return all
	}
	require.Eventually(t, func() bool { return strings.Contains(fmt.Sprint(codes()), "OT5004") }, 30*time.Second, 5*time.Millisecond)

	_, _, why := pl.State()
	require.NotContains(t, fmt.Sprint(why[0].Fault), "events wait", "copies do, and nothing else")

	require.NoError(t, c.CreateTopic("dead", 1, map[string]string{"max.message.bytes": "100000"}))
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("dead"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	got := map[string]string{}
	bare := ""
	for len(got) < 3 {
		fetches := client.PollFetches(t.Context())
		fetches.EachRecord(func(r *kgo.Record) {
			id := ""
			for _, h := range r.Headers {
				switch h.Key {
				case "dead_letter_id":
					id = string(h.Value)
				case "dead_letter_payload_left_out":
					bare = string(h.Value)
				}
			}
			got[id] = string(r.Value)
		})
	}
	require.Equal(t, map[string]string{"id-0": "a", "id-1": "", "id-2": "c"}, got)
	require.Equal(t, fmt.Sprint(2<<20), bare)
	require.Eventually(t, func() bool {
		n := 0
		require.NoError(t, letters.Each("orders", 0, func(e *event.Parked) error {
			if e.Mirrored && e.Ended == event.Open {
				n++
			}
			return nil
		}))
		return n == 3
	}, 30*time.Second, 5*time.Millisecond, "each is marked, and stays")
	require.NotContains(t, fmt.Sprint(codes()), "OT5004")
}

// What waits longer than the retention is left out, told and in the audit; what is younger stays, whatever waits in front of it.
func TestWhatIsOlderThanTheRetentionIsLeftOut(t *testing.T) {
	var log bytes.Buffer
	p, _, pl := letterBox(t, &log, "127.0.0.1:1", "retention: 1h")
	store := p.store.DeadLetters()
	require.NoError(t, store.Park(t.Context(), "orders", []event.Parking{letter(0, 2*time.Hour, "a"), letter(1, 59*time.Minute, "b"), letter(2, 61*time.Minute, "c")}))
	d := newDeadLetters(p.store, []*pipeline.Pipeline{pl})
	for range 2 { // the second time there is nothing to do, and nothing is said
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.expire(ctx, "orders", time.Hour, p.log) }()
		require.Eventually(t, func() bool { n, err := store.Open("orders"); return err == nil && n == 1 }, 30*time.Second, time.Millisecond)
		cancel()
		<-done
	}
	require.Equal(t, 1, strings.Count(log.String(), "left out for good"), log.String())
	require.Contains(t, log.String(), "events=2")
	page, err := d.list(t.Context(), deadPage{deadFilter: deadFilter{Pipeline: "orders"}})
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	require.Equal(t, "id-1", page.Entries[0].ID)
	acts, err := p.store.Audits()
	require.NoError(t, err)
	require.Len(t, acts, 2, "begun and done")
	require.Equal(t, checkpoint.ActionExpire, acts[1].Action)
	require.Equal(t, checkpoint.OutcomeDone, acts[1].Outcome)
	require.EqualValues(t, 2, acts[1].Counts["expired"])
	require.Equal(t, "outtail", acts[1].Operator)
}

// What waits behind nothing any more, since it was skipped, is told: by the skip, and by the list.
func TestWhatIsFreeToBeReplayedIsTold(t *testing.T) {
	p, _, pl := letterBox(t, io.Discard, "127.0.0.1:1", "retention: 0s")
	behind := func(order int64, aggregate string) event.Parking {
		l := letter(order, 0, "x")
		l.Entry.Aggregate, l.Entry.Key, l.Entry.Behind, l.Entry.Code = aggregate, []byte(aggregate), true, ""
		return l
	}
	bad := letter(3, 0, "x")
	bad.Entry.Aggregate, bad.Entry.Key = "order\x008", []byte("8")
	store := p.store.DeadLetters()
	require.NoError(t, store.Park(t.Context(), "orders", []event.Parking{letter(0, 0, "a"), behind(1, "order\x007"), behind(2, "order\x007"), bad, behind(4, "order\x008")}))
	all := deadFilter{Pipeline: "orders"}

	for name, d := range map[string]*deadLetters{"running": newDeadLetters(p.store, []*pipeline.Pipeline{pl}), "on the file": newDeadLetters(p.store, nil)} {
		free, err := d.free(t.Context(), all)
		require.NoError(t, err)
		require.Empty(t, free.Numbers, name)
		_, err = d.skip(t.Context(), deadAct{deadFilter: deadFilter{Pipeline: "orders", ID: "none"}})
		require.Equal(t, "OT0025", event.AsFault(err).Code)
	}
	running := newDeadLetters(p.store, []*pipeline.Pipeline{pl})
	_, err := running.replay(t.Context(), deadAct{deadFilter: deadFilter{Pipeline: "orders", Code: "OT6101"}})
	require.Equal(t, "OT0025", event.AsFault(err).Code)
	acts, err := p.store.Audits()
	require.NoError(t, err)
	require.Empty(t, acts, "nothing was picked, nothing was done")

	a, err := running.skip(t.Context(), deadAct{deadFilter: deadFilter{Pipeline: "orders", ID: "id-0"}})
	require.NoError(t, err)
	require.Equal(t, deadSkipped{Skipped: 1, Waiting: []deadWaiting{{Aggregate: "order/7", Events: 2}}}, a)
	free, err := running.free(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, free.Numbers, "the second waits behind the first, and that of order 8 behind one that is refused")
	a, err = newDeadLetters(p.store, nil).skip(t.Context(), deadAct{deadFilter: deadFilter{Pipeline: "orders", ID: "id-4"}})
	require.NoError(t, err)
	require.Equal(t, deadSkipped{Skipped: 1}, a, "its aggregate waits behind what it waited behind before")
	a, err = running.skip(t.Context(), deadAct{deadFilter: all})
	require.NoError(t, err)
	require.Equal(t, deadSkipped{Skipped: 3}, a)
	a, err = running.skip(t.Context(), deadAct{deadFilter: all})
	require.NoError(t, err, "all of nothing is no mistake")
	require.Zero(t, a)
}
