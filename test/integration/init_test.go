package integration

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

// The SQL that init prints, piped into the server's own client: all of it runs, and nobody can log in as the new user who was not given its
// password. What it says is left to do is all that is.
func TestSQLOfInitIsSafeToPipe(t *testing.T) {
	database, user := "shop_"+harness.Unique(), "outtail_"+harness.Unique()
	printed := func(t *testing.T, kind string) (statements, left string) {
		t.Helper()
		r := harness.StartCommand(t, t.TempDir(), servers.Binary(t), "init", "--source", kind, "--sql").Wait(t)
		require.Equal(t, 0, r.Code, r.Stderr)
		require.True(t, strings.HasSuffix(r.Stdout, r.Stderr), "what is left to do is seen although the SQL goes into a pipe")
		// Servers are shared: the user, the database, and the publication that no two databases would mind are the test's own.
		own := strings.NewReplacer("'outtail'@", "'"+user+"'@", "ROLE outtail", "ROLE "+user, "TO outtail", "TO "+user, "shop.", database+".", "outtail_orders", user)
		return own.Replace(r.Stdout), own.Replace(r.Stderr)
	}
	// statement finds the one that is left to do, with a password in it.
	statement := func(t *testing.T, left, begins string) string {
		t.Helper()
		at := strings.Index(left, begins)
		require.GreaterOrEqual(t, at, 0, left)
		text, _, _ := strings.Cut(left[at:], ";")
		return strings.Replace(text, "'…'", "'pw-chosen'", 1)
	}

	t.Run("postgres", func(t *testing.T) {
		s := servers.Postgres(t, harness.NewestPostgres())
		db := s.NewDatabase(t)
		sql, left := printed(t, "postgres")
		said := s.Feed(t, "psql -v ON_ERROR_STOP=1 -U postgres -d "+db, sql)
		t.Cleanup(func() { s.Exec(t, db, "DROP OWNED BY "+user, "DROP ROLE "+user) })
		require.NotContains(t, said, "ERROR")
		login := func(password string) error {
			c, err := pgx.Connect(t.Context(), s.URL(user, password, db))
			if err == nil {
				_ = c.Close(context.Background())
			}
			return err
		}
		for _, guess := range []string{"", "choose one", "…", user} {
			require.ErrorContains(t, login(guess), "password authentication failed", guess)
		}
		require.Empty(t, s.Scalar(t, db, "SELECT max(slot_name) FROM pg_replication_slots WHERE slot_name = '"+user+"'"), "a slot that nobody reads keeps log for ever")
		s.Exec(t, db, statement(t, left, "ALTER ROLE"))
		require.NoError(t, login("pw-chosen"))
		s.Exec(t, db, statement(t, left, "SELECT pg_create_logical_replication_slot"))
	})
	for _, kind := range []string{"mysql", "mariadb"} {
		t.Run(kind, func(t *testing.T) {
			s := servers.MySQL(t)
			if kind == "mariadb" {
				s = servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true})
			}
			s.Exec(t, "", "CREATE DATABASE "+database)
			t.Cleanup(func() { s.Exec(t, "", "DROP DATABASE "+database) })
			sqlText, left := printed(t, kind)
			metadata := s.Scalar(t, "", "SELECT @@GLOBAL.binlog_row_metadata")
			said := s.Feed(t, "mysql --default-character-set=utf8mb4 -uroot -p"+harness.RootPassword+" "+database, sqlText)
			t.Cleanup(func() {
				s.Exec(t, "", fmt.Sprintf("DROP USER '%s'@'%%'; SET GLOBAL binlog_row_metadata = '%s'", user, metadata))
				if kind == "mysql" {
					s.Exec(t, "", "RESET PERSIST IF EXISTS binlog_row_metadata")
				}
			})
			login := func(password string) error {
				pool, err := sql.Open("mysql", s.DSN(user, password, ""))
				require.NoError(t, err)
				defer pool.Close()
				return pool.PingContext(t.Context())
			}
			for _, guess := range []string{"", "choose one", "…", user} {
				require.Error(t, login(guess), guess)
			}
			if kind == "mysql" {
				_, row, ok := strings.Cut(said, user+"\t%\t")
				require.True(t, ok, said)
				password, _, _ := strings.Cut(row, "\t")
				require.NoError(t, login(password), "the one that the server made up and printed")
			}
			s.Exec(t, "", statement(t, left, "ALTER USER"))
			require.NoError(t, login("pw-chosen"))
		})
	}
}
