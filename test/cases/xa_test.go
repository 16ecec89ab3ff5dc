package cases

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// xaScene is a scene on a server that no other test uses, since XA RECOVER lists what all of a server's users prepared.
type xaScene struct {
	*scene.Scene
	db *shop.MySQL
}

// TestB023PreparedTransactions: one part after the other.
func TestB023PreparedTransactions(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := harness.StartMySQL(t, harness.MySQLOptions{MariaDB: kind == "mariadb"})
			run := func(name string, test func(t *testing.T, s *xaScene)) {
				t.Run(name, func(t *testing.T) {
					db := shop.NewMySQL(t, m, kind, nil)
					if kind == "mysql" {
						m.Exec(t, "", "GRANT XA_RECOVER_ADMIN ON *.* TO "+userOf(t, db))
					}
					test(t, &xaScene{scene.New(t, &servers, db), db})
				})
			}
			run("they are published when they commit and not otherwise", publishedWhenTheyCommit)
			run("one from before the first start is a safety stop when it commits", preparedBefore)
			run("beyond their limit they hold until somebody decides", beyondTheLimit)
			run("going back across them loses nothing without a word", goingBackAcross)
			run("kills amid them lose and invent nothing", killsAmid)
		})
	}
}

// prepare leaves a transaction prepared by a connection that is gone, and gives the ids of its events.
func (s *xaScene) prepare(name string, payloads ...string) (ids []string) {
	s.T.Helper()
	q := []string{"XA START " + name}
	for _, p := range payloads {
		id := scene.NewUUID()
		ids = append(ids, id)
		q = append(q, fmt.Sprintf("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', 'order', 'order-1', 'order.changed', %s)", id, p))
	}
	q = append(q, "INSERT INTO orders VALUES ('order-1', 'x')", "XA END "+name, "XA PREPARE "+name)
	s.db.Server.Exec(s.T, s.db.DB, strings.Join(q, ";"))
	return ids
}

// decide commits or rolls back from another connection; the server may take a moment to see that the one that prepared is gone.
func (s *xaScene) decide(what string) {
	s.T.Helper()
	var err error
	require.Eventually(s.T, func() bool {
		_, err = s.db.Server.DB.ExecContext(s.T.Context(), "XA "+what)
		return err == nil
	}, harness.Patience, 20*time.Millisecond, "XA %s: %v", what, err)
}

// name makes an XID of this test, with bytes that are no text.
func (s *xaScene) name(n int) string {
	return fmt.Sprintf("X'00ff27%x',X'0a%02x',%d", s.db.DB, n, 1<<30+n)
}

func publishedWhenTheyCommit(t *testing.T, s *xaScene) {
	p := s.Start()
	s.prepare(s.name(1), `'{"n": "rolled back"}'`)
	s.Insert(5)
	s.Arrived(p)
	s.decide("ROLLBACK " + s.name(1))
	committed := s.prepare(s.name(2), `'{"n": 1}'`, `'{"n": 2}'`)
	s.prepare(s.name(3))
	s.decide("COMMIT " + s.name(3))
	s.Insert(1)
	s.Arrived(p)
	s.Stop(p)
	s.decide("COMMIT " + s.name(2))
	s.Expect(committed...)
	s.Insert(1)

	p = s.Start()
	s.Arrived(p)
	committed = s.prepare(s.name(2), `'{"n": "the same name again"}'`)
	s.Insert(1)
	s.Arrived(p)
	p.Kill(t)
	p = s.Start()
	s.decide("COMMIT " + s.name(2))
	s.Expect(committed...)
	s.Insert(1)
	s.Arrived(p)
	s.Stop(p)
	info, err := os.Stat(filepath.Join(s.Outtail.DataDir, "parked.db"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func preparedBefore(t *testing.T, s *xaScene) {
	s.prepare(s.name(1), `'{"n": "before"}'`)
	p := s.Start()
	s.Insert(1)
	s.Arrived(p)
	s.decide("COMMIT " + s.name(1))
	s.Insert(1)
	r := p.Wait(t)
	require.Equal(t, 4, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "OT3033")
	require.Contains(t, r.Stderr, "was prepared before the position at which reading began")
	s.TakeWay(s.Stops(4, "OT3033"), "--code OT3033")
	p = s.Start()
	s.Arrived(p)
	s.Stop(p)
}

func beyondTheLimit(t *testing.T, s *xaScene) {
	s.Configure("Pipeline", "    limits: { xa: 100KiB }")
	p := s.Start()
	const large = "CONCAT('{\"x\": \"', REPEAT('x', 60000), '\"}')"
	first := s.prepare(s.name(1), large)
	second := s.prepare(s.name(2), large)
	later := s.InsertUnseen(1, "order.changed")
	text := s.Says(p, "OT3051")
	require.Contains(t, text, fmt.Sprintf("X'00ff27%x',X'0a01',%d", s.db.DB, 1<<30+1), "the oldest is named")
	s.decide("COMMIT " + s.name(1))
	s.Expect(later...)
	s.Expect(first...)
	s.Arrived(p)
	s.decide("COMMIT " + s.name(2))
	s.Expect(second...)
	s.Arrived(p)
	p.WaitReady(t)
	s.Stop(p)
}

// killsAmid: I1, I2 and I3 with several transactions prepared at any time, and with everything read again now and then.
func killsAmid(t *testing.T, s *xaScene) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	s.Prove()
	first := s.Mark(time.Now().Add(-50 * time.Minute).Truncate(time.Second))
	p := s.Start()
	open := map[int][]string{}
	n := 0
	for range 4 {
		for range 9 {
			switch {
			case len(open) < 2 || len(open) < 5 && rng.IntN(2) == 0:
				n++
				open[n] = s.prepare(s.name(n), fmt.Sprintf(`'{"n": %d}'`, n), "NULL")
			case rng.IntN(3) == 0:
				s.Insert(1)
			default:
				for k, ids := range open { // any
					if rng.IntN(3) == 0 {
						s.decide("ROLLBACK " + s.name(k))
					} else {
						s.decide("COMMIT " + s.name(k))
						s.Expect(ids...)
					}
					delete(open, k)
					break
				}
			}
		}
		// What was written last is read, kept, sent or stored at this moment, or not yet.
		p.Kill(t)
		if rng.IntN(2) == 0 {
			r := s.Outtail.Run(t, "checkpoint", "rewind", "-c", s.Outtail.Config, "--pipeline", "orders", "--to", first, "--reason", "everything again")
			if r.Code != 0 {
				require.Contains(t, r.Stderr, "OT0018", "killed before anything was stored, it stands there already")
			}
			for rng.IntN(2) == 0 {
				p = s.Start()
				p.Kill(t)
			}
		}
		p = s.Start()
	}
	for k, ids := range open {
		s.decide("COMMIT " + s.name(k))
		s.Expect(ids...)
	}
	s.Arrived(p)
	s.Stop(p)
}

// goingBackAcross: rows of a prepared transaction that is not decided are still kept at a position between; those of one that was decided
// since are swept, so that its commit is a safety stop there; from before the PREPARE everything is read again.
func goingBackAcross(t *testing.T, s *xaScene) {
	began := time.Now().Add(-50 * time.Minute).Truncate(time.Second)
	s.Prove()
	before := s.Mark(began)
	decided := s.prepare("'decided'", `'"d"'`)
	open := s.prepare("'open'", `'"o"'`)
	s.Prove()
	between := s.Mark(began.Add(time.Minute))
	s.Prove()
	s.Rewind(0, between, "--reason", "both are kept")
	s.Again(2)
	s.decide("COMMIT 'decided'")
	s.Expect(decided...)
	s.Prove()
	s.Prove() // a start sweeps what the position covers

	s.Rewind(0, between, "--reason", "the rows of one are gone")
	s.Stops(4, "OT3033", fmt.Sprintf("%x", "decided"))
	s.Rewind(0, before, "--reason", "before both")
	p := s.Start()
	s.Insert(1)
	p.Until(t, "its rows once more", func() bool {
		s.Arrived(p)
		return s.Times(decided[0]) == 2
	})
	s.Stop(p)
	s.decide("COMMIT 'open'")
	s.Expect(open...)
	s.Prove()
}
