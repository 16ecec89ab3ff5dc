package binlog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// onBoth runs a test on MySQL and MariaDB.
func onBoth(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Run("mysql", func(t *testing.T) { t.Parallel(); test(t, newBench(t, servers.MySQL(t))) })
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true}))
		b.kind = event.MariaDB
		test(t, b)
	})
}

// asStatements runs statements in one session that logs them as they are.
func (b *bench) asStatements(t testing.TB, statements ...string) {
	b.run(t, append([]string{"SET SESSION binlog_format = 'STATEMENT'"}, statements...)...)
}

// What a statement adds to an outbox table cannot be read when the log holds the statement instead of the rows. Whichever way it
// gets there, by name or by a trigger, view or routine, nothing passes it silently; every other statement is foreign.
func TestNoStatementReachesTheOutboxUnseen(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.run(t, "CREATE TABLE outbox "+outboxColumns, "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)", "CREATE TABLE other LIKE orders", "CREATE TABLE far LIKE orders",
			"CREATE TABLE stock LIKE orders", "CREATE VIEW events AS SELECT payload FROM outbox", "CREATE VIEW harmless AS SELECT v FROM other",
			"CREATE TRIGGER tg AFTER INSERT ON orders FOR EACH ROW INSERT INTO outbox (payload) VALUES ('trigger')",
			"CREATE PROCEDURE pr() INSERT INTO outbox (payload) VALUES ('procedure')",
			"CREATE PROCEDURE note() INSERT INTO events (payload) VALUES ('deep')",
			"CREATE TRIGGER up AFTER UPDATE ON stock FOR EACH ROW CALL note()",
			"CREATE FUNCTION f(i INT) RETURNS INT MODIFIES SQL DATA DETERMINISTIC BEGIN INSERT INTO outbox (payload) VALUES ('function'); RETURN i; END",
			"CREATE FUNCTION g(i INT) RETURNS INT MODIFIES SQL DATA DETERMINISTIC BEGIN INSERT INTO far (v) VALUES ('x'); RETURN i; END",
			"INSERT INTO stock (v) VALUES ('s')")
		o := b.options(t, "outbox")
		// Least privileges, and what shows triggers, views and routines.
		b.Exec(t, "", fmt.Sprintf("GRANT TRIGGER, SHOW VIEW ON `%s`.* TO '%s'@'%%'", b.db, o.User))
		if b.kind == event.MariaDB {
			b.Exec(t, "", fmt.Sprintf("GRANT SELECT ON mysql.proc TO '%s'@'%%'", o.User))
		} else {
			b.Exec(t, "", fmt.Sprintf("GRANT SHOW_ROUTINE ON *.* TO '%s'@'%%'", o.User))
		}
		elsewhere := b.NewDatabase(t)
		dir := b.Scalar(t, "", "SELECT @@secure_file_priv")
		if dir == "" {
			dir = "/tmp/"
		}
		file := dir + b.db + ".txt"
		b.WriteFile(t, file, "loaded\n")
		load := "LOAD DATA INFILE '" + file + "' INTO TABLE outbox (payload)"
		for _, q := range []string{
			load,
			"INSERT INTO outbox (payload) VALUES ('x')",
			"/*x*/ insert into `outbox` (payload) values ('x')",
			"/*! INSERT INTO outbox (payload) VALUES ('x') */",
			"INSERT /*!40000 IGNORE */ INTO outbox (payload) VALUES ('x')",
			"-- note\nREPLACE outbox SET payload = 'x'",
			"USE " + elsewhere + "; INSERT INTO " + b.db + ".outbox (payload) SELECT 'x'",
			"PREPARE s FROM 'INSERT INTO outbox (payload) VALUES (?)'; SET @x = 'x'; EXECUTE s USING @x",
			"CALL pr()",
			"INSERT INTO events (payload) VALUES ('x')",
			"INSERT INTO orders (v) VALUES ('x')",
			"UPDATE stock SET v = CONCAT(v, 'x')",
			"SELECT f(1)",
			"DO f(1)",
			"INSERT INTO other (v) VALUES (f(1))",
		} {
			s := open(t, o, event.Checkpoint{})
			b.run(t, "INSERT INTO outbox (payload) VALUES ('before')")
			b.asStatements(t, q)
			b.run(t, "INSERT INTO outbox (payload) VALUES ('behind')")
			before := s.cp.Position
			events, err := s.tryRead(3)
			f := requireFault(t, err, "OT3028", event.Safety)
			require.Equal(t, []string{"before"}, payloads(events), q)
			require.Contains(t, f.Place, before.File, q)
			require.Contains(t, f.Hint, "binlog_format", q)
			require.NoError(t, s.Close())

			from := s.cp
			from.Accepted = []string{"OT3028"}
			s = open(t, o, from)
			require.Equal(t, "behind", s.read(t, 1)[0].payload, q)
			require.NoError(t, s.Close())
		}
		s := open(t, o, event.Checkpoint{})
		b.asStatements(t,
			"INSERT INTO other (v) VALUES ('insert into outbox'), ('x')", "UPDATE other SET v = 'y'", "DELETE FROM other WHERE v = 'z'",
			"UPDATE other SET v = 'y' WHERE id IN (SELECT id FROM outbox)", "INSERT INTO other (v) SELECT v FROM orders", "INSERT INTO harmless (v) VALUES ('x')",
			"DELETE FROM outbox WHERE payload = 'before'", "DELETE FROM orders", "SELECT g(1)", "INSERT INTO other (v) VALUES (g(1))",
			"CREATE TABLE copy AS SELECT * FROM outbox", "UPDATE outbox SET note = 'x' WHERE payload = 'none'", "TRUNCATE TABLE outbox")
		b.run(t, "INSERT INTO outbox (payload) VALUES ('end')")
		require.Equal(t, "end", s.read(t, 1)[0].payload)
		b.run(t, load)
		require.Equal(t, "loaded", s.read(t, 1)[0].payload, "as rows, what is loaded is an event like others")
	})
}

// A user who may see nothing of triggers and routines learns that from the log; a function of which nothing is known stops us.
func TestWhatMayNotBeSeenIsSaid(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.run(t, "CREATE TABLE outbox "+outboxColumns, "CREATE TABLE other (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)",
			"CREATE FUNCTION g(i INT) RETURNS INT MODIFIES SQL DATA DETERMINISTIC BEGIN INSERT INTO other (v) VALUES ('x'); RETURN i; END")
		o := b.options(t, "outbox")
		said := &strings.Builder{}
		o.Logger = logTo(said)
		s := open(t, o, event.Checkpoint{})
		b.asStatements(t, "INSERT INTO other (v) VALUES ('x')")
		b.run(t, "INSERT INTO outbox (payload) VALUES ('on')")
		require.Equal(t, "on", s.read(t, 1)[0].payload)
		require.Contains(t, said.String(), "GRANT TRIGGER")

		b.asStatements(t, "SELECT g(1)")
		_, err := s.tryRead(1)
		f := requireFault(t, err, "OT3028", event.Safety)
		require.Contains(t, f.Text, b.db+".g")
		require.Contains(t, f.Hint, "GRANT")
	})
}

// A trigger of another schema is seen by no one who may not look there; MySQL tells all the same where a statement wrote.
func TestMySQLTellsWhereAStatementWrote(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	elsewhere := b.NewDatabase(t)
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	b.Exec(t, elsewhere, "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT); CREATE TABLE other LIKE orders;"+
		"CREATE TRIGGER tg AFTER INSERT ON orders FOR EACH ROW INSERT INTO "+b.db+".outbox (payload) VALUES (NEW.v);"+
		"CREATE FUNCTION g(i INT) RETURNS INT MODIFIES SQL DATA DETERMINISTIC BEGIN INSERT INTO other (v) VALUES ('x'); RETURN i; END")
	s := open(t, b.options(t, "outbox"), event.Checkpoint{})
	b.asStatements(t, "USE "+elsewhere, "INSERT INTO other (v) VALUES ('x')", "SELECT g(1)")
	b.run(t, "INSERT INTO outbox (payload) VALUES ('on')")
	require.Equal(t, "on", s.read(t, 1)[0].payload)
	b.asStatements(t, "USE "+elsewhere, "INSERT INTO orders (v) VALUES ('lost')")
	_, err := s.tryRead(1)
	requireFault(t, err, "OT3028", event.Safety)
}

// A trigger that comes while outtail runs is known from then on.
func TestTriggersThatComeLaterAreKnown(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.run(t, "CREATE TABLE outbox "+outboxColumns, "CREATE TABLE other (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)")
		s := open(t, b.options(t, "outbox"), event.Checkpoint{})
		b.asStatements(t, "INSERT INTO other (v) VALUES ('x')")
		b.run(t, "INSERT INTO outbox (payload) VALUES ('1')")
		require.Equal(t, "1", s.read(t, 1)[0].payload)
		b.run(t, "CREATE TRIGGER tg AFTER INSERT ON other FOR EACH ROW INSERT INTO outbox (payload) VALUES (NEW.v)", "INSERT INTO other (v) VALUES ('2')")
		require.Equal(t, "2", s.read(t, 1)[0].payload, "as rows, what a trigger inserts is an event like others")
		b.run(t, "DROP TRIGGER tg")
		b.asStatements(t, "INSERT INTO other (v) VALUES ('x')")
		b.run(t, "INSERT INTO outbox (payload) VALUES ('3')",
			"CREATE TRIGGER tg AFTER INSERT ON other FOR EACH ROW INSERT INTO outbox (payload) VALUES (NEW.v)")
		require.Equal(t, "3", s.read(t, 1)[0].payload)
		b.asStatements(t, "INSERT INTO other (v) VALUES ('lost')")
		_, err := s.tryRead(1)
		requireFault(t, err, "OT3028", event.Safety)
	})
}
