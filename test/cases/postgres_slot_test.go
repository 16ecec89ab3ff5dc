package cases

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

const pgPublication = `CREATE PUBLICATION outtail_orders FOR TABLE outbox WITH (publish = 'insert')`

func TestB053APublicationYoungerThanTheSlotStopsWithItsName(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		db.Exec(t, `DROP PUBLICATION outtail_orders`)
		db.Exec(t, `SELECT pg_create_logical_replication_slot('`+db.Slot()+`', 'pgoutput')`)
		lost := s.InsertUnseen(1, "order.changed")
		db.Exec(t, pgPublication)
		stderr := s.Stops(4, "OT2039", "outtail_orders")
		slotFree(t, db)
		db.Exec(t, `SELECT pg_drop_replication_slot('`+db.Slot()+`')`)
		s.TakeWay(stderr, "--to now")
		s.Prove()
		require.Zero(t, s.Times(lost[0]), "what the server does not send is not invented")
	})
}

func TestB055ASlotThatWasMadeAnewIsNoContinuation(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		s.Prove()
		s.InsertUnseen(4, "order.changed")
		slotFree(t, db)
		db.Exec(t, `SELECT pg_drop_replication_slot('`+db.Slot()+`')`)
		s.Stops(4, "OT2032", s.Stored().Source.LSN, "the position was saved at", " ago") // create: true makes none: a position is stored
		require.Equal(t, "", db.Server.Scalar(t, db.DB, `SELECT slot_name FROM pg_replication_slots WHERE slot_name = '`+db.Slot()+`'`))
		db.Exec(t, `SELECT pg_create_logical_replication_slot('`+db.Slot()+`', 'pgoutput')`)
		s.Insert(1)
		stderr := s.Stops(4, "OT2034", s.Stored().Source.LSN)
		s.TakeWay(stderr, "--code OT2034")
		p := s.Start()
		s.Arrived(p)
		s.Stop(p)
	})
}

func TestB056ASlotThatTheServerGaveUpEndsThePipelineAndIsToldBefore(t *testing.T) {
	small := harness.PostgresOptions{Settings: map[string]string{"max_slot_wal_keep_size": "256MB", "max_wal_size": "64MB", "min_wal_size": "32MB"}}
	onOwnPostgres(t, small, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		s.Insert(1)
		s.Arrived(p)
		// A transaction that stays open holds the slot: the limit comes near while outtail streams.
		hold, err := db.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Exec(t.Context(), "INSERT INTO orders VALUES ('held', '')"))
		log := func() {
			db.Exec(t, `INSERT INTO orders SELECT i::text, repeat('x', 1000) FROM generate_series(1, 20000) i`)
			db.Exec(t, `CHECKPOINT`)
		}
		slot := func(what string) string {
			return db.Server.Scalar(t, db.DB, "SELECT "+what+" FROM pg_replication_slots WHERE slot_name = $1", db.Slot())
		}
		for i := 0; slot("safe_wal_size < pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) / 3.2") != "true"; i++ {
			require.Less(t, i, 50)
			log()
		}
		p.Until(t, "the limit to be told before it is reached", func() bool { return strings.Contains(p.Stderr(), "OT2044") })
		require.NotEqual(t, "lost", slot("wal_status"))
		require.NoError(t, hold.Rollback(t.Context()))
		r := p.Terminate(t)
		require.Equal(t, 0, r.Code)

		slotFree(t, db)
		for i := 0; slot("wal_status") != "lost"; i++ {
			require.Less(t, i, 200)
			log()
		}
		stderr := s.Stops(4, "OT2033", db.Slot())
		db.Exec(t, `SELECT pg_drop_replication_slot('`+db.Slot()+`')`)
		s.TakeWay(stderr, "--to now")
		s.Prove()

		// While it is read, and nothing of it can be sent: the server ends the session, and the next one finds why.
		s.Configure("Topic", "missing-"+harness.Unique())
		p = s.Outtail.Start(t)
		s.InsertUnseen(1, "order.changed")
		s.Says(p, "OT5004")
		for i := 0; p.Running(); i++ {
			require.Less(t, i, 200)
			log()
		}
		r = p.Wait(t)
		require.Equal(t, 4, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "OT2033")
	})
}

func TestB058TheSecondOfTwoWaitsAndTakesOver(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		first := s.Start()
		s.Insert(1)
		s.Arrived(first)
		session := db.Session(t)

		other := harness.NewOuttail(t, servers.Binary(t), scene.Configuration, s.Vars)
		second := other.Start(t)
		second.Until(t, "a second outtail that waits", func() bool { return strings.Contains(second.Stderr(), "OT2051") })
		s.Insert(3)
		s.Arrived(first)
		require.Equal(t, session, db.Session(t), "nobody ended the first one's session")
		require.Equal(t, float64(0), other.Metric(t, "outtail_messages_sent_total"), "never two publishers")

		first.Kill(t)
		s.Insert(2)
		s.Arrived(second)
		require.Equal(t, 0, second.Terminate(t).Code)
	})
}

// The first is frozen: the server gives its session up after wal_sender_timeout, and the second goes on. Thawed, the first finds that
// somebody else has advanced the slot, and ends.
func TestB058AFrozenFirstGivesWayForGood(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		db.Exec(t, `ALTER DATABASE `+db.DB+` SET wal_sender_timeout = '2s'`)
		s := scene.New(t, &servers, db)
		first := s.Start()
		s.Insert(2)
		s.Arrived(first)
		other := harness.NewOuttail(t, servers.Binary(t), scene.Configuration, s.Vars)
		second := other.Start(t)
		second.Until(t, "a second outtail that waits", func() bool { return strings.Contains(second.Stderr(), "OT2051") })
		sent := pgNumber(t, db, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
		first.Until(t, "the slot behind what was sent, so that nothing of it is sent again", func() bool { return slotLSN(t, db, "confirmed_flush_lsn") >= sent })
		first.Freeze(t)
		s.Insert(3)
		s.Arrived(second)
		session, end := db.Session(t), pgNumber(t, db, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
		second.Until(t, "the slot to be advanced", func() bool { return slotLSN(t, db, "confirmed_flush_lsn") >= end })
		first.Signal(t, syscall.SIGCONT)
		r := first.Wait(t)
		require.Equal(t, 4, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "OT2034")
		s.Insert(3)
		s.Arrived(second)
		require.Len(t, s.Seen, len(s.Sent), "never two publishers")
		require.Equal(t, session, db.Session(t), "nobody ended the second one's session")
		require.Equal(t, 0, second.Terminate(t).Code)
	})
}

func TestB061APartitionedOutboxHasOneNameWhateverThePublicationSends(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		for _, root := range []bool{true, false} {
			t.Run(fmt.Sprintf("root %v", root), func(t *testing.T) {
				db := shop.NewPostgres(t, db.Server, nil)
				db.Exec(t, `DROP PUBLICATION outtail_orders`)
				db.Exec(t, `DROP TABLE outbox`)
				db.Exec(t, `CREATE TABLE outbox (id uuid, aggregate_type text, aggregate_id text, event_type text, payload jsonb, headers jsonb, occurred_at timestamptz NOT NULL) PARTITION BY RANGE (occurred_at)`)
				db.Exec(t, `CREATE TABLE outbox_jan PARTITION OF outbox FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')`)
				db.Exec(t, `CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT`)
				db.Exec(t, fmt.Sprintf(`CREATE PUBLICATION outtail_orders FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = %v)`, root))
				s := scene.New(t, &servers, db)
				p := s.Start()
				insert := func(at string) {
					id := scene.NewUUID()
					db.Exec(t, `INSERT INTO outbox VALUES ('`+id+`', 'order', 'order-1', 'order.changed', '{}', NULL, '`+at+`')`)
					s.Expect(id)
				}
				insert("2026-01-05")
				insert("2030-01-01")
				s.Arrived(p)
				db.Exec(t, `CREATE TABLE outbox_feb PARTITION OF outbox FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')`)
				insert("2026-02-05")
				s.Arrived(p)
				db.Exec(t, `ALTER TABLE outbox DETACH PARTITION outbox_jan`)
				db.Exec(t, `DROP TABLE outbox_jan`)
				insert("2026-02-06")
				s.Arrived(p)
				s.Stop(p)
				insert("2026-02-07")
				p = s.Start()
				s.Arrived(p)
				s.Stop(p)
			})
		}
	})
}

func TestB063PreparedTransactionsArriveWhenAndWhereTheyCommit(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		ids := pgIDs(3)
		gid := "g_" + db.DB
		t.Cleanup(func() { // a prepared transaction outlives everything, and a database cannot go with one
			for _, g := range strings.Fields(db.Server.Scalar(t, db.DB, "SELECT coalesce(string_agg(gid, ' '), '') FROM pg_prepared_xacts WHERE database = current_database()")) {
				db.Exec(t, `ROLLBACK PREPARED '`+g+`'`)
			}
		})
		prepare := func(id, name string) {
			db.Exec(t, `BEGIN; `+pgEvent(id, `'{}'`)+`; PREPARE TRANSACTION '`+name+`'`)
		}
		prepare(ids[0], gid+"1")
		prepare(ids[1], gid+"2")
		s.Insert(1000)
		s.Arrived(p)
		db.Exec(t, `ROLLBACK PREPARED '`+gid+`2'`)
		db.Exec(t, `COMMIT PREPARED '`+gid+`1'`)
		s.Expect(ids[0])
		s.Insert(1)
		s.Arrived(p)
		// Prepared before a restart, committed after it.
		prepare(ids[2], gid+"3")
		s.Insert(1)
		s.Arrived(p)
		s.Stop(p)
		p = s.Start()
		db.Exec(t, `COMMIT PREPARED '`+gid+`3'`)
		s.Expect(ids[2])
		s.Arrived(p)
		s.Stop(p)

		// A slot that sends them early is not read.
		slotFree(t, db)
		db.Exec(t, `SELECT pg_drop_replication_slot('`+db.Slot()+`')`)
		db.Exec(t, `SELECT pg_create_logical_replication_slot('`+db.Slot()+`', 'pgoutput', false, true)`)
		s.Stops(3, "OT2045", "two_phase")
	})
}

func TestB064EveryWayToInsertIsAnEventAndNothingElseIs(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		for _, publish := range []string{"insert", "insert, update, delete, truncate"} {
			t.Run(publish, func(t *testing.T) {
				db := shop.NewPostgres(t, db.Server, nil)
				db.Exec(t, `ALTER PUBLICATION outtail_orders SET (publish = '`+publish+`')`)
				db.Exec(t, `CREATE FUNCTION emit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type) VALUES (NEW.id::uuid, 'order', 'order-1', 'order.changed'); RETURN NEW; END $$`)
				db.Exec(t, `CREATE TABLE triggered (id text)`)
				db.Exec(t, `CREATE TRIGGER t AFTER INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION emit()`)
				s := scene.New(t, &servers, db)
				p := s.Start()
				ids := pgIDs(9)
				row := func(id string) string { return `('` + id + `', 'order', 'order-1', 'order.changed')` }
				columns := `outbox (id, aggregate_type, aggregate_id, event_type)`
				upsert := func(id string) string {
					return `INSERT INTO ` + columns + ` VALUES ` + row(id) + ` ON CONFLICT (id) DO UPDATE SET event_type = 'updated'`
				}
				db.Exec(t, upsert(ids[0]))
				db.Exec(t, upsert(ids[0])) // an update
				db.Exec(t, `BEGIN; `+pgEvent(ids[1], `'{}'`)+`; DELETE FROM outbox WHERE id = '`+ids[1]+`'; COMMIT`)
				db.Exec(t, `COPY `+columns+` FROM PROGRAM 'echo "`+ids[2]+`,order,order-1,order.changed"' WITH (FORMAT csv)`)
				merge := `MERGE INTO outbox o USING (VALUES ` + row(ids[3]) + `) v (id, a, b, c) ON o.id = v.id::uuid WHEN NOT MATCHED THEN INSERT (id, aggregate_type, aggregate_id, event_type) VALUES (v.id::uuid, a, b, c)`
				if db.Server.Major() < 15 { // without MERGE: what it was written as
					merge = `INSERT INTO ` + columns + ` SELECT v.id::uuid, a, b, c FROM (VALUES ` + row(ids[3]) + `) v (id, a, b, c) WHERE NOT EXISTS (SELECT FROM outbox o WHERE o.id = v.id::uuid)`
				}
				db.Exec(t, merge)
				db.Exec(t, `INSERT INTO `+columns+` SELECT v.id::uuid, a, b, c FROM (VALUES `+row(ids[4])+`) v (id, a, b, c)`)
				db.Exec(t, `WITH x AS (INSERT INTO `+columns+` VALUES `+row(ids[5])+` RETURNING id) SELECT * FROM x`)
				db.Exec(t, `INSERT INTO triggered VALUES ('`+ids[6]+`')`)
				db.Exec(t, `SELECT pg_replication_origin_create('o_`+db.DB+`'), pg_replication_origin_session_setup('o_`+db.DB+`'); `+pgEvent(ids[7], `'{}'`))
				db.Exec(t, `UPDATE outbox SET payload = '{"processed": true}'`)
				db.Exec(t, `DELETE FROM outbox WHERE id = '`+ids[0]+`'`)
				db.Exec(t, `TRUNCATE outbox`)
				db.Exec(t, `BEGIN; TRUNCATE outbox; COPY `+columns+` FROM PROGRAM 'echo "`+ids[8]+`,order,order-1,order.changed"' WITH (FORMAT csv, FREEZE); COMMIT`)
				s.Expect(ids...)
				s.Arrived(p)
				for _, id := range ids {
					require.Equal(t, 1, s.Times(id), "once, and no other state of it")
				}
				s.Stop(p)
				db.Exec(t, `SELECT pg_replication_origin_drop('o_`+db.DB+`')`)
			})
		}
	})
}

// What is in no log cannot be sent: the start says so.
func TestB064AnUnloggedOutboxIsRefused(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		db.Exec(t, `DROP PUBLICATION outtail_orders`) // which takes no such table
		db.Exec(t, `ALTER TABLE outbox SET UNLOGGED`)
		s.Stops(3, "public.outbox", "unlogged", "SET LOGGED")
		db.Exec(t, `ALTER TABLE outbox SET LOGGED`)
		db.Exec(t, pgPublication)
		s.Prove()
	})
}

func TestB067WhatWasRolledBackToASavepointNeverArrives(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		// Beyond this much a server spills, or streams what is in progress where a client asks for it.
		db.Exec(t, `ALTER DATABASE `+db.DB+` SET logical_decoding_work_mem = '64kB'`)
		s := scene.New(t, &servers, db)
		p := s.Start()
		ids := pgIDs(1505)
		rows := func(ids []string) string {
			return `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
				SELECT i::uuid, 'order', 'order-1', 'order.changed', to_jsonb(repeat('x', 500)) FROM unnest(ARRAY[` + quoted(ids) + `]) i`
		}
		db.Exec(t, strings.Join([]string{"BEGIN", rows(ids[:400]), "SAVEPOINT a", rows(pgIDs(400)), "ROLLBACK TO a", rows(ids[400:405]), "COMMIT"}, ";"))
		// Ten thousand subtransactions, of which one in twenty is kept.
		db.Exec(t, `DO $$ DECLARE id uuid; BEGIN FOREACH id IN ARRAY ARRAY[`+quoted(ids[405:905])+`]::uuid[] LOOP
			FOR i IN 1..20 LOOP BEGIN
				INSERT INTO outbox VALUES (CASE i WHEN 10 THEN id ELSE gen_random_uuid() END, 'order', 'order-1', 'order.changed', '{}');
				IF i <> 10 THEN RAISE division_by_zero; END IF;
			EXCEPTION WHEN division_by_zero THEN END; END LOOP;
			END LOOP; END $$`)
		s.Expect(ids[:905]...)
		s.Arrived(p)
		// Two large transactions between each other; the one that commits first comes first, one is rolled back.
		var txs []shop.Tx
		for range 3 {
			tx, err := db.Begin(t.Context())
			require.NoError(t, err)
			txs = append(txs, tx)
		}
		for i := range 10 {
			for k, tx := range txs {
				part := pgIDs(30)
				if k < 2 {
					part = ids[905+300*k+30*i:][:30]
				}
				require.NoError(t, tx.Exec(t.Context(), rows(part)))
			}
		}
		require.NoError(t, txs[2].Rollback(t.Context()))
		require.NoError(t, txs[1].Commit(t.Context()))
		require.NoError(t, txs[0].Commit(t.Context()))
		s.Expect(ids[1205:]...)
		s.Expect(ids[905:1205]...)
		s.Arrived(p)
		s.Stop(p)
	})
}
