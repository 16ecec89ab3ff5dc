package bench

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// arm is a connector under measurement.
type arm interface {
	name() string
	// prepare forgets all progress: the next start reads the backlog from its beginning, into these topics.
	prepare(t testing.TB, topics ...string)
	start(t testing.TB) *harness.Process
}

// outtail is what is measured, under more than one name where it is its own control.
type outtail struct {
	s         *source
	label     string
	pipelines int // which all read the same backlog, each into the topic; 0: one
	parked    int // aggregates that wait in the dead-letter store, none of them in the backlog
	routes    int // of the pipeline, one for each type of event, in turns over the topics; 0: one for all
	*harness.Outtail
}

func (o *outtail) name() string { return o.label }

const configuration = `
data_dir: {{.DataDir}}
admin: { listen: {{.Admin}} }
log: { format: text }
pipelines:
{{- range $i, $source := .Sources}}
  - name: bench{{$i}}
    source: {{$source}}
    columns: debezium
    routes:
{{- range $.Routes}}
      - {{.}}
{{- end}}
    sink:
      kafka: { brokers: [{{$.Brokers}}], compression: lz4 }
{{- end}}
`

func (o *outtail) prepare(t testing.TB, topics ...string) {
	var all []string
	for i := range max(1, o.pipelines) {
		all = append(all, o.s.configured(t, fmt.Sprintf("bench%d", i)))
	}
	routes := []string{"topic: " + topics[0]}
	for i := range o.routes {
		route := fmt.Sprintf("{ match: { event_type: OrderCreated.%d }, topic: %s }", i, topics[i%len(topics)])
		routes = append(routes[:i], route)
	}
	o.Outtail = harness.NewOuttail(t, servers.Binary(t), configuration, map[string]any{
		"Sources": all, "Routes": routes, "Brokers": strings.Join(o.s.kafka.Brokers(), ", "),
	})
	if o.parked > 0 {
		park(t, o.DataDir, o.parked)
	}
}

// park puts an event of each of n aggregates into the dead-letter store of an outtail that does not run.
func park(t testing.TB, dir string, n int) {
	store, err := checkpoint.Open(checkpoint.Options{Dir: dir, Version: "bench"})
	require.NoError(t, err)
	var ops []event.Parking
	for i := range n {
		key := fmt.Sprintf("parked-%d", i)
		row := event.Row{event.Payload: {Set: true, Bytes: make([]byte, 450)}}
		e := &event.Parked{Order: int64(i), Index: uint64(i), ID: key, Aggregate: "order\x00" + key, Topic: "parked", Key: []byte(key), Code: "OT5009", Class: "record",
			Size: 1000, ParkedAt: time.Now(), Row: &row}
		ops = append(ops, event.Parking{Entry: e, Order: e.Order})
	}
	require.NoError(t, store.DeadLetters().Park(t.Context(), "bench0", ops))
	require.NoError(t, store.Close())
}

func (o *outtail) start(t testing.TB) *harness.Process {
	if *profiles == "" {
		return o.Start(t)
	}
	return o.Start(t, "--cpu-profile", filepath.Join(*profiles, strings.ReplaceAll(t.Name(), "/", "-")+"-"+harness.Unique()+".pprof"))
}

// configured is the source of the configuration, set to the backlog's beginning; slot is Postgres'.
func (s *source) configured(t testing.TB, slot string) string {
	if s.kind == "postgres" {
		return fmt.Sprintf("{ postgres: { host: 127.0.0.1, port: %d, user: postgres, password: %s, database: %s, tls: { mode: %s }, slot: %s, publication: bench, tables: [public.outbox], start: now } }",
			cmp.Or(s.via, s.pg.Port), harness.RootPassword, s.db, cmp.Or(s.tls, "disable"), s.slot(t, slot))
	}
	return fmt.Sprintf("{ mysql: { host: 127.0.0.1, port: %d, user: root, password: %s, database: %s, tls: { mode: %s }, tables: [outbox], start: { gtid: %s } } }",
		cmp.Or(s.via, s.my.Port), harness.RootPassword, s.db, cmp.Or(s.tls, "disable"), strconv.Quote(s.gtid))
}

// chosen are the arms for a source, in the order in which they take turns.
func chosen(t *testing.T, s *source) (all []arm) {
	for _, name := range strings.Split(*arms, ",") {
		switch name {
		case "outtail", "control":
			all = append(all, &outtail{s: s, label: name})
		case "parked":
			all = append(all, &outtail{s: s, label: name, parked: 10_000})
		case "debezium":
			if d := newDebezium(t, s); d != nil {
				all = append(all, d)
			}
		default:
			t.Fatalf("no arm is called %q: outtail, control, parked, debezium", name)
		}
	}
	return all
}
