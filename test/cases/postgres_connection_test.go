package cases

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// endSessions ends sessions of outtail's role and says how many there were.
func endSessions(t *testing.T, db *shop.Postgres, which string) int64 {
	t.Helper()
	return pgNumber(t, db, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '"+db.User()+"' AND "+which)
}

func TestB145ASessionOfPostgresThatIsTerminatedComesBack(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		for _, which := range []string{"backend_type = 'walsender'", "backend_type <> 'walsender'", "true"} {
			s.Insert(2)
			p.Until(t, "a session to end", func() bool { return endSessions(t, db, which) > 0 })
			s.Insert(2)
			s.Arrived(p)
		}
		p.Until(t, "both sessions to be back", func() bool {
			return pgNumber(t, db, "SELECT count(*) FROM pg_stat_activity WHERE usename = '"+db.User()+"'") == 2
		})
		p.WaitReady(t)
		s.Stop(p)
	})
}

func TestB154ThePrivilegesOfARoleOfPostgres(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		// What lies in the log needs no SELECT.
		db.Exec(t, "REVOKE SELECT ON ALL TABLES IN SCHEMA public FROM "+db.User())
		s := scene.New(t, &servers, db)
		p := s.Start()
		s.Insert(1)
		s.Arrived(p)

		db.Exec(t, "ALTER ROLE "+db.User()+" NOREPLICATION")
		s.Insert(1)
		s.Arrived(p) // a session that is open keeps what it has
		p.Until(t, "the session to end", func() bool { return endSessions(t, db, "backend_type = 'walsender'") > 0 })
		require.Contains(t, s.Says(p, "OT2011"), "replication")
		s.Insert(2)
		db.Exec(t, "ALTER ROLE "+db.User()+" REPLICATION")
		s.Arrived(p)
		p.WaitReady(t)
		s.Stop(p)
	})
}

// Logical replication needs an entry for its database, and one that names "replication" alone is none.
func TestB154AnEntryOfPgHbaThatLacksIsNamed(t *testing.T) {
	t.Parallel()
	server := harness.StartPostgres(t, harness.NewestPostgres(), harness.PostgresOptions{})
	db := shop.NewPostgres(t, server, nil)
	s := scene.New(t, &servers, db)
	s.Prove()
	hba := func(entry string) {
		// The harness's own way in stays.
		server.Exec(t, "postgres", `COPY (SELECT unnest(ARRAY['local all all trust', 'host all postgres all trust', '`+entry+`'])) TO '/tmp/pg_hba.conf'`,
			`ALTER SYSTEM SET hba_file = '/tmp/pg_hba.conf'`)
		server.Restart(t)
	}
	hba("host replication " + db.User() + " all scram-sha-256")
	s.Configure("StartTimeout", "1s")
	s.Insert(1)
	s.Stops(3, "OT2002", db.User(), "pg_hba.conf", "for replication and ordinary connections to the database")
	hba("host " + db.DB + " " + db.User() + " all scram-sha-256")
	s.Configure("StartTimeout", "60s")
	s.Prove()
}

func TestB120MemoryIsFlatWhateverTheTransactionOfPostgres(t *testing.T) {
	// A server of its own: nobody else's slot is to wait for this transaction.
	onOwnPostgres(t, harness.PostgresOptions{}, func(t *testing.T, db *shop.Postgres) {
		const rows, size, at = 60_000, 2000, 20_000 // 120 MB
		s := scene.New(t, &servers, db)
		p := s.Start()
		insert := func(from, to int) string {
			return fmt.Sprintf(`INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
					SELECT ('00000000-0000-4000-8000-' || lpad(i::text, 12, '0'))::uuid, 'order', 'order-1', 'order.changed', to_jsonb(repeat('x', %d)) FROM generate_series(%d, %d) i`, size, from, to)
		}
		db.Exec(t, insert(1, 3))
		p.Until(t, "their position", func() bool { e := s.Stored(); return e.Events == 3 && e.Prefix == nil })
		db.Exec(t, "BEGIN;"+insert(4, at)+"; SAVEPOINT s;"+insert(rows+100, rows+200)+"; ROLLBACK TO s;"+insert(at+1, rows)+"; COMMIT")
		db.Exec(t, insert(rows+1, rows+2))
		var stored scene.Entry
		p.Until(t, "the inside of the transaction", func() bool { stored = s.Stored(); return stored.Events > 3 })
		if stored.Prefix != nil {
			position, err := event.ParseLSN(stored.Source.LSN)
			require.NoError(t, err)
			commit, err := event.ParseLSN(stored.Prefix.Tx)
			require.NoError(t, err)
			require.Less(t, position, commit, "the transaction comes again from its beginning")
		}
		p.Until(t, "all rows", func() bool { return s.Stored().Events == rows+2 })
		peak := p.PeakRSS(t)
		s.Stop(p)
		require.Less(t, peak, int64(150<<20), "120 MB went through (I11)")
		next := 1
		s.Kafka.Consume(t, func(r *kgo.Record) bool {
			if id := scene.Header(r, "id"); id == numbered(next) {
				next++
			} else { // a session was lost meanwhile
				require.Less(t, id, numbered(next), "in the order of the transaction, all of it and nothing else")
			}
			return next <= rows+2
		}, s.Topic)
	})
}

// A pooler that lets the connections through at all is told by settings that did not arrive. The server's image has that of its
// Debian: one of before 1.23, which refuses replication, lies beside the oldest server, and one that carries it beside the newest.
func TestB143APoolerBetweenIsRefusedByName(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		server := db.Server
		for _, mode := range []string{"session", "transaction"} {
			for name, ignore := range map[string]string{
				"as it comes":           "",
				"told to ignore":        "extra_float_digits,IntervalStyle,bytea_output,search_path,client_min_messages,statement_timeout,lock_timeout,options",
				"told to ignore a part": "extra_float_digits",
			} {
				t.Run(mode+", "+name, func(t *testing.T) {
					t.Parallel()
					db := shop.NewPostgres(t, server, nil)
					db.Exec(t, "ALTER DATABASE "+db.DB+" SET bytea_output = 'escape'")
					s := scene.New(t, &servers, db)
					port := harness.StartPooler(t, server, mode, ignore)
					s.Configure("Source", s.Source("port", strconv.Itoa(port)))
					s.Stops(3, "OT2008", "connect directly")
					r := s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
					require.NotZero(t, r.Code)
				})
			}
		}
	})
}
