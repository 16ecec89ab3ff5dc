// Package shop is the service of the tests: it writes orders and their outbox rows in one transaction, rolls some back,
// sets savepoints, writes to other tables in between, and knows afterwards what committed.
package shop

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

// Configuration is one pipeline from a shop's database to one topic, as a template for harness.NewOuttail: Source, Topic and Brokers are
// the test's.
const Configuration = `
data_dir: {{.DataDir}}
admin: { listen: {{.Admin}} }
log: { format: text }
pipelines:
  - name: orders
    source:
      {{.Source}}
    columns: outtail
    routes:
      - topic: {{.Topic}}
    sink:
      kafka: { brokers: [{{.Brokers}}] }
`

// Database is where the shop writes.
type Database interface {
	// Kind is the key of the source in a configuration.
	Kind() string
	// Source is the source's settings as YAML in flow style, for a user of least privilege.
	Source(extra string) string
	// Begin starts a transaction. Queries use ? for arguments in both dialects.
	Begin(ctx context.Context) (Tx, error)
	// Payloads reads all committed outbox rows: id to payload as the server prints it, nil for NULL.
	Payloads(t testing.TB) map[string][]byte
	// Session identifies outtail's replication session as the server sees it; "" where there is none.
	Session(t testing.TB) string
	// Exec runs one statement outside of transactions.
	Exec(t testing.TB, query string)
}

// Tx is a transaction.
type Tx interface {
	Exec(ctx context.Context, query string, args ...any) error
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// Postgres is a shop's database on Postgres.
type Postgres struct {
	Server         *harness.Postgres
	DB             string
	user, password string
	pool           *pgxpool.Pool
	host           string
	port           int
}

// NewPostgres makes a database with the outbox table of preset outtail. via, where not nil, is the proxy through which
// outtail, not the shop, reaches the server.
// Options are those of CREATE DATABASE.
func NewPostgres(t testing.TB, s *harness.Postgres, via *harness.Proxy, options ...string) *Postgres {
	p := &Postgres{Server: s, DB: s.NewDatabase(t, options...), host: s.Host, port: s.Port}
	s.Exec(t, p.DB,
		`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb, headers jsonb,
			occurred_at timestamptz NOT NULL DEFAULT now())`,
		`CREATE TABLE orders (id text, note text)`,
		`CREATE PUBLICATION outtail_orders FOR TABLE outbox WITH (publish = 'insert')`)
	p.user, p.password = s.NewUser(t, p.DB)
	if via != nil {
		p.host, p.port = "127.0.0.1", via.Port()
	}
	p.pool = newPool(t, s, p.DB)
	return p
}

// newPool gives connections that answered just now: servers of tests are ended and started again.
func newPool(t testing.TB, s *harness.Postgres, db string) *pgxpool.Pool {
	c, err := pgxpool.ParseConfig(s.ConnString(db))
	require.NoError(t, err)
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// On is the same shop on another server that has its database, a promoted standby.
func (p *Postgres) On(t testing.TB, s *harness.Postgres) *Postgres {
	there := *p
	there.Server, there.host, there.port = s, s.Host, s.Port
	there.pool = newPool(t, s, p.DB)
	return &there
}

// User is the name under which outtail logs in.
func (p *Postgres) User() string { return p.user }

// Slot is the slot's name: unique, since slots are the server's and not the database's.
func (p *Postgres) Slot() string { return "outtail_" + strings.ReplaceAll(p.DB, "-", "_") }

// Kind implements Database.
func (p *Postgres) Kind() string { return "postgres" }

// Source implements Database.
func (p *Postgres) Source(extra string) string {
	return fmt.Sprintf("postgres: { host: %s, port: %d, user: %s, password: %s, database: %s, tables: [public.outbox], slot: %s, publication: outtail_orders, create: true, start: now%s }",
		p.host, p.port, p.user, p.password, p.DB, p.Slot(), extra)
}

type pgTx struct{ pgx.Tx }

func (tx pgTx) Exec(ctx context.Context, query string, args ...any) error {
	for i := range args {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", i+1), 1)
	}
	_, err := tx.Tx.Exec(ctx, query, args...)
	return err
}

// Begin implements Database.
func (p *Postgres) Begin(ctx context.Context) (Tx, error) {
	tx, err := p.pool.Begin(ctx)
	return pgTx{tx}, err
}

// Exec implements Database.
func (p *Postgres) Exec(t testing.TB, query string) { p.Server.Exec(t, p.DB, query) }

// Session implements Database: the walsender of the slot.
func (p *Postgres) Session(t testing.TB) string {
	return p.Server.Scalar(t, p.DB, "SELECT active_pid::text FROM pg_replication_slots WHERE slot_name = $1", p.Slot())
}

// Payloads implements Database.
func (p *Postgres) Payloads(t testing.TB) map[string][]byte {
	rows, err := p.pool.Query(t.Context(), "SELECT id::text, payload::text FROM outbox")
	require.NoError(t, err)
	out := map[string][]byte{}
	var id string
	var payload *string
	_, err = pgx.ForEachRow(rows, []any{&id, &payload}, func() error {
		out[id] = nil
		if payload != nil {
			out[id] = []byte(*payload)
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

// MySQL is a shop's database on MySQL or MariaDB.
type MySQL struct {
	Server         *harness.MySQL
	DB             string
	kind           string
	user, password string
	pool           *sql.DB
	host           string
	port           int
}

// NewMySQL makes a database with the outbox table of preset outtail; via as in NewPostgres.
func NewMySQL(t testing.TB, s *harness.MySQL, kind string, via *harness.Proxy) *MySQL {
	m := &MySQL{Server: s, DB: s.NewDatabase(t), kind: kind, host: s.Host, port: s.Port}
	s.Exec(t, m.DB, `CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregate_type VARCHAR(255) NOT NULL, aggregate_id VARCHAR(255) NOT NULL, event_type VARCHAR(255) NOT NULL, payload JSON,
		headers JSON, occurred_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) ENGINE=InnoDB`)
	s.Exec(t, m.DB, `CREATE TABLE orders (id VARCHAR(64), note TEXT) ENGINE=InnoDB`)
	m.user, m.password = s.NewUser(t, m.DB)
	if via != nil {
		m.host, m.port = "127.0.0.1", via.Port()
	}
	m.pool = s.Open(t, "root", harness.RootPassword, m.DB)
	return m
}

// On is the same database on another server, which got it by replication; outtail reaches the server as it did before.
func (m *MySQL) On(t testing.TB, s *harness.MySQL) *MySQL {
	other := *m
	other.Server = s
	other.pool = s.Open(t, "root", harness.RootPassword, m.DB)
	return &other
}

// Kind implements Database.
func (m *MySQL) Kind() string { return m.kind }

// Source implements Database.
func (m *MySQL) Source(extra string) string {
	return fmt.Sprintf("%s: { host: %s, port: %d, user: %s, password: %s, database: %s, tables: [outbox], start: now%s }",
		m.kind, m.host, m.port, m.user, m.password, m.DB, extra)
}

type sqlTx struct{ *sql.Tx }

func (tx sqlTx) Exec(ctx context.Context, query string, args ...any) error {
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}
func (tx sqlTx) Commit(context.Context) error   { return tx.Tx.Commit() }
func (tx sqlTx) Rollback(context.Context) error { return tx.Tx.Rollback() }

// Begin implements Database.
func (m *MySQL) Begin(ctx context.Context) (Tx, error) {
	tx, err := m.pool.BeginTx(ctx, nil)
	return sqlTx{tx}, err
}

// Exec implements Database.
func (m *MySQL) Exec(t testing.TB, query string) { m.Server.Exec(t, m.DB, query) }

// Session implements Database: the dump thread of outtail's user.
func (m *MySQL) Session(t testing.TB) string {
	return m.Server.Scalar(t, m.DB, "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%' AND user = ?", m.user)
}

// Payloads implements Database.
func (m *MySQL) Payloads(t testing.TB) map[string][]byte {
	rows, err := m.pool.QueryContext(t.Context(), "SELECT id, CAST(payload AS CHAR) FROM outbox")
	require.NoError(t, err)
	defer rows.Close()
	out := map[string][]byte{}
	for rows.Next() {
		var id string
		var payload []byte
		require.NoError(t, rows.Scan(&id, &payload))
		out[id] = payload
	}
	require.NoError(t, rows.Err())
	return out
}
