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

// A versioned table of MariaDB logs what was as rows of its own. Only what is inserted is an event, in every metadata mode, whether or not
// the columns that hold the period are shown, and whatever comes and goes beside them.
func TestVersionedTables(t *testing.T) {
	b := newBench(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true}))
	b.kind = event.MariaDB
	old := b.Scalar(t, "", "SELECT @@global.binlog_row_metadata")
	t.Cleanup(func() { b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+old+"', log_bin_compress = 0") })
	const shownPeriod = ", since TIMESTAMP(6) GENERATED ALWAYS AS ROW START, until TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (since, until)"
	n := 0
	for _, mode := range []string{"NO_LOG", "MINIMAL", "FULL"} {
		for _, period := range []string{"", shownPeriod} {
			for _, packed := range []string{"0", "1"} {
				n++
				name := fmt.Sprintf("outbox%d", n)
				t.Run(strings.Join([]string{mode, map[bool]string{true: "period shown", false: "period hidden"}[period != ""], "compressed " + packed}, ", "), func(t *testing.T) {
					b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+mode+"', log_bin_compress = "+packed+", log_bin_compress_min_len = 10")
					b.run(t, "CREATE TABLE "+name+" (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(20), payload LONGTEXT"+period+", UNIQUE (payload)) CHARACTER SET utf8mb4 WITH SYSTEM VERSIONING")
					o := b.options(t, name)
					o.RowLimit = 2 << 10
					filtered := map[string]int{}
					o.Filtered = func(reason string, rows int) { filtered[reason] += rows }
					s := open(t, o, event.Checkpoint{})
					in := func(statements ...string) {
						for i := range statements {
							statements[i] = strings.ReplaceAll(statements[i], "{}", name)
						}
						b.run(t, append([]string{"SET SESSION system_versioning_alter_history = KEEP"}, statements...)...)
					}
					in("INSERT INTO {} (payload) VALUES ('one'), ('two')",
						"UPDATE {} SET note = 'x'",
						"START TRANSACTION", "INSERT INTO {} (payload) VALUES ('three')", "UPDATE {} SET note = 'y' WHERE payload = 'three'", "INSERT INTO {} (payload) VALUES ('four')", "COMMIT",
						"DELETE FROM {} WHERE payload <> 'two'",
						"INSERT INTO {} (id, payload) SELECT id, 'never' FROM {} ON DUPLICATE KEY UPDATE note = 'z'",
						"INSERT INTO {} (payload) VALUES ('end')")
					got := s.read(t, 5)
					require.Equal(t, []string{"one", "two", "three", "four", "end"}, payloads(got))
					require.Equal(t, []uint64{0, 1, 0, 1, 0}, indexes(got), "rows of the past have no number")
					require.Equal(t, 4, filtered["history"])
					if packed == "0" {
						require.Equal(t, map[string]int{"history": 4, "updated": 4, "deleted": 3}, filtered)
					} else {
						require.Equal(t, 3, filtered["deleted"])
					}

					// An event that is larger than what is kept in memory.
					in("INSERT INTO {} (payload) VALUES (REPEAT('w', 100000))", "UPDATE {} SET note = 'wide'", "INSERT INTO {} (payload) VALUES ('six')")
					got = s.read(t, 2)
					require.Len(t, got, 2)
					require.NotNil(t, got[0].fault)
					require.Equal(t, "six", got[1].payload)
					require.Equal(t, 7, filtered["history"])

					// What is there changes while it is read, and while it is not.
					in("ALTER TABLE {} ADD UNIQUE (note, payload)", "INSERT INTO {} (payload) VALUES ('seven')")
					require.Equal(t, []string{"seven"}, payloads(s.read(t, 1)))
					require.NoError(t, s.Close())
					in("INSERT INTO {} (payload) VALUES ('eight')", "ALTER TABLE {} ADD COLUMN more INT, DROP INDEX payload", "INSERT INTO {} (payload) VALUES ('nine')", "UPDATE {} SET note = 'u' WHERE payload = 'nine'",
						"ALTER TABLE {} DROP COLUMN more", "INSERT INTO {} (payload) VALUES ('ten')")
					s = open(t, o, s.cp)
					require.Equal(t, []string{"eight", "nine", "ten"}, payloads(s.read(t, 3)))
					if period == "" {
						in("ALTER TABLE {} DROP SYSTEM VERSIONING", "INSERT INTO {} (payload) VALUES ('eleven')", "UPDATE {} SET note = 'v'")
						require.Equal(t, []string{"eleven"}, payloads(s.read(t, 1)))
						in("ALTER TABLE {} ADD SYSTEM VERSIONING", "INSERT INTO {} (payload) VALUES ('twelve')", "UPDATE {} SET note = 'w'", "INSERT INTO {} (payload) VALUES ('thirteen')")
						require.Equal(t, []string{"twelve", "thirteen"}, payloads(s.read(t, 2)))
						in("SET SESSION system_versioning_insert_history = 1", "INSERT INTO {} (payload, row_start, row_end) VALUES ('restored', '2020-01-01', '2021-01-01')", "INSERT INTO {} (payload) VALUES ('fourteen')")
						require.Equal(t, []string{"fourteen"}, payloads(s.read(t, 1)))
					}
					in("DROP TABLE {}")
				})
			}
		}
	}

	t.Run("a cleanup halts nobody", func(t *testing.T) {
		b.run(t, "CREATE TABLE cleaned "+outboxColumns+" WITH SYSTEM VERSIONING")
		o := b.options(t, "cleaned")
		o.OnUpdate = "halt"
		s := open(t, o, event.Checkpoint{})
		b.run(t, "INSERT INTO cleaned (payload) VALUES ('one'), ('two')", "DELETE FROM cleaned", "INSERT INTO cleaned (payload) VALUES ('three')", "UPDATE cleaned SET note = 'x'")
		got, err := s.tryRead(4)
		require.Equal(t, []string{"one", "two", "three"}, payloads(got))
		requireFault(t, err, "OT3031", event.Safety)
	})

	t.Run("a session that leaves the end out", func(t *testing.T) {
		b.Exec(t, "", "SET GLOBAL log_bin_compress = 0")
		b.run(t, "CREATE TABLE minimal "+outboxColumns+" WITH SYSTEM VERSIONING")
		s := open(t, b.options(t, "minimal"), event.Checkpoint{})
		b.run(t, "INSERT INTO minimal (payload) VALUES ('one')", "SET SESSION binlog_row_image = MINIMAL", "UPDATE minimal SET note = 'x', payload = 'never'", "DELETE FROM minimal",
			"SET SESSION binlog_row_image = FULL", "INSERT INTO minimal (payload) VALUES ('two')")
		got, err := s.tryRead(2)
		require.Equal(t, "one", got[0].payload)
		if err != nil {
			f := requireFault(t, err, "OT3030", event.Safety)
			require.Contains(t, f.Text, "row_end")
			require.Len(t, got, 1)
		} else {
			require.Equal(t, []string{"one", "two"}, payloads(got), "the row of the past had its end with it")
		}
	})

	t.Run("a person says what the columns were", func(t *testing.T) {
		b.Exec(t, "", "SET GLOBAL binlog_row_metadata = 'NO_LOG', log_bin_compress = 0")
		create := "CREATE TABLE vouched (id BIGINT PRIMARY KEY AUTO_INCREMENT, note VARCHAR(20), payload LONGTEXT" + shownPeriod + ") CHARACTER SET utf8mb4 WITH SYSTEM VERSIONING"
		b.run(t, create)
		o := b.options(t, "vouched")
		s := open(t, o, event.Checkpoint{})
		require.NoError(t, s.Close())
		b.run(t, "DROP TABLE vouched", create, "INSERT INTO vouched (payload) VALUES ('one')", "UPDATE vouched SET note = 'x'", "INSERT INTO vouched (payload) VALUES ('two')", "DROP TABLE vouched", create)
		s = open(t, o, s.cp)
		_, err := s.tryRead(2)
		f := requireFault(t, err, "OT3029", event.Safety)
		require.NoError(t, s.Close())
		m := atOf.FindStringSubmatch(f.Hint)
		require.NotNil(t, m, f.Hint)
		shown := b.Scalar(t, b.db, "SELECT GROUP_CONCAT(CONCAT('`', COLUMN_NAME, '` ', COLUMN_TYPE, ' ', COALESCE(CONCAT('character set ', CHARACTER_SET_NAME), ''), IF(GENERATION_EXPRESSION IS NULL, '', CONCAT(' GENERATED ALWAYS AS ', GENERATION_EXPRESSION))) ORDER BY ORDINAL_POSITION) "+
			"FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'vouched'")
		depends, err := binlog.Vouch(t.Context(), o, s.cp, "vouched", m[1], shown)
		require.NoError(t, err)
		s.cp.Depends = depends
		s = open(t, o, s.cp)
		require.Equal(t, []string{"one", "two"}, payloads(s.read(t, 2)))
	})

	t.Run("versioned by transaction, its inserts are logged as statements", func(t *testing.T) {
		b.run(t, "CREATE TABLE numbered (id BIGINT PRIMARY KEY AUTO_INCREMENT, payload LONGTEXT, since BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, until BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (since, until)) WITH SYSTEM VERSIONING")
		_, err := tryOpen(t, b.options(t, "numbered"), event.Checkpoint{})
		f := requireFault(t, err, "OT3006", event.Environment)
		require.True(t, f.Immediate)
		mend, _, _ := strings.Cut(f.Hint, "\n(")
		b.run(t, strings.TrimSuffix(mend, ";"), "ALTER TABLE numbered ADD SYSTEM VERSIONING")
		s := open(t, b.options(t, "numbered"), event.Checkpoint{})
		b.run(t, "INSERT INTO numbered (payload) VALUES ('mended')")
		require.Equal(t, []string{"mended"}, payloads(s.read(t, 1)))
	})
}
