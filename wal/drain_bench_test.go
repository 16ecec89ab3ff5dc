package wal_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// BenchmarkDrain reads a backlog of rows with 450 bytes of payload from a real server and discards them, to see what the
// reader and its pacing cost: go test ./wal -run '^$' -bench Drain -benchtime 1x. OUTTAIL_BENCH_ROWS sets the number.
func BenchmarkDrain(b *testing.B) {
	rows := 200_000
	if n, err := strconv.Atoi(os.Getenv("OUTTAIL_BENCH_ROWS")); err == nil {
		rows = n
	}
	for _, per := range []int{1, 10} {
		b.Run(fmt.Sprintf("%d-rows-per-tx", per), func(b *testing.B) {
			d := newBench(b)
			s := d.open(d.options(), event.Checkpoint{})
			require.NoError(b, s.source.Close())
			d.exec(fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
				INSERT INTO outbox SELECT i || '-' || j, 'aggregate-' || i %% 1000, repeat('p', 450) FROM generate_series(1, %d) j; COMMIT;
				END LOOP; END $$`, rows/per, per))
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				drainRows(b, s, rows)
			}
		})
	}
}

func drainRows(b *testing.B, s *stream, rows int) {
	s.reopen(s.cp)
	var before, after syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	seen, batches, first := 0, 0, time.Time{}
	for seen < rows {
		batch, err := s.source.Read(context.Background())
		require.NoError(b, err)
		if seen == 0 {
			first = time.Now()
		}
		seen += len(batch.Events)
		batches++
		batch.Release()
	}
	took := time.Since(first).Seconds()
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()).Seconds()
	b.ReportMetric(float64(rows)/took, "rows/s")
	b.ReportMetric(cpu/float64(rows)*1e6, "cpu-s/M")
	b.ReportMetric(float64(rows)/float64(batches), "rows/batch")
	require.NoError(b, s.source.Close())
}
