package wal_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/wal"
)

// Each change may have kept rows out of the log. It is noticed while outtail streams and, where nobody streamed, at the next
// start, also where it was undone since, unless the server keeps no trace; and it is told with what was changed and where.
func TestWhatKeepsRowsOutOfTheLogIsNoticed(t *testing.T) {
	partitioned := []string{`DROP TABLE outbox`, `CREATE TABLE outbox (id text, aggregate_id text, payload text, raw bytea, d int) PARTITION BY RANGE (d)`,
		`CREATE TABLE p1 PARTITION OF outbox FOR VALUES FROM (0) TO (10)`, `CREATE TABLE p2 PARTITION OF outbox FOR VALUES FROM (10) TO (20)`}
	table := `CREATE TABLE outbox (id text PRIMARY KEY, aggregate_id text, payload text, raw bytea)`
	one := `CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')`
	all := `CREATE PUBLICATION pub FOR ALL TABLES WITH (publish = 'insert')`
	const altered, unlogged, another, left, attached = "was altered", "between LOGGED and UNLOGGED", "another one of that name", "left the publication or was added again", "attached to or detached"
	for _, c := range []struct {
		name   string
		before []string
		change []string
		says   string
		of15   bool // older servers cannot do this
	}{
		{"publication recreated", nil, []string{`DROP PUBLICATION pub`, one}, "dropped and created again", false},
		{"operations there and back", nil, []string{`ALTER PUBLICATION pub SET (publish = 'update')`, `ALTER PUBLICATION pub SET (publish = 'insert')`}, altered, false},
		{"roots there and back", nil, []string{`ALTER PUBLICATION pub SET (publish_via_partition_root = true)`, `ALTER PUBLICATION pub SET (publish_via_partition_root = false)`}, altered, false},
		{"a row filter", nil, []string{`ALTER PUBLICATION pub SET TABLE outbox WHERE (id <> 'x')`}, left, true},
		{"a row filter there and back", nil, []string{`ALTER PUBLICATION pub SET TABLE outbox WHERE (id <> 'x')`, `ALTER PUBLICATION pub SET TABLE outbox`}, left, true},
		{"a column list", nil, []string{`ALTER PUBLICATION pub SET TABLE outbox (id, aggregate_id, payload)`}, left, true},
		{"the table left and came back", nil, []string{`ALTER PUBLICATION pub DROP TABLE outbox`, `ALTER PUBLICATION pub ADD TABLE outbox`}, left, false},
		{"the table left, was unlogged, and came back", nil, []string{`ALTER PUBLICATION pub DROP TABLE outbox`, `ALTER TABLE outbox SET UNLOGGED`, `ALTER TABLE outbox SET LOGGED`, `ALTER PUBLICATION pub ADD TABLE outbox`}, left, false},
		{"the schema left and came back", []string{`CREATE PUBLICATION pub FOR TABLES IN SCHEMA public WITH (publish = 'insert')`},
			[]string{`ALTER PUBLICATION pub DROP TABLES IN SCHEMA public`, `ALTER PUBLICATION pub ADD TABLES IN SCHEMA public`}, left, true},
		{"the table was recreated", nil, []string{`DROP TABLE outbox`, table, `ALTER PUBLICATION pub ADD TABLE outbox`}, another, false},
		{"the table was swapped", []string{all}, []string{`ALTER TABLE outbox RENAME TO outbox_old`, table}, another, false},
		{"the table moved away", []string{all}, []string{`CREATE SCHEMA s`, `ALTER TABLE outbox SET SCHEMA s`}, "is gone", false},
		{"the table was unlogged", []string{all}, []string{`ALTER TABLE outbox SET UNLOGGED`}, unlogged, false},
		{"a partition was unlogged", append(partitioned[:4:4], one), []string{`ALTER TABLE p2 SET UNLOGGED`}, unlogged, false},
		{"an unlogged partition", append(partitioned[:4:4], one), []string{`CREATE UNLOGGED TABLE p3 PARTITION OF outbox FOR VALUES FROM (20) TO (30)`}, unlogged, false},
		{"the table became a partition", []string{`CREATE TABLE whole (LIKE outbox) PARTITION BY LIST (id)`}, []string{`ALTER TABLE whole ATTACH PARTITION outbox DEFAULT`}, attached, false},
		{"the table was detached", []string{`CREATE TABLE whole (LIKE outbox) PARTITION BY LIST (id)`, `ALTER TABLE whole ATTACH PARTITION outbox DEFAULT`}, []string{`ALTER TABLE whole DETACH PARTITION outbox`}, attached, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if c.of15 && b.old() {
				t.Skip("Postgres 14 has no schemas, filters and column lists in publications")
			}
			b.exec(c.before...)
			if !strings.Contains(strings.Join(c.before, ";"), "PUBLICATION") {
				b.exec(one)
			}
			o := b.options()
			o.CheckEvery = 100 * time.Millisecond
			s := b.open(o, event.Checkpoint{})
			cp := s.cp
			b.exec(append(append([]string{`BEGIN`}, c.change...), `COMMIT`)...)
			told := func(when string, f *event.Fault) {
				require.Equal(t, wal.CodeDependsChanged, f.Code, "%s: %v", when, f)
				require.Equal(t, event.Safety, f.Class)
				require.Contains(t, f.Text, c.says, when)
				require.Regexp(t, `inserts between [0-9A-F]+/[0-9A-F]+ and [0-9A-F]+/[0-9A-F]+ may not`, f.Text)
			}
			told("while it streams", s.fault())
			require.NoError(t, s.source.Close())
			told("at a start", b.refuse(o, cp))
		})
	}
}

// What a service does to its tables every day is none of these.
func TestWhatIsDoneToTablesEveryDayStopsNothing(t *testing.T) {
	b := newBench(t)
	loose, nobodys := `INSERT INTO loose VALUES ('no insert into ours', 'a', 'x', NULL, 11)`, `INSERT INTO p1 VALUES ('nobody''s', 'a', 'x', NULL, 1)`
	if b.old() { // what is written there before the one and after the other is a finding, or an event, for as long as a session lasts
		loose, nobodys = `SELECT 1`, `SELECT 1`
	}
	b.exec(`DROP TABLE outbox`, `CREATE TABLE outbox (id text, aggregate_id text, payload text, raw bytea, d int) PARTITION BY RANGE (d)`,
		`CREATE TABLE p1 PARTITION OF outbox FOR VALUES FROM (0) TO (10)`, `CREATE TABLE loose (LIKE outbox)`,
		`CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
	o := b.options()
	o.CheckEvery = 50 * time.Millisecond
	s := b.open(o, event.Checkpoint{})
	b.exec(`ALTER TABLE outbox ADD COLUMN more int`, `ALTER TABLE loose ADD COLUMN more int`, `CREATE INDEX ON outbox (id)`, `ANALYZE outbox`, `VACUUM FULL p1`, `VACUUM FREEZE pg_publication`,
		`GRANT SELECT ON outbox TO PUBLIC`, `COMMENT ON PUBLICATION pub IS 'x'`, `CREATE PUBLICATION somebody FOR TABLE outbox`, `ALTER PUBLICATION pub ADD TABLE other`, `ALTER PUBLICATION pub DROP TABLE other`, `ALTER TABLE p1 REPLICA IDENTITY FULL`,
		loose, `ALTER TABLE outbox ATTACH PARTITION loose FOR VALUES FROM (10) TO (20)`,
		`CREATE TABLE p3 PARTITION OF outbox FOR VALUES FROM (20) TO (30) PARTITION BY RANGE (d)`, `CREATE TABLE p31 PARTITION OF p3 DEFAULT`,
		`INSERT INTO outbox SELECT i::text, 'a', 'x', NULL, 10 * i - 5 FROM generate_series(1, 3) i`)
	require.Equal(t, []string{"1", "2", "3"}, ids(t, s, 3))
	b.exec(`TRUNCATE outbox`, `ALTER TABLE outbox DETACH PARTITION p1`, nobodys, `DROP TABLE p3`, `INSERT INTO outbox VALUES ('4', 'a', 'x', NULL, 12)`)
	require.Equal(t, []string{"4"}, ids(t, s, 1))
	cp := s.passed(b.end())
	require.Eventually(t, func() bool { return string(s.passed(b.end()).Depends) != "" }, patience, 50*time.Millisecond, "a look at the catalogs that found nothing")
	require.NoError(t, s.source.Close())
	s.reopen(cp)
	b.exec(`INSERT INTO outbox VALUES ('5', 'a', 'x', NULL, 12)`)
	require.Equal(t, []string{"5"}, ids(t, s, 1))
}
