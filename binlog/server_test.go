package binlog_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

var servers harness.Pool

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }

// bench is a database of the test's own on a real server, with an outbox table.
type bench struct {
	*harness.MySQL
	kind string
	db   string
}

func newBench(t testing.TB, m *harness.MySQL) *bench {
	return &bench{MySQL: m, kind: event.MySQL, db: m.NewDatabase(t)}
}

// run executes statements one after the other on one connection.
func (b *bench) run(t testing.TB, statements ...string) {
	t.Helper()
	b.Exec(t, b.db, strings.Join(statements, ";"))
}

const outboxColumns = "(id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(20), payload LONGTEXT)"

// options are those of a pipeline on the tables, as a user with no more privileges than it needs.
func (b *bench) options(t testing.TB, tables ...string) binlog.Options {
	user, password := b.NewUser(t, b.db)
	o := binlog.Options{
		Kind: b.kind, Pipeline: "orders", Host: b.Host, Port: b.Port, User: user, Password: password, Database: b.db, Tables: tables,
		Seed: t.Name(), Start: binlog.Start{Mode: "now"}, SpillDir: t.TempDir(),
		Logger: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	}
	o.Columns[event.ID].Column = "id"
	o.Columns[event.Payload].Column = "payload"
	return o
}

type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// session is an open source with what a pipeline would have stored.
type session struct {
	*binlog.Source
	cp event.Checkpoint
}

func open(t testing.TB, o binlog.Options, from event.Checkpoint) *session {
	t.Helper()
	s, err := tryOpen(t, o, from)
	require.NoError(t, err)
	return s
}

func tryOpen(t testing.TB, o binlog.Options, from event.Checkpoint) (*session, error) {
	t.Helper()
	s, err := binlog.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	cp, err := s.Open(ctx, from)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return &session{s, cp}, err
}

// got is a copy of one event.
type got struct {
	table, id, payload, tx string
	index                  uint64
	null                   bool
	fault                  *event.Fault
}

// read takes batches until n events and a bound behind them are there, and stores the position as a pipeline would.
func (s *session) read(t testing.TB, n int) []got {
	t.Helper()
	out, err := s.tryRead(n)
	require.NoError(t, err, "after %d of %d events", len(out), n)
	return out
}

func (s *session) tryRead(n int) (out []got, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	for bounded := false; len(out) < n || !bounded; {
		b, err := s.Read(ctx)
		if err != nil {
			return out, err
		}
		for i := range b.Events {
			e := &b.Events[i]
			p := e.Row[event.Payload]
			out = append(out, got{e.Table, string(e.Row[event.ID].Bytes), string(p.Bytes), e.Tx.ID, e.Index, p.Null, e.Err})
		}
		bounded = false
		if k := len(b.Bounds); k > 0 {
			s.store(b.Bounds[k-1].At)
			bounded = b.Bounds[k-1].After == len(b.Events)
		}
		if b.Release != nil {
			b.Release()
		}
	}
	return out, nil
}

func (s *session) store(at uint64) {
	pos, depends := s.Position(at)
	s.cp.Position, s.cp.Prefix = pos, nil
	if depends != nil {
		s.cp.Depends = depends
	}
}

// until reads until a condition on what is stored holds.
func (s *session) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	for !ok() {
		b, err := s.Read(ctx)
		require.NoError(t, err, what)
		if k := len(b.Bounds); k > 0 {
			s.store(b.Bounds[k-1].At)
		}
		if b.Release != nil {
			b.Release()
		}
	}
}

func payloads(list []got) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].payload
	}
	return out
}

func requireFault(t testing.TB, err error, code string, class event.Class) *event.Fault {
	t.Helper()
	f := event.AsFault(err)
	require.NotNil(t, f, "%v", err)
	require.Equal(t, code, f.Code, "%v", f)
	require.Equal(t, class, f.Class, "%v", f)
	require.NotEmpty(t, f.Hint, "%v", f)
	return f
}

func flat(gtid string) string { return strings.ReplaceAll(gtid, "\n", "") }

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
