package cases

import (
	"encoding/hex"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

func TestB045NumbersWithoutANumberAndTimesWithoutATimeAreTheServersText(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		db.Exec(t, `ALTER TABLE outbox ADD n numeric, ADD f float8, ADD d date, ADD ts timestamptz`)
		s := scene.New(t, &servers, db)
		s.Configure("Columns", "{ id: id, aggregate_id: aggregate_id, aggregate_type: f, aggregate_version: d, event_version: ts, payload: n, occurred_at: occurred_at }")
		db.Exec(t, `ALTER DATABASE `+db.DB+` SET DateStyle = 'German'`)
		p := s.Start()
		for _, c := range []struct{ n, f, d, ts, occurred, occurredText string }{
			{"NaN", "-Infinity", "-infinity", "infinity", "infinity", "infinity"},
			{"Infinity", "NaN", "0044-03-15 BC", "294276-12-31 23:59:59.999999+00", "-infinity", "-infinity"},
			{"-Infinity", "1e+300", "2026-01-02", "4714-11-24 00:00:00+00 BC", "2026-01-02 03:04:05.000001+00", "2026-01-02T03:04:05.000001Z"},
		} {
			id := scene.NewUUID()
			db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, n, f, d, ts, occurred_at)
				VALUES ('`+id+`', '', 'order-1', '', '`+c.n+`', '`+c.f+`', '`+c.d+`', '`+c.ts+`', '`+c.occurred+`')`)
			s.Expect(id)
			s.Arrived(p)
			r := record(t, s, id)
			require.Equal(t, c.n, string(r.Value))
			require.Equal(t, c.f, scene.Header(r, "aggregate_type"))
			require.Equal(t, c.d, scene.Header(r, "aggregate_version"))
			require.Equal(t, c.ts, scene.Header(r, "event_version"))
			require.Equal(t, c.occurredText, scene.Header(r, "occurred_at"))
			require.GreaterOrEqual(t, r.Timestamp.Year(), 2026, "the commit's time where the column is none")
		}
		require.Equal(t, 2.0, s.Outtail.Metric(t, "outtail_timestamps_replaced_total"))
		s.Stop(p)
	})
}

func TestB047TypesOfTheDatabaseAreTheServersText(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		db.Exec(t, `CREATE EXTENSION citext`)
		db.Exec(t, `CREATE DOMAIN order_id AS text CHECK (VALUE <> '')`)
		db.Exec(t, `CREATE TYPE kind AS ENUM ('order.created', 'order.paid')`)
		db.Exec(t, `CREATE TYPE pair AS (a text, b int)`)
		db.Exec(t, `DROP PUBLICATION outtail_orders`)
		db.Exec(t, `DROP TABLE outbox`)
		db.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type citext, aggregate_id order_id, event_type kind, payload pair, tags text[])`)
		db.Exec(t, `CREATE PUBLICATION outtail_orders FOR TABLE outbox WITH (publish = 'insert')`)
		s := scene.New(t, &servers, db)
		s.Configure("Columns", "{ id: id, aggregate_type: aggregate_type, aggregate_id: aggregate_id, key: id, event_type: event_type, payload: payload, event_version: tags }")
		p := s.Start()
		insert := func(kind string) string {
			id := scene.NewUUID()
			db.Exec(t, `INSERT INTO outbox VALUES ('`+id+`', 'Order', 'a "1"', '`+kind+`', ('x,"y"', 7), '{a,"b c",NULL}')`)
			s.Expect(id)
			s.Arrived(p)
			r := record(t, s, id)
			require.Equal(t, id, string(r.Key), "a uuid in its usual text")
			require.Equal(t, "Order", scene.Header(r, "aggregate_type"))
			require.Equal(t, `a "1"`, scene.Header(r, "aggregate_id"))
			require.Equal(t, `("x,""y""",7)`, string(r.Value))
			require.Equal(t, `{a,"b c",NULL}`, scene.Header(r, "event_version"))
			return scene.Header(r, "event_type")
		}
		require.Equal(t, "order.created", insert("order.created"))
		db.Exec(t, `ALTER TYPE kind ADD VALUE 'order.sent'`)
		require.Equal(t, "order.sent", insert("order.sent"))
		db.Exec(t, `ALTER TYPE kind RENAME VALUE 'order.sent' TO 'order.gone'`)
		require.Equal(t, "order.gone", insert("order.gone"))
		s.Stop(p)
	})
}

func TestB113BytesThatAreNoTextAreNotMended(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		db.Exec(t, `ALTER TABLE outbox ADD raw bytea, ADD doc text`)
		s := scene.New(t, &servers, db)
		s.Configure("Columns", "{ id: id, aggregate_id: aggregate_id, key: raw, event_type: doc, payload: raw }")
		p := s.Start()
		for _, c := range []struct{ raw, doc string }{
			{"fffe00c328", "👩‍👩‍👧‍👦"}, {"", ""}, {"c3", "\ufffe\u200d"}, {"00", "é é"},
		} {
			id := scene.NewUUID()
			db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, raw, doc) VALUES ('`+id+`', '', 'a', '', '\x`+c.raw+`', '`+c.doc+`')`)
			s.Expect(id)
			s.Arrived(p)
			r := record(t, s, id)
			require.Equal(t, c.raw, hex.EncodeToString(r.Value))
			require.NotNil(t, r.Value, "empty is not NULL")
			require.Equal(t, c.raw, string(r.Key))
			require.Equal(t, c.doc, scene.Header(r, "event_type"))
		}
		s.Stop(p)
	})
}

// A server converts text to UTF-8 where its database's encoding says what the bytes mean; SQL_ASCII does not, and they come as they are.
func TestB113TextOfADatabaseInAnotherEncoding(t *testing.T) {
	t.Parallel()
	for _, version := range harness.PostgresVersions() {
		for _, c := range []struct{ encoding, sql, want string }{
			{"LATIN1", `chr(233) || 'x'`, "éx"},
			{"EUC_JP", `convert_from('\xe38182e697a5', 'UTF8')`, "あ日"},
			{"SQL_ASCII", `convert_from('\xfffec328c3a9', 'SQL_ASCII')`, "\xff\xfe\xc3(é"},
		} {
			t.Run("postgres"+version+"/"+c.encoding, func(t *testing.T) {
				t.Parallel()
				db := shop.NewPostgres(t, servers.Postgres(t, version), nil, "TEMPLATE template0 LOCALE 'C' ENCODING '"+c.encoding+"'")
				db.Exec(t, `ALTER TABLE outbox ADD doc text`)
				s := scene.New(t, &servers, db)
				s.Configure("Columns", "{ id: id, aggregate_id: aggregate_id, key: doc, event_type: doc, payload: doc }")
				p := s.Start()
				id := scene.NewUUID()
				db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, doc) VALUES ('`+id+`', '', 'a', '', `+c.sql+`)`)
				s.Expect(id)
				s.Arrived(p)
				r := record(t, s, id)
				require.Equal(t, c.want, string(r.Value))
				require.Equal(t, c.want, string(r.Key))
				require.Equal(t, c.want, scene.Header(r, "event_type"))
				doctor := s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
				require.Contains(t, doctor.Stdout, "has the tables and publishes inserts")
				s.Stop(p)
			})
		}
	}
}

// A database may hold characters that have no place in Unicode. The server fails at them each time, and quotes them.
func TestB113ACharacterThatTheServerCannotConvertIsNamedByItsPlace(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		db = shop.NewPostgres(t, db.Server, nil, "TEMPLATE template0 LOCALE 'C' ENCODING 'EUC_JP'")
		db.Exec(t, `ALTER TABLE outbox ADD doc text`)
		s := scene.New(t, &servers, db)
		s.Configure("Columns", "{ id: id, aggregate_id: aggregate_id, event_type: event_type, payload: doc }")
		insert := func(id, doc string) string {
			return `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, doc) VALUES ('` + id + `', '', 'a', '', ` + doc + `)`
		}
		ids := pgIDs(2)
		p := s.Start()
		s.Stop(p)
		db.Exec(t, insert(ids[0], "'x'"))
		db.Exec(t, insert(scene.NewUUID(), `convert_from('\xa9a1', 'EUC_JP')`))
		db.Exec(t, insert(ids[1], "'x'"))
		stderr := s.Stops(4, "OT2046", "22P05")
		require.NotContains(t, stderr, "0xa9", "the value's bytes")
		past := regexp.MustCompile(`--to ([0-9A-F]+/[0-9A-F]+) `).FindStringSubmatch(stderr)
		require.Len(t, past, 2, stderr)
		s.TakeWay(stderr, "--to "+past[1])
		s.Expect(ids...)
		p = s.Start()
		s.Arrived(p)
		s.Stop(p)
	})
}

func TestB135B136HeadersAndAbsentPayloadsOfPostgres(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		db.Exec(t, `ALTER TABLE outbox ADD doc text, ADD raw bytea, ALTER headers TYPE json`)
		for column, c := range map[string]map[string]*string{
			"payload": {"NULL": nil, "'null'": new("null"), `'""'`: new(`""`)},
			"doc":     {"NULL": nil, "''": new(""), "'null'": new("null")},
			"raw":     {"NULL": nil, "''": new("")},
		} {
			s := scene.New(t, &servers, db)
			s.Configure("Columns", "{ id: id, aggregate_id: aggregate_id, event_type: event_type, headers: headers, payload: "+column+" }")
			p := s.Start()
			for sql, want := range c {
				id := scene.NewUUID()
				db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, `+column+`, headers) VALUES ('`+id+`', '', 'order-1', '', `+sql+`,
					'{"a": 1, "b": null, "c": {"x":1}, "d":[1,2], "e":"é", "big": 12345678901234567890.10}')`)
				s.Expect(id)
				s.Arrived(p)
				r := record(t, s, id)
				if want == nil {
					require.Nil(t, r.Value, column)
				} else {
					require.NotNil(t, r.Value, "%s %s", column, sql)
					require.Equal(t, *want, string(r.Value), column)
				}
				var own []string
				for _, h := range r.Headers {
					if len(h.Key) == 1 || h.Key == "big" {
						own = append(own, h.Key+"="+string(h.Value))
					}
				}
				require.Equal(t, []string{"a=1", `c={"x":1}`, "d=[1,2]", "e=é", "big=12345678901234567890.10"}, own)
			}
			s.Stop(p)
			slotFree(t, db)
			db.Exec(t, `SELECT pg_drop_replication_slot('`+db.Slot()+`')`)
		}
	})
}

func TestB128B129JSONArrivesAsTheServerHoldsIt(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		db.Exec(t, `ALTER TABLE outbox ADD doc json`)
		s := scene.New(t, &servers, db)
		p := s.Start()
		see := func(column, text string) string {
			id := scene.NewUUID()
			value := `'` + text + `'`
			if text == "" {
				value = "NULL"
			}
			db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, `+column+`) VALUES ('`+id+`', '', 'order-1', '', `+value+`)`)
			s.Expect(id)
			s.Arrived(p)
			r := record(t, s, id)
			if r.Value == nil {
				return ""
			}
			return string(r.Value)
		}
		require.Equal(t, `{"a": 2, "n": 12345678901234567890.10}`, see("payload", `{"a":1,"a":2,  "n":12345678901234567890.10}`), "jsonb is the server's own form")
		require.Equal(t, "null", see("payload", "null"))
		require.Equal(t, "", see("payload", ""), "SQL NULL is a null value")
		s.Stop(p)
		s.Configure("Columns", "{ id: id, aggregate_id: aggregate_id, event_type: event_type, payload: doc, headers: headers }")
		p = s.Start()
		for _, text := range []string{
			`{"a":1,"a":2,  "n":12345678901234567890.10}`, `{"a": "\u0000"}`, `{"a": "\\u0000"}`, `"\ud800"`, `1e400`, "{\n\t\"a\" :1 }", "null",
		} {
			require.Equal(t, text, see("doc", text))
		}
		// Headers with such values stop nothing.
		id := scene.NewUUID()
		db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, doc, headers) VALUES ('`+id+`', '', 'order-1', '', '1', '{"n": 1e400, "t": "x"}')`)
		s.Expect(id)
		s.Arrived(p)
		require.Equal(t, "x", scene.Header(record(t, s, id), "t"))
		require.Regexp(t, `^10{400}$`, scene.Header(record(t, s, id), "n"), "jsonb writes a number out")
		s.Stop(p)
	})
}

// A bytea has two characters a byte as text, and no server can make a text of more than 1 GB: it fails at such a row each time.
func TestAValueThatTheServerCannotSendIsNamedWithTheWayOut(t *testing.T) {
	onOwnPostgres(t, harness.PostgresOptions{}, func(t *testing.T, db *shop.Postgres) {
		if db.Server.Scalar(t, db.DB, "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'") != "true" {
			t.Skip("this server was built without lz4, and pglz takes minutes for half a gigabyte")
		}
		db.Exec(t, `ALTER TABLE outbox ADD raw bytea COMPRESSION lz4, ADD doc text COMPRESSION lz4`)
		s := scene.New(t, &servers, db)
		p := s.Start()
		s.Insert(1)
		// One that it can send is passed by, if nobody wants it: as much as is wanted is kept, and no more.
		ids := pgIDs(3)
		db.Exec(t, pgEvent(ids[0], `'{"n": 1}'`))
		db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, doc) VALUES ('`+ids[1]+`', 'order', 'order-1', 'order.changed', '{"n": 2}', repeat('x', 40 << 20))`)
		s.Expect(ids[:2]...)
		s.Arrived(p)
		require.Equal(t, `{"n": 2}`, string(record(t, s, ids[1]).Value))
		require.Less(t, p.PeakRSS(t), int64(150<<20))

		db.Exec(t, `BEGIN; `+pgEvent(ids[2], `'{}'`)+`; INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, raw)
			VALUES ('`+scene.NewUUID()+`', 'order', 'order-1', 'order.changed', convert_to(repeat('x', 512 << 20), 'UTF8')); COMMIT`)
		s.Expect(ids[2])
		r := p.Wait(t)
		require.Equal(t, 4, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "OT2046")
		require.Contains(t, r.Stderr, "behind 1 rows of the transaction")
		past := regexp.MustCompile(`--to ([0-9A-F]+/[0-9A-F]+) `).FindStringSubmatch(r.Stderr)
		require.Len(t, past, 2, r.Stderr)
		slotFree(t, db)
		s.TakeWay(r.Stderr, "--to "+past[1])
		s.Prove()
	})
}

// Positions have 64 bits: a log that crosses the end of the lower 32 is read, stored, shown and resumed from like any.
func TestB101PositionsGoOnBeyond32Bits(t *testing.T) {
	t.Parallel()
	for _, begins := range []string{"0000000100000000000000FF", "00000001000000FF000000FF"} { // up to 1/0, and to 100/0
		t.Run(begins, func(t *testing.T) {
			t.Parallel()
			server := harness.StartPostgres(t, harness.NewestPostgres(), harness.PostgresOptions{Begins: begins})
			db := shop.NewPostgres(t, server, nil)
			s := scene.New(t, &servers, db)
			s.Prove()
			before := s.Stored().Source.LSN
			for range 3 { // the end of a segment each time
				p := s.Start()
				s.Insert(2)
				s.Arrived(p)
				db.Exec(t, `SELECT pg_switch_wal()`)
				s.Insert(1)
				s.Arrived(p)
				p.Until(t, "a small lag", func() bool { return s.Outtail.Metric(t, "outtail_source_lag_bytes") < 1<<20 })
				s.Stop(p)
				s.Insert(1)
			}
			s.Prove()
			require.Len(t, s.Seen, len(s.Sent), "nothing twice behind a clean stop")
			stored := s.Stored().Source.LSN
			high := func(lsn string) string { h, _, _ := strings.Cut(lsn, "/"); return h }
			require.NotEqual(t, high(before), high(stored), "%s to %s", before, stored)
			require.Equal(t, stored, server.Scalar(t, db.DB, "SELECT $1::pg_lsn::text", stored), "as the server writes it")
			require.LessOrEqual(t, pgNumber(t, db, "SELECT pg_wal_lsn_diff('"+stored+"', pg_current_wal_lsn())::bigint"), int64(0))
		})
	}
}

// Names follow SQL: what is quoted keeps its case, and a table of the same letters is another one.
func TestB132AQuotedNameIsAnotherTable(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		db.Exec(t, `CREATE TABLE "Outbox" (LIKE outbox INCLUDING ALL)`)
		db.Exec(t, `ALTER PUBLICATION outtail_orders ADD TABLE "Outbox"`)
		s := scene.New(t, &servers, db)
		for name, other := range map[string]string{`'public."Outbox"'`: "outbox", "public.OUTBOX": `"Outbox"`} {
			s.Configure("Source", s.Source("tables", "["+name+"]"))
			p := s.Start()
			for _, table := range []string{other, map[string]string{"outbox": `"Outbox"`, `"Outbox"`: "outbox"}[other]} {
				id := scene.NewUUID()
				db.Exec(t, `INSERT INTO `+table+` (id, aggregate_type, aggregate_id, event_type) VALUES ('`+id+`', 'order', 'order-1', 'order.changed')`)
				if table != other {
					s.Expect(id)
				}
			}
			s.Arrived(p)
			s.Stop(p)
			slotFree(t, db)
			db.Exec(t, `SELECT pg_drop_replication_slot('`+db.Slot()+`')`)
			require.NoError(t, os.RemoveAll(s.Outtail.DataDir))
		}
		s.Configure("Source", s.Source("tables", `['public."OUTBOX"']`))
		s.Stops(3, "OT2012", "OUTBOX", "folded to lower case unless they are in double quotes")
	})
}
