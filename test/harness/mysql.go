package harness

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// RootPassword is the administrator's password on every server of the harness.
const RootPassword = "root-s3cret"

// MySQLOptions shapes a server.
type MySQLOptions struct {
	// Flags are appended to the command line, so they override the defaults: log_bin, gtid_mode=ON, server_id=1.
	Flags []string
	// MariaDB runs MariaDB 10.11 instead.
	MariaDB bool
	// Files are put into the container before it starts, by absolute path, readable for the server.
	Files map[string]string
	// Direct puts no port forwarder between the server and its clients; Linux only.
	Direct bool
}

// MySQL is a running MySQL or MariaDB.
type MySQL struct {
	server
	Host  string
	Port  int
	maria bool
	// DB is root's pool, without a default database, several statements per call allowed, time zone +00:00.
	DB *sql.DB
}

// StartMySQL runs a server of the test's own; it ends with the test.
func StartMySQL(t testing.TB, opts MySQLOptions) *MySQL {
	t.Helper()
	Required(t)
	m, err := runMySQL(context.Background(), opts)
	require.NoError(t, err)
	t.Cleanup(m.close)
	m.logFailure(t)
	return m
}

func runMySQL(ctx context.Context, opts MySQLOptions) (*MySQL, error) {
	s := spec{kind: "mysql", image: image("OUTTAIL_MYSQL_IMAGE", "mysql:9.7"), ports: 1, memory: 2 << 30, files: opts.Files}
	cmd := []string{
		"mysqld", "--server-id=1", "--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--mysqlx=OFF",
		// A killed process loses nothing that it has written; only a power cut would, and that is not tested.
		"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2",
		"--innodb-buffer-pool-size=64M", "--max-connections=1000",
	}
	if opts.MariaDB {
		s.kind, s.image = "mariadb", image("OUTTAIL_MARIADB_IMAGE", "mariadb:10.11")
		cmd = []string{"mariadbd", "--server-id=1", "--log-bin=binlog", "--binlog-format=ROW", "--innodb-buffer-pool-size=64M", "--max-connections=1000"}
	}
	s.direct = opts.Direct
	s.container = func(ports []int) ([]string, map[string]string, []int) {
		own := slices.Concat(cmd, opts.Flags)
		if opts.Direct {
			own = append(own, "--bind-address="+host, "--port="+strconv.Itoa(ports[0]))
		}
		return own, map[string]string{"MYSQL_ROOT_PASSWORD": RootPassword}, []int{3306}
	}
	c, ports, err := s.run(ctx)
	if err != nil {
		return nil, err
	}
	m := &MySQL{server: server{c: c}, Host: host, Port: ports[0], maria: opts.MariaDB}
	m.DB, err = pool(m.config("root", RootPassword, ""))
	if err != nil {
		m.terminate()
		return nil, err
	}
	m.ready = func(ctx context.Context) error { return m.DB.PingContext(ctx) }
	if err := m.await(ctx); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *MySQL) close() {
	_ = m.DB.Close()
	m.terminate()
}

// Addr is host:port.
func (m *MySQL) Addr() string { return net.JoinHostPort(m.Host, strconv.Itoa(m.Port)) }

// WriteFile replaces a file in the server's container.
func (m *MySQL) WriteFile(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, m.c.CopyToContainer(t.Context(), []byte(content), path, 0o644))
}

// DSN is go-sql-driver's data source name for a user and a default database.
func (m *MySQL) DSN(user, password, database string) string {
	return m.config(user, password, database).FormatDSN()
}

func (m *MySQL) config(user, password, database string) *mysql.Config {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User, c.Passwd, c.DBName = "tcp", m.Addr(), user, password, database
	c.MultiStatements, c.AllowNativePasswords = true, true
	c.Params = map[string]string{"time_zone": "'+00:00'"}
	c.Logger = &mysql.NopLogger{} // a server that was killed on purpose is no news
	return c
}

func pool(config *mysql.Config) (*sql.DB, error) {
	c, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// Open gives a pool of a user in a database, for loads: arguments are put into the statement, which would else be prepared, run and
// closed. It is closed with the test.
func (m *MySQL) Open(t testing.TB, user, password, database string) *sql.DB {
	t.Helper()
	c := m.config(user, password, database)
	c.InterpolateParams = true
	db, err := pool(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Exec runs statements as root in a database ("" for none).
func (m *MySQL) Exec(t testing.TB, database, statements string, args ...any) {
	t.Helper()
	m.on(t, database, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, statements, args...)
		return err
	})
}

// Scalar gives the first column of the first row as text; "" for NULL.
func (m *MySQL) Scalar(t testing.TB, database, query string, args ...any) string {
	t.Helper()
	var v sql.NullString
	m.on(t, database, func(ctx context.Context, c *sql.Conn) error { return c.QueryRowContext(ctx, query, args...).Scan(&v) })
	return v.String
}

func (m *MySQL) on(t testing.TB, database string, f func(ctx context.Context, c *sql.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	c, err := m.DB.Conn(ctx)
	require.NoError(t, err)
	// The pool must not keep a connection whose default database or session variables were changed: it throws one away that
	// is told to be bad, and only then.
	defer func() { _ = c.Raw(func(any) error { return driver.ErrBadConn }); _ = c.Close() }()
	if database != "" {
		_, err = c.ExecContext(ctx, "USE `"+database+"`")
		require.NoError(t, err)
	}
	require.NoError(t, f(ctx, c))
}

// NewDatabase makes a database of the test's own and drops it with the test.
func (m *MySQL) NewDatabase(t testing.TB) string {
	t.Helper()
	name := "t_" + Unique()
	m.Exec(t, "", "CREATE DATABASE "+name+" CHARACTER SET utf8mb4")
	t.Cleanup(func() {
		if !t.Failed() {
			m.Exec(t, "", "DROP DATABASE IF EXISTS "+name)
		}
	})
	return name
}

// NewUser makes a connector's user with the least that outtail needs: the two replication privileges, and SELECT on the
// databases named.
func (m *MySQL) NewUser(t testing.TB, databases ...string) (user, password string) {
	t.Helper()
	user, password = "u_"+Unique(), "pw-"+Unique()
	q := []string{
		fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s'", user, password),
		fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '%s'@'%%'", user),
	}
	for _, d := range databases {
		q = append(q, fmt.Sprintf("GRANT SELECT ON `%s`.* TO '%s'@'%%'", d, user))
	}
	m.Exec(t, "", strings.Join(q, ";"))
	return user, password
}
