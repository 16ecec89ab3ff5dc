package binlog_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// ddlCase is a history of a table: one row is inserted before, and one behind each statement.
type ddlCase struct {
	name string
	ddl  []string
	// vouch: how often a person is needed where the log has no names and all was written before it is read. 0: all of it is proved.
	vouch int
	only  string // an engine
}

var ddlCases = []ddlCase{
	{name: "added first", ddl: []string{"ALTER TABLE outbox ADD COLUMN x VARCHAR(64) DEFAULT 'wrong' FIRST"}},
	{name: "added in the middle", ddl: []string{"ALTER TABLE outbox ADD x VARCHAR(64) NOT NULL DEFAULT 'wrong' AFTER aggregate_type"}},
	{name: "added last", ddl: []string{"ALTER TABLE outbox ADD x INT"}},
	{name: "dropped", ddl: []string{"ALTER TABLE outbox DROP COLUMN note"}},
	{name: "added and dropped, as many as before", ddl: []string{"ALTER TABLE outbox ADD COLUMN x VARCHAR(64) DEFAULT 'wrong' FIRST", "ALTER TABLE outbox DROP COLUMN note"}},
	{name: "added and dropped at once", ddl: []string{"ALTER TABLE outbox ADD COLUMN x VARCHAR(64) DEFAULT 'wrong' FIRST, DROP note"}},
	{name: "moved and moved back", ddl: []string{"ALTER TABLE outbox MODIFY payload LONGTEXT CHARACTER SET utf8mb4 FIRST", "ALTER TABLE outbox MODIFY payload LONGTEXT CHARACTER SET utf8mb4 AFTER note"}},
	{name: "moved among its like, with the table's character set", ddl: []string{"ALTER TABLE outbox MODIFY aggregate_type VARCHAR(64) AFTER aggregate_id", "ALTER TABLE outbox MODIFY aggregate_type VARCHAR(64) AFTER id"}},
	{name: "renamed", ddl: []string{"ALTER TABLE outbox RENAME COLUMN note TO remark", "ALTER TABLE outbox CHANGE remark aside VARCHAR(20)"}},
	{name: "names swapped", ddl: []string{"ALTER TABLE outbox RENAME COLUMN aggregate_type TO aggregate_id, RENAME COLUMN aggregate_id TO aggregate_type", "ALTER TABLE outbox RENAME COLUMN aggregate_type TO aggregate_id, RENAME COLUMN aggregate_id TO aggregate_type"}},
	{name: "type changed", ddl: []string{"ALTER TABLE outbox MODIFY id BIGINT AUTO_INCREMENT", "ALTER TABLE outbox MODIFY id INT UNSIGNED AUTO_INCREMENT", "ALTER TABLE outbox MODIFY id BIGINT UNSIGNED AUTO_INCREMENT"}},
	{name: "labels in front", ddl: []string{"ALTER TABLE outbox MODIFY event_type ENUM('created','authorised','paid')", "ALTER TABLE outbox MODIFY event_type ENUM('x','created','authorised','paid')"}},
	{name: "ENUM to VARCHAR", ddl: []string{"ALTER TABLE outbox MODIFY event_type VARCHAR(30)", "ALTER TABLE outbox MODIFY event_type ENUM('void','paid')"}},
	{name: "character set of a column", ddl: []string{"ALTER TABLE outbox MODIFY aggregate_id VARCHAR(64) CHARACTER SET utf8mb4", "ALTER TABLE outbox MODIFY aggregate_id VARCHAR(64) CHARACTER SET latin1"}},
	{name: "character set of the table", ddl: []string{"ALTER TABLE outbox CONVERT TO CHARACTER SET utf8mb4"}},
	{name: "character set of the table, twice", ddl: []string{"ALTER TABLE outbox CONVERT TO CHARACTER SET latin1", "ALTER TABLE outbox CONVERT TO CHARACTER SET utf8mb4"}, vouch: 1},
	{name: "default character set, then a column", ddl: []string{"ALTER TABLE outbox DEFAULT CHARACTER SET latin1", "ALTER TABLE outbox ADD x VARCHAR(9)"}, vouch: 1},
	{name: "character set of the schema", ddl: []string{"ALTER DATABASE {db} CHARACTER SET latin1", "ALTER TABLE outbox ADD x VARCHAR(9)", "ALTER TABLE outbox DROP x"}},
	{name: "the table renamed and back", ddl: []string{"RENAME TABLE outbox TO elsewhere; ALTER TABLE elsewhere ADD x INT FIRST; RENAME TABLE elsewhere TO outbox"}},
	{name: "swapped as gh-ost does", ddl: []string{
		"CREATE /* gh-ost */ TABLE {db}._outbox_gho LIKE {db}.outbox; ALTER TABLE _outbox_gho ADD x VARCHAR(64) DEFAULT 'wrong' FIRST; INSERT IGNORE INTO _outbox_gho (id, aggregate_type) SELECT id, aggregate_type FROM outbox; RENAME TABLE outbox TO _outbox_del, _outbox_gho TO outbox; DROP TABLE _outbox_del"}},
	{name: "swapped twice", ddl: []string{
		"CREATE TABLE _outbox_new LIKE outbox; ALTER TABLE _outbox_new ADD x VARCHAR(64) DEFAULT 'wrong' FIRST; RENAME TABLE outbox TO _outbox_old, _outbox_new TO outbox",
		"CREATE TABLE _outbox_new LIKE outbox; ALTER TABLE _outbox_new DROP note; RENAME TABLE outbox TO _outbox_old2, _outbox_new TO outbox"}, vouch: 1},
	{name: "dropped and recreated", ddl: []string{"DROP TABLE outbox; CREATE TABLE outbox (payload LONGTEXT, event_type ENUM('paid'), aggregate_id VARCHAR(10), aggregate_type VARCHAR(10), id SERIAL) CHARACTER SET utf8mb4"}},
	{name: "recreated twice", ddl: []string{
		"DROP TABLE outbox; CREATE TABLE outbox (payload LONGTEXT, event_type ENUM('paid'), aggregate_id VARCHAR(10), aggregate_type VARCHAR(10), id SERIAL) CHARACTER SET utf8mb4",
		"DROP TABLE outbox; CREATE TABLE outbox (id SERIAL, aggregate_type VARCHAR(10), aggregate_id VARCHAR(10), payload LONGTEXT, event_type ENUM('x', 'paid')) CHARACTER SET utf8mb4"}, vouch: 1},
	{name: "the schema dropped and recreated", ddl: []string{"DROP DATABASE {db}; CREATE DATABASE {db} CHARACTER SET utf8mb4; USE {db}; CREATE TABLE outbox (payload LONGTEXT, event_type ENUM('paid'), aggregate_id VARCHAR(10), aggregate_type VARCHAR(10), id SERIAL)"}},
	{name: "truncated", ddl: []string{"TRUNCATE outbox", "TRUNCATE TABLE {db}.outbox"}},
	{name: "instant", ddl: []string{"ALTER TABLE outbox ADD COLUMN x VARCHAR(64) DEFAULT 'wrong', ALGORITHM=INSTANT", "ALTER TABLE outbox DROP COLUMN note, ALGORITHM=INSTANT", "ALTER TABLE outbox ADD COLUMN y INT FIRST, ALGORITHM=INSTANT"}},
	{name: "in place", ddl: []string{"ALTER TABLE outbox ADD COLUMN x INT, ALGORITHM=INPLACE, LOCK=NONE", "ALTER TABLE outbox DROP COLUMN x, ALGORITHM=INPLACE"}},
	{name: "generated and invisible columns", ddl: []string{"ALTER TABLE outbox ADD h VARCHAR(8) AS (LEFT(aggregate_id, 8)) STORED FIRST", "ALTER TABLE outbox ADD v VARCHAR(8) AS (LEFT(aggregate_id, 8)) VIRTUAL AFTER h",
		"ALTER TABLE outbox ADD i INT INVISIBLE DEFAULT 5 AFTER v"}},
	{name: "a functional index", ddl: []string{"CREATE INDEX f ON outbox ((lower(aggregate_type)))", "ALTER TABLE outbox ADD INDEX g ((upper(aggregate_type)))", "ALTER TABLE outbox DROP INDEX f"}, only: event.MySQL},
	{name: "a hidden primary key", ddl: []string{"SET SESSION sql_generate_invisible_primary_key = 1; DROP TABLE outbox; CREATE TABLE outbox (aggregate_type VARCHAR(10), aggregate_id VARCHAR(10), payload LONGTEXT, event_type ENUM('paid'), id INT)",
		"ALTER TABLE outbox ADD x INT AFTER payload"}, vouch: 1, only: event.MySQL},
	{name: "indexes", ddl: []string{"ALTER TABLE outbox ADD INDEX i (note), ADD UNIQUE KEY u (id, note)", "CREATE INDEX j ON outbox (aggregate_id)", "DROP INDEX j ON outbox", "ALTER TABLE outbox DROP KEY i"}},
	{name: "comments and options", ddl: []string{"ALTER TABLE outbox COMMENT 'ADD x FIRST, DROP note'", "ALTER TABLE outbox AUTO_INCREMENT = 1000, ALGORITHM=INPLACE", "ALTER TABLE outbox ENGINE=InnoDB ROW_FORMAT=DYNAMIC", "ALTER TABLE outbox MODIFY note VARCHAR(20) COMMENT 'moved FIRST'"}},
	{name: "other tables that mention it", ddl: []string{"CREATE TABLE copy_of_outbox LIKE outbox; ALTER TABLE copy_of_outbox ADD x INT FIRST", "ALTER TABLE copy_of_outbox RENAME TO outbox_archive", "DROP TABLE outbox_archive", "CREATE VIEW v_outbox AS SELECT id FROM outbox", "DROP VIEW v_outbox",
		"CREATE TABLE other (a INT) COMMENT 'beside outbox'; DROP TABLE IF EXISTS other, missing", "CREATE TRIGGER tr BEFORE INSERT ON outbox FOR EACH ROW SET NEW.note = 'n'", "CREATE TABLE IF NOT EXISTS outbox (nothing INT)"}},
	{name: "several tables at once", ddl: []string{"CREATE TABLE a (v INT); CREATE TABLE b (v INT); RENAME TABLE a TO c, b TO d; DROP TABLE c, d", "CREATE TABLE a (v INT); RENAME TABLE a TO c, outbox TO e, e TO outbox; DROP TABLE c"}},
	{name: "in versioned comments", ddl: []string{"/*!50000 ALTER TABLE outbox ADD x VARCHAR(64) DEFAULT 'wrong' FIRST */"}},
	{name: "in versioned comments, twice", ddl: []string{"/*!50000 ALTER TABLE outbox ADD x VARCHAR(64) DEFAULT 'wrong' FIRST */", "ALTER TABLE outbox DROP x /*!50000 , DROP note */"}, vouch: 1},
	{name: "in a procedure", ddl: []string{"CREATE PROCEDURE p() ALTER TABLE outbox ADD x VARCHAR(64) DEFAULT 'wrong' FIRST; CALL p()", "CREATE PROCEDURE p2() ALTER TABLE outbox DROP x; CALL p2()"}},
	{name: "prepared", ddl: []string{"SET @q = 'ALTER TABLE outbox ADD x VARCHAR(64) DEFAULT ''wrong'' FIRST'; PREPARE s FROM @q; EXECUTE s", "SET @q = 'ALTER TABLE outbox DROP note'; PREPARE s FROM @q; EXECUTE s"}},
	{name: "for one statement", ddl: []string{"SET STATEMENT lock_wait_timeout = 50 FOR ALTER TABLE outbox ADD x VARCHAR(64) DEFAULT 'wrong' FIRST", "SET STATEMENT lock_wait_timeout = 50 FOR ALTER TABLE outbox DROP note"}, only: event.MariaDB},
	{name: "in two phases", ddl: []string{"SET SESSION binlog_alter_two_phase = 1; ALTER TABLE outbox ADD x VARCHAR(64) DEFAULT 'wrong' FIRST", "SET SESSION binlog_alter_two_phase = 1; ALTER TABLE outbox DROP note", "SET SESSION binlog_alter_two_phase = 0"}, only: event.MariaDB},
	{name: "replaced", ddl: []string{"CREATE OR REPLACE TABLE outbox (payload LONGTEXT, event_type ENUM('paid'), aggregate_id VARCHAR(10), aggregate_type VARCHAR(10), id SERIAL) CHARACTER SET utf8mb4"}, only: event.MariaDB},
	{name: "partitioned", ddl: []string{"ALTER TABLE outbox PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200))", "ALTER TABLE outbox ADD PARTITION (PARTITION p2 VALUES LESS THAN (300), PARTITION p3 VALUES LESS THAN (400))",
		"ALTER TABLE outbox DROP PARTITION p3, p2", "ALTER TABLE outbox TRUNCATE PARTITION p1", "ALTER TABLE outbox ADD x INT FIRST", "ALTER TABLE outbox REMOVE PARTITIONING"}},
}

const ddlOutbox = "CREATE TABLE outbox (id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, aggregate_type VARCHAR(64), aggregate_id VARCHAR(64) CHARACTER SET latin1, event_type ENUM('created','paid'), note VARCHAR(20), payload LONGTEXT)"

// history is a table whose changes are played, with what its columns were at each row.
type history struct {
	*bench
	t       *testing.T
	o       binlog.Options
	s       *session
	columns []string // behind each row
	seen    []string
	vouched int
}

func newHistory(t *testing.T, b *bench) *history {
	h := &history{bench: &bench{MySQL: b.MySQL, kind: b.kind, db: b.NewDatabase(t)}, t: t}
	h.run(t, ddlOutbox)
	h.o = h.options(t, "outbox")
	for role, column := range map[event.Role]string{event.AggregateType: "aggregate_type", event.AggregateID: "aggregate_id", event.EventType: "event_type"} {
		h.o.Columns[role].Column = column
	}
	h.s = open(t, h.o, event.Checkpoint{})
	return h
}

// row is what the n-th row shall read as.
func (h *history) row(n int) string {
	return fmt.Sprintf("t-%d café-%d paid höhe %d", n, n, n)
}

func (h *history) insert() {
	n := len(h.columns)
	var list []string
	for _, c := range h.columnsOf(h.t, "outbox") {
		w := "`" + c.Name + "` " + c.Type
		if c.Charset != "" {
			w += " character set " + c.Charset
		}
		list = append(list, w)
	}
	h.columns = append(h.columns, strings.Join(list, ", "))
	h.run(h.t, fmt.Sprintf("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('t-%d', 'café-%d', 'paid', 'höhe %d')", n, n, n))
}

func (h *history) change(ddl string) { h.run(h.t, strings.ReplaceAll(ddl, "{db}", h.db)) }

var (
	atOf      = regexp.MustCompile(`schema accept -c FILE --pipeline orders --table \S+ --at (\S+) --columns '`)
	patienceN = 20
)

// read reads until every row of the history was seen, being the person where one is asked.
func (h *history) read() {
	h.t.Helper()
	for range patienceN {
		err := h.readAll()
		if err == nil {
			break
		}
		f := requireFault(h.t, err, "OT3029", event.Safety)
		require.Contains(h.t, f.Text, "column")
		m := atOf.FindStringSubmatch(f.Hint)
		require.NotNil(h.t, m, f.Hint)
		require.NoError(h.t, h.s.Close())
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		h.s.cp.Depends, err = binlog.Vouch(ctx, h.o, h.s.cp, "outbox", m[1], h.columns[len(h.seen)])
		cancel()
		require.NoError(h.t, err)
		h.vouched++
		h.s = open(h.t, h.o, h.s.cp)
	}
	require.Len(h.t, h.seen, len(h.columns))
	for n, seen := range h.seen {
		require.Equal(h.t, h.row(n), seen)
	}
}

func (h *history) readAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	for bounded := false; len(h.seen) < len(h.columns) || !bounded; {
		b, err := h.s.Read(ctx)
		if err != nil {
			return err
		}
		for i := range b.Events {
			e := &b.Events[i]
			require.Nil(h.t, e.Err)
			h.seen = append(h.seen, fmt.Sprintf("%s %s %s %s", e.Row[event.AggregateType].Bytes, e.Row[event.AggregateID].Bytes, e.Row[event.EventType].Bytes, e.Row[event.Payload].Bytes))
		}
		bounded = false
		if k := len(b.Bounds); k > 0 {
			h.s.store(b.Bounds[k-1].At)
			bounded = b.Bounds[k-1].After == len(b.Events)
		}
		if b.Release != nil {
			b.Release()
		}
	}
	return nil
}

// TestEveryRowIsReadByTheColumnsThatItsTableHadThen plays each history three times: with a reader that keeps up, with one that lags, and
// with one that is away. Only where nothing proves the columns a person is asked, and then nothing is lost either.
func TestEveryRowIsReadByTheColumnsThatItsTableHadThen(t *testing.T) {
	for _, kind := range []string{event.MySQL, event.MariaDB} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := harness.StartMySQL(t, harness.MySQLOptions{MariaDB: kind == event.MariaDB}) // its global settings are changed
			b := &bench{MySQL: m, kind: kind}
			for _, metadata := range []string{"", "FULL"} {
				if metadata == "" {
					metadata = m.Scalar(t, "", "SELECT @@global.binlog_row_metadata")
				}
				t.Run(metadata, func(t *testing.T) {
					b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+metadata+"'")
					for _, c := range ddlCases {
						if c.only != "" && c.only != kind || metadata == "FULL" && len(c.ddl) == 1 {
							continue
						}
						t.Run(c.name, func(t *testing.T) {
							t.Parallel()
							c.play(t, b, metadata)
						})
					}
				})
			}
			t.Run("metadata that comes and goes", func(t *testing.T) { metadataComesAndGoes(t, b) })
		})
	}
}

// metadataComesAndGoes: sessions that are open keep nothing of binlog_row_metadata, so that one file holds rows with names and without,
// before and behind changes of the table. Signs of numbers are right in both shapes.
func metadataComesAndGoes(t *testing.T, b *bench) {
	poor := map[string]string{event.MySQL: "MINIMAL", event.MariaDB: "NO_LOG"}[b.kind]
	set := func(metadata string) { b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+metadata+"'") }
	write := func(h *history, keepUp func()) {
		for i, q := range []string{"", "ALTER TABLE outbox ADD x VARCHAR(64) DEFAULT 'wrong' FIRST", "", "ALTER TABLE outbox DROP COLUMN note", "ALTER TABLE outbox MODIFY event_type ENUM('x','paid')"} {
			set([]string{poor, "FULL"}[i%2])
			if q != "" {
				h.change(q)
			}
			h.insert()
			set([]string{"FULL", poor}[i%2])
			h.insert()
			keepUp()
		}
	}
	defer set(poor)
	t.Run("running", func(t *testing.T) {
		h := newHistory(t, b)
		write(h, h.read)
		require.Zero(t, h.vouched)
	})
	t.Run("restarted", func(t *testing.T) {
		h := newHistory(t, b)
		write(h, func() {
			h.read()
			require.NoError(t, h.s.Close())
			h.s = open(t, h.o, h.s.cp)
		})
		require.Zero(t, h.vouched)
	})
	t.Run("away", func(t *testing.T) {
		h := newHistory(t, b)
		h.insert()
		h.read()
		require.NoError(t, h.s.Close())
		write(h, func() {})
		h.s = open(t, h.o, h.s.cp)
		h.read()
		require.Zero(t, h.vouched)
	})
	t.Run("signs", func(t *testing.T) {
		h := newHistory(t, b)
		numbers := []string{"18446744073709551615", "9223372036854775808", "9223372036854775807", "1"}
		var want []string
		for i, n := range numbers {
			for j, metadata := range []string{poor, "FULL"} {
				set(metadata)
				h.run(t, fmt.Sprintf("TRUNCATE outbox; INSERT INTO outbox (id, payload) VALUES (%s, '%d.%d')", n, i, j))
				want = append(want, n)
			}
		}
		var got []string
		for _, e := range h.s.read(t, len(want)) {
			got = append(got, e.id)
		}
		require.Equal(t, want, got)
	})
}

// TestChangesThatTheLogDoesNotShowAreNoticedByTheRows: a DDL with sql_log_bin = 0 (or one on a replica) is in no log. Where it shows in
// the types of the rows outtail stops; a swap of columns of the very same type nobody could see (docs/OPERATIONS.md).
func TestChangesThatTheLogDoesNotShowAreNoticedByTheRows(t *testing.T) {
	for _, kind := range []string{event.MySQL, event.MariaDB} {
		for name, c := range map[string]struct {
			ddl  string
			only string
		}{
			"another number of columns": {ddl: "ALTER TABLE outbox ADD x VARCHAR(64) DEFAULT 'wrong' FIRST"},
			"another type":              {ddl: "ALTER TABLE outbox MODIFY note INT FIRST"},
			"another length":            {ddl: "ALTER TABLE outbox MODIFY aggregate_type VARCHAR(65)"},
			"another order":             {ddl: "ALTER TABLE outbox MODIFY note VARCHAR(20) AFTER id"},
			"another character set":     {ddl: "ALTER TABLE outbox MODIFY aggregate_id VARCHAR(256) CHARACTER SET latin1"},
			"another sign":              {ddl: "ALTER TABLE outbox MODIFY id BIGINT AUTO_INCREMENT", only: event.MySQL}, // MariaDB's log has none
		} {
			if c.only != "" && c.only != kind {
				continue
			}
			t.Run(kind+", "+name, func(t *testing.T) {
				h := newHistory(t, &bench{MySQL: servers.MySQLWith(t, harness.MySQLOptions{MariaDB: kind == event.MariaDB}), kind: kind})
				h.insert()
				h.read()
				h.run(t, "SET SESSION sql_log_bin = 0", c.ddl)
				h.insert()
				err := h.readAll()
				require.Contains(t, requireFault(t, err, "OT3029", event.Safety).Text, "sql_log_bin")
				h.read()
				require.Equal(t, 1, h.vouched)
			})
		}
	}
}

// TestAnIdleReaderStoresAChange: a definition that was read anew counts once the stream has reached the server's position at reading, and is
// stored though no row follows, so that a change that says nothing of columns may come while we are away.
func TestAnIdleReaderStoresAChange(t *testing.T) {
	for _, kind := range []string{event.MySQL, event.MariaDB} {
		t.Run(kind, func(t *testing.T) {
			h := newHistory(t, &bench{MySQL: servers.MySQLWith(t, harness.MySQLOptions{MariaDB: kind == event.MariaDB}), kind: kind})
			h.insert()
			h.read()
			h.change("RENAME TABLE outbox TO o; ALTER TABLE o ADD idle VARCHAR(64) DEFAULT 'wrong' FIRST; RENAME TABLE o TO outbox")
			h.s.until(t, "the new columns are stored", func() bool {
				return strings.Contains(string(h.s.cp.Depends), `"idle"`) && strings.Contains(string(h.s.cp.Depends), `"tables"`)
			})
			require.NoError(t, h.s.Close())
			h.insert()
			h.change("RENAME TABLE outbox TO o; ALTER TABLE o DROP idle; RENAME TABLE o TO outbox")
			h.insert()
			h.s = open(t, h.o, h.s.cp)
			h.read()
			require.Zero(t, h.vouched)
		})
	}
}

func (c ddlCase) play(t *testing.T, b *bench, metadata string) {
	most := c.vouch
	if metadata == "FULL" {
		most = 0
	}
	if metadata != "FULL" { // else nothing depends on when it is read
		t.Run("running", func(t *testing.T) {
			h := newHistory(t, b)
			h.insert()
			h.read()
			for _, q := range c.ddl {
				h.change(q)
				h.insert()
				h.read()
			}
			require.Zero(t, h.vouched)
		})
		t.Run("lagging", func(t *testing.T) {
			if len(c.ddl) == 1 || os.Getenv("OUTTAIL_LONG") == "" {
				t.Skip("between the two others, which always run; OUTTAIL_LONG=1 runs it too")
			}
			h := newHistory(t, b)
			h.insert()
			h.read()
			for _, q := range c.ddl {
				h.change(q)
				h.insert()
			}
			h.read()
			require.Equal(t, most, h.vouched)
		})
	}
	t.Run("away", func(t *testing.T) {
		h := newHistory(t, b)
		h.insert()
		h.read()
		require.NoError(t, h.s.Close())
		h.insert()
		for _, q := range c.ddl {
			h.change(q)
			h.insert()
			h.insert()
		}
		h.s = open(t, h.o, h.s.cp)
		h.read()
		require.Equal(t, most, h.vouched)
	})
}
