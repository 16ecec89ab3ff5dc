package binlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// account makes a user with the least privileges and logs in by the given clause.
func (b *bench) account(t testing.TB, identified string) string {
	user := "a_" + harness.Unique()
	b.run(t, fmt.Sprintf("CREATE USER '%s'@'%%' %s", user, identified), fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '%s'@'%%'", user),
		fmt.Sprintf("GRANT SELECT ON `%s`.* TO '%s'@'%%'", b.db, user))
	return user
}

// reads proves a login: all of its sessions, and an event.
func (b *bench) reads(t testing.TB, o binlog.Options) {
	t.Helper()
	s := open(t, o, event.Checkpoint{})
	b.run(t, "INSERT INTO outbox (payload) VALUES ('in')")
	require.Equal(t, "in", s.read(t, 1)[0].payload)
	require.NoError(t, s.Close())
}

func TestB141LoggingInWhateverTheServersCacheHolds(t *testing.T) {
	// A server of its own: the cache of passwords is the server's.
	b := newBench(t, harness.StartMySQL(t, harness.MySQLOptions{}))
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	for name, c := range map[string]struct{ identified, password string }{
		"caching_sha2_password":                  {"IDENTIFIED WITH caching_sha2_password BY 'p^w%@/:# s'", "p^w%@/:# s"},
		"caching_sha2_password, a long password": {"IDENTIFIED WITH caching_sha2_password BY '" + long + "'", long},
		"caching_sha2_password, empty":           {"IDENTIFIED WITH caching_sha2_password BY ''", ""},
	} {
		for _, mode := range []string{"disable", "require"} {
			t.Run(name+", tls "+mode, func(t *testing.T) {
				o := o
				o.User, o.Password, o.TLS.Mode = b.account(t, c.identified), c.password, mode
				b.run(t, "FLUSH PRIVILEGES") // the full exchange: by TLS or by the server's RSA key
				b.reads(t, o)
				b.reads(t, o) // the short one
				b.run(t, "FLUSH PRIVILEGES")
				o.Password += "x"
				_, err := tryOpen(t, o, event.Checkpoint{})
				f := requireFault(t, err, "OT3002", event.Environment)
				require.Contains(t, f.Text, o.User)
				require.NotContains(t, fmt.Sprint(f.Error(), f.Hint), o.Password)
			})
		}
	}
	for clause, text := range map[string]string{"ACCOUNT LOCK": "locked", "PASSWORD EXPIRE": "password"} {
		t.Run(clause, func(t *testing.T) {
			o := o
			o.User, o.Password = b.account(t, "IDENTIFIED BY 'x' "+clause), "x"
			_, err := tryOpen(t, o, event.Checkpoint{})
			f := event.AsFault(err)
			require.NotNil(t, f)
			require.Contains(t, f.Error(), text)
			require.NotEmpty(t, f.Hint)
			require.Equal(t, "OT3002", f.Code, "%v", f)
		})
	}
}

const long = "0123456789abcdefghijklmnopqrstuvwxyz-0123456789abcdefghijklmnopqrstuvwxyz-0123456789abcdefghijklmnopqrstuvwxyz"

func TestB141LoggingInToMariaDB(t *testing.T) {
	b := newBench(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true}))
	b.kind = event.MariaDB
	b.run(t, "CREATE TABLE outbox "+outboxColumns, "INSTALL SONAME 'auth_ed25519'")
	o := b.options(t, "outbox")
	for name, c := range map[string]struct{ identified, password string }{
		"mysql_native_password":        {"IDENTIFIED VIA mysql_native_password USING PASSWORD('p^w%@/:# s')", "p^w%@/:# s"},
		"mysql_native_password, empty": {"IDENTIFIED VIA mysql_native_password USING PASSWORD('')", ""},
		"ed25519":                      {"IDENTIFIED VIA ed25519 USING PASSWORD('p^w%@/:# s')", "p^w%@/:# s"},
		"ed25519, a long password":     {"IDENTIFIED VIA ed25519 USING PASSWORD('" + long + "')", long},
		"the second of two ways":       {"IDENTIFIED VIA unix_socket OR ed25519 USING PASSWORD('x')", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			o.User, o.Password = b.account(t, c.identified), c.password
			b.reads(t, o)
			o.Password += "x"
			_, err := tryOpen(t, o, event.Checkpoint{})
			requireFault(t, err, "OT3002", event.Environment)
		})
	}
	t.Run("a way to log in that nobody here speaks", func(t *testing.T) {
		b.run(t, "INSTALL SONAME 'auth_pam_v1'")
		o := o
		o.User = b.account(t, "IDENTIFIED VIA pam")
		_, err := tryOpen(t, o, event.Checkpoint{})
		f := requireFault(t, err, "OT3002", event.Environment)
		require.Contains(t, f.Error(), "dialog")
		require.Contains(t, f.Hint, "ALTER USER '"+o.User+"'@'%' IDENTIFIED VIA ed25519")
	})
	t.Run("a way to log in that only the server's host has", func(t *testing.T) {
		o := o
		o.User = b.account(t, "IDENTIFIED VIA unix_socket")
		_, err := tryOpen(t, o, event.Checkpoint{})
		f := requireFault(t, err, "OT3002", event.Environment)
		require.Contains(t, f.Hint, "ALTER USER")
	})
}
