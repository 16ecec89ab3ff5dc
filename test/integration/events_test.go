package integration

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

// TestEveryCommittedEventArrives is the contract in one test: 20,000 events over 200 aggregates in transactions of 1 to 50
// rows, a fifth rolled back, savepoints, other tables in between. Everything that committed arrives, once, in order per
// aggregate, with the bytes that SELECT returns; nothing else arrives.
func TestEveryCommittedEventArrives(t *testing.T) {
	eachSource(t, func(t *testing.T, db shop.Database) {
		kafka := servers.Kafka(t)
		topic := kafka.NewTopic(t, 6)
		o := harness.NewOuttail(t, servers.Binary(t), shop.Configuration, map[string]any{
			"Source": db.Source(""), "Topic": topic, "Brokers": strings.Join(kafka.Brokers(), ", "),
		})
		p := o.Start(t)
		p.WaitReady(t)
		load := shop.Load{Events: 20_000, Aggregates: 200, Writers: 4, Topic: topic, Seed: 1}
		written := load.Write(t, t.Context(), db)
		committed := written.Committed(t, db)
		kafka.Await(t, len(committed), topic)

		r := p.Terminate(t)
		require.Equal(t, 0, r.Code, r.Stderr)
		records := kafka.Records(t, topic)
		report := harness.Check(committed, harness.FromKafka(records), 0)
		require.NoError(t, report.Err())
		require.Zero(t, report.Duplicates, "nobody was killed")
		require.Equal(t, len(committed), report.Delivered)

		var state struct {
			Pipelines []struct{ Events uint64 }
		}
		o.CheckpointJSON(t, &state)
		require.Equal(t, uint64(len(committed)), state.Pipelines[0].Events)
		for _, rec := range records[:100] {
			names := []string{}
			for _, h := range rec.Headers {
				names = append(names, h.Key)
			}
			require.Equal(t, []string{"id", "event_type", "aggregate_type", "aggregate_id", "occurred_at", "source"}, names[:6])
			require.True(t, strings.HasPrefix(string(rec.Headers[5].Value), db.Kind()+"/"))
		}
	})
}
