package binlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

type typeCase struct {
	column string
	values []string
}

var mariaTypeCases = []typeCase{
	{"UUID", []string{"'550e8400-e29b-11d4-a716-446655440000'", "'550e8400-e29b-4a11-a23f-0242ac110000'", "'01890a5d-ac96-7b2e-8f4a-0242ac110002'", "'01890a5d-ac96-8b2e-8f4a-0242ac110002'",
		"'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'550e8400-e29b-4a11-0000-000000000000'", "UUID()"}},
	{"INET4", []string{"'0.0.0.0'", "'10.1.0.0'", "'255.255.255.255'"}},
	{"INET6", []string{"'::'", "'::1'", "'::ffff:10.0.0.1'", "'::10.0.0.1'", "'2001:db8::'", "'2001:db8:0:1:1:1:1:1'", "'1:0:0:2:0:0:0:3'", "'1:0:0:2:3:0:0:4'", "'0:1::'", "'ffff::ffff:0'", "'::2:0:0'",
		"'::ffff'", "'0:0:0:0:0:fffe:a00:1'"}},
	{"VARCHAR(1000) COMPRESSED CHARACTER SET utf8mb4", []string{"REPEAT('ä', 500)", "'a'", "''"}},
	{"VARCHAR(20) COMPRESSED CHARACTER SET latin1", []string{"'ä'", "REPEAT('ö', 20)"}},
	{"LONGTEXT COMPRESSED CHARACTER SET utf8mb4", []string{"REPEAT('xyz', 30000)", "'a'", "''"}},
	{"BLOB COMPRESSED", []string{"REPEAT(x'00ff', 3000)"}},
	{"BINARY(16)", []string{"x'00112233445566778899aabbccddeeff'"}},
}

// Tables that are older than MariaDB 10.1 keep times in another format: whole seconds are read, and fractions refused with what mends it.
func TestMariaDBTimesOfOldTables(t *testing.T) {
	b := mariaBench(t)
	create := func(name, digits string) {
		b.run(t, "SET GLOBAL mysql56_temporal_format = OFF", "CREATE TABLE "+name+" (a TIMESTAMP"+digits+" NULL, b DATETIME"+digits+", c TIME"+digits+", id INT PRIMARY KEY, payload LONGTEXT)", "SET GLOBAL mysql56_temporal_format = ON")
	}
	create("whole", "")
	create("fractions", "(3)")
	for _, metadata := range []string{"NO_LOG", "FULL"} {
		b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+metadata+"'")
		for _, role := range []string{"a", "b", "c"} {
			o := b.options(t, "whole")
			o.Columns[event.Payload].Column = role
			s := open(t, o, event.Checkpoint{})
			b.run(t, "DELETE FROM whole", "INSERT INTO whole VALUES ('2026-01-02 03:04:05', '2026-01-02 03:04:05', '-12:34:56', 1, 'x')")
			got := s.read(t, 1)
			require.Equal(t, "1", got[0].id)
			require.Equal(t, b.Scalar(t, b.db, "SELECT CAST("+role+" AS CHAR) FROM whole"), got[0].payload)
			require.NoError(t, s.Close())
		}
		_, err := tryOpen(t, b.options(t, "fractions"), event.Checkpoint{})
		f := requireFault(t, err, "OT3010", event.Environment)
		require.Contains(t, f.Text, "column a of table "+b.db+".fractions")

		// One that gets them while it is read.
		create("later", "(3)")
		b.run(t, "ALTER TABLE later RENAME TO away", "CREATE TABLE later (id INT PRIMARY KEY, payload LONGTEXT)")
		s := open(t, b.options(t, "later"), event.Checkpoint{})
		b.run(t, "DROP TABLE later", "ALTER TABLE away RENAME TO later", "INSERT INTO later VALUES (NULL, '2026-01-02 03:04:05', NULL, 1, 'x')")
		_, err = s.tryRead(1)
		requireFault(t, err, "OT3035", event.Safety)
		require.NoError(t, s.Close())
		b.run(t, "DROP TABLE later")
	}
	b.run(t, "ALTER TABLE fractions FORCE")
	s := open(t, b.options(t, "fractions"), event.Checkpoint{})
	b.run(t, "INSERT INTO fractions VALUES ('2026-01-02 03:04:05.678', NULL, NULL, 1, 'mended')")
	require.Equal(t, []string{"mended"}, payloads(s.read(t, 1)))
}

func TestMariaDBTypes(t *testing.T) {
	b := mariaBench(t)
	mariaTypeCases := mariaTypeCases
	if b.Scalar(t, "", "SELECT VERSION() >= '11.7'") == "1" {
		mariaTypeCases = append(mariaTypeCases[:len(mariaTypeCases):len(mariaTypeCases)], typeCase{"VECTOR(3) NOT NULL", []string{"VEC_FromText('[1,2,3]')"}})
	}
	for _, metadata := range []string{"NO_LOG", "MINIMAL", "FULL"} {
		t.Run(metadata, func(t *testing.T) {
			b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+metadata+"'")
			var create, insert, tables []string
			total := 0
			for i, c := range mariaTypeCases {
				name := fmt.Sprintf("v%d", i)
				tables = append(tables, name)
				create = append(create, "DROP TABLE IF EXISTS "+name, fmt.Sprintf("CREATE TABLE %s (before_it VARCHAR(30) CHARACTER SET latin1, payload %s, id VARCHAR(20) CHARACTER SET cp1251 PRIMARY KEY)", name, c.column))
				for j, v := range c.values {
					insert = append(insert, fmt.Sprintf("INSERT INTO %s VALUES ('ä', %s, 'привет %d')", name, v, j))
					total++
				}
			}
			b.run(t, create...)
			s := open(t, b.options(t, tables...), event.Checkpoint{})
			b.run(t, append([]string{"SET NAMES utf8mb4"}, insert...)...)
			events := s.read(t, total)
			k := 0
			for i, c := range mariaTypeCases {
				for j, v := range c.values {
					e := events[k]
					k++
					what := fmt.Sprintf("%s %s", c.column, v)
					require.Nil(t, e.fault, what)
					require.Equal(t, fmt.Sprintf("привет %d", j), e.id, what)
					require.Equal(t, b.Scalar(t, b.db, fmt.Sprintf("SELECT payload FROM v%d WHERE id = 'привет %d'", i, j)), e.payload, what)
				}
			}
		})
	}
}
