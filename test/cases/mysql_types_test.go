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

func TestB135HeadersOfARowKeepTheirTextAndTheirOrder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		db.Exec(t, "ALTER TABLE outbox MODIFY headers LONGTEXT")
		s := scene.New(t, &servers, db)
		p := s.Start()
		id := scene.NewUUID()
		db.Server.Exec(t, db.DB, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES (?, 'order', 'order-1', 'x', '{}',
			'{"a": 1, "b": null, "c": {"x":1}, "d":[1,2], "e":"é", "big": 12345678901234567890.10}')`, id)
		s.Expect(id)
		s.Arrived(p)
		var own []string
		for _, h := range record(t, s, id).Headers {
			if len(h.Key) == 1 || h.Key == "big" {
				own = append(own, h.Key+"="+string(h.Value))
			}
		}
		require.Equal(t, []string{"a=1", `c={"x":1}`, "d=[1,2]", "e=é", "big=12345678901234567890.10"}, own)
		s.Stop(p)
	})
}
