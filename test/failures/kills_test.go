package failures

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

// steady is the broker that nothing happens to but what concerns one topic or user.
func steady(t *testing.T) *harness.Kafka {
	return servers.KafkaWith(t, harness.KafkaOptions{Secured: true})
}

const someRouted = "match: { event_type: order.* }, "

// TestKillsWhileParkingAndReplaying kills the process at random moments while it parks under load, and while it sends again what is
// parked. Nothing is lost, no aggregate is out of order, and every repeat is in one piece.
func TestKillsWhileParkingAndReplaying(t *testing.T) {
	kills := 10
	if long {
		kills = 60
	}
	for _, source := range sources {
		t.Run(source, func(t *testing.T) {
			t.Parallel() // it mostly waits for processes that start
			c := newCell(t, openShop(t, source), steady(t), "park")
			c.bad = 40
			c.configure("Match", someRouted)
			c.start()
			c.load()
			rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 4))
			parking, replaying := 0, 0
			for ; c.kills < kills; c.kills++ {
				var replay *harness.Process
				if mended := c.kills%2 == 1; mended {
					replay = c.outtail.Launch(t, "dlq", "replay", "-c", c.outtail.Config, "--all", "--reason", "route added")
				}
				select {
				case <-time.After(time.Duration(rnd.IntN(600)) * time.Millisecond):
				case <-c.process.Done():
				}
				require.True(t, c.process.Running(), c.process.Stderr())
				if replay == nil && c.outtail.Metric(t, "outtail_events_parked_total") > 0 {
					parking++
				}
				if replay != nil && replay.Running() && c.outtail.Metric(t, "outtail_replay_events_total", `result="acked"`) > 0 {
					replaying++
				}
				c.process.Kill(t)
				if replay != nil {
					replay.Wait(t)
				}
				if c.kills%2 == 0 {
					c.configure("Match", "")
				} else {
					c.configure("Match", someRouted)
				}
				c.start()
			}
			require.NotZero(t, parking, "no kill hit a process that was parking")
			if long {
				require.NotZero(t, replaying, "no kill hit a process that was sending again")
			}
			c.configure("Match", "")
			c.settled()
			c.stop()
			c.start()
			committed := c.settled()
			c.replay()
			t.Logf("%d kills, %d of them while it parked, %d while it sent again: %s", kills, parking, replaying, c.check(committed, nil))
			c.stop()
		})
	}
}

// TestBoundsOfTheStore: a store that reaches a bound under load ends the pipeline in front of the event that it has no room for. What
// to do is said; nothing was lost when it was done.
func TestBoundsOfTheStore(t *testing.T) {
	for _, bound := range []struct{ name, source, setting, raised string }{
		{"events", "postgres", "dead_letters: { max_events: 40 }", "dead_letters: { max_events: 100000 }"},
		{"bytes", "mysql", "dead_letters: { max_bytes: 60KiB }", "dead_letters: { max_bytes: 100MiB }"},
	} {
		t.Run(bound.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			c := newCell(t, openShop(t, bound.source), steady(t), "park")
			c.bad = 20
			c.configure("Match", someRouted, "More", bound.setting)
			c.start()
			c.load()
			r := c.process.Wait(t)
			require.Equal(t, 4, r.Code, r.Stderr)
			for _, said := range []string{"OT4012", "the dead-letter store is full", "max_" + bound.name} {
				require.Contains(t, r.Stderr, said)
			}
			full := len(c.parked())
			require.NotZero(t, full)
			// Started again as it is, it ends again, and is no further than before.
			passed := c.passed()
			r = c.outtail.Start(t).Wait(t)
			require.Equal(t, 4, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, "OT4012")
			require.LessOrEqual(t, len(c.parked()), 40+full)

			c.configure("More", bound.raised)
			c.start()
			committed := c.settled()
			require.GreaterOrEqual(t, len(committed), passed)
			require.Greater(t, len(c.parked()), full)
			c.check(committed, c.parked())
			c.stop()
			c.configure("Match", "")
			c.start()
			c.replay()
			t.Log(c.check(committed, nil))
			c.stop()
		})
	}
}
