package wal_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/wal"
)

// patience is how long a test waits for what must happen; machines are slow and shared.
const patience = 90 * time.Second

// servers are shared by all tests of the package.
var servers harness.Pool

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }

// bench is one database with an outbox table, of its own for each test.
type bench struct {
	t        testing.TB
	host     string
	port     uint16
	database string
	sql      *pgconn.PgConn
}

var databases = struct {
	sync.Mutex
	n int
}{}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchOn(t, servers.Postgres(t, harness.NewestPostgres()))
}

func newBenchOn(t testing.TB, p *harness.Postgres) *bench {
	t.Helper()
	databases.Lock()
	databases.n++
	b := &bench{t: t, host: p.Host, port: uint16(p.Port), database: fmt.Sprintf("wal_%d_%d", os.Getpid(), databases.n)}
	databases.Unlock()
	admin := b.connect("postgres")
	b.execOn(admin, "CREATE DATABASE "+b.database)
	t.Cleanup(func() {
		// Slots keep a database from being dropped, and their log with it.
		b.execOn(admin, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND database = '`+b.database+`'`)
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, err := admin.Exec(context.Background(), `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '`+b.database+`'`).ReadAll()
			require.NoError(c, err)
		}, patience, 50*time.Millisecond)
		b.sql.Close(context.Background())
		b.execOn(admin, "DROP DATABASE "+b.database+" WITH (FORCE)")
		admin.Close(context.Background())
	})
	b.sql = b.connect(b.database)
	b.exec(`CREATE TABLE outbox (id text PRIMARY KEY, aggregate_id text NOT NULL, payload text, raw bytea)`,
		`CREATE TABLE other (x int, t text)`)
	return b
}

func (b *bench) connect(database string) *pgconn.PgConn {
	b.t.Helper()
	c, err := pgconn.Connect(context.Background(), fmt.Sprintf("host=%s port=%d user=postgres password=%s dbname=%s sslmode=disable", b.host, b.port, harness.RootPassword, database))
	require.NoError(b.t, err)
	return c
}

// exec runs statements, each in a transaction of its own unless BEGIN opens one.
func (b *bench) exec(statements ...string) {
	b.t.Helper()
	for _, s := range statements {
		b.execOn(b.sql, s)
	}
}

func (b *bench) execOn(c *pgconn.PgConn, s string) {
	b.t.Helper()
	_, err := c.Exec(context.Background(), s).ReadAll()
	require.NoError(b.t, err, s)
}

// one asks for a single value.
func (b *bench) one(sql string) string {
	b.t.Helper()
	res, err := b.sql.Exec(context.Background(), sql).ReadAll()
	require.NoError(b.t, err, sql)
	require.Len(b.t, res[0].Rows, 1, sql)
	return string(res[0].Rows[0][0])
}

// old says that the server is older than 15.
func (b *bench) old() bool {
	return b.one(`SELECT current_setting('server_version_num')::int < 150000`) == "t"
}

func (b *bench) slot() string { return "slot_" + b.database }

// options lead to the database; create and start: now.
func (b *bench) options() wal.Options {
	var c event.Columns
	c[event.ID] = event.Mapping{Column: "id"}
	c[event.AggregateID] = event.Mapping{Column: "aggregate_id"}
	c[event.Payload] = event.Mapping{Column: "payload"}
	c[event.Key] = event.Mapping{Column: "raw", As: event.Hex}
	c[event.EventType] = event.Mapping{Constant: "order", IsConst: true}
	return wal.Options{
		Pipeline: "test", Host: b.host, Port: b.port, User: "postgres", Password: harness.RootPassword, Database: b.database, TLS: wal.TLS{Mode: "disable"},
		Slot: b.slot(), Publication: "pub", Tables: []string{"public.outbox"}, Columns: c, Create: true, Start: "now",
	}
}

// stream is an open source with what it has read.
type stream struct {
	*bench
	source *wal.Source
	cp     event.Checkpoint
	batch  *event.Batch
	next   int
	bound  uint64
}

func (b *bench) source(o wal.Options) *wal.Source {
	b.t.Helper()
	s, err := wal.New(o)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { s.Close() })
	return s
}

func (b *bench) open(o wal.Options, from event.Checkpoint) *stream {
	b.t.Helper()
	s := &stream{bench: b, source: b.source(o)}
	s.reopen(from)
	return s
}

func (s *stream) reopen(from event.Checkpoint) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) { // a slot that is still active is tried again
		cp, err := s.source.Open(ctx, from)
		require.NoError(c, err)
		s.cp = cp
	}, patience, 100*time.Millisecond)
	s.batch, s.next = nil, 0
}

// refuse opens and gives the fault.
func (b *bench) refuse(o wal.Options, from event.Checkpoint) *event.Fault {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := b.source(o).Open(ctx, from)
	require.Error(b.t, err)
	f := event.AsFault(err)
	require.NotNil(b.t, f, "%v", err)
	require.NotEmpty(b.t, f.Hint)
	return f
}

// read gives the next batch or error.
func (s *stream) read() (*event.Batch, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.source.Read(ctx)
}

// event gives the next event, which is valid until the next call.
func (s *stream) event() *event.Event {
	s.t.Helper()
	for s.batch == nil || s.next == len(s.batch.Events) {
		s.drop()
		b, err := s.read()
		require.NoError(s.t, err)
		s.batch = b
	}
	s.next++
	return &s.batch.Events[s.next-1]
}

// drop gives the batch back and remembers its last bound.
func (s *stream) drop() {
	if s.batch == nil {
		return
	}
	if n := len(s.batch.Bounds); n > 0 {
		s.bound = s.batch.Bounds[n-1].At
	}
	s.batch.Release()
	s.batch, s.next = nil, 0
}

// passed gives the checkpoint after everything that was read, with progress at least up to lsn.
func (s *stream) passed(lsn event.LSN) event.Checkpoint {
	s.t.Helper()
	s.drop()
	for event.LSN(s.bound) < lsn {
		b, err := s.read()
		require.NoError(s.t, err)
		require.Empty(s.t, b.Events)
		s.batch = b
		s.drop()
	}
	return s.checkpoint()
}

// checkpoint is the one after everything that was read.
func (s *stream) checkpoint() event.Checkpoint {
	cp := s.cp
	p, d := s.source.Position(s.bound)
	if d != nil {
		cp.Depends = d
	}
	cp.Position = p
	return cp
}

// fault reads until an error comes, past events.
func (s *stream) fault() *event.Fault {
	s.t.Helper()
	for {
		s.drop()
		b, err := s.read()
		if err != nil {
			f := event.AsFault(err)
			require.NotNil(s.t, f, "%v", err)
			return f
		}
		s.batch = b
	}
}

func (b *bench) end() event.LSN {
	l, err := event.ParseLSN(b.one("SELECT pg_current_wal_insert_lsn()"))
	require.NoError(b.t, err)
	return l
}
