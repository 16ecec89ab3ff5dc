package integration

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// refusal is an input that outtail must refuse, and how it says so.
type refusal struct {
	name  string
	spoil func(s *scene.Scene) (mend func()) // mend nil: the configuration alone is put right
	code  int
	says  []string // in what it prints: code, place, what is wrong, what to do
}

// TestBadInput: a clear error with place and remedy, the exit code of the contract, and nothing lost: what committed
// meanwhile arrives after mending.
func TestBadInput(t *testing.T) {
	text := func(old, is string) func(s *scene.Scene) func() {
		return func(s *scene.Scene) func() {
			b, err := os.ReadFile(s.Outtail.Config)
			require.NoError(s.T, err)
			require.Contains(s.T, string(b), old)
			require.NoError(s.T, os.WriteFile(s.Outtail.Config, []byte(strings.Replace(string(b), old, is, 1)), 0o600))
			return nil
		}
	}
	setting := func(key, value string) func(s *scene.Scene) func() {
		return func(s *scene.Scene) func() {
			s.Configure("Source", s.Source(key, value), "StartTimeout", "1s")
			return nil
		}
	}
	port, err := harness.FreePort()
	require.NoError(t, err)
	nobody := strconv.Itoa(port)

	configurations := []refusal{
		{"unknown key", text("start_timeout", "start_timeot"), 2, []string{"outtail.yaml:5:1", `did you mean "start_timeout"?`}},
		{"wrong type", text("name: orders", "name: [orders]"), 2, []string{"outtail.yaml:7:", "pipelines[0].name"}},
		{"no unit", text("start_timeout: 60s", "start_timeout: 60"), 2, []string{"outtail.yaml:5:16", "has no unit", "10s"}},
		{"missing variable", text("columns: outtail", "columns: ${env:OUTTAIL_TEST_NO_SUCH}"), 2, []string{"outtail.yaml:10:", "OUTTAIL_TEST_NO_SUCH"}},
		{"no YAML", text("pipelines:", "pipelines: ["), 2, []string{"outtail.yaml:"}},
		{"duplicate pipeline name", func(s *scene.Scene) func() {
			b, err := os.ReadFile(s.Outtail.Config)
			require.NoError(s.T, err)
			_, one, _ := strings.Cut(string(b), "pipelines:\n")
			require.NoError(s.T, os.WriteFile(s.Outtail.Config, append(b, one...), 0o600))
			return nil
		}, 2, []string{"outtail.yaml:17:11", "orders"}},
		{"no such file", func(s *scene.Scene) func() { require.NoError(s.T, os.Remove(s.Outtail.Config)); return nil }, 2, []string{"outtail.yaml", "no such file", "outtail init"}},
	}
	t.Run("postgres", func(t *testing.T) {
		server := servers.Postgres(t, harness.NewestPostgres())
		db := shop.NewPostgres(t, server, nil)
		user := between(db.Source(""), "user: ", ",")
		checkRefusals(t, db, append(configurations, []refusal{
			{"unreachable", setting("port", nobody), 3, []string{"OT2001", "127.0.0.1:" + nobody, "start_timeout", "pg_isready"}},
			{"unknown host", setting("host", "no-such-host.invalid"), 3, []string{"OT2001", "no-such-host.invalid", "hint"}},
			{"wrong password", setting("password", "wrong-s3cret"), 3, []string{"OT2002", user, "hint", "pg_hba.conf"}},
			{"missing database", setting("database", "no_such_db"), 3, []string{"OT2005", "no_such_db", "hint"}},
			{"missing table", setting("tables", "[public.outbocks]"), 3, []string{"OT2012", "public.outbocks", "outtail init --source postgres"}},
			{"table not published", setting("tables", "[public.orders]"), 3, []string{"OT20", "public.orders", "hint"}},
			{"missing privilege", func(s *scene.Scene) func() {
				server.Exec(t, db.DB, "ALTER ROLE "+user+" NOREPLICATION")
				return func() { server.Exec(t, db.DB, "ALTER ROLE "+user+" REPLICATION") }
			}, 3, []string{"OT2011", user, "ALTER ROLE", "WITH REPLICATION"}},
		}...))
	})
	t.Run("mysql", func(t *testing.T) {
		server := servers.MySQL(t)
		db := shop.NewMySQL(t, server, "mysql", nil)
		user := between(db.Source(""), "user: ", ",")
		checkRefusals(t, db, []refusal{
			{"unreachable", setting("port", nobody), 3, []string{"OT3001", "127.0.0.1:" + nobody, "start_timeout", "hint"}},
			{"wrong password", setting("password", "wrong-s3cret"), 3, []string{"OT3002", user, "hint", "ALTER USER"}},
			{"missing table", setting("tables", "[outbocks]"), 3, []string{"OT3009", db.DB + ".outbocks", "CREATE TABLE", "correct tables:"}},
			{"missing privilege", func(s *scene.Scene) func() {
				server.Exec(t, "", "REVOKE REPLICATION SLAVE ON *.* FROM '"+user+"'@'%'")
				return func() { server.Exec(t, "", "GRANT REPLICATION SLAVE ON *.* TO '"+user+"'@'%'") }
			}, 3, []string{"OT3008", user, "GRANT REPLICATION SLAVE"}},
			{"table not readable", func(s *scene.Scene) func() {
				server.Exec(t, "", "REVOKE SELECT ON `"+db.DB+"`.* FROM '"+user+"'@'%'")
				return func() { server.Exec(t, "", "GRANT SELECT ON `"+db.DB+"`.* TO '"+user+"'@'%'") }
			}, 3, []string{"OT3008", user, "GRANT SELECT ON `" + db.DB + "`.`outbox`"}},
			{"binlog_format not ROW", func(s *scene.Scene) func() {
				server.Exec(t, "", "SET GLOBAL binlog_format = 'MIXED'")
				return func() { server.Exec(t, "", "SET GLOBAL binlog_format = 'ROW'") }
			}, 3, []string{"OT3006", "MIXED", "SET GLOBAL binlog_format = 'ROW'"}},
			{"binlog_row_image not FULL", func(s *scene.Scene) func() {
				server.Exec(t, "", "SET GLOBAL binlog_row_image = 'MINIMAL'")
				return func() { server.Exec(t, "", "SET GLOBAL binlog_row_image = 'FULL'") }
			}, 3, []string{"OT3007", "MINIMAL", "SET GLOBAL binlog_row_image = 'FULL'"}},
		})
	})
}

// checkRefusals runs each refusal on a pipeline that ran before, with an event that commits while it cannot run.
func checkRefusals(t *testing.T, db shop.Database, refusals []refusal) {
	s := scene.New(t, &servers, db)
	s.Prove()
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			s.T = t
			mend := r.spoil(s)
			if mend != nil {
				t.Cleanup(mend) // whatever happens, the server is shared
			}
			got := s.Outtail.Run(t, "run", "-c", s.Outtail.Config)
			require.Equal(t, r.code, got.Code, got.Stderr)
			for _, want := range r.says {
				require.Contains(t, got.Stderr, want)
			}
			require.Regexp(t, `hint: \w|hint="?\w|name it with`, got.Stderr, "an error says what to do")
			require.NotContains(t, got.Stderr, "panic")
			require.Empty(t, got.Stdout, "stdout is the answer, errors are not")
			s.Configure("Source", s.DB.Source(""), "StartTimeout", "60s")
		})
		s.T = t
		if !t.Failed() {
			s.Insert(1)
		}
	}
	s.Prove()
}

func between(s, left, right string) string {
	_, s, _ = strings.Cut(s, left)
	s, _, _ = strings.Cut(s, right)
	return s
}

// TestServerNotLogical: the printed statement and a restart mend it.
func TestServerNotLogical(t *testing.T) {
	server := harness.StartPostgres(t, harness.OldestPostgres(), harness.PostgresOptions{Settings: map[string]string{"wal_level": ""}})
	s := scene.New(t, &servers, shop.NewPostgres(t, server, nil))
	r := s.Outtail.Run(t, "run", "-c", s.Outtail.Config)
	require.Equal(t, 3, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "OT2010")
	require.Contains(t, r.Stderr, "wal_level is replica")
	require.Contains(t, r.Stderr, "ALTER SYSTEM SET wal_level = 'logical'")
	server.Exec(t, "postgres", "ALTER SYSTEM SET wal_level = 'logical'")
	server.Restart(t)
	s.Prove()
}

// TestSecondSignal ends a drain that waits for a topic that is not there; nothing depends on a clean stop.
func TestSecondSignal(t *testing.T) {
	db := shop.NewPostgres(t, servers.Postgres(t, harness.OldestPostgres()), nil)
	for _, c := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGTERM, 143}, {syscall.SIGINT, 130}} {
		t.Run(c.signal.String(), func(t *testing.T) {
			s := scene.New(t, &servers, db)
			s.UseTopic("t." + harness.Unique())
			s.Configure()
			p := s.Outtail.Start(t)
			p.WaitReady(t)
			s.Insert(2)
			s.Says(p, "OT5004")
			p.Signal(t, c.signal)
			p.Until(t, "the first signal to be told", func() bool { return strings.Contains(p.Stderr(), "a second signal ends at once") })
			p.Signal(t, c.signal)
			r := p.Wait(t)
			require.Equal(t, c.code, r.Code, r.Stderr)
			servers.Kafka(t).CreateTopic(t, s.Topic, 1, nil)
			s.Prove()
		})
	}
}
