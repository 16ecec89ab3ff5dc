package cases

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// onPostgres runs a test on the shared servers of the oldest and the newest version.
func onPostgres(t *testing.T, test func(t *testing.T, db *shop.Postgres)) {
	t.Parallel()
	for _, version := range harness.PostgresVersions() {
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel()
			test(t, shop.NewPostgres(t, servers.Postgres(t, version), nil))
		})
	}
}

// onOwnPostgres runs a test on servers of its own, where it changes them or would be in the way of others.
func onOwnPostgres(t *testing.T, opts harness.PostgresOptions, test func(t *testing.T, db *shop.Postgres)) {
	t.Parallel()
	for _, version := range harness.PostgresVersions() {
		t.Run("postgres"+version, func(t *testing.T) {
			t.Parallel()
			test(t, shop.NewPostgres(t, harness.StartPostgres(t, version, opts), nil))
		})
	}
}

// pgEvent is an INSERT of one event with a payload as an SQL expression.
func pgEvent(id, payload string) string {
	return `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('` + id + `', 'order', 'order-1', 'order.changed', ` + payload + `)`
}

// pgIDs makes ids for a column of type uuid.
func pgIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = scene.NewUUID()
	}
	return ids
}

// slotLSN is a column of the slot's row, as a number.
func slotLSN(t *testing.T, db *shop.Postgres, column string) int64 {
	t.Helper()
	return pgNumber(t, db, "SELECT pg_wal_lsn_diff("+column+", '0/0')::bigint FROM pg_replication_slots WHERE slot_name = '"+db.Slot()+"'")
}

func pgNumber(t *testing.T, db *shop.Postgres, query string) int64 {
	t.Helper()
	var n int64
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	c, err := pgx.Connect(ctx, db.Server.ConnString(db.DB))
	require.NoError(t, err)
	defer c.Close(ctx)
	require.NoError(t, c.QueryRow(ctx, query).Scan(&n))
	return n
}

// record gives what arrived of an event.
func record(t *testing.T, s *scene.Scene, id string) *kgo.Record {
	t.Helper()
	for _, r := range s.Seen {
		if scene.Header(r, "id") == id {
			return r
		}
	}
	require.Fail(t, "no record of "+id)
	return nil
}

// slotFree waits until nobody reads the slot.
func slotFree(t *testing.T, db *shop.Postgres) {
	t.Helper()
	require.Eventually(t, func() bool { return db.Session(t) == "" }, harness.Patience, 50*time.Millisecond)
}

func quoted(ids []string) string { return "'" + strings.Join(ids, "', '") + "'" }
