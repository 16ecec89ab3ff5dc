package wal_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/wal"
)

// confirmed is where the slot stands.
func (b *bench) confirmed() event.LSN {
	b.t.Helper()
	l, err := event.ParseLSN(b.one(`SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '` + b.slot() + `'`))
	require.NoError(b.t, err)
	return l
}

func TestAWindowLetsAPersonGoBack(t *testing.T) {
	for _, version := range harness.PostgresVersions() {
		t.Run(version, func(t *testing.T) {
			b := newBenchOn(t, servers.Postgres(t, version))
			o := b.options()
			o.RewindBytes = 1 << 20
			s := b.open(o, event.Checkpoint{})
			start := s.cp.Position.LSN
			big := `INSERT INTO other SELECT i, repeat('x', 1000) FROM generate_series(1, 3000) i`
			b.exec(`INSERT INTO outbox VALUES ('too old', 'a')`, big, big)
			require.Equal(t, []string{"too old"}, ids(t, s, 1))
			middle := s.passed(b.end())
			b.exec(`INSERT INTO outbox VALUES ('1', 'a'), ('2', 'a')`)
			require.Equal(t, []string{"1", "2"}, ids(t, s, 2))
			last := s.passed(b.end())
			s.source.Confirm(last.Position)
			require.Eventually(t, func() bool { return b.confirmed() > start }, patience, 50*time.Millisecond)
			require.LessOrEqual(t, b.confirmed(), last.Position.LSN-1<<20)
			require.NoError(t, s.source.Close())

			// The stored position is ahead: a restart repeats nothing.
			s.reopen(last)
			b.exec(`INSERT INTO outbox VALUES ('3', 'a')`)
			require.Equal(t, []string{"3"}, ids(t, s, 1))
			require.NoError(t, s.source.Close())

			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := wal.CheckSet(ctx, o, start.String())
			f := event.AsFault(err)
			require.NotNil(t, f)
			require.Equal(t, wal.CodePositionRefused, f.Code)
			require.Contains(t, f.Text, b.confirmed().String(), "the oldest that is possible")
			back, err := wal.CheckSet(ctx, o, middle.Position.LSN.String())
			require.NoError(t, err)
			s.reopen(back)
			require.Equal(t, []string{"1", "2", "3"}, ids(t, s, 3))
			require.NoError(t, s.source.Close())

			// Without any stored position the slot decides: it repeats up to the window.
			s.reopen(event.Checkpoint{})
			require.Equal(t, b.confirmed(), s.cp.Position.LSN)
			require.Equal(t, []string{"1", "2", "3"}, ids(t, s, 3))
			require.NoError(t, s.source.Close())

			// A window that is taken away lets go of what it held.
			o.RewindBytes = 0
			b.open(o, last)
			require.Eventually(t, func() bool { return b.confirmed() >= last.Position.LSN }, patience, 50*time.Millisecond)
		})
	}
}

func TestAWindowOfTimeBeginsWithTheHistory(t *testing.T) {
	b := newBench(t)
	o := b.options()
	o.RewindWindow, o.StatusEvery = time.Hour, 100*time.Millisecond
	s := b.open(o, event.Checkpoint{})
	start := s.cp.Position
	b.exec(`INSERT INTO outbox VALUES ('1', 'a')`)
	require.Equal(t, []string{"1"}, ids(t, s, 1))
	old := s.passed(b.end())
	b.exec(`INSERT INTO outbox VALUES ('2', 'a')`)
	require.Equal(t, []string{"2"}, ids(t, s, 1))
	last := s.passed(b.end())
	s.source.Confirm(last.Position)
	require.NoError(t, s.source.Close())
	require.Equal(t, start.LSN, b.confirmed())

	now := time.Now()
	o.Past = []wal.Moment{{At: now.Add(-3 * time.Hour), Position: start}, {At: now.Add(-2 * time.Hour), Position: old.Position}, {At: now, Position: last.Position}}
	again := b.open(o, last)
	require.Eventually(t, func() bool { return b.confirmed() == old.Position.LSN }, patience, 50*time.Millisecond)
	require.NoError(t, again.source.Close())
	require.Equal(t, old.Position.LSN, b.confirmed())
}

// Retained log is told as it is, window and all.
func TestWhatAWindowKeepsIsTold(t *testing.T) {
	b := newBench(t)
	o := b.options()
	o.RewindBytes, o.CheckEvery = 1<<30, 200*time.Millisecond
	s := b.open(o, event.Checkpoint{})
	start := b.end()
	b.exec(`INSERT INTO other SELECT i, repeat('x', 1000) FROM generate_series(1, 10000) i`)
	wrote := int64(b.end() - start)
	s.source.Confirm(s.passed(b.end()).Position)
	require.Eventually(t, func() bool { return s.source.Lag().RetainedBytes >= wrote }, patience, 50*time.Millisecond)
	require.Less(t, s.source.Lag().Bytes, wrote)
}

func TestTheSlotMovesWhileOnlyAnotherDatabaseIsBusy(t *testing.T) {
	for _, version := range harness.PostgresVersions() {
		for _, heartbeat := range []time.Duration{0, 50 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s/%v", version, heartbeat), func(t *testing.T) {
				b := newBenchOn(t, servers.Postgres(t, version))
				other := newBenchOn(t, servers.Postgres(t, version))
				o := b.options()
				o.Heartbeat, o.Messages = heartbeat, true
				o.Filtered = func(string, int) { t.Error("a heartbeat is nothing that was written for us") }
				s := b.open(o, event.Checkpoint{})
				start := b.confirmed()
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				for b.confirmed() < start+1<<20 {
					other.exec(`INSERT INTO other SELECT i, repeat('x', 1000) FROM generate_series(1, 300) i`)
					batch, err := s.source.Read(ctx)
					require.NoError(t, err)
					require.Empty(t, batch.Events)
					if n := len(batch.Bounds); n > 0 {
						p, _ := s.source.Position(batch.Bounds[n-1].At)
						s.source.Confirm(p)
					}
					batch.Release()
				}
			})
		}
	}
}
