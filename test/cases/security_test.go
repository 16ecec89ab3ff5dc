package cases

import (
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// door is how a user gets into a database.
type door struct {
	db      shop.Database
	host    string
	port    int
	options string // of the source, without its address
	// create makes a user with what outtail needs; forget makes the server ask for the password in full again.
	create func(user, secret string)
	forget func()
}

func TestB149APasswordOfAnyCharactersWorksAndIsNeverTold(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		passwords(t, door{
			db: db, host: db.Server.Host, port: db.Server.Port, options: "database: " + db.DB + ", tables: [outbox], start: now",
			create: func(user, secret string) {
				literal := "'" + strings.ReplaceAll(strings.ReplaceAll(secret, `\`, `\\`), "'", "''") + "'"
				db.Exec(t, fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY %s; GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '%s'@'%%'; GRANT SELECT ON `%s`.* TO '%s'@'%%'",
					user, literal, user, db.DB, user))
			},
			forget: func() { db.Server.Exec(t, "", "FLUSH PRIVILEGES") },
		})
	})
}

func TestB149APasswordForPostgresOfAnyCharactersWorksAndIsNeverTold(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		passwords(t, door{
			db: db, host: db.Server.Host, port: db.Server.Port,
			options: "database: " + db.DB + ", tables: [public.outbox], slot: " + db.Slot() + ", publication: outtail_orders, create: true, start: now",
			create: func(user, secret string) {
				db.Exec(t, fmt.Sprintf("CREATE ROLE %s LOGIN REPLICATION PASSWORD '%s'", user, strings.ReplaceAll(secret, "'", "''")))
			},
			forget: func() {},
		})
	})
}

// passwords uses one of odd characters in every way, right and wrong, and looks for it in all that is said.
func passwords(t *testing.T, d door) {
	db := d.db
	// The parts around the odd characters are what is looked for: no encoding changes them.
	first, last := "Fst"+harness.Unique(), "Lst"+harness.Unique()
	secret := first + `^%@/:# '"\$%41{}` + last
	user := "s_" + harness.Unique()
	d.create(user, secret)
	quoted := "'" + strings.ReplaceAll(secret, "'", "''") + "'" // YAML's single quotes
	source := func(address string, more string) string {
		return fmt.Sprintf("%s: { %s, %s%s }", db.Kind(), address, d.options, more)
	}
	addr := net.JoinHostPort(d.host, strconv.Itoa(d.port))
	fields := fmt.Sprintf("host: %s, port: %d, user: %s, password: %s", d.host, d.port, user, quoted)
	dsn := func(host, secret string) string {
		return "url: '" + (&url.URL{Scheme: db.Kind(), User: url.UserPassword(user, secret), Host: host}).String() + "'"
	}

	s := scene.New(t, &servers, db)
	s.Configure("Level", "debug")
	var told strings.Builder // everything that was said anywhere
	run := func(args ...string) harness.Result {
		r := s.Outtail.Run(t, append(args, "-c", s.Outtail.Config)...)
		told.WriteString(r.Stdout + r.Stderr)
		return r
	}
	quiet := func(t *testing.T) {
		t.Helper()
		require.NoError(t, filepath.WalkDir(s.Outtail.DataDir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			told.Write(b)
			return err
		}))
		all := told.String()
		told.Reset()
		for _, part := range []string{first, last, secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			if strings.Contains(all, part) {
				require.Failf(t, "the password was told", "%q", part)
			}
		}
		require.NotEmpty(t, all)
	}
	for name, address := range map[string]string{"fields": fields, "url": dsn(addr, secret)} {
		t.Run(name, func(t *testing.T) {
			s.Configure("Source", source(address, ""))
			require.Equal(t, 0, run("validate").Code)
			run("doctor")
			run("doctor", "--json")
			p := s.Start()
			s.Insert(1)
			s.Arrived(p)
			d.forget()
			for _, path := range []string{"/metrics", "/readyz", "/healthz", "/"} {
				_, body := s.Outtail.Get(t, path)
				told.WriteString(body)
			}
			run("checkpoint", "show")
			r := p.Terminate(t)
			require.Equal(t, 0, r.Code)
			told.WriteString(r.Stdout + r.Stderr)
			quiet(t)
		})
	}
	for name, c := range map[string]struct {
		source string
		code   int
	}{
		"refused":               {source(strings.Replace(fields, last, last+"x", 1), ""), 3},
		"refused, by url":       {source(dsn(addr, secret+"x"), ""), 3},
		"no such host":          {source(dsn("nowhere.invalid:3306", secret), ""), 3},
		"TLS fails":             {source(fields, ", tls: { mode: verify-full }"), 3},
		"a url without escapes": {source("url: '"+db.Kind()+"://"+user+":"+strings.ReplaceAll(secret, "'", "''")+"@"+addr+"'", ""), 2},
		"no such option":        {source(fields, ", passwort: "+quoted), 2},
	} {
		t.Run(name, func(t *testing.T) {
			s.Configure("Source", c.source, "StartTimeout", "1s")
			require.Equal(t, c.code, run("run").Code)
			run("validate")
			run("doctor")
			quiet(t)
		})
	}
}
