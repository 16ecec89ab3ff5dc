package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

// TestCrash kills the process with SIGKILL after 50 to 1,500 ms, again and again, during a load of 30,000 events. Nothing
// is lost or invented, first occurrences stay in order per aggregate, every repeat is a contiguous re-run, and after each
// kill the position in the file is behind what Kafka has. Where the server takes part, its sessions end and it dies in between.
func TestCrash(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		open          func(t *testing.T) shop.Database
		events, kills int
		server        func(t *testing.T, db shop.Database, kill int)
	}{
		"postgres": {func(t *testing.T) shop.Database {
			return shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
		}, 30_000, 30, nil},
		"postgres that ends its sessions and itself": {func(t *testing.T) shop.Database {
			return shop.NewPostgres(t, harness.StartPostgres(t, harness.OldestPostgres(), harness.PostgresOptions{}), nil)
		}, 10_000, 12, endPostgres},
		"mysql": {func(t *testing.T) shop.Database { return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil) }, 30_000, 30, nil},
		"mysql by position": {func(t *testing.T) shop.Database {
			return shop.NewMySQL(t, servers.MySQLWith(t, harness.MySQLOptions{Flags: []string{"--gtid_mode=OFF", "--enforce_gtid_consistency=OFF"}}), "mysql", nil)
		}, 10_000, 10, nil},
		"mysql with compressed transactions": {func(t *testing.T) shop.Database {
			return shop.NewMySQL(t, servers.MySQLWith(t, harness.MySQLOptions{Flags: []string{"--binlog_transaction_compression=ON"}}), "mysql", nil)
		}, 8_000, 8, nil},
		"mariadb with two domains": {func(t *testing.T) shop.Database {
			return newDomains(t, shop.NewMySQL(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true}), "mariadb", nil))
		}, 8_000, 8, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the load mostly waits
			db, kafka := c.open(t), servers.Kafka(t)
			topic := kafka.NewTopic(t, 3)
			o := newOuttail(t, db, kafka, topic)
			p := o.Start(t)
			p.WaitReady(t) // the slot exists, or `start` was applied: from here on everything counts

			written := &shop.Written{}
			loaded := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			go func() { // ends with its load
				loaded <- shop.Load{Events: c.events, Aggregates: 200, Topic: topic, Seed: 7, Pause: 10 * time.Millisecond, Persist: c.server != nil}.WriteTo(ctx, db, written)
			}()
			rnd := rand.New(rand.NewPCG(1, 2))
			kills := 0
			for kills < c.kills {
				select {
				case err := <-loaded:
					require.NoError(t, err)
					loaded <- nil // the other kills meet a backlog or an idle log
				case <-time.After(50*time.Millisecond + time.Duration(rnd.IntN(1450))*time.Millisecond):
				}
				p.Kill(t)
				kills++
				if kills%5 == 0 { // reading all of Kafka costs more than the kill
					s := readSaved(t, o)
					delivered := harness.FromKafka(kafka.Records(t, topic))
					requireBehindAcks(t, s, written.Committed(t, db), delivered)
				}
				p = o.Start(t)
				if c.server != nil {
					c.server(t, db, kills)
				}
			}
			require.NoError(t, <-loaded)
			committed := written.Committed(t, db)
			p.Until(t, "everything delivered", func() bool { return readSaved(t, o).Events == uint64(len(committed)) })
			require.Equal(t, 0, p.Terminate(t).Code)
			report := harness.Check(committed, harness.FromKafka(kafka.Records(t, topic)), kills)
			t.Logf("%d kills: %s", kills, report)
			require.NoError(t, report.Err())
		})
	}
}

// endPostgres ends, in turn, the walsender or the other session as soon as it is there, or the server at once.
func endPostgres(t *testing.T, db shop.Database, kill int) {
	s := db.(*shop.Postgres).Server
	if kill%3 == 2 {
		s.Kill(t)
		s.Start(t)
		return
	}
	kind := [...]string{"walsender", "client backend"}[kill%3]
	require.Eventually(t, func() bool {
		return s.Scalar(t, "postgres", "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'outtail' AND backend_type = $1", kind) != "0"
	}, harness.Patience, 20*time.Millisecond, "no session of outtail's to end")
}

// domains is a MariaDB whose transactions are of two replication domains in turn: the position is a GTID for each.
type domains struct {
	*shop.MySQL
	pool *sql.DB
	n    atomic.Uint32
}

func newDomains(t *testing.T, db *shop.MySQL) *domains {
	return &domains{MySQL: db, pool: db.Server.Open(t, "root", harness.RootPassword, db.DB)}
}

// Begin implements shop.Database.
func (d *domains) Begin(ctx context.Context) (shop.Tx, error) {
	c, err := d.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	_, err = c.ExecContext(ctx, fmt.Sprintf("SET SESSION gtid_domain_id = %d", 7*(d.n.Add(1)%2)))
	if err == nil {
		var tx *sql.Tx
		if tx, err = c.BeginTx(ctx, nil); err == nil {
			return domainTx{tx, c}, nil
		}
	}
	return nil, errors.Join(err, c.Close())
}

type domainTx struct {
	*sql.Tx
	c *sql.Conn
}

func (tx domainTx) Exec(ctx context.Context, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

func (tx domainTx) Commit(context.Context) error { return tx.end(tx.Tx.Commit()) }

func (tx domainTx) Rollback(context.Context) error { return tx.end(tx.Tx.Rollback()) }

// end gives the connection back; a second end, after the first, finds nothing.
func (tx domainTx) end(err error) error {
	_ = tx.c.Close()
	return err
}

// TestCrashInsideATransaction kills within one transaction of 100,000 rows. The acked prefix of the transaction is stored,
// so that a re-run does not begin at its first row each time: without that a fast killer would keep it from ever ending.
// OUTTAIL_LONG=1 takes a million rows.
func TestCrashInsideATransaction(t *testing.T) {
	t.Parallel() // beside TestCrash: both mostly wait for processes that start
	rows := 100_000
	if os.Getenv("OUTTAIL_LONG") != "" {
		rows = 1_000_000
	}
	for name, open := range map[string]func(t *testing.T) shop.Database{
		"postgres": func(t *testing.T) shop.Database {
			return shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
		},
		"mysql": func(t *testing.T) shop.Database { return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			db, kafka := open(t), servers.Kafka(t)
			topic := kafka.NewTopic(t, 3)
			o := newOuttail(t, db, kafka, topic)
			p := o.Start(t)
			p.WaitReady(t)
			p.Kill(t)
			committed := bigTransaction(t, db, topic, rows)

			inside := 0
			kills := 0
			for ; kills < 10; kills++ {
				p = o.Start(t)
				// Each life lasts until it has saved progress, so that the test does not depend on the machine's speed.
				before := readSavedRunning(t, o)
				p.Until(t, "progress", func() bool { now := readSavedRunning(t, o); return now > before || now == uint64(rows) })
				p.Kill(t)
				s := readSaved(t, o)
				if s.Prefix != nil {
					inside++
				}
				requireBehindAcks(t, s, committed, harness.FromKafka(kafka.Records(t, topic)))
				if s.Events == uint64(rows) {
					break
				}
			}
			require.NotZero(t, inside, "no kill hit the inside of the transaction")
			p = o.Start(t)
			p.Until(t, "everything delivered", func() bool { return readSaved(t, o).Events == uint64(rows) })
			require.Less(t, p.PeakRSS(t), int64(150<<20), "memory is bounded whatever the transaction (I11)")
			require.Equal(t, 0, p.Terminate(t).Code)
			report := harness.Check(committed, harness.FromKafka(kafka.Records(t, topic)), kills)
			t.Logf("%d kills, %d inside: %s", kills, inside, report)
			require.NoError(t, report.Err())
		})
	}
}

// readSavedRunning asks a process that may still be starting: 0 while it does not answer.
func readSavedRunning(t testing.TB, o *harness.Outtail) uint64 { return readSaved(t, o).Events }
