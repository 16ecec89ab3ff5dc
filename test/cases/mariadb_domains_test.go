package cases

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// in commits one event in a session with these settings, and expects it to arrive.
func in(s *scene.Scene, settings string) {
	s.T.Helper()
	id := scene.NewUUID()
	s.DB.Exec(s.T, "SET SESSION "+settings+"; "+fmt.Sprintf(
		"INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', 'order', 'order-1', 'order.changed', '{}')", id))
	s.Expect(id)
}

// Each domain has its own last GTID: none is lost with another one, wherever the process is killed.
func TestB044EachMariaDBDomainIsResumedWhereItIs(t *testing.T) {
	t.Parallel()
	t.Run("two sessions in two domains, interleaved, killed again and again", func(t *testing.T) {
		t.Parallel()
		db := shop.NewMySQL(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true}), "mariadb", nil)
		s := scene.New(t, &servers, db)
		for range 4 {
			run := s.Start()
			for range 5 {
				in(s, "gtid_domain_id = 21")
				in(s, "gtid_domain_id = 22")
				in(s, "gtid_domain_id = 21, server_id = 9") // another primary of the domain
			}
			run.Until(t, "something to be stored", func() bool { return s.Stored().Events > 0 })
			run.Kill(t)
			in(s, "gtid_domain_id = 22")
		}
		s.Prove()
		require.True(t, covers(t, db, s.Stored().Source.GTID, db.Server.Scalar(t, "", "SELECT REGEXP_SUBSTR(@@global.gtid_binlog_pos, '21-.*')")), s.Stored().Source.GTID)
		require.Regexp(t, `,21-9-40,22-1-24`, s.Stored().Source.GTID)

		// By GTID alone, as behind a failover, nothing of either domain comes twice or is missing.
		at := s.Stored().Source.GTID
		in(s, "gtid_domain_id = 22")
		in(s, "gtid_domain_id = 23") // new since
		in(s, "gtid_domain_id = 21")
		r := s.Set(at)
		require.Equal(t, 0, r.Code, r.Stderr)
		before := len(s.Sent)
		s.Prove()
		for _, id := range s.Sent[before-3:] {
			require.Equal(t, 1, s.Times(id))
		}
	})

	t.Run("on a server of its own", func(t *testing.T) {
		t.Parallel()
		server := harness.StartMySQL(t, harness.MySQLOptions{MariaDB: true, Flags: []string{"--gtid-strict-mode=OFF"}})
		db := shop.NewMySQL(t, server, "mariadb", nil)

		t.Run("a domain that was deleted from the log", func(t *testing.T) {
			s := scene.New(t, &servers, db)
			run := s.Start()
			in(s, "gtid_domain_id = 31")
			s.Arrived(run)
			s.Stop(run)
			server.Exec(t, "", "FLUSH BINARY LOGS")
			s.Prove()
			require.Contains(t, s.Stored().Source.GTID, "31-1-1")
			server.PurgeBinlogs(t)
			server.Exec(t, "", "FLUSH BINARY LOGS DELETE_DOMAIN_ID = (31)")
			s.Insert(1)
			s.Prove() // our own place is still there
			require.NotContains(t, s.Stored().Source.GTID, "31-1-1")
			in(s, "gtid_domain_id = 31") // it begins anew
			s.Prove()
			require.Contains(t, s.Stored().Source.GTID, "31-1-1")
		})

		t.Run("numbers that go back in a domain", func(t *testing.T) {
			s := scene.New(t, &servers, db)
			run := s.Start()
			in(s, "gtid_domain_id = 41, gtid_seq_no = 50")
			in(s, "gtid_domain_id = 41, gtid_seq_no = 20")
			s.Arrived(run)
			run.Until(t, "the way to be told", func() bool { return len(s.Stored().Source.GTID) == 0 })
			s.Stop(run)
			require.Contains(t, run.Stderr(), "41-1-20")
			in(s, "gtid_domain_id = 41, gtid_seq_no = 21") // passed over by a dump that begins behind number 50
			server.Exec(t, "", "FLUSH BINARY LOGS")
			in(s, "gtid_domain_id = 41, server_id = 7, gtid_seq_no = 21") // the same number of another server
			in(s, "gtid_domain_id = 41")
			s.Prove()
			in(s, "gtid_domain_id = 41, gtid_seq_no = 30") // while outtail is down
			s.Prove()
			in(s, "gtid_domain_id = 41, gtid_seq_no = 60")
			s.Prove()
			server.Exec(t, "", "FLUSH BINARY LOGS")
			s.Prove()
			require.Contains(t, s.Stored().Source.GTID, "41-1-60", "higher than all before")
			s.Prove()
			for _, id := range s.Sent {
				require.Equal(t, 1, s.Times(id))
			}
		})
	})
}
