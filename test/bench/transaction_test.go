package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

// TestOneTransaction commits all rows in one transaction: how long after the commit the first and the last event arrive,
// in how much memory, and what a kill in the middle sends again. -size makes the payloads larger, and the transaction with them.
func TestOneTransaction(t *testing.T) {
	if os.Getenv("OUTTAIL_BENCH") == "" {
		t.Skip("a measurement, not a test: make bench")
	}
	db := shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
	db.Exec(t, "ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL") // what is alike in them is not to be compressed away
	kafka := servers.Kafka(t)
	topic := kafka.NewTopic(t, 6)
	o := harness.NewOuttail(t, servers.Binary(t), shop.Configuration, map[string]any{
		"Source": db.Source(""), "Topic": topic, "Brokers": strings.Join(kafka.Brokers(), ", "),
	})
	write := func() time.Time {
		conn := db.Server.Connect(t, db.DB) // without the harness's limit on a statement
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
			SELECT gen_random_uuid(), 'order', 'agg-' || (i %% 1000), 'order.changed', ('{"note": "' || repeat('x', %d) || '"}')::jsonb FROM generate_series(1, %d) i`, *size, *rows))
		require.NoError(t, err)
		return time.Now()
	}
	// await counts until n events are there, and says when.
	await := func(p *harness.Process, n int64) time.Time {
		for kafka.Count(t, topic) < n {
			require.True(t, p.Running(), p.Stderr())
			time.Sleep(50 * time.Millisecond) // the sampling interval
		}
		return time.Now()
	}
	all := int64(*rows)

	p := o.Start(t)
	p.WaitReady(t)
	wal := func() string { return db.Server.Scalar(t, db.DB, "SELECT pg_current_wal_lsn() - '0/0'") }
	before := wal()
	committed := write()
	t.Logf("%s of log", db.Server.Scalar(t, db.DB, "SELECT pg_size_pretty("+wal()+"::numeric - "+before+")"))
	first, last := await(p, 1), await(p, all)
	t.Logf("%d rows in one transaction: first event %.2f s after the commit, last %.2f s after it, peak %.0f MiB; the server spilled %s",
		all, first.Sub(committed).Seconds(), last.Sub(committed).Seconds(), float64(p.PeakRSS(t))/(1<<20),
		db.Server.Scalar(t, db.DB, "SELECT pg_size_pretty(spill_bytes) FROM pg_stat_replication_slots WHERE slot_name = $1", db.Slot()))

	write()
	await(p, all+all/2)
	p.Kill(t)
	sent := kafka.Count(t, topic)
	began := time.Now()
	p = o.Start(t)
	next := await(p, sent+1)
	await(p, 2*all)
	require.Zero(t, p.Terminate(t).Code)
	t.Logf("killed after %d of %d rows: first event %.2f s after the start, %d events sent again",
		sent-all, all, next.Sub(began).Seconds(), kafka.Count(t, topic)-2*all)
}
