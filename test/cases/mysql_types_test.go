package cases

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// typed is a table whose columns stand for a key (also the aggregate's id), a type, a version and a payload.
type typed struct {
	key, kind, version, payload string // definitions
	more                        string // other columns, with a comma before each
	rows                        []string
	steps                       []string // statements before the row of the same number
}

// textOf asks the server for its own text of a column, or for its bytes in hex; null tells NULL.
func textOf(t *testing.T, db *shop.MySQL, column string, row int, binary bool) (text string, null bool) {
	t.Helper()
	print := "CONVERT(CAST(" + column + " AS CHAR) USING utf8mb4)"
	if binary {
		print = "LOWER(HEX(" + column + "))"
	}
	text = db.Server.Scalar(t, db.DB, fmt.Sprintf("SELECT IFNULL(CONCAT('=', %s), 'NULL') FROM outbox WHERE id = %d", print, row))
	return strings.TrimPrefix(text, "="), text == "NULL"
}

// arrives inserts the rows and compares each record with what the server prints.
func (c typed) arrives(t *testing.T, db *shop.MySQL, env ...string) *scene.Scene {
	t.Helper()
	db.Server.Exec(t, db.DB, "DROP TABLE outbox; SET sql_mode = ''; CREATE TABLE outbox (k "+c.key+", kind "+c.kind+", id INT PRIMARY KEY, v "+c.version+", payload "+c.payload+c.more+") CHARACTER SET utf8mb4")
	s := scene.New(t, &servers, db)
	s.Configure("Columns", "{ id: id, aggregate_id: k, event_type: kind, aggregate_version: v, payload: payload }")
	s.Outtail.Env = append(s.Outtail.Env, env...)
	p := s.Start()
	for i, row := range c.rows {
		if i < len(c.steps) && c.steps[i] != "" {
			db.Exec(t, c.steps[i])
		}
		db.Server.Exec(t, db.DB, fmt.Sprintf("SET sql_mode = ''; SET NAMES utf8mb4; INSERT INTO outbox (id, k, kind, v, payload) VALUES (%d, %s)", i+1, row))
		s.Expect(strconv.Itoa(i + 1))
	}
	s.Arrived(p)
	binary := func(definition string) bool {
		return strings.Contains(definition, "BINARY") || strings.Contains(definition, "BLOB")
	}
	for i := range c.rows {
		r := record(t, s, strconv.Itoa(i+1))
		what := c.rows[i]
		key, _ := textOf(t, db, "k", i+1, binary(c.key))
		require.Equal(t, key, string(r.Key), what)
		kind, _ := textOf(t, db, "kind", i+1, binary(c.kind))
		require.Equal(t, kind, scene.Header(r, "event_type"), what)
		version, _ := textOf(t, db, "v", i+1, binary(c.version))
		if version != "NULL" {
			require.Equal(t, version, scene.Header(r, "aggregate_version"), what)
		}
		payload, null := textOf(t, db, "payload", i+1, binary(c.payload))
		if null {
			require.Nil(t, r.Value, what)
			continue
		}
		require.NotNil(t, r.Value, what)
		if binary(c.payload) {
			require.Equal(t, payload, hex.EncodeToString(r.Value), what)
		} else {
			require.Equal(t, payload, string(r.Value), what)
		}
	}
	s.Stop(p)
	return s
}

func TestB001UnsignedNumbersAreUnsignedWhateverTheLogSaysOfThem(t *testing.T) {
	t.Parallel()
	c := typed{key: "BIGINT UNSIGNED", kind: "SMALLINT UNSIGNED", version: "MEDIUMINT UNSIGNED", payload: "TINYINT UNSIGNED",
		rows: []string{"18446744073709551615, 65535, 16777215, 255", "9223372036854775808, 32768, 8388608, 128", "9223372036854775807, 32767, 8388607, 127", "0, 0, 0, 0",
			"18446744073709551615, 65535, 16777215, 255", "18446744073709551614, 65534, 16777214, 254"}}
	t.Run("mysql", func(t *testing.T) {
		c.arrives(t, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil))
	})
	t.Run("mariadb", func(t *testing.T) {
		// A server of its own: its metadata changes between the rows.
		c.steps = []string{"", "", "", "", "SET GLOBAL binlog_row_metadata = 'FULL'", "SET GLOBAL binlog_row_metadata = 'MINIMAL'"}
		c.arrives(t, shop.NewMySQL(t, harness.StartMySQL(t, harness.MySQLOptions{MariaDB: true}), "mariadb", nil))
	})
}

func TestB004AnEnumIsItsLabelAndTheInvalidOneIsEmpty(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		typed{key: "ENUM('order','it''s, a \\\\ label','größe')", kind: "ENUM('created','paid','void')", version: "SET('a','b','ü')", payload: "ENUM('x')",
			rows: []string{"'order', 'paid', 'a,ü', 'x'", "3, 'void', '', NULL", "2, 'no such label', 'b', 'none'"}}.arrives(t, db)
	})
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		db.Exec(t, "ALTER TABLE outbox MODIFY event_type ENUM('created','paid') NULL")
		s := scene.New(t, &servers, db)
		s.Configure("Match", "match: { event_type: paid }, ", "NoRoute", "drop")
		p := s.Start()
		for _, kind := range []string{"created", "paid", "invalid", "paid"} {
			id := scene.NewUUID()
			db.Server.Exec(t, db.DB, "SET sql_mode = ''; INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('"+id+"', 'order', 'order-1', '"+kind+"', '{}')")
			if kind == "paid" {
				s.Expect(id)
			}
		}
		s.Arrived(p)
		s.Stop(p)
	})
}

func TestB005BinaryIdentifiersKeepTheirTrailingZeros(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		typed{key: "BINARY(16)", kind: "BINARY(4)", version: "VARBINARY(16)", payload: "BINARY(8)",
			rows: []string{"x'0102030405060708090a0b0c0d0e0f00', 'ab', x'0100', x'00'", "x'0102030405060708090a0b0c0d0e0000', x'00', x'010000', x'0100'",
				"x'01', 'abcd', x'00', x'ff'", "x'', 'a', x'0102', NULL"}}.arrives(t, db)
	})
}

func TestB007DecimalsAreExact(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		typed{key: "DECIMAL(65,30)", kind: "DECIMAL(20,18)", version: "DECIMAL(5,2)", payload: "DECIMAL(65,0)",
			rows: []string{"-99999999999999999999999999999999999.000000000000000000000000000001, 0.000000756500000000, 1.00, -1", "0.5, -0.000000000000000001, -0.01, 0",
				"99999999999999999999999999999999999.999999999999999999999999999999, 1, 999.99, 99999999999999999999999999999999999999999999999999999999999999999"}}.arrives(t, db)
	})
}

func TestB010ZeroDatesAreTheServersText(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		typed{key: "DATE", kind: "DATETIME(6)", version: "YEAR", payload: "TIMESTAMP(3) NULL",
			rows: []string{"'0000-00-00', '0000-00-00 00:00:00.123456', 0, '0000-00-00 00:00:00'", "'2024-00-00', '2024-02-00 01:02:03', '0000', '2024-02-29 01:02:03.004'", "'2024-02-00', '9999-12-31 23:59:59.999999', 2155, NULL"}}.arrives(t, db)
	})
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		id := scene.NewUUID()
		db.Server.Exec(t, db.DB, "SET sql_mode = ''; INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, occurred_at) VALUES ('"+id+"', 'order', 'order-1', 'x', '{}', '0000-00-00 00:00:00')")
		s.Expect(id)
		s.Arrived(p)
		require.GreaterOrEqual(t, record(t, s, id).Timestamp.Year(), 2026, "the commit's time")
		require.Equal(t, 1.0, s.Outtail.Metric(t, "outtail_timestamps_replaced_total"))
		s.Stop(p)
	})
}

func TestB013ColumnsThatNobodyMappedDoNotMoveTheOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		more := ", h VARCHAR(8) AS (LEFT(k, 8)) STORED, w VARCHAR(9) AS (CONCAT(kind, '!')) VIRTUAL, x INT INVISIBLE DEFAULT 5"
		if db.Kind() == "mysql" {
			more += ", INDEX ((LOWER(kind)))"
		}
		typed{key: "VARCHAR(20)", kind: "VARCHAR(20)", version: "INT INVISIBLE", payload: "LONGTEXT", more: more, rows: []string{"'a', 'b', 1, 'c'", "'d', 'e', 2, NULL"}}.arrives(t, db)
	})
}

func TestB111TextOfAnyCharacterSetArrivesAsUTF8(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		for _, c := range []typed{
			{key: "VARCHAR(20) CHARACTER SET latin1", kind: "VARCHAR(20) CHARACTER SET gbk", version: "VARCHAR(20) CHARACTER SET utf16", payload: "TEXT CHARACTER SET big5", rows: []string{"'café €', '中文', 'a€😀', '中文'"}},
			{key: "CHAR(20) CHARACTER SET sjis", kind: "VARCHAR(20) CHARACTER SET koi8r", version: "VARCHAR(20) CHARACTER SET utf16le", payload: "TEXT CHARACTER SET cp1251", rows: []string{"'〜アー', 'привет', '😀', 'привет'"}},
			{key: "VARCHAR(20) CHARACTER SET utf32", kind: "CHAR(9) CHARACTER SET swe7", version: "VARCHAR(20) CHARACTER SET eucjpms", payload: "LONGTEXT CHARACTER SET ujis", rows: []string{"'😀', 'åäö', '～①', '〜'"}},
		} {
			c.arrives(t, db)
		}
	})
}

func TestB113BytesAreNotRepaired(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		typed{key: "VARCHAR(40) CHARACTER SET utf8mb4", kind: "VARCHAR(20) CHARACTER SET utf8mb3", version: "VARBINARY(9)", payload: "BLOB",
			rows: []string{"'👩‍👩‍👧', '€', x'c328', x'fffe00c328'", "CONVERT(x'efbfbe' USING utf8mb4), CONVERT(x'efbfbd' USING utf8mb3), x'80', x''"}}.arrives(t, db)
	})
}

func TestB116TimesAreTheSameWhereverOuttailRuns(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		var first []string
		for _, zone := range []string{"Asia/Tokyo", "America/New_York", "UTC"} {
			db.Server.Exec(t, db.DB, "DROP TABLE IF EXISTS outbox; CREATE TABLE outbox (id INT PRIMARY KEY, k TIMESTAMP(6) NULL, payload DATETIME(6), at TIMESTAMP(3) NULL)")
			s := scene.New(t, &servers, db)
			s.Configure("Columns", "{ id: id, aggregate_id: k, payload: payload, occurred_at: at }")
			s.Outtail.Env = append(s.Outtail.Env, "TZ="+zone)
			p := s.Start()
			db.Server.Exec(t, db.DB, "SET time_zone = '+05:30'; INSERT INTO outbox VALUES (1, '2026-03-29 02:30:00.123456', '2026-03-29 02:30:00.123456', '2026-11-30 01:00:00.789')")
			s.Expect("1")
			s.Arrived(p)
			r := record(t, s, "1")
			got := []string{string(r.Key), string(r.Value), scene.Header(r, "occurred_at"), fmt.Sprint(r.Timestamp.UnixMilli())}
			if first == nil {
				first = got
				require.Equal(t, []string{"2026-03-28 21:00:00.123456", "2026-03-29 02:30:00.123456", "2026-11-29T19:30:00.789000Z"}, got[:3])
			}
			require.Equal(t, first, got, zone)
			s.Stop(p)
		}
	})
}

func TestB125OpaqueValuesInJSONAreTheServersText(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, db *shop.MySQL) {
		typed{key: "VARCHAR(9)", kind: "JSON", version: "JSON", payload: "JSON", rows: []string{
			"'1', JSON_OBJECT('d', CAST(1.99 AS DECIMAL(3,2))), JSON_ARRAY(CAST('-12:34:56.5' AS TIME(6))), JSON_OBJECT('b', REPEAT(x'00ff', 100), 'bit', b'101', 'at', CAST('2026-11-30 12:34:56.1' AS DATETIME(6)), 'day', CAST('2026-11-30' AS DATE))",
			"'2', JSON_EXTRACT(JSON_ARRAY(CAST(1.10 AS DECIMAL(65,30))), '$[0]'), 'null', JSON_ARRAY(18446744073709551615, -9223372036854775808, 9007199254740993, 1e300, 0.1, -0.0e0)",
		}}.arrives(t, db)
	})
}

func TestB128JSONIsWhatTheServerHolds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		typed{key: "VARCHAR(9)", kind: "VARCHAR(9)", version: "INT", payload: "JSON", rows: []string{
			`'1', 'x', 1, '{"a":1,"a":2,  "n":12345678901234567890.10}'`, `'2', 'x', 2, 'null'`, `'3', 'x', 3, NULL`, `'4', 'x', 4, '""'`, `'5', 'x', 5, '{"k": "\\u00e4\\u0000 \\"ä😀"}'`,
		}}.arrives(t, db)
	})
}

func TestB136NullEmptyAndJSONNullStayDifferent(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		s := typed{key: "VARCHAR(9)", kind: "VARCHAR(9)", version: "INT", payload: "LONGTEXT", rows: []string{"'1', 'x', 1, NULL", "'2', 'x', 2, ''", "'3', 'x', 3, 'null'"}}.arrives(t, db)
		require.Nil(t, record(t, s, "1").Value)
		require.Equal(t, []byte{}, record(t, s, "2").Value)
		require.Equal(t, "null", string(record(t, s, "3").Value))
	})
}

func TestB135HeadersOfARowKeepTheirTextAndTheirOrder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		db.Exec(t, "ALTER TABLE outbox MODIFY headers LONGTEXT")
		s := scene.New(t, &servers, db)
		p := s.Start()
		id := scene.NewUUID()
		db.Server.Exec(t, db.DB, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES (?, 'order', 'order-1', 'x', '{}',
			'{"a": 1, "b": null, "c": {"x":1}, "d":[1,2], "e":"é", "empty": "", "a": 2, "big": 12345678901234567890.10}')`, id)
		s.Expect(id)
		s.Arrived(p)
		var own []string
		for _, h := range record(t, s, id).Headers {
			if len(h.Key) == 1 || h.Key == "big" || h.Key == "empty" {
				own = append(own, h.Key+"="+string(h.Value))
			}
		}
		require.Equal(t, []string{"a=1", `c={"x":1}`, "d=[1,2]", "e=é", "empty=", "a=2", "big=12345678901234567890.10"}, own)
		s.Stop(p)
	})
}

// Headers that are no object are their event's own fault, and its policy decides; none, and very many, are headers like others.
func TestB135HeadersThatAreNoObjectAreTheirEventsFault(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		db.Exec(t, "ALTER TABLE outbox MODIFY headers LONGTEXT")
		s := scene.New(t, &servers, db)
		s.Configure("Poison", "park")
		p := s.Start()
		insert := func(aggregate string, headers any) (id string) {
			id = scene.NewUUID()
			db.Server.Exec(t, db.DB, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES (?, 'order', ?, 'x', '{}', ?)`, id, aggregate, headers)
			return id
		}
		var bad []string
		for i, headers := range []string{`[1, 2]`, `7`, `"text"`, `{"a": 1`, `no JSON`, `{"a": 1} {"b": 2}`} {
			bad = append(bad, insert(fmt.Sprint("bad-", i), headers))
		}
		var many strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&many, `, "h%d": %d`, i, i)
		}
		s.Expect(insert("order-1", nil), insert("order-1", ""), insert("order-1", "null"), insert("order-1", "{"+many.String()[2:]+"}"))
		s.Arrived(p)
		var parked []string
		p.Until(t, "the others parked", func() bool {
			parked = nil
			for _, l := range letters(t, s) {
				require.Equal(t, "OT6201", l.Code)
				parked = append(parked, l.ID)
			}
			return len(parked) >= len(bad)
		})
		require.ElementsMatch(t, bad, parked)
		n := 0
		for _, h := range record(t, s, s.Sent[3]).Headers {
			if strings.HasPrefix(h.Key, "h") {
				require.Equal(t, fmt.Sprint("h", n), h.Key)
				require.Equal(t, fmt.Sprint(n), string(h.Value))
				n++
			}
		}
		require.Equal(t, 10_000, n)
		s.Stop(p)
	})
}
