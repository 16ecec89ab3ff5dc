package binlog_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

func mariaBench(t testing.TB, flags ...string) *bench {
	m := harness.StartMySQL(t, harness.MySQLOptions{MariaDB: true, Flags: flags})
	return &bench{MySQL: m, kind: event.MariaDB, db: m.NewDatabase(t)}
}

func TestAServerWithoutALog(t *testing.T) {
	b := mariaBench(t, "--skip-log-bin")
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	_, err := tryOpen(t, b.options(t, "outbox"), event.Checkpoint{})
	f := requireFault(t, err, "OT3005", event.Environment)
	require.True(t, f.Immediate)
	require.Contains(t, f.Hint, "log_bin")
}

func TestMariaDB(t *testing.T) {
	b := mariaBench(t)
	b.run(t, "CREATE TABLE outbox "+outboxColumns, "CREATE TABLE other (v LONGTEXT)")
	o := b.options(t, "outbox")
	s := open(t, o, event.Checkpoint{})
	require.NotEmpty(t, s.cp.Position.GTID)
	b.run(t, "INSERT INTO outbox (payload) VALUES ('1'), (NULL)",
		"START TRANSACTION", "INSERT INTO outbox (payload) VALUES ('gone')", "ROLLBACK",
		"START TRANSACTION", "INSERT INTO other VALUES ('x')", "INSERT INTO outbox (payload) VALUES ('2')", "SAVEPOINT a", "INSERT INTO outbox (payload) VALUES ('gone')", "ROLLBACK TO a",
		"INSERT INTO outbox (payload) VALUES ('3')", "COMMIT",
		"INSERT INTO other VALUES ('x')",
		"XA START 'one'", "INSERT INTO outbox (payload) VALUES ('x')", "XA END 'one'", "XA COMMIT 'one' ONE PHASE",
		"SET SESSION gtid_domain_id = 7", "INSERT INTO outbox (payload) VALUES ('4')", "SET SESSION gtid_domain_id = 0")
	events := s.read(t, 6)
	require.Equal(t, []string{"1", "", "2", "3", "x", "4"}, payloads(events))
	require.True(t, events[1].null)
	require.Regexp(t, `^7-1-\d+$`, events[5].tx)
	require.Equal(t, b.Scalar(t, "", "SELECT @@global.gtid_binlog_pos"), s.cp.Position.GTID)
	require.NoError(t, s.Close())

	b.run(t, "FLUSH BINARY LOGS", "INSERT INTO outbox (payload) VALUES ('5')")
	s = open(t, o, s.cp)
	require.Equal(t, []string{"5"}, payloads(s.read(t, 1)))
	stored := s.cp
	require.NoError(t, s.Close())

	t.Run("start rules", func(t *testing.T) {
		for _, start := range []binlog.Start{{Mode: "earliest"}, {Mode: "position", File: stored.Position.File, Pos: 4}} {
			o := o
			o.Start = start
			s := open(t, o, event.Checkpoint{})
			events := s.read(t, 1)
			want := "1"
			if start.Mode == "position" {
				want = "5"
			}
			require.Equal(t, want, events[0].payload, start.Mode)
			require.NotEmpty(t, s.cp.Position.GTID, "learnt at the top of the file")
			require.NoError(t, s.Close())
		}
	})
	t.Run("a GTID that the server does not know", func(t *testing.T) {
		cp := stored
		cp.Position.GTID, cp.Position.Mark = "0-1-999999", ""
		_, err := tryOpen(t, o, cp)
		requireFault(t, err, "OT3021", event.Safety)
	})
	t.Run("purged binlogs", func(t *testing.T) {
		b.run(t, "INSERT INTO outbox (payload) VALUES ('6')", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
		// A file that a dump thread still holds is kept; ours ends when it notices that we are gone.
		last := nth(t, b, -1)
		require.Eventually(t, func() bool {
			b.run(t, "PURGE BINARY LOGS TO '"+last+"'")
			return nth(t, b, 0) == last
		}, harness.Patience, 100*time.Millisecond)
		_, err := tryOpen(t, o, stored)
		f := event.AsFault(err)
		require.NotNil(t, f)
		require.Equal(t, event.Safety, f.Class)
	})
}

func TestMariaDBCompressedEvents(t *testing.T) {
	b := mariaBench(t, "--log-bin-compress=ON", "--log-bin-compress-min-len=10")
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	s := open(t, b.options(t, "outbox"), event.Checkpoint{})
	b.run(t, "INSERT INTO outbox (payload) VALUES (REPEAT('x', 100000)), ('2')", "UPDATE outbox SET note = REPEAT('n', 20)", "DELETE FROM outbox", "INSERT INTO outbox (payload) VALUES ('3')")
	require.Equal(t, []string{strings.Repeat("x", 100000), "2", "3"}, payloads(s.read(t, 3)))
}
