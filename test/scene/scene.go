// Package scene is a stage for tests of the real binary: a shop, a topic and an outtail between them.
package scene

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

// Scene is a small shop, a topic of its own and an outtail between them, with a consumer that compares what arrives with
// what committed. All events are of one aggregate, so that the order of all of them is promised (I3).
type Scene struct {
	T       *testing.T
	DB      shop.Database
	Kafka   *harness.Kafka
	Topic   string
	Outtail *harness.Outtail
	Vars    map[string]any

	Sent []string      // ids that shall arrive, in commit order
	Seen []*kgo.Record // what arrived

	consumer *kgo.Client
}

// Configuration is a text/template over Vars. It gives up soon on a source that cannot be used, and its last waits for acks are short.
const Configuration = `
data_dir: {{.DataDir}}
admin: { listen: {{.Admin}} }
log: { format: text, level: {{.Level}} }
start_timeout: {{.StartTimeout}}
pipelines:
  - name: orders
    source:
      {{.Source}}
    columns: {{.Columns}}
    routes:
      - { {{.Match}}topic: {{.Topic}} }
    sink:
      kafka: { brokers: [{{.Brokers}}]{{.Sink}} }
    on_poison: {{.Poison}}
    on_no_route: {{.NoRoute}}
{{.Pipeline}}`

// New sets the stage.
func New(t *testing.T, servers *harness.Pool, db shop.Database) *Scene {
	kafka := servers.Kafka(t)
	s := &Scene{T: t, DB: db, Kafka: kafka}
	s.Vars = map[string]any{
		"Source": db.Source(""), "Brokers": strings.Join(kafka.Brokers(), ", "), "StartTimeout": "60s", "Level": "info", "Match": "", "Sink": "",
		"Columns": "outtail", "Pipeline": "", "Poison": "halt", "NoRoute": "halt",
	}
	s.UseTopic(kafka.NewTopic(t, 1))
	s.Outtail = harness.NewOuttail(t, servers.Binary(t), Configuration, s.Vars)
	return s
}

// UseKafka makes another cluster the one whose topic is looked at, from its start. The configuration is the test's to change.
func (s *Scene) UseKafka(k *harness.Kafka) { s.Kafka, s.consumer, s.Seen = k, nil, nil }

// UseTopic makes another topic the one that is written and looked at.
func (s *Scene) UseTopic(name string) { s.Topic, s.Vars["Topic"] = name, name }

// Configure changes some variables of the configuration, for the next start.
func (s *Scene) Configure(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		s.Vars[pairs[i]] = pairs[i+1]
	}
	s.Outtail.Rewrite(s.T, Configuration, s.Vars)
}

// Source is the source's settings with one of them replaced.
func (s *Scene) Source(key, value string) string {
	re := regexp.MustCompile(`\b` + key + `: (\[[^]]*\]|\{[^}]*\}|[^,}]+)([,} ])`)
	was := s.DB.Source("")
	is := re.ReplaceAllString(was, key+": "+strings.ReplaceAll(value, "$", "$$")+"$2")
	require.NotEqual(s.T, was, is, "no setting %s in %s", key, was)
	return is
}

// Start starts outtail and waits until it streams.
func (s *Scene) Start() *harness.Process {
	p := s.Outtail.Start(s.T)
	p.WaitReady(s.T)
	return p
}

// InsertEvent takes id, event_type and payload.
const InsertEvent = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES (?, 'order', 'order-1', ?, ?)"

// Expect names events that the test itself committed, by id and in commit order, as ones that shall arrive.
func (s *Scene) Expect(ids ...string) { s.Sent = append(s.Sent, ids...) }

// Insert commits n events in one transaction and expects them to arrive.
func (s *Scene) Insert(n int) {
	s.Sent = append(s.Sent, s.InsertUnseen(n, "order.changed")...)
}

// InsertUnseen commits events that nobody expects to arrive.
func (s *Scene) InsertUnseen(n int, eventType string) (ids []string) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), harness.Patience)
	defer cancel()
	tx, err := s.DB.Begin(ctx)
	require.NoError(s.T, err)
	for range n {
		id := NewUUID()
		require.NoError(s.T, tx.Exec(ctx, InsertEvent, id, eventType, fmt.Sprintf(`{"id": %q}`, id)))
		ids = append(ids, id)
	}
	require.NoError(s.T, tx.Commit(ctx))
	return ids
}

// NewUUID makes an id that a column of type uuid takes.
func NewUUID() string { return "00000000-0000-4000-8000-00" + harness.Unique() }

// Arrived waits until all that was inserted is in the topic, and fails on anything else there: loss, invention, disorder.
// What was sent again behind a start is allowed.
func (s *Scene) Arrived(p *harness.Process) {
	s.T.Helper()
	if s.consumer == nil {
		s.consumer = s.Kafka.Client(s.T, kgo.ConsumeTopics(s.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	}
	p.Until(s.T, fmt.Sprintf("%d events in topic %s", len(s.Sent), s.Topic), func() bool {
		ctx, cancel := context.WithTimeout(s.T.Context(), 200*time.Millisecond)
		defer cancel()
		s.Seen = append(s.Seen, s.consumer.PollFetches(ctx).Records()...)
		return len(s.Firsts()) >= len(s.Sent)
	})
	require.Equal(s.T, s.Sent, s.Firsts(), "every event that committed, in commit order, and no other")
}

// Firsts are the ids in the order of their first appearance.
func (s *Scene) Firsts() []string {
	var ids []string
	known := map[string]bool{}
	for _, r := range s.Seen {
		if id := Header(r, "id"); !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// Header is the text of a record's header, "" where there is none.
func Header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// Prove shows that events flow: it starts outtail, lets one more event commit, sees all arrive and stops it cleanly.
func (s *Scene) Prove() {
	s.T.Helper()
	p := s.Start()
	s.Insert(1)
	s.Arrived(p)
	s.Stop(p)
}

// Stop ends outtail by SIGTERM, which must be clean.
func (s *Scene) Stop(p *harness.Process) {
	s.T.Helper()
	r := p.Terminate(s.T)
	require.Equal(s.T, 0, r.Code, r.Stderr)
}

// Stored is what `checkpoint show --json` says of the pipeline.
func (s *Scene) Stored() Entry {
	s.T.Helper()
	var state struct{ Pipelines []Entry }
	s.Outtail.CheckpointJSON(s.T, &state)
	require.Len(s.T, state.Pipelines, 1)
	return state.Pipelines[0]
}

// Entry is a pipeline in `checkpoint show --json`.
type Entry struct {
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

// Reasons is what /readyz lists.
func Reasons(t *testing.T, body string) []Reason {
	t.Helper()
	var list []Reason
	require.NoError(t, json.Unmarshal([]byte(body), &list), body)
	return list
}

// Reason is one of /readyz.
type Reason struct {
	Pipeline, Code, Text string
	Since                time.Time
}

// Says waits until /readyz answers 503 with a reason of this code, and gives its text.
func (s *Scene) Says(p *harness.Process, code string) (text string) {
	s.T.Helper()
	p.Until(s.T, "a reason with code "+code, func() bool {
		status, body := s.Outtail.Get(s.T, "/readyz")
		if status != 503 {
			return false
		}
		for _, r := range Reasons(s.T, body) {
			if r.Code == code {
				require.False(s.T, r.Since.IsZero())
				text = r.Text
				return true
			}
		}
		return false
	})
	return text
}

// Set runs one of the ways out of a safety stop.
func (s *Scene) Set(to string) harness.Result {
	s.T.Helper()
	return s.Outtail.Run(s.T, "checkpoint", "set", "-c", s.Outtail.Config, "--pipeline", "orders", "--to", to, "--reason", "test")
}

// Accept runs checkpoint accept.
func (s *Scene) Accept(code string) {
	s.T.Helper()
	r := s.Outtail.Run(s.T, "checkpoint", "accept", "-c", s.Outtail.Config, "--pipeline", "orders", "--code", code, "--reason", "test")
	require.Equal(s.T, 0, r.Code, r.Stderr)
}

// Stops runs outtail to its end, which is a stop that a person has to decide, and gives what it printed.
func (s *Scene) Stops(exit int, says ...string) (stderr string) {
	s.T.Helper()
	r := s.Outtail.Run(s.T, "run", "-c", s.Outtail.Config)
	require.Equal(s.T, exit, r.Code, r.Stderr)
	for _, want := range says {
		require.Contains(s.T, r.Stderr, want)
	}
	return r.Stderr
}

// PrintedCommand matches a way out as a stop prints it: everything but the reason is there to be copied.
var PrintedCommand = regexp.MustCompile(`outtail (checkpoint (?:set|accept) -c (\S+) --pipeline orders --(?:to|code) (?:'[^']+'|[^\s']+)) --reason R`)

// TakeWay runs the printed command that ends in choice ("--to now", "--code OT6003").
func (s *Scene) TakeWay(stderr, choice string) {
	s.T.Helper()
	var found []string
	for _, m := range PrintedCommand.FindAllStringSubmatch(stderr, -1) {
		require.Equal(s.T, s.Outtail.Config, m[2], "the command names the file")
		found = append(found, m[1])
		if !strings.HasSuffix(strings.ReplaceAll(m[1], "'", ""), choice) {
			continue
		}
		r := s.Outtail.Run(s.T, append(strings.Fields(strings.ReplaceAll(m[1], "'", "")), "--reason", "test")...)
		require.Equal(s.T, 0, r.Code, r.Stderr)
		require.NotEmpty(s.T, r.Stdout)
		return
	}
	require.Failf(s.T, "no such way out", "%s is not among %q, in:\n%s", choice, found, stderr)
}

// Times is how often an event is in the topic.
func (s *Scene) Times(id string) (n int) {
	for _, r := range s.Seen {
		if Header(r, "id") == id {
			n++
		}
	}
	return n
}
