package chaos

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

// TestOutage pauses the broker for longer than the servers wait for a silent replica, kills it, cuts the database's
// connections and restarts the database, under load. Nothing is lost or disordered, memory stays bounded, and the
// replication session outlives the broker's pause. What the server keeps meanwhile is told as the server
// tells it. OUTTAIL_LONG=1 pauses for ten minutes.
func TestOutage(t *testing.T) {
	pause := 20 * time.Second
	if os.Getenv("OUTTAIL_LONG") != "" {
		pause = 10 * time.Minute
	}
	for name, open := range map[string]func(t *testing.T) (shop.Database, *harness.Proxy, func()){
		"postgres": func(t *testing.T) (shop.Database, *harness.Proxy, func()) {
			s := harness.StartPostgres(t, harness.NewestPostgres(), harness.PostgresOptions{Settings: map[string]string{"wal_sender_timeout": "6s"}})
			via := harness.NewProxy(t, s.Addr())
			return shop.NewPostgres(t, s, via), via, func() { s.Kill(t); s.Start(t) }
		},
		"mysql": func(t *testing.T) (shop.Database, *harness.Proxy, func()) {
			s := harness.StartMySQL(t, harness.MySQLOptions{Flags: []string{"--net_write_timeout=6"}})
			via := harness.NewProxy(t, s.Addr())
			return shop.NewMySQL(t, s, "mysql", via), via, func() { s.Kill(t); s.Start(t) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each has servers of its own, and mostly waits
			kafka := harness.StartKafka(t, harness.KafkaOptions{})
			db, via, restart := open(t)
			topic := kafka.NewTopic(t, 3)
			o := newOuttail(t, db, kafka, topic)
			p := o.Start(t)
			p.WaitReady(t)

			written := &shop.Written{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			loaded := make(chan error, 1)
			go func() { // ends with ctx, at the end of the drill
				loaded <- shop.Load{Events: 10_000_000, Aggregates: 200, Topic: topic, Seed: 3, Pause: 10 * time.Millisecond, Persist: true}.WriteTo(ctx, db, written)
			}()
			grows := func(what string) {
				before := kafka.Count(t, topic)
				p.Until(t, what, func() bool { return kafka.Count(t, topic) > before+1000 })
			}
			grows("events before the drill")

			session := db.Session(t)
			require.NotEmpty(t, session)
			kafka.Pause(t)
			select { // the drill itself takes this long; nothing is waited for
			case <-time.After(pause):
			case <-p.Done():
				require.FailNow(t, "the process ended while the broker was paused")
			}
			require.Equal(t, session, db.Session(t), "the replication session outlived the broker's pause")
			retainedIsTold(t, o, p, db)
			kafka.Unpause(t)
			grows("events after the broker's pause")

			kafka.Kill(t)
			p.WaitStatus(t, "/readyz", 503)
			kafka.Start(t)
			p.WaitReady(t)
			grows("events after the broker's death")

			for range 5 {
				via.Cut()
				grows("events after a cut")
			}
			restart()
			grows("events after the database's restart")

			cancel()
			<-loaded
			committed := written.Committed(t, db)
			p.Until(t, "everything delivered", func() bool {
				return len(distinct(harness.FromKafka(kafka.Records(t, topic)))) >= len(committed)
			})
			require.Less(t, p.PeakRSS(t), int64(150<<20))
			require.Equal(t, 0, p.Terminate(t).Code)
			report := harness.Check(committed, harness.FromKafka(kafka.Records(t, topic)), 0)
			t.Logf("peak %d MiB: %s", p.PeakRSS(t)>>20, report)
			require.NoError(t, report.Err())
		})
	}
}

// retainedIsTold: while nothing is confirmed the slot only ever keeps more, so that the metric, which is of some seconds ago, lies
// between what the server said before and says after.
func retainedIsTold(t *testing.T, o *harness.Outtail, p *harness.Process, db shop.Database) {
	pg, ok := db.(*shop.Postgres)
	if !ok {
		return
	}
	kept := func() float64 {
		n, err := strconv.ParseFloat(pg.Server.Scalar(t, pg.DB, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) FROM pg_replication_slots WHERE slot_name = $1", pg.Slot()), 64)
		require.NoError(t, err)
		return n
	}
	before, told := kept(), 0.0
	p.Until(t, "what the slot keeps to be told", func() bool { told = o.Metric(t, "outtail_source_retained_bytes"); return told >= before })
	after := kept()
	require.LessOrEqual(t, told, after)
	t.Logf("the slot keeps %.0f to %.0f bytes, told as %.0f; %d MiB of memory", before, after, told, p.PeakRSS(t)>>20)
}

func distinct(delivered []harness.Delivered) map[string]bool {
	ids := map[string]bool{}
	for _, d := range delivered {
		ids[d.ID] = true
	}
	return ids
}
