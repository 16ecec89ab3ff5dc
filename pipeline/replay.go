package pipeline

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outtail/outtail/event"
)

// Replay says which parked events are sent again, and how.
type Replay struct {
	// Select picks entries; nil is all. Of those that wait for each other an entry goes only when no earlier one is left.
	Select func(*event.Parked) bool
	// Canary, above 0, ends the replay after so many.
	Canary int
	// Rate, above 0, is how many are sent in a second.
	Rate float64
	// Topic, where not empty, takes what is picked instead of the topics of the routes.
	Topic string
}

// ReplayResult counts what became of the entries that were picked.
type ReplayResult struct {
	// Acked were delivered and are closed. Failed were refused again. Waiting are good, and wait behind one that was refused
	// or not picked. Drained were kept behind those that were delivered, and followed them, so that their aggregates flow again.
	Acked, Failed, Waiting, Drained int
	// First is the first refusal, and FirstID the id of its event.
	First   *event.Fault
	FirstID string
	// Ahead is the id, or place, of what the first that waits has in front of it.
	Ahead string
}

// replayed is one entry on its way out of the store.
type replayed struct {
	entry  *event.Parked
	labels [2]label
	topic  string // instead of the route's
	fault  *event.Fault
	done   chan<- struct{}
	gone   bool  // its place in the store is empty: it was moved, or has ended
	kept   *kept // what the window knows of it while it is out; guarded by the window
	sent   *slot // what the sink has of it
	volley *volley
	behind atomic.Bool // one of its volley that it waits behind is refused: whatever became of it, it has to follow that

	taken    atomic.Bool // an answer has come
	answered atomic.Bool // and can be read
}

// volley is what a replay has on its way at once. stuck are the labels of what was refused of it, and of what waits behind that: nothing with
// one of them is handed to the sink any more (I3). Guarded by the window.
type volley struct{ stuck labelSet }

// holds reports whether a label of an entry is among those, and adds the others if so.
func (v *volley) holds(r *replayed) bool {
	if r.entry.Alone || !v.stuck.has(r.labels) {
		return false
	}
	v.stop(r)
	return true
}

// stop adds the labels of an entry.
func (v *volley) stop(r *replayed) {
	if !r.entry.Alone {
		v.stuck.add(r.labels)
	}
}

// follows answers an entry that waits behind a refused one.
func (r *replayed) follows() {
	r.behind.Store(true)
	r.answer(nil)
}

// answer takes the first answer: an ack that is taken back is one of a message that arrived, and is sent again for the order's
// sake only.
func (r *replayed) answer(f *event.Fault) {
	if r.taken.CompareAndSwap(false, true) {
		r.fault = f
		r.answered.Store(true)
		r.done <- struct{}{} // it has room for one each
	}
}

// turn is a lock whose wait ends with a context.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case t <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

func (t turn) pass() { <-t }

// replayChunk is how many entries are on their way before their answers are waited for.
const replayChunk = 256

var errEnough = errors.New("enough")

// Replay sends parked events again, in their order, between those that the loop sends. An entry is closed only after its ack; an
// aggregate flows again when nothing of it is left in the store.
func (p *Pipeline) Replay(ctx context.Context, r Replay) (res ReplayResult, err error) {
	if err := p.replaying.take(ctx); err != nil { // one at a time: two would not see each other's unfinished entries
		return res, err
	}
	defer p.replaying.pass()
	p.mu.Lock()
	open, stopped := p.streamed && p.session != nil, p.ended
	p.mu.Unlock()
	if !open || stopped.Err() != nil {
		return res, faultNotStreaming(p.opts.Name)
	}
	asked := ctx
	defer func() {
		if err != nil && stopped.Err() != nil && asked.Err() == nil {
			err = faultReplayCut(p.opts.Name)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(stopped, cancel)()

	if err := p.caughtUp(ctx); err != nil {
		return res, err
	}
	pass := replayPass{p: p, res: &res, rate: newPacer(r.Rate), topic: r.Topic, touched: map[label]bool{}, burst: 1, most: replayChunk}
	if r.Rate > 0 {
		pass.most = int(min(max(1, r.Rate), replayChunk)) // a second's worth is closed together: what is not closed is sent again
	}
	picked, rest := r.Select, r.Canary
	if err := pass.run(ctx, func(e *event.Parked) bool {
		if picked != nil && !picked(e) || r.Canary > 0 && rest == 0 {
			return false
		}
		rest--
		return true
	}, &res.Acked); err != nil || r.Canary > 0 {
		return res, err
	}
	pass.topic = ""
	// What came meanwhile waits behind what has just gone out. The last passes keep the loop from adding to it, for a moment each:
	// everybody else waits as well, and a pass may have a rate, or a topic that does not answer.
	for n := 0; ; n++ {
		before := res.Drained
		pass.shut = 0
		if n >= 2 {
			pass.shut = shutAtMost
		}
		if r.Rate == 0 {
			pass.shut <<= min(max(0, n-2), 5)
		}
		err := pass.run(ctx, func(e *event.Parked) bool { return e.Behind && pass.touches(e) }, &res.Drained)
		if err != nil || res.Drained == before {
			return res, err
		}
	}
}

// caughtUp waits until every parked row that is still to be read again has been read: until then, events that precede it may not have
// been handed to the sink by this process, nor acknowledged to the one before (I3).
func (p *Pipeline) caughtUp(ctx context.Context) error {
	covers, ok := p.opts.Source.(Coverer)
	if !ok {
		return nil // nothing is read again that is kept, as far as anybody knows
	}
	for {
		at := p.Checkpoint().Position
		p.w.mu.Lock()
		ahead := p.w.parked.ahead(func(tx string) bool { return covers.Covers(at, tx) })
		p.w.mu.Unlock()
		if !ahead {
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// replayPass goes through the store once.
type replayPass struct {
	p       *Pipeline
	res     *ReplayResult
	rate    *pacer
	topic   string         // instead of the routes'
	touched map[label]bool // labels of what was delivered
	// burst is how many of one label may be on their way at once. It begins with one, so that what waits behind an event that
	// is refused again is not sent in vain, and doubles while nothing is refused.
	burst int
	most  int // how many are sent before their answers are waited for
	// shut is how long the loop is kept waiting.
	shut time.Duration
}

// shutAtMost is how long a replay keeps the loop waiting in one piece; without a rate more and more, so that it comes to an end.
const shutAtMost = time.Second

func (r *replayPass) touches(e *event.Parked) bool {
	l := labelsOf(e.Aggregate, e.Topic, e.Key)
	return l[0] != (label{}) && r.touched[l[0]] || l[1] != (label{}) && r.touched[l[1]]
}

// run sends what pick wants and nothing earlier keeps back, counting into acked.
func (r *replayPass) run(ctx context.Context, pick func(*event.Parked) bool, acked *int) error {
	p := r.p
	if r.shut > 0 {
		open := p.shutLoop()
		defer open()
		defer time.AfterFunc(r.shut, open).Stop()
	}
	if err := p.parker.settled(ctx); err != nil {
		return err
	}
	stuck := map[label]string{} // an earlier entry, named, stays
	for from, more := int64(-1<<63), true; more; {
		var chunk []*replayed
		together := map[label]int{}
		done := make(chan struct{}, replayChunk)
		shot := &volley{stuck: labelSet{}}
		err := p.opts.DeadLetters.Each(p.opts.Name, from, func(e *event.Parked) error {
			l := labelsOf(e.Aggregate, e.Topic, e.Key)
			if len(chunk) == r.most || !e.Alone && (together[l[0]] >= r.burst || together[l[1]] >= r.burst) {
				return errEnough
			}
			from = e.Order + 1
			if e.Ended != event.Open {
				return nil
			}
			wanted := pick(e)
			switch {
			case e.Alone && wanted, wanted && firstOf(stuck, l) == "":
				one := *e
				chunk = append(chunk, &replayed{entry: &one, labels: l, topic: r.topic, done: done, volley: shot})
				for _, x := range l {
					if x != (label{}) {
						together[x]++
					}
				}
				return nil
			case wanted:
				r.waits(firstOf(stuck, l))
			}
			stay(stuck, e, l)
			return nil
		})
		if more = errors.Is(err, errEnough); err != nil && !more {
			return err
		}
		err = r.send(ctx, chunk, done)
		if err != nil {
			p.abandon(chunk)
		}
		if cerr := r.close(context.WithoutCancel(ctx), chunk, stuck, acked); err == nil {
			err = cerr
		}
		p.w.handedOut(chunk)
		if err != nil {
			return err
		}
	}
	return nil
}

// stay notes that what is behind an entry stays with it.
func stay(stuck map[label]string, e *event.Parked, l [2]label) {
	if e.Alone {
		return
	}
	for _, one := range l {
		if one != (label{}) && stuck[one] == "" {
			stuck[one] = cmp.Or(e.ID, e.Place())
		}
	}
}

// firstOf names the entry that stays in front of these labels; "" where none does.
func firstOf(stuck map[label]string, l [2]label) string { return cmp.Or(stuck[l[0]], stuck[l[1]]) }

func (r *replayPass) waits(ahead string) {
	r.res.Waiting++
	r.res.Ahead = cmp.Or(r.res.Ahead, ahead)
}

// send hands a chunk to the sink and waits until all of it is answered.
func (r *replayPass) send(ctx context.Context, chunk []*replayed, done chan struct{}) error {
	for _, one := range chunk {
		if r.p.w.waitsBehind(one) {
			continue
		}
		if err := r.rate.wait(ctx); err != nil {
			return err
		}
		r.rate.spend()
		if err := r.p.resend(ctx, one); err != nil {
			return err // what was handed over stays open, and is sent again next time
		}
	}
	for range chunk {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// abandon takes off the sink's hands what nobody waits for any more: what it holds for a topic that is missing, say, would keep the
// position where it is and hold back later events of its aggregate, and would be sent some day although it was skipped meanwhile. What is
// on its way already arrives.
func (p *Pipeline) abandon(chunk []*replayed) {
	p.mu.Lock()
	for _, one := range chunk {
		if one.sent != nil && !one.answered.Load() {
			p.abandoned = append(p.abandoned, keeping{seq: one.sent.m.Seq, sent: true, lost: true, ev: one.sent.ev, m: one.sent.m})
		}
	}
	p.mu.Unlock()
	p.takeBack()
}

// takeBack is done again and again: what was on its way may be given back to the sink.
func (p *Pipeline) takeBack() {
	p.mu.Lock()
	p.abandoned = slices.DeleteFunc(p.abandoned, func(k keeping) bool { return !p.w.unsettled(k.seq) })
	left := slices.Clone(p.abandoned)
	p.mu.Unlock()
	if len(left) > 0 {
		p.parker.put(left...)
	}
}

// close closes what was delivered in front of the first refusal of its labels. What was delivered behind one stays open: it
// has to follow it again (I3).
func (r *replayPass) close(ctx context.Context, chunk []*replayed, stuck map[label]string, acked *int) error {
	p := r.p
	var over []*replayed
	refused := map[label]string{}
	for _, one := range chunk {
		switch {
		case !one.answered.Load(): // it was given up
			stay(refused, one.entry, one.labels)
		case one.gone:
			stay(refused, one.entry, one.labels)
		case one.behind.Load():
			r.waits(firstOf(refused, one.labels))
			stay(refused, one.entry, one.labels)
		case one.fault != nil:
			r.res.Failed++
			if r.res.First == nil {
				r.res.First, r.res.FirstID = one.fault, one.entry.ID
			}
			p.opts.Observer.Replayed(p.opts.Name, "failed", 1)
			if err := p.opts.DeadLetters.Tried(ctx, p.opts.Name, one.entry.Order, one.fault); err != nil {
				return err
			}
			stay(refused, one.entry, one.labels)
		case !one.entry.Alone && firstOf(refused, one.labels) != "":
			r.waits(firstOf(refused, one.labels))
			stay(refused, one.entry, one.labels)
		default:
			over = append(over, one)
		}
	}
	maps.Copy(stuck, refused)
	if r.burst = min(2*r.burst, replayChunk); len(refused) > 0 {
		r.burst = 1
	}
	if len(over) == 0 {
		return nil
	}
	ended, err := p.endParked(ctx, event.Replayed, over)
	if err != nil {
		return err
	}
	for _, one := range over {
		if one.gone {
			stay(stuck, one.entry, one.labels)
		}
		for _, l := range one.labels {
			if l != (label{}) {
				r.touched[l] = true
			}
		}
	}
	*acked += ended
	p.opts.Observer.Replayed(p.opts.Name, "acked", ended)
	return nil
}

// endParked closes entries durably, and lets go what waited for them. The window is locked meanwhile, so that none of them is
// moved behind something that failed just now; one that was moved before stays.
func (p *Pipeline) endParked(ctx context.Context, how event.Ended, over []*replayed) (ended int, err error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	loaded := p.parkedLoaded.Load()
	endings := make([]event.Ending, 0, len(over))
	for _, one := range over {
		k, moved := p.w.parked.of(one.entry)
		if moved {
			one.gone = true
			continue
		}
		endings = append(endings, event.Ending{Order: one.entry.Order, How: how, Tombstone: k != nil || !loaded, ToTopic: one.topic})
	}
	if len(endings) == 0 {
		return 0, nil
	}
	// One that was moved, and that the stored position has passed in its new place, is not known any more: the store has it elsewhere.
	missing, err := p.opts.DeadLetters.End(ctx, p.opts.Name, endings)
	if err != nil {
		return 0, err
	}
	for _, one := range over {
		one.gone = one.gone || slices.Contains(missing, one.entry.Order)
		if !one.gone && loaded { // what is loaded later knows of it
			p.w.parked.end(one.entry, how)
		}
	}
	return len(endings) - len(missing), nil
}

// resend hands one entry to the sink, in the form that the configuration of now gives it.
func (p *Pipeline) resend(ctx context.Context, r *replayed) error {
	e, err := p.opts.DeadLetters.Get(p.opts.Name, r.entry.Order)
	if err != nil {
		return err
	}
	switch {
	case e == nil || e.Ended != event.Open: // moved or ended meanwhile
		r.gone = true
		p.w.stays(r)
		r.answer(nil)
		return nil
	case e.Row == nil:
		p.w.stays(r)
		r.answer(faultGone(r.entry))
		return nil
	}
	tx := &event.Tx{ID: e.Tx, Source: e.Source, Commit: e.Commit}
	ev := &event.Event{Tx: tx, Index: e.Index, Table: e.Table, Row: *e.Row, Size: int(e.Size)}
	m := &event.Message{Partition: -1, Commit: e.Commit, Size: ev.Size}
	if err := p.rate.wait(ctx); err != nil {
		return err
	}
	if err := p.w.admit(ctx, ev.Size); err != nil {
		return err
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	if err := p.prepareAgain(e, ev, m, r.topic); err != nil {
		f := event.AsFault(err)
		if f == nil {
			f = faultUnclassified("prepare an event", err)
		}
		p.w.stays(r)
		r.answer(f)
		return nil
	}
	// No transaction: the entry's row has its place in the order of the log already, or the position is behind it.
	r.sent = &slot{size: ev.Size, topic: m.Topic, sentAt: time.Now().UnixNano(), ev: ev, m: m, replay: r}
	var free bool
	if m.Seq, free = p.w.handOut(*r.sent); !free {
		r.sent = nil
		return nil
	}
	if err := p.opts.Sink.Send(ctx, m); err != nil {
		p.w.settle(m.Seq) // not taken: nothing of it is in the sink
		return err
	}
	p.rate.spend()
	p.opts.Observer.Sent(p.opts.Name, m.Topic, 1)
	return nil
}

// Fits says why a parked event, as it is given with its row, would be refused if it were replayed now; topic is as in Replay. nil where
// nothing is known against it. Nothing is sent or changed.
func (p *Pipeline) Fits(ctx context.Context, e *event.Parked, topic string) error {
	ev := &event.Event{Tx: &event.Tx{ID: e.Tx, Source: e.Source, Commit: e.Commit}, Index: e.Index, Table: e.Table, Row: *e.Row, Size: int(e.Size)}
	m := &event.Message{Partition: -1, Commit: e.Commit, Size: ev.Size}
	p.sending.Lock() // router and transformer are one goroutine's at a time
	err := p.prepareAgain(e, ev, m, topic)
	p.sending.Unlock()
	if err != nil {
		return err
	}
	if sink, ok := p.opts.Sink.(Measurer); ok {
		return sink.Fits(ctx, m)
	}
	return nil
}

func (p *Pipeline) prepareAgain(e *event.Parked, ev *event.Event, m *event.Message, topic string) error {
	d, err := p.prepare(ev, m)
	if topic != "" && (err != nil || d == Drop) {
		// A person named the topic, where the routes have none for it. Its key keeps it in one order with its aggregate all the same (I3).
		if m.Key == nil {
			m.Key = ev.Row.Key()
		}
		if m.Key == nil {
			return faultKeyless(e)
		}
		m.Topic, d = topic, Deliver
		err = p.opts.Transformer.Transform(ev, m)
	}
	if err != nil {
		return err
	}
	if d == Drop {
		return faultNowDropped(e)
	}
	if topic != "" {
		m.Topic = topic
	}
	return nil
}

// asAccepted gives an event that was replayed before the form in which it was accepted then. was is what preparing it anew said.
func (p *Pipeline) asAccepted(order int64, ev *event.Event, m *event.Message, was error) error {
	e, err := p.opts.DeadLetters.Get(p.opts.Name, order)
	if err != nil || e == nil || e.Row == nil || e.ToTopic == "" && !e.Edited {
		return was
	}
	changed := *ev
	changed.Row, changed.Err = *e.Row, nil
	return p.prepareAgain(e, &changed, m, e.ToTopic)
}

// SkipParked closes parked events without sending them; reason is what they are counted under.
func (p *Pipeline) SkipParked(ctx context.Context, reason string, pick func(*event.Parked) bool) (n int, err error) {
	if err := p.replaying.take(ctx); err != nil { // whoever gave up waiting for a long replay does not want it any more
		return 0, err
	}
	defer p.replaying.pass()
	if err := p.parker.settled(ctx); err != nil {
		return 0, err
	}
	var over []*replayed
	err = p.opts.DeadLetters.Each(p.opts.Name, -1<<63, func(e *event.Parked) error {
		if e.Ended == event.Open && pick(e) {
			one := *e
			over = append(over, &replayed{entry: &one})
		}
		return nil
	})
	if err != nil || len(over) == 0 {
		return 0, err
	}
	n, err = p.endParked(ctx, event.Skipped, over)
	if n > 0 {
		p.opts.Observer.Filtered(p.opts.Name, reason, n)
	}
	return n, err
}

// loadParked reads what the store has before the first event is read. start is where reading begins.
func (p *Pipeline) loadParked(ctx context.Context, start event.Checkpoint) error {
	if p.opts.DeadLetters == nil || p.parkedLoaded.Load() {
		return nil
	}
	if err := p.replaying.take(ctx); err != nil { // somebody may be skipping
		return err
	}
	defer p.replaying.pass()
	covers, _ := p.opts.Source.(Coverer)
	end := event.Position{}
	if covers != nil {
		end = covers.LogEnd()
	}
	var swept []int64
	set := newParkedSet()
	err := p.opts.DeadLetters.Each(p.opts.Name, -1<<63, func(e *event.Parked) error {
		covered := covers == nil || covers.Covers(start.Position, e.Tx)
		if !covered && !end.IsZero() && !covers.Covers(end, e.Tx) {
			covered = true // of a log that was reset, or of another server's: it is not read again, and what comes is behind it (I3)
		}
		if e.Selection != "" && e.Selection != start.Selection {
			covered = true // its row has another number now, and that number is another row's: what is read again is kept again (I1)
		}
		if x := start.Prefix; !covered && x != nil && x.Tx == e.Tx && e.Index < x.Rows {
			covered = true
		}
		if covered && e.Ended != event.Open {
			swept = append(swept, e.Order)
			set.next = max(set.next, e.Order+1) // it is swept behind our back: nobody else may have its order
			return nil
		}
		set.load(e, covered)
		return nil
	})
	if err != nil {
		return err
	}
	p.w.mu.Lock()
	p.w.parked = set
	p.parkedLoaded.Store(true)
	p.w.mu.Unlock()
	p.parker.sweep(swept)
	return nil
}
