package binlog_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
)

// testServer is a real server: where it listens and root's connection.
type testServer struct {
	kind string
	host string
	port int
	pass string
	db   *sql.DB
}

func (s *testServer) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, q := range statements {
		_, err := s.db.Exec(q)
		require.NoError(t, err, q)
	}
}

func (s *testServer) options(t testing.TB, tables ...string) binlog.Options {
	o := binlog.Options{
		Kind: s.kind, Pipeline: "orders", Host: s.host, Port: s.port, User: "root", Password: s.pass, Tables: tables,
		Seed: t.Name(), Start: binlog.Start{Mode: "now"}, SpillDir: t.TempDir(),
		Logger: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
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

// mysqlServer gives the MySQL of this run.
func mysqlServer(t testing.TB) *testServer {
	addr := os.Getenv("BL_MYSQL")
	if addr == "" {
		t.Skip("needs a real MySQL")
	}
	host, port, _ := strings.Cut(addr, ":")
	n, _ := strconv.Atoi(port)
	db, err := sql.Open("mysql", "root:secret@tcp("+addr+")/shop?multiStatements=true")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return &testServer{kind: event.MySQL, host: host, port: n, pass: "secret", db: db}
}

// outbox makes an empty outbox table of its own for the test.
func outbox(t testing.TB, s *testServer, columns string) string {
	name := "o_" + strings.ToLower(strings.NewReplacer("/", "_", "#", "_").Replace(t.Name()))
	if len(name) > 60 {
		name = name[:60]
	}
	s.exec(t, "DROP TABLE IF EXISTS "+name, "CREATE TABLE "+name+" ("+columns+")")
	return "shop." + name
}

const plainColumns = "id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(20), payload JSON"

func open(t testing.TB, o binlog.Options, from event.Checkpoint) (*binlog.Source, event.Checkpoint) {
	t.Helper()
	s, err := binlog.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cp, err := s.Open(ctx, from)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, cp
}

// got is a copy of what was read.
type got struct {
	id, payload, tx string
	index           uint64
}

// collect reads n events, and the position behind them.
func collect(t testing.TB, s *binlog.Source, n int) (out []got, pos event.Position, depends []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for bounded := false; len(out) < n || !bounded; {
		b, err := s.Read(ctx)
		require.NoError(t, err, "after %d of %d events", len(out), n)
		for i := range b.Events {
			e := &b.Events[i]
			require.Nil(t, e.Err)
			out = append(out, got{string(e.Row[event.ID].Bytes), string(e.Row[event.Payload].Bytes), e.Tx.ID, e.Index})
			bounded = false
		}
		if k := len(b.Bounds); k > 0 {
			var d []byte
			pos, d = s.Position(b.Bounds[k-1].At)
			if d != nil {
				depends = d
			}
			bounded = b.Bounds[k-1].After == len(b.Events)
		}
		if b.Release != nil {
			b.Release()
		}
	}
	return out, pos, depends
}

func TestCommittedInsertsArriveInOrder(t *testing.T) {
	srv := mysqlServer(t)
	table := outbox(t, srv, plainColumns)
	s, cp := open(t, srv.options(t, table), event.Checkpoint{})
	require.NotEmpty(t, cp.Position.GTID)
	srv.exec(t,
		"INSERT INTO "+table+" (payload) VALUES ('{\"a\": 1, \"bb\": [1, 2.5, \"x\"]}'), (NULL)",
		"START TRANSACTION; INSERT INTO "+table+" (payload) VALUES ('1'); ROLLBACK",
		"START TRANSACTION; INSERT INTO "+table+" (payload) VALUES ('2'); SAVEPOINT a; INSERT INTO "+table+" (payload) VALUES ('3'); ROLLBACK TO a; INSERT INTO "+table+" (payload) VALUES ('4'); COMMIT",
	)
	events, pos, _ := collect(t, s, 4)
	require.Len(t, events, 4)
	require.Equal(t, `{"a": 1, "bb": [1, 2.5, "x"]}`, events[0].payload)
	require.Equal(t, []string{"2", "4"}, []string{events[2].payload, events[3].payload})
	require.Equal(t, uint64(1), events[3].index)
	var executed string
	require.NoError(t, srv.db.QueryRow("SELECT @@global.gtid_executed").Scan(&executed))
	require.Equal(t, strings.ReplaceAll(executed, "\n", ""), pos.GTID)
}
