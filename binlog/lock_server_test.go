package binlog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// eachServer runs a test beside others on the shared MySQL and the shared MariaDB, with a table.
func eachServer(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Parallel()
	for _, kind := range []string{event.MySQL, event.MariaDB} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: kind == event.MariaDB}))
			b.kind = kind
			b.run(t, "CREATE TABLE outbox "+outboxColumns)
			test(t, b)
		})
	}
}

// elsewhere is the same configuration on another host.
func elsewhere(t *testing.T, o binlog.Options) binlog.Options {
	o.Seed, o.SpillDir = "elsewhere "+o.Seed, t.TempDir()
	return o
}

// waits opens a source again and again, as a pipeline would, for as long as it is a standby.
func waits(t *testing.T, s *binlog.Source, cp event.Checkpoint) error {
	deadline := time.Now().Add(harness.Patience)
	for {
		require.True(t, time.Now().Before(deadline))
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		_, err := s.Open(ctx, cp)
		cancel()
		if f := event.AsFault(err); f == nil || !f.Standby {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

func TestOnlyOneProcessOfAPipelineReads(t *testing.T) {
	eachServer(t, func(t *testing.T, b *bench) {
		o := b.options(t, "outbox")
		first := open(t, o, event.Checkpoint{})
		b.run(t, "INSERT INTO outbox (payload) VALUES ('1')")
		first.read(t, 1)

		there := elsewhere(t, o)
		second, err := binlog.New(there)
		require.NoError(t, err)
		_, err = second.Open(t.Context(), event.Checkpoint{})
		f := requireFault(t, err, "OT3015", event.Retry)
		require.True(t, f.Standby, "it waits, and that is no fault")
		require.Contains(t, f.Text, fmt.Sprint(first.LockConnection()))

		named := there
		named.Pipeline = "audit"
		beside := open(t, named, event.Checkpoint{})
		require.NoError(t, beside.Close(), "another pipeline on the same table is meant to run")

		_, err = binlog.CheckSet(t.Context(), there, "now")
		require.NoError(t, err, "commands take no lock")

		b.run(t, "INSERT INTO outbox (payload) VALUES ('2')")
		require.Equal(t, "2", first.read(t, 1)[0].payload)
		require.NoError(t, first.Close())

		f = requireFault(t, waits(t, second, event.Checkpoint{}), "OT3017", event.Safety)
		require.Contains(t, f.Hint, "checkpoint set -c FILE --pipeline orders --to GTID")
		require.Contains(t, f.Hint, "checkpoint accept -c FILE --pipeline orders --code OT3017")

		// The one that knows where it stands goes on meanwhile.
		first = open(t, o, first.cp)
		require.NoError(t, first.Close())

		second, err = binlog.New(there)
		require.NoError(t, err)
		requireFault(t, waits(t, second, event.Checkpoint{}), "OT3017", event.Safety)
		accepted := open(t, there, event.Checkpoint{Accepted: []string{"OT3017"}})
		require.NoError(t, accepted.Close())
		again := open(t, there, accepted.cp)
		require.NoError(t, again.Close(), "it was decided")
	})
}

func TestAStandbyGoesOnWhereAPersonSays(t *testing.T) {
	eachServer(t, func(t *testing.T, b *bench) {
		here := b.options(t, "outbox")
		there := elsewhere(t, here)
		old := b.stored(t, there)
		old.SavedAt = time.Now().UTC()

		first := open(t, here, event.Checkpoint{})
		_, err := tryOpen(t, there, old)
		requireFault(t, err, "OT3015", event.Retry)
		b.run(t, "INSERT INTO outbox (payload) VALUES ('passed')")
		first.read(t, 1)
		require.NoError(t, first.Close())

		_, err = tryOpen(t, there, old)
		requireFault(t, err, "OT3015", event.Retry)
		set, err := binlog.CheckSet(t.Context(), there, "now")
		require.NoError(t, err)
		set.SavedAt = time.Now().UTC()
		second := open(t, there, set)
		require.NoError(t, second.Close(), "the position that a person set is not the one that was waited with")
	})
}

func TestOurOwnSessionThatHangsIsEnded(t *testing.T) {
	eachServer(t, func(t *testing.T, b *bench) {
		proxy := harness.NewProxy(t, b.Addr())
		o := b.options(t, "outbox")
		through := o
		through.Port = proxy.Port()
		hangs := open(t, through, event.Checkpoint{})
		b.run(t, "INSERT INTO outbox (payload) VALUES ('1')")
		hangs.read(t, 1)
		proxy.Stall() // the host is gone, and the server does not know

		s := open(t, o, hangs.cp)
		b.run(t, "INSERT INTO outbox (payload) VALUES ('2')")
		require.Equal(t, "2", s.read(t, 1)[0].payload)

		// Had that host lived, it would stop by itself.
		_, err := hangs.tryRead(1)
		requireFault(t, err, "OT3016", event.Retry)
		proxy.Resume(t)
	})
}

func TestReadingEndsWithTheLock(t *testing.T) {
	eachServer(t, func(t *testing.T, b *bench) {
		o := b.options(t, "outbox")
		s := open(t, o, event.Checkpoint{})
		require.NoError(t, s.Fence().Err())
		b.run(t, fmt.Sprintf("KILL %d", s.LockConnection()), "INSERT INTO outbox (payload) VALUES ('1')")
		<-s.Fence().Done()
		_, err := s.Read(t.Context())
		f := requireFault(t, err, "OT3016", event.Retry)
		require.Same(t, f, event.AsFault(context.Cause(s.Fence())))
		require.NoError(t, s.Close())
		s = open(t, o, s.cp)
		require.Equal(t, "1", s.read(t, 1)[0].payload)
	})
}
