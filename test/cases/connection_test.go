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

// userOf is the name under which outtail logs in.
func userOf(t testing.TB, db *shop.MySQL) string {
	m := regexp.MustCompile(`user: (\w+)`).FindStringSubmatch(db.Source(""))
	require.Len(t, m, 2)
	return m[1]
}

// killSessions ends the sessions of outtail's user whose command is like a pattern, and says how many there were.
func killSessions(t testing.TB, db *shop.MySQL, like string) int {
	ids := db.Server.Scalar(t, "", "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE user = ? AND command "+like, userOf(t, db))
	if ids == "" {
		return 0
	}
	list := strings.Split(ids, ",")
	for _, id := range list {
		// One may have gone by itself meanwhile.
		_, _ = db.Server.DB.ExecContext(t.Context(), "KILL "+id)
	}
	return len(list)
}

const (
	dumps  = "LIKE 'Binlog Dump%'"
	others = "NOT LIKE 'Binlog Dump%'" // the metadata session and the one that holds the pipeline's lock
)

// throughProxy runs a test with a proxy between outtail and its server, on both, beside others.
func throughProxy(t *testing.T, test func(t *testing.T, db *shop.MySQL, via *harness.Proxy)) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := servers.MySQLWith(t, harness.MySQLOptions{MariaDB: kind == "mariadb"})
			via := harness.NewProxy(t, m.Addr())
			test(t, shop.NewMySQL(t, m, kind, via), via)
		})
	}
}

func TestB139AConnectionThatFallsSilentIsNoticedAndMadeAnew(t *testing.T) {
	throughProxy(t, func(t *testing.T, db *shop.MySQL, via *harness.Proxy) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		s.Insert(2)
		s.Arrived(p)
		via.Stall()
		began := time.Now()
		p.WaitStatus(t, "/readyz", 503)
		t.Logf("noticed after %v", time.Since(began))
		s.Insert(3)
		via.Resume(t)
		s.Arrived(p)
		p.WaitReady(t)

		via.Stall()
		r := p.Terminate(t) // closing waits for nobody
		require.Equal(t, 0, r.Code, r.Stderr)
		via.Resume(t)
		s.Insert(1)
		s.Prove()
	})
}

func TestB139AServerThatSaysNothingAtTheStart(t *testing.T) {
	throughProxy(t, func(t *testing.T, db *shop.MySQL, via *harness.Proxy) {
		s := scene.New(t, &servers, db)
		s.Configure("StartTimeout", "5s")
		via.Stall()
		p := s.Outtail.Start(t)
		require.NotEmpty(t, s.Says(p, "OT6006"), "starting says what it waits for")
		r := p.Wait(t)
		require.Equal(t, 3, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "start_timeout")
		via.Resume(t)
		s.Prove()
	})
}

func TestB145AServerThatIsFrozenKilledAndLosesEverySession(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := harness.StartMySQL(t, harness.MySQLOptions{MariaDB: kind == "mariadb"})
			db := shop.NewMySQL(t, m, kind, nil)
			s := scene.New(t, &servers, db)
			p := s.Start()
			s.Insert(2)
			s.Arrived(p)
			m.Pause(t)
			p.WaitStatus(t, "/readyz", 503)
			m.Unpause(t)
			s.Insert(2)
			s.Arrived(p)
			p.WaitReady(t)

			// The same server, killed and started again, in the middle of events, and every session by itself.
			faults := 0
			end := func(like string) {
				s.Insert(3)
				n := 0
				p.Until(t, "a session to end", func() bool { n = killSessions(t, db, like); return n > 0 })
				faults += n
			}
			for range 3 {
				end(dumps)
				end(others)
				end("LIKE '%'")
				s.Insert(3)
				m.Kill(t)
				m.Start(t)
				faults++
			}
			s.Insert(1)
			s.Arrived(p)
			p.WaitReady(t)
			s.Stop(p)
			require.GreaterOrEqual(t, faults, 12)
			t.Logf("%d sessions and servers ended, %d events, %d of them repeated", faults, len(s.Sent), len(s.Seen)-len(s.Sent))
		})
	}
}

func TestB145ASessionThatIsKilledComesBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		p := s.Start()
		for _, like := range []string{dumps, others, "LIKE '%'"} {
			s.Insert(2)
			p.WaitReady(t)
			require.Positive(t, killSessions(t, db, like))
			s.Insert(2)
			s.Arrived(p)
			p.Until(t, "all sessions to be back", func() bool {
				return db.Server.Scalar(t, "", "SELECT COUNT(*) FROM information_schema.processlist WHERE user = ?", userOf(t, db)) == "3"
			})
		}
		s.Stop(p)
	})
}

func TestTwoProcessesOfOnePipelineNeverSendBesideEachOther(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		one := s.Start()
		s.Insert(2)
		s.Arrived(one)

		there := *s
		there.Outtail = harness.NewOuttail(t, servers.Binary(t), scene.Configuration, s.Vars)
		two := there.Outtail.Start(t)
		two.Until(t, "the second one to wait", func() bool { return strings.Contains(two.Stderr(), "waiting as a standby") })
		two.WaitReady(t)
		require.Contains(t, two.Stderr(), "OT3015")
		r := there.Outtail.Run(t, "doctor", "-c", there.Outtail.Config)
		require.Contains(t, []int{0, 1}, r.Code, "doctor takes no lock: %s", r.Stdout)
		s.Insert(2)
		s.Arrived(one)
		require.Zero(t, there.Outtail.Metric(t, "outtail_events_read_total"))

		stored := func() string {
			s.Stop(one)
			return s.Stored().Source.GTID
		}()
		ended := two.Wait(t)
		require.Equal(t, 4, ended.Code, ended.Stderr)
		require.Contains(t, ended.Stderr, "OT3017")
		r = there.Set(stored)
		require.Equal(t, 0, r.Code, r.Stderr)
		s.Insert(2)
		two = there.Start()
		s.Arrived(two)
		require.Len(t, s.Seen, len(s.Sent), "from exactly there")
		there.Stop(two)
	})
}

func TestB154APrivilegeThatIsRevokedHoldsAndLosesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		p := s.Start()
		user := userOf(t, db)
		db.Exec(t, fmt.Sprintf("REVOKE REPLICATION SLAVE ON *.* FROM '%s'@'%%'", user))
		s.Insert(1)
		s.Arrived(p) // a session that is open keeps its privileges
		killSessions(t, db, "LIKE '%'")
		text := s.Says(p, "OT3008")
		require.Contains(t, text, "REPLICATION SLAVE")
		s.Insert(2)
		db.Exec(t, fmt.Sprintf("GRANT REPLICATION SLAVE ON *.* TO '%s'@'%%'", user))
		s.Arrived(p)
		p.WaitReady(t)
		s.Stop(p)
	})
}

func TestB119ATimeThatASessionMadeUpIsNoLag(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		p := s.Start()
		for _, at := range []string{"1", "2000000000"} { // 1970, 2033
			id := scene.NewUUID()
			db.Exec(t, fmt.Sprintf("SET timestamp = %s; INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type) VALUES ('%s', 'order', 'order-1', 'x')", at, id))
			s.Expect(id)
			s.Arrived(p)
		}
		p.WaitReady(t)
		const year = 365 * 24 * 3600
		for _, name := range []string{"outtail_source_lag_seconds", "outtail_commit_to_ack_seconds_sum", "outtail_oldest_unacked_seconds"} {
			v := s.Outtail.Metric(t, name)
			require.GreaterOrEqual(t, v, 0.0, name)
			require.Less(t, v, float64(year), name)
		}
		s.Stop(p)
	})
}
