package pipeline

import (
	"maps"

	"github.com/outtail/outtail/event"
)

// verdict is what the dead-letter store means for an event that was just read.
type verdict uint8

const (
	// free: it goes its way.
	free verdict = iota
	// behind: an earlier event of its aggregate or key waits, so it is kept too.
	behind
	// keptBefore: this row was kept before; it is read again, and stays where it is.
	keptBefore
	// endedBefore: this row was kept, and a person has replayed or skipped it since.
	endedBefore
)

// keeping is one event on its way into the dead-letter store. Its slot is settled when it is durable there.
type keeping struct {
	seq   uint64
	order int64
	ev    *event.Event
	m     *event.Message
	fault *event.Fault // why; nil where it only waits behind another
	alone bool
	// sent: the sink has it, and may be holding it.
	sent bool
	// moves: it is kept already, with the order from, and gets another one.
	moves bool
	from  int64
	// lost: a slot of an earlier session, whose row is read again and judged then. It is taken off the sink's hands, not kept.
	lost bool
}

// enter numbers an admitted event and decides, in one step, whether it may go: a failure that comes in between either
// finds it in the window or is found by it. What is to be kept is queued in the same step, so that writes have the order of
// decisions.
func (w *window) enter(sl slot) (seq uint64, v verdict, k kept) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seq = w.number(sl)
	if w.parked.idle() {
		return seq, free, kept{}
	}
	if k, job := w.parked.meet(sl.ev, sl.m, seq); k != nil {
		switch {
		case job != nil:
			w.keep(*job)
			return seq, behind, *k
		case k.ended != event.Open:
			return seq, endedBefore, *k
		}
		return seq, keptBefore, *k
	}
	if !w.parked.blocks(sl.m) {
		return seq, free, kept{}
	}
	order := w.parked.keep(sl.ev, labelsOf(sl.m.Aggregate, sl.m.Topic, sl.m.Key), seq, false)
	w.keep(keeping{seq: seq, order: order, ev: sl.ev, m: sl.m})
	return seq, behind, kept{}
}

// leaveOut numbers an event that a rule filters. Where it is kept, since the routes were others when it came first, it stays in the store
// until a person decides, and what comes behind it waits there (I3). moves: the parker settles it.
func (w *window) leaveOut(sl slot) (seq uint64, moves bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seq = w.number(sl)
	if w.parked.idle() {
		return seq, false
	}
	if _, job := w.parked.meet(sl.ev, sl.m, seq); job != nil {
		w.keep(*job)
		return seq, true
	}
	return seq, false
}

// poisoned keeps an event that failed, and, unless it is kept alone, all of its aggregate and key that were read behind it, acked
// or not, those that are kept already behind the others. The order among what fails late is made here, once.
func (w *window) poisoned(seq uint64, f *event.Fault, alone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sl := w.t.find(seq)
	if sl == nil || sl.ev == nil {
		return
	}
	if sl.tx == nil { // its session was lost since the policy was chosen
		w.keep(w.stale(seq, sl)...)
		return
	}
	k := w.parked.known[rowID{sl.tx.ID, sl.index}]
	switch {
	case k != nil && k.ended != event.Replayed: // kept from another reading: judged then
		w.keep(keeping{seq: seq, sent: sl.sentAt != 0, lost: true})
		return
	case k != nil:
		// It was replayed once, is sent again in its place, and fails now: it waits again, and what was replayed behind it with it.
		j := w.parked.reopen(k, sl.ev, sl.m, seq)
		j.sent = sl.sentAt != 0
		jobs := []keeping{*j}
		if !k.alone {
			jobs = w.follow(jobs, k.labels, seq)
		}
		w.keep(jobs...)
		return
	}
	l := labelsOf(sl.m.Aggregate, sl.m.Topic, sl.m.Key)
	jobs := []keeping{{seq: seq, ev: sl.ev, m: sl.m, fault: f, alone: alone, sent: sl.sentAt != 0, order: w.parked.keep(sl.ev, l, seq, alone)}}
	if !alone {
		jobs = w.follow(jobs, l, seq)
	}
	w.keep(jobs...)
}

// staleFailed takes an event that failed off the sink's hands where its session is lost: its row is read again, and judged then. What the
// lost session read behind it, of its aggregate or key, goes with it, in one step: it would arrive without it (I3). False where the session
// is the one of now.
func (w *window) staleFailed(seq uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	sl := w.t.find(seq)
	if sl == nil || sl.ev == nil || sl.tx != nil || sl.replay != nil {
		return false
	}
	w.keep(w.stale(seq, sl)...)
	return true
}

func (w *window) stale(seq uint64, sl *slot) []keeping {
	jobs := []keeping{{seq: seq, sent: sl.sentAt != 0, lost: true}}
	behind := labelSet{}
	behind.add(labelsOf(sl.m.Aggregate, sl.m.Topic, sl.m.Key))
	for s := seq + 1; s < w.t.next; s++ {
		one := w.t.find(s)
		if one.replay != nil {
			jobs = w.callBack(jobs, s, one, behind)
			continue
		}
		if one.ev == nil || one.tx != nil || one.sentAt == 0 {
			continue
		}
		if l := labelsOf(one.m.Aggregate, one.m.Topic, one.m.Key); behind.has(l) {
			behind.add(l)
			jobs = append(jobs, keeping{seq: s, sent: true, lost: true})
		}
	}
	for _, k := range w.parked.known {
		k.unsure = k.unsure || !k.met && !k.alone && behind.has(k.labels)
	}
	return jobs
}

// follow adds what was read behind an event with one of its labels, or one of theirs.
func (w *window) follow(jobs []keeping, l [2]label, seq uint64) []keeping {
	labels := labelSet{}
	labels.add(l)
	for s := seq + 1; s < w.t.next; s++ {
		sl := w.t.find(s)
		if sl.replay != nil {
			jobs = w.callBack(jobs, s, sl, labels)
			continue
		}
		if sl.ev == nil || sl.tx == nil {
			continue // another session's
		}
		k := w.parked.known[rowID{sl.tx.ID, sl.index}]
		sent := sl.sentAt != 0
		if k == nil && !sent || k != nil && (k.alone || k.ended == event.Skipped) {
			continue // it was filtered, or waits for nobody
		}
		ll := labelsOf(sl.m.Aggregate, sl.m.Topic, sl.m.Key)
		if k != nil {
			ll = k.labels
		}
		if !labels.has(ll) {
			continue
		}
		labels.add(ll)
		switch {
		case k == nil:
			jobs = append(jobs, keeping{seq: s, ev: sl.ev, m: sl.m, sent: true, order: w.parked.keep(sl.ev, ll, s, false)})
		case k.ended == event.Replayed:
			j := w.parked.reopen(k, sl.ev, sl.m, s)
			j.sent = sent
			jobs = append(jobs, *j)
		default:
			jobs = append(jobs, *w.parked.move(k, sl.ev, sl.m, s))
		}
	}
	return jobs
}

// callBack takes an entry that is on its way out of the store off the sink's hands where something that was read failed in front of it:
// it waits on, and what of its volley waits for it.
func (w *window) callBack(jobs []keeping, seq uint64, sl *slot, labels labelSet) []keeping {
	r := sl.replay
	if r.entry.Alone || !labels.has(r.labels) {
		return jobs
	}
	labels.add(r.labels)
	r.volley.stop(r)
	r.follows()
	return append(jobs, keeping{seq: seq, sent: true, lost: true, ev: sl.ev, m: sl.m})
}

// handOut numbers an entry that is sent again. Its row may come by meanwhile; see leaving. It is not free to go where something of its volley
// that it waits behind was refused in the meantime; it is answered then.
func (w *window) handOut(sl slot) (seq uint64, free bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.behindRefused(sl.replay) {
		return 0, false
	}
	k, moved := w.parked.of(sl.replay.entry)
	if moved { // behind something that failed while it waited to be handed over: it follows that
		sl.replay.gone = true
		sl.replay.volley.stop(sl.replay)
		sl.replay.answer(nil)
		return 0, false
	}
	if k != nil && k.unsure {
		sl.replay.volley.stop(sl.replay)
		sl.replay.follows()
		return 0, false
	}
	if k != nil && !k.out {
		k.out, sl.replay.kept = true, k
		w.out.Add(1)
	}
	return w.t.add(sl), true
}

// waitsBehind reports, and answers, an entry that waits behind one of its volley that was refused.
func (w *window) waitsBehind(r *replayed) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.behindRefused(r)
}

func (w *window) behindRefused(r *replayed) bool {
	if !r.volley.holds(r) {
		return false
	}
	r.follows()
	return true
}

// stays says that an entry was not handed to the sink, so that nothing of its volley that waits behind it is.
func (w *window) stays(r *replayed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.volley.stop(r)
}

// refused gives what is to be taken off the sink's hands together, where it refused an entry that was sent again: that, and what of its volley
// waits behind it. One after the other would have what the sink holds arrive without it (I3).
func (w *window) refused(seq uint64) (jobs []keeping) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sl := w.t.find(seq)
	if sl == nil || sl.replay == nil {
		return nil
	}
	r := sl.replay
	jobs = append(jobs, keeping{seq: seq, sent: true, lost: true, ev: sl.ev, m: sl.m})
	// By labels of its own: those of the volley may be from one that was refused behind these, which keeps nothing back that is in front of it.
	behind := volley{stuck: labelSet{}}
	behind.stop(r)
	for s := seq + 1; s < w.t.next; s++ {
		one := w.t.find(s)
		if one.replay == nil || one.replay.volley != r.volley || !behind.holds(one.replay) {
			continue
		}
		one.replay.follows()
		jobs = append(jobs, keeping{seq: s, sent: true, lost: true, ev: one.ev, m: one.m})
	}
	maps.Copy(r.volley.stuck, behind.stuck)
	return jobs
}

// handedOut says that a replay knows what became of entries, or does not want to know any more.
func (w *window) handedOut(all []*replayed) {
	if w.out.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range all {
		if r.kept != nil {
			r.kept.out, r.kept = false, nil
			w.out.Add(-1)
		}
	}
	close(w.ended)
	w.ended = make(chan struct{})
}

// leaving gives, for a row that is on its way out of the store, what to wait for. Whether it has to be sent again in its place, behind what
// the re-run has just sent of its aggregate, or stays where it is, is known only when that has ended (I3).
func (w *window) leaving(ev *event.Event) <-chan struct{} {
	if w.out.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.parked.known[rowID{ev.Tx.ID, ev.Index}]; k != nil && k.out {
		return w.ended
	}
	return nil
}
