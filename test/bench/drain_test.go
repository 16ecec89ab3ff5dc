// Package bench measures: how fast a backlog drains, how late an event is, at what cost in CPU and memory, beside Debezium on the same servers. It
// is not a test: nothing is timed against a limit, and what is lost or out of order fails it. `make bench` runs it; OUTTAIL_BENCH=1 turns it on.
package bench

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outtail/outtail/test/harness"
)

var (
	servers   harness.Pool
	runs      = flag.Int("runs", 1, "how often each arm is measured, arms in turns")
	rows      = flag.Int("rows", 1_000_000, "rows in the backlog: three in ten in transactions of one row, the others in transactions of ten")
	size      = flag.Int("size", 430, "bytes of a row's payload, in one transaction")
	arms      = flag.String("arms", "outtail,control,debezium", "which connectors take turns; control is outtail again, to show how far equal arms are apart, parked one with 10,000 parked aggregates")
	sources   = flag.String("sources", "postgres,mysql", "which databases")
	pgVersion = flag.String("postgres", harness.NewestPostgres(), "which Postgres")
	column    = flag.String("mysql-payload", "JSON", "the type of MySQL's payload column: JSON or TEXT")
	profiles  = flag.String("profiles", "", "write outtail's CPU profiles into this folder")
	output    = flag.String("results", "", "append each run's figures to this file, as a line of JSON")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(servers.Run(m))
}

// measured skips what is run as a test.
func measured(t *testing.T) {
	if os.Getenv("OUTTAIL_BENCH") == "" {
		t.Skip("a measurement, not a test: make bench")
	}
}

// figures of one run. Per million means per million events.
type figures struct {
	What        string  `json:"what"`
	Source      string  `json:"source"`
	Arm         string  `json:"arm"`
	Run         int     `json:"run"`
	At          int     `json:"at,omitempty"` // on the axis that Load names
	Load        string  `json:"load,omitempty"`
	Events      int64   `json:"events,omitempty"`
	First       float64 `json:"start_to_first_seconds,omitempty"`
	PerSecond   float64 `json:"events_per_second,omitempty"`            // first to last
	FromStart   float64 `json:"from_start_events_per_second,omitempty"` // process start to last
	Steady      float64 `json:"steady_events_per_second,omitempty"`     // between a quarter and 99 % of the events
	CPU         float64 `json:"cpu_seconds_per_million,omitempty"`
	DatabaseCPU float64 `json:"database_cpu_seconds_per_million,omitempty"`
	BrokerCPU   float64 `json:"broker_cpu_seconds_per_million,omitempty"`
	Mallocs     float64 `json:"allocations_per_event,omitempty"`
	Peak        float64 `json:"peak_rss_mib,omitempty"`
	Idle        float64 `json:"idle_rss_mib,omitempty"`
	Again       int64   `json:"sent_again,omitempty"`
	Cores       float64 `json:"cores,omitempty"`
	P50         float64 `json:"p50_ms,omitempty"`
	P99         float64 `json:"p99_ms,omitempty"`
	P999        float64 `json:"p999_ms,omitempty"`
}

func (f figures) record(t testing.TB) {
	b, err := json.Marshal(f)
	require.NoError(t, err)
	t.Logf("%s", b)
	if *output == "" {
		return
	}
	w, err := os.OpenFile(*output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	defer w.Close()
	_, err = w.Write(append(b, '\n'))
	require.NoError(t, err)
}

func TestDrain(t *testing.T) {
	measured(t)
	for _, kind := range strings.Split(*sources, ",") {
		t.Run(kind, func(t *testing.T) {
			s := newSource(t, kind)
			all := chosen(t, s)
			s.begin(t)
			single := *rows * 3 / 10
			began := time.Now()
			s.write(t, load{rows: single, perTx: 1, size: 450})
			s.write(t, load{from: single, rows: *rows - single, perTx: 10, size: 450})
			t.Logf("%d rows written in %.0f s", *rows, time.Since(began).Seconds())
			for run := range *runs {
				for _, a := range all {
					f := drain(t, s, a, *rows)
					f.What, f.Run = "drain", run+1
					f.record(t)
				}
			}
		})
	}
}

// drain lets an arm read the whole backlog into a topic and counts at the broker.
func drain(t *testing.T, s *source, a arm, n int) figures {
	topic := s.kafka.NewTopic(t, 6)
	defer s.kafka.DeleteTopic(t, topic)
	return drainInto(t, s, a, n, topic)
}

func drainInto(t *testing.T, s *source, a arm, n int, topics ...string) figures {
	a.prepare(t, topics...)
	s.calm(t)
	time.Sleep(3 * time.Second) // what ran before goes to rest
	count := counter(t, s.kafka, topics...)
	database, broker := s.cpu(t), s.kafka.CPUSeconds(t)

	began := time.Now()
	p := a.start(t)
	type sample struct {
		at time.Time
		n  int64
	}
	var samples []sample
	for last := int64(0); last < int64(n); {
		require.True(t, p.Running(), p.Stderr())
		last = count()
		if last > 0 {
			samples = append(samples, sample{time.Now(), last})
		}
		if len(samples) == 0 {
			time.Sleep(20 * time.Millisecond)
		} else {
			time.Sleep(100 * time.Millisecond)
		}
	}
	million := float64(n) / 1e6
	f := figures{Source: s.kind, Arm: a.name(), Events: int64(n), CPU: p.CPUSeconds(t) / million, Peak: mebibytes(p.PeakRSS(t)),
		DatabaseCPU: (s.cpu(t) - database) / million, BrokerCPU: (s.kafka.CPUSeconds(t) - broker) / million}
	if o, ok := a.(*outtail); ok {
		f.Mallocs = o.Metric(t, "go_memstats_mallocs_total") / float64(n)
	}
	first, end := samples[0], samples[len(samples)-1]
	f.First, f.FromStart = first.at.Sub(began).Seconds(), float64(n)/end.at.Sub(began).Seconds()
	f.PerSecond = float64(end.n-first.n) / end.at.Sub(first.at).Seconds()
	var from, to sample
	for _, x := range samples {
		if from.n == 0 && x.n >= int64(n)/4 {
			from = x
		}
		if x.n <= int64(n)*99/100 {
			to = x
		}
	}
	if to.at.After(from.at) && from.n > 0 {
		f.Steady = float64(to.n-from.n) / to.at.Sub(from.at).Seconds()
	}
	time.Sleep(3 * time.Second)
	f.Idle = mebibytes(p.RSS(t))
	p.Terminate(t)
	if o, ok := a.(*outtail); ok && o.pipelines > 1 {
		return f // several times the same events
	}
	f.Again = check(t, s.kafka, n, topics...)
	return f
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// counter gives a function that counts the records of topics by their offsets.
func counter(t testing.TB, k *harness.Kafka, topics ...string) func() int64 {
	adm := kadm.NewClient(k.Client(t))
	return func() (n int64) {
		ends, err := adm.ListEndOffsets(t.Context(), topics...)
		require.NoError(t, err)
		require.NoError(t, ends.Error())
		ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
		return n
	}
}
