package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// copies are the copies of parked events in a mirror topic, by their number in it.
func copies(t *testing.T, in *kgo.Client, p *harness.Process, n int) (all []*kgo.Record) {
	t.Helper()
	p.Until(t, fmt.Sprint("copies in the mirror: ", n), func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		all = append(all, in.PollFetches(ctx).Records()...)
		return len(all) >= n
	})
	return all
}

// A mirror that is missing makes the pipeline degraded, and delays nobody; when it is there it gets what was parked meanwhile, and each
// event once, whatever ends in between.
func TestParkedEventsAreMirrored(t *testing.T) {
	l := newParkLot(t, shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil))
	mirror := l.Topic + "-dead"
	l.Configure("Pipeline", "    dead_letters: { mirror_topic: "+mirror+" }\n")
	p := l.Start()
	l.write("a", "payment.made", 0) // no route
	l.write("a", "order.changed", 0)
	for range 50 {
		l.write("b", "order.created", 0)
	}
	l.holds(p, map[string]int{"b": 50})
	require.Contains(t, p.WaitStatus(t, "/readyz", http.StatusServiceUnavailable), "OT5004")
	require.Contains(t, p.Stderr(), mirror)
	p.Kill(t)

	l.Kafka.CreateTopic(t, mirror, 1, map[string]string{"max.message.bytes": "1500"})
	in := l.Kafka.Client(t, kgo.ConsumeTopics(mirror), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	p = l.Start()
	got := copies(t, in, p, 2)
	parked := l.parked()
	require.Len(t, parked, 2)
	for i, r := range got {
		require.Equal(t, "a", string(r.Key))
		require.Contains(t, string(r.Value), fmt.Sprintf(`"a:%d"`, i))
		require.Equal(t, parked[i].ID, scene.Header(r, "id"), "the headers that the event would have had")
		require.Equal(t, parked[i].Place, scene.Header(r, "dead_letter_position"))
	}
	require.Equal(t, "OT6101", scene.Header(got[0], "dead_letter_code"))
	require.Equal(t, "record", scene.Header(got[0], "dead_letter_class"))
	require.Contains(t, scene.Header(got[0], "dead_letter_reason"), "route")
	require.Equal(t, l.Topic, scene.Header(got[1], "dead_letter_topic"))

	// Too large for the mirror too: the store has all of it, the mirror that there is something.
	l.write("c", "payment.made", 3000)
	l.write("d", "payment.made", 0)
	got = copies(t, in, p, 2)
	byKey := map[string]*kgo.Record{}
	for _, r := range got {
		byKey[string(r.Key)] = r
	}
	require.Nil(t, byKey["c"].Value)
	require.NotEmpty(t, scene.Header(byKey["c"], "dead_letter_payload_left_out"))
	require.Contains(t, string(byKey["d"].Value), "d:0")
	p.WaitReady(t)
	l.Stop(p)

	// What has its copy gets no other; nothing was taken out of the store.
	p = l.Start()
	l.write("e", "payment.made", 0)
	got = copies(t, in, p, 1)
	require.Len(t, got, 1)
	require.Equal(t, "e", string(got[0].Key))
	require.Len(t, l.parked(), 5)
	l.Stop(p)
}

// max_rate is what arrives in a second, evenly, whatever waits.
func TestMaxRateIsHeld(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		t.Parallel()
		const rate, events = 500, 1500
		s := scene.New(t, &servers, db)
		s.Configure("Pipeline", fmt.Sprintf("    limits: { max_rate: %d }\n", rate))
		p := s.Start()
		began := time.Now() // nothing can have been sent before, however slow the machine is
		s.Insert(events)
		acked := 0.0
		p.Until(t, "all events", func() bool {
			acked = s.Outtail.Metric(t, "outtail_messages_acked_total")
			require.LessOrEqual(t, acked, rate*time.Since(began).Seconds()+rate*0.02+1, "more than the rate allows")
			return acked == events
		})
		took := time.Since(began).Seconds()
		t.Logf("%d events in %.2f s: %.0f a second, max_rate %d", events, took, events/took, rate)
		s.Arrived(p)
		s.Stop(p)
	})
}

// What waits longer than the retention is left out, loudly, and its aggregate flows again.
func TestRetentionLeavesParkedEventsOut(t *testing.T) {
	l := newParkLot(t, shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil))
	p := l.Start()
	l.write("a", "payment.made", 0)
	l.write("a", "order.changed", 0)
	p.Until(t, "two parked", func() bool { return len(l.parked()) == 2 })
	require.Greater(t, l.Outtail.Metric(t, "outtail_parked_events"), -1.0)
	p.Until(t, "their age", func() bool { return l.Outtail.Metric(t, "outtail_parked_oldest_seconds") > 0 })
	l.Stop(p)
	l.Configure("Pipeline", "    dead_letters: { retention: 1s }\n")
	p = l.Start()
	p.Until(t, "nothing is parked", func() bool { return len(l.parked()) == 0 })
	p.Until(t, "two expired", func() bool { return l.Outtail.Metric(t, "outtail_events_filtered_total", `reason="expired"`) == 2 })
	p.Until(t, "no age", func() bool { return l.Outtail.Metric(t, "outtail_parked_oldest_seconds") == 0 })
	require.Contains(t, p.Stderr(), "left out for good")
	l.write("a", "order.paid", 0)
	l.holds(p, map[string]int{"a": 1})
	require.Equal(t, []string{"a:2"}, l.seen["a"])
	l.Stop(p)
	r := l.Outtail.Run(t, "audit", "-c", l.Outtail.Config, "--json")
	var acts []struct{ Action, Operator, Reason, Detail string }
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &acts))
	require.NotEmpty(t, acts)
	for _, a := range acts {
		require.Equal(t, "dlq expire", a.Action)
		require.Equal(t, "outtail", a.Operator)
		require.Contains(t, a.Reason, "dead_letters.retention of 1s")
	}
}

// A topic that is missing holds its own events and those of their aggregates, and nobody else's; nothing of it is parked.
func TestAMissingTopicHoldsOnlyItsAggregates(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		l := newParkLot(t, db)
		late := l.Topic + "-late"
		l.Configure("Match", "match: { event_type: payment.* }, topic: "+late+" }\n      - { ")
		p := l.Start()
		l.write("a", "order.created", 0)
		l.write("a", "payment.made", 0)
		l.write("a", "order.paid", 0)
		for range 100 {
			l.write("b", "order.created", 0)
		}
		l.holds(p, map[string]int{"a": 1, "b": 100})
		p.Until(t, "the topic is named", func() bool { return strings.Contains(p.WaitStatus(t, "/readyz", http.StatusServiceUnavailable), late) })
		require.Empty(t, l.parked())
		require.Len(t, l.seen["a"], 1)
		l.Kafka.CreateTopic(t, late, 1, nil)
		l.holds(p, map[string]int{"a": 2})
		p.WaitReady(t)
		require.Equal(t, []string{"a:0", "a:2"}, l.seen["a"])
		require.EqualValues(t, 1, l.Kafka.Count(t, late))
		l.Stop(p)
	})
}

// Parked events are picked by class, time and route, and sent to another topic, through the running process.
func TestParkedEventsArePickedAndSentElsewhere(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		l := newParkLot(t, db)
		small, other := l.Topic+"-small", l.Topic+"-other"
		l.Kafka.CreateTopic(t, small, 1, map[string]string{"max.message.bytes": "1000"})
		l.Kafka.CreateTopic(t, other, 1, nil)
		l.Configure("Match", "match: { event_type: payment.* }, topic: "+small+" }\n      - { match: { event_type: order.* }, ")
		p := l.Start()
		l.write("a", "payment.made", 2000) // too large for its topic
		l.write("a", "payment.made", 2000) // behind it
		l.write("b", "refund.made", 0)     // no route
		p.Until(t, "three parked", func() bool { return len(l.parked()) == 3 })
		require.Len(t, l.parked("--class", "record"), 2)
		require.Empty(t, l.parked("--class", "config"))
		require.Len(t, l.parked("--route", small), 2)
		require.Len(t, l.parked("--route", "*-small"), 2)
		require.Empty(t, l.parked("--route", other))
		require.Len(t, l.parked("--since", "1h"), 3)
		require.Empty(t, l.parked("--until", "1h"))
		require.Len(t, l.parked("--aggregate", "order/b"), 1)
		ids := []string{l.parked("--route", small)[0].ID, l.parked("--route", small)[1].ID}

		l.dlq(2, "replay", "--topic", other, "--reason", "everything is meant nowhere")
		require.Contains(t, l.dlq(0, "replay", "--route", "*-small", "--topic", other, "--reason", "the topic takes less").Stdout, "2 delivered")
		require.Len(t, l.parked(), 1)
		got := l.Kafka.Await(t, 2, other)
		for i, r := range got {
			require.Equal(t, ids[i], scene.Header(r, "id"), "the original ids, in order")
		}
		// An event that no route takes can be sent where a person says.
		l.dlq(0, "replay", "--aggregate", "order/b", "--topic", other, "--reason", "refunds have no topic")
		require.Len(t, l.Kafka.Await(t, 3, other), 3)
		require.Empty(t, l.parked())
		l.Stop(p)
		r := l.Outtail.Run(t, "audit", "-c", l.Outtail.Config, "--json")
		require.Contains(t, r.Stdout, `"to_topic": "`+other+`"`)
	})
}
