package binlog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatementsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		text string
		kind stmtKind
		name string
	}{
		{"BEGIN", stmtBegin, ""},
		{"COMMIT", stmtCommit, ""},
		{"commit /* x */", stmtCommit, ""},
		{"ROLLBACK", stmtRollback, ""},
		{"ROLLBACK WORK", stmtRollback, ""},
		{"ROLLBACK TO `Sp``1`", stmtRollbackTo, "sp`1"},
		{"ROLLBACK TO SAVEPOINT a", stmtRollbackTo, "a"},
		{"rollback work to savepoint a", stmtRollbackTo, "a"},
		{"ROLLBACK TO savepoint", stmtRollbackTo, "savepoint"},
		{"SAVEPOINT `sp``1`", stmtSavepoint, "sp`1"},
		{"XA START X'61',X'',1", stmtBegin, ""},
		{"XA END X'61',X'',1", stmtXAEnd, ""},
		{"XA COMMIT X'61',X'',1", stmtXACommit, ""},
		{"XA ROLLBACK X'61',X'',1", stmtXARollback, ""},
		{"/* app */ insert into t values (1)", stmtDML, ""},
		{"-- c\n# d\nREPLACE t SET a = 1", stmtDML, ""},
		{"ALTER TABLE t ADD c INT", stmtDDL, ""},
		{"/*!80000 ALTER TABLE t ADD c INT */", stmtDDL, ""},
		{"TRUNCATE TABLE t", stmtOther, ""},
		{"GRANT SELECT ON t TO u", stmtOther, ""},
		{"", stmtOther, ""},
		{"/* open", stmtOther, ""},
	} {
		kind, name := statement([]byte(c.text))
		require.Equal(t, c.kind, kind, c.text)
		require.Equal(t, c.name, name, c.text)
	}
}

func TestDDLThatMayTouchATable(t *testing.T) {
	outbox := &table{name: "shop.outbox", schema: "shop", table: "outbox"}
	for text, want := range map[string]bool{
		"ALTER TABLE `shop`.`OutBox` ADD c INT":           true,
		"RENAME TABLE _outbox_new TO outbox":              true,
		"CREATE OR REPLACE TABLE outbox (a INT)":          true,
		"DROP TABLE IF EXISTS a, outbox":                  true,
		"/*!50003 ALTER TABLE outbox ADD c INT */":        true,
		"DROP DATABASE shop":                              true,
		"DROP DATABASE other":                             false,
		"ALTER TABLE orders ADD c INT":                    false,
		"CREATE INDEX i ON outbox (a)":                    false,
		"CREATE TRIGGER x AFTER INSERT ON outbox FOR …":   false,
		"INSERT INTO outbox VALUES (1)":                   false,
		"TRUNCATE outbox":                                 false,
		"ALTER TABLE orders COMMENT 'feeds the outbox'":   true, // too often rather than too seldom
		"CREATE TABLE t (a INT) COMMENT 'not the inbox'":  false,
		"ALTER TABLE shop.orders RENAME TO shop.`outbox`": true,
	} {
		require.Equal(t, want, touches(in("shop", text), outbox), text)
	}
	require.True(t, touches(in("s", "ALTER TABLE x ADD c INT"), &table{schema: "s", table: "ümlaut"}), "a name in an unknown character set")
	require.True(t, touches(in("s", "ALTER TABLE `a``b` ADD c INT"), &table{schema: "s", table: "a`b"}))
}

func TestStatementsThatWriteToATable(t *testing.T) {
	outbox := &table{name: "shop.outbox", schema: "shop", table: "outbox"}
	for text, want := range map[string]bool{
		"INSERT INTO outbox VALUES (1)":             true,
		"insert into `shop`.`OUTBOX` values (1)":    true,
		"LOAD DATA INFILE 'x' INTO TABLE outbox":    true,
		"INSERT INTO outbox_archive SELECT 1":       false,
		"INSERT INTO my_outbox VALUES (1)":          false,
		"ALTER TABLE outbox ADD c INT":              false,
		"REPLACE INTO other SELECT * FROM (outbox)": true,
	} {
		require.Equal(t, want, writes(in("shop", text), outbox), text)
	}
}

func in(schema, text string) query { return query{schema: []byte(schema), text: []byte(text)} }

func TestStatementsInOtherSchemasAreForeign(t *testing.T) {
	outbox := &table{name: "shop.outbox", schema: "shop", table: "outbox"}
	require.False(t, touches(in("other", "ALTER TABLE outbox ADD c INT"), outbox))
	require.True(t, touches(in("other", "ALTER TABLE `shop`.outbox ADD c INT"), outbox))
	require.False(t, writes(in("other", "INSERT INTO outbox VALUES (1)"), outbox))
	require.True(t, writes(in("", "INSERT INTO Shop.outbox VALUES (1)"), outbox))
}

func FuzzStatement(f *testing.F) {
	for _, s := range []string{"BEGIN", "ROLLBACK TO `a``b`", "/*!50003 ALTER TABLE t */", "-- x\n(INSERT", "XA COMMIT X'61'"} {
		f.Add([]byte(s))
	}
	t0 := &table{name: "s.t", schema: "s", table: "t"}
	f.Fuzz(func(_ *testing.T, b []byte) {
		statement(b)
		touches(query{schema: []byte("s"), text: b}, t0)
		writes(query{schema: []byte("s"), text: b}, t0)
	})
}
