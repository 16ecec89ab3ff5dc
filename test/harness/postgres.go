package harness

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
)

// PostgresOptions shapes a server.
type PostgresOptions struct {
	// Settings override the defaults: wal_level=logical, 20 walsenders, 40 slots. An empty value leaves the setting to the
	// server, so that ALTER SYSTEM can change it.
	Settings map[string]string
	// Begins, where not "", is the name of the log file that the server begins with, such as 00000001000000FF000000FE for FF/FE000000.
	Begins string
	// Direct puts no port forwarder between the server and its clients; Linux only.
	Direct bool
}

// Postgres is a running server.
type Postgres struct {
	server
	Host string
	Port int
	// Version is the major version, such as "18".
	Version  string
	standbys int // that were started of it
}

// PostgresVersions are the major versions that tests run on, oldest first: 14 and 18, or those that OUTTAIL_POSTGRES names.
func PostgresVersions() []string {
	if v := os.Getenv("OUTTAIL_POSTGRES"); v != "" {
		return strings.Split(v, ",")
	}
	return []string{"14", "18"}
}

// OldestPostgres is the first of PostgresVersions.
func OldestPostgres() string { return PostgresVersions()[0] }

// NewestPostgres is the last of PostgresVersions.
func NewestPostgres() string { v := PostgresVersions(); return v[len(v)-1] }

// Major is Version as a number, for what only some versions have.
func (p *Postgres) Major() int {
	n, _ := strconv.Atoi(p.Version)
	return n
}

// StartPostgres runs a server of the test's own, of this major version; it ends with the test.
func StartPostgres(t testing.TB, version string, opts PostgresOptions) *Postgres {
	t.Helper()
	Required(t)
	p, err := runPostgres(context.Background(), version, opts)
	require.NoError(t, err)
	t.Cleanup(p.terminate)
	p.logFailure(t)
	return p
}

func runPostgres(ctx context.Context, version string, opts PostgresOptions) (*Postgres, error) {
	cmd := append([]string{"postgres"}, arguments(postgresSettings(opts.Settings))...)
	s := spec{kind: "postgres" + version, image: postgresImage(version), ports: 1, memory: 2 << 30}
	s.direct = opts.Direct
	if opts.Begins != "" {
		s.files = map[string]string{"/docker-entrypoint-initdb.d/begins.sh": `pg_ctl -D "$PGDATA" -m fast -w stop
pg_resetwal -l ` + opts.Begins + ` "$PGDATA"
pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start
`}
	}
	s.container = func(ports []int) ([]string, map[string]string, []int) {
		own := cmd
		if opts.Direct {
			own = append(slices.Clone(cmd), arguments(map[string]string{"listen_addresses": host, "port": strconv.Itoa(ports[0])})...)
		}
		return own, map[string]string{"POSTGRES_PASSWORD": RootPassword}, []int{5432}
	}
	c, ports, err := s.run(ctx)
	if err != nil {
		return nil, err
	}
	p := newPostgres(c, ports[0], version)
	if err := p.await(ctx); err != nil {
		p.terminate()
		return nil, err
	}
	return p, nil
}

func postgresImage(version string) string {
	return image("OUTTAIL_POSTGRES"+version+"_IMAGE", "postgres:"+version)
}

// postgresSettings are the defaults with what a test wants otherwise.
func postgresSettings(own map[string]string) map[string]string {
	settings := map[string]string{
		"wal_level": "logical", "max_wal_senders": "20", "max_replication_slots": "40", "max_connections": "150", "max_prepared_transactions": "20",
		// A killed process loses nothing that it has written; only a power cut would, and that is not tested.
		"fsync": "off", "shared_buffers": "64MB",
	}
	maps.Copy(settings, own)
	return settings
}

func arguments(settings map[string]string) []string {
	var args []string
	for k, v := range settings {
		if v != "" {
			args = append(args, "-c", k+"="+v)
		}
	}
	return args
}

func newPostgres(c *testcontainers.DockerContainer, port int, version string) *Postgres {
	p := &Postgres{server: server{c: c}, Host: host, Port: port, Version: version}
	p.ready = func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, p.ConnString("postgres"))
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		return conn.Ping(ctx)
	}
	return p
}

// Addr is host:port.
func (p *Postgres) Addr() string { return net.JoinHostPort(p.Host, strconv.Itoa(p.Port)) }

// ConnString is the superuser's URL of a database.
func (p *Postgres) ConnString(database string) string {
	return p.URL("postgres", RootPassword, database)
}

// URL is a user's connection string for a database.
func (p *Postgres) URL(user, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: p.Addr(), Path: "/" + database}
	return u.String()
}

// Connect opens a superuser's connection to a database; it is closed with the test.
func (p *Postgres) Connect(t testing.TB, database string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c, err := pgx.Connect(ctx, p.ConnString(database))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// Exec runs statements as superuser in a database, each in a transaction of its own unless they say otherwise.
func (p *Postgres) Exec(t testing.TB, database string, statements ...string) {
	t.Helper()
	p.on(t, database, func(ctx context.Context, c *pgx.Conn) error {
		for _, s := range statements {
			if _, err := c.PgConn().Exec(ctx, s).ReadAll(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Scalar gives the first column of the first row as text; "" for NULL. The query should cast to text.
func (p *Postgres) Scalar(t testing.TB, database, query string, args ...any) string {
	t.Helper()
	var v *string
	p.on(t, database, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT ("+strings.TrimSuffix(query, ";")+")::text", args...).Scan(&v)
	})
	if v == nil {
		return ""
	}
	return *v
}

func (p *Postgres) on(t testing.TB, database string, f func(ctx context.Context, c *pgx.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c, err := pgx.Connect(ctx, p.ConnString(database))
	require.NoError(t, err)
	defer c.Close(ctx)
	require.NoError(t, f(ctx, c))
}

// UseTLS makes the server speak TLS with a certificate, from the next connection on, to those that ask for it.
func (p *Postgres) UseTLS(t testing.TB, cert, key string) {
	t.Helper()
	name := "tls_" + Unique()
	for suffix, content := range map[string]string{".crt": cert, ".key": key} {
		p.Exec(t, "postgres", fmt.Sprintf(`DO $$ BEGIN EXECUTE format('COPY (SELECT ''%s'') TO PROGRAM %%L',
			'umask 077; base64 -d >' || current_setting('data_directory') || '/%s'); END $$`, base64.StdEncoding.EncodeToString([]byte(content)), name+suffix))
	}
	p.Exec(t, "postgres", "ALTER SYSTEM SET ssl = on", "ALTER SYSTEM SET ssl_cert_file = '"+name+".crt'", "ALTER SYSTEM SET ssl_key_file = '"+name+".key'", "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool { return p.Scalar(t, "postgres", "current_setting('ssl_cert_file')") == name+".crt" }, Patience, 20*time.Millisecond)
}

// NewDatabase makes a database of the test's own. With the test go its slots, which would hold WAL for ever, and itself.
// Options are those of CREATE DATABASE.
func (p *Postgres) NewDatabase(t testing.TB, options ...string) string {
	t.Helper()
	name := "t_" + Unique()
	p.Exec(t, "postgres", strings.Join(append([]string{"CREATE DATABASE", name}, options...), " "))
	t.Cleanup(func() {
		p.Exec(t, "postgres",
			"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = '"+name+"' AND active",
			`DO $$ BEGIN FOR i IN 1..200 LOOP
				EXIT WHEN NOT EXISTS (SELECT FROM pg_replication_slots WHERE database = '`+name+`' AND active);
				PERFORM pg_sleep(0.05); END LOOP; END $$`,
			"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '"+name+"'",
			"DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	return name
}

// NewUser makes a connector's user: LOGIN, REPLICATION, and SELECT on the tables of schema public that exist or are made
// later by the superuser.
func (p *Postgres) NewUser(t testing.TB, database string) (user, password string) {
	t.Helper()
	user, password = "u_"+Unique(), "pw-"+Unique()
	p.Exec(t, database,
		"CREATE ROLE "+user+" LOGIN REPLICATION PASSWORD '"+password+"'",
		"GRANT CONNECT ON DATABASE "+database+" TO "+user,
		"GRANT USAGE ON SCHEMA public TO "+user,
		"GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+user,
		"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO "+user)
	return user, password
}
