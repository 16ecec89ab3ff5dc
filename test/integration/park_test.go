package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// parkLot is a scene whose events have aggregates of their own, and are known by "aggregate:number".
type parkLot struct {
	*scene.Scene
	t    *testing.T
	next map[string]int
	seen map[string][]string
	in   *kgo.Client
}

func newParkLot(t *testing.T, db shop.Database) *parkLot {
	s := scene.New(t, &servers, db)
	s.Configure("Poison", "park", "NoRoute", "park", "Match", "match: { event_type: order.* }, ")
	return &parkLot{
		Scene: s, t: t, next: map[string]int{}, seen: map[string][]string{},
		in: s.Kafka.Client(t, kgo.ConsumeTopics(s.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond)),
	}
}

// write commits one event of an aggregate; its payload has so many bytes more.
func (l *parkLot) write(aggregate, eventType string, more int) {
	l.t.Helper()
	tx, err := l.DB.Begin(l.t.Context())
	require.NoError(l.t, err)
	require.NoError(l.t, tx.Exec(l.t.Context(), "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES (?, 'order', ?, ?, ?)",
		scene.NewUUID(), aggregate, eventType, fmt.Sprintf(`{"n": "%s:%d", "more": "%s"}`, aggregate, l.next[aggregate], strings.Repeat("0", max(1, more)))))
	require.NoError(l.t, tx.Commit(l.t.Context()))
	l.next[aggregate]++
}

// holds waits until the topic has so many events of each aggregate named.
func (l *parkLot) holds(p *harness.Process, want map[string]int) {
	l.t.Helper()
	p.Until(l.t, fmt.Sprint("in the topic: ", want), func() bool {
		for _, r := range l.in.PollRecords(l.t.Context(), 100).Records() {
			var v struct{ N string }
			require.NoError(l.t, json.Unmarshal(r.Value, &v))
			l.seen[string(r.Key)] = append(l.seen[string(r.Key)], v.N)
		}
		for k, n := range want {
			if len(l.seen[k]) < n {
				return false
			}
		}
		return true
	})
}

type parkedEvent struct {
	ID, Aggregate, Topic, Code, Class, Place string
	Behind                                   bool
	Tries                                    int
	Number                                   int64
}

func (l *parkLot) parked(args ...string) (all []parkedEvent) {
	l.t.Helper()
	r := l.Outtail.Run(l.t, append([]string{"dlq", "list", "-c", l.Outtail.Config, "--json"}, args...)...)
	require.Equal(l.t, 0, r.Code, r.Stderr)
	require.NoError(l.t, json.Unmarshal([]byte(r.Stdout), &all), r.Stdout)
	return all
}

func (l *parkLot) dlq(exit int, args ...string) harness.Result {
	l.t.Helper()
	r := l.Outtail.Run(l.t, append([]string{"dlq", args[0], "-c", l.Outtail.Config}, args[1:]...)...)
	require.Equal(l.t, exit, r.Code, r.Stderr)
	return r
}

// One bad event stops neither the others nor the process, its aggregate keeps its order through a crash, and a person mends,
// tries with one, and replays.
func TestAPoisonedAggregateWaitsWhileOthersFlow(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		l := newParkLot(t, db)
		p := l.Start()
		l.write("a", "order.created", 0)
		l.write("a", "payment.made", 0) // no route
		l.write("a", "order.changed", 0)
		l.write("b", "order.created", 0)
		l.holds(p, map[string]int{"a": 1, "b": 1})
		p.Until(t, "two parked", func() bool { return l.Outtail.Metric(t, "outtail_events_parked_total") == 2 })
		require.Equal(t, 1.0, l.Outtail.Metric(t, "outtail_events_parked_total", `reason="OT6101"`))
		require.Equal(t, 1.0, l.Outtail.Metric(t, "outtail_events_parked_total", `reason="behind"`))
		p.Until(t, "two parked", func() bool { return l.Outtail.Metric(t, "outtail_parked_events") == 2 })
		all := l.parked()
		require.Len(t, all, 2)
		require.Equal(t, "OT6101", all[0].Code)
		require.Equal(t, "order/a", all[0].Aggregate)
		require.True(t, all[1].Behind)
		require.Equal(t, l.Topic, all[1].Topic)

		// A crash, and more of both; and the position has passed what is parked.
		p.Kill(t)
		require.Len(t, l.parked(), 2, "the file answers as well")
		l.write("a", "order.paid", 0)
		l.write("b", "order.paid", 0)
		p = l.Start()
		l.holds(p, map[string]int{"b": 2})
		p.Until(t, "three parked", func() bool { return len(l.parked()) == 3 })
		require.Len(t, l.seen["a"], 1)
		l.Stop(p)
		var state struct{ Pipelines []struct{ Parked int } }
		l.Outtail.CheckpointJSON(t, &state)
		require.Equal(t, 3, state.Pipelines[0].Parked)

		// Not mended: refused again, and nothing overtakes.
		p = l.Start()
		r := l.dlq(1, "replay", "--all", "--reason", "try")
		require.Contains(t, r.Stderr, "OT6101")
		require.Contains(t, r.Stdout, "1 refused")
		require.Len(t, l.parked(), 3)
		l.Stop(p)

		l.Configure("Match", "")
		p = l.Start()
		r = l.dlq(0, "replay", "--all", "--canary", "1", "--reason", "route added")
		require.Contains(t, r.Stdout, "1 delivered")
		require.Len(t, l.parked(), 2)
		l.dlq(0, "replay", "--aggregate", "order/a", "--rate", "1000", "--reason", "route added")
		require.Empty(t, l.parked())
		l.write("a", "order.shipped", 0)
		l.holds(p, map[string]int{"a": 5})
		require.Equal(t, []string{"a:0", "a:1", "a:2", "a:3", "a:4"}, l.seen["a"])
		require.Equal(t, 2.0+1, l.Outtail.Metric(t, "outtail_replay_events_total", `result="acked"`))
		l.Stop(p)

		audit := l.Outtail.Run(t, "audit", "-c", l.Outtail.Config, "--json")
		require.Equal(t, 0, audit.Code, audit.Stderr)
		var acts []struct {
			Action, Reason, Operator, Detail, Pipeline, Outcome string
			Range                                               struct{ Picked struct{ Aggregate string } }
			Counts                                              map[string]int
		}
		require.NoError(t, json.Unmarshal([]byte(audit.Stdout), &acts))
		require.Len(t, acts, 6, "each of three replays began and ended")
		require.Equal(t, "begun", acts[4].Outcome)
		require.Equal(t, "dlq replay", acts[5].Action)
		require.Equal(t, "done", acts[5].Outcome)
		require.Equal(t, "order/a", acts[5].Range.Picked.Aggregate)
		require.Equal(t, map[string]int{"delivered": 2, "behind": 0, "refused": 0, "waiting": 0}, acts[5].Counts)
	})
}

// A topic that takes less than the event: the client gives a whole batch back, and only the culprit's aggregate waits.
func TestAnEventThatTheTopicRefusesLateIsParked(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		l := newParkLot(t, db)
		l.Kafka.CreateTopic(t, l.Topic+"-small", 1, map[string]string{"max.message.bytes": "2000"})
		p := l.Start()
		l.write("a", "order.created", 0)
		l.holds(p, map[string]int{"a": 1})
		l.Stop(p)
		l.Configure("Topic", l.Topic+"-small")
		l.in.AddConsumeTopics(l.Topic + "-small")
		for i := range 20 {
			more := 0
			if i == 7 {
				more = 4000
			}
			l.write(string("ab"[i%2]), "order.changed", more)
		}
		p = l.Start()
		l.holds(p, map[string]int{"a": 11})
		p.Until(t, "the rest of b is parked", func() bool { return l.Outtail.Metric(t, "outtail_events_parked_total") == 7 })
		require.Equal(t, []string{"b:0", "b:1", "b:2"}, l.seen["b"])
		all := l.parked("--code", "OT5009")
		require.Len(t, all, 1)

		// The payload is edited: by name only, with both hashes in the audit.
		small := filepath.Join(t.TempDir(), "payload.json")
		require.NoError(t, os.WriteFile(small, []byte(`{"n": "b:3"}`), 0o600))
		only := l.dlq(2, "replay", "--all", "--edit", small, "--reason", "one only").Stderr
		require.Contains(t, only, fmt.Sprintf("--id %s --number %d", all[0].ID, all[0].Number))
		for text, want := range map[string]string{
			`{"n": "` + strings.Repeat("x", 3000) + `"}`: "OT5009",
			`{"n": "b:3"`: "it is broken at byte 11, line 1",
		} {
			bad := filepath.Join(t.TempDir(), "bad.json")
			require.NoError(t, os.WriteFile(bad, []byte(text), 0o600))
			refused := l.dlq(2, "replay", "--id", all[0].ID, "--edit", bad, "--reason", "no use").Stderr
			require.Contains(t, refused, "OT0026")
			require.Contains(t, refused, want)
		}
		require.Len(t, l.parked(), 7, "nothing was sent")
		l.dlq(0, "replay", "--number", fmt.Sprint(all[0].Number), "--edit", small, "--reason", "shortened")
		l.holds(p, map[string]int{"b": 10})
		for i, n := range l.seen["b"] {
			require.Equal(t, fmt.Sprint("b:", i), n)
		}
		require.Empty(t, l.parked())
		l.Stop(p)
	})
}

func TestSkippingWithoutARunningProcess(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		l := newParkLot(t, db)
		p := l.Start()
		l.write("a", "payment.made", 0)
		l.write("a", "order.changed", 0)
		p.Until(t, "two parked", func() bool { return l.Outtail.Metric(t, "outtail_events_parked_total") == 2 })
		id := l.parked()[0].ID
		behind := l.dlq(1, "replay", "--id", l.parked()[1].ID, "--reason", "the second first")
		require.Contains(t, behind.Stdout, "behind event "+id)
		require.Contains(t, behind.Stderr, "OT0031")
		show := l.dlq(0, "show", "--id", id)
		require.Contains(t, show.Stdout, "add a route that matches it", "what to do about it")
		require.NotContains(t, show.Stdout, "a:0", "no payload unless it is asked for")
		require.Contains(t, l.dlq(0, "show", "--id", id, "--payload").Stdout, "a:0")
		p.Kill(t)
		l.dlq(2, "skip", "--reason", "nothing picked out")
		refused := l.dlq(2, "skip", "--id", "none", "--reason", "not there").Stderr
		require.Contains(t, refused, "OT0025")
		said := l.dlq(0, "skip", "--id", id, "--reason", "test event").Stdout
		require.Contains(t, said, "1 skipped")
		require.Contains(t, said, "1 event of order/a still waits")
		require.Contains(t, l.dlq(0, "list").Stdout, "free to be replayed")
		l.dlq(2, "replay", "--all", "--reason", "nobody runs")
		require.Len(t, l.parked(), 1)
		p = l.Start()
		l.dlq(0, "replay", "--all", "--reason", "the rest")
		l.write("a", "order.paid", 0)
		l.holds(p, map[string]int{"a": 2})
		require.Equal(t, []string{"a:1", "a:2"}, l.seen["a"])

		// To a topic that a person names, since no route has one: under its aggregate's key all the same.
		l.write("c", "payment.made", 0)
		p.Until(t, "parked", func() bool { return len(l.parked()) == 1 })
		id = l.parked()[0].ID
		require.Contains(t, l.dlq(1, "replay", "--all", "--reason", "it has no route").Stderr, "--id "+id)
		l.dlq(0, "replay", "--all", "--topic", l.Topic, "--reason", "it has no route")
		l.holds(p, map[string]int{"c": 1})
		l.Stop(p)
	})
}
