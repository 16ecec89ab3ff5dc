package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/control"
	"github.com/outtail/outtail/internal/glob"
	"github.com/outtail/outtail/pipeline"
)

// What the dlq commands ask the running process. Without one they do the same on the file (deadLetters), all but replay.
const (
	requestDeadList   = "dlq/list"
	requestDeadFree   = "dlq/free"
	requestDeadSkip   = "dlq/skip"
	requestDeadReplay = "dlq/replay"
	requestDeadState  = "dlq/replay/state"
	requestDeadStop   = "dlq/replay/stop"
)

// deadFilter picks parked events; its zero fields pick all.
type deadFilter struct {
	Pipeline  string    `json:"pipeline"`
	ID        string    `json:"id,omitempty"`
	Number    *int64    `json:"number,omitempty"`    // of the entry: ids may be kept more than once, or be unmapped
	Aggregate string    `json:"aggregate,omitempty"` // TYPE/ID, or ID
	Code      string    `json:"code,omitempty"`
	Class     string    `json:"class,omitempty"`
	Route     string    `json:"route,omitempty"` // topic, or glob of topics
	Since     time.Time `json:"since,omitzero"`
	Until     time.Time `json:"until,omitzero"`
}

// everything says that nothing is picked out.
func (f deadFilter) everything() bool {
	f.Pipeline = ""
	return f == deadFilter{}
}

func (f deadFilter) picks(e *event.Parked) bool {
	name := aggregateName(e.Aggregate)
	return (f.ID == "" || f.ID == e.ID) && (f.Number == nil || *f.Number == e.Order) &&
		(f.Aggregate == "" || f.Aggregate == name || strings.HasSuffix(name, "/"+f.Aggregate)) &&
		(f.Code == "" || f.Code == e.Code) && (f.Class == "" || f.Class == e.Class) && (f.Route == "" || e.Topic != "" && glob.Compile(f.Route).MatchString(e.Topic)) &&
		(f.Since.IsZero() || !e.ParkedAt.Before(f.Since)) && (f.Until.IsZero() || e.ParkedAt.Before(f.Until))
}

// aggregateName writes an aggregate as TYPE/ID.
func aggregateName(s string) string { return strings.Replace(s, "\x00", "/", 1) }

// deadEntry is a parked event as the commands show it. Row is there where it was asked for.
type deadEntry struct {
	Pipeline  string             `json:"pipeline"`
	Number    int64              `json:"number"`
	ID        string             `json:"id"`
	Aggregate string             `json:"aggregate"`
	Topic     string             `json:"topic,omitempty"`
	Key       []byte             `json:"key,omitempty"` // with Row
	Place     string             `json:"place"`
	Tx        string             `json:"tx"`
	Index     uint64             `json:"index"`
	Table     string             `json:"table"`
	Commit    time.Time          `json:"committed_at"`
	ParkedAt  time.Time          `json:"parked_at"`
	Behind    bool               `json:"behind"`
	Free      bool               `json:"free,omitempty"` // it waited behind what is gone
	Alone     bool               `json:"alone"`
	Code      string             `json:"code,omitempty"`
	Class     string             `json:"class,omitempty"`
	Text      string             `json:"text,omitempty"`
	Hint      string             `json:"hint,omitempty"`
	Tries     int                `json:"tries"`
	Bytes     int64              `json:"bytes"`
	Edited    bool               `json:"edited,omitempty"`
	Row       map[string]*[]byte `json:"row,omitempty"` // role to bytes (base64 in JSON); null is NULL
}

func newDeadEntry(pipeline string, e *event.Parked) deadEntry {
	d := deadEntry{
		Pipeline: pipeline, Number: e.Order, ID: e.ID, Aggregate: aggregateName(e.Aggregate), Topic: e.Topic, Place: e.Place(), Tx: e.Tx, Index: e.Index, Table: e.Table,
		Commit: e.Commit, ParkedAt: e.ParkedAt, Behind: e.Behind, Alone: e.Alone, Code: e.Code, Class: e.Class, Text: e.Text, Hint: e.Hint, Tries: e.Tries,
		Bytes: e.Size, Edited: e.Edited,
	}
	if e.Row == nil {
		return d
	}
	d.Key, d.Row = e.Key, map[string]*[]byte{}
	for role := range event.RoleCount {
		switch v := &e.Row[role]; {
		case v.Present():
			d.Row[role.String()] = &v.Bytes
		case v.Set:
			d.Row[role.String()] = nil
		}
	}
	return d
}

// deadPage asks for some entries from a number on.
type deadPage struct {
	deadFilter
	From int64 `json:"from"`
	Rows bool  `json:"rows"`
}

// deadAnswer is a page; More says that there is another, from Next on.
type deadAnswer struct {
	Entries []deadEntry `json:"entries"`
	More    bool        `json:"more"`
	Next    int64       `json:"next"`
}

// A page ends after so many entries, or bytes of rows: an answer over the socket is bounded.
const (
	deadPageEntries = 500
	deadPageBytes   = 256 << 10
)

// deadLetters does what the commands ask for, in the running process or on the file.
type deadLetters struct {
	store *checkpoint.Store
	log   *slog.Logger // of the running process; nil on the file
	// pipelines are those that run; none where the file is all there is.
	pipelines map[string]*pipeline.Pipeline

	mu   sync.Mutex
	jobs map[string]*replayJob // the newest of each pipeline
	past []*replayJob          // those before, while somebody may ask how they ended
	wait sync.WaitGroup        // for all of them: they end with their pipelines, and say so in the audit
}

func newDeadLetters(store *checkpoint.Store, ps []*pipeline.Pipeline) *deadLetters {
	d := &deadLetters{store: store, pipelines: map[string]*pipeline.Pipeline{}, jobs: map[string]*replayJob{}}
	for _, p := range ps {
		d.pipelines[p.Name()] = p
	}
	return d
}

// tell logs, in the running process, what a command did to parked events: counts, and nothing of their content.
func (d *deadLetters) tell(q *deadAct, command, said string) {
	if d.log != nil {
		d.log.Info("a command on parked events ended", "pipeline", q.Pipeline, "command", command, "edited", q.Edit, "operator", q.Operator, "result", said)
	}
}

// handles are what the control socket serves.
func (d *deadLetters) handles() map[string]control.Handle {
	return map[string]control.Handle{
		requestDeadList:   asked(d.list),
		requestDeadFree:   asked(d.free),
		requestDeadSkip:   asked(d.skip),
		requestDeadReplay: asked(d.replay),
		requestDeadState:  asked(d.state),
		requestDeadStop:   asked(d.stop),
	}
}

// asked decodes a request for a handle. What a newer command asks and this process does not know is refused: a pick that it overlooked
// would pick more than was meant.
func asked[Q, A any](f func(context.Context, Q) (A, error)) control.Handle {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var q Q
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&q); err != nil {
			return nil, fmt.Errorf("the request is not understood: %w", err)
		}
		return f(ctx, q)
	}
}

var errPageFull = errors.New("the page is full")

func (d *deadLetters) list(_ context.Context, q deadPage) (deadAnswer, error) {
	a := deadAnswer{Entries: []deadEntry{}}
	var bytes int64
	letters := d.store.DeadLetters()
	var picked []event.Parked
	err := letters.Each(q.Pipeline, q.From, func(e *event.Parked) error {
		if e.Ended != event.Open || !q.picks(e) {
			return nil
		}
		if len(picked) == deadPageEntries || (q.Rows && bytes > 0 && bytes+e.Size > deadPageBytes) {
			a.More, a.Next = true, e.Order
			return errPageFull
		}
		bytes += e.Size
		picked = append(picked, *e)
		return nil
	})
	if err != nil && !errors.Is(err, errPageFull) {
		return a, err
	}
	for i := range picked {
		e := &picked[i]
		if q.Rows {
			whole, err := letters.Get(q.Pipeline, e.Order)
			if err != nil {
				return a, err
			}
			if whole == nil { // it ended meanwhile
				continue
			}
			e = whole
		}
		a.Entries = append(a.Entries, newDeadEntry(q.Pipeline, e))
	}
	return a, nil
}

// deadAct is something that a person does to parked events, and why.
type deadAct struct {
	deadFilter
	Operator string `json:"operator"`
	Reason   string `json:"reason"`

	Canary int     `json:"canary,omitempty"`
	Rate   float64 `json:"rate,omitempty"`
	Topic  string  `json:"to_topic,omitempty"`
	// Payload, where Edit, replaces the payload of the one event that is picked.
	Edit    bool   `json:"edit,omitempty"`
	Payload []byte `json:"payload,omitempty"`
	NotJSON bool   `json:"not_json,omitempty"` // it may be no JSON although the one that is kept is
}

// audit is what the audit keeps of the act: what was picked, what came of it, and how it ended.
func (q *deadAct) audit(action, detail, outcome string, counts map[string]int64) checkpoint.Audit {
	picked, _ := json.Marshal(struct { // text and numbers always encode
		deadFilter
		Canary int     `json:"canary,omitempty"`
		Rate   float64 `json:"rate,omitempty"`
		Topic  string  `json:"to_topic,omitempty"`
		Edit   bool    `json:"edit,omitempty"`
	}{q.deadFilter, q.Canary, q.Rate, q.Topic, q.Edit})
	return checkpoint.Audit{
		Operator: q.Operator, Reason: q.Reason, Action: action, Pipeline: q.Pipeline, Detail: detail, Outcome: outcome,
		Range: &checkpoint.Range{Picked: picked}, Counts: counts,
	}
}

// deadFree are the numbers of events that wait behind nothing any more.
type deadFree struct {
	Numbers []int64 `json:"numbers"`
}

func (d *deadLetters) free(_ context.Context, q deadFilter) (a deadFree, err error) {
	var heads pipeline.Heads
	err = d.store.DeadLetters().Each(q.Pipeline, -1<<63, func(e *event.Parked) error {
		if e.Ended == event.Open && heads.Head(e) && e.Behind && q.picks(e) {
			a.Numbers = append(a.Numbers, e.Order)
		}
		return nil
	})
	return a, err
}

// picked are the numbers of what is picked; a fault where that is nothing, although something was named.
func (d *deadLetters) picked(q *deadFilter) (orders []int64, err error) {
	err = d.store.DeadLetters().Each(q.Pipeline, -1<<63, func(e *event.Parked) error {
		if e.Ended == event.Open && q.picks(e) {
			orders = append(orders, e.Order)
		}
		return nil
	})
	if err == nil && len(orders) == 0 && !q.everything() {
		err = faultNothingPicked(q.Pipeline)
	}
	return orders, err
}

// deadSkipped is what a skip did. Waiting are aggregates of which the first event now waited behind a skipped one; More counts
// those that found no room.
type deadSkipped struct {
	Skipped int           `json:"skipped"`
	Waiting []deadWaiting `json:"waiting,omitempty"`
	More    int           `json:"more,omitempty"`
}

type deadWaiting struct {
	Aggregate string `json:"aggregate"`
	Events    int    `json:"events"`
}

// waitingMost is how many aggregates an answer names.
const waitingMost = 20

// waiting says what of the aggregates that were touched is free to be replayed now, and how much waits behind it.
func (d *deadLetters) waiting(name string, touched map[string]bool, a *deadSkipped) error {
	var heads pipeline.Heads
	freed, at := map[string]bool{}, map[string]int{}
	return d.store.DeadLetters().Each(name, -1<<63, func(e *event.Parked) error {
		if e.Ended != event.Open || e.Alone {
			return nil
		}
		head := heads.Head(e)
		if !touched[e.Aggregate] {
			return nil
		}
		if _, met := freed[e.Aggregate]; !met {
			freed[e.Aggregate] = head && e.Behind
			switch {
			case !freed[e.Aggregate]:
			case len(a.Waiting) == waitingMost:
				a.More++
			default:
				at[e.Aggregate] = len(a.Waiting)
				a.Waiting = append(a.Waiting, deadWaiting{Aggregate: aggregateName(e.Aggregate)})
			}
		}
		if i, named := at[e.Aggregate]; named {
			a.Waiting[i].Events++
		}
		return nil
	})
}

func (d *deadLetters) skip(ctx context.Context, q deadAct) (deadSkipped, error) {
	letters := d.store.DeadLetters()
	if d.running(q.Pipeline) != nil {
		return deadSkipped{}, faultReplayRuns("skip parked events", q.Pipeline) // which may take hours
	}
	if orders, err := d.picked(&q.deadFilter); err != nil || len(orders) == 0 {
		return deadSkipped{}, err
	}
	if err := letters.Audit(q.audit(checkpoint.ActionSkip, "", checkpoint.OutcomeBegun, nil)); err != nil {
		return deadSkipped{}, err
	}
	var n int
	var err error
	touched := map[string]bool{}
	pick := func(e *event.Parked) bool {
		picks := q.picks(e)
		if picks && !e.Alone {
			touched[e.Aggregate] = true
		}
		return picks
	}
	if p := d.pipelines[q.Pipeline]; p != nil {
		n, err = p.SkipParked(ctx, "skipped", pick)
	} else {
		n, err = d.skipOnFile(ctx, q.Pipeline, pick)
	}
	counts := map[string]int64{"skipped": int64(n)}
	said := fmt.Sprintf("%d skipped", n)
	a := deadSkipped{Skipped: n}
	d.tell(&q, "skip", said)
	err = errors.Join(err, letters.Audit(q.audit(checkpoint.ActionSkip, said, checkpoint.OutcomeOf(err), counts)))
	if err == nil {
		err = d.waiting(q.Pipeline, touched, &a)
	}
	return a, err
}

// expire leaves out what has waited longer than the configuration keeps it, until ctx ends. Each time that something goes is told,
// counted and in the audit, as if a person had skipped it.
func (d *deadLetters) expire(ctx context.Context, name string, keep time.Duration, log *slog.Logger) {
	tick := time.NewTicker(min(keep/10, time.Minute))
	defer tick.Stop()
	began := time.Now()
	for {
		// The clock may be put forward by a mistake, and what goes is gone for good: time is what has passed since the start.
		n, err := d.expireOnce(ctx, name, keep, began.Add(time.Since(began)))
		if n > 0 {
			log.Warn("parked events waited longer than dead_letters.retention and are left out for good", "events", n, "retention", keep.String(),
				"hint", "look at parked events earlier: alert on outtail_parked_oldest_seconds")
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("parked events that are too old cannot be left out now", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (d *deadLetters) expireOnce(ctx context.Context, name string, keep time.Duration, now time.Time) (int, error) {
	letters, until := d.store.DeadLetters(), now.Add(-keep)
	if oldest := letters.Oldest(name); oldest.IsZero() || !oldest.Before(until) {
		return 0, nil
	}
	q := deadAct{deadFilter: deadFilter{Pipeline: name, Until: until}, Operator: "outtail", Reason: "dead_letters.retention of " + keep.String() + " is over"}
	if err := letters.Audit(q.audit(checkpoint.ActionExpire, "", checkpoint.OutcomeBegun, nil)); err != nil {
		return 0, err
	}
	n, err := d.pipelines[name].SkipParked(ctx, "expired", q.picks)
	said := fmt.Sprintf("%d left out", n)
	return n, errors.Join(err, letters.Audit(q.audit(checkpoint.ActionExpire, said, checkpoint.OutcomeOf(err), map[string]int64{"expired": int64(n)})))
}

// skipOnFile leaves tombstones: whether the rows will be read again is known at the next start only, which sweeps them.
func (d *deadLetters) skipOnFile(ctx context.Context, name string, pick func(*event.Parked) bool) (int, error) {
	var ended []event.Ending
	letters := d.store.DeadLetters()
	err := letters.Each(name, -1<<63, func(e *event.Parked) error {
		if e.Ended == event.Open && pick(e) {
			ended = append(ended, event.Ending{Order: e.Order, How: event.Skipped, Tombstone: true})
		}
		return nil
	})
	var missing []int64
	if err == nil && len(ended) > 0 {
		missing, err = letters.End(ctx, name, ended)
	}
	if err != nil {
		return 0, err
	}
	return len(ended) - len(missing), nil
}

// replayJob is a replay of a pipeline: the command that began it looks how far it is, and may stop it.
type replayJob struct {
	id     string // by which that command knows it from another's, and from one of another process
	cancel context.CancelFunc
	done   chan struct{}
	result pipeline.ReplayResult
	err    error
}

func (j *replayJob) runs() bool {
	select {
	case <-j.done:
		return false
	default:
		return true
	}
}

// pastReplays is of how many replays the end is remembered, beside the newest of each pipeline.
const pastReplays = 64

// running gives the replay that a pipeline has now, or nil.
func (d *deadLetters) running(name string) *replayJob {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.jobs[name]; j != nil && j.runs() {
		return j
	}
	return nil
}

// job finds a replay. A process that came after the one that began it does not know it.
func (d *deadLetters) job(q replayQuestion) (*replayJob, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.jobs[q.Pipeline]; j != nil && j.id == q.Job {
		return j, nil
	}
	for _, j := range d.past {
		if j.id == q.Job {
			return j, nil
		}
	}
	return nil, faultReplayGone(q.Pipeline)
}

// replayQuestion asks for one replay; without a job, for the one that runs.
type replayQuestion struct {
	Pipeline string `json:"pipeline"`
	Job      string `json:"job"`
}

// replayState is how far a replay is. Open is what waits in the store.
type replayState struct {
	Job     string `json:"job,omitempty"`
	Done    bool   `json:"done"`
	Stopped bool   `json:"stopped,omitempty"` // somebody ended it
	Open    int64  `json:"open"`
	Acked   int    `json:"acked"`
	Drained int    `json:"drained"`
	Failed  int    `json:"failed"`
	Waiting int    `json:"waiting"`
	First   string `json:"first_refusal,omitempty"`
	FirstID string `json:"first_refused,omitempty"`
	Ahead   string `json:"ahead,omitempty"` // the id of what the first that waits has in front of it
}

func (d *deadLetters) replay(ctx context.Context, q deadAct) (replayState, error) {
	p := d.pipelines[q.Pipeline]
	if p == nil {
		return replayState{}, faultNoSuchPipeline(q.Pipeline)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.jobs[q.Pipeline]
	if before != nil && before.runs() {
		return replayState{}, faultReplayRuns("replay parked events", q.Pipeline)
	}
	orders, err := d.picked(&q.deadFilter)
	if err != nil || len(orders) == 0 {
		return replayState{Done: true}, err
	}
	if err := d.prepareReplay(ctx, p, &q, orders); err != nil {
		return replayState{}, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	j := &replayJob{id: rand.Text(), cancel: cancel, done: make(chan struct{})}
	d.jobs[q.Pipeline] = j
	if before != nil {
		d.past = append(d.past, before)
		d.past = d.past[max(0, len(d.past)-pastReplays):]
	}
	d.wait.Go(func() { // ends with the replay, which ends with the pipeline
		defer close(j.done)
		defer cancel()
		j.result, j.err = p.Replay(running, pipeline.Replay{Select: q.replays, Canary: q.Canary, Rate: q.Rate, Topic: q.Topic})
		r := j.result
		said := fmt.Sprintf("%d delivered, %d behind them, %d refused, %d waiting", r.Acked, r.Drained, r.Failed, r.Waiting)
		d.tell(&q, "replay", said)
		counts := map[string]int64{"delivered": int64(r.Acked), "behind": int64(r.Drained), "refused": int64(r.Failed), "waiting": int64(r.Waiting)}
		j.err = errors.Join(j.err, d.store.DeadLetters().Audit(q.audit(checkpoint.ActionReplay, said, checkpoint.OutcomeOf(j.err), counts)))
	})
	return d.progress(q.Pipeline, j)
}

func (d *deadLetters) state(_ context.Context, q replayQuestion) (replayState, error) {
	j, err := d.job(q)
	if err != nil {
		return replayState{}, err
	}
	return d.progress(q.Pipeline, j)
}

func (d *deadLetters) stop(ctx context.Context, q replayQuestion) (replayState, error) {
	j := d.running(q.Pipeline)
	switch {
	case q.Job != "":
		var err error
		if j, err = d.job(q); err != nil {
			return replayState{}, err
		}
	case j == nil:
		return replayState{}, faultReplayNone(q.Pipeline)
	}
	j.cancel()
	select {
	case <-j.done:
	case <-ctx.Done():
	}
	return d.progress(q.Pipeline, j)
}

func (d *deadLetters) progress(name string, j *replayJob) (replayState, error) {
	open, err := d.store.DeadLetters().Open(name)
	s := replayState{Job: j.id, Open: open, Done: true}
	if err != nil {
		return s, err
	}
	select {
	case <-j.done:
		r := j.result
		s.Acked, s.Drained, s.Failed, s.Waiting = r.Acked, r.Drained, r.Failed, r.Waiting
		s.FirstID, s.Ahead = r.FirstID, r.Ahead
		if r.First != nil {
			s.First = r.First.Error()
		}
		if errors.Is(j.err, context.Canceled) {
			s.Stopped = true
			return s, nil
		}
		return s, j.err
	default:
		s.Done = false
	}
	return s, nil
}

func faultNoSuchPipeline(name string) *event.Fault {
	return &event.Fault{Code: "OT0011", Class: event.Usage, Op: "replay parked events", Place: "pipeline " + name, Text: "the running process has no such pipeline",
		Hint: "outtail dlq list shows what is parked, by pipeline"}
}

func faultNothingPicked(name string) *event.Fault {
	return &event.Fault{Code: "OT0025", Class: event.Usage, Op: "pick parked events", Place: "pipeline " + name, Text: "no parked event is picked; nothing was done",
		Hint: "outtail dlq list -c FILE shows those that there are"}
}

func faultReplayNeedsRun(name string) *event.Fault {
	return &event.Fault{Code: "OT0014", Class: event.Usage, Op: "replay parked events", Place: "pipeline " + name, Text: "no outtail runs on this data_dir",
		Hint: "start it (outtail run -c FILE): a replay goes through the running pipeline, so that it keeps the order among what is parked and what comes"}
}
