package bench

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/test/harness"
)

var (
	rate   = flag.Float64("rate", 1000, "transactions of one row per second, for the latency")
	period = flag.Duration("period", time.Minute, "how long the latency is measured, after a quarter of it to warm up")
)

// TestLatency writes transactions of one row at an even rate and measures from the moment in which the database said that one is committed to the
// moment in which a consumer has the record.
func TestLatency(t *testing.T) {
	measured(t)
	for _, kind := range strings.Split(*sources, ",") {
		t.Run(kind, func(t *testing.T) {
			s := newSource(t, kind)
			all := chosen(t, s)
			for run := range *runs {
				for _, a := range all {
					s.begin(t)
					f := latency(t, s, a)
					f.What, f.Run = "latency", run+1
					f.record(t)
				}
			}
		})
	}
}

func latency(t *testing.T, s *source, a arm) figures {
	topic := s.kafka.NewTopic(t, 6)
	defer s.kafka.DeleteTopic(t, topic)
	a.prepare(t, topic)
	p := a.start(t)
	defer p.Terminate(t)
	count := counter(t, s.kafka, topic)
	s.write(t, load{rows: 1, perTx: 1, size: 450})
	p.Until(t, "the first event", func() bool { return count() == 1 })

	warm := *period / 4
	n := int(*rate * (*period + warm).Seconds())
	committed, arrived := make([]atomic.Int64, n), make([]atomic.Int64, n)
	base := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cl := s.kafka.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMinBytes(1))
	var got atomic.Int64
	consumed := make(chan struct{})
	go func() { // ends with ctx
		defer close(consumed)
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			now := int64(time.Since(base))
			fetches.EachRecord(func(r *kgo.Record) {
				if i := sequence(r.Value) - 1; i >= 0 && i < n && arrived[i].CompareAndSwap(0, now) {
					got.Add(1)
				}
			})
		}
	}()
	time.Sleep(2 * time.Second) // the consumer stands at the end
	cpu, began := p.CPUSeconds(t), time.Now()
	var ticket atomic.Int64
	var writers sync.WaitGroup
	for range 20 {
		insert := s.writer(t)
		writers.Go(func() {
			for {
				i := int(ticket.Add(1) - 1)
				if i >= n {
					return
				}
				time.Sleep(time.Until(began.Add(time.Duration(float64(i) / *rate * float64(time.Second)))))
				if err := insert(ctx, i); err != nil {
					t.Error(err)
					return
				}
				committed[i].Store(int64(time.Since(base)))
			}
		})
	}
	writers.Wait()
	require.False(t, t.Failed())
	took := time.Since(began)
	f := figures{Source: s.kind, Arm: a.name(), Load: fmt.Sprintf("%.0f transactions/s", float64(n)/took.Seconds()), Events: int64(n), Cores: (p.CPUSeconds(t) - cpu) / took.Seconds()}
	p.Until(t, "all have arrived", func() bool { return got.Load() == int64(n) })
	stop()
	<-consumed
	var late []float64
	for i := int(*rate * warm.Seconds()); i < n; i++ {
		late = append(late, max(0, float64(arrived[i].Load()-committed[i].Load())/1e6))
	}
	slices.Sort(late)
	at := func(q float64) float64 { return late[int(q*float64(len(late)-1))] }
	f.P50, f.P99, f.P999, f.Idle = at(0.5), at(0.99), at(0.999), mebibytes(p.RSS(t))
	return f
}

// writer gives a function that commits one row on a connection of its own; numbers begin behind the first event's.
func (s *source) writer(t *testing.T) func(ctx context.Context, i int) error {
	note := strings.Repeat(text, 4)[:420]
	row := func(i int) []any {
		return []any{"order", fmt.Sprintf("order-%d", i%1000), "OrderCreated", fmt.Sprintf(`{"seq": %d, "note": "%s"}`, i+1, note)}
	}
	if s.pg != nil {
		c := s.pg.Connect(t, s.db)
		return func(ctx context.Context, i int) error {
			_, err := c.Exec(ctx, "INSERT INTO outbox VALUES (gen_random_uuid(), $1, $2, $3, $4::text::jsonb)", append([]any{pgx.QueryExecModeCacheStatement}, row(i)...)...)
			return err
		}
	}
	db := s.my.Open(t, "root", harness.RootPassword, s.db)
	c, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	var st *sql.Stmt
	st, err = c.PrepareContext(t.Context(), "INSERT INTO outbox VALUES (UUID(), ?, ?, ?, ?)")
	require.NoError(t, err)
	return func(ctx context.Context, i int) error {
		_, err := st.ExecContext(ctx, row(i)...)
		return err
	}
}
