package cases

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// A server does not come up with a logical slot and a lower wal_level, so the slot is dropped first, and with it goes what it kept:
// raising the level again is no continuation.
func TestAServerWhoseWALLevelWasLoweredIsNamedAndThenTheGap(t *testing.T) {
	onOwnPostgres(t, harness.PostgresOptions{Settings: map[string]string{"wal_level": ""}}, func(t *testing.T, db *shop.Postgres) {
		level := func(name string) {
			db.Server.Exec(t, "postgres", "ALTER SYSTEM SET wal_level = '"+name+"'")
			db.Server.Restart(t)
		}
		level("logical")
		s := scene.New(t, &servers, db)
		s.Prove()
		slotFree(t, db)
		db.Exec(t, `SELECT pg_drop_replication_slot('`+db.Slot()+`')`)
		level("replica")
		s.InsertUnseen(1, "order.changed")
		s.Stops(3, "OT2010", "wal_level is replica", "ALTER SYSTEM SET wal_level = 'logical'")
		r := s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
		require.Contains(t, r.Stdout, "wal_level is replica, not logical")
		level("logical")
		stderr := s.Stops(4, "OT2032", s.Stored().Source.LSN)
		s.TakeWay(stderr, "--to now")
		s.Prove()
	})
}

// A standby that is read depends on the wal_level of its primary.
func TestAStandbyWhosePrimaryLoweredItsWALLevelIsNamed(t *testing.T) {
	t.Parallel()
	primary := harness.StartPostgres(t, harness.NewestPostgres(), harness.PostgresOptions{Settings: map[string]string{"wal_level": ""}})
	level := func(name string) {
		primary.Exec(t, "postgres", "ALTER SYSTEM SET wal_level = '"+name+"'")
		primary.Restart(t)
	}
	level("logical")
	standby := harness.StartStandby(t, primary)
	db := shop.NewPostgres(t, primary, nil)
	standby.CaughtUp(t, primary)
	s := scene.New(t, &servers, db)
	s.Configure("Source", db.On(t, standby).Source(""))
	p := startOnStandby(s, primary)
	s.Insert(1)
	s.Arrived(p)

	level("replica")
	standby.Follow(t, primary)
	r := p.Wait(t)
	require.Equal(t, 4, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "OT2033")
	if primary.Major() >= 17 {
		require.Contains(t, r.Stderr, "wal_level_insufficient")
		require.Contains(t, r.Stderr, "on the primary: ALTER SYSTEM SET wal_level = 'logical'")
	} else { // 16 does not say which
		require.Contains(t, r.Stderr, "or its wal_level was lowered")
	}
	standby.Exec(t, db.DB, "SELECT pg_drop_replication_slot('"+db.Slot()+"')")
	r = s.Set("now") // which makes the slot, or would
	require.Equal(t, 3, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "OT2010")
	require.Contains(t, r.Stderr, "the primary's wal_level is not logical")
	level("logical")
	standby.Follow(t, primary)
	standby.CaughtUp(t, primary)
	set := s.Outtail.Launch(t, "checkpoint", "set", "-c", s.Outtail.Config, "--pipeline", "orders", "--to", "now", "--reason", "test")
	require.Eventually(t, func() bool {
		primary.Exec(t, "postgres", "SELECT pg_log_standby_snapshot()")
		return !set.Running()
	}, harness.Patience, 50*time.Millisecond)
	require.Equal(t, 0, set.Wait(t).Code, set.Stderr())
	p = startOnStandby(s, primary)
	s.Insert(1)
	s.Arrived(p)
	s.Stop(p)
}

// startOnStandby starts outtail on a standby of a primary: a slot there is made from what the primary logs.
func startOnStandby(s *scene.Scene, primary *harness.Postgres) *harness.Process {
	s.T.Helper()
	p := s.Outtail.Start(s.T)
	p.Until(s.T, "the slot", func() bool {
		primary.Exec(s.T, "postgres", "SELECT pg_log_standby_snapshot()")
		status, _ := s.Outtail.Get(s.T, "/readyz")
		return status == 200
	})
	return p
}
