package pipeline

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outtail/outtail/event"
)

// Options of a pipeline. All fields are required unless they say otherwise.
type Options struct {
	Name        string
	Source      Source
	Sink        Sink
	Router      Router
	Transformer Transformer
	Store       Store
	Committer   *Committer
	Observer    Observer
	Log         *slog.Logger
	// DeadLetters keeps events that cannot be delivered; without it, or where the policy says so, the pipeline halts.
	DeadLetters DeadLetters
	// Columns is the mapping: what of it names the aggregate must be read before an event can be parked.
	Columns event.Columns

	InFlightEvents int
	InFlightBytes  int64
	MaxRate        float64       // events per second that are handed to the sink, replays included; 0 is unlimited
	StartTimeout   time.Duration // how long the first connection to the source may take
	DrainTimeout   time.Duration // how long stopping waits for acks
	Version        string
	// Sink faults and source faults tell through these, see Conditions and Acks.
}

// Pipeline is one source, one sink and what lies between. Make it with New, wire its Acks and Conditions into the sink
// and the source with Bind, and Run it once.
type Pipeline struct {
	opts   Options
	w      *window
	rate   *pacer
	parker *parker
	conds  conditions
	log    *slog.Logger
	// sending is held by whoever hands events to the sink: the loop, or a replay.
	sending sync.Mutex
	shut    atomic.Pointer[chan struct{}] // set while a replay keeps the loop waiting
	// replaying is held by one replay, or skip, at a time.
	replaying    turn
	parkedLoaded atomic.Bool     // set once, under replaying
	ended        context.Context // of Run: over when reading is

	mu       sync.Mutex
	state    State
	since    time.Time
	session  *session // nil between sessions
	stored   event.Checkpoint
	lastSave time.Time
	base     uint64 // Events of the checkpoint that this process began with
	failure  *event.Fault
	failSeq  uint64
	stop     context.CancelCauseFunc // ends reading
	lastTx   time.Time               // commit time of the newest event read
	sinkOpen bool                    // only the pipeline's goroutine looks
	streamed bool                    // both ends were open once
	// abandoned were handed to the sink by replays that have ended, and not answered then.
	abandoned []keeping
}

// session is one connection of the source, from the checkpoint at which it began.
type session struct {
	start event.Checkpoint
	// depends follows Position's answers.
	depends []byte
}

var errFailed = errors.New("the pipeline failed")

// New makes a pipeline that is not yet running. Source and Sink may be set later, with Attach, since they need the
// pipeline's Acks and Conditions.
func New(o Options) *Pipeline {
	p := &Pipeline{opts: o, log: o.Log.With("pipeline", o.Name), since: time.Now(), replaying: make(turn, 1)}
	p.w = newWindow(o.InFlightEvents, o.InFlightBytes, o.Committer.notify, time.Now)
	p.rate = newPacer(o.MaxRate)
	p.parker = newParker(p)
	p.w.keep = p.parker.put
	p.conds.log = p.log
	p.conds.changed = p.conditionsChanged
	o.Committer.register(p)
	o.Observer.State(o.Name, Starting)
	return p
}

// Attach sets the two ends.
func (p *Pipeline) Attach(src Source, sink Sink) { p.opts.Source, p.opts.Sink = src, sink }

// Condition implements Conditions for the source and the sink.
func (p *Pipeline) Condition(key string, f *event.Fault) { p.conds.Condition(key, f) }

// Acked implements Acks.
func (p *Pipeline) Acked(seq uint64) {
	s, ok := p.w.settle(seq)
	if !ok {
		return // acked twice: harmless
	}
	if s.replay != nil {
		s.replay.answer(nil)
	}
	o := p.opts.Observer
	o.Acked(p.opts.Name, s.topic, 1)
	if s.sentAt != 0 && s.replay == nil {
		now := time.Now()
		var commit time.Duration
		if s.tx != nil {
			commit = max(0, now.Sub(s.tx.Commit))
		}
		o.Latency(p.opts.Name, commit, time.Duration(now.UnixNano()-s.sentAt))
	}
}

// Failed implements Acks: a message failed for its own sake, or finally. Nothing passes it before its policy was applied: the
// prefix stands before it (I1).
func (p *Pipeline) Failed(seq uint64, err error) {
	f := event.AsFault(err)
	if f == nil {
		f = faultUnclassified("send", err)
	}
	p.opts.Observer.SendError(p.opts.Name, f.Class)
	sl, ok := p.w.look(seq)
	switch {
	case f.Class != event.Record:
		p.fail(f, seq)
	case !ok:
		p.fail(faultHalted("", f.Place, f), seq)
	case sl.replay != nil:
		jobs := p.w.refused(seq)
		sl.replay.answer(f)
		p.parker.put(jobs...)
	default:
		p.poison(seq, sl.m, sl.ev, f, true)
	}
}

// Reopened implements Acks.
func (p *Pipeline) Reopened(seq uint64) {
	if !p.w.reopen(seq) {
		p.fail(faultBrokenContract("the sink took back an ack that the position had passed", seq), seq)
	}
}

// fail ends the pipeline; the failure with the lowest event number is the one that is told.
func (p *Pipeline) fail(f *event.Fault, seq uint64) {
	p.mu.Lock()
	if p.failure == nil || seq < p.failSeq {
		p.failure, p.failSeq = f, seq
	}
	stop := p.stop
	p.mu.Unlock()
	if stop != nil {
		stop(errFailed)
	}
}

func (p *Pipeline) failed() *event.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// State tells what the pipeline is doing, since when, and what holds it up.
func (p *Pipeline) State() (State, time.Time, []Reason) {
	p.mu.Lock()
	s, since, f := p.state, p.since, p.failure
	p.mu.Unlock()
	rs := p.conds.reasons()
	if s == Starting && len(rs) == 0 {
		rs = []Reason{{Key: "source", Fault: faultConnecting(), Since: since}}
	}
	if s == Failed && f != nil {
		rs = append([]Reason{{Key: "failed", Fault: f, Since: since}}, rs...)
	}
	return s, since, rs
}

// Name of the pipeline.
func (p *Pipeline) Name() string { return p.opts.Name }

// Checkpoint is what was saved last, with the count of events.
func (p *Pipeline) Checkpoint() event.Checkpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stored
}

// Run runs the pipeline until ctx ends (nil after a clean drain) or it fails (an *event.Fault). The order of stopping is
// that of the design: stop reading, flush the sink, resolve acks, save, confirm, close in reverse. Nothing depends on a
// clean stop.
func (p *Pipeline) Run(ctx context.Context) error {
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p.mu.Lock()
	p.stop, p.ended = stop, reading
	p.mu.Unlock()
	// What fails while draining is still kept: the parker outlives reading.
	parking, endParking := context.WithCancel(context.WithoutCancel(ctx))
	parked := make(chan struct{})
	go func() { // ends with Run
		defer close(parked)
		p.parker.run(parking)
	}()
	defer func() { endParking(); <-parked }()

	monitor := make(chan struct{})
	go func() { // ends with Run
		defer close(monitor)
		p.monitor(reading)
	}()
	err := p.sessions(reading)
	stop(nil)
	<-monitor
	if ferr := p.finish(ctx, err); ferr != nil {
		p.mu.Lock()
		if p.failure == nil {
			p.failure = ferr
		}
		p.mu.Unlock()
		p.transition(Failed)
		return ferr
	}
	p.transition(Stopped)
	return nil
}

// finish turns the end of reading into the pipeline's result, draining on the way.
func (p *Pipeline) finish(ctx context.Context, err error) *event.Fault {
	stopping := ctx.Err() != nil
	if stopping && p.failed() == nil {
		p.transition(Draining)
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.DrainTimeout)
	defer cancel()
	if p.started() {
		p.drain(grace)
	}
	if s := p.opts.Source; s != nil {
		if cerr := s.Close(); cerr != nil {
			p.log.Debug("closing the source", "error", cerr)
		}
	}
	if cerr := p.opts.Sink.Close(); cerr != nil {
		p.log.Debug("closing the sink", "error", cerr)
	}
	if f := p.failed(); f != nil {
		return f
	}
	if f := event.AsFault(err); f != nil && !errors.Is(err, context.Canceled) {
		return f
	}
	if stopping {
		return nil
	}
	return faultUnclassified("run", err)
}

func (p *Pipeline) started() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session != nil
}

// drain waits for the acks that can still come, and saves what they reached.
func (p *Pipeline) drain(ctx context.Context) {
	if f := p.failed(); f != nil {
		// What lies before the failed event may still be acked; what lies behind it is sent again anyway.
		p.mu.Lock()
		seq := p.failSeq
		p.mu.Unlock()
		_ = p.w.passedBefore(ctx, seq)
	} else if p.sinkOpen && p.opts.Sink.Flush(ctx) == nil {
		_ = p.w.empty(ctx)
	}
	left, _, _ := p.w.gauges()
	if left > 0 && p.failed() == nil {
		p.log.Warn("stopped with unacked events; they are sent again at the next start", "events", left)
	}
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.DrainTimeout)
	defer cancel()
	if err := p.opts.Committer.request(saving, p, nil); err != nil {
		p.log.Warn("the last position was not saved; events since the one before are sent again", "error", err)
	}
}

// sessions opens the sink, then runs one source session after another until ctx ends or something final happens.
func (p *Pipeline) sessions(ctx context.Context) error {
	cp, err := p.opts.Store.Load(p.opts.Name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.stored, p.base = cp, cp.Events
	p.mu.Unlock()

	wait := backoff{first: 100 * time.Millisecond, most: 10 * time.Second}
	began := time.Now()
	var waiting time.Time // since when as a standby
	var told *event.Fault // the last finding of an attempt that had the time to find it
	first := true
	for {
		var until time.Time
		if first {
			// Shorter than this no source can tell a wait as a standby from a server that says nothing.
			until = began.Add(max(p.opts.StartTimeout, leastStart))
		}
		opened, err := p.runSession(ctx, until)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f := event.AsFault(err)
		if f == nil && first && !opened && errors.Is(err, context.DeadlineExceeded) {
			f = faultNoAnswer()
		}
		if f == nil {
			f = faultUnclassified("read", err)
		}
		if opened {
			first = false
			wait.reset()
			p.opts.Observer.Reconnect(p.opts.Name)
		}
		switch {
		case f.Class == event.Retry, f.Class == event.Config, f.Class == event.Environment && !f.Immediate:
			// Environment is a reason to give up only while nothing was ever read.
		case f.Class == event.Environment && !first:
			// A privilege that was revoked or a table that is being swapped: held, and tried again slowly.
			wait.n = max(wait.n, 5)
		default:
			return f
		}
		switch {
		case !f.Standby:
			waiting = time.Time{}
		case waiting.IsZero():
			waiting = time.Now()
		}
		if _, ok := p.opts.Source.(Fenced); ok && f.Standby && time.Since(waiting) > evictAfter {
			if left, _, _ := p.w.gauges(); left > 0 {
				return faultEvicted(f, left)
			}
		}
		switch {
		case f.Standby:
			told = nil
		case told == nil || until.IsZero() || time.Until(until) > deadlineSlack:
			told = f
		}
		if first && !f.Standby {
			if time.Since(began) >= p.opts.StartTimeout {
				return faultStartTimeout(cmp.Or(told, f), p.opts.StartTimeout)
			}
			f = faultStarting(f, p.opts.StartTimeout)
		}
		p.Condition("source", faultSourceLost(f))
		d := wait.next()
		if first && !f.Standby {
			if left := p.opts.StartTimeout - time.Since(began); d > left {
				d = max(0, left)
			}
		}
		if err := sleep(ctx, d); err != nil {
			return context.Cause(ctx)
		}
		if f.Standby {
			// start_timeout is for a server that does not answer, and this one does. The pause may be longer than it.
			began = time.Now()
		}
	}
}

// openSink waits, for ever and degraded, for a broker that answers, and compares it with the stored one (I5).
func (p *Pipeline) openSink(ctx context.Context) error {
	wait := backoff{first: 200 * time.Millisecond, most: 10 * time.Second}
	for {
		id, err := p.opts.Sink.Open(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			p.Condition("sink", nil)
			return p.compareSink(id)
		}
		f := event.AsFault(err)
		if f == nil {
			return faultUnclassified("open the sink", err)
		}
		if f.Class != event.Retry && f.Class != event.Config && f.Class != event.Environment {
			return f
		}
		p.Condition("sink", f)
		if err := sleep(ctx, wait.next()); err != nil {
			return context.Cause(ctx)
		}
	}
}

func (p *Pipeline) compareSink(id event.SinkID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.stored.Sink
	if !p.stored.IsZero() && was.Kind == id.Kind && was.ClusterID != "" && id.ClusterID != "" && was.ClusterID != id.ClusterID {
		f := faultOtherCluster(was.ClusterID, id.ClusterID)
		if !accepts(p.stored, f.Code) {
			return f
		}
		p.usedUp(f.Code)
	}
	p.stored.Sink = id
	if p.session != nil {
		p.session.start.Accepted = nil // used up, and not before: the wait for a broker may end without one
	}
	return nil
}

// usedUp tells that what a person accepted held for this start, and holds for no other.
func (p *Pipeline) usedUp(code string) {
	p.log.Warn("a finding that a person accepted does not stop this start; the acceptance is used up", "code", code)
}

func accepts(cp event.Checkpoint, code string) bool {
	for _, c := range cp.Accepted {
		if c == code {
			return true
		}
	}
	return false
}

// runSession opens the source at the stored checkpoint and reads until it fails. opened tells whether it streamed. The
// source comes before the sink, so that a wrong table is told at once even while the broker is down; nothing is read
// before the sink is open.
//
// Open is given until, where that is not zero, so that a server that accepts connections and says nothing does not stretch
// start_timeout.
func (p *Pipeline) runSession(ctx context.Context, until time.Time) (opened bool, err error) {
	src := p.opts.Source
	p.endSession(ctx)
	from := p.Checkpoint()
	start, err := p.open(ctx, until, from)
	if err != nil {
		_ = src.Close()
		return false, err
	}
	start.Sink, start.Events, start.Version = from.Sink, from.Events, p.opts.Version
	// An acceptance is used up by the connect that it allowed: the source's by this one, the sink's by the one below.
	start.SavedAt, start.Accepted = time.Now().UTC(), nil
	for _, code := range from.Accepted {
		switch {
		case code != CodeOtherCluster:
			p.usedUp(code)
		case !p.sinkOpen:
			start.Accepted = []string{code}
		}
	}
	if err := p.loadParked(ctx, start); err != nil {
		_ = src.Close()
		return false, err
	}
	s := &session{start: start, depends: start.Depends}

	p.mu.Lock()
	p.w.session()
	p.session = s
	p.mu.Unlock()
	// The start is saved before the first event is read: `start` is applied once, and a crash before the first ack finds
	// the same place again (I5). Save, then confirm (I4).
	for wait := (backoff{first: 200 * time.Millisecond, most: 5 * time.Second}); ; {
		err := p.opts.Committer.request(ctx, p, &start)
		if err == nil {
			break
		}
		if f := event.AsFault(err); ctx.Err() != nil || (f != nil && f.Class == event.Safety) {
			_ = src.Close()
			return true, err
		}
		if serr := sleep(ctx, wait.next()); serr != nil {
			_ = src.Close()
			return true, serr
		}
	}
	p.Condition("source", nil)
	if !p.sinkOpen {
		if err := p.openSink(ctx); err != nil {
			return true, err
		}
		p.sinkOpen = true
		if err := p.opts.Committer.request(ctx, p, nil); err != nil { // which cluster it is, before it acks anything
			_ = src.Close()
			return true, err
		}
	}
	p.mu.Lock()
	p.streamed = true
	p.mu.Unlock()
	p.transition(Streaming)
	p.log.Info("streaming", "from", start.Position.String())

	reading, done := fenced(ctx, src)
	err = p.loop(reading, s)
	done()
	if ctx.Err() != nil {
		return true, err // finish drains while the session is still open, so that the last position is confirmed
	}
	p.log.Warn("the source was lost", "error", err)
	if cerr := src.Close(); cerr != nil {
		p.log.Debug("closing the source", "error", cerr)
	}
	return true, err
}

// evictAfter is how long another process may hold the source while events of ours are unacked. What the sink's client holds would
// reach the broker whenever it answers, behind newer events of that process; ending is the one way to take it back for certain (I3).
const evictAfter = 5 * time.Second

// deadlineSlack is how long before the deadline of an Open an attempt that it cuts off may end: a connection's own timer may run out
// a little earlier. What such an attempt says is the deadline's doing, and hides what the ones before it were told.
const deadlineSlack = 50 * time.Millisecond

// leastStart is the least time that a first Open is given.
const leastStart = 4 * time.Second

func (p *Pipeline) open(ctx context.Context, until time.Time, from event.Checkpoint) (event.Checkpoint, error) {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	return p.opts.Source.Open(ctx, from)
}

// fenced gives a context that ends as well, with the source's fault as its cause, when the source loses the right to send, or its
// session: also while an event waits for room in the window.
func fenced(ctx context.Context, src Source) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	end := func(with context.Context) func() bool {
		return context.AfterFunc(with, func() { cancel(context.Cause(with)) })
	}
	var stops []func() bool
	if f, ok := src.(Fenced); ok {
		stops = append(stops, end(f.Fence()))
	}
	if k, ok := src.(Kept); ok {
		stops = append(stops, end(k.Lost()))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// endSession gives what is in flight a moment to be acked, so that less is sent again, saves, and lets go of the last
// session. A sink that holds events does not keep the source away: they stay in the window, and the new session sends
// them again behind themselves, which is a contiguous re-run (I3).
func (p *Pipeline) endSession(ctx context.Context) {
	if !p.started() {
		return
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = p.w.empty(short)
	if err := p.opts.Committer.request(ctx, p, nil); err != nil {
		p.log.Debug("saving behind a lost source", "error", err)
	}
	p.mu.Lock()
	p.session = nil
	p.mu.Unlock()
}

// snapshot is what is to be saved now; false where there is nothing.
func (p *Pipeline) snapshot() (saving, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.session
	if s == nil {
		return saving{}, false
	}
	g := p.w.take()
	cp := s.start
	if g.reached {
		var deps []byte
		cp.Position, deps = p.opts.Source.Position(g.at)
		if !samePlace(cp.Position, s.start.Position) {
			cp.Prefix = nil // a bound may stand where the session began, and the rows behind it are done all the same
		}
		if deps != nil {
			s.depends = deps
		}
	}
	cp.Depends = s.depends
	if g.tx != nil {
		cp.Prefix = &event.Prefix{Tx: g.tx.ID, Rows: g.rows, Selection: s.start.Selection}
	}
	cp.Sink = p.stored.Sink
	cp.SavedAt, cp.Version = time.Now().UTC(), p.opts.Version
	cp.Events = p.base + g.passed
	return saving{cp, s, g.base}, true
}

// samePlace says that no transaction lies between two positions of one server.
func samePlace(a, b event.Position) bool {
	return a == b || (a.GTID != "" && a.GTID == b.GTID && a.Kind == b.Kind)
}

// saved is called by the committer after fsync. Only now the source may hear of it (I4).
func (p *Pipeline) saved(what saving, at time.Time) {
	cp := what.cp
	p.mu.Lock()
	p.stored, p.lastSave = cp, at
	current := what.s != nil && what.s == p.session
	p.mu.Unlock()
	p.Condition("checkpoint", nil)
	if current {
		p.parker.sweep(p.w.passedBelow(what.base))
		p.opts.Source.Confirm(cp.Position)
	}
}

// saveFailed holds: events go on until the window is full, nothing is confirmed. What the store itself calls final ends
// the pipeline.
func (p *Pipeline) saveFailed(err error) {
	f := event.AsFault(err)
	if f == nil {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return
		}
		f = faultUnclassified("save the position", err)
	}
	switch f.Class {
	case event.Retry, event.Config, event.Environment:
		p.w.unsaved()
		p.Condition("checkpoint", f)
	default:
		p.fail(f, 0)
	}
}

func (p *Pipeline) need() need {
	acked, moved, inFlight, idleAt := p.w.need()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil {
		return need{}
	}
	return need{acked: acked, moved: moved, inFlight: inFlight, idleAt: idleAt, lastSave: p.lastSave}
}

// conditionsChanged moves between streaming and degraded.
func (p *Pipeline) conditionsChanged(active bool) {
	p.mu.Lock()
	s, streamed := p.state, p.streamed
	p.mu.Unlock()
	switch {
	case active && (s == Streaming || s == Starting):
		p.transition(Degraded)
	case !active && s == Degraded && streamed: // a start that was held up is not over with what held it up
		p.transition(Streaming)
	}
}

// transition moves to a state if the table allows it.
func (p *Pipeline) transition(to State) {
	p.mu.Lock()
	from := p.state
	if to == Streaming && len(p.conds.reasons()) > 0 {
		to = Degraded
	}
	if from == to || !from.mayBecome(to) {
		p.mu.Unlock()
		return
	}
	p.state, p.since = to, time.Now()
	p.mu.Unlock()
	p.opts.Observer.State(p.opts.Name, to)
	p.log.Info("state", "from", from.String(), "to", to.String())
}
