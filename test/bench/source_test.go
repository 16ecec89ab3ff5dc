package bench

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

// source is a database with an outbox in Debezium's shape, and the broker: one backlog that connectors drain in turns, each from its
// beginning. Servers listen on the loopback address themselves, and write as durably as in production.
type source struct {
	kind  string // postgres, mysql
	kafka *harness.Kafka
	pg    *harness.Postgres
	my    *harness.MySQL
	db    string
	gtid  string // MySQL: what had been executed when the backlog began
	state string // MySQL: Debezium's files of then
	tls   string // the mode of outtail's connection; "" is disable
	via   int    // the port it goes to, if it is not the server's
}

func newSource(t *testing.T, kind string) *source {
	s := &source{kind: kind, kafka: harness.StartKafka(t, harness.KafkaOptions{Direct: true, Env: map[string]string{
		"KAFKA_HEAP_OPTS": "-Xms1g -Xmx1g", "KAFKA_JVM_PERFORMANCE_OPTS": "", // the image's own: a broker as in production
	}})}
	if kind == "postgres" {
		s.pg = harness.StartPostgres(t, *pgVersion, harness.PostgresOptions{Direct: true, Settings: map[string]string{
			"fsync": "on", "shared_buffers": "256MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h",
		}})
		s.db = s.pg.NewDatabase(t)
		s.pg.Exec(t, s.db, "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb)",
			"CREATE TABLE foreigners (id bigint, note text)",
			"CREATE PUBLICATION bench FOR TABLE outbox WITH (publish = 'insert')")
		return s
	}
	s.my = harness.StartMySQL(t, harness.MySQLOptions{Direct: true, Flags: []string{
		"--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=256M", "--binlog-row-metadata=FULL", "--max-binlog-size=1G",
	}})
	s.db = s.my.NewDatabase(t)
	s.my.Exec(t, s.db, "CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, payload "+*column+");"+
		"CREATE TABLE foreigners (id BIGINT, note LONGTEXT) ENGINE = BLACKHOLE")
	return s
}

// begin says that the backlog begins here. Debezium has seen its seed by now.
func (s *source) begin(t testing.TB) {
	if s.kind == "mysql" {
		s.gtid = s.my.Scalar(t, "", "SELECT @@GLOBAL.gtid_executed")
		return
	}
	s.drop(t, "base")
	s.pg.Exec(t, s.db, "SELECT pg_create_logical_replication_slot('base', 'pgoutput')")
}

// slot gives a slot that begins where the backlog does.
func (s *source) slot(t testing.TB, name string) string {
	s.drop(t, name)
	s.pg.Exec(t, s.db, "SELECT pg_copy_logical_replication_slot('base', '"+name+"')")
	return name
}

// drop drops a slot, if there is one. Its reader has ended; the server may not have noticed.
func (s *source) drop(t testing.TB, name string) {
	s.pg.Exec(t, s.db, strings.ReplaceAll(`DO $$ BEGIN FOR i IN 1..200 LOOP
			EXIT WHEN NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'NAME' AND active); PERFORM pg_sleep(0.05);
		END LOOP; END $$`, "NAME", name),
		"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '"+name+"'")
}

// load is what is written, inside the server so that writing takes little: transactions of perTx rows, each row with a payload of about
// size bytes that holds its number, and with foreign rows of other tables before each of ours.
type load struct {
	from, rows, perTx, size, foreign int
	aggregates, types                int // 0: a thousand, and one
}

// text is what payloads are cut from: it compresses as text does.
const text = `deliver the parcel before noon, ring twice, leave it with the neighbour; gift wrap, invoice address changed; express from the northern warehouse to Madrid, `

func (s *source) write(t testing.TB, l load) {
	note := max(1, l.size-len(`{"seq": 123456, "note": ""}`))
	fill := strings.NewReplacer("<words>", fmt.Sprintf("REPEAT('%s', %d)", text, l.size/len(text)+2), "<transactions>", fmt.Sprint(l.rows/l.perTx), "<per>", fmt.Sprint(l.perTx),
		"<foreign>", fmt.Sprint(l.foreign), "<cut>", fmt.Sprintf("SUBSTR(words, 1 + i %% 100, %d)", note), "<seq>", fmt.Sprintf("(%d + i * %d + j)", l.from, l.perTx),
		"<aggregates>", fmt.Sprint(cmp.Or(l.aggregates, 1000)), "<types>", fmt.Sprint(max(l.types, 1))).Replace
	if s.pg != nil {
		conn := s.pg.Connect(t, s.db)
		_, err := conn.Exec(t.Context(), fill(`DO $$ DECLARE words text := <words>; BEGIN
			SET LOCAL synchronous_commit = off;
			FOR i IN 1..<transactions> LOOP i := i - 1;
				FOR j IN 1..<per> LOOP j := j - 1;
					FOR k IN 1..<foreign> LOOP INSERT INTO foreigners VALUES (k, <cut>); END LOOP;
					INSERT INTO outbox VALUES (gen_random_uuid(), 'order', 'order-' || <seq> % <aggregates>, 'OrderCreated.' || <seq> % <types>, ('{"seq": ' || <seq> || ', "note": "' || <cut> || '"}')::jsonb);
				END LOOP;
				COMMIT; SET LOCAL synchronous_commit = off;
			END LOOP; END $$`))
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
		return
	}
	s.my.Exec(t, s.db, fill(`DROP PROCEDURE IF EXISTS fill;
		CREATE PROCEDURE fill() BEGIN DECLARE i, j, k INT DEFAULT 0; DECLARE words LONGTEXT DEFAULT <words>;
			SET autocommit = 0;
			WHILE i < <transactions> DO
				SET j = 0;
				WHILE j < <per> DO
					SET k = 0;
					WHILE k < <foreign> DO INSERT INTO foreigners VALUES (k, <cut>); SET k = k + 1; END WHILE;
					INSERT INTO outbox VALUES (UUID(), 'order', CONCAT('order-', <seq> % <aggregates>), CONCAT('OrderCreated.', <seq> % <types>), CONCAT('{"seq": ', <seq>, ', "note": "', <cut>, '"}'));
					SET j = j + 1;
				END WHILE;
				COMMIT; SET i = i + 1;
			END WHILE; END`))
	s.my.Exec(t, "", "SET GLOBAL sync_binlog = 0; SET GLOBAL innodb_flush_log_at_trx_commit = 0")
	_, err := s.my.DB.ExecContext(t.Context(), "CALL `"+s.db+"`.fill()")
	require.NoError(t, err)
	s.my.Exec(t, "", "SET GLOBAL sync_binlog = 1; SET GLOBAL innodb_flush_log_at_trx_commit = 1")
}

// calm lets what loading left behind come to its end.
func (s *source) calm(t testing.TB) {
	if s.pg != nil {
		s.pg.Exec(t, s.db, "CHECKPOINT")
	}
}

func (s *source) cpu(t testing.TB) float64 {
	if s.pg != nil {
		return s.pg.CPUSeconds(t)
	}
	return s.my.CPUSeconds(t)
}
