package failures

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

// cell is one square of the matrix: a shop under load, a topic, and an outtail between them.
type cell struct {
	*testing.T
	db     shop.Database
	kafka  *harness.Kafka
	topic  string
	policy string

	outtail *harness.Outtail
	process *harness.Process
	vars    map[string]any
	ended   []string // stderr of processes that have ended

	user, password string // of a secured broker

	written *shop.Written
	bad     int // Load.Bad
	writers int
	seed    uint64
	pause   func() // ends the load
	kills   int
	session string // of replication, before a failure
	// before are the records of a topic that was deleted.
	before []harness.Delivered
}

// aggregates of a load: enough that parking some of them leaves others.
const aggregates = 400

func newCell(t *testing.T, db shop.Database, kafka *harness.Kafka, policy string) *cell {
	c := &cell{T: t, db: db, kafka: kafka, policy: policy, topic: "t." + harness.Unique(), written: &shop.Written{}, writers: 2}
	kafka.CreateTopic(t, c.topic, 3, nil)
	c.vars = map[string]any{
		"Source": db.Source(""), "Topic": c.topic, "Brokers": strings.Join(kafka.Brokers(), ", "), "Sink": "", "Match": "", "Policy": policy,
		"Level": "info", "Columns": "outtail", "More": "", "Drain": "2s",
	}
	c.outtail = harness.NewOuttail(t, servers.Binary(t), configuration, c.vars)
	return c
}

// through has outtail log in to a secured broker, as a user of its own who may produce to the topic.
func (c *cell) through(operations ...harness.Right) {
	c.user, c.password = c.kafka.NewUser(c)
	c.kafka.Grant(c, c.user, c.topic, operations...)
	c.configure("Brokers", c.kafka.Proxy.Addr(), "Sink", c.sasl(c.password))
}

func (c *cell) sasl(password string) string {
	return fmt.Sprintf(", sasl: { mechanism: scram-sha-256, user: %s, password: %s }", c.user, password)
}

// configure changes variables of the configuration, for the next start.
func (c *cell) configure(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		c.vars[pairs[i]] = pairs[i+1]
	}
	c.outtail.Rewrite(c, configuration, c.vars)
}

func (c *cell) start() {
	c.Helper()
	c.process = c.outtail.Start(c)
	c.process.WaitReady(c)
}

// stop ends outtail, which has to be clean.
func (c *cell) stop() {
	c.Helper()
	r := c.process.Terminate(c)
	require.Equal(c, 0, r.Code, r.Stderr)
	c.ended = append(c.ended, r.Stderr)
}

// stderr is what all processes of the cell wrote.
func (c *cell) stderr() string {
	return strings.Join(c.ended, "") + c.process.Stderr()
}

// load begins to write, and goes on until pause.
func (c *cell) load() {
	until, done := make(chan struct{}), make(chan error, 1)
	c.seed++
	l := shop.Load{
		Events: 1 << 30, Aggregates: aggregates, Writers: c.writers, Topic: c.topic, Seed: c.seed, Pause: 5 * time.Millisecond, Bad: c.bad, Until: until,
	}
	go func() { done <- l.WriteTo(context.Background(), c.db, c.written) }() // ends with until
	end := sync.OnceFunc(func() { close(until) })
	c.Cleanup(end)
	c.pause = func() {
		end()
		require.NoError(c, <-done)
		c.pause = nil
	}
}

// more waits until the load has written n events more.
func (c *cell) more(n int) {
	c.Helper()
	from := c.written.Len()
	require.Eventually(c, func() bool { return c.written.Len() >= from+n }, harness.Patience, 5*time.Millisecond, "the load does not go on")
}

// flows waits until n more events were acknowledged.
func (c *cell) flows(n int) {
	c.Helper()
	from := c.acked()
	c.process.Until(c, fmt.Sprintf("%d more acknowledged events", n), func() bool { return c.acked() >= from+float64(n) })
}

func (c *cell) acked() float64 { return c.outtail.Metric(c, "outtail_messages_acked_total") }

// says waits until /readyz names a code.
func (c *cell) says(code string) {
	c.Helper()
	c.process.Until(c, "a reason with code "+code, func() bool { return c.said(code) })
}

func (c *cell) said(code string) bool {
	status, body := c.outtail.Get(c, "/readyz")
	return status == 503 && strings.Contains(body, `"`+code+`"`)
}

// settled ends the load and waits until all of it was acknowledged, parked or skipped. It gives what committed.
func (c *cell) settled() []harness.Committed {
	c.Helper()
	if c.pause != nil {
		c.pause()
	}
	committed := c.written.Committed(c, c.db)
	c.process.Until(c, "everything delivered, parked or skipped", func() bool { return c.passed() == len(committed) })
	return committed
}

// passed is how many events the stored position is behind.
func (c *cell) passed() int {
	var state struct{ Pipelines []struct{ Events int } }
	c.outtail.CheckpointJSON(c, &state)
	if len(state.Pipelines) == 0 {
		return 0
	}
	return state.Pipelines[0].Events
}

type letter struct {
	ID     string
	Behind bool
	Code   string
}

// parked is what waits in the dead-letter store.
func (c *cell) parked() (all []letter) {
	c.Helper()
	r := c.outtail.Run(c, "dlq", "list", "-c", c.outtail.Config, "--json")
	require.Equal(c, 0, r.Code, r.Stderr)
	require.NoError(c, json.Unmarshal([]byte(r.Stdout), &all))
	return all
}

var skippedLine = regexp.MustCompile(`msg=skipped .*\bcode=(\S+) .*\bid=(\S+)`)

// skipped is what the log says was left out: one line each.
func (c *cell) skipped() (all []letter) {
	for _, m := range skippedLine.FindAllStringSubmatch(c.stderr(), -1) {
		all = append(all, letter{Code: m[1], ID: m[2]})
	}
	return all
}

// delivered is what the topic holds, after what it held before it was deleted.
func (c *cell) delivered() []harness.Delivered {
	now := harness.FromKafka(c.kafka.Records(c, c.topic))
	for i := range now {
		now[i].Offset += 1 << 40
	}
	return append(now, c.before...)
}

// without leaves out some events.
func without[E any](all []E, id func(E) string, left []letter) (rest []E) {
	out := map[string]bool{}
	for _, l := range left {
		out[l.ID] = true
	}
	for _, e := range all {
		if !out[id(e)] {
			rest = append(rest, e)
		}
	}
	return rest
}

// check compares what committed with what was delivered, but for what was left out. What is parked may have arrived before it was
// known that an earlier event of its aggregate fails; it is sent again.
func (c *cell) check(committed []harness.Committed, left []letter) *harness.Report {
	c.Helper()
	report := harness.Check(
		without(committed, func(e harness.Committed) string { return e.ID }, left),
		without(c.delivered(), func(e harness.Delivered) string { return e.ID }, left), c.kills)
	require.NoError(c, report.Err())
	return report
}

// replay sends what is parked again, all of it.
func (c *cell) replay() {
	c.Helper()
	r := c.outtail.Run(c, "dlq", "replay", "-c", c.outtail.Config, "--all", "--reason", "mended")
	require.Equal(c, 0, r.Code, r.Stdout+r.Stderr)
	require.Empty(c, c.parked())
}
