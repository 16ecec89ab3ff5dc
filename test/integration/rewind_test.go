package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

func TestGoingBackDeliversFromThereOn(t *testing.T) {
	for name, db := range map[string]func(*testing.T) (shop.Database, string){
		"postgres": func(t *testing.T) (shop.Database, string) {
			db := shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
			return db, db.Source(", rewind_window: 1GiB")
		},
		"mysql": func(t *testing.T) (shop.Database, string) {
			db := shop.NewMySQL(t, servers.MySQL(t), "mysql", nil)
			return db, db.Source("")
		},
		"mariadb": func(t *testing.T) (shop.Database, string) {
			db := shop.NewMySQL(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true}), "mariadb", nil)
			return db, db.Source("")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, source := db(t)
			s := scene.New(t, &servers, db)
			s.Configure("Source", source)
			run := func(n int) {
				p := s.Start()
				s.Insert(n)
				s.Arrived(p)
				s.Stop(p)
			}
			began := time.Now().Add(-50 * time.Minute).Truncate(time.Second)
			run(3)
			three := s.Mark(began)
			run(2)
			five := s.Mark(began.Add(10 * time.Minute))
			run(1)
			six := s.Stored().Source
			at := six.LSN
			if at == "" {
				at = six.GTID
			}
			p := s.Start()
			s.Insert(4)
			s.Arrived(p)

			// Beside a running process only the question is answered.
			a, _ := s.Rewind(0, three, "--dry-run")
			require.True(t, a.DryRun)
			s.Rewind(0, at, "--dry-run")
			s.Rewind(5, three, "--reason", "it runs")
			s.Stop(p)
			here := s.Stored()
			s.Rewind(2, three)
			_, stderr := s.Rewind(2, "hzzzz", "--reason", "no such entry")
			require.Contains(t, stderr, "OT0017")
			_, stderr = s.Rewind(2, "24h", "--reason", "before everything")
			require.Contains(t, stderr, "OT0017")
			a, _ = s.Rewind(0, three, "--dry-run")
			require.EqualValues(t, 7, *a.Events)
			require.Positive(t, a.LogBytes)
			require.Equal(t, here, s.Stored(), "nothing was changed so far")

			a, _ = s.Rewind(0, three, "--reason", "by entry")
			require.Equal(t, three, a.Entry)
			_, stderr = s.Rewind(2, five, "--reason", "that would skip two")
			require.Contains(t, stderr, "OT0018")
			s.Again(3)
			a, _ = s.Rewind(0, began.Add(12*time.Minute).Format(time.RFC3339), "--reason", "by time")
			require.Equal(t, five, a.Entry, "the newest that is not younger")
			require.EqualValues(t, 6, *a.Events, "what was sent twice counts once")
			s.Again(5)
			a, _ = s.Rewind(0, at, "--reason", "by position")
			require.Empty(t, a.Entry)
			s.Again(6)

			var acts []struct {
				Action, Outcome string
				Range           struct{ From, To string }
				Counts          map[string]int64
			}
			r := s.Outtail.Run(t, "audit", "-c", s.Outtail.Config, "--json")
			require.NoError(t, json.Unmarshal([]byte(r.Stdout), &acts))
			require.NotContains(t, r.Stdout, "token", "by which our sessions are known on MySQL")
			require.Len(t, acts, 3)
			require.Equal(t, "checkpoint rewind", acts[0].Action)
			require.Equal(t, "done", acts[0].Outcome)
			require.EqualValues(t, 7, acts[0].Counts["events"])
			require.NotEqual(t, acts[0].Range.From, acts[0].Range.To)
		})
	}
}

// What the server does not hold any more is refused, with the oldest that is possible, and nothing is changed.
func TestGoingBackBeyondWhatTheServerHolds(t *testing.T) {
	t.Run("mysql, purged", func(t *testing.T) {
		t.Parallel()
		server := harness.StartMySQL(t, harness.MySQLOptions{})
		s := scene.New(t, &servers, shop.NewMySQL(t, server, "mysql", nil))
		began := time.Now().Add(-50 * time.Minute).Truncate(time.Second)
		s.Prove()
		one := s.Mark(began)
		s.Prove()
		two := s.Mark(began.Add(time.Minute))
		s.Prove()
		server.Exec(t, "mysql", "FLUSH BINARY LOGS")
		s.Prove()
		three := s.Mark(began.Add(2 * time.Minute))
		s.Prove()
		server.Exec(t, "mysql", "PURGE BINARY LOGS TO '"+s.Stored().Source.File+"'")
		for _, to := range []string{one, two} {
			_, stderr := s.Rewind(2, to, "--reason", "too far")
			require.Contains(t, stderr, "OT0019")
			require.Contains(t, stderr, "--to "+three)
		}
		s.Rewind(0, three, "--reason", "as far as possible")
		s.Again(4)
	})
	t.Run("postgres, beyond the slot", func(t *testing.T) {
		t.Parallel()
		db := shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
		s := scene.New(t, &servers, db)
		began := time.Now().Add(-50 * time.Minute).Truncate(time.Second)
		s.Prove()
		one := s.Mark(began)
		lsn := s.Stored().Source.LSN
		s.Prove()
		was := s.Stored()
		// The server reads what it was told last after the process has ended.
		require.Eventually(t, func() bool {
			return db.Server.Scalar(t, "postgres", "SELECT confirmed_flush_lsn > '"+lsn+"' FROM pg_replication_slots WHERE slot_name = '"+db.Slot()+"'") == "true"
		}, harness.Patience, 50*time.Millisecond)
		for _, to := range []string{one, lsn} {
			_, stderr := s.Rewind(2, to, "--reason", "too far")
			require.Contains(t, stderr, "OT0019")
			require.Contains(t, stderr, "the slot stands at")
			require.Contains(t, stderr, "rewind_window")
		}
		require.Equal(t, was, s.Stored())
		s.Prove()
	})
}

// Going back before and between parked events: what is parked stays, once, and what it follows is sent again in front of it.
func TestGoingBackAcrossParkedEvents(t *testing.T) {
	for name, db := range map[string]func(*testing.T) (shop.Database, string){
		"postgres": func(t *testing.T) (shop.Database, string) {
			db := shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
			return db, db.Source(", rewind_window: 1GiB")
		},
		"mysql": func(t *testing.T) (shop.Database, string) {
			db := shop.NewMySQL(t, servers.MySQL(t), "mysql", nil)
			return db, db.Source("")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, source := db(t)
			l := newParkLot(t, db)
			l.Configure("Source", source)
			began := time.Now().Add(-50 * time.Minute).Truncate(time.Second)
			p := l.Start()
			l.write("a", "order.created", 0)
			l.holds(p, map[string]int{"a": 1})
			l.Stop(p)
			first := l.Mark(began)
			p = l.Start()
			l.write("a", "order.changed", 0)
			l.write("a", "payment.made", 0) // no route
			l.holds(p, map[string]int{"a": 2})
			p.Until(t, "one parked", func() bool { return len(l.parked()) == 1 })
			l.Stop(p)
			between := l.Mark(began.Add(time.Minute))
			p = l.Start()
			l.write("a", "order.paid", 0)
			l.write("b", "order.created", 0)
			l.holds(p, map[string]int{"b": 1})
			p.Until(t, "two parked", func() bool { return len(l.parked()) == 2 })
			l.Stop(p)

			a, _ := l.Rewind(0, between, "--reason", "between them")
			require.EqualValues(t, 1, a.Parked)
			p = l.Start()
			l.holds(p, map[string]int{"b": 2})
			l.Stop(p)
			require.Len(t, l.parked(), 2, "each once")
			a, _ = l.Rewind(0, first, "--reason", "before them")
			require.EqualValues(t, 2, a.Parked)
			p = l.Start()
			l.holds(p, map[string]int{"a": 3, "b": 3})
			require.Equal(t, []string{"a:0", "a:1", "a:1"}, l.seen["a"])
			l.Stop(p)
			require.Len(t, l.parked(), 2, "each once")
			l.Configure("Match", "")
			p = l.Start()
			l.dlq(0, "replay", "--all", "--reason", "route added")
			l.holds(p, map[string]int{"a": 5})
			require.Equal(t, []string{"a:0", "a:1", "a:1", "a:2", "a:3"}, l.seen["a"])
			require.Empty(t, l.parked())
			l.Stop(p)
		})
	}
}

// An exported position goes on in an empty data_dir, as on another host, without a gap and without a repeat.
func TestAPositionMovesToAnotherDataDir(t *testing.T) {
	eachKind(t, func(t *testing.T, db shop.Database) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		s.Insert(3)
		s.Arrived(p)
		file := filepath.Join(t.TempDir(), "orders.json")
		export := []string{"checkpoint", "export", "-c", s.Outtail.Config, "--pipeline", "orders", "--output", file}
		require.Equal(t, 0, s.Outtail.Run(t, export...).Code, "beside the running process, too")
		s.Stop(p)
		require.Equal(t, 0, s.Outtail.Run(t, export...).Code)
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(content), "token")
		was := s.Stored()
		require.NoError(t, os.RemoveAll(s.Outtail.DataDir))

		r := s.Outtail.Run(t, "checkpoint", "import", "-c", s.Outtail.Config, "--pipeline", "orders", "--from", file, "--reason", "another host")
		require.Equal(t, 0, r.Code, r.Stderr)
		require.Equal(t, was.Source, s.Stored().Source)
		s.Again(3)
	})
}
