package binlog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

func TestCompressedTransactionsReadLikeOthers(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns, "CREATE TABLE other (v LONGTEXT)")
	s := open(t, b.options(t, "outbox"), event.Checkpoint{})
	b.run(t, "SET SESSION binlog_transaction_compression = ON",
		"INSERT INTO outbox (payload) VALUES ('1')",
		"START TRANSACTION", "INSERT INTO other VALUES (REPEAT('x', 3000000))", "INSERT INTO outbox (payload) VALUES (REPEAT('y', 2000000))", "INSERT INTO outbox (payload) VALUES ('3')", "COMMIT",
		"START TRANSACTION", "INSERT INTO outbox (payload) VALUES ('gone')", "ROLLBACK",
		"SET SESSION binlog_transaction_compression = OFF",
		"INSERT INTO outbox (payload) VALUES ('4')")
	events := s.read(t, 4)
	require.Equal(t, []string{"1", strings.Repeat("y", 2000000), "3", "4"}, payloads(events))
	require.Equal(t, flat(b.Scalar(t, "", "SELECT @@global.gtid_executed")), s.cp.Position.GTID)
}

func TestLargeCompressedTransaction(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	s := open(t, b.options(t, "outbox"), event.Checkpoint{})
	// Random text does not compress: the one event of this transaction is larger than what the reader keeps in memory.
	const rows = 45
	b.run(t, "SET SESSION binlog_transaction_compression = ON", "SET SESSION cte_max_recursion_depth = 1000000", "SET SESSION group_concat_max_len = 4000000",
		"SET @big = (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT GROUP_CONCAT(TO_BASE64(RANDOM_BYTES(36)) SEPARATOR '') FROM n)",
		fmt.Sprintf("INSERT INTO outbox (payload) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT CONCAT(i, ':', REVERSE(SUBSTRING(@big, i)), RAND()) FROM n", rows),
		"SET SESSION binlog_transaction_compression = OFF",
		"INSERT INTO outbox (payload) VALUES ('after')")
	events := s.read(t, rows+1)
	require.Len(t, events, rows+1)
	for i := range rows {
		require.Truef(t, strings.HasPrefix(events[i].payload, fmt.Sprintf("%d:", i+1)), "row %d", i)
	}
	require.Equal(t, "after", events[rows].payload)
}

func TestTaggedGTIDs(t *testing.T) {
	b := newBench(t, harness.StartMySQL(t, harness.MySQLOptions{}))
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	s := open(t, o, event.Checkpoint{})
	b.run(t, "SET gtid_next = 'AUTOMATIC:billing'", "INSERT INTO outbox (payload) VALUES ('1')", "INSERT INTO outbox (payload) VALUES ('2')", "SET gtid_next = 'AUTOMATIC:a_1'",
		"INSERT INTO outbox (payload) VALUES ('3')", "SET gtid_next = 'AUTOMATIC'", "INSERT INTO outbox (payload) VALUES ('4')")
	events := s.read(t, 4)
	require.Equal(t, []string{"1", "2", "3", "4"}, payloads(events))
	require.Equal(t, b.Scalar(t, "", "SELECT @@server_uuid")+":billing:2", events[1].tx)
	require.Equal(t, strings.ReplaceAll(flat(b.Scalar(t, "", "SELECT @@global.gtid_executed")), " ", ""), s.cp.Position.GTID)
	require.NoError(t, s.Close())
	b.run(t, "SET gtid_next = 'AUTOMATIC:billing'", "INSERT INTO outbox (payload) VALUES ('5')", "SET gtid_next = 'AUTOMATIC'")
	s = open(t, o, s.cp)
	require.Equal(t, []string{"5"}, payloads(s.read(t, 1)))
}
