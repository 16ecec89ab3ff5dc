// Package bench measures: how fast a backlog drains, at what cost in CPU and memory. It is not a test: nothing is timed
// against a limit. `make bench` runs it; OUTTAIL_BENCH=1 turns it on.
package bench

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

var (
	servers harness.Pool
	runs    = flag.Int("runs", 1, "how often each source is drained; the median is printed too")
	rows    = flag.Int("rows", 1_000_000, "rows in the backlog: three in ten in transactions of one row, the others in transactions of ten")
	output  = flag.String("json", "", "write the figures to this file")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(servers.Run(m))
}

const configuration = `
data_dir: {{.DataDir}}
admin: { listen: {{.Admin}} }
log: { format: text }
pipelines:
  - name: orders
    source:
      {{.Source}}
    columns: outtail
    routes:
      - topic: {{.Topic}}
    sink:
      kafka: { brokers: [{{.Brokers}}] }
`

// figures of one drain.
type figures struct {
	Source        string  `json:"source"`
	Events        int64   `json:"events"`
	FirstSeconds  float64 `json:"start_to_first_seconds"`
	DrainSeconds  float64 `json:"first_to_last_seconds"`
	PerSecond     float64 `json:"events_per_second"`
	Steady        float64 `json:"steady_events_per_second"`
	CPUPerMillion float64 `json:"cpu_seconds_per_million"`
	PeakMiB       float64 `json:"peak_rss_mib"`
}

func TestDrain(t *testing.T) {
	if os.Getenv("OUTTAIL_BENCH") == "" {
		t.Skip("a measurement, not a test: make bench")
	}
	var all []figures
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			for range *runs {
				f := drain(t, kind)
				t.Logf("%s: %.0f ev/s (steady %.0f), first after %.2f s, %.1f CPU-s per million, peak %.0f MiB",
					kind, f.PerSecond, f.Steady, f.FirstSeconds, f.CPUPerMillion, f.PeakMiB)
				all = append(all, f)
			}
		})
	}
	if *output != "" {
		b, err := json.MarshalIndent(all, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*output, append(b, '\n'), 0o644))
	}
}

func drain(t *testing.T, kind string) figures {
	var db shop.Database
	if kind == "postgres" {
		db = shop.NewPostgres(t, servers.Postgres(t, "15"), nil)
	} else {
		db = shop.NewMySQL(t, servers.MySQL(t), "mysql", nil)
	}
	kafka := servers.Kafka(t)
	topic := kafka.NewTopic(t, 6)
	o := harness.NewOuttail(t, servers.Binary(t), configuration, map[string]any{
		"Source": db.Source(""), "Topic": topic, "Brokers": strings.Join(kafka.Brokers(), ", "),
	})
	p := o.Start(t)
	p.WaitReady(t)
	p.Terminate(t)
	backlog(t, db, *rows)

	began := time.Now()
	p = o.Start(t)
	var first, last time.Time
	var firstCount, count int64
	type sample struct {
		at time.Time
		n  int64
	}
	var samples []sample
	for count < int64(*rows) {
		require.True(t, p.Running(), p.Stderr())
		count = kafka.Count(t, topic)
		now := time.Now()
		if count > 0 && first.IsZero() {
			first, firstCount = now, count
		}
		samples = append(samples, sample{now, count})
		last = now
		time.Sleep(250 * time.Millisecond) // the sampling interval
	}
	cpu := cpuSeconds(t, p.PID())
	peak := p.PeakRSS(t)
	p.Terminate(t)
	f := figures{
		Source: kind, Events: count, FirstSeconds: first.Sub(began).Seconds(), DrainSeconds: last.Sub(first).Seconds(),
		PerSecond:     float64(count-firstCount) / last.Sub(first).Seconds(),
		CPUPerMillion: cpu / float64(count) * 1e6, PeakMiB: float64(peak) / (1 << 20),
	}
	// Steady: between a tenth and nine tenths of the backlog.
	var a, b sample
	for _, s := range samples {
		if a.n == 0 && s.n >= count/10 {
			a = s
		}
		if s.n <= count*9/10 {
			b = s
		}
	}
	if b.at.After(a.at) {
		f.Steady = float64(b.n-a.n) / b.at.Sub(a.at).Seconds()
	}
	return f
}

// backlog writes rows of 450-byte payloads, inside the server, so that the load costs little.
func backlog(t *testing.T, db shop.Database, n int) {
	single, tens := n*3/10, n*7/100
	insert := func(id, key string) string {
		return "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES (" + id + ", 'order', " + key + ", 'order.changed', p)"
	}
	if db.Kind() == "postgres" {
		one := insert("gen_random_uuid()", "'agg-' || (i % 1000)")
		db.Exec(t, fmt.Sprintf(`DO $$ DECLARE p jsonb := ('{"note": "' || repeat('x', 430) || '"}')::jsonb; BEGIN
			SET LOCAL synchronous_commit = off;
			FOR i IN 1..%d LOOP %s; COMMIT; END LOOP;
			FOR i IN 1..%d LOOP FOR j IN 1..10 LOOP %s; END LOOP; COMMIT; END LOOP; END $$`, single, one, tens, one))
		return
	}
	one := insert("UUID()", "CONCAT('agg-', i % 1000)")
	db.Exec(t, fmt.Sprintf(`CREATE PROCEDURE fill() BEGIN DECLARE i INT DEFAULT 0; DECLARE j INT; DECLARE p JSON DEFAULT CONCAT('{"note": "', REPEAT('x', 430), '"}');
		SET autocommit = 0;
		WHILE i < %d DO %s; COMMIT; SET i = i + 1; END WHILE; SET i = 0;
		WHILE i < %d DO SET j = 0; WHILE j < 10 DO %s; SET j = j + 1; END WHILE; COMMIT; SET i = i + 1; END WHILE; END`, single, one, tens, one))
	db.Exec(t, "SET GLOBAL sync_binlog = 0; SET GLOBAL innodb_flush_log_at_trx_commit = 0; CALL fill(); SET GLOBAL sync_binlog = 1; SET GLOBAL innodb_flush_log_at_trx_commit = 1")
}

// cpuSeconds is user and system time of a process, in seconds (proc(5), fields 14 and 15, in ticks of 10 ms).
func cpuSeconds(t *testing.T, pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	user, err := strconv.ParseFloat(fields[11], 64)
	require.NoError(t, err)
	system, err := strconv.ParseFloat(fields[12], 64)
	require.NoError(t, err)
	return (user + system) / 100
}
