// Package binlog reads the binary log of MySQL (5.7 and later; tested with 9.7) and MariaDB (10.3 and later; tested with 10.11 and 11.8),
// as a replica would, and delivers the rows that committed transactions inserted into outbox tables.
//
// # The way of one row
//
// The server pushes events over a connection of its own (dump.go); wire.go frames them in place. stream.go is the state machine:
// a GTID event begins a group, TABLE_MAP says once per statement whether its rows are ours, rows of ours are decoded straight
// into a segment (rows.go, values.go, jsonb.go), and only XID, COMMIT or a one-phase XA_PREPARE moves the mark behind which rows
// are handed out (assemble.go). ROLLBACK cuts back to the mark, ROLLBACK TO to a savepoint. Rows of foreign tables are not even
// checked for damage. A transaction beyond 32 MiB goes through a file (spill.go).
//
// Nothing here runs beside the reader but the poll for Lag: Read is called, and reads. A pipeline that does not call for hours
// costs the server's patience only (net_write_timeout, which the session raises), and a connection that was dropped is made anew.
//
// # Positions
//
// A bound is an ordinal; the ledger (ledger.go) turns it into a GTID set with file and position when the pipeline asks.
// Transactions without wanted rows join the bound before them, so that memory does not grow with a busy server under an idle
// outbox. Resuming is decided by pure code (decide.go) over facts asked at every connect: server_uuid, executed and purged sets, the list of files,
// the identity of the stored file (the header timestamp of its format description event), and whether the last transaction that was read
// is where it was (witness.go). What does not fit is a safety stop that names the gap and the ways out (I5). On the same server a proved place in a file is
// better than a GTID position, which cannot tell transactions without GTID nor MariaDB's numbers that go back (domains.go).
//
// # What the log does not say
//
// Up to binlog_row_metadata=FULL the log has no column names. The catalogue has them as of now, which need not be as of then: a definition
// holds for a row only if no DDL on the table lies between the row and the place of the log at which the definition was read
// (proof.go). Definitions are stored with positions, so that rows before a DDL are read by what held before it. The text of DDL is read to its
// last word (ddl.go): most of it touches no column, and what ALTER TABLE does to columns is carried out in thought (replay.go). That alone
// proves nothing; it counts where following all DDL up to the place at which the catalogue was read leads to what the catalogue says
// (ahead.go). Rows wait for that in the log, not in memory. The types of the log refute a definition (fits.go), and never prove one.
//
// Not visible to anybody: an ALTER with sql_log_bin=0, and rows that a trigger inserts under statement logging.
package binlog
