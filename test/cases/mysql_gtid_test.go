package cases

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// pair is two servers of which each can be the other's replica, and the address that clients know.
type pair struct {
	a, b *harness.MySQL
	via  *harness.Proxy
	kind string
}

func newPair(t *testing.T, kind string, flags ...string) *pair {
	start := func(id int) *harness.MySQL {
		o := harness.MySQLOptions{MariaDB: kind == "mariadb", Flags: append([]string{fmt.Sprintf("--server-id=%d", id)}, flags...)}
		if o.MariaDB {
			o.Flags = append(o.Flags, "--log-slave-updates=ON")
		}
		return harness.StartMySQL(t, o)
	}
	p := &pair{a: start(1), b: start(2), kind: kind}
	p.via = harness.NewProxy(t, p.a.Addr())
	return p
}

// scene sets a stage whose database is on the first server and replicated to the second.
func (p *pair) scene(t *testing.T) *scene.Scene {
	p.via.Point(p.a.Addr())
	return scene.New(t, &servers, shop.NewMySQL(t, p.a, p.kind, p.via))
}

// failover makes another server the primary: the address leads there, and so does the shop.
func (p *pair) failover(s *scene.Scene, to *harness.MySQL) {
	to.Promote(s.T)
	p.via.Point(to.Addr())
	s.DB = s.DB.(*shop.MySQL).On(s.T, to)
}

func onPairs(t *testing.T, test func(t *testing.T, p *pair)) {
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newPair(t, kind))
		})
	}
}

// A GTID position goes on at the server that takes over, and a file and position never do. One after the other on the same two
// servers, since they are what takes time.
func TestB039AFailoverGoesOnByGTIDWithNothingLostAndInOrder(t *testing.T) {
	onPairs(t, func(t *testing.T, p *pair) {
		p.b.ReplicateFrom(t, p.a)

		t.Run("to a replica and back while outtail runs", func(t *testing.T) {
			s := p.scene(t)
			run := s.Start()
			s.Insert(5)
			s.Arrived(run)
			s.Insert(5)
			p.b.CatchUp(t, p.a)
			p.failover(s, p.b) // the same file names
			s.Insert(5)
			s.Arrived(run)
			// What only the new primary has, and its own numbering of files.
			for range 4 {
				p.b.Exec(t, "", "FLUSH BINARY LOGS")
				s.Insert(1)
			}
			p.a.ReplicateFrom(t, p.b)
			s.Insert(3)
			p.a.CatchUp(t, p.b)
			p.failover(s, p.a) // the new server's files have smaller numbers
			s.Insert(5)
			s.Arrived(run)
			p.b.ReplicateFrom(t, p.a)
			s.Insert(2)
			p.b.CatchUp(t, p.a)
			p.failover(s, p.b) // larger numbers
			s.Insert(2)
			s.Arrived(run)
			s.Stop(run)
			for _, id := range s.Sent {
				require.LessOrEqual(t, s.Times(id), 2, "what is sent again is what was in flight")
			}
			p.a.ReplicateFrom(t, p.b)
			p.a.CatchUp(t, p.b)
			p.a.Promote(t)
		})

		t.Run("to a replica that has transactions of its own, while outtail is down", func(t *testing.T) {
			s := p.scene(t)
			p.b.ReplicateFrom(t, p.a)
			s.Prove()
			s.Insert(2)
			p.b.CatchUp(t, p.a)
			p.b.Promote(t)
			s.DB = s.DB.(*shop.MySQL).On(t, p.b)
			s.Insert(1) // errant until somebody promotes it
			p.failover(s, p.b)
			s.Insert(1)
			s.Prove()
			p.a.ReplicateFrom(t, p.b)
			p.a.Promote(t)
		})

		t.Run("to a replica that has purged what was not read", func(t *testing.T) {
			s := p.scene(t)
			p.b.ReplicateFrom(t, p.a)
			s.Prove()
			gone := s.InsertUnseen(1, "order.changed")
			p.b.CatchUp(t, p.a)
			lacks := p.a.Scalar(t, "", lastGTID[p.kind])
			p.b.Exec(t, "", "FLUSH BINARY LOGS")
			p.b.PurgeBinlogs(t)
			p.failover(s, p.b)
			s.Insert(1)
			stderr := s.Stops(4, "OT3022", "has purged", lacks)
			s.Stops(4, "OT3022")
			s.TakeWay(stderr, "--code OT3022")
			s.Prove()
			require.Zero(t, s.Times(gone[0]))
			p.a.ReplicateFrom(t, p.b)
			p.a.Promote(t)
		})

		t.Run("to a replica that never got the last transactions, which were published", func(t *testing.T) {
			s := p.scene(t)
			p.b.ReplicateFrom(t, p.a)
			run := s.Start()
			s.Insert(1)
			s.Arrived(run)
			p.b.CatchUp(t, p.a)
			p.b.Promote(t)
			s.Insert(1)
			s.Insert(1)
			s.Arrived(run)
			lost := p.a.Scalar(t, "", lastGTID[p.kind])
			// The new primary counts on, beyond the lost numbers.
			s.DB = s.DB.(*shop.MySQL).On(t, p.b)
			for range 5 {
				s.Insert(1)
			}
			p.failover(s, p.b)
			r := run.Wait(t)
			require.Equal(t, 4, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, "OT3021")
			require.Contains(t, r.Stderr, lost[strings.LastIndexAny(lost, ":-")+1:], "the lost ones are named")
			s.Stops(4, "OT3021")
			s.TakeWay(r.Stderr, "--code OT3021")
			s.Prove() // all that the new primary committed meanwhile, too
		})

		if p.kind == "mariadb" {
			return // it always has GTIDs
		}
		t.Run("with gtid_mode off, to a replica: a file and position mean nothing there", func(t *testing.T) {
			for _, m := range []*harness.MySQL{p.a, p.b} {
				setGTIDMode(t, m, "OFF")
			}
			p.b.ReplicateByPosition(t, p.a)
			s := p.scene(t)
			run := s.Start()
			s.Insert(2)
			s.Arrived(run)
			at := s.Stored().Source
			require.Empty(t, at.GTID)
			require.Eventually(t, func() bool {
				return p.b.Scalar(t, "", "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'outbox' AND table_schema = ?", s.DB.(*shop.MySQL).DB) == "1" &&
					p.b.Scalar(t, s.DB.(*shop.MySQL).DB, "SELECT COUNT(*) FROM outbox") == "2"
			}, harness.Patience, 50*time.Millisecond)
			// The same name, grown beyond our offset.
			for p.b.Binlogs(t)[len(p.b.Binlogs(t))-1] < at.File {
				p.b.Exec(t, "", "FLUSH BINARY LOGS")
			}
			p.failover(s, p.b)
			r := run.Wait(t)
			require.Equal(t, 4, r.Code, r.Stderr)
			for _, want := range []string{"OT3020", at.ServerUUID, p.b.Scalar(t, "", "SELECT @@server_uuid")} {
				require.Contains(t, r.Stderr, want)
			}
			s.InsertUnseen(1, "order.changed")
			s.Stops(4, "OT3020")
			s.TakeWay(r.Stderr, "--to now")
			s.Prove()
		})
	})
}

// setGTIDMode goes through the modes one by one, as the server wants it.
func setGTIDMode(t *testing.T, m *harness.MySQL, mode string) {
	modes := []string{"OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"}
	at, to := slices.Index(modes, m.Scalar(t, "", "SELECT @@global.gtid_mode")), slices.Index(modes, mode)
	for at != to {
		if at < to {
			at++
		} else {
			at--
		}
		if modes[at] == "ON" || modes[at] == "ON_PERMISSIVE" {
			m.Exec(t, "", "SET GLOBAL enforce_gtid_consistency = ON")
		}
		m.Exec(t, "", "SET GLOBAL gtid_mode = "+modes[at])
	}
}

// Tags are part of a GTID's name: they are stored, shown, resumed from and can be named by a person.
func TestB037GTIDsWithTagsAreStoredShownAndResumedFrom(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, db *shop.MySQL) {
		s := scene.New(t, &servers, db)
		run := s.Start()
		insert := func(tags ...string) {
			for _, tag := range tags {
				id := scene.NewUUID()
				db.Exec(t, "SET gtid_next = 'AUTOMATIC"+tag+"'; "+fmt.Sprintf("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', 'order', 'order-1', 'order.changed', '{}')", id))
				s.Expect(id)
			}
		}
		insert(":blue", "", ":blue", ":a_1", ":blue")
		s.Arrived(run)
		s.Stop(run)
		at := s.Stored().Source.GTID
		require.Regexp(t, ":a_1:1(-[0-9]+)?:blue:1-[0-9]+", at)
		r := s.Outtail.Run(t, "checkpoint", "show", "-c", s.Outtail.Config)
		require.Contains(t, r.Stdout, at, "a person sees them")

		insert(":green", ":blue", "")
		s.Prove()
		for _, id := range s.Sent {
			require.Equal(t, 1, s.Times(id), "nothing twice behind a clean stop")
		}

		// By the set alone, as behind a failover.
		r = s.Set(at)
		require.Equal(t, 0, r.Code, r.Stderr)
		insert(":blue")
		s.Prove()
		for i, id := range s.Sent {
			require.Equal(t, 1+btoi(i >= 5 && i <= 8), s.Times(id), "event %d: what the set has does not come again, what it lacks does", i)
		}

		// A fresh start behind a set with tags.
		set := db.Server.Scalar(t, "", "SELECT REPLACE(@@global.gtid_executed, '\n', '')")
		require.Contains(t, set, ":blue:")
		other := scene.New(t, &servers, db)
		other.Configure("Source", other.Source("start", `{ gtid: "`+set+`" }`))
		s = other
		insert(":blue", "", ":red")
		other.Prove()
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// executed is the server's GTID position.
func executed(t *testing.T, db *shop.MySQL) string {
	if db.Kind() == "mariadb" {
		return db.Server.Scalar(t, "", "SELECT @@global.gtid_binlog_pos")
	}
	return db.Server.Scalar(t, "", "SELECT @@global.gtid_executed")
}

// covers reports whether a stored GTID position has all of another one.
func covers(t *testing.T, db *shop.MySQL, stored, all string) bool {
	if db.Kind() == "mysql" {
		return db.Server.Scalar(t, "", "SELECT GTID_SUBSET(?, ?)", all, stored) == "1"
	}
	seq := func(pos string) (of map[string]int) {
		of = map[string]int{}
		for g := range strings.SplitSeq(pos, ",") {
			var domain string
			var n int
			if f := strings.Split(g, "-"); len(f) == 3 {
				domain = f[0]
				n, _ = strconv.Atoi(f[2])
			}
			of[domain] = n
		}
		return of
	}
	have := seq(stored)
	for domain, n := range seq(all) {
		if have[domain] < n {
			return false
		}
	}
	return true
}

// lastGTID asks for the last GTID that the server gave out, as its set names it.
var lastGTID = map[string]string{
	"mysql":   "SELECT REGEXP_SUBSTR(@@global.gtid_executed, '[0-9]+$')",
	"mariadb": "SELECT SUBSTRING_INDEX(@@global.gtid_binlog_pos, ',', 1)",
}
