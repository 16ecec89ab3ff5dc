package cases

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// synced copies the failover slot to the standby, as the standby's worker does on its own time, until the copy is complete. A
// copy is that only once the slot has moved beyond what the standby has, so outtail runs meanwhile.
func synced(t *testing.T, db *shop.Postgres, standby *harness.Postgres) {
	t.Helper()
	deadline := time.Now().Add(harness.Patience)
	for {
		// Twice: the slot moves to what the first record says once the second is confirmed.
		for range 2 {
			db.Exec(t, "SELECT pg_log_standby_snapshot()")
			end := pgNumber(t, db, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
			require.Eventually(t, func() bool { return slotLSN(t, db, "confirmed_flush_lsn") >= end }, harness.Patience, 100*time.Millisecond)
		}
		standby.CaughtUp(t, db.Server)
		standby.Exec(t, "postgres", "SELECT pg_sync_replication_slots()")
		if standby.Scalar(t, "postgres", "SELECT slot_name FROM pg_replication_slots WHERE slot_name = '"+db.Slot()+"' AND synced AND NOT temporary") != "" {
			return
		}
		require.True(t, time.Now().Before(deadline), "the slot is not copied")
	}
}

func TestAPromotedStandbyGoesOnWhereThePositionLiesBeforeTheFork(t *testing.T) {
	t.Parallel()
	t.Run("a standby with a copy of the slot", func(t *testing.T) {
		primary := harness.StartPostgres(t, "17", harness.PostgresOptions{})
		standby := harness.StartStandby(t, primary)
		db := shop.NewPostgres(t, primary, nil)
		s := scene.New(t, &servers, db)
		s.Configure("Source", db.Source(", failover_slot: true"))
		p := s.Start()
		s.Insert(3)
		s.Arrived(p)
		synced(t, db, standby)
		s.Stop(p)
		r := s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
		require.Contains(t, r.Stdout, "synchronized_standby_slots names no standby")
		s.Insert(2) // not read before the primary is lost
		standby.CaughtUp(t, primary)

		there := db.On(t, standby)
		s.Configure("Source", there.Source(", failover_slot: true"))
		r = s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
		require.Contains(t, r.Stdout, "the slot a synchronised copy")
		primary.Kill(t)
		standby.Promote(t)
		s.DB = there
		p = s.Start()
		require.Contains(t, p.Stderr(), "timeline 2")
		s.Insert(2)
		s.Arrived(p)
		s.Stop(p)
		primary.Start(t) // for what the test leaves behind there
	})
	t.Run("a server that went through recovery", func(t *testing.T) {
		server := harness.StartPostgres(t, "15", harness.PostgresOptions{})
		s := scene.New(t, &servers, shop.NewPostgres(t, server, nil))
		s.Prove()
		s.Insert(2)
		server.Fork(t)
		p := s.Start()
		require.Contains(t, p.Stderr(), "timeline 2")
		s.Insert(1)
		s.Arrived(p)
		s.Stop(p)
	})
}

func TestAPromotedStandbyThatLacksWhatWasPublishedStopsAndOffersTheFork(t *testing.T) {
	t.Parallel()
	primary := harness.StartPostgres(t, "17", harness.PostgresOptions{})
	standby := harness.StartStandby(t, primary)
	db := shop.NewPostgres(t, primary, nil)
	s := scene.New(t, &servers, db)
	s.Configure("Source", db.Source(", failover_slot: true"))
	p := s.Start()
	s.Insert(3)
	s.Arrived(p)
	synced(t, db, standby)
	s.Stop(p)
	standby.Detach(t)
	p = s.Start()
	s.Insert(2) // published, and lost with the primary
	s.Arrived(p)
	s.Stop(p)
	stored := s.Stored().Source.LSN
	primary.Kill(t)
	standby.Promote(t)

	s.DB = db.On(t, standby)
	s.Configure("Source", s.DB.Source(", failover_slot: true"))
	s.Insert(2) // the new primary's own, some of them before the stored position
	stderr := s.Stops(4, "OT2036", stored)
	fork := regexp.MustCompile(`--to ([0-9A-F]+/[0-9A-F]+) `).FindStringSubmatch(stderr)
	require.Len(t, fork, 2, stderr)
	s.TakeWay(stderr, "--to "+fork[1])
	p = s.Start()
	s.Insert(1)
	s.Arrived(p)
	s.Stop(p)
	primary.Start(t)
}
