package binlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// Each value as it is written in SQL. What the source delivers must be what the server prints for it (contract: columns render
// as the server's text at time zone +00:00), or its bytes where the column is binary and the payload.
var typeCases = []struct {
	column string
	print  string // how the server is asked; %s is the column
	values []string
}{
	{"TINYINT", text, []string{"-128", "127", "0"}},
	{"TINYINT UNSIGNED", text, []string{"255", "0"}},
	{"SMALLINT", text, []string{"-32768", "32767"}},
	{"SMALLINT UNSIGNED", text, []string{"65535"}},
	{"MEDIUMINT", text, []string{"-8388608", "8388607", "-1"}},
	{"MEDIUMINT UNSIGNED", text, []string{"16777215"}},
	{"INT", text, []string{"-2147483648", "2147483647"}},
	{"INT UNSIGNED", text, []string{"4294967295"}},
	{"BIGINT", text, []string{"-9223372036854775808", "9223372036854775807"}},
	{"BIGINT UNSIGNED", text, []string{"18446744073709551615"}},
	{"BOOLEAN", text, []string{"TRUE"}},
	{"DECIMAL(10,2)", text, []string{"-12345678.90", "0", "0.05", "-0.01", "99999999.99"}},
	{"DECIMAL(65,30)", text, []string{"-12345678901234567890123456789012345.123456789012345678901234567890", "1"}},
	{"DECIMAL(9,0)", text, []string{"-999999999", "7"}},
	{"DECIMAL(5,5)", text, []string{"0.12345", "-0.00001"}},
	{"DECIMAL(18,9)", text, []string{"123456789.987654321", "100000000.000000001"}},
	{"FLOAT", text, []string{"3.14159274", "16777216", "1e20", "-1.5e-20", "0.1", "123456", "1234567", "0", "1e-5", "3.4e38", "0.00012345678"}},
	{"DOUBLE", text, []string{"3.141592653589793", "1e15", "1e14", "123456789012345680", "1e-14", "1e-15", "1e-16", "-0.1", "1.7976931348623157e308", "5e-324", "100", "0.30000000000000004", "999999999999999", "1234567890123456"}},
	{"INT(6) ZEROFILL", text, []string{"42", "1234567"}},
	{"DECIMAL(8,2) ZEROFILL", text, []string{"1.5"}},
	{"DOUBLE(8,3)", text, []string{"1.5", "-12345.6789"}},
	{"FLOAT(7,2)", text, []string{"1.5", "99999.99"}},
	{"BIT(1)", "%s", []string{"b'1'"}},
	{"BIT(12)", "%s", []string{"b'101010101010'"}},
	{"YEAR", text, []string{"1901", "2155", "0", "2026"}},
	{"DATE", text, []string{"'2026-11-30'", "'0000-00-00'", "'9999-12-31'", "'2026-00-00'"}},
	{"TIME", text, []string{"'12:34:56'", "'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"}},
	{"TIME(1)", text, []string{"'-12:34:56.1'", "'12:34:56.9'"}},
	{"TIME(3)", text, []string{"'-12:34:56.123'", "'12:34:56.007'", "'-00:00:00.001'"}},
	{"TIME(6)", text, []string{"'-12:34:56.123456'", "'12:34:56.000007'", "'-00:00:00.000001'"}},
	{"DATETIME", text, []string{"'2026-11-30 12:34:56'", "'0000-00-00 00:00:00'", "'1000-01-01 00:00:00'"}},
	{"DATETIME(2)", text, []string{"'2026-11-30 12:34:56.07'"}},
	{"DATETIME(3)", text, []string{"'2026-11-30 12:34:56.789'"}},
	{"DATETIME(6)", text, []string{"'2026-11-30 12:34:56.000001'", "'9999-12-31 23:59:59.999999'"}},
	{"TIMESTAMP NULL", text, []string{"'2026-11-30 12:34:56'", "'1970-01-01 00:00:01'", "'0000-00-00 00:00:00'"}},
	{"TIMESTAMP(4) NULL", text, []string{"'2026-11-30 12:34:56.1234'"}},
	{"TIMESTAMP(6) NULL", text, []string{"'2026-11-30 12:34:56.123456'", "'0000-00-00 00:00:00'"}},
	{"CHAR(10)", text, []string{"'ab'", "''", "'ä€😀'"}},
	{"CHAR(200)", text, []string{"'ab'", "REPEAT('😀', 200)"}},
	{"VARCHAR(50)", text, []string{"'ab  '", "''", "'ä€😀'"}},
	{"VARCHAR(1000)", text, []string{"REPEAT('x', 1000)"}},
	{"VARCHAR(50) CHARACTER SET latin1", text, []string{"'äöü€'", "'plain'"}},
	{"VARCHAR(50) CHARACTER SET utf8mb3", text, []string{"'ä€'"}},
	{"VARCHAR(50) CHARACTER SET ascii", text, []string{"'ab'"}},
	{"VARCHAR(50) CHARACTER SET cp1251", text, []string{"'привет'"}},
	{"VARCHAR(50) CHARACTER SET gbk", text, []string{"'你好'"}},
	{"VARCHAR(50) CHARACTER SET sjis", text, []string{"'こんにちは'"}},
	{"VARCHAR(50) CHARACTER SET utf16", text, []string{"'a😀'"}},
	{"VARCHAR(50) CHARACTER SET utf32", text, []string{"'a😀'"}},
	{"VARCHAR(50) CHARACTER SET ucs2", text, []string{"'aä€'"}},
	{"TEXT", text, []string{"'ä'", "REPEAT('x', 60000)"}},
	{"TINYTEXT", text, []string{"'t'"}},
	{"MEDIUMTEXT", text, []string{"REPEAT('y', 200000)"}},
	{"LONGTEXT CHARACTER SET latin2", text, []string{"'žluťoučký'"}},
	{"BINARY(16)", "%s", []string{"x'00112233445566778899aabbccddeeff'", "x'01000000'", "x''"}},
	{"VARBINARY(20)", "%s", []string{"x'0100ff00'", "x''"}},
	{"BLOB", "%s", []string{"x'00ff'", "REPEAT(x'00', 70)"}},
	{"LONGBLOB", "%s", []string{"REPEAT('z', 100000)"}},
	{"ENUM('small','it''s','gr,oß')", text, []string{"'small'", "'it''s'", "'gr,oß'"}},
	{"ENUM('a','ä') CHARACTER SET latin1", text, []string{"'ä'"}},
	{"SET('a','b','c','ü')", text, []string{"'a,c'", "''", "'a,b,c,ü'"}},
	{"JSON", text, jsonValues},
}

const text = "CONVERT(CAST(%s AS CHAR) USING utf8mb4)"

var jsonValues = []string{
	`'{}'`, `'[]'`, `'null'`, `'true'`, `'"x"'`, `'1'`, `'-1'`, `'70000'`, `'-70000'`, `'5000000000'`, `'18446744073709551615'`, `'1.5'`, `'1.0'`, `'1e20'`, `'1e-7'`, `'123456789.125'`,
	`'{"a": 1, "bb": [1, 2, {"c": null}], "aaa": "ä€😀", "": true}'`,
	`'["\\u0001\\u001f\\n\\t\\b\\f\\r\\"\\\\\\/"]'`,
	`JSON_OBJECT('big', REPEAT('x', 70000), 'n', 2)`,
	`JSON_ARRAY(CAST(1.10 AS DECIMAL(10,2)), CAST('2026-11-30 12:34:56.5' AS DATETIME(6)), CAST('2026-11-30' AS DATE), CAST('-12:34:56.123' AS TIME(6)), CAST(-0.05 AS DECIMAL(30,20)))`,
	`JSON_ARRAY(x'00ff10', b'101')`,
	`JSON_OBJECT('deep', JSON_ARRAY(JSON_ARRAY(JSON_ARRAY(JSON_OBJECT('k', JSON_ARRAY(1, 2.0, 3e300))))))`,
	`CAST(CONCAT('[', REPEAT('123456789,', 20000), '1]') AS JSON)`,
}

func TestEveryTypeReadsAsTheServerPrintsIt(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	for _, metadata := range []string{"MINIMAL", "FULL"} {
		t.Run(metadata, func(t *testing.T) {
			old := b.Scalar(t, "", "SELECT @@global.binlog_row_metadata")
			b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+metadata+"'")
			t.Cleanup(func() { b.Exec(t, "", "SET GLOBAL binlog_row_metadata = '"+old+"'") })
			var create, insert, tables []string
			total := 0
			for i, c := range typeCases {
				name := fmt.Sprintf("v%d", i)
				tables = append(tables, name)
				create = append(create, "DROP TABLE IF EXISTS "+name, fmt.Sprintf("CREATE TABLE %s (before_it VARCHAR(300), id INT PRIMARY KEY AUTO_INCREMENT, payload %s, after_it DECIMAL(20,3))", name, c.column))
				for _, v := range c.values {
					insert = append(insert, fmt.Sprintf("INSERT INTO %s (before_it, payload, after_it) VALUES ('b', %s, 1.5)", name, v))
					total++
				}
				insert = append(insert, fmt.Sprintf("INSERT INTO %s (payload) VALUES (NULL)", name))
				total++
			}
			b.run(t, create...)
			s := open(t, b.options(t, tables...), event.Checkpoint{})
			b.run(t, append([]string{"SET SESSION sql_mode = '', NAMES utf8mb4"}, insert...)...)
			events := s.read(t, total)
			require.Len(t, events, total)
			k := 0
			for i, c := range typeCases {
				for j, v := range append(append([]string{}, c.values...), "NULL") {
					e := events[k]
					k++
					what := fmt.Sprintf("%s %.60s", c.column, v)
					require.Nil(t, e.fault, what)
					require.Equal(t, fmt.Sprint(j+1), e.id, what)
					if v == "NULL" {
						require.True(t, e.null, what)
						continue
					}
					want := b.Scalar(t, b.db, fmt.Sprintf("SELECT "+c.print+" FROM v%d WHERE id = %d", "payload", i, j+1))
					if want != e.payload {
						t.Errorf("%s: got %.200q, the server prints %.200q", what, e.payload, want)
					}
				}
			}
		})
	}
}

func TestBinaryColumnsTakeTheFormThatIsAskedFor(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox (id BINARY(16) PRIMARY KEY, k VARBINARY(8), payload BLOB)")
	o := b.options(t, "outbox")
	o.Columns[event.ID] = event.Mapping{Column: "id", As: event.UUID}
	o.Columns[event.AggregateID] = event.Mapping{Column: "id"}
	o.Columns[event.Key] = event.Mapping{Column: "k", As: event.Base64}
	o.Columns[event.AggregateType] = event.Mapping{IsConst: true, Constant: "order"}
	s := open(t, o, event.Checkpoint{})
	b.run(t, "INSERT INTO outbox VALUES (x'00112233445566778899aabbccdd0000', x'fffe', x'0001')")
	batch, err := s.Read(t.Context())
	for err == nil && len(batch.Events) == 0 {
		batch, err = s.Read(t.Context())
	}
	require.NoError(t, err)
	row := &batch.Events[0].Row
	require.Equal(t, "00112233-4455-6677-8899-aabbccdd0000", string(row[event.ID].Bytes))
	require.Equal(t, "00112233445566778899aabbccdd0000", string(row[event.AggregateID].Bytes))
	require.Equal(t, "//4=", string(row[event.Key].Bytes))
	require.Equal(t, "order", string(row[event.AggregateType].Bytes))
	require.Equal(t, "\x00\x01", string(row[event.Payload].Bytes))
	require.False(t, row[event.Headers].Set)
	require.Equal(t, b.db+".outbox", batch.Events[0].Table)
}

func TestWhatCannotBeRenderedIsARecordFault(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox (id BIGINT PRIMARY KEY, payload LONGTEXT, place POINT)")
	o := b.options(t, "outbox")
	o.Columns[event.Headers].Column = "place"
	o.RowLimit = 1000
	s := open(t, o, event.Checkpoint{})
	b.run(t, "INSERT INTO outbox VALUES (1, 'a', ST_GeomFromText('POINT(1 2)')), (2, 'b', NULL)", "INSERT INTO outbox VALUES (3, REPEAT('x', 1001), NULL)",
		"INSERT INTO outbox VALUES (4, REPEAT('x', 5000000), NULL)", "INSERT INTO outbox VALUES (5, 'c', NULL)")
	events := s.read(t, 5)
	codes := []string{}
	for _, e := range events {
		code := ""
		if e.fault != nil {
			require.Equal(t, event.Record, e.fault.Class)
			require.NotContains(t, e.fault.Error(), "xxxx")
			code = e.fault.Code
		}
		codes = append(codes, code)
	}
	require.Equal(t, []string{"OT3040", "", "OT3041", "OT3041", ""}, codes)
	for i, e := range events {
		require.Equal(t, fmt.Sprint(i+1), e.id, "what failed has its id too")
		if e.fault != nil {
			require.Contains(t, e.fault.Place, "id "+e.id)
		}
	}
}

func TestColumnsThatOnlyTheLogOrOnlyTheCatalogueShows(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t,
		"CREATE TABLE virt (v INT GENERATED ALWAYS AS (LENGTH(payload)) VIRTUAL, id INT, st VARCHAR(20) GENERATED ALWAYS AS (CONCAT('s', id)) STORED, payload LONGTEXT, INDEX ((CAST(payload AS CHAR(10)))))",
		"CREATE TABLE invis (secret INT INVISIBLE DEFAULT 5, id INT, payload LONGTEXT)",
		"SET SESSION sql_generate_invisible_primary_key = ON", "CREATE TABLE gipk (id INT, payload LONGTEXT)", "SET SESSION sql_generate_invisible_primary_key = OFF",
		"CREATE TABLE multi (id INT, tags JSON, payload LONGTEXT, INDEX ((CAST(tags AS UNSIGNED ARRAY))))")
	s := open(t, b.options(t, "virt", "invis", "gipk", "multi"), event.Checkpoint{})
	b.run(t, "INSERT INTO virt (id, payload) VALUES (1, 'a')", "INSERT INTO invis (id, payload) VALUES (2, 'b')", "INSERT INTO gipk (id, payload) VALUES (3, 'c')",
		"INSERT INTO multi VALUES (4, '[1,2]', 'd')")
	events := s.read(t, 4)
	require.Equal(t, []string{"a", "b", "c", "d"}, payloads(events))
	for i, e := range events {
		require.Equal(t, fmt.Sprint(i+1), e.id)
	}
}
