// Package chaos kills, cuts and pauses: the real binary between real servers, and nothing may be lost, invented or
// reordered (I1, I2, I3).
package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

var servers harness.Pool

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }

func newOuttail(t testing.TB, db shop.Database, kafka *harness.Kafka, topic string) *harness.Outtail {
	return harness.NewOuttail(t, servers.Binary(t), shop.Configuration, map[string]any{
		"Source": db.Source(""), "Topic": topic, "Brokers": strings.Join(kafka.Brokers(), ", "),
	})
}

// saved is what the state file says while nobody runs.
type saved struct {
	Events uint64
	Source json.RawMessage
	Prefix *struct {
		Tx   string
		Rows uint64
	}
}

func readSaved(t testing.TB, o *harness.Outtail) saved {
	var state struct{ Pipelines []saved }
	o.CheckpointJSON(t, &state)
	if len(state.Pipelines) == 0 {
		return saved{}
	}
	return state.Pipelines[0]
}

// requireBehindAcks checks that what the stored position counts is in Kafka: the count of events belongs to the position
// and is saved with it, and order holds, so it stands for the first so many of what committed (I1, I4).
func requireBehindAcks(t testing.TB, s saved, committed []harness.Committed, delivered []harness.Delivered) {
	have := map[string]bool{}
	for _, d := range delivered {
		have[d.ID] = true
	}
	require.LessOrEqual(t, int(s.Events), len(committed), "the position counts events that did not commit")
	for i, c := range committed[:s.Events] {
		if !have[c.ID] {
			require.FailNow(t, "the stored position is ahead of the acks",
				"it counts %d events (%s, prefix %v), and number %d (%s) is not in Kafka", s.Events, s.Source, s.Prefix, i, c.ID)
		}
	}
}

// bigTransaction inserts n rows over 100 aggregates in one transaction and returns them in their order.
func bigTransaction(t testing.TB, db shop.Database, topic string, n int) []harness.Committed {
	series := fmt.Sprintf("SELECT i FROM generate_series(1, %d) AS s(i)", n)
	id := "('00000000-0000-4000-8000-' || lpad(i::text, 12, '0'))::uuid"
	key, payload := "'agg-' || (i % 100)", `('{"n": ' || i || '}')::jsonb`
	if db.Kind() != "postgres" {
		with := fmt.Sprintf("WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < %d) ", n)
		series = "SELECT i FROM s"
		id = "CONCAT('00000000-0000-4000-8000-', LPAD(i, 12, '0'))"
		key, payload = "CONCAT('agg-', i % 100)", `CONCAT('{"n": ', i, '}')`
		db.Exec(t, "SET SESSION cte_max_recursion_depth = 10000000; INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) "+
			with+"SELECT "+id+", 'order', "+key+", 'order.changed', "+payload+" FROM ("+series+") AS q ORDER BY i")
	} else {
		db.Exec(t, "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) SELECT "+
			id+", 'order', "+key+", 'order.changed', "+payload+" FROM ("+series+") AS q ORDER BY i")
	}
	rows := db.Payloads(t)
	out := make([]harness.Committed, n)
	for i := 1; i <= n; i++ {
		c := harness.Committed{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Topic: topic, Key: fmt.Sprintf("agg-%d", i%100)}
		payload, ok := rows[c.ID]
		require.True(t, ok)
		c.Digest = harness.Digest(payload)
		out[i-1] = c
	}
	return out
}
