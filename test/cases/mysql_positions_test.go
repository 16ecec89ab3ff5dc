package cases

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// onOwn runs tests that reset a server's log on servers of their own, one after the other.
func onOwn(t *testing.T, test func(t *testing.T, server *harness.MySQL, kind string)) {
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, harness.StartMySQL(t, harness.MySQLOptions{MariaDB: kind == "mariadb"}), kind)
		})
	}
}

// insertAt commits one event at a time of the server's clock that is set for it, and expects it to arrive.
func insertAt(s *scene.Scene, second int) {
	id := scene.NewUUID()
	s.DB.Exec(s.T, fmt.Sprintf("SET timestamp = %d; INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', 'order', 'order-1', 'order.changed', '{}')", second, id))
	s.Expect(id)
}

// A log that is not the one that was read is recognised, however much it looks like it, and never read on in silence.
func TestB098ALogThatWasResetOrRestoredIsNotReadOn(t *testing.T) {
	onOwn(t, func(t *testing.T, server *harness.MySQL, kind string) {
		stage := func(t *testing.T) *scene.Scene { return scene.New(t, &servers, shop.NewMySQL(t, server, kind, nil)) }
		const began = 1_700_000_000
		// The file's header says when it was begun; this makes two of the same name and second.
		reset := func(t *testing.T) {
			q := "RESET BINARY LOGS AND GTIDS"
			if kind == "mariadb" {
				q = "RESET MASTER"
			}
			server.Exec(t, "", fmt.Sprintf("SET timestamp = %d; %s", began, q))
		}

		t.Run("the same file regrown past our offset, in another second", func(t *testing.T) {
			s := stage(t)
			s.Prove()
			server.Reset(t, 0)
			for range len(server.Binlogs(t)) + 30 {
				s.Insert(1)
			}
			for server.Binlogs(t)[len(server.Binlogs(t))-1] < s.Stored().Source.File {
				server.Exec(t, "", "FLUSH BINARY LOGS")
			}
			stderr := s.Stops(4, "OT3024", s.Stored().Source.File)
			s.TakeWay(stderr, "--code OT3024")
			s.Prove() // with all that the new log has
		})

		t.Run("the same file regrown past our offset, within the same second", func(t *testing.T) {
			s := stage(t)
			reset(t)
			s.Prove()
			at := s.Stored().Source
			reset(t) // and what is written now has an event of the same kind and length at the same offset
			require.Equal(t, at.File, server.Binlogs(t)[0])
			for range 30 {
				s.Insert(1)
			}
			stderr := s.Stops(4, "OT3024", at.File)
			s.Stops(4, "OT3024")
			s.TakeWay(stderr, "--to earliest")
			s.Prove()
		})

		t.Run("a log that is shorter than our offset, and one that ends before our file", func(t *testing.T) {
			s := stage(t)
			s.Insert(1)
			s.Sent = nil
			s.Prove()
			server.Reset(t, 0)
			stderr := s.Stops(4, "OT3024")
			s.TakeWay(stderr, "--to now")
			server.Exec(t, "", "FLUSH BINARY LOGS")
			s.Prove()
			server.Reset(t, 0)
			stderr = s.Stops(4, "OT3024", "newer than all")
			s.TakeWay(stderr, "--to now")
			s.Prove()
		})

		t.Run("reset while outtail runs", func(t *testing.T) {
			s := stage(t)
			run := s.Start()
			s.Insert(1)
			s.Arrived(run)
			server.Exec(t, "", "FLUSH BINARY LOGS")
			s.Insert(1)
			s.Arrived(run)
			server.Reset(t, 0)
			s.Insert(1)
			r := run.Wait(t)
			require.Equal(t, 4, r.Code, r.Stderr)
			stderr := s.Stops(4, "OT302")
			s.TakeWay(stderr, "--to earliest")
			s.Prove()
		})

		t.Run("restored from a backup: numbers are given out again, and our file looks purged", func(t *testing.T) {
			server.Reset(t, 0)
			s := stage(t)
			s.Prove()
			s.Insert(1)
			s.Prove()
			restore(t, server, 3)
			for i := range 60 {
				insertAt(s, began+i)
			}
			require.True(t, covers(t, s.DB.(*shop.MySQL), executed(t, s.DB.(*shop.MySQL)), s.Stored().Source.GTID), "by numbers alone nothing is amiss")
			stderr := s.Stops(4, "OT3021", "another transaction")
			s.TakeWay(stderr, "--code OT3021")
			s.Prove()
		})

		t.Run("restored from a backup that is older than what was read", func(t *testing.T) {
			server.Reset(t, 0)
			s := stage(t)
			s.Prove()
			at := s.Stored().Source.GTID
			restore(t, server, 3)
			s.Insert(1)
			stderr := s.Stops(4, "OT3021", at[len(at)-1:], "gave out itself")
			s.TakeWay(stderr, "--code OT3021")
			s.Prove()
		})

		if kind == "mariadb" {
			return
		}
		t.Run("under a new server_uuid, its log as it was", func(t *testing.T) {
			server.Reset(t, 0)
			s := stage(t)
			s.Prove()
			s.Insert(1)
			newUUID(t, server)
			s.Insert(1)
			s.Prove() // GTIDs say where we are on any server

			s.Prove()
			setGTIDMode(t, server, "OFF")
			server.Exec(t, "", "SET PERSIST_ONLY gtid_mode = OFF; SET PERSIST_ONLY enforce_gtid_consistency = OFF") // over restarts
			s.Insert(1)
			s.Prove()
			require.Empty(t, s.Stored().Source.GTID)
			s.Insert(1)
			newUUID(t, server)
			s.Insert(1)
			stderr := s.Stops(4, "OT3020", s.Stored().Source.ServerUUID)
			s.TakeWay(stderr, "--code OT3020")
			s.Prove()
			for _, id := range s.Sent {
				require.Equal(t, 1, s.Times(id), "it is provably the same place")
			}
		})

		// From here on transactions have no GTID.
		t.Run("by file and position: the same file regrown past our offset, within the same second", func(t *testing.T) {
			s := stage(t)
			reset(t)
			s.Prove()
			reset(t)
			for range 30 {
				s.Insert(1)
			}
			stderr := s.Stops(4, "OT3024")
			s.TakeWay(stderr, "--code OT3024")
			s.Prove()
		})
		t.Run("by file and position: needed binlogs were purged", func(t *testing.T) {
			for _, way := range []string{"--to earliest", "--code OT3023"} {
				s := stage(t)
				s.Prove()
				s.InsertUnseen(1, "order.changed")
				server.Exec(t, "", "FLUSH BINARY LOGS")
				server.PurgeBinlogs(t)
				s.Insert(1)
				stderr := s.Stops(4, "OT3023", s.Stored().Source.File)
				s.TakeWay(stderr, way)
				s.Prove()
			}
		})
		t.Run("a position inside of a transaction is refused where it is read", func(t *testing.T) {
			s := stage(t)
			s.Prove()
			s.Insert(3)
			var pos, next int
			rows, err := server.DB.Query("SHOW BINLOG EVENTS IN '" + s.Stored().Source.File + "' FROM " + fmt.Sprint(s.Stored().Source.Pos))
			require.NoError(t, err)
			for rows.Next() {
				var file, kind, info string
				var id int
				require.NoError(t, rows.Scan(&file, &next, &kind, &id, &next, &info))
				if kind == "Query" && pos == 0 {
					pos = next // behind BEGIN
				}
			}
			require.NoError(t, rows.Err())
			r := s.Set(fmt.Sprintf("%s:%d", s.Stored().Source.File, pos))
			require.Equal(t, 0, r.Code, r.Stderr)
			stderr := s.Stops(4, "OT3025", "inside of a transaction")
			s.TakeWay(stderr, "--to now")
			s.Sent = s.Sent[:1]
			s.Prove()
		})
	})
}

// restore makes the server one that has its first n transactions in no log, as behind a restore from a backup, and whose files have
// higher numbers than before.
func restore(t *testing.T, m *harness.MySQL, n int) {
	if !m.MariaDB() {
		m.Reset(t, 50)
		m.Exec(t, "", fmt.Sprintf("SET GLOBAL gtid_purged = CONCAT(@@server_uuid, ':1-%d')", n))
		return
	}
	m.Reset(t, 0)
	m.Exec(t, "", fmt.Sprintf("SET GLOBAL gtid_binlog_state = '0-1-%d'", n)) // which begins with the first file again
	for range 5 {
		m.Exec(t, "", "FLUSH BINARY LOGS")
	}
	m.PurgeBinlogs(t)
}

// newUUID makes the server another one in name, as a removed auto.cnf does.
func newUUID(t *testing.T, m *harness.MySQL) {
	m.Remove(t, "/var/lib/mysql/auto.cnf")
	was := m.Scalar(t, "", "SELECT @@server_uuid")
	m.Restart(t)
	require.NotEqual(t, was, m.Scalar(t, "", "SELECT @@server_uuid"))
}

// File names are ordered by their number, not as text: nothing is lost, and nothing read again, where it needs a seventh digit.
func TestB030TheNumberOfABinlogMayPassSixDigits(t *testing.T) {
	onOwn(t, func(t *testing.T, server *harness.MySQL, kind string) {
		server.Reset(t, 999_998)
		s := scene.New(t, &servers, shop.NewMySQL(t, server, kind, nil))
		s.Prove()
		for range 4 {
			s.Insert(1)
			server.Exec(t, "", "FLUSH BINARY LOGS")
			s.Insert(1)
			s.Prove()
		}
		require.Equal(t, "binlog.1000002", s.Stored().Source.File)
		for _, id := range s.Sent {
			require.Equal(t, 1, s.Times(id))
		}
		run := s.Start()
		s.Insert(1)
		s.Arrived(run)
		run.Until(t, "the lag to be known", func() bool { return s.Outtail.Metric(t, "outtail_source_lag_bytes") >= 0 })
		require.Less(t, s.Outtail.Metric(t, "outtail_source_lag_bytes"), 1e6)
		s.Stop(run)

		// The first of seven digits purged, the last of six among what is gone.
		s.Insert(1)
		server.Exec(t, "", "FLUSH BINARY LOGS")
		s.Prove()
		server.PurgeBinlogs(t)
		s.Prove()
	})
}

// B031: what was purged before it was read is named, and only a person goes on.
func TestB031PurgedBinlogsThatWereNotReadAreNamed(t *testing.T) {
	onOwn(t, func(t *testing.T, server *harness.MySQL, kind string) {
		for _, way := range []string{"--to earliest", "--to now", "--code OT3022"} {
			t.Run(way, func(t *testing.T) {
				s := scene.New(t, &servers, shop.NewMySQL(t, server, kind, nil))
				s.Prove()
				s.InsertUnseen(1, "order.changed")
				gone := server.Scalar(t, "", lastGTID[kind])
				server.Exec(t, "", "FLUSH BINARY LOGS")
				server.PurgeBinlogs(t)
				if way == "--to now" {
					s.InsertUnseen(1, "order.changed")
				} else {
					s.Insert(1)
				}
				before := s.Stored()
				stderr := s.Stops(4, "OT3022", "purged", gone)
				require.Equal(t, before, s.Stored(), "a stop stores nothing")
				s.TakeWay(stderr, way)
				s.Prove()
			})
		}
		t.Run("read to the end before it was purged, nothing is missing", func(t *testing.T) {
			s := scene.New(t, &servers, shop.NewMySQL(t, server, kind, nil))
			s.Prove()
			server.Exec(t, "", "FLUSH BINARY LOGS")
			s.Prove()
			server.Exec(t, "", "FLUSH BINARY LOGS")
			server.PurgeBinlogs(t)
			s.Insert(1)
			s.Prove()
		})
	})
}

// Before the first event there is a position already.
func TestB099AnIdleFirstStartStoresItsPosition(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		s := scene.New(t, &servers, db)
		s.Stop(s.Start())
		s.Insert(10)
		s.Prove()
	})
}

// Whatever gtid_mode is and becomes, online, in both directions, while outtail runs and while it is down.
func TestB098GTIDModeMayChangeUnderUs(t *testing.T) {
	t.Parallel()
	server := harness.StartMySQL(t, harness.MySQLOptions{Flags: []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}})
	s := scene.New(t, &servers, shop.NewMySQL(t, server, "mysql", nil))
	once := func() {
		t.Helper()
		for _, id := range s.Sent {
			require.Equal(t, 1, s.Times(id), "nothing twice behind a clean stop")
		}
	}

	run := s.Start()
	for _, mode := range []string{"OFF_PERMISSIVE", "ON_PERMISSIVE", "ON", "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"} {
		s.Insert(1)
		setGTIDMode(t, server, mode)
		s.Insert(2)
		s.Arrived(run)
	}
	s.Stop(run)
	once()

	for _, mode := range []string{"OFF_PERMISSIVE", "ON_PERMISSIVE", "ON", "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"} {
		if mode == "ON" || mode == "OFF" {
			s.Prove() // the server does not send the other kind then
		} else {
			s.Insert(1)
		}
		setGTIDMode(t, server, mode)
		s.Insert(1)
		s.Prove()
		at := s.Stored().Source
		switch mode {
		case "ON":
			server.Exec(t, "", "FLUSH BINARY LOGS")
			s.Prove()
			require.Equal(t, executed(t, s.DB.(*shop.MySQL)), s.Stored().Source.GTID, "taken over where all have one")
		case "OFF":
			require.Empty(t, at.GTID)
		}
		once()
	}

	t.Run("to ON and back to OFF while transactions without GTID were not read", func(t *testing.T) {
		for _, way := range [][2]string{{"ON", "ON_PERMISSIVE"}, {"OFF", "OFF_PERMISSIVE"}} {
			s.Insert(2)
			setGTIDMode(t, server, way[0])
			s.Insert(1)
			s.Stops(4, "OT3025", "gtid_mode = "+way[1])
			setGTIDMode(t, server, way[1])
			s.Prove()
			setGTIDMode(t, server, way[0])
			s.Prove()
			once()
		}
	})
	t.Run("OFF and ON again between two looks: what has no GTID in between is not passed over", func(t *testing.T) {
		setGTIDMode(t, server, "ON")
		server.Exec(t, "", "FLUSH BINARY LOGS")
		s.Prove()
		require.NotEmpty(t, s.Stored().Source.GTID)
		setGTIDMode(t, server, "OFF")
		s.Insert(2)
		setGTIDMode(t, server, "ON")
		s.Insert(1)
		s.Stops(4, "OT3025", "gtid_mode = ON_PERMISSIVE")
		setGTIDMode(t, server, "ON_PERMISSIVE")
		s.Prove()
		setGTIDMode(t, server, "ON")
		s.Prove()
		once()
	})
}
