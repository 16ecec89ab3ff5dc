package checkpoint

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// Dead letters lie in the second file (parked.go), next to the rows of prepared XA transactions:
//
//	dead / <pipeline>  "m" order -> what is known of an event, JSON
//	                   "r" order -> its row, see appendRow
//
// order is the event's place among those of its pipeline, eight bytes that sort as the numbers do. Metadata and rows are apart,
// so that to list a million events does not read their payloads.
const (
	bucketDead = "dead"
	deadMeta   = 'm'
	deadRow    = 'r'
)

// DeadLetterLimits bound what a pipeline keeps.
type DeadLetterLimits struct {
	MaxEvents int64
	MaxBytes  int64
}

// DeadLetters keeps the parked events of all pipelines of a process. Its methods may be called from any goroutine.
type DeadLetters struct {
	s      *Store
	limits map[string]DeadLetterLimits

	mu   sync.Mutex
	kept map[string]*keptTotals
	// marked: the position's file knows which second file is used.
	marked bool
}

// manyLetters are worth a thought before all are looked at.
const manyLetters = 10_000

// keptTotals are what a pipeline has in the store.
type keptTotals struct {
	open, events, bytes int64
	// oldest is when the oldest open entry was parked; stale where that one has ended since.
	oldest time.Time
	stale  bool
	// scanned is when all were looked at, and how long that took.
	scanned time.Time
	took    time.Duration
}

// DeadLetters gives the store of parked events.
func (s *Store) DeadLetters() *DeadLetters { return s.dead }

// Limit bounds what a pipeline keeps; without it there is no bound.
func (d *DeadLetters) Limit(pipeline string, l DeadLetterLimits) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limits == nil {
		d.limits = map[string]DeadLetterLimits{}
	}
	d.limits[pipeline] = l
}

// keyParkedID is, in the position's file, the identity of the second file that holds dead letters. A file that was lost or
// replaced since is noticed by it: the position has passed what was in there (I5).
const keyParkedID = "dead letters"

// keyParkedTx is, beside it, the number of the newest transaction of the second file that the position may depend on.
const keyParkedTx = "dead letters tx"

// Check compares the second file with the one in which events were parked.
func (d *DeadLetters) Check() error {
	var want string
	var noted uint64
	err := d.s.view(func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(bucketMeta))
		want, noted = string(meta.Get([]byte(keyParkedID))), parkedNoted(meta)
		return nil
	})
	if err != nil || want == "" {
		return err
	}
	switch is, err := d.s.Prepared("").ID(); {
	case err != nil:
		return err
	case is != want:
		return faultParkedLost(d.s.parkedPath())
	case d.s.parkedTx.Load() < noted:
		return faultParkedOlder(d.s.parkedPath())
	}
	return nil
}

// Forget gives up the events of a second file that was lost.
func (d *DeadLetters) Forget(_ context.Context, by By) error {
	return d.s.update("forget lost dead letters", func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(bucketMeta))
		if err := errors.Join(meta.Delete([]byte(keyParkedID)), meta.Delete([]byte(keyParkedTx))); err != nil {
			return err
		}
		return putAudit(tx, Audit{Time: d.s.now().UTC(), Operator: by.Operator, Reason: by.Reason, Action: ActionForget, Detail: d.s.parkedPath(), Outcome: OutcomeDone})
	})
}

// Audit records what a person did to parked events; its time is now.
func (d *DeadLetters) Audit(a Audit) error {
	a.Time = d.s.now().UTC()
	return d.s.update(a.Action, func(tx *bbolt.Tx) error { return putAudit(tx, a) })
}

// holder is the identity of the second file, "" where no event was ever parked in it.
func (d *DeadLetters) holder() (id string, err error) {
	err = d.s.viewParked(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte(bucketDead)) != nil {
			id = string(tx.Bucket([]byte(bucketMeta)).Get([]byte(keyID)))
		}
		return nil
	})
	return id, err
}

// mark stores the second file's identity in the first, before anything depends on it.
func (d *DeadLetters) mark() error {
	id, err := d.s.Prepared("").Create()
	if err != nil {
		return err
	}
	var known bool
	err = d.s.view(func(tx *bbolt.Tx) error {
		known = string(tx.Bucket([]byte(bucketMeta)).Get([]byte(keyParkedID))) == id
		return nil
	})
	if err != nil || known {
		return err
	}
	return d.s.update("park events", func(tx *bbolt.Tx) error {
		meta := tx.Bucket([]byte(bucketMeta))
		return errors.Join(meta.Put([]byte(keyParkedID), []byte(id)), meta.Delete([]byte(keyParkedTx)))
	})
}

func deadKey(kind byte, order int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, uint64(order)^1<<63)
}

func deadPlace(pipeline string, key []byte) []byte {
	return place([]byte("/"+bucketDead+"/"+pipeline), key)
}

// Each visits what is kept of a pipeline from an order on, without rows, until visit returns an error. visit must not call the store.
func (d *DeadLetters) Each(pipeline string, from int64, visit func(*event.Parked) error) error {
	if from == math.MinInt64 {
		d.mu.Lock()
		if d.kept[pipeline] == nil {
			defer d.mu.Unlock()
			return d.count(pipeline, visit) // one reading of a large store at a start, and not two
		}
		d.mu.Unlock()
	}
	return d.each(pipeline, from, visit)
}

func (d *DeadLetters) each(pipeline string, from int64, visit func(*event.Parked) error) error {
	return d.view(pipeline, func(b *bbolt.Bucket) error {
		c := b.Cursor()
		for k, v := c.Seek(deadKey(deadMeta, from)); k != nil && k[0] == deadMeta; k, v = c.Next() {
			e, err := readParked(pipeline, k, v)
			if err == nil {
				err = visit(e)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func readParked(pipeline string, k, v []byte) (*event.Parked, error) {
	text, err := recordText(deadPlace(pipeline, k), v)
	if err != nil {
		return nil, err
	}
	var e event.Parked
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, damaged("a parked event is not understood: %v", err)
	}
	return &e, nil
}

// Get gives one with its row; nil where there is none.
func (d *DeadLetters) Get(pipeline string, order int64) (e *event.Parked, err error) {
	err = d.view(pipeline, func(b *bbolt.Bucket) error {
		k := deadKey(deadMeta, order)
		v := b.Get(k)
		if v == nil {
			return nil
		}
		var err error
		if e, err = readParked(pipeline, k, v); err != nil {
			return err
		}
		k = deadKey(deadRow, order)
		if v = b.Get(k); v == nil {
			return nil
		}
		text, err := recordText(deadPlace(pipeline, k), v)
		if err != nil {
			return err
		}
		e.Row, err = readRow(slices.Clone(text))
		return err
	})
	return e, err
}

// Park adds and moves entries, in order, all or none. The fault is of class Safety where there is no room for them.
func (d *DeadLetters) Park(_ context.Context, pipeline string, ops []event.Parking) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.totals(pipeline)
	if err != nil {
		return err
	}
	var added keptTotals
	for _, op := range ops {
		if e := op.Entry; e != nil {
			added.open++
			added.events++
			added.bytes += e.Size
			if added.oldest.IsZero() {
				added.oldest = e.ParkedAt
			}
		}
	}
	if l, ok := d.limits[pipeline]; ok && added.events > 0 && (t.events+added.events > l.MaxEvents || t.bytes+added.bytes > l.MaxBytes) {
		return faultDeadFull(pipeline, t, &added, l)
	}
	if !d.marked {
		if err := d.mark(); err != nil {
			return err
		}
		d.marked = true
	}
	var reopened int64
	err = d.update("park events", pipeline, func(b *bbolt.Bucket) error {
		reopened = 0
		for _, op := range ops {
			if op.Entry != nil {
				k := deadKey(deadRow, op.Order)
				if err := errors.Join(putParked(b, pipeline, op.Entry), b.Put(k, sealed(deadPlace(pipeline, k), appendRow(nil, op.Entry.Row)))); err != nil {
					return err
				}
				continue
			}
			again, err := move(b, pipeline, op.From, op.Order)
			if err != nil {
				return err
			}
			if again {
				reopened++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.open += added.open + reopened
	t.events += added.events
	t.bytes += added.bytes
	if t.oldest.IsZero() {
		t.oldest = added.oldest
	}
	t.stale = t.stale || reopened > 0
	return nil
}

// move gives an entry another order; it is open from now on. reopened: it had ended.
func move(b *bbolt.Bucket, pipeline string, from, to int64) (reopened bool, err error) {
	was := deadKey(deadMeta, from)
	v := b.Get(was)
	if v == nil {
		return false, nil
	}
	e, err := readParked(pipeline, was, v)
	if err != nil {
		return false, err
	}
	reopened = e.Ended != event.Open
	e.Order, e.Ended = to, event.Open
	oldRow, newRow := deadKey(deadRow, from), deadKey(deadRow, to)
	row, err := recordText(deadPlace(pipeline, oldRow), b.Get(oldRow))
	if err != nil {
		return false, err
	}
	row = sealed(deadPlace(pipeline, newRow), row)
	return reopened, errors.Join(putParked(b, pipeline, e), b.Put(newRow, row), b.Delete(was), b.Delete(oldRow))
}

func putParked(b *bbolt.Bucket, pipeline string, e *event.Parked) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	k := deadKey(deadMeta, e.Order)
	return b.Put(k, sealed(deadPlace(pipeline, k), text))
}

// Change rewrites what is known of one entry, and its row where row is not nil.
func (d *DeadLetters) Change(pipeline string, order int64, change func(*event.Parked) (row *event.Row, err error)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.update("change a parked event", pipeline, func(b *bbolt.Bucket) error {
		k := deadKey(deadMeta, order)
		v := b.Get(k)
		if v == nil {
			return faultNoDeadLetter(pipeline, order)
		}
		e, err := readParked(pipeline, k, v)
		if err != nil {
			return err
		}
		row, err := change(e)
		if err != nil {
			return err
		}
		if row != nil {
			k := deadKey(deadRow, order)
			if err := b.Put(k, sealed(deadPlace(pipeline, k), appendRow(nil, row))); err != nil {
				return err
			}
		}
		return putParked(b, pipeline, e)
	})
}

// Tried counts a delivery that failed again, of an entry that may have been moved meanwhile.
func (d *DeadLetters) Tried(_ context.Context, pipeline string, order int64, f *event.Fault) error {
	err := d.Change(pipeline, order, func(e *event.Parked) (*event.Row, error) {
		e.Tries++
		e.Code, e.Class, e.Text, e.Hint, e.Behind = f.Code, f.Class.String(), f.Text, f.Hint, false
		return nil, nil
	})
	if f := event.AsFault(err); f != nil && f.Code == CodeNoDeadLetter {
		return nil
	}
	return err
}

// Mirrored notes that copies of entries are in the mirror topic. One that was moved meanwhile is copied again.
func (d *DeadLetters) Mirrored(_ context.Context, pipeline string, orders []int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.update("note copies of parked events", pipeline, func(b *bbolt.Bucket) error {
		for _, order := range orders {
			k := deadKey(deadMeta, order)
			v := b.Get(k)
			if v == nil {
				continue
			}
			e, err := readParked(pipeline, k, v)
			if err != nil {
				return err
			}
			e.Mirrored = true
			if err := putParked(b, pipeline, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// End closes entries, or removes those that need no tombstone, and gives the orders at which nothing was open.
func (d *DeadLetters) End(_ context.Context, pipeline string, ended []event.Ending) (missing []int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.totals(pipeline)
	if err != nil {
		return nil, err
	}
	var closed, gone, bytes int64
	err = d.update("close parked events", pipeline, func(b *bbolt.Bucket) error {
		missing, closed, gone, bytes = nil, 0, 0, 0
		for _, x := range ended {
			k := deadKey(deadMeta, x.Order)
			v := b.Get(k)
			if v == nil {
				missing = append(missing, x.Order)
				continue
			}
			e, err := readParked(pipeline, k, v)
			if err != nil {
				return err
			}
			if e.Ended == event.Open {
				closed++
			} else {
				missing = append(missing, x.Order)
			}
			if x.Tombstone {
				e.Ended, e.ToTopic = x.How, x.ToTopic
				if err := putParked(b, pipeline, e); err != nil {
					return err
				}
				continue
			}
			gone++
			bytes += e.Size
			if err := errors.Join(b.Delete(k), b.Delete(deadKey(deadRow, x.Order))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.open, t.events, t.bytes, t.stale = t.open-closed, t.events-gone, t.bytes-bytes, true
	return missing, nil
}

// Sweep removes entries that ended.
func (d *DeadLetters) Sweep(ctx context.Context, pipeline string, orders []int64) error {
	ended := make([]event.Ending, len(orders))
	for i, o := range orders {
		ended[i] = event.Ending{Order: o}
	}
	_, err := d.End(ctx, pipeline, ended)
	return err
}

// Open is how many events of a pipeline wait.
func (d *DeadLetters) Open(pipeline string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.totals(pipeline)
	if err != nil {
		return 0, err
	}
	return t.open, nil
}

// Oldest is when the oldest open entry was parked; zero where there is none.
func (d *DeadLetters) Oldest(pipeline string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.totals(pipeline)
	if err != nil {
		return time.Time{}
	}
	if t.open == 0 {
		return time.Time{}
	}
	// A million entries take seconds, in which nobody parks: while a replay ends one after the other, an answer of before will do.
	if t.stale && (t.events < manyLetters || time.Since(t.scanned) >= 50*t.took) {
		delete(d.kept, pipeline)
		if t, err = d.totals(pipeline); err != nil {
			return time.Time{}
		}
	}
	return t.oldest
}

// totals counts what is kept, once. Call it with mu held.
func (d *DeadLetters) totals(pipeline string) (*keptTotals, error) {
	if t := d.kept[pipeline]; t != nil {
		return t, nil
	}
	err := d.count(pipeline, func(*event.Parked) error { return nil })
	return d.kept[pipeline], err
}

// count visits everything, and keeps the totals of it unless visit ends it. Call it with mu held.
func (d *DeadLetters) count(pipeline string, visit func(*event.Parked) error) error {
	t := &keptTotals{scanned: time.Now()}
	err := d.each(pipeline, math.MinInt64, func(e *event.Parked) error {
		t.events++
		t.bytes += e.Size
		if e.Ended == event.Open {
			t.open++
			if t.oldest.IsZero() || e.ParkedAt.Before(t.oldest) {
				t.oldest = e.ParkedAt
			}
		}
		return visit(e)
	})
	if err == nil {
		t.took = time.Since(t.scanned)
		d.kept[pipeline] = t
	}
	return err
}

func (d *DeadLetters) view(pipeline string, f func(*bbolt.Bucket) error) error {
	return d.s.viewParked(func(tx *bbolt.Tx) error {
		all := tx.Bucket([]byte(bucketDead))
		if all == nil {
			return nil
		}
		b := all.Bucket([]byte(pipeline))
		if b == nil {
			return nil
		}
		return f(b)
	})
}

func (d *DeadLetters) update(op, pipeline string, f func(*bbolt.Bucket) error) error {
	return d.s.updateParked(op, func(tx *bbolt.Tx) error {
		all, err := tx.CreateBucketIfNotExists([]byte(bucketDead))
		if err != nil {
			return err
		}
		b, err := all.CreateBucketIfNotExists([]byte(pipeline))
		if err != nil {
			return err
		}
		return f(b)
	})
}

// A row is, per role in their order, one byte (bit 0: set, bit 1: NULL), a uvarint length and the bytes.
const (
	rowSet  = 1
	rowNull = 2
)

func appendRow(b []byte, row *event.Row) []byte {
	for i := range row {
		v := &row[i]
		var flags byte
		if v.Set {
			flags |= rowSet
		}
		if v.Null {
			flags |= rowNull
		}
		b = append(b, flags)
		b = binary.AppendUvarint(b, uint64(len(v.Bytes)))
		b = append(b, v.Bytes...)
	}
	return b
}

func readRow(b []byte) (*event.Row, error) {
	var row event.Row
	for i := range row {
		if len(b) == 0 { // a role that came with a later version
			break
		}
		flags := b[0]
		n, size := binary.Uvarint(b[1:])
		if size <= 0 || n > uint64(len(b)-1-size) {
			return nil, damaged("the row of a parked event is not understood")
		}
		b = b[1+size:]
		row[i] = event.Value{Set: flags&rowSet != 0, Null: flags&rowNull != 0}
		if row[i].Set && !row[i].Null {
			row[i].Bytes = b[:n:n]
		}
		b = b[n:]
	}
	return &row, nil
}

func faultDeadFull(pipeline string, has, more *keptTotals, l DeadLetterLimits) *event.Fault {
	return &event.Fault{
		Code: CodeDeadFull, Class: event.Safety, Op: "park an event", Place: pipeline,
		Text: fmt.Sprintf("the dead-letter store is full: it has %d of %d events, %d of %d bytes; %d more of %d bytes do not fit",
			has.events, l.MaxEvents, has.bytes, l.MaxBytes, more.events, more.bytes),
		Hint: "raise dead_letters.max_events or max_bytes, start again, and replay what waits; or leave some of it out first (outtail dlq list, skip). Nothing was lost",
	}
}

func faultParkedLost(path string) *event.Fault {
	return &event.Fault{
		Code: CodeParkedLost, Class: event.Safety, Op: "open parked events", Place: path,
		Text: "events were parked in another file of this name, which is gone: the position has passed them",
		Hint: "restore " + path + " (and outtail.db, from the same backup). To give up what was parked there: outtail dlq forget -c FILE --reason R",
	}
}

func faultParkedOlder(path string) *event.Fault {
	return &event.Fault{
		Code: CodeParkedOlder, Class: event.Safety, Op: "open parked events", Place: path,
		Text: "it is an older copy than the one beside which the position was stored: what was parked since is missing, and what was replayed since is in it again",
		Hint: "restore the newer " + path + ", or this one together with outtail.db of the same backup. To go on with this one: outtail dlq forget -c FILE --reason R, " +
			"then go back to before its time (outtail checkpoint rewind -c FILE --pipeline P --to TIME --reason R), so that what is missing is read again",
	}
}

func faultNoDeadLetter(pipeline string, order int64) *event.Fault {
	return &event.Fault{
		Code: CodeNoDeadLetter, Class: event.Usage, Op: "find a parked event", Place: pipeline, Text: fmt.Sprintf("no parked event has the number %d", order),
		Hint: "outtail dlq list -c FILE shows those that there are",
	}
}
