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
			var sum drained
			for b.Loop() {
				sum.add(drainRows(b, s, rows))
			}
			b.ReportMetric(float64(sum.rows)/sum.took.Seconds(), "rows/s")
			b.ReportMetric(sum.cpu.Seconds()/float64(sum.rows)*1e6, "cpu-s/M")
			b.ReportMetric(float64(sum.rows)/float64(sum.batches), "rows/batch")
		})
	}
}

type drained struct {
	rows, batches int
	took, cpu     time.Duration
}

func (d *drained) add(o drained) {
	d.rows, d.batches, d.took, d.cpu = d.rows+o.rows, d.batches+o.batches, d.took+o.took, d.cpu+o.cpu
}

func processorTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func drainRows(b *testing.B, s *stream, rows int) (d drained) {
	s.reopen(s.cp)
	before, first := processorTime(b), time.Time{}
	for d.rows < rows {
		batch, err := s.source.Read(context.Background())
		require.NoError(b, err)
		if d.rows == 0 {
			first = time.Now()
		}
		d.rows += len(batch.Events)
		d.batches++
		batch.Release()
	}
	d.took, d.cpu = time.Since(first), processorTime(b)-before
	require.NoError(b, s.source.Close())
	return d
}
