package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/metrics"
	"github.com/outtail/outtail/pipeline"
)

// letterBox is a process that does not run, with a store and what stands beside its pipeline.
func letterBox(t *testing.T, log io.Writer, brokers, deadLetters string) (*process, config.Pipeline, *pipeline.Pipeline) {
	t.Helper()
	cfg, err := config.Parse("outtail.yaml", fmt.Appendf(nil, `
data_dir: %s
pipelines:
  - name: orders
    source: { postgres: { user: u, database: d, tables: [public.outbox], start: now } }
    routes: [{ topic: orders }]
    dead_letters: { %s }
    sink: { kafka: { brokers: [%s] } }
`, t.TempDir(), deadLetters, brokers), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	store, err := checkpoint.Open(checkpoint.Options{Dir: cfg.DataDir, Version: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	p := &process{cfg: cfg, store: store, observer: metrics.New(metrics.Options{Pipelines: []string{"orders"}}), log: slog.New(slog.NewTextHandler(log, nil)), stdout: io.Discard}
	p.committer = pipeline.NewCommitter(store, time.Second, p.log, p.observer)
	pl, err := p.build(cfg.Pipelines[0])
	require.NoError(t, err)
	return p, cfg.Pipelines[0], pl
}

func letter(order int64, age time.Duration, payload string) event.Parking {
	var row event.Row
	row[event.ID] = event.Value{Set: true, Bytes: fmt.Appendf(nil, "id-%d", order)}
	row[event.Payload] = event.Value{Set: true, Bytes: []byte(payload)}
	return event.Parking{Order: order, Entry: &event.Parked{
		Order: order, Tx: "0/1", Index: uint64(order), Source: "postgres/s/0/1", Table: "public.outbox", ID: fmt.Sprint("id-", order), Aggregate: "order\x007", Topic: "orders", Key: []byte("7"),
		Code: "OT5009", Class: "record", Text: "too large", Size: int64(len(payload)), ParkedAt: time.Now().Add(-age), Row: &row,
	}}
}

// The mirror with the client that it has: what its topic does not take goes without payload and does not stand in the way of others, and a topic
// that is not there is waited for.
func TestTheMirrorWithItsClient(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	p, pc, pl := letterBox(t, io.Discard, strings.Join(c.ListenAddrs(), ","), "mirror_topic: dead")
	letters := p.store.DeadLetters()
	require.NoError(t, letters.Park(t.Context(), "orders", []event.Parking{letter(0, 0, "a"), letter(1, 0, strings.Repeat("x", 2<<20)), letter(2, 0, "c")}))

	mirror, err := p.mirror(pc, pl)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); mirror(ctx) }()
	defer func() { cancel(); <-done }()
	codes := func() (all []string) {
		_, _, why := pl.State()
		for _, r := range why {
			all = append(all, r.Fault.Code)
		}
		return all
	}
	require.Eventually(t, func() bool { return strings.Contains(fmt.Sprint(codes()), "OT5004") }, 30*time.Second, 5*time.Millisecond)

	_, _, why := pl.State()
	require.NotContains(t, fmt.Sprint(why[0].Fault), "events wait", "copies do, and nothing else")

	require.NoError(t, c.CreateTopic("dead", 1, map[string]string{"max.message.bytes": "100000"}))
	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("dead"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	got := map[string]string{}
	bare := ""
	for len(got) < 3 {
		fetches := client.PollFetches(t.Context())
		fetches.EachRecord(func(r *kgo.Record) {
			id := ""
			for _, h := range r.Headers {
				switch h.Key {
				case "dead_letter_id":
					id = string(h.Value)
				case "dead_letter_payload_left_out":
					bare = string(h.Value)
				}
			}
			got[id] = string(r.Value)
		})
	}
	require.Equal(t, map[string]string{"id-0": "a", "id-1": "", "id-2": "c"}, got)
	require.Equal(t, fmt.Sprint(2<<20), bare)
	require.Eventually(t, func() bool {
		n := 0
		require.NoError(t, letters.Each("orders", 0, func(e *event.Parked) error {
			if e.Mirrored && e.Ended == event.Open {
				n++
			}
			return nil
		}))
		return n == 3
	}, 30*time.Second, 5*time.Millisecond, "each is marked, and stays")
	require.NotContains(t, fmt.Sprint(codes()), "OT5004")
}

// What waits longer than the retention is left out, told and in the audit; what is younger stays, whatever waits in front of it.
func TestWhatIsOlderThanTheRetentionIsLeftOut(t *testing.T) {
	var log bytes.Buffer
	p, _, pl := letterBox(t, &log, "127.0.0.1:1", "retention: 1h")
	store := p.store.DeadLetters()
	require.NoError(t, store.Park(t.Context(), "orders", []event.Parking{letter(0, 2*time.Hour, "a"), letter(1, 59*time.Minute, "b"), letter(2, 61*time.Minute, "c")}))
	d := newDeadLetters(p.store, []*pipeline.Pipeline{pl})
	for range 2 { // the second time there is nothing to do, and nothing is said
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.expire(ctx, "orders", time.Hour, p.log) }()
		require.Eventually(t, func() bool { n, err := store.Open("orders"); return err == nil && n == 1 }, 30*time.Second, time.Millisecond)
		cancel()
		<-done
	}
	require.Equal(t, 1, strings.Count(log.String(), "left out for good"), log.String())
	require.Contains(t, log.String(), "events=2")
	page, err := d.list(t.Context(), deadPage{deadFilter: deadFilter{Pipeline: "orders"}})
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
	require.Equal(t, "id-1", page.Entries[0].ID)
	acts, err := p.store.Audits()
	require.NoError(t, err)
	require.Len(t, acts, 2, "begun and done")
	require.Equal(t, checkpoint.ActionExpire, acts[1].Action)
	require.Equal(t, checkpoint.OutcomeDone, acts[1].Outcome)
	require.EqualValues(t, 2, acts[1].Counts["expired"])
	require.Equal(t, "outtail", acts[1].Operator)
}

// What waits behind nothing any more, since it was skipped, is told: by the skip, and by the list.
func TestWhatIsFreeToBeReplayedIsTold(t *testing.T) {
	p, _, pl := letterBox(t, io.Discard, "127.0.0.1:1", "retention: 0s")
	behind := func(order int64, aggregate string) event.Parking {
		l := letter(order, 0, "x")
		l.Entry.Aggregate, l.Entry.Key, l.Entry.Behind, l.Entry.Code = aggregate, []byte(aggregate), true, ""
		return l
	}
	bad := letter(3, 0, "x")
	bad.Entry.Aggregate, bad.Entry.Key = "order\x008", []byte("8")
	store := p.store.DeadLetters()
	require.NoError(t, store.Park(t.Context(), "orders", []event.Parking{letter(0, 0, "a"), behind(1, "order\x007"), behind(2, "order\x007"), bad, behind(4, "order\x008")}))
	all := deadFilter{Pipeline: "orders"}

	for name, d := range map[string]*deadLetters{"running": newDeadLetters(p.store, []*pipeline.Pipeline{pl}), "on the file": newDeadLetters(p.store, nil)} {
		free, err := d.free(t.Context(), all)
		require.NoError(t, err)
		require.Empty(t, free.Numbers, name)
		_, err = d.skip(t.Context(), deadAct{deadFilter: deadFilter{Pipeline: "orders", ID: "none"}})
		require.Equal(t, "OT0025", event.AsFault(err).Code)
	}
	running := newDeadLetters(p.store, []*pipeline.Pipeline{pl})
	_, err := running.replay(t.Context(), deadAct{deadFilter: deadFilter{Pipeline: "orders", Code: "OT6101"}})
	require.Equal(t, "OT0025", event.AsFault(err).Code)
	acts, err := p.store.Audits()
	require.NoError(t, err)
	require.Empty(t, acts, "nothing was picked, nothing was done")

	a, err := running.skip(t.Context(), deadAct{deadFilter: deadFilter{Pipeline: "orders", ID: "id-0"}})
	require.NoError(t, err)
	require.Equal(t, deadSkipped{Skipped: 1, Waiting: []deadWaiting{{Aggregate: "order/7", Events: 2}}}, a)
	free, err := running.free(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, free.Numbers, "the second waits behind the first, and that of order 8 behind one that is refused")
	a, err = newDeadLetters(p.store, nil).skip(t.Context(), deadAct{deadFilter: deadFilter{Pipeline: "orders", ID: "id-4"}})
	require.NoError(t, err)
	require.Equal(t, deadSkipped{Skipped: 1}, a, "its aggregate waits behind what it waited behind before")
	a, err = running.skip(t.Context(), deadAct{deadFilter: all})
	require.NoError(t, err)
	require.Equal(t, deadSkipped{Skipped: 3}, a)
	a, err = running.skip(t.Context(), deadAct{deadFilter: all})
	require.NoError(t, err, "all of nothing is no mistake")
	require.Zero(t, a)
}

// An edit is for one event, which can always be named; and what would not do is refused before anything is changed.
func TestAnEditThatCannotWorkChangesNothing(t *testing.T) {
	p, _, pl := letterBox(t, io.Discard, "127.0.0.1:1", "retention: 0s")
	first, twice := letter(4, 0, `{"secret": 1}`), letter(7, 0, ` [{"secret": 1}]`)
	twice.Entry.ID = first.Entry.ID
	twice.Entry.Row[event.Headers] = event.Value{Set: true, Bytes: []byte(`{"source": "own"}`)}
	text := letter(9, 0, "17")
	for _, l := range []event.Parking{first, twice, text} {
		for role, v := range map[event.Role]string{event.AggregateType: "order", event.AggregateID: "7", event.EventType: "order.paid"} {
			l.Entry.Row[role] = event.Value{Set: true, Bytes: []byte(v)}
		}
	}
	store := p.store.DeadLetters()
	require.NoError(t, store.Park(t.Context(), "orders", []event.Parking{first, twice, text}))
	d := newDeadLetters(p.store, []*pipeline.Pipeline{pl})
	edit := func(number int64, payload string) deadAct {
		return deadAct{deadFilter: deadFilter{Pipeline: "orders", Number: &number}, Edit: true, Payload: []byte(payload)}
	}
	payload := func(number int64) string {
		e, err := store.Get("orders", number)
		require.NoError(t, err)
		return string(e.Row[event.Payload].Bytes)
	}
	refused := func(q deadAct) *event.Fault {
		t.Helper()
		_, err := d.replay(t.Context(), q)
		require.Error(t, err)
		f := event.AsFault(err)
		require.NotContains(t, fmt.Sprint(f, f.Hint), "secret")
		return f
	}

	both := edit(0, `{}`)
	both.Number, both.ID = nil, "id-4"
	f := refused(both)
	require.Equal(t, "OT0013", f.Code)
	require.Contains(t, f.Hint, "--id id-4 --number 4 ")
	require.Contains(t, f.Hint, "--id id-4 --number 7 ")
	require.NotContains(t, f.Hint, "more")

	for broken, want := range map[string]string{"{\"secret\": 1": "at byte 12, line 1", "{\n\"secret\" 1}": "line 2", "": "it is empty", "secret": "line 1"} {
		f = refused(edit(7, broken))
		require.Equal(t, "OT0026", f.Code)
		require.Contains(t, f.Text, want)
		require.Contains(t, f.Hint, "--not-json")
	}
	elsewhere := edit(7, `{"new": 2}`)
	elsewhere.Topic = "no/topic"
	require.Contains(t, refused(elsewhere).Text, "OT5007", "what the sink knows is asked, too")
	require.Equal(t, ` [{"secret": 1}]`, payload(7))
	acts, err := p.store.Audits()
	require.NoError(t, err)
	require.Empty(t, acts, "nothing was done")
	scrape := httptest.NewRecorder()
	p.observer.(*metrics.Metrics).Handler().ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	require.Contains(t, scrape.Body.String(), `outtail_headers_skipped_total{pipeline="orders"} 1`, "its header source is outtail's own")

	// What is fit is stored, and goes its way, which ends here: nothing runs.
	plain := edit(7, "no JSON")
	plain.NotJSON = true
	for _, q := range []deadAct{edit(9, "eighteen"), edit(7, `{"new": 2}`), plain} {
		s, err := d.replay(t.Context(), q)
		d.wait.Wait()
		if err == nil { // it had not ended yet
			_, err = d.state(t.Context(), replayQuestion{"orders", s.Job})
		}
		require.Equal(t, "OT6010", event.AsFault(err).Code)
		require.Equal(t, string(q.Payload), payload(*q.Number))
	}
	require.Equal(t, `{"secret": 1}`, payload(4), "the other one of that id is as it was")
}

// What a request asks and a process does not know is refused: a pick that it overlooked would pick more than was meant.
func TestARequestThatIsNotUnderstoodDoesNothing(t *testing.T) {
	p, _, pl := letterBox(t, io.Discard, "127.0.0.1:1", "retention: 0s")
	require.NoError(t, p.store.DeadLetters().Park(t.Context(), "orders", []event.Parking{letter(0, 0, "a")}))
	skip := newDeadLetters(p.store, []*pipeline.Pipeline{pl}).handles()[requestDeadSkip]
	_, err := skip(t.Context(), []byte(`{"pipeline": "orders", "colour": "red", "reason": "r"}`))
	require.ErrorContains(t, err, "not understood")
	n, err := p.store.DeadLetters().Open("orders")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// A command that asks how its replay goes hears of no other: another person's, or one of another process. And a replay keeps nobody waiting
// who wants to leave something out.
func TestAReplayIsAskedForByItsName(t *testing.T) {
	p, _, pl := letterBox(t, io.Discard, "127.0.0.1:1", "retention: 0s")
	require.NoError(t, p.store.DeadLetters().Park(t.Context(), "orders", []event.Parking{letter(0, 0, "a")}))
	d := newDeadLetters(p.store, []*pipeline.Pipeline{pl})
	var logged bytes.Buffer
	d.log = slog.New(slog.NewTextHandler(&logged, nil))
	all := deadAct{deadFilter: deadFilter{Pipeline: "orders"}}
	first, err := d.replay(t.Context(), all) // the pipeline does not run, so it ends at once
	if err != nil {
		require.Equal(t, "OT6010", event.AsFault(err).Code)
	}
	d.wait.Wait()
	require.Regexp(t, `level=INFO .*pipeline=orders command=replay .*result="0 delivered, `, logged.String())
	first.Job = d.jobs["orders"].id
	_, err = d.state(t.Context(), replayQuestion{"orders", first.Job})
	require.Equal(t, "OT6010", event.AsFault(err).Code)

	// Another one that goes on.
	going := &replayJob{id: "second", cancel: func() {}, done: make(chan struct{})}
	d.past, d.jobs["orders"] = append(d.past, d.jobs["orders"]), going
	s, err := d.state(t.Context(), replayQuestion{"orders", first.Job})
	require.Equal(t, "OT6010", event.AsFault(err).Code)
	require.True(t, s.Done)
	s, err = d.state(t.Context(), replayQuestion{"orders", "second"})
	require.NoError(t, err)
	require.False(t, s.Done)
	_, err = d.replay(t.Context(), all)
	require.Equal(t, "OT0012", event.AsFault(err).Code)
	_, err = d.skip(t.Context(), all)
	require.Equal(t, "OT0012", event.AsFault(err).Code)

	_, err = newDeadLetters(p.store, []*pipeline.Pipeline{pl}).state(t.Context(), replayQuestion{"orders", first.Job})
	require.Equal(t, "OT0027", event.AsFault(err).Code, "and not that it is done")
	ended := false
	going.cancel = func() {
		going.err = context.Canceled
		close(going.done)
		ended = true
	}
	s, err = d.stop(t.Context(), replayQuestion{Pipeline: "orders"})
	require.NoError(t, err)
	require.True(t, ended)
	require.True(t, s.Done && s.Stopped)
	_, err = d.stop(t.Context(), replayQuestion{Pipeline: "orders"})
	require.Equal(t, "OT0029", event.AsFault(err).Code)
}

// An editor ends a file with a line break, which is no part of the payload; one that the payload had stays.
func TestTheLineBreakOfAnEditor(t *testing.T) {
	for _, c := range []struct{ file, was, want string }{
		{"{}\n", "{}", "{}"},
		{"{}\r\n", "{}", "{}"},
		{"{}\n\n", "{}", "{}\n"},
		{"{}", "{}", "{}"},
		{"{}\n", "{\n}\n", "{}\n"},
		{"\n", "", ""},
		{"{}\r", "{}", "{}\r"},
	} {
		require.Equal(t, c.want, string(withoutFinalBreak([]byte(c.file), []byte(c.was))), "%q for %q", c.file, c.was)
	}
}

// What is shown for people is text where it is text, and says so where it is not; nothing of it is shown unless asked for.
func TestAShownEntryIsText(t *testing.T) {
	text := func(b []byte) *[]byte { return &b }
	e := deadEntry{Pipeline: "orders", ID: "1", Key: []byte("ключ-7"), Row: map[string]*[]byte{
		"payload": text([]byte{0xff}), "headers": nil, "aggregate_id": text([]byte("7")),
	}}
	encode := func(payload bool) string {
		b, err := json.Marshal(show(&e, payload))
		require.NoError(t, err)
		return string(b)
	}
	require.Contains(t, encode(true), `"key":"ключ-7","row":{"aggregate_id":"7","headers":null,"payload":"base64:/w=="}`)
	require.NotContains(t, encode(false), "key")
	require.Contains(t, encode(false), `"payload":"(1 bytes)"`)
	e.Key = []byte{0xfe, 0xff}
	require.Contains(t, encode(true), `"key":"base64:/v8="`)
	e.Key = []byte{}
	require.Contains(t, encode(true), `"key":""`)
	e.Key = nil
	require.NotContains(t, encode(true), "key", "a message without a key")
	kept, err := json.Marshal(deadEntry{Key: []byte("7")})
	require.NoError(t, err)
	require.Contains(t, string(kept), `"key":"Nw=="`, "dlq export is bytes, as it was")
}

// A script takes exit code 0 for: all that was picked was delivered, or there was nothing to do.
func TestTheExitCodeOfAReplay(t *testing.T) {
	for _, c := range []struct {
		name  string
		state replayState
		exit  int
		code  string
	}{
		{"all was delivered", replayState{Acked: 2, Drained: 1}, exitOK, ""},
		{"all of nothing", replayState{}, exitOK, ""},
		{"something was refused, and something waits behind it", replayState{Acked: 1, Failed: 1, Waiting: 3, First: "x", FirstID: "it's"}, exitFailed, "OT0016"},
		{"nothing was sent, since all of it waits", replayState{Waiting: 1, Ahead: "7"}, exitFailed, "OT0031"},
		{"some of it waits", replayState{Acked: 5, Waiting: 1}, exitFailed, "OT0031"},
		{"somebody ended it", replayState{Acked: 5, Waiting: 1, Stopped: true}, exitFailed, "OT0028"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			require.NoError(t, err)
			defer out.Close()
			err = (&cli{stdout: out}).tellReplay("orders", c.state)
			require.Equal(t, c.exit, codeOf(err))
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			f := event.AsFault(err)
			require.Equal(t, c.code, f.Code)
			if c.code == "OT0016" {
				require.Contains(t, f.Hint, `--id 'it'\''s' --reason`)
			}
		})
	}
}
