package cases

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// insertSQL is an insert of one event with a literal id and payload.
func insertSQL(id, payload string) string {
	return "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('" + id + "', 'order', 'order-1', 'order.changed', '" + payload + "')"
}

// insertsAndIDs makes n such inserts.
func insertsAndIDs(n int) (inserts, ids []string) {
	for range n {
		id := scene.NewUUID()
		inserts, ids = append(inserts, insertSQL(id, `{"n": 1}`)), append(ids, id)
	}
	return inserts, ids
}

// numbered is the id of row i of bigInsert.
func numbered(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// bigInsert is one statement that inserts rows from to to, each with a payload of at least size bytes.
func bigInsert(db *shop.MySQL, from, to, size int) string {
	series := fmt.Sprintf("(WITH RECURSIVE n (seq) AS (SELECT %d UNION ALL SELECT seq + 1 FROM n WHERE seq < %d) SELECT seq FROM n) AS s", from, to)
	if db.Kind() == "mariadb" {
		series = fmt.Sprintf("seq_%d_to_%d AS s", from, to)
	}
	return "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) SELECT CONCAT('00000000-0000-4000-8000-', LPAD(seq, 12, '0')), " +
		fmt.Sprintf("'order', 'order-1', 'order.changed', CONCAT('{\"n\": ', seq, ', \"x\": \"', REPEAT('x', %d), '\"}') FROM %s ORDER BY seq", size, series)
}

// deep lets a session of MySQL recurse as far as bigInsert does.
func deep(db *shop.MySQL) string {
	if db.Kind() == "mariadb" {
		return "DO 0"
	}
	return "SET SESSION cte_max_recursion_depth = 10000000"
}

// requireBoundary checks that what begins at the stored position is a group or the end of a file, never the middle of a transaction.
func requireBoundary(t *testing.T, s *scene.Scene, db *shop.MySQL) {
	at := s.Stored().Source
	if kind := eventAt(t, db, at.File, at.Pos); kind != "" {
		require.Contains(t, []string{"Gtid", "Gtid_tagged_log_event", "Gtid_tagged", "Anonymous_Gtid", "Rotate", "Stop", "Binlog_checkpoint", "Gtid_list", "Previous_gtids"}, kind,
			"a position is a point between transactions (%s:%d)", at.File, at.Pos)
	}
}

// eventAt is the type of the event that begins at a position; "" is the end of the log.
func eventAt(t *testing.T, db *shop.MySQL, file string, pos uint64) (kind string) {
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	rows, err := db.Server.DB.QueryContext(ctx, fmt.Sprintf("SHOW BINLOG EVENTS IN '%s' FROM %d LIMIT 1", file, pos))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name, info string
		var at, id, end uint64
		require.NoError(t, rows.Scan(&name, &at, &kind, &id, &end, &info))
	}
	require.NoError(t, rows.Err())
	return kind
}

// requireRun checks a topic that holds one aggregate's events: first appearances in order, and every repeat a contiguous re-run (I3).
func requireRun(t *testing.T, s *scene.Scene, ids []string, kills int) {
	committed := make([]harness.Committed, len(ids))
	rows := s.DB.Payloads(t)
	for i, id := range ids {
		committed[i] = harness.Committed{ID: id, Topic: s.Topic, Key: "order-1", Digest: harness.Digest(rows[id])}
	}
	report := harness.Check(committed, harness.FromKafka(s.Kafka.Records(t, s.Topic)), kills)
	t.Log(report)
	require.NoError(t, report.Err())
}

// One statement of 10,000 rows is one table map and thousands of row events, each with a position of its own. Killed again
// and again inside of it, outtail stores boundaries only, and what was acked of the transaction apart.
func TestB014ThePositionIsABoundaryWhateverTheTransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		const rows = 10_000
		s := scene.New(t, &servers, db)
		p := s.Start()
		requireBoundary(t, s, db)
		p.Kill(t)
		db.Exec(t, deep(db)+";"+bigInsert(db, 1, rows, 2000))
		kills := 0
		for ; kills < 5 && s.Stored().Events < rows; kills++ {
			p = s.Outtail.Start(t)
			// Each life lasts until it has saved progress: a test that kills by the clock never ends on a slow machine.
			before := s.Stored()
			p.Until(t, "progress", func() bool { return s.Stored().Events > before.Events })
			p.Kill(t)
			requireBoundary(t, s, db)
		}
		p = s.Outtail.Start(t)
		p.Until(t, "all of the transaction", func() bool { return s.Stored().Events == rows })
		s.Stop(p)
		requireBoundary(t, s, db)
		require.Nil(t, s.Stored().Prefix)
		ids := make([]string, rows)
		for i := range ids {
			ids[i] = numbered(i + 1)
		}
		requireRun(t, s, ids, kills)
	})
}

// Who began first, with the lower number, may commit last: events leave in the order of the commits, whatever lies between.
func TestB076EventsLeaveInTheOrderOfCommits(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		db.Exec(t, "ALTER TABLE outbox ADD COLUMN nr BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE")
		s := scene.New(t, &servers, db)
		p := s.Start()
		begin := func(n int) (commit func()) {
			tx, err := db.Begin(t.Context())
			require.NoError(t, err)
			var ids []string
			for range n {
				ids = append(ids, scene.NewUUID())
				require.NoError(t, tx.Exec(t.Context(), scene.InsertEvent, ids[len(ids)-1], "order.changed", "{}"))
			}
			return func() {
				require.NoError(t, tx.Commit(t.Context()))
				s.Expect(ids...)
			}
		}
		for range 5 {
			first, second := begin(2), begin(1)
			second()
			s.Insert(1)
			s.Arrived(p) // what committed is not held back by the one that is open
			third := begin(1)
			first()
			third()
		}
		s.Arrived(p)
		s.Stop(p)
	})
}

// Three writers, of which one compresses its transactions: its events are those of the others.
func TestB016CompressedTransactionsAreReadLikeOthers(t *testing.T) {
	onMySQL(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		p := s.Start()
		compressed := func() int {
			n, err := strconv.Atoi(db.Server.Scalar(t, "", "SELECT SUM(TRANSACTION_COUNTER) FROM performance_schema.binary_log_transaction_compression_stats WHERE LOG_TYPE = 'BINARY' AND COMPRESSION_TYPE = 'ZSTD'"))
			return map[bool]int{true: n, false: 0}[err == nil]
		}
		before := compressed()
		written := map[int][]string{}
		var wg sync.WaitGroup
		var mu sync.Mutex
		for w := range 3 {
			wg.Go(func() { // ends with its transactions
				for range 10 {
					inserts, ids := insertsAndIDs(3)
					set := "SET SESSION binlog_transaction_compression = OFF"
					if w == 0 {
						set = "SET SESSION binlog_transaction_compression = ON"
					}
					gone, _ := insertsAndIDs(1)
					db.Exec(t, strings.Join(append([]string{set, "BEGIN", gone[0], "ROLLBACK", "BEGIN", "INSERT INTO orders VALUES ('1', 'between')"}, append(inserts, "COMMIT")...), ";"))
					mu.Lock()
					written[w] = append(written[w], ids...)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.GreaterOrEqual(t, compressed()-before, 10, "the server did compress")
		p.Until(t, "90 events", func() bool { return s.Stored().Events == 90 })
		s.Stop(p)
		var seen []string
		for _, r := range s.Kafka.Records(t, s.Topic) {
			seen = append(seen, scene.Header(r, "id"))
		}
		require.Len(t, seen, 90)
		for w, ids := range written {
			var of []string
			for _, id := range seen {
				for _, mine := range ids {
					if id == mine {
						of = append(of, id)
					}
				}
			}
			require.Equal(t, ids, of, "writer %d", w)
		}
		requireBoundary(t, s, db)
	})
}

// log_bin_compress changes the types of the events, not what they say.
func TestB018CompressedEventsAreReadLikeOthers(t *testing.T) {
	t.Parallel()
	server := harness.StartMySQL(t, harness.MySQLOptions{MariaDB: true, Flags: []string{"--log-bin-compress=1", "--log-bin-compress-min-len=10"}})
	db := shop.NewMySQL(t, server, "mariadb", nil)
	s := scene.New(t, &servers, db)
	p := s.Start()
	long, short, after := scene.NewUUID(), scene.NewUUID(), scene.NewUUID()
	text := strings.Repeat(`three thousand bytes and some `, 100)
	db.Exec(t, insertSQL(long, `{"text": "`+text+`"}`))
	db.Exec(t, insertSQL(short, `"abc"`))
	db.Exec(t, "ALTER TABLE outbox ADD COLUMN more VARCHAR(20) DEFAULT 'x'")
	db.Exec(t, "UPDATE outbox SET more = 'yyyyyyyyyyyyyyyyyyyy'; DELETE FROM outbox WHERE id = '"+short+"'")
	db.Exec(t, insertSQL(after, `{"text": "`+text+`"}`))
	s.Expect(long, short, after)
	s.Arrived(p)
	require.Equal(t, `{"text": "`+text+`"}`, string(s.Seen[0].Value))
	require.Equal(t, `"abc"`, string(s.Seen[1].Value))
	s.Stop(p)
	s.Prove()
}

// A session that logs less than whole rows: what is there is sent, and what is not is never taken for NULL.
func TestB019AColumnThatTheLogLeavesOutStops(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		db.Exec(t, "ALTER TABLE outbox MODIFY event_type VARCHAR(255) NOT NULL DEFAULT 'order.defaulted'")
		p := s.Start()
		id := scene.NewUUID()
		all := "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers, occurred_at) VALUES ('" + id + "', 'order', 'order-1', 'order.changed', '1', NULL, NOW(6))"
		db.Exec(t, "SET SESSION binlog_row_image = MINIMAL; "+all)
		s.Expect(id)
		s.Arrived(p)
		db.Exec(t, "SET SESSION binlog_row_image = MINIMAL; INSERT INTO outbox (id, aggregate_type, aggregate_id) VALUES ('"+scene.NewUUID()+"', 'order', 'order-1')")
		db.Exec(t, insertSQL(scene.NewUUID(), "2"))
		r := p.Wait(t)
		require.Equal(t, 4, r.Code, r.Stderr)
		for _, say := range []string{"OT3030", "event_type", "binlog_row_image", s.Stored().Source.File} {
			require.Contains(t, r.Stderr, say)
		}
		require.Len(t, s.Kafka.Records(t, s.Topic), 1, "nothing behind it")
		stderr := s.Stops(4, "OT3030") // a restart by itself decides nothing
		s.TakeWay(stderr, "--code OT3030")
		p = s.Start()
		s.Insert(1)
		p.Until(t, "what follows", func() bool { return s.Kafka.Count(t, s.Topic) == 3 })
		s.Stop(p)
	})
}

// DML that was logged as a statement has no rows to read: one that adds to the outbox stops with its place and advice, and both
// ways out work. Statements on other tables, and cleaning up, are nothing.
func TestB021AStatementThatAddsToTheOutboxStops(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		p := s.Start()
		s.Insert(1)
		db.Exec(t, "SET SESSION binlog_format = 'STATEMENT'; INSERT INTO orders VALUES ('1', 'insert into outbox'); UPDATE orders SET note = 'x'; DELETE FROM orders;"+
			"DELETE FROM outbox WHERE id = 'none'; UPDATE outbox SET headers = NULL WHERE id = 'none'")
		s.Insert(1)
		s.Arrived(p)
		db.Exec(t, "SET SESSION binlog_format = 'STATEMENT'; USE mysql; /*x*/ "+strings.Replace(insertSQL(scene.NewUUID(), "1"), "INTO outbox", "into `"+db.DB+"`.`outbox`", 1))
		s.InsertUnseen(1, "order.changed")
		r := p.Wait(t)
		require.Equal(t, 4, r.Code, r.Stderr)
		for _, say := range []string{"OT3028", "binlog_format", db.DB + ".outbox", s.Stored().Source.File + ":"} {
			require.Contains(t, r.Stderr, say)
		}
		require.Len(t, s.Kafka.Records(t, s.Topic), 2, "nothing behind it")
		stderr := s.Stops(4, "OT3028")
		s.TakeWay(stderr, "--code OT3028")
		p = s.Start()
		p.Until(t, "what follows the statement", func() bool { return s.Kafka.Count(t, s.Topic) == 3 })

		db.Exec(t, "SET SESSION binlog_format = 'STATEMENT'; "+strings.Replace(insertSQL(scene.NewUUID(), "1"), "INSERT", "REPLACE", 1))
		require.Equal(t, 4, p.Wait(t).Code)
		s.TakeWay(s.Stops(4, "OT3028"), "--to now")
		p = s.Start()
		s.InsertUnseen(1, "order.changed")
		p.Until(t, "events flow again", func() bool { return s.Kafka.Count(t, s.Topic) == 4 })
		s.Stop(p)
	})
}

// REPLACE and ON DUPLICATE KEY UPDATE that meet an existing row are updates, and an update is no event: said, counted, or a stop,
// as on_update has it.
func TestB026AnUpdateIsNoEventAndIsCounted(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		p := s.Start()
		filtered := func(reason string) int {
			return int(s.Outtail.Metric(t, "outtail_events_filtered_total", `reason="`+reason+`"`))
		}
		first, second, replaced, unique := scene.NewUUID(), scene.NewUUID(), scene.NewUUID(), scene.NewUUID()
		replace := func(id, payload string) string {
			return strings.Replace(insertSQL(id, payload), "INSERT", "REPLACE", 1)
		}
		db.Exec(t, insertSQL(first, "1"))
		db.Exec(t, replace(first, "2"))                                             // one key: an update
		db.Exec(t, insertSQL(first, "3")+" ON DUPLICATE KEY UPDATE payload = '3'")  // hits
		db.Exec(t, insertSQL(second, "1")+" ON DUPLICATE KEY UPDATE payload = '4'") // does not
		db.Exec(t, strings.Replace(insertSQL(first, "5"), "INSERT", "INSERT IGNORE", 1))
		db.Exec(t, "UPDATE outbox SET payload = '6'")
		db.Exec(t, "ALTER TABLE outbox ADD COLUMN nr INT UNIQUE")
		withNr := func(q, nr string) string {
			return strings.Replace(strings.Replace(q, "(id,", "(nr, id,", 1), "VALUES (", "VALUES ("+nr+", ", 1)
		}
		db.Exec(t, withNr(insertSQL(unique, "1"), "7"))
		db.Exec(t, withNr(replace(replaced, "1"), "7")) // meets another key's row: a row goes and another comes, or it is updated
		last := scene.NewUUID()
		db.Exec(t, insertSQL(last, "1"))
		want := []string{first, second, unique}
		p.Until(t, "the last event", func() bool {
			for _, r := range s.Kafka.Records(t, s.Topic) {
				if scene.Header(r, "id") == last {
					return true
				}
			}
			return false
		})
		records := s.Kafka.Records(t, s.Topic)
		var seen []string
		for _, r := range records {
			seen = append(seen, scene.Header(r, "id"))
		}
		if filtered("deleted") == 1 {
			want = append(want, replaced)
			require.Equal(t, 4, filtered("updated"))
		} else {
			require.Equal(t, 5, filtered("updated"))
		}
		require.Equal(t, append(want, last), seen)
		require.Equal(t, "1", string(records[0].Value))
		require.Contains(t, p.Stderr(), "on_update")
		db.Exec(t, "DELETE FROM outbox WHERE id = '"+last+"'")
		s.Stop(p)

		s.Configure("Source", db.Source(", on_update: halt"))
		p = s.Start()
		db.Exec(t, "UPDATE outbox SET payload = '7' WHERE id = '"+first+"'")
		r := p.Wait(t)
		require.Equal(t, 4, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "OT3031")
		s.Configure("Source", db.Source(", on_update: ignore"))
		p = s.Start()
		behind := scene.NewUUID()
		db.Exec(t, insertSQL(behind, "1"))
		p.Until(t, "what follows", func() bool { return int(s.Kafka.Count(t, s.Topic)) == len(seen)+1 })
		require.NotContains(t, p.Stderr(), "on_update")
		s.Stop(p)
	})
}

// A transaction of 50,000 rows, the process killed at a tenth, the half and almost the end, and the server's dump thread twice while
// it sends: all rows arrive, in order, and no stored GTID set is ahead of what was acked.
func TestB036TheStoredSetIsNeverAheadOfTheAcks(t *testing.T) {
	onBoth(t, func(t *testing.T, shared *shop.MySQL) {
		t.Parallel()
		const rows = 50_000
		via := harness.NewProxy(t, shared.Server.Addr())
		db := shop.NewMySQL(t, shared.Server, shared.Kind(), via)
		s := scene.New(t, &servers, db)
		p := s.Start()
		before := s.Stored().Source.GTID
		require.NotEmpty(t, before)

		// Stalled, the dump thread fills the buffers between and stands inside of the transaction.
		via.Stall()
		db.Exec(t, deep(db)+";"+bigInsert(db, 1, rows, 400))
		for range 2 {
			if session := db.Session(t); session != "" {
				db.Exec(t, "KILL "+strings.Split(session, ",")[0])
			}
			via.Resume(t)
			var next string
			p.Until(t, "a new dump", func() bool { next = db.Session(t); return next != "" || s.Stored().Events == rows })
			via.Stall()
		}
		via.Resume(t)
		kills := 2
		for _, at := range []uint64{rows / 10, rows / 2, rows * 99 / 100} {
			p.Until(t, fmt.Sprintf("%d events", at), func() bool { return s.Stored().Events >= at })
			p.Kill(t)
			kills++
			stored := s.Stored()
			if stored.Events < rows {
				require.NotContains(t, lastGTIDs(db, stored.Source.GTID), transactionOf(stored), "the set has no transaction with rows that were not acked")
			}
			require.LessOrEqual(t, int64(stored.Events), s.Kafka.Count(t, s.Topic))
			requireBoundary(t, s, db)
			p = s.Outtail.Start(t)
		}
		p.Until(t, "all rows", func() bool { return s.Stored().Events == rows })
		p.WaitReady(t) // one that has only just been started does not take a signal yet
		s.Stop(p)
		ids := make([]string, rows)
		for i := range ids {
			ids[i] = numbered(i + 1)
		}
		requireRun(t, s, ids, kills)
	})
}

// transactionOf names the transaction that a stored prefix counts, or none.
func transactionOf(e scene.Entry) string {
	if e.Prefix == nil {
		return "no transaction is open"
	}
	return e.Prefix.Tx
}

// lastGTIDs writes the ends of a set's intervals out as single GTIDs, as a transaction is named.
func lastGTIDs(db *shop.MySQL, set string) []string {
	if db.Kind() == "mariadb" {
		return strings.Split(set, ",")
	}
	var out []string
	for _, part := range strings.Split(set, ",") {
		sid, intervals, _ := strings.Cut(part, ":")
		for _, i := range strings.Split(intervals, ":") {
			_, end, ok := strings.Cut(i, "-")
			if !ok {
				end = i
			}
			out = append(out, sid+":"+end)
		}
	}
	return out
}
