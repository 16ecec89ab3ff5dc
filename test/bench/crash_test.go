package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCrash kills each arm with SIGKILL in the middle of a drain and counts what is sent again.
func TestCrash(t *testing.T) {
	measured(t)
	n := min(*rows, 300_000)
	for _, kind := range strings.Split(*sources, ",") {
		t.Run(kind, func(t *testing.T) {
			s := newSource(t, kind)
			all := chosen(t, s)
			s.begin(t)
			s.write(t, load{rows: n, perTx: 10, size: 450})
			for run := range *runs {
				for _, a := range all {
					topic := s.kafka.NewTopic(t, 6)
					a.prepare(t, topic)
					s.calm(t)
					count := counter(t, s.kafka, topic)
					p := a.start(t)
					for count() < int64(n)/2 {
						require.True(t, p.Running(), p.Stderr())
						time.Sleep(5 * time.Millisecond)
					}
					p.Kill(t)
					killed := time.Now()
					sent := count()
					p = a.start(t)
					for count() == sent {
						require.True(t, p.Running(), p.Stderr())
						time.Sleep(20 * time.Millisecond)
					}
					first := time.Since(killed)
					// What is sent again is not known beforehand: the end is where nothing comes any more.
					for last, still := count(), 0; still < 20; time.Sleep(200 * time.Millisecond) {
						if c := count(); c != last || c < int64(n) {
							last, still = c, 0
							continue
						}
						still++
					}
					p.Terminate(t)
					f := figures{What: "crash", Source: kind, Arm: a.name(), Run: run + 1, Events: int64(n), First: first.Seconds()}
					f.Again = check(t, s.kafka, n, topic)
					f.record(t)
					s.kafka.DeleteTopic(t, topic)
				}
			}
		})
	}
}
