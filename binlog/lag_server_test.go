package binlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// TestLagTellsHowMuchLogIsNeededAndHowLongItLasts: behind what is stored lie so many bytes, and the file that they begin in is kept
// for as long as the server keeps its files, from when the next one was begun.
func TestLagTellsHowMuchLogIsNeededAndHowLongItLasts(t *testing.T) {
	for kind, maria := range map[string]bool{event.MySQL: false, event.MariaDB: true} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, harness.StartMySQL(t, harness.MySQLOptions{MariaDB: maria, Flags: []string{"--binlog-expire-logs-seconds=86400"}}))
			b.kind = kind
			b.run(t, "CREATE TABLE outbox "+outboxColumns)
			o := b.options(t, "outbox")
			s := open(t, o, event.Checkpoint{})
			b.run(t, "INSERT INTO outbox (payload) VALUES ('stored')")
			s.read(t, 1)
			s.Confirm(s.cp.Position)
			require.NoError(t, s.Close())
			b.run(t, "DO SLEEP(2)", "INSERT INTO outbox (payload) VALUES (REPEAT('x', 100000))", "FLUSH BINARY LOGS", "INSERT INTO outbox (payload) VALUES ('newest')")

			s = open(t, o, s.cp)
			s.Confirm(s.cp.Position)
			require.Eventually(t, func() bool { return s.Lag().RetentionLeft >= 0 && s.Lag().RetainedBytes >= 100_000 }, harness.Patience, 50*time.Millisecond)
			l := s.Lag()
			require.Greater(t, l.RetentionLeft, 23*time.Hour)
			require.LessOrEqual(t, l.RetentionLeft, 24*time.Hour)
			require.Less(t, l.RetainedBytes, int64(200_000))

			s.read(t, 2)
			s.Confirm(s.cp.Position)
			require.Eventually(t, func() bool { return s.Lag().RetentionLeft == 24*time.Hour && s.Lag().RetainedBytes < 1000 }, harness.Patience, 50*time.Millisecond,
				"the newest file is not purged, and next to nothing is needed of it (MariaDB writes checkpoints of its own)")
		})
	}
}
