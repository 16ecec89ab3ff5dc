package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

// scene is a small shop, a topic of its own and an outtail between them, with a consumer that compares what arrives with
// what committed. All events are of one aggregate, so that the order of all of them is promised (I3).
type scene struct {
	t     *testing.T
	db    shop.Database
	kafka *harness.Kafka
	topic string
	o     *harness.Outtail
	vars  map[string]any

	sent     []string // ids, in commit order
	consumer *kgo.Client
	seen     []*kgo.Record
}

// sceneConfiguration gives up soon on a source that cannot be used, and its last waits for acks are short.
const sceneConfiguration = `
data_dir: {{.DataDir}}
admin: { listen: {{.Admin}} }
log: { format: text, level: {{.Level}} }
start_timeout: {{.StartTimeout}}
pipelines:
  - name: orders
    source:
      {{.Source}}
    columns: outtail
    routes:
      - { {{.Match}}topic: {{.Topic}} }
    sink:
      kafka: { brokers: [{{.Brokers}}]{{.Sink}} }
`

func newScene(t *testing.T, db shop.Database) *scene {
	kafka := servers.Kafka(t)
	s := &scene{t: t, db: db, kafka: kafka}
	s.vars = map[string]any{
		"Source": db.Source(""), "Brokers": strings.Join(kafka.Brokers(), ", "), "StartTimeout": "60s", "Level": "info", "Match": "", "Sink": "",
	}
	s.useTopic(kafka.NewTopic(t, 1))
	s.o = harness.NewOuttail(t, servers.Binary(t), sceneConfiguration, s.vars)
	return s
}

// eachKind runs a test over one server of each kind, where the version of Postgres makes no difference.
func eachKind(t *testing.T, test func(t *testing.T, db shop.Database)) {
	t.Run("postgres", func(t *testing.T) { test(t, shop.NewPostgres(t, servers.Postgres(t, "17"), nil)) })
	t.Run("mysql", func(t *testing.T) { test(t, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil)) })
}

func (s *scene) useTopic(name string) { s.topic, s.vars["Topic"] = name, name }

// configure changes some variables of the configuration, for the next start.
func (s *scene) configure(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		s.vars[pairs[i]] = pairs[i+1]
	}
	s.o.Rewrite(s.t, sceneConfiguration, s.vars)
}

// source is the source's settings with one of them replaced.
func (s *scene) source(key, value string) string {
	re := regexp.MustCompile(`\b` + key + `: (\[[^]]*\]|\{[^}]*\}|[^,}]+)([,} ])`)
	was := s.db.Source("")
	is := re.ReplaceAllString(was, key+": "+strings.ReplaceAll(value, "$", "$$")+"$2")
	require.NotEqual(s.t, was, is, "no setting %s in %s", key, was)
	return is
}

// start starts outtail and waits until it streams.
func (s *scene) start() *harness.Process {
	p := s.o.Start(s.t)
	p.WaitReady(s.t)
	return p
}

const insertEvent = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES (?, 'order', 'order-1', ?, ?)"

// insert commits n events in one transaction and expects them to arrive.
func (s *scene) insert(n int) {
	s.sent = append(s.sent, s.insertUnseen(n, "order.changed")...)
}

// insertUnseen commits events that nobody expects to arrive.
func (s *scene) insertUnseen(n int, eventType string) (ids []string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), harness.Patience)
	defer cancel()
	tx, err := s.db.Begin(ctx)
	require.NoError(s.t, err)
	for range n {
		id := newUUID()
		require.NoError(s.t, tx.Exec(ctx, insertEvent, id, eventType, fmt.Sprintf(`{"id": %q}`, id)))
		ids = append(ids, id)
	}
	require.NoError(s.t, tx.Commit(ctx))
	return ids
}

// newUUID makes an id that a column of type uuid takes.
func newUUID() string { return "00000000-0000-4000-8000-00" + harness.Unique() }

// arrived waits until all that was inserted is in the topic, and fails on anything else there: loss, invention, disorder.
// What was sent again behind a start is allowed.
func (s *scene) arrived(p *harness.Process) {
	s.t.Helper()
	if s.consumer == nil {
		s.consumer = s.kafka.Client(s.t, kgo.ConsumeTopics(s.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	}
	p.Until(s.t, fmt.Sprintf("%d events in topic %s", len(s.sent), s.topic), func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), 200*time.Millisecond)
		defer cancel()
		s.seen = append(s.seen, s.consumer.PollFetches(ctx).Records()...)
		return len(s.firsts()) >= len(s.sent)
	})
	require.Equal(s.t, s.sent, s.firsts(), "every event that committed, in commit order, and no other")
}

// firsts are the ids in the order of their first appearance.
func (s *scene) firsts() []string {
	var ids []string
	known := map[string]bool{}
	for _, r := range s.seen {
		if id := header(r, "id"); !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// prove shows that events flow: it starts outtail, lets one more event commit, sees all arrive and stops it cleanly.
func (s *scene) prove() {
	s.t.Helper()
	p := s.start()
	s.insert(1)
	s.arrived(p)
	s.stop(p)
}

func (s *scene) stop(p *harness.Process) {
	s.t.Helper()
	r := p.Terminate(s.t)
	require.Equal(s.t, 0, r.Code, r.Stderr)
}

// stored is what `checkpoint show --json` says of the pipeline.
func (s *scene) stored() entry {
	s.t.Helper()
	var state struct{ Pipelines []entry }
	s.o.CheckpointJSON(s.t, &state)
	require.Len(s.t, state.Pipelines, 1)
	return state.Pipelines[0]
}

type entry struct {
	Source struct {
		Kind, LSN, GTID, File string
		Pos                   uint64
		ServerUUID            string `json:"server_uuid"`
	}
	Prefix *struct {
		Tx   string
		Rows uint64
	}
	Sink   struct{ Kind, ClusterID string }
	Events uint64
}

// reasons is what /readyz lists.
func reasons(t *testing.T, body string) []reason {
	t.Helper()
	var list []reason
	require.NoError(t, json.Unmarshal([]byte(body), &list), body)
	return list
}

type reason struct {
	Pipeline, Code, Text string
	Since                time.Time
}

// says waits until /readyz answers 503 with a reason of this code, and gives its text.
func (s *scene) says(p *harness.Process, code string) (text string) {
	s.t.Helper()
	p.Until(s.t, "a reason with code "+code, func() bool {
		status, body := s.o.Get(s.t, "/readyz")
		if status != 503 {
			return false
		}
		for _, r := range reasons(s.t, body) {
			if r.Code == code {
				require.False(s.t, r.Since.IsZero())
				text = r.Text
				return true
			}
		}
		return false
	})
	return text
}

// set runs one of the ways out of a safety stop.
func (s *scene) set(to string) harness.Result {
	s.t.Helper()
	return s.o.Run(s.t, "checkpoint", "set", "-c", s.o.Config, "--pipeline", "orders", "--to", to, "--reason", "test")
}

func (s *scene) accept(code string) {
	s.t.Helper()
	r := s.o.Run(s.t, "checkpoint", "accept", "-c", s.o.Config, "--pipeline", "orders", "--code", code, "--reason", "test")
	require.Equal(s.t, 0, r.Code, r.Stderr)
}

// stops runs outtail to its end, which is a stop that a person has to decide, and gives what it printed.
func (s *scene) stops(exit int, says ...string) (stderr string) {
	s.t.Helper()
	r := s.o.Run(s.t, "run", "-c", s.o.Config)
	require.Equal(s.t, exit, r.Code, r.Stderr)
	for _, want := range says {
		require.Contains(s.t, r.Stderr, want)
	}
	return r.Stderr
}

// printedCommand matches a way out as a stop prints it: everything but the reason is there to be copied.
var printedCommand = regexp.MustCompile(`outtail (checkpoint (?:set|accept) -c (\S+) --pipeline orders --(?:to|code) (?:'[^']+'|[^\s']+)) --reason R`)

// takeWay runs the printed command that ends in choice ("--to now", "--code OT6003").
func (s *scene) takeWay(stderr, choice string) {
	s.t.Helper()
	var found []string
	for _, m := range printedCommand.FindAllStringSubmatch(stderr, -1) {
		require.Equal(s.t, s.o.Config, m[2], "the command names the file")
		found = append(found, m[1])
		if !strings.HasSuffix(strings.ReplaceAll(m[1], "'", ""), choice) {
			continue
		}
		r := s.o.Run(s.t, append(strings.Fields(strings.ReplaceAll(m[1], "'", "")), "--reason", "test")...)
		require.Equal(s.t, 0, r.Code, r.Stderr)
		require.NotEmpty(s.t, r.Stdout)
		return
	}
	require.Failf(s.t, "no such way out", "%s is not among %q, in:\n%s", choice, found, stderr)
}

// times is how often an event is in the topic.
func (s *scene) times(id string) (n int) {
	for _, r := range s.seen {
		if header(r, "id") == id {
			n++
		}
	}
	return n
}
