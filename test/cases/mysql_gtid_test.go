package cases

import (
	"fmt"
	"strings"
	"testing"

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
	})
}

// lastGTID asks for the last GTID that the server gave out, as its set names it.
var lastGTID = map[string]string{
	"mysql":   "SELECT REGEXP_SUBSTR(@@global.gtid_executed, '[0-9]+$')",
	"mariadb": "SELECT SUBSTRING_INDEX(@@global.gtid_binlog_pos, ',', 1)",
}
