package harness

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// standbyScript copies the primary, once, and runs on the copy.
const standbyScript = `set -e
d=${PGDATA:-/var/lib/postgresql/data}
mkdir -p "$d" && chown postgres:postgres "$d" && chmod 700 "$d"
as="setpriv --reuid postgres --regid postgres --init-groups --"
if [ ! -s "$d/PG_VERSION" ]; then
	$as pg_basebackup -D "$d" -d "$PRIMARY" -X stream -c fast -C -S "$SLOT"
	# Not with -R: a newer pg_basebackup writes options that an older server does not know. ALTER SYSTEM can change these.
	printf "%s = '%s'\n" primary_conninfo "$PRIMARY" primary_slot_name "$SLOT" hot_standby_feedback on >>"$d/postgresql.auto.conf"
	$as touch "$d/standby.signal"
fi
exec $as postgres -D "$d" "$@"`

// StartStandby runs a hot standby of a server of the test's own, over streaming replication and a physical slot; hot_standby_feedback
// is on, so that it can hold copies of failover slots. The slot of the first one is "standby", of the next "standby2" and so on. It
// ends with the test.
func StartStandby(t testing.TB, primary *Postgres) *Postgres {
	t.Helper()
	ctx := context.Background()
	slot := "standby"
	if primary.standbys++; primary.standbys > 1 {
		slot += strconv.Itoa(primary.standbys)
	}
	primary.Exec(t, "postgres", `DO $$ BEGIN EXECUTE format('COPY (SELECT ''host replication all all scram-sha-256'') TO PROGRAM %L',
		'cat >> ' || current_setting('hba_file')); PERFORM pg_reload_conf(); END $$`)
	ip, err := primary.c.ContainerIP(ctx)
	require.NoError(t, err)
	cmd := append([]string{"bash", "-c", standbyScript, "standby"}, arguments(postgresSettings(nil))...)
	s := spec{kind: "postgres" + primary.Version + "-standby", image: postgresImage(primary.Version), ports: 1, memory: 2 << 30}
	s.container = func([]int) ([]string, map[string]string, []int) {
		conn := "host=" + ip + " port=5432 user=postgres password=" + RootPassword + " dbname=postgres"
		return cmd, map[string]string{"PRIMARY": conn, "SLOT": slot}, []int{5432}
	}
	c, ports, err := s.run(ctx)
	require.NoError(t, err)
	p := newPostgres(c, ports[0], primary.Version)
	t.Cleanup(p.terminate)
	p.logFailure(t)
	require.NoError(t, p.await(ctx))
	return p
}

// Follow leads a standby to where its primary is now: one that was restarted may have another address in the engine's network.
func (p *Postgres) Follow(t testing.TB, primary *Postgres) {
	t.Helper()
	ip, err := primary.c.ContainerIP(context.Background())
	require.NoError(t, err)
	p.Exec(t, "postgres", "ALTER SYSTEM SET primary_conninfo = 'host="+ip+" port=5432 user=postgres password="+RootPassword+" dbname=postgres'", "SELECT pg_reload_conf()")
}

// Detach ends a standby's replication: what the primary writes from now on it never sees.
func (p *Postgres) Detach(t testing.TB) {
	t.Helper()
	p.Exec(t, "postgres", "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		return p.Scalar(t, "postgres", "SELECT count(*) FROM pg_stat_wal_receiver") == "0"
	}, Patience, 100*time.Millisecond)
}

// Promote makes a standby a primary, on a timeline of its own.
func (p *Postgres) Promote(t testing.TB) {
	t.Helper()
	p.Exec(t, "postgres", "SELECT pg_promote(true, 100)")
	require.Eventually(t, func() bool {
		return p.Scalar(t, "postgres", "SELECT pg_is_in_recovery()") == "false"
	}, Patience, 100*time.Millisecond)
}

// CaughtUp waits until a standby has replayed what the primary has written.
func (p *Postgres) CaughtUp(t testing.TB, primary *Postgres) {
	t.Helper()
	end := primary.Scalar(t, "postgres", "SELECT pg_current_wal_lsn()")
	require.Eventually(t, func() bool {
		return p.Scalar(t, "postgres", "SELECT pg_last_wal_replay_lsn() >= '"+end+"'::pg_lsn") == "true"
	}, Patience, 100*time.Millisecond)
}

// Fork makes a server go into recovery and be promoted: its own timeline ends and the next one begins, with the same slots.
func (p *Postgres) Fork(t testing.TB) {
	t.Helper()
	p.Exec(t, "postgres", `DO $$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat > ' || current_setting('data_directory') || '/standby.signal'); END $$`)
	p.Restart(t)
	p.Promote(t)
}

// Unfollow makes a standby a server that knows nothing of its primary, on the same timeline: as the primary would be, restored from a
// backup of that moment.
func (p *Postgres) Unfollow(t testing.TB) {
	t.Helper()
	p.Exec(t, "postgres", `DO $$ BEGIN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'cat >/dev/null; rm ' || current_setting('data_directory') || '/standby.signal'); END $$`)
	p.Restart(t)
	require.Equal(t, "false", p.Scalar(t, "postgres", "SELECT pg_is_in_recovery()"))
}
