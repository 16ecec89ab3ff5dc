package bench

import (
	"strings"
	"testing"
)

// TestSpread drains the same backlog, of 10,000 aggregates and 100 types of event, into one topic by one route and into six topics by a hundred
// routes, all topics of 12 partitions: what routing and many small batches cost. Arms in turn.
func TestSpread(t *testing.T) {
	measured(t)
	n := min(*rows, 300_000)
	for _, kind := range strings.Split(*sources, ",") {
		t.Run(kind, func(t *testing.T) {
			s := newSource(t, kind)
			s.begin(t)
			s.write(t, load{rows: n, perTx: 10, size: 450, aggregates: 10_000, types: 100})
			for run := range *runs {
				for _, a := range []struct {
					name           string
					routes, topics int
				}{{"1 route, 1 topic", 0, 1}, {"100 routes, 6 topics", 100, 6}} {
					var topics []string
					for range a.topics {
						topics = append(topics, s.kafka.NewTopic(t, 12))
					}
					f := drainInto(t, s, &outtail{s: s, label: a.name, routes: a.routes}, n, topics...)
					f.What, f.Run = "spread", run+1
					f.record(t)
					for _, topic := range topics {
						s.kafka.DeleteTopic(t, topic)
					}
				}
			}
		})
	}
}
