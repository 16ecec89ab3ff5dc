package failures

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

// failure is one row of the matrix.
type failure struct {
	name string
	// code of what is wrong with an event, where it fails for its own sake: only then a policy says what becomes of it.
	code string
	// kafka starts what the failure hurts; nil is the shared broker, secured.
	kafka func(t *testing.T) *harness.Kafka
	// prepare makes the cell ready, before outtail starts.
	prepare func(c *cell)
	// happen is under load, and returns when outtail has said so. mend undoes it.
	happen, mend func(c *cell)
	// again: it is mended by another configuration, so outtail is started again.
	again bool
	// cut are the squares of every run: policy and source.
	cut []square
}

type square struct{ policy, source string }

// three are brokers of one cluster, which failures hurt one after the other.
type three struct {
	start func() []*harness.Kafka
	turn  sync.Mutex
}

func (c *three) of(t *testing.T) *harness.Kafka {
	c.turn.Lock()
	t.Cleanup(c.turn.Unlock)
	return c.start()[0]
}

func failures(cluster *three) []failure {
	return []failure{
		{
			name: "max.message.bytes shrinks", code: "OT5009",
			prepare: func(c *cell) { c.through() },
			happen:  func(c *cell) { c.kafka.AlterTopic(c, c.topic, "max.message.bytes", "5000") },
			mend:    func(c *cell) { c.kafka.AlterTopic(c, c.topic, "max.message.bytes", "1000012") },
			cut:     []square{{"park", "postgres"}, {"halt", "mysql"}},
		},
		{
			// The limit may not be read, so that the broker's refusal of a whole batch is the first word of it.
			name: "max.message.bytes shrinks and may not be read", code: "OT5010",
			// Compressed, what the load calls large would fit.
			prepare: func(c *cell) {
				c.through(harness.Write, harness.Describe)
				c.configure("Sink", c.vars["Sink"].(string)+", compression: none")
			},
			happen: func(c *cell) { c.kafka.AlterTopic(c, c.topic, "max.message.bytes", "5000") },
			mend:   func(c *cell) { c.kafka.AlterTopic(c, c.topic, "max.message.bytes", "1000012") },
			cut:    []square{{"dlq", "mysql"}, {"park", "mysql"}},
		},
		{
			name: "no route", code: "OT6101",
			prepare: func(c *cell) { c.through(); c.configure("Match", "match: { event_type: order.* }, ") },
			happen: func(c *cell) {
				c.pause()
				c.bad = 50
				c.load()
			},
			mend:  func(c *cell) { c.configure("Match", "") },
			again: true,
			cut:   []square{{"skip", "postgres"}},
		},
		{
			name:    "B084 topic deleted and made again",
			prepare: func(c *cell) { c.through() },
			happen: func(c *cell) {
				// What was acknowledged of a topic that is deleted is gone with it, so it is read first.
				c.settled()
				c.before = c.delivered()
				for i := range c.before {
					c.before[i].Offset -= 1 << 40
				}
				c.kafka.DeleteTopic(c, c.topic)
				c.load()
				c.says("OT5004")
			},
			mend: func(c *cell) { c.kafka.CreateTopic(c, c.topic, 3, nil) },
			cut:  []square{{"park", "mysql"}},
		},
		{
			name:    "ACL taken away",
			prepare: func(c *cell) { c.through() },
			happen:  func(c *cell) { c.kafka.Revoke(c, c.user, c.topic); c.says("OT5005") },
			mend:    func(c *cell) { c.kafka.Grant(c, c.user, c.topic) },
			cut:     []square{{"halt", "postgres"}},
		},
		{
			name:    "password changed",
			prepare: func(c *cell) { c.through() },
			happen:  func(c *cell) { c.kafka.SetPassword(c, c.user, "p"+harness.Unique()); c.says("OT5003") },
			mend: func(c *cell) {
				c.password = "p" + harness.Unique()
				c.kafka.SetPassword(c, c.user, c.password)
				c.configure("Sink", c.sasl(c.password))
			},
			again: true,
			cut:   []square{{"skip", "mysql"}},
		},
		{
			name:    "B085 min.insync.replicas unmet",
			kafka:   cluster.of,
			prepare: func(c *cell) { c.configure("More", "limits: { in_flight_events: 500 }") },
			happen: func(c *cell) {
				c.kafka.AlterTopic(c, c.topic, "min.insync.replicas", "3")
				cluster.start()[1].Kill(c)
				c.kafka.InSync(c, c.topic, 2)
				c.says("OT5001")
				c.process.Until(c, "reading to wait", func() bool { return c.outtail.Metric(c, "outtail_inflight_events") == 500 })
				c.session = c.db.Session(c)
				require.NotEmpty(c, c.session)
			},
			mend: func(c *cell) {
				cluster.start()[1].Start(c)
				c.kafka.InSync(c, c.topic, 3)
				began := time.Now()
				c.process.WaitReady(c)
				require.Less(c, time.Since(began), 10*time.Second, "it goes on soon after the topic does")
				require.Equal(c, c.session, c.db.Session(c), "the source's session lived on")
			},
			cut: []square{{"dlq", "postgres"}},
		},
		{
			name:   "broker killed",
			kafka:  func(t *testing.T) *harness.Kafka { return servers.Kafka(t) },
			happen: func(c *cell) { c.kafka.Kill(c); c.says("OT5001") },
			mend:   func(c *cell) { c.kafka.Start(c) },
			cut:    []square{{"halt", "mysql"}},
		},
		{
			name:   "broker frozen",
			kafka:  func(t *testing.T) *harness.Kafka { return harness.StartKafka(t, harness.KafkaOptions{}) },
			happen: func(c *cell) { c.kafka.Pause(c); c.says("OT5001") },
			mend:   func(c *cell) { c.kafka.Unpause(c) },
			cut:    []square{{"skip", "postgres"}},
		},
		{
			name:    "B085 leaders move",
			kafka:   cluster.of,
			prepare: func(c *cell) { c.kafka.AlterTopic(c, c.topic, "min.insync.replicas", "2") },
			happen: func(c *cell) {
				hurt := cluster.start()
				if !long {
					hurt = hurt[2:]
				}
				for _, k := range hurt {
					k.Kill(c)
					c.flows(200) // the others go on
					k.Start(c)
					c.flows(200)
				}
			},
			mend: func(*cell) {},
			cut:  []square{{"dlq", "postgres"}},
		},
	}
}

// TestMatrix lets every failure happen under load and every policy have its say, on both sources; without OUTTAIL_LONG a cut of it.
// What committed arrives, in order per aggregate, once but for what is sent again in one piece. Only what fails for an event's
// own sake is parked, skipped, or ends the pipeline; everything else is waited for, whatever the policy.
func TestMatrix(t *testing.T) {
	harness.Required(t)
	var mu sync.Mutex
	var table []string
	t.Run("failures", func(t *testing.T) {
		cluster := &three{start: sync.OnceValue(func() []*harness.Kafka { return harness.StartKafkaCluster(t, 3, nil) })}
		for _, f := range failures(cluster) {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel() // it mostly waits
				squares := f.cut
				if long {
					squares = nil
					for _, p := range policies {
						for _, s := range sources {
							squares = append(squares, square{p, s})
						}
					}
				}
				start := f.kafka
				if start == nil {
					start = steady
				}
				k := start(t)
				for _, s := range squares {
					t.Run(s.policy+"/"+s.source, func(t *testing.T) {
						began := time.Now()
						c := newCell(t, openShop(t, s.source), k, s.policy)
						line := f.play(c)
						mu.Lock()
						defer mu.Unlock()
						table = append(table, fmt.Sprintf("| %s | %s | %s | %s | %.0f s |", f.name, s.policy, s.source, line, time.Since(began).Seconds()))
					})
				}
			})
		}
	})
	slices.Sort(table)
	t.Log("failure | policy | source | committed | lost | out of order | duplicates | left by policy | took")
	for _, line := range table {
		t.Log(line)
	}
}

// play lets a failure happen in a cell, and gives what it cost.
func (f *failure) play(c *cell) string {
	if f.prepare != nil {
		f.prepare(c)
	}
	c.start()
	c.load()
	c.flows(200)
	f.happen(c)
	if f.code != "" {
		f.decided(c)
	}
	if c.process.Running() {
		c.more(300)
	}
	f.mend(c)
	if f.again && c.process.Running() {
		c.stop()
	}
	if !c.process.Running() {
		c.start()
	}
	c.process.WaitReady(c)
	c.flows(200)
	committed := c.settled()

	parked, skipped := c.parked(), c.skipped()
	left := append(slices.Clone(parked), skipped...)
	report := c.check(committed, left)
	f.onlyCulprits(c, parked, skipped)
	if len(parked) > 0 {
		c.replay()
		switch c.policy {
		case "park": // nothing was overtaken
			report = c.check(committed, nil)
		case "dlq": // they come behind what they preceded
			report = c.check(committed, parked)
			there := map[string]bool{}
			for _, d := range c.delivered() {
				there[d.ID] = true
			}
			for _, l := range parked {
				require.True(c, there[l.ID], "%s was replayed", l.ID)
			}
		}
	}
	c.stop()
	return fmt.Sprintf("%d | %d | %d | %d | %s", len(committed), len(report.Lost), len(report.OutOfOrder)+len(report.Broken), report.Duplicates, count(c, parked, skipped))
}

// decided waits until the policy has had its say.
func (f *failure) decided(c *cell) {
	switch c.policy {
	case "halt":
		r := c.process.Wait(c)
		require.Equal(c, 1, r.Code, r.Stderr)
		require.Contains(c, r.Stderr, "OT6001")
		require.Contains(c, r.Stderr, f.code)
		c.ended = append(c.ended, r.Stderr)
	case "skip":
		c.process.Until(c, "some skipped", func() bool { return c.outtail.Metric(c, "outtail_events_filtered_total", `reason="skipped"`) >= 3 })
	default:
		c.process.Until(c, "some parked", func() bool { return c.outtail.Metric(c, "outtail_events_parked_total", `reason="`+f.code+`"`) >= 3 })
	}
}

// onlyCulprits: what was parked or skipped is what fails for its own sake, and under policy park what waits behind it.
func (f *failure) onlyCulprits(c *cell, parked, skipped []letter) {
	if f.code == "" || c.policy == "halt" {
		require.Empty(c, parked)
		require.Empty(c, skipped)
		return
	}
	for _, l := range append(slices.Clone(parked), skipped...) {
		switch {
		case l.Behind:
			require.Equal(c, "park", c.policy)
		default:
			require.Equal(c, f.code, l.Code)
		}
	}
	require.Equal(c, c.policy == "skip", len(parked) == 0)
	require.Equal(c, c.policy == "skip", len(skipped) > 0)
}

func count(c *cell, parked, skipped []letter) string {
	behind := 0
	for _, l := range parked {
		if l.Behind {
			behind++
		}
	}
	switch {
	case len(skipped) > 0:
		return fmt.Sprintf("%d skipped", len(skipped))
	case len(parked) > 0 && c.policy == "park":
		return fmt.Sprintf("%d parked, %d behind them", len(parked)-behind, behind)
	case len(parked) > 0:
		return fmt.Sprintf("%d parked", len(parked))
	case len(c.ended) > 1 && strings.Contains(c.stderr(), "OT6001"):
		return "halted once"
	}
	return "nothing"
}
