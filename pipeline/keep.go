package pipeline

import "github.com/outtail/outtail/event"

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
	// lost: a slot of an earlier session, whose row is read again and judged then. It is taken off the sink's hands, not kept.
	lost bool
}

// enter numbers an admitted event and decides, in one step, whether it may go: a failure that comes in between either
// finds it in the window or is found by it.
func (w *window) enter(sl slot) (seq uint64, v verdict, k kept, job keeping) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if sl.flight != nil {
		sl.flight.left++
	}
	seq = w.t.add(sl)
	if w.parked.idle() {
		return seq, free, kept{}, keeping{}
	}
	if k := w.parked.meet(sl.ev, seq); k != nil {
		if k.ended != event.Open {
			return seq, endedBefore, *k, keeping{}
		}
		return seq, keptBefore, *k, keeping{}
	}
	if !w.parked.blocks(sl.m) {
		return seq, free, kept{}, keeping{}
	}
	order := w.parked.keep(sl.ev, labelsOf(sl.m.Aggregate, sl.m.Topic, sl.m.Key), seq, false, false)
	return seq, behind, kept{}, keeping{seq: seq, order: order, ev: sl.ev, m: sl.m}
}

// poisoned decides what is kept because an event failed: the event, and, unless it is kept alone, all of its aggregate and key
// that were read behind it, acked or not. The order among what fails late is made here, once. ok is false where the number
// is not in flight any more.
func (w *window) poisoned(seq uint64, f *event.Fault, alone bool) (jobs []keeping, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sl := w.t.find(seq)
	if sl == nil || sl.ev == nil {
		return nil, false
	}
	if sl.tx == nil {
		return []keeping{{seq: seq, sent: sl.sentAt != 0, lost: true}}, true
	}
	if w.parked.known[rowID{sl.tx.ID, sl.index}] != nil {
		return []keeping{{seq: seq, sent: sl.sentAt != 0, lost: true}}, true // kept from another reading of the same row
	}
	jobs = append(jobs, keeping{seq: seq, ev: sl.ev, m: sl.m, fault: f, alone: alone, sent: sl.sentAt != 0})
	l := labelsOf(sl.m.Aggregate, sl.m.Topic, sl.m.Key)
	front := w.parked.waits(l)
	if !alone {
		labels := map[label]bool{l[0]: true, l[1]: true}
		delete(labels, label{})
		for s := seq + 1; s < w.t.next; s++ {
			later := w.t.find(s)
			if later.ev == nil || later.tx == nil || later.replay != nil || w.parked.known[rowID{later.tx.ID, later.index}] != nil || (later.sentAt == 0) {
				continue // another session's, one that was filtered, or one that is kept
			}
			ll := labelsOf(later.m.Aggregate, later.m.Topic, later.m.Key)
			if !labels[ll[0]] && !labels[ll[1]] {
				continue
			}
			for _, one := range ll {
				if one != (label{}) {
					labels[one] = true
				}
			}
			front = front || w.parked.waits(ll)
			jobs = append(jobs, keeping{seq: s, ev: later.ev, m: later.m, sent: true})
		}
	}
	// In front of what waits already, from the last to the first; or behind everything, from the first to the last.
	for i := range jobs {
		j := &jobs[i]
		if front {
			j = &jobs[len(jobs)-1-i]
		}
		j.order = w.parked.keep(j.ev, labelsOf(j.m.Aggregate, j.m.Topic, j.m.Key), j.seq, j.alone, front)
	}
	return jobs, true
}
