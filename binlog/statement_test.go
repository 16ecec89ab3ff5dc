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
		{"/*! insert into t values (1) */", stmtDML, ""},
		{"SELECT `a`.`f`(1)", stmtSelect, ""},
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

func TestStatementsThatAddToATable(t *testing.T) {
	for text, want := range map[string]bool{
		"INSERT INTO outbox VALUES (1)":                                          true,
		"insert outbox values (1)":                                               true,
		"insert into `shop`.`OUTBOX` values (1)":                                 true,
		"INSERT INTO shop . outbox VALUES (1)":                                   true,
		"INSERT INTO \"outbox\" VALUES (1)":                                      true,
		"/* app */ insert /* x */ into outbox values (1)":                        true,
		"-- note\nINSERT INTO outbox VALUES (1)":                                 true,
		"#note\nREPLACE LOW_PRIORITY outbox SET id = 1":                          true,
		"INSERT HIGH_PRIORITY IGNORE INTO outbox SELECT 1":                       true,
		"INSERT INTO outbox(id) VALUES (1) ON DUPLICATE KEY UPDATE id = 2":       true,
		"/*! insert into outbox values (1) */":                                   true,
		"/*!50000 INSERT */ INTO outbox VALUES (1)":                              true,
		"insert /*!99999 into other select 1 from */ into outbox values (1)":     true,
		"INSERT /*M! INTO */ outbox VALUES (1)":                                  true,
		"LOAD DATA INFILE 'x' INTO TABLE outbox":                                 true,
		"LOAD DATA LOCAL INFILE 'into table t' REPLACE INTO TABLE `outbox` (id)": true,
		"LOAD XML INFILE 'x' INTO TABLE shop.outbox":                             true,
		"INSERT INTO `other`.`outbox` VALUES (1)":                                false,
		"INSERT INTO outbox_archive SELECT * FROM outbox":                        false,
		"INSERT INTO my_outbox VALUES (1)":                                       false,
		"INSERT INTO log VALUES ('insert into outbox')":                          false,
		"INSERT INTO log VALUES ('it''s \\' ) insert into outbox')":              false,
		"ALTER TABLE outbox ADD c INT":                                           false,
		"REPLACE INTO other SELECT * FROM (outbox)":                              false,
		"DELETE FROM outbox WHERE id < 5":                                        false,
		"DELETE outbox, o FROM outbox JOIN o USING (id)":                         false,
		"UPDATE outbox SET id = 2":                                               false,
		"WITH a AS (SELECT 1 FROM outbox) DELETE FROM o WHERE id IN (TABLE a)":   false,
		"WITH a AS (SELECT 1) UPDATE outbox SET id = 1":                          false,
		"SELECT `shop`.`f`(1)":                                                   false,
	} {
		q := in("shop", text)
		w := writtenBy(q.text)
		require.Equal(t, want, w.into(q, "shop", "outbox"), text)
	}
	for text, want := range map[string]bool{
		"UPDATE outbox SET id = 1":                               true,
		"UPDATE o JOIN shop.outbox x USING (id) SET x.id = 1":    true,
		"WITH a AS (SELECT 1) UPDATE `outbox` SET id = 1":        true,
		"UPDATE o SET v = 1 WHERE id IN (SELECT id FROM outbox)": false,
		"DELETE FROM outbox":                                     false,
	} {
		q := in("shop", text)
		w := writtenBy(q.text)
		require.Equal(t, want, w.changes(q, "shop", "outbox"), text)
	}
}

func in(schema, text string) query { return query{schema: []byte(schema), text: []byte(text)} }

func TestStatementsInOtherSchemasAreForeign(t *testing.T) {
	outbox := &table{name: "shop.outbox", schema: "shop", table: "outbox"}
	require.False(t, touches(in("other", "ALTER TABLE outbox ADD c INT"), outbox))
	require.True(t, touches(in("other", "ALTER TABLE `shop`.outbox ADD c INT"), outbox))
	into := func(q query) bool { w := writtenBy(q.text); return w.into(q, "shop", "outbox") }
	require.False(t, into(in("other", "INSERT INTO outbox VALUES (1)")))
	require.True(t, into(in("", "INSERT INTO Shop.outbox VALUES (1)")))
	ümlaut := in("shop", "INSERT INTO `\xfcmlaut` VALUES (1)")
	w := writtenBy(ümlaut.text)
	require.True(t, w.into(ümlaut, "shop", "ümlaut"), "a name in an unknown character set")
}

// A name may begin with a digit, and a number may have a point.
func TestNamesThatBeginWithADigit(t *testing.T) {
	outbox := &table{name: "1shop.outbox", schema: "1shop", table: "outbox"}
	for _, text := range []string{
		"ALTER TABLE 1shop.outbox ADD c INT FIRST", "ALTER TABLE 1shop . outbox ADD c DECIMAL(3,1) DEFAULT 1.5 FIRST", "ALTER TABLE `1shop`.outbox ADD c DOUBLE DEFAULT -1.5e3 FIRST",
	} {
		c := changes(in("other", text), outbox, false, false)
		require.Equal(t, changeEdits, c.kind, text)
		require.True(t, c.edits[0].first, text)
	}
	w := writtenBy([]byte("INSERT INTO 1shop.outbox VALUES (1.5)"))
	require.True(t, w.into(in("other", "INSERT INTO 1shop.outbox VALUES (1.5)"), "1shop", "outbox"))
}

// What a statement does depends on more than its text where a server's version, sql_mode or character set decides how it reads.
func TestStatementsThatDoNotSayHowTheyRead(t *testing.T) {
	outbox := &table{name: "shop.outbox", schema: "shop", table: "outbox"}
	for _, text := range []string{
		"ALTER TABLE outbox ADD c INT /*!80000 FIRST */", "ALTER TABLE outbox ADD c INT /*M!100000 FIRST */", `ALTER TABLE outbox ADD c INT COMMENT 'a\\' FIRST`, `ALTER TABLE outbox ADD c INT COMMENT "a\" FIRST`,
		"ALTER TABLE outbox ADD `\xe4` INT", "ALTER TABLE outbox ADD c INT COMMENT 'open", "ALTER TABLE outbox ADD c INT /* open", "ALTER TABLE outbox ADD c INT */",
	} {
		require.Equal(t, changeUnknown, changes(in("shop", text), outbox, false, true).kind, "%q", text)
	}
	require.Equal(t, changeEdits, changes(in("shop", "ALTER TABLE outbox ADD c INT COMMENT 'it''s' /* FIRST */ -- x"), outbox, false, true).kind)
}

func FuzzStatement(f *testing.F) {
	for _, s := range []string{"BEGIN", "ROLLBACK TO `a``b`", "/*!50003 ALTER TABLE t */", "-- x\n(INSERT", "XA COMMIT X'61'", "ALTER TABLE s.t ADD c INT FIRST, DROP b"} {
		f.Add([]byte(s))
	}
	t0 := &table{name: "s.t", schema: "s", table: "t"}
	f.Fuzz(func(_ *testing.T, b []byte) {
		statement(b)
		touches(query{schema: []byte("s"), text: b}, t0)
		w := writtenBy(b)
		w.into(query{schema: []byte("s"), text: b}, "s", "t")
		if c := changes(query{schema: []byte("s"), text: b}, t0, false, true); c.kind == changeEdits {
			definition{{Name: "a", Type: "int"}, {Name: "b", Type: "text", Charset: "latin1"}}.apply(c.edits, "latin1")
		}
		k := &carriers{}
		k.follow(query{schema: []byte("s"), text: b}, []table{*t0})
	})
}

func TestMySQLsListOfWrittenSchemas(t *testing.T) {
	head := "\x00\x00\x00\x00\x00\x01 \x00\xa0E\x00\x00\x00\x00\x06\x03std\x04\xff\x00\xff\x00\xff\x00\x05\x06+00:00"
	for vars, want := range map[string][]string{
		head + "\x0c\x02z\x00p\x00\x12\xff\x00\x15\x00": {"z", "p"},
		head + "\x0c\x01shop\x00":                       {"shop"},
		head + "\x0b\x04root\x09localhost\x0c\x01p\x00": {"p"},
		head + "\x0c\xfe":                               nil, // too many to say
		head + "\x0c\x02z\x00":                          nil,
		head + "\x80\x01\x02\x03":                       nil, // MariaDB's
		head[:9]:                                        nil,
		"":                                              nil,
	} {
		got, known := query{vars: []byte(vars)}.written()
		require.Equal(t, want != nil, known, "%q", vars)
		if known {
			require.Equal(t, want, got)
		}
	}
}
