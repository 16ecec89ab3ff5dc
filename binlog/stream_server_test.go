package binlog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

func TestOnlyWhatCommittedArrivesInCommitOrder(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns, "CREATE TABLE other (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)",
		"CREATE TABLE myisam (id INT) ENGINE=MyISAM")
	s := open(t, b.options(t, "outbox"), event.Checkpoint{})
	b.run(t,
		"INSERT INTO outbox (payload) VALUES ('a1'), (NULL), ('')",
		"START TRANSACTION", "INSERT INTO outbox (payload) VALUES ('gone')", "ROLLBACK",
		"START TRANSACTION", "INSERT INTO other (v) VALUES ('x')", "INSERT INTO outbox (payload) VALUES ('b1')", "SAVEPOINT a",
		"INSERT INTO outbox (payload) VALUES ('gone')", "ROLLBACK TO a", "INSERT INTO outbox (payload) VALUES ('b2')", "COMMIT",
		// A table without transactions in between makes the server log rows that a savepoint takes back.
		"SET SESSION binlog_direct_non_transactional_updates = OFF",
		"START TRANSACTION", "INSERT INTO outbox (payload) VALUES ('c1')", "SAVEPOINT a", "INSERT INTO outbox (payload) VALUES ('gone')",
		"INSERT INTO other (v) SELECT 'y'", "ROLLBACK TO SAVEPOINT a", "INSERT INTO outbox (payload) VALUES ('c2')", "COMMIT",
		"UPDATE outbox SET note = 'n' WHERE payload = 'a1'", "DELETE FROM outbox WHERE payload = 'b1'",
		"XA START 'one'", "INSERT INTO outbox (payload) VALUES ('x1')", "XA END 'one'", "XA COMMIT 'one' ONE PHASE",
		"INSERT INTO outbox (payload) VALUES ('end')",
	)
	events := s.read(t, 9)
	require.Equal(t, []string{"a1", "", "", "b1", "b2", "c1", "c2", "x1", "end"}, payloads(events))
	require.True(t, events[1].null)
	require.False(t, events[2].null)
	require.Equal(t, []uint64{0, 1, 2, 0, 1, 0, 1}, indexes(events[:7]))
	require.Equal(t, events[3].tx, events[4].tx)
	require.Equal(t, flat(b.Scalar(t, "", "SELECT @@global.gtid_executed")), s.cp.Position.GTID)
}

func indexes(list []got) []uint64 {
	out := make([]uint64, len(list))
	for i := range list {
		out[i] = list[i].index
	}
	return out
}

func TestSessionGoesOnWhereTheLastOneStored(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	s := open(t, o, event.Checkpoint{})
	b.run(t, "INSERT INTO outbox (payload) VALUES ('1'), ('2')", "INSERT INTO outbox (payload) VALUES ('3')")
	require.Equal(t, []string{"1", "2", "3"}, payloads(s.read(t, 3)))
	require.NoError(t, s.Close())
	b.run(t, "INSERT INTO outbox (payload) VALUES ('4')", "FLUSH BINARY LOGS")

	s = open(t, o, s.cp)
	require.Equal(t, "4", s.read(t, 1)[0].payload)
	mid := s.cp
	b.run(t, "INSERT INTO outbox (payload) VALUES ('5'), ('6'), ('7')")
	rest := s.read(t, 3)
	require.Equal(t, []string{"5", "6", "7"}, payloads(rest))
	require.NoError(t, s.Close())

	t.Run("a prefix of the next transaction is not delivered again", func(t *testing.T) {
		cp := mid
		cp.Prefix = &event.Prefix{Tx: rest[0].tx, Rows: 2, Selection: cp.Selection}
		s := open(t, o, cp)
		again := s.read(t, 1)
		require.Equal(t, []string{"7"}, payloads(again))
		require.Equal(t, uint64(2), again[0].index)
	})
	t.Run("a prefix of another selection counts nothing", func(t *testing.T) {
		cp := mid
		cp.Prefix = &event.Prefix{Tx: rest[0].tx, Rows: 2, Selection: "other"}
		s := open(t, o, cp)
		require.Nil(t, s.cp.Prefix)
		require.Equal(t, []string{"5", "6", "7"}, payloads(s.read(t, 3)))
	})
}

func TestForeignTransactionsMoveThePosition(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns, "CREATE TABLE other (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)")
	s := open(t, b.options(t, "outbox"), event.Checkpoint{})
	for range 20 {
		b.run(t, "INSERT INTO other (v) VALUES ('x')")
	}
	b.run(t, "FLUSH BINARY LOGS", "INSERT INTO other (v) VALUES ('x')")
	want := flat(b.Scalar(t, "", "SELECT @@global.gtid_executed"))
	s.until(t, "the idle position follows", func() bool { return s.cp.Position.GTID == want })
	require.Equal(t, b.Scalar(t, "", "SELECT SUBSTRING_INDEX(@@log_bin_basename, '/', -1)"), s.cp.Position.File[:strings.IndexByte(s.cp.Position.File, '.')])
}

func TestStartRuleDecidesWhereAFirstSessionBegins(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns, "FLUSH BINARY LOGS")
	before := flat(b.Scalar(t, "", "SELECT @@global.gtid_executed"))
	b.run(t, "INSERT INTO outbox (payload) VALUES ('1')")
	o := b.options(t, "outbox")
	now := open(t, o, event.Checkpoint{})
	file := now.cp.Position.File
	require.NoError(t, now.Close())

	for name, start := range map[string]binlog.Start{
		"earliest": {Mode: "earliest"},
		"gtid":     {Mode: "gtid", GTID: before},
		"position": {Mode: "position", File: file, Pos: 4},
	} {
		t.Run(name, func(t *testing.T) {
			o.Start = start
			s := open(t, o, event.Checkpoint{})
			require.Equal(t, "1", s.read(t, 1)[0].payload)
			require.NoError(t, s.Close())
		})
	}
	t.Run("none", func(t *testing.T) {
		o.Start = binlog.Start{}
		_, err := tryOpen(t, o, event.Checkpoint{})
		f := requireFault(t, err, "OT3011", event.Usage)
		require.Contains(t, f.Hint, "earliest")
	})
}

func TestLargeTransactionGoesThroughTheSpillFile(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	s := open(t, o, event.Checkpoint{})
	const rows = 300_000
	fill := "INSERT INTO outbox (payload) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT CONCAT('%s', i, REPEAT('.', 200)) FROM n"
	b.run(t, "SET SESSION cte_max_recursion_depth = 10000000",
		"START TRANSACTION", fmt.Sprintf(fill, rows, "gone"), "ROLLBACK",
		"START TRANSACTION", fmt.Sprintf(fill, rows, "p"), "COMMIT",
		"INSERT INTO outbox (payload) VALUES ('after')")
	events := s.read(t, rows+1)
	require.Len(t, events, rows+1)
	for i, e := range events[:rows] {
		if e.index != uint64(i) || !strings.HasPrefix(e.payload, fmt.Sprintf("p%d.", i+1)) {
			t.Fatalf("row %d is %d %.20q", i, e.index, e.payload)
		}
	}
	require.Equal(t, "after", events[rows].payload)
}

// What is larger than limits.spill is read twice: rolled back, nothing comes of it; committed, all of it, in its places.
func TestTransactionBeyondLimitsSpillIsReadTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.run(t, "CREATE TABLE outbox "+outboxColumns)
		o := b.options(t, "outbox")
		o.SpillLimit = 4 << 20
		fill := func(what string, rows int) string {
			return fmt.Sprintf("INSERT INTO outbox (payload) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT CONCAT('%s', i, REPEAT('.', 900)) FROM n", rows, what)
		}
		const rows = 60_000
		deep := "SET SESSION cte_max_recursion_depth = 10000000"
		if b.kind == event.MariaDB {
			deep = "SET SESSION max_recursive_iterations = 10000000"
		}
		s := open(t, o, event.Checkpoint{})
		start := s.cp
		b.run(t, deep,
			"INSERT INTO outbox (payload) VALUES ('before')",
			"START TRANSACTION", fill("gone", rows), "ROLLBACK",
			"START TRANSACTION", fill("a", rows/2), "SAVEPOINT x", fill("gone", 1000), "ROLLBACK TO x", fill("b", rows/2), "COMMIT",
			"INSERT INTO outbox (payload) VALUES ('after')")
		events := s.read(t, rows+2)
		require.Len(t, events, rows+2)
		require.NoError(t, s.Close())
		require.Equal(t, "before", events[0].payload)
		for i, e := range events[1 : rows+1] {
			want := fmt.Sprintf("a%d.", i+1)
			if i >= rows/2 {
				want = fmt.Sprintf("b%d.", i+1-rows/2)
			}
			if e.index != uint64(i) || !strings.HasPrefix(e.payload, want) {
				t.Fatalf("row %d is %d %.20q", i, e.index, e.payload)
			}
		}
		require.Equal(t, "after", events[rows+1].payload)

		// After a crash in the middle the acked prefix is left out.
		s = open(t, o, start)
		require.Equal(t, "before", s.read(t, 1)[0].payload)
		from := s.cp
		require.NoError(t, s.Close())
		from.Prefix = &event.Prefix{Tx: events[1].tx, Rows: 40_000, Selection: from.Selection}
		s = open(t, o, from)
		again := s.read(t, rows+1-40_000)
		require.Equal(t, uint64(40_000), again[0].index)
		require.Equal(t, events[40_001:], again)
	})
}

// A table without transactions keeps its rows when a transaction around them is rolled back, so they are events; a rolled back group
// that the server logs all the same holds none.
func TestRowsThatARollbackDoesNotTakeBack(t *testing.T) {
	b := newBench(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true}))
	b.kind = event.MariaDB
	b.run(t, "CREATE TABLE outbox "+outboxColumns+" ENGINE=MyISAM", "CREATE TABLE second "+outboxColumns+" ENGINE=InnoDB", "CREATE TABLE orders (id INT PRIMARY KEY) ENGINE=InnoDB",
		"CREATE TRIGGER tg AFTER INSERT ON orders FOR EACH ROW INSERT INTO outbox (payload) VALUES (CONCAT('trigger ', NEW.id))")
	s := open(t, b.options(t, "outbox", "second"), event.Checkpoint{})
	b.run(t,
		"START TRANSACTION", "INSERT INTO orders VALUES (1)", "INSERT INTO second (payload) VALUES ('gone')", "ROLLBACK",
		"START TRANSACTION", "INSERT INTO second (payload) VALUES ('kept')", "INSERT INTO outbox (payload) VALUES ('at once')", "COMMIT",
		// A temporary table makes the server log the transaction although it is rolled back.
		"START TRANSACTION", "INSERT INTO second (payload) VALUES ('gone')", "CREATE TEMPORARY TABLE tt (a INT)", "INSERT INTO outbox (payload) VALUES ('stays')",
		"DROP TEMPORARY TABLE tt", "ROLLBACK",
		"INSERT INTO second (payload) VALUES ('end')")
	require.Equal(t, []string{"trigger 1", "at once", "kept", "stays", "end"}, payloads(s.read(t, 5)))
	require.Contains(t, b.logged(t), "ROLLBACK")

	// The table got another engine before it is read: whether it kept those rows nobody can tell then.
	require.NoError(t, s.Close())
	o := b.options(t, "outbox", "second")
	b.run(t, "START TRANSACTION", "INSERT INTO second (payload) VALUES ('who knows')", "CREATE TEMPORARY TABLE tt (a INT)", "DROP TEMPORARY TABLE tt", "ROLLBACK",
		"ALTER TABLE second ENGINE=MyISAM", "INSERT INTO second (payload) VALUES ('behind')")
	from := s.cp
	s = open(t, o, from)
	_, err := s.tryRead(1)
	f := requireFault(t, err, "OT3037", event.Safety)
	require.Contains(t, f.Text, b.db+".second")
	require.Contains(t, f.Hint, "ENGINE = InnoDB")
	require.NoError(t, s.Close())
	from.Accepted = []string{"OT3037"}
	s = open(t, o, from)
	require.Equal(t, []string{"behind"}, payloads(s.read(t, 1)))
}

// What a session leaves out of its rows is found missing, and never taken for NULL; what it has of them is a whole event.
func TestB019RowsWithoutTheirBlobs(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.run(t, "CREATE TABLE outbox (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(20), other LONGTEXT, payload LONGTEXT)")
		o := b.options(t, "outbox")
		s := open(t, o, event.Checkpoint{})
		b.run(t, "SET SESSION binlog_row_image = 'NOBLOB'", "INSERT INTO outbox (payload) VALUES ('given')", "INSERT INTO outbox (note, payload) VALUES ('n', NULL)", "INSERT INTO outbox (note) VALUES ('omitted')",
			"SET SESSION binlog_row_image = 'FULL'", "INSERT INTO outbox (payload) VALUES ('behind')")
		got := s.read(t, 2)
		require.Equal(t, []string{"given", ""}, payloads(got))
		require.True(t, got[1].null, "a NULL that was written is one")
		_, err := s.tryRead(1)
		f := requireFault(t, err, "OT3030", event.Safety)
		require.Contains(t, f.Text, "column payload")
		require.NoError(t, s.Close())
		from := s.cp
		from.Accepted = []string{"OT3030"}
		s = open(t, o, from)
		require.Equal(t, []string{"behind"}, payloads(s.read(t, 1)))
	})
}

// logged is what the server's first log says.
func (b *bench) logged(t *testing.T) string {
	rows, err := b.DB.QueryContext(t.Context(), "SHOW BINLOG EVENTS")
	require.NoError(t, err)
	defer rows.Close()
	var out strings.Builder
	for rows.Next() {
		var name, kind, info string
		var at, id, end uint64
		require.NoError(t, rows.Scan(&name, &at, &kind, &id, &end, &info))
		fmt.Fprintln(&out, info)
	}
	require.NoError(t, rows.Err())
	return out.String()
}

// What else a log may hold between and around the rows of ours changes nothing about them.
func TestWhatElseALogHolds(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox (id BIGINT PRIMARY KEY AUTO_INCREMENT, parent BIGINT, note JSON, payload LONGTEXT, KEY (parent), FOREIGN KEY (parent) REFERENCES outbox (id) ON DELETE CASCADE)",
		"CREATE TABLE other (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)")
	o := b.options(t, "outbox")
	filtered := map[string]int{}
	o.Filtered = func(reason string, rows int) { filtered[reason] += rows }
	s := open(t, o, event.Checkpoint{})
	// An explicit GTID may be of any source; 1 of a new one cannot have run before.
	explicit := fmt.Sprintf("%08x-0000-4000-8000-%012x", len(b.db), s.cp.Position.Pos)
	b.run(t,
		"SET SESSION binlog_rows_query_log_events = ON, binlog_row_value_options = 'PARTIAL_JSON'",
		"INSERT INTO outbox (note, payload) VALUES ('{\"a\": 1, \"b\": \""+strings.Repeat("x", 500)+"\"}', 'one')",
		"UPDATE outbox SET note = JSON_SET(note, '$.a', 2)",
		"SET SESSION binlog_transaction_compression = ON",
		"INSERT INTO other (v) VALUES ('only foreign rows')",
		"UPDATE outbox SET note = JSON_SET(note, '$.a', 3)",
		"INSERT INTO outbox (parent, payload) SELECT id, 'two' FROM outbox",
		"SET SESSION binlog_transaction_compression = OFF",
		"CREATE TABLE copy AS SELECT * FROM outbox",
		"SET gtid_next = '"+explicit+":1'", "INSERT INTO outbox (payload) VALUES ('three')",
		"SET gtid_next = '"+explicit+":2'", "BEGIN", "COMMIT", // an empty transaction
		"SET gtid_next = AUTOMATIC",
		"UPDATE outbox JOIN other SET outbox.payload = CONCAT(outbox.payload, '!'), other.v = 'x' WHERE outbox.parent IS NULL",
		"DELETE FROM outbox WHERE parent IS NULL", // and what hangs on it
		"TRUNCATE TABLE outbox",
		"INSERT INTO outbox (payload) VALUES ('end')")
	events := s.read(t, 4)
	require.Equal(t, []string{"one", "two", "three", "end"}, payloads(events))
	require.Equal(t, explicit+":1", events[2].tx)
	require.Contains(t, s.cp.Position.GTID, explicit+":1-2")
	require.Equal(t, 3, filtered["updated"], "an event of partial updates counts as one")
	require.GreaterOrEqual(t, filtered["deleted"], 2, "rows that go by a cascade need not be logged")
}
