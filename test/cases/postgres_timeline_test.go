package cases

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// failover starts a primary and a standby to which slots can be copied, of the newest version.
func failover(t *testing.T) (primary, standby *harness.Postgres) {
	t.Helper()
	primary = harness.StartPostgres(t, harness.NewestPostgres(), harness.PostgresOptions{})
	if primary.Major() < 17 {
		t.Skipf("Postgres %s copies no slots to standbys", primary.Version)
	}
	return primary, harness.StartStandby(t, primary)
}

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
		primary, standby := failover(t)
		db := shop.NewPostgres(t, primary, nil)
		s := scene.New(t, &servers, db)
		s.Configure("Source", db.Source(", failover_slot: true"))
		p := s.Start()
		s.Insert(3)
		s.Arrived(p)
		synced(t, db, standby)
		guarded(t, s, p, primary)
		s.Stop(p)
		s.Insert(2) // not read before the primary is lost
		standby.CaughtUp(t, primary)

		there := db.On(t, standby)
		s.Configure("Source", there.Source(", failover_slot: true"))
		r := s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
		require.Contains(t, r.Stdout, "the slot a synchronised copy")
		// A connection that arrives before the promotion waits for it.
		p = s.Outtail.Start(t)
		s.Says(p, "OT2048")
		primary.Kill(t)
		standby.Promote(t)
		s.DB = there
		p.WaitReady(t)
		require.Contains(t, p.Stderr(), "timeline 2")
		s.Insert(2)
		s.Arrived(p)
		s.Stop(p)
		primary.Start(t) // for what the test leaves behind there
	})
	t.Run("a server that went through recovery", func(t *testing.T) {
		server := harness.StartPostgres(t, harness.OldestPostgres(), harness.PostgresOptions{})
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

// guarded: a standby that the server waits for and that is away is named, by outtail and by doctor, whose statement ends the wait.
func guarded(t *testing.T, s *scene.Scene, p *harness.Process, primary *harness.Postgres) {
	t.Helper()
	examine := func() string { return s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config).Stdout }
	guards := func(names string) {
		primary.Exec(t, "postgres", "ALTER SYSTEM SET synchronized_standby_slots = '"+names+"'", "SELECT pg_reload_conf()")
	}
	require.Contains(t, examine(), "synchronized_standby_slots names no standby")
	guards("standby, gone")
	require.Eventually(t, func() bool {
		return primary.Scalar(t, "postgres", "SELECT current_setting('synchronized_standby_slots')") == "standby, gone"
	}, harness.Patience, 50*time.Millisecond)
	s.Insert(1)
	require.Contains(t, s.Says(p, "OT2047"), "synchronized_standby_slots names gone")
	require.Len(t, s.Seen, len(s.Sent)-1, "the server keeps it back")
	fix := regexp.MustCompile(`ALTER SYSTEM SET (synchronized_standby_slots = [^;]*); SELECT pg_reload_conf\(\);`).FindStringSubmatch(examine())
	require.Len(t, fix, 2)
	primary.Exec(t, "postgres", "ALTER SYSTEM SET "+fix[1], "SELECT pg_reload_conf()")
	s.Arrived(p)
	require.NotContains(t, examine(), "synchronized_standby_slots")
}

func TestAStandbyIsReadOverItsPromotion(t *testing.T) {
	t.Parallel()
	primary := harness.StartPostgres(t, harness.NewestPostgres(), harness.PostgresOptions{})
	standby := harness.StartStandby(t, primary)
	stage := func() *scene.Scene {
		db := shop.NewPostgres(t, primary, nil)
		standby.CaughtUp(t, primary)
		s := scene.New(t, &servers, db)
		s.Configure("Source", db.On(t, standby).Source(""))
		return s
	}
	feedback := func(state string) {
		standby.Exec(t, "postgres", "ALTER SYSTEM SET hot_standby_feedback = "+state, "SELECT pg_reload_conf()")
	}

	t.Run("a slot in the way of the primary is lost", func(t *testing.T) {
		s := stage()
		p := startOnStandby(s, primary)
		s.Insert(1)
		s.Arrived(p)
		feedback("off")
		require.Eventually(t, func() bool {
			db := s.DB.(*shop.Postgres)
			db.Server.Exec(t, db.DB, "CREATE TABLE junk ()", "DROP TABLE junk", "VACUUM")
			return !p.Running()
		}, harness.Patience, 100*time.Millisecond, "the server does not give the slot up")
		r := p.Wait(t)
		require.Equal(t, 4, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "OT2033")
		require.Contains(t, r.Stderr, "hot_standby_feedback = on")
		if primary.Major() >= 17 { // 16 does not say why
			require.Contains(t, r.Stderr, "rows_removed")
		}
		feedback("on")
	})
	t.Run("promoted", func(t *testing.T) {
		s := stage()
		p := startOnStandby(s, primary)
		s.Insert(1)
		s.Arrived(p)
		standby.CaughtUp(t, primary)
		s.DB = s.DB.(*shop.Postgres).On(t, standby)
		standby.Promote(t)
		s.Insert(2)
		s.Arrived(p)
		p.Until(t, "the new timeline to be noticed", func() bool { return strings.Contains(p.Stderr(), "has left its timeline") })
		s.Insert(2)
		s.Arrived(p)
		s.Stop(p)
		s.Prove()
		require.NotContains(t, p.Stderr(), "OT2036")
	})
}

func TestAServerThatWasRestoredFromABackupStops(t *testing.T) {
	t.Parallel()
	primary := harness.StartPostgres(t, harness.OldestPostgres(), harness.PostgresOptions{})
	standby := harness.StartStandby(t, primary)
	db := shop.NewPostgres(t, primary, nil)
	s := scene.New(t, &servers, db)
	s.Prove()
	standby.CaughtUp(t, primary)
	standby.Detach(t)
	p := s.Start()
	s.Insert(200) // published, and not in the backup
	s.Arrived(p)
	s.Stop(p)
	stored := s.Stored().Source.LSN

	standby.Unfollow(t)
	s.DB = db.On(t, standby)
	s.Configure("Source", s.DB.Source(""))
	stderr := s.Stops(4, "OT2035", stored, "restored from a backup")
	s.TakeWay(stderr, "--to now")
	s.Prove()
}

func TestAPromotedStandbyThatLacksWhatWasPublishedStopsAndOffersTheFork(t *testing.T) {
	t.Parallel()
	primary, standby := failover(t)
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

// Two standbys of one primary are promoted apart. Their timelines have one number, the positions of both are of one size, and the
// slot stands before the stored position on the other one as well: only where each left the old timeline tells them apart.
func TestAStandbyThatWasPromotedApartIsAnotherLog(t *testing.T) {
	onOwnPostgres(t, harness.PostgresOptions{}, func(t *testing.T, db *shop.Postgres) {
		primary := db.Server
		one, other := harness.StartStandby(t, primary), harness.StartStandby(t, primary)
		s := scene.New(t, &servers, db)
		s.Prove()
		one.CaughtUp(t, primary)
		one.Detach(t)
		s.InsertUnseen(1, "order.changed") // of which the one knows nothing
		other.CaughtUp(t, primary)
		primary.Kill(t)
		one.Promote(t)
		other.Promote(t)
		at, there := db.On(t, one), db.On(t, other)
		slot := `SELECT pg_create_logical_replication_slot('` + db.Slot() + `', 'pgoutput')`
		log := `INSERT INTO orders SELECT i::text, repeat('x', 1000) FROM generate_series(1, %d) i`

		at.Exec(t, slot)
		s.DB = at
		s.Configure("Source", at.Source(""))
		s.TakeWay(s.Stops(4, "OT2034"), "--code OT2034") // nothing keeps a slot for both
		p := s.Start()
		require.Contains(t, p.Stderr(), "timeline=2")
		at.Exec(t, fmt.Sprintf(log, 1000))
		s.Insert(2)
		s.Arrived(p)
		s.Stop(p)
		s.Prove()
		stored := s.Stored().Source.LSN

		s.DB = there
		s.Configure("Source", there.Source(""))
		there.Exec(t, slot)
		s.Insert(3) // before the stored position: what a session from there on would skip
		refused := func() string {
			stderr := s.Stops(4, "OT2037", stored, "of a timeline 2 that began at", "two standbys were promoted")
			r := s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
			require.Contains(t, r.Stdout, "two standbys were promoted", "doctor says what the start says")
			return stderr
		}
		refused() // also where the log ends before it
		there.Exec(t, fmt.Sprintf(log, 3000))
		require.Equal(t, "true", other.Scalar(t, db.DB, "SELECT pg_current_wal_lsn() > '"+stored+"'::pg_lsn"))
		refused()
		other.Fork(t) // it is promoted once more: the other timeline 2 is now an ancestor
		stderr := refused()
		s.TakeWay(stderr, "--code OT2037")
		p = s.Start()
		require.Contains(t, p.Stderr(), "timeline=3")
		s.Insert(1)
		s.Arrived(p)
		s.Stop(p)
		s.DB = at
		s.Configure("Source", at.Source(""))
		s.Stops(4, "OT2037", "on timeline 3, which is no ancestor")
		primary.Start(t) // for what the test leaves behind there
	})
}
