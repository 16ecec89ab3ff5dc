package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// fakeDead is a dead-letter store that outlives processes.
type fakeDead struct {
	mu   sync.Mutex
	all  map[int64]event.Parked
	full int // how many it takes, 0: any number
	fail error
	die  *crash
}

func newDead() *fakeDead { return &fakeDead{all: map[int64]event.Parked{}} }

func (d *fakeDead) Each(_ string, from int64, visit func(*event.Parked) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(d.all)) {
		if k < from {
			continue
		}
		e := d.all[k]
		e.Row = nil
		if err := visit(&e); err != nil {
			return err
		}
	}
	return nil
}

func (d *fakeDead) Park(_ context.Context, _ string, ops []event.Parking) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	if !d.die.step(func() { err = d.park(ops) }) {
		return killed
	}
	return err
}

func (d *fakeDead) park(ops []event.Parking) error {
	for _, op := range ops {
		if op.Entry == nil {
			if e, ok := d.all[op.From]; ok {
				delete(d.all, op.From)
				e.Order, e.Ended = op.Order, event.Open
				d.all[op.Order] = e
			}
			continue
		}
		if d.full > 0 && len(d.all) >= d.full {
			return &event.Fault{Code: "OT4999", Class: event.Safety, Op: "park", Text: "full"}
		}
		e := *op.Entry
		row := *e.Row
		for i := range row {
			row[i].Bytes = slices.Clone(row[i].Bytes)
		}
		e.Row = &row
		d.all[e.Order] = e
	}
	return nil
}

func (d *fakeDead) Get(_ string, order int64) (*event.Parked, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.all[order]
	if !ok {
		return nil, nil
	}
	return &e, nil
}

func (d *fakeDead) End(_ context.Context, _ string, ended []event.Ending) (missing []int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	if !d.die.step(func() {
		for _, x := range ended {
			e, ok := d.all[x.Order]
			if !ok || e.Ended != event.Open {
				missing = append(missing, x.Order)
			}
			if !ok {
				continue
			}
			e.Ended, e.ToTopic = x.How, x.ToTopic
			if d.all[x.Order] = e; !x.Tombstone {
				delete(d.all, x.Order)
			}
		}
	}) {
		return nil, killed
	}
	return missing, nil
}

func (d *fakeDead) Tried(_ context.Context, _ string, order int64, f *event.Fault) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.all[order]
	if !ok {
		return nil // moved meanwhile
	}
	e.Tries++
	e.Code, e.Behind = f.Code, false
	d.all[order] = e
	return nil
}

func (d *fakeDead) Oldest(string) (oldest time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.all {
		if e.Ended == event.Open && (oldest.IsZero() || e.ParkedAt.Before(oldest)) {
			oldest = e.ParkedAt
		}
	}
	return oldest
}

func (d *fakeDead) Mirrored(_ context.Context, _ string, orders []int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	for _, o := range orders {
		if e, ok := d.all[o]; ok {
			e.Mirrored = true
			d.all[o] = e
		}
	}
	return nil
}

func (d *fakeDead) Sweep(_ context.Context, _ string, orders []int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	if !d.die.step(func() {
		for _, o := range orders {
			delete(d.all, o)
		}
	}) {
		return killed
	}
	return nil
}

// open are the values of what waits, in order.
func (d *fakeDead) open() (values []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(d.all)) {
		if e := d.all[k]; e.Ended == event.Open {
			values = append(values, string(e.Row[event.Payload].Bytes))
		}
	}
	return values
}

// broker is what a cluster has: it outlives processes, and refuses what is in bad.
type broker struct {
	mu  sync.Mutex
	log []string
	to  map[string]string // the topic of each value that arrived, and its key
	key map[string]string
	bad map[string]bool
	die *crash
	// heard, where not nil, is called when a value was refused.
	heard func(value string)
}

func (b *broker) refuse(values ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = map[string]bool{}
	for _, v := range values {
		b.bad[v] = true
	}
}

// of are the values of one key that arrived.
func (b *broker) of(key string) (values []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.log {
		if keyOf(v) == key {
			values = append(values, v)
		}
	}
	return values
}

func keyOf(value string) string { k, _, _ := strings.Cut(value, ":"); return k }

// keyed routes "key:number" to its key, and cannot route what unroutable says.
type keyed struct {
	policy     event.Policy
	unroutable atomic.Pointer[map[string]bool]
}

func (k *keyed) lose(values map[string]bool) { k.unroutable.Store(&values) }

func (k *keyed) Route(ev *event.Event, m *event.Message) (Decision, error) {
	v := string(ev.Row[event.Payload].Bytes)
	m.Aggregate, m.OnPoison, m.ID = keyOf(v), k.policy, v
	if lost := k.unroutable.Load(); lost != nil && ((*lost)[v] || (*lost)["all"]) {
		return Deliver, &event.Fault{Code: "OT6101", Class: event.Record, Op: "route", Text: "no route"}
	}
	m.Topic, m.Key = "t", []byte(keyOf(v))
	return Deliver, nil
}

func (*keyed) Transform(ev *event.Event, m *event.Message) error {
	m.Value = ev.Row[event.Payload].Bytes
	return nil
}

// Covers makes fakeSource a Coverer: a transaction's id is its number.
func (s *fakeSource) Covers(p event.Position, tx string) bool {
	n, err := strconv.Atoi(tx)
	return err != nil || event.LSN(n) < p.LSN
}

// lot is a world whose dead letters and broker outlive its processes.
type lot struct {
	log    *fakeLog
	store  *fakeStore
	dead   *fakeDead
	broker *broker
	route  *keyed
	sink   *strictSink
	w      *world
	gate   chan struct{} // where not nil, the source reads once it is closed
	end    func(kill bool) error
	ended  bool
	past   []event.Checkpoint

	wrap     func(*fakeSource) Source // what the source of each process is in the end
	roomy    bool                     // many replayed events have room at once
	tuneSink func()                   // looks at the sink of each process before it begins

	said   io.Writer                   // the log of the processes; nil: nobody reads it
	rate   float64                     // max_rate of the processes
	tables string                      // what the source selects
	source atomic.Pointer[event.Fault] // what the source answers; nil: it opens

	observer Observer // nil: nobody looks
}

// over ends what a failed test leaves running.
func (l *lot) over() {
	if !l.ended {
		_ = l.end(true)
	}
}

// killed is what the stores answer once the process is dead.
var killed = &event.Fault{Code: "OT4999", Class: event.Retry, Op: "save", Text: "killed"}

func newLot(policy event.Policy) *lot {
	return &lot{log: newLog(), store: &fakeStore{}, dead: newDead(), broker: &broker{to: map[string]string{}, key: map[string]string{}}, route: &keyed{policy: policy}}
}

func (l *lot) start() {
	l.sink = newStrictSink(l.broker)
	strict := l.sink
	if l.tuneSink != nil {
		l.tuneSink()
	}
	open := func() error {
		if f := l.source.Load(); f != nil {
			return f
		}
		return nil
	}
	src := &fakeSource{log: l.log, batchRows: 3, openErr: open, gate: l.gate, selection: l.tables}
	l.w = start(src, &fakeSink{}, l.store, func(o *Options) {
		if l.wrap != nil {
			o.Source = l.wrap(src)
		}
		o.Sink, o.DeadLetters, o.Router, o.Transformer = strict, l.dead, l.route, l.route
		o.DrainTimeout, o.MaxRate = time.Second, l.rate
		if l.observer != nil {
			o.Observer = l.observer
		}
		if l.said != nil {
			o.Log = slog.New(slog.NewTextHandler(l.said, nil))
		}
		if l.roomy {
			o.InFlightBytes = 1 << 20
		}
	})
	w := l.w
	l.ended = false
	l.end = func(kill bool) error {
		l.ended = true
		if kill { // nothing is answered or saved any more, as if the process had ended here
			l.store.mu.Lock()
			l.store.fail = killed
			l.store.mu.Unlock()
			l.dead.mu.Lock()
			l.dead.fail = killed
			l.dead.mu.Unlock()
			strict.mu.Lock()
			strict.hold = true
			strict.mu.Unlock()
		}
		w.stop()
		err := <-w.err
		w.end()
		l.store.mu.Lock()
		l.store.fail = nil
		l.store.mu.Unlock()
		l.dead.mu.Lock()
		l.dead.fail = nil
		l.dead.mu.Unlock()
		return err
	}
}

func TestAParkedEventKeepsItsAggregateAndNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.broker.refuse("a:1")
		l.log.append("a:0", "b:0", "a:1", "a:2", "b:1")
		l.start()
		pass(time.Second)
		l.log.append("a:3", "b:2", "c:0")
		pass(2 * time.Second)
		require.Equal(t, []string{"a:0"}, l.broker.of("a"))
		require.Equal(t, []string{"b:0", "b:1", "b:2"}, l.broker.of("b"))
		require.Equal(t, []string{"c:0"}, l.broker.of("c"))
		require.Equal(t, []string{"a:1", "a:2", "a:3"}, l.dead.open())
		require.EqualValues(t, 2, l.w.p.Checkpoint().Position.LSN, "the position passes what is durably parked")
		s, _, _ := l.w.p.State()
		require.Equal(t, Streaming, s)

		res, err := l.w.p.Replay(t.Context(), Replay{})
		require.NoError(t, err)
		require.Equal(t, 1, res.Failed, "nothing was mended")
		require.Equal(t, 2, res.Waiting)
		require.Equal(t, []string{"a:1", "a:2", "a:3"}, l.dead.open())
		require.Equal(t, []string{"a:0"}, l.broker.of("a"), "what waits behind what is refused again is not sent")

		l.broker.refuse()
		res, err = l.w.p.Replay(t.Context(), Replay{Canary: 1})
		require.NoError(t, err)
		require.Equal(t, ReplayResult{Acked: 1}, res)
		l.log.append("a:4")
		pass(time.Second)
		require.Equal(t, []string{"a:2", "a:3", "a:4"}, l.dead.open(), "what comes behind the parked still waits")
		res, err = l.w.p.Replay(t.Context(), Replay{Select: func(e *event.Parked) bool { return e.ID == "a:2" }})
		require.NoError(t, err)
		require.Equal(t, ReplayResult{Acked: 1, Drained: 2}, res)
		l.log.append("a:5")
		pass(time.Second)
		require.Equal(t, []string{"a:5"}, l.broker.of("a")[len(l.broker.of("a"))-1:])
		require.Empty(t, l.dead.open())
		inOrder(t, l.broker.of("a"), 6)
		require.NoError(t, l.end(false))
	})
}

// What is parked is told with the commands that look at it and send it, each time that it is told.
func TestParkedEventsAreToldWithTheirCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		l := newLot(event.Park)
		defer l.over()
		l.said = &said
		l.broker.refuse("a:1")
		l.log.append("a:1", "a:2")
		l.start()
		pass(time.Second)
		pass(61 * time.Minute)
		require.NoError(t, l.end(false))
		require.Equal(t, 1, strings.Count(said.String(), "msg=parked "), "what only waits behind it is not told")
		require.Contains(t, said.String(), "outtail dlq replay -c FILE --pipeline p --id a:1 --reason R; or look at it: outtail dlq show -c FILE --pipeline p --id a:1")
		require.Regexp(t, `msg="parked events wait for a person" .*hint="outtail dlq list -c FILE --pipeline p shows them; .*outtail dlq replay -c FILE --pipeline p --all --reason R`, said.String())
	})
	require.Equal(t, "raise it; then send it, and what waits behind it, again: outtail dlq replay -c FILE --pipeline p --id 'it'\\''s one' --reason R; or look at it: outtail dlq show -c FILE --pipeline p --id 'it'\\''s one'",
		parkedHint("raise it", "p", "it's one", 7))
	require.Contains(t, parkedHint("", "p", "", 7), "outtail dlq show -c FILE --pipeline p --number 7")
}

func TestPoliciesOfOneEvent(t *testing.T) {
	for policy, want := range map[event.Policy]struct {
		arrived, parked []string
		halts           bool
	}{
		event.Alone: {arrived: []string{"a:0", "a:2"}, parked: []string{"a:1"}},
		event.Skip:  {arrived: []string{"a:0", "a:2"}},
		event.Halt:  {arrived: []string{"a:0"}, halts: true},
		event.Park:  {arrived: []string{"a:0"}, parked: []string{"a:1", "a:2"}},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(policy, " late ", late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLot(policy)
					defer l.over()
					if late {
						l.broker.refuse("a:1")
					} else {
						l.route.lose(map[string]bool{"a:1": true})
					}
					l.log.append("a:0", "a:1", "a:2")
					l.start()
					pass(3 * time.Second)
					require.Equal(t, want.arrived, l.broker.of("a"))
					require.Equal(t, want.parked, l.dead.open())
					err := l.end(false)
					if want.halts {
						require.Equal(t, "OT6001", event.AsFault(err).Code)
						return
					}
					require.NoError(t, err)
					require.EqualValues(t, 1, l.store.cps["p"].Position.LSN)
				})
			})
		}
	}
}

func TestAFullStoreHaltsInFrontOfTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.dead.full = 2
		l.route.lose(map[string]bool{"all": true})
		l.log.append("a:0")
		l.log.append("b:0")
		l.log.append("c:0")
		l.start()
		pass(3 * time.Second)
		require.Equal(t, "OT4999", event.AsFault(<-l.w.err).Code)
		l.w.end()
		l.ended = true
		require.LessOrEqual(t, int(l.store.cps["p"].Position.LSN), len(l.dead.open()))
	})
}

// Somebody may skip an event before the pipeline has read what is parked: its row is read again, and stays left out.
func TestSkippingBeforeTheSourceAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.broker.refuse("a:0")
		l.start()
		pass(time.Second)
		l.store.mu.Lock()
		l.store.fail = killed
		l.store.mu.Unlock()
		l.log.append("a:0", "a:1")
		pass(time.Second)
		require.Len(t, l.dead.open(), 2)
		require.NoError(t, l.end(true))

		l.source.Store(&event.Fault{Code: "OT2001", Class: event.Retry, Op: "connect", Text: "no"})
		l.start()
		pass(time.Second)
		n, err := l.w.p.SkipParked(t.Context(), "skipped", func(e *event.Parked) bool { return e.ID == "a:0" })
		require.NoError(t, err)
		require.Equal(t, 1, n)
		l.source.Store(nil)
		pass(20 * time.Second)
		require.Equal(t, []string{"a:1"}, l.dead.open())
		require.Empty(t, l.broker.of("a"))
		l.broker.refuse()
		_, err = l.w.p.Replay(t.Context(), Replay{})
		require.NoError(t, err)
		require.Equal(t, []string{"a:1"}, l.broker.of("a"))
		require.NoError(t, l.end(false))
	})
}

// inOrder checks what a consumer relies on: n events of a key, each at least once, and never an old one behind a newer one
// unless the newer one follows again; nor does one come before those that precede it have come at all (I3).
func inOrder(t require.TestingT, values []string, n int) {
	last := map[int]int{}
	for i, v := range values {
		_, number, _ := strings.Cut(v, ":")
		k, err := strconv.Atoi(number)
		require.NoError(t, err)
		if _, again := last[k]; !again {
			require.Len(t, last, k, "%d comes before one that precedes it in %v", k, values)
		}
		last[k] = i
	}
	require.Len(t, last, n, "%v", values)
	for k := 1; k < n; k++ {
		require.Less(t, last[k-1], last[k], "%d comes last before %d in %v", k, k-1, values)
	}
}

// TestNothingIsLostOrOvertakenWhateverIsParked runs random failures at random times through processes that end, are killed, or
// lose their source, replays some of what was parked in between, and mends everything in the end. Between two processes a person may
// go back to any position that was ever stored, which is before, behind or between parked events and what they wait for.
// OUTTAIL_SEEDS is how many runs.
func TestNothingIsLostOrOvertakenWhateverIsParked(t *testing.T) {
	seeds := 150
	if n, err := strconv.Atoi(os.Getenv("OUTTAIL_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { parkAtRandom(t, rand.New(rand.NewPCG(uint64(seed), 1))) })
		})
	}
}

func parkAtRandom(t *testing.T, rnd *rand.Rand) {
	l := newLot(event.Park)
	defer l.over()
	written, write, spoil := l.atRandom(rnd)
	l.roomy = rnd.IntN(2) == 0
	l.store.check = func(cp event.Checkpoint) { l.past = append(l.past, cp) }
	l.start()
	for range 3 + rnd.IntN(25) {
		switch rnd.IntN(10) {
		case 0, 1, 2, 3:
			write()
		case 4:
			spoil()
		case 5:
			l.log.cutSessions()
		case 6:
			_, _ = l.w.p.Replay(t.Context(), Replay{Canary: rnd.IntN(3)})
		case 7, 8:
			kill := rnd.IntN(2) == 0
			if err := l.end(kill); !kill {
				require.NoError(t, err)
			}
			if rnd.IntN(2) == 0 {
				l.rewind(t, rnd)
			}
			l.start()
		}
		pass(time.Duration(rnd.IntN(40)) * time.Millisecond)
	}
	l.broker.refuse()
	l.route.lose(nil)
	pass(10 * time.Second)
	waits := l.dead.open()
	slices.Sort(waits)
	require.Len(t, slices.Compact(slices.Clone(waits)), len(waits), "each is parked once: %v", waits)
	res, err := l.w.p.Replay(t.Context(), Replay{})
	require.NoError(t, err)
	require.Zero(t, res.Failed, "%v", res.First)
	pass(10 * time.Second)
	require.Empty(t, l.dead.open())
	for k, n := range written {
		inOrder(t, l.broker.of(k), n)
	}
	require.Empty(t, l.w.p.w.parked.labels)
	require.EqualValues(t, len(l.log.txs), l.w.p.Checkpoint().Position.LSN)
	require.NoError(t, l.end(false))
}

// What nobody can say who would have to wait behind is not parked: it stops the pipeline, which says that, and what else there is.
func TestAnEventOfNoAggregateCannotBeParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.route.lose(map[string]bool{":0": true})
		l.start()
		l.log.append(":0")
		pass(time.Second)
		f := event.AsFault(l.end(false))
		require.Equal(t, "OT6001", f.Code)
		require.Contains(t, f.Text, "its aggregate is unknown")
		require.NotContains(t, f.Text, "policy is halt")
		require.Contains(t, f.Hint, "on_poison: dlq")
		require.Empty(t, l.dead.open())
	})
}

// atRandom gives what writes some rows of aggregates a to c, numbered within each, and what makes some of them, old or yet to come, fail.
func (l *lot) atRandom(rnd *rand.Rand) (written map[string]int, write, spoil func()) {
	written = map[string]int{}
	write = func() {
		var rows []string
		for range 1 + rnd.IntN(6) {
			k := string("abc"[rnd.IntN(3)])
			rows = append(rows, fmt.Sprintf("%s:%d", k, written[k]))
			written[k]++
		}
		l.log.append(rows...)
	}
	spoil = func() {
		lost := map[string]bool{}
		var bad []string
		for range rnd.IntN(5) {
			k := string("ab"[rnd.IntN(2)])
			v := fmt.Sprintf("%s:%d", k, rnd.IntN(written[k]+3))
			if rnd.IntN(2) == 0 {
				bad = append(bad, v)
			} else {
				lost[v] = true
			}
		}
		l.broker.refuse(bad...)
		l.route.lose(lost)
	}
	return written, write, spoil
}
