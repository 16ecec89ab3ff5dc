package metrics

import (
	"flag"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/pipeline"
)

var update = flag.Bool("update", false, "write golden files and docs/METRICS.md")

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run `go test ./metrics -update` if this is meant")
}

// exposition is what a scrape gives of outtail's own metrics.
func exposition(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, w.Code)
	require.Contains(t, w.Body.String(), "\ngo_goroutines ")
	var own []string
	for _, line := range strings.SplitAfter(w.Body.String(), "\n") {
		if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "outtail_") {
			own = append(own, line)
		}
	}
	return strings.Join(own, "")
}

func TestNewPipelineExposesAllItsSeries(t *testing.T) {
	golden(t, "testdata/start.prom", exposition(t, New(Options{Version: "v0.1.0", Pipelines: []string{"orders"}})))
}

// busy reports one of everything.
func busy(m *Metrics) {
	m.State("orders", pipeline.Streaming)
	m.Read("orders", 7)
	m.Filtered("orders", "route", 2)
	m.HeadersSkipped("orders", 3)
	m.TimestampsReplaced("orders", 2)
	m.Sent("orders", "orders.created", 4)
	m.Sent("orders", "orders.paid", 1)
	m.Acked("orders", "orders.created", 3)
	m.SendError("orders", event.Config)
	m.SendUnknown("orders", 1)
	m.Latency("orders", 12*time.Millisecond, 3*time.Millisecond)
	m.InFlight("orders", 2, 900)
	m.OldestUnacked("orders", 1500*time.Millisecond)
	m.Saved("orders", 2*time.Millisecond, time.UnixMilli(1767225600250))
	m.Lag("orders", 0.25, pipeline.Lag{Bytes: 4096, RetainedBytes: 8192, RetentionLeft: time.Hour})
	m.Reconnect("orders")
}

func TestWhatAPipelineReportsIsExposed(t *testing.T) {
	m := New(Options{Version: "v0.1.0", Pipelines: []string{"orders"}})
	busy(m)
	golden(t, "testdata/busy.prom", exposition(t, m))
}

func TestMetricsDocumentIsCurrent(t *testing.T) { golden(t, "../docs/METRICS.md", Markdown()) }

func TestTheTableIsComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Table() {
		require.False(t, seen[m.Name], m.Name)
		seen[m.Name] = true
		require.True(t, strings.HasPrefix(m.Name, "outtail_"), m.Name)
		require.Equal(t, m.Type == counter, strings.HasSuffix(m.Name, "_total"), m.Name)
		require.Equal(t, m.Type == histogram, m.Buckets != nil, m.Name)
		for _, text := range []string{m.Type, m.Unit, m.Tells, m.Do} {
			require.NotEmpty(t, text, m.Name)
			require.NotContains(t, text, "|", m.Name)
		}
	}
}

func TestExactlyOneStateIsSet(t *testing.T) {
	m := New(Options{Pipelines: []string{"orders"}})
	for _, s := range pipeline.States() {
		m.State("orders", s)
		for _, other := range pipeline.States() {
			want := 0.0
			if other == s {
				want = 1
			}
			require.InDelta(t, want, testutil.ToFloat64(m.gauges[pipelineState].WithLabelValues("orders", other.String())), 0)
		}
	}
}

func TestWhatIsNotKnownIsNotANumber(t *testing.T) {
	m := New(Options{Pipelines: []string{"orders"}})
	m.Lag("orders", 1, pipeline.Lag{Bytes: -1, RetainedBytes: -1, RetentionLeft: -1})
	for _, name := range []string{lagBytes, retainedBytes, retentionLeft} {
		require.True(t, math.IsNaN(testutil.ToFloat64(m.gauges[name].WithLabelValues("orders"))), name)
	}
	require.InDelta(t, 1, testutil.ToFloat64(m.gauges[lagSeconds].WithLabelValues("orders")), 0)
}

func TestAClockAheadOfOursGivesNoNegativeLatency(t *testing.T) {
	m := New(Options{Pipelines: []string{"orders"}})
	m.Latency("orders", -time.Hour, time.Millisecond)
	require.Contains(t, exposition(t, m), `outtail_commit_to_ack_seconds_sum{pipeline="orders"} 0`)
}

func TestTopicsAreBounded(t *testing.T) {
	m := New(Options{Pipelines: []string{"orders"}})
	for i := range maxTopics + 50 {
		m.Sent("orders", fmt.Sprintf("t%d", i), 1)
	}
	m.Acked("orders", "t1", 5)
	m.Acked("orders", fmt.Sprintf("t%d", maxTopics+7), 5)
	require.Equal(t, maxTopics+1, testutil.CollectAndCount(m.counters[messagesSent]))
	require.InDelta(t, 50, testutil.ToFloat64(m.counters[messagesSent].WithLabelValues("orders", otherTopics)), 0)
	require.InDelta(t, 5, testutil.ToFloat64(m.counters[messagesAcked].WithLabelValues("orders", otherTopics)), 0)
	require.InDelta(t, 5, testutil.ToFloat64(m.counters[messagesAcked].WithLabelValues("orders", "t1")), 0)
}

func TestManyReportAtOnce(t *testing.T) {
	m := New(Options{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				m.Sent(fmt.Sprintf("p%d", i%3), fmt.Sprintf("t%d", i%40), 1)
				m.State("p0", pipeline.State(g%7))
			}
		})
	}
	wg.Wait()
	var sum float64
	for p := range 3 {
		for topic := range 40 {
			sum += testutil.ToFloat64(m.counters[messagesSent].WithLabelValues(fmt.Sprintf("p%d", p), fmt.Sprintf("t%d", topic)))
		}
	}
	require.InDelta(t, 8*500, sum, 0)
}

func TestTheHotPathDoesNotAllocate(t *testing.T) {
	m := New(Options{Pipelines: []string{"orders"}})
	busy(m)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		m.Read("orders", 1)
		m.Sent("orders", "orders.created", 1)
		m.Acked("orders", "orders.created", 1)
		m.Latency("orders", time.Millisecond, time.Millisecond)
		m.InFlight("orders", 1, 450)
	}))
}

func BenchmarkAckedEvent(b *testing.B) {
	m := New(Options{Pipelines: []string{"orders"}})
	for b.Loop() {
		m.Acked("orders", "orders.created", 1)
		m.Latency("orders", 12*time.Millisecond, 3*time.Millisecond)
	}
}
