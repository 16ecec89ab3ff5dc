package binlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

var mariaTypeCases = []struct {
	column string
	values []string
}{
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

func TestMariaDBTypes(t *testing.T) {
	b := mariaBench(t)
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
