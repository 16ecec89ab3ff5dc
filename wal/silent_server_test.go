package wal_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// Rows pile up in the connection while nobody reads, as they do when a broker is away, and the answers to the server get through all
// the same. How full the kernel's buffers are at that depends on the rows and on chance, so there are several sessions.
func TestSessionsLiveWhileNobodyReadsAndRowsPileUp(t *testing.T) {
	p := harness.StartPostgres(t, harness.NewestPostgres(), harness.PostgresOptions{Settings: map[string]string{"wal_sender_timeout": "5s"}})
	var sessions []*stream
	pid := func(s *stream) string {
		return s.one(`SELECT coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = '` + s.slot() + `'`)
	}
	var pids []string
	for range 8 {
		b := newBenchOn(t, p)
		b.exec(`CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')`)
		sessions = append(sessions, b.open(b.options(), event.Checkpoint{}))
		pids = append(pids, pid(sessions[len(sessions)-1]))
	}
	for round, began := 0, time.Now(); time.Since(began) < 12*time.Second; round++ {
		for i, s := range sessions {
			s.exec(fmt.Sprintf(`INSERT INTO outbox SELECT '%d-' || i, 'a', repeat('x', %d), NULL FROM generate_series(1, 400) i`, round, 20+i*40))
			require.Equal(t, pids[i], pid(s), "session %d was lost", i)
		}
		time.Sleep(200 * time.Millisecond) // the rows come bit by bit
	}
}
