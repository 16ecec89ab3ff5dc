package binlog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// columnsOf is the catalogue's list of a table's columns.
func (b *bench) columnsOf(t testing.TB, table string) (out []binlog.Column) {
	t.Helper()
	rows, err := b.DB.Query("SELECT COLUMN_NAME, COLUMN_TYPE, COALESCE(CHARACTER_SET_NAME, '') FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION", b.db, table)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var c binlog.Column
		require.NoError(t, rows.Scan(&c.Name, &c.Type, &c.Charset))
		out = append(out, c)
	}
	require.NoError(t, rows.Err())
	return out
}

// ddlWriter writes random ALTER TABLE statements, most of which a server accepts.
type ddlWriter struct {
	rnd   *rand.Rand
	maria bool
}

func (w *ddlWriter) one(of ...string) string { return of[w.rnd.IntN(len(of))] }

func (w *ddlWriter) name() string { return w.one("a", "b", "c", "d", "`e e`", "`key`", "F", "g$1") }

func (w *ddlWriter) kind() string {
	kinds := []string{"INT", "int unsigned", "BIGINT(20) UNSIGNED ZEROFILL", "BOOL", "TINYINT", "smallint", "mediumint unsigned", "INTEGER", "DECIMAL(10,2)", "DEC(5)", "NUMERIC(8,3) UNSIGNED", "FLOAT(7,3)", "DOUBLE PRECISION", "double",
		"VARCHAR(20)", "varchar(64) CHARACTER SET latin1", "CHAR(3) CHARACTER SET ascii", "CHAR(3) COLLATE utf8mb4_bin", "TEXT", "LONGTEXT CHARACTER SET utf8mb4", "TEXT(100)", "BLOB", "VARBINARY(9)", "BINARY(4)", "JSON", "DATETIME(6)", "TIMESTAMP NULL", "DATE", "TIME(3)",
		"YEAR", "ENUM('x','y''z')", "SET('p', 'q,r')", "ENUM('n') CHARACTER SET latin1", "BIT(9)", "SERIAL", "NCHAR(3)", "LONG VARCHAR", "REAL", "POINT", "INT ZEROFILL", "VARCHAR(10) CHARACTER SET binary", "VARCHAR(5) BINARY", "CHAR(2) BYTE", "VARCHAR(9) ASCII", "CHAR CHARACTER SET utf8mb3"}
	if w.maria {
		kinds = append(kinds, "UUID", "INET6", "VARCHAR(30) COMPRESSED", "INT WITHOUT SYSTEM VERSIONING")
	}
	return w.one(kinds...)
}

func (w *ddlWriter) column() string {
	return w.kind() + w.one("", "", " NULL", " COMMENT 'first, after b'", " DEFAULT NULL", " DEFAULT (1)", " INVISIBLE DEFAULT NULL", " CHECK (1 = 1)") + w.one("", "", " FIRST", " AFTER "+w.name())
}

func (w *ddlWriter) spec() string {
	if w.rnd.IntN(5) == 0 {
		return w.one("ENGINE=InnoDB", "COMMENT 'a, b'", "ADD INDEX i_"+fmt.Sprint(w.rnd.IntN(1e9))+" (id)", "ALTER id SET DEFAULT 3", "DEFAULT CHARSET=latin1", "CONVERT TO CHARACTER SET utf8mb4", "AUTO_INCREMENT 7, ALGORITHM=COPY", "FORCE",
			"ROW_FORMAT = DYNAMIC COMMENT='x'", "RENAME INDEX nope TO nope2")
	}
	switch w.rnd.IntN(6) {
	case 0:
		return "DROP " + w.one("", "COLUMN ") + w.name()
	case 1:
		return "MODIFY " + w.one("", "COLUMN ") + w.name() + " " + w.column()
	case 2:
		return "CHANGE " + w.one("", "COLUMN ") + w.name() + " " + w.name() + " " + w.column()
	case 3:
		return "RENAME COLUMN " + w.name() + " TO " + w.name()
	case 4:
		if w.rnd.IntN(4) == 0 {
			return "ADD (" + w.name() + " " + w.kind() + ", " + w.name() + " " + w.kind() + ")"
		}
		if w.maria && w.rnd.IntN(4) == 0 {
			return "ADD COLUMN IF NOT EXISTS " + w.name() + " " + w.column()
		}
	}
	return "ADD " + w.one("", "COLUMN ") + w.name() + " " + w.column()
}

func (w *ddlWriter) statement() string {
	specs := make([]string, 1+w.rnd.IntN(3)*w.rnd.IntN(2))
	for i := range specs {
		specs[i] = w.spec()
	}
	return w.one("ALTER TABLE t ", "/* c */ alter table `t` -- x\n ") + strings.Join(specs, w.one(", ", ","))
}

// TestWhatDDLIsFollowedToIsWhatTheServerMadeOfIt: random statements, on the server and in thought. What is not understood is allowed, as
// long as it is told; most must be, or the test shows nothing.
func TestWhatDDLIsFollowedToIsWhatTheServerMadeOfIt(t *testing.T) {
	enough, seed := 60, uint64(26)
	if n, err := strconv.Atoi(os.Getenv("OUTTAIL_DDL_STATEMENTS")); err == nil {
		enough, seed = n, rand.Uint64()
	}
	for kind, maria := range map[string]bool{event.MySQL: false, event.MariaDB: true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: maria}))
			b.kind = kind
			c, err := b.DB.Conn(t.Context())
			require.NoError(t, err)
			defer c.Close()
			exec := func(q string) error {
				_, err := c.ExecContext(context.WithoutCancel(t.Context()), q)
				return err
			}
			require.NoError(t, exec("USE "+b.db))
			require.NoError(t, exec("SET SESSION sql_log_bin = 0"))
			w := &ddlWriter{rnd: rand.New(rand.NewPCG(20, seed)), maria: maria}
			followed, unknown, same := 0, 0, 0
			var before []binlog.Column
			var charset string
			for followed < enough {
				if (followed+unknown+same)%40 == 0 {
					require.NoError(t, exec("DROP TABLE IF EXISTS t"))
					require.NoError(t, exec("CREATE TABLE t (id INT, a VARCHAR(9), b TEXT, c BIGINT UNSIGNED) CHARACTER SET utf8mb4"))
					before, charset = b.columnsOf(t, "t"), "utf8mb4"
				}
				q := w.statement()
				if exec(q) != nil {
					continue
				}
				after := b.columnsOf(t, "t")
				verdict, got := binlog.FollowDDL(kind, b.db, "t", q, before, charset)
				switch verdict {
				case "none":
					same++
					require.Equal(t, before, after, q)
				case "edits":
					followed++
					require.True(t, binlog.ReadAlike(got, after), "%s\nbefore %v\nis     %v\nthought %v", q, before, after, got)
				default:
					unknown++
				}
				before = after
				if strings.Contains(q, "CHARSET") || strings.Contains(q, "CONVERT") {
					collation := b.Scalar(t, "", "SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = 't'", b.db)
					charset, _, _ = strings.Cut(collation, "_")
				}
			}
			t.Logf("%d followed, %d without effect, %d not understood", followed, same, unknown)
			require.Less(t, unknown, 2*followed)
		})
	}
}
