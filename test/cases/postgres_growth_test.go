package cases

import (
	"crypto/md5"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

func TestB068TheSlotFollowsUnderAQuietOutbox(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		other := shop.NewPostgres(t, db.Server, nil)
		s := scene.New(t, &servers, db)
		p := s.Start()
		for what, busy := range map[string]func(){
			"another table": func() {
				db.Exec(t, `INSERT INTO orders SELECT i::text, repeat('x', 500) FROM generate_series(1, 500) i`)
			},
			"another database": func() {
				other.Exec(t, `INSERT INTO orders SELECT i::text, repeat('x', 500) FROM generate_series(1, 500) i`)
			},
			"checkpoints": func() { db.Exec(t, `CHECKPOINT`); db.Exec(t, `SELECT pg_switch_wal()`) },
		} {
			confirmed, restart := slotLSN(t, db, "confirmed_flush_lsn"), slotLSN(t, db, "restart_lsn")
			busy()
			end := pgNumber(t, db, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
			require.Greater(t, end, confirmed)
			p.Until(t, "the confirmed position to follow "+what, func() bool { return slotLSN(t, db, "confirmed_flush_lsn") >= end })
			// restart_lsn follows with the next record of running transactions, which the server writes every 15 s.
			p.Until(t, "the kept log to follow "+what, func() bool {
				db.Exec(t, `INSERT INTO orders VALUES ('tick', '')`)
				db.Exec(t, `CHECKPOINT`)
				return slotLSN(t, db, "restart_lsn") > restart
			})
		}
		s.Stop(p)
	})
}

func TestB071AnOldTransactionHoldsTheLogAndNothingElse(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		old, err := db.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, old.Exec(t.Context(), "INSERT INTO orders VALUES ('old', '')"))
		restart := slotLSN(t, db, "restart_lsn")
		s.Insert(500)
		s.Insert(500)
		s.Arrived(p)
		end := pgNumber(t, db, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
		p.Until(t, "the confirmed position to go on", func() bool { return slotLSN(t, db, "confirmed_flush_lsn") >= end })
		kept := end - restart
		p.Until(t, "the kept log to be told apart from our lag", func() bool {
			return s.Outtail.Metric(t, "outtail_source_retained_bytes") >= float64(kept)/2 && s.Outtail.Metric(t, "outtail_source_lag_bytes") < float64(kept)/2
		})
		s.Stop(p)
		p = s.Start() // reads again from restart_lsn on, sends nothing again
		s.Insert(1)
		s.Arrived(p)
		require.Len(t, s.Seen, len(s.Sent), "no burst of repetitions")
		require.NoError(t, old.Commit(t.Context()))
		s.Stop(p)
	})
}

// Behind a broker that does not answer, buffers are read into again and again while events wait: each keeps its own payload (B050).
func TestB050B072TheSessionLivesWhileTheBrokerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	kafka := harness.StartKafka(t, harness.KafkaOptions{})
	for _, version := range harness.PostgresVersions() {
		t.Run("postgres"+version, func(t *testing.T) {
			server := servers.Postgres(t, version)
			via := harness.NewProxy(t, server.Addr())
			db := shop.NewPostgres(t, server, via)
			db.Exec(t, `ALTER DATABASE `+db.DB+` SET wal_sender_timeout = '2s'`)
			s := scene.New(t, &servers, db)
			s.UseKafka(kafka)
			s.UseTopic(kafka.NewTopic(t, 1))
			s.Configure("Brokers", strings.Join(kafka.Brokers(), ", "))
			p := s.Start()
			s.Insert(1)
			s.Arrived(p)
			session := db.Session(t)
			require.NotEmpty(t, session)
			kafka.Pause(t)
			// More than windows and sockets hold, so that nobody reads.
			ids := pgIDs(40000)
			db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload)
				SELECT i::uuid, 'order', 'order-1', 'order.changed', to_jsonb(repeat(md5(i), 1 + ascii(substr(md5(i), 1, 1)) % 64)) FROM unnest(ARRAY[`+quoted(ids)+`]) i`)
			s.Expect(ids...)
			now := "SELECT extract(epoch FROM clock_timestamp())::bigint"
			began := pgNumber(t, db, now)
			p.Until(t, "longer than the sender's timeout", func() bool { return pgNumber(t, db, now) > began+6 })
			require.Equal(t, session, db.Session(t), "the session was never lost")
			// A slot that nobody reads may be given up by the server (18's idle_replication_slot_timeout): the end of the session is found
			// although nobody reads, and there is a new one before there is a broker.
			ends := []func(){via.Cut}
			if version == harness.NewestPostgres() {
				ends = append(ends, via.Orphan) // one that the network hides is found by what the catalogs say, which takes its time
			}
			for _, end := range ends {
				end()
				p.Until(t, "another session", func() bool { pid := db.Session(t); return pid != "" && pid != session })
				session = db.Session(t)
			}
			kafka.Unpause(t)
			s.Arrived(p)
			require.LessOrEqual(t, p.PeakRSS(t), int64(400<<20))
			for _, r := range s.Seen[1:] {
				sum := fmt.Sprintf("%x", md5.Sum([]byte(scene.Header(r, "id"))))
				require.Equal(t, `"`+strings.Repeat(sum, 1+int(sum[0])%64)+`"`, string(r.Value))
			}
			s.Stop(p)
		})
	}
}

func TestB075AStoppedPipelineKeepsItsSlotAndDoctorTellsWhatItCosts(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		s.Prove()
		slotFree(t, db)
		r := s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
		require.Contains(t, r.Stdout, "the slot "+db.Slot()+" exists and nobody reads it")
		require.Contains(t, r.Stdout, "the slot keeps")
		p := s.Start()
		require.Contains(t, p.Stderr(), "retained_bytes=", "a start tells what the slot keeps")
		s.Stop(p)
		require.Equal(t, db.Slot(), db.Server.Scalar(t, db.DB, "SELECT slot_name FROM pg_replication_slots WHERE slot_name = $1", db.Slot()), "nobody drops it but a person")
		slotFree(t, db)
		db.Exec(t, `SELECT pg_drop_replication_slot('`+db.Slot()+`')`) // as the manual has it for good
		db.Exec(t, `DROP PUBLICATION outtail_orders`)
	})
}

// From 18 on a server may give up slots that nobody reads.
func TestB075ASlotThatIdledForTooLongIsToldAsThat(t *testing.T) {
	t.Parallel()
	version := harness.NewestPostgres()
	if version < "18" {
		t.Skipf("Postgres %s has no idle_replication_slot_timeout", version)
	}
	server := harness.StartPostgres(t, version, harness.PostgresOptions{Settings: map[string]string{"idle_replication_slot_timeout": "1s"}})
	db := shop.NewPostgres(t, server, nil)
	s := scene.New(t, &servers, db)
	reason := func() string {
		db.Exec(t, `CHECKPOINT`) // which looks for such slots
		return server.Scalar(t, db.DB, `SELECT invalidation_reason FROM pg_replication_slots WHERE slot_name = '`+db.Slot()+`'`)
	}
	p := s.Start()
	began := time.Now()
	p.Until(t, "longer than the limit", func() bool { return reason() != "" || time.Since(began) > 2*time.Second })
	require.Empty(t, reason(), "a slot that is read does not idle, however quiet the table is")
	s.Insert(1)
	s.Arrived(p)
	r := s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
	require.Contains(t, r.Stdout, "idle_replication_slot_timeout is 1 s")
	s.Stop(p)
	s.InsertUnseen(2, "order.changed")
	require.Eventually(t, func() bool { return reason() == "idle_timeout" }, harness.Patience, 100*time.Millisecond)
	r = s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
	require.Contains(t, r.Stdout, "has given up the slot "+db.Slot()+" (idle_timeout)")
	stderr := s.Stops(4, "OT2033", "idle_timeout", "idle_replication_slot_timeout = 0", s.Stored().Source.LSN)
	db.Exec(t, `SELECT pg_drop_replication_slot('`+db.Slot()+`')`)
	s.TakeWay(stderr, "--to now")
	s.Prove()
}

func TestB076B099TheOrderIsThatOfCommitsAndTheStartIsStoredAtOnce(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		s.Stop(p)
		require.NotEmpty(t, s.Stored().Source.LSN, "the start is stored before the first event")
		s.Insert(10) // while nobody runs
		ids := pgIDs(4)
		var txs []shop.Tx
		for _, id := range ids { // written in this order
			tx, err := db.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, tx.Exec(t.Context(), scene.InsertEvent, id, "order.changed", "{}"))
			txs = append(txs, tx)
		}
		for _, i := range []int{2, 0, 3, 1} { // committed in this one
			require.NoError(t, txs[i].Commit(t.Context()))
			s.Expect(ids[i])
		}
		p = s.Start()
		s.Arrived(p)
		s.Stop(p)
	})
}

func TestB147ThePublicationThatOuttailMakesBreaksNoUpdate(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		db.Exec(t, `ALTER TABLE outbox DROP CONSTRAINT outbox_pkey`)
		s := scene.New(t, &servers, db)
		user := db.User()
		db.Exec(t, `DROP PUBLICATION outtail_orders`)
		db.Exec(t, `ALTER TABLE outbox OWNER TO `+user) // who creates a publication owns the table
		db.Exec(t, `GRANT CREATE ON DATABASE `+db.DB+` TO `+user)
		p := s.Start()
		s.Insert(1)
		s.Arrived(p)
		db.Exec(t, `UPDATE outbox SET payload = '{"processed": true}'`)
		db.Exec(t, `DELETE FROM outbox`)
		s.Stop(p)
		db.Exec(t, `ALTER PUBLICATION outtail_orders SET (publish = 'insert, update')`)
		r := s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
		require.Contains(t, r.Stdout, "the server refuses every UPDATE or DELETE of them")
		require.Contains(t, r.Stdout, `SET (publish = 'insert')`)
		require.NotContains(t, r.Stdout, "public.orders", "not published")
		// One of all tables breaks what has nothing to do with the outbox.
		db.Exec(t, `DROP PUBLICATION outtail_orders`)
		db.Exec(t, `CREATE PUBLICATION outtail_orders FOR ALL TABLES`)
		r = s.Outtail.Run(t, "doctor", "-c", s.Outtail.Config)
		require.Contains(t, r.Stdout, "of its tables public.orders,")
		db.Exec(t, `ALTER TABLE outbox OWNER TO postgres`)
	})
}
