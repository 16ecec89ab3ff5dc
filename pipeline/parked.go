package pipeline

import (
	"math"
	"slices"

	"github.com/outtail/outtail/event"
)

// parkedSet knows which events are kept in the dead-letter store, and which must wait behind them (I3).
//
// Two things are asked of it for every event: is this row one that is kept already, since the log is read again behind a crash
// or a lost session? And must it wait, because an earlier event of its aggregate, or of its topic and key, waits? Entries whose
// rows the stored position has passed (it covers them) never come by again, so only their labels are remembered; the others
// are known by their row, and their labels block only from the row on: in a re-run, what came before the first kept event
// of an aggregate is sent again, the kept ones are left out, what comes behind them is kept too.
//
// An entry's order is given when it is kept, and events are kept in the order of the log, so that orders are right but in two
// cases: an event fails late, when others of its aggregate that were read behind it are kept already; or it fails, or has to wait, in a
// re-run (behind a crash, or because a person went back), in front of some that were kept before. Then those are moved behind it: in the
// first case at once, since they are in the window, in the second as they are read again. A process may end before all of them are, so
// what a start finds need not have the order of the log.
//
// Pure, and guarded by the window, like the ack tracker: whether an event may go and its place in the order are decided at once.
type parkedSet struct {
	labels map[label]*waiting
	known  map[rowID]*kept
	next   int64 // order of the next entry
	open   int
	// last is the highest order of what lies, in the log, before what is still to be read: an entry that is met with a lower one was
	// kept before something that precedes it. passedLast is that of the entries that the stored position covers, behind which a session
	// begins.
	last, passedLast int64
}

// rowID names a row of the log for as long as it may be read again.
type rowID struct {
	tx    string
	index uint64
}

// label is what events are kept in order by: an aggregate (topic is "\x00"), or a topic and key.
type label struct{ topic, name string }

// waiting counts the open entries of a label: all, and those behind which later events wait now.
type waiting struct{ all, active int }

// kept is an entry whose row may be read again.
type kept struct {
	order  int64
	former []int64 // orders that it had before it was moved
	id     string  // the event's, where the entry was found at a start
	ended  event.Ended
	alone  bool
	labels [2]label // the zero label is none
	// seq is the event's number where it was read last; met is false until it was read in this session.
	seq uint64
	met bool
	// seen is true once it was read, or kept, by this process: what precedes it in the log was handed to the sink, or is kept.
	seen bool
	// unsure: what precedes it was taken off the sink's hands with its lost session, and is not read again yet.
	unsure bool
	// out: a replay has handed it to the sink, and does not know yet how that ends.
	out bool
}

func newParkedSet() parkedSet {
	return parkedSet{labels: map[label]*waiting{}, known: map[rowID]*kept{}, last: noOrder, passedLast: noOrder}
}

// noOrder is lower than all.
const noOrder = math.MinInt64

const aggregateTopic = "\x00"

// labelsOf are the aggregate and the place of an event; an event without a key has only the first.
func labelsOf(aggregate, topic string, key []byte) (l [2]label) {
	if aggregate != "" {
		l[0] = label{aggregateTopic, aggregate}
	}
	if topic != "" && key != nil {
		l[1] = label{topic, string(key)}
	}
	return l
}

// labelSet is what holds others back: whatever has one of its labels, and then all of that one's.
type labelSet map[label]bool

func (s labelSet) has(l [2]label) bool { return s[l[0]] || s[l[1]] }

func (s labelSet) add(l [2]label) {
	for _, one := range l {
		if one != (label{}) {
			s[one] = true
		}
	}
}

// Heads tells, of open entries that it is shown in their order, which have nothing in front of them: those are free to be replayed.
type Heads struct{ ahead map[label]struct{} }

// Head takes the next entry.
func (h *Heads) Head(e *event.Parked) bool {
	if e.Alone {
		return true
	}
	if h.ahead == nil {
		h.ahead = map[label]struct{}{}
	}
	head := true
	for _, l := range labelsOf(e.Aggregate, e.Topic, e.Key) {
		if l == (label{}) {
			continue
		}
		if _, waits := h.ahead[l]; waits {
			head = false
		}
		h.ahead[l] = struct{}{}
	}
	return head
}

// load takes what the store has, in order. covered says that the stored position has passed its row.
func (s *parkedSet) load(e *event.Parked, covered bool) {
	s.next = max(s.next, e.Order+1)
	l := labelsOf(e.Aggregate, e.Topic, e.Key)
	if !covered {
		s.known[rowID{e.Tx, e.Index}] = &kept{order: e.Order, id: e.ID, ended: e.Ended, alone: e.Alone, labels: l}
	}
	if e.Ended != event.Open {
		return
	}
	s.open++
	if !e.Alone {
		active := 0
		if covered {
			active = 1
			s.passedLast = max(s.passedLast, e.Order)
		}
		s.count(l, 1, active)
	}
}

func (s *parkedSet) count(labels [2]label, all, active int) {
	for _, l := range labels {
		if l == (label{}) {
			continue
		}
		w := s.labels[l]
		if w == nil {
			w = &waiting{}
			s.labels[l] = w
		}
		w.all += all
		w.active += active
		if w.all == 0 {
			delete(s.labels, l)
		}
	}
}

// session begins to read again behind the stored position: what is known may come by again, and blocks from there on.
func (s *parkedSet) session() {
	for _, k := range s.known {
		if k.met && k.ended == event.Open && !k.alone {
			s.count(k.labels, 0, -1)
		}
		k.met = false
	}
	s.last = s.passedLast
}

// idle says that no event can be kept or have to wait: the common case, and all that it costs.
func (s *parkedSet) idle() bool { return len(s.labels) == 0 && len(s.known) == 0 }

// meet finds the entry of a row that was read again, and has its labels block from here on. m is the message that the row makes
// now. A job is given where the entry has to be moved behind what is kept in front of it by now, or is open again because of that.
func (s *parkedSet) meet(ev *event.Event, m *event.Message, seq uint64) (*kept, *keeping) {
	if len(s.known) == 0 {
		return nil, nil
	}
	id := rowID{ev.Tx.ID, ev.Index}
	k := s.known[id]
	if k == nil {
		return nil, nil
	}
	if k.id != "" && m.ID != "" && k.id != m.ID {
		s.foreign(id, k)
		return nil, nil
	}
	k.seq = seq
	if k.met {
		return k, nil
	}
	k.met, k.seen, k.unsure = true, true, false
	switch {
	case k.ended == event.Replayed && s.blocks(m):
		return k, s.reopen(k, ev, m, seq)
	case k.ended != event.Open || k.alone:
		return k, nil
	}
	s.count(k.labels, 0, 1)
	if k.order < s.last {
		return k, s.move(k, ev, m, seq)
	}
	s.last = k.order
	return k, nil
}

// foreign: another row than the one that was kept has its place, since the log began anew (a reset, a server that was rebuilt). The one
// that was kept is not read again, and what comes is behind it.
func (s *parkedSet) foreign(id rowID, k *kept) {
	delete(s.known, id)
	if k.ended == event.Open && !k.alone {
		s.passedLast = max(s.passedLast, k.order)
		if !k.met {
			s.count(k.labels, 0, 1)
		}
	}
}

// move gives an entry a new order, behind all others.
func (s *parkedSet) move(k *kept, ev *event.Event, m *event.Message, seq uint64) *keeping {
	j := &keeping{seq: seq, ev: ev, m: m, from: k.order, moves: true, order: s.next}
	k.former = append(k.former, k.order)
	k.order = s.next
	s.last = s.next
	s.next++
	return j
}

// reopen has an event that was replayed wait once more: something in front of it waits, and it has to follow that again.
func (s *parkedSet) reopen(k *kept, ev *event.Event, m *event.Message, seq uint64) *keeping {
	k.ended, k.met = event.Open, true
	s.open++
	if !k.alone {
		s.count(k.labels, 1, 1)
	}
	return s.move(k, ev, m, seq)
}

// blocks reports whether a message must wait behind a kept one.
func (s *parkedSet) blocks(m *event.Message) bool {
	if len(s.labels) == 0 {
		return false
	}
	if m.Aggregate != "" {
		if w := s.labels[label{aggregateTopic, m.Aggregate}]; w != nil && w.active > 0 {
			return true
		}
	}
	if m.Topic == "" || m.Key == nil {
		return false
	}
	w := s.labels[label{m.Topic, string(m.Key)}]
	return w != nil && w.active > 0
}

// keep adds an entry for a row that was read with number seq, and gives its order.
func (s *parkedSet) keep(ev *event.Event, l [2]label, seq uint64, alone bool) int64 {
	order := s.next
	s.last = order
	s.next++
	s.known[rowID{ev.Tx.ID, ev.Index}] = &kept{order: order, alone: alone, labels: l, seq: seq, met: true, seen: true}
	s.open++
	if !alone {
		s.count(l, 1, 1)
	}
	return order
}

// ahead reports whether entries are open whose rows are still to be read by this process, with what precedes them. What covered says of
// a transaction is that nothing of it is read any more.
func (s *parkedSet) ahead(covered func(tx string) bool) bool {
	for id, k := range s.known {
		if k.ended == event.Open && (!k.seen || k.unsure) && !covered(id.tx) {
			return true
		}
	}
	return false
}

// of finds an entry that the store gave; nil where its row is not read again. moved: it is not where it was any more.
func (s *parkedSet) of(e *event.Parked) (k *kept, moved bool) {
	k = s.known[rowID{e.Tx, e.Index}]
	switch {
	case k == nil || k.order == e.Order:
		return k, false
	case slices.Contains(k.former, e.Order):
		return k, true
	}
	return nil, false // another row has that number now: see foreign, and loadParked
}

// end closes an open entry. It stays known while its row may be read again.
func (s *parkedSet) end(e *event.Parked, how event.Ended) {
	s.open--
	l := labelsOf(e.Aggregate, e.Topic, e.Key)
	k, _ := s.of(e)
	if !e.Alone {
		active := 0
		if k == nil || k.met {
			active = -1
		}
		s.count(l, -1, active)
	}
	if k != nil {
		k.ended = how
	}
}

// passed forgets what the stored position covers now: all that was read before the event number base. It gives the orders of
// entries that ended and may leave the store.
func (s *parkedSet) passed(base uint64) (swept []int64) {
	for id, k := range s.known {
		if k.met && k.seq < base {
			delete(s.known, id)
			if k.ended != event.Open {
				swept = append(swept, k.order)
			} else if !k.alone {
				s.passedLast = max(s.passedLast, k.order)
			}
		}
	}
	return swept
}
