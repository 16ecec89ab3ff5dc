package event

import (
	"strconv"
	"time"
)

// Value is what one role holds in one row. SQL NULL, empty, JSON null and "no such column" stay four different things:
// an unmapped role is not Set; SQL NULL is Set and Null; empty is Set with no bytes; JSON null is Set with its text.
type Value struct {
	// Bytes is the server's text (time zone +00:00, Postgres datestyle ISO) or, for a binary payload column, the bytes
	// themselves. It belongs to the batch.
	Bytes []byte
	Set   bool
	Null  bool
}

// Present reports whether the value is mapped and not SQL NULL.
func (v Value) Present() bool { return v.Set && !v.Null }

// Row holds the values of one outbox row by role.
type Row [RoleCount]Value

// Key is the key of a message where no template gives another: the role key, else the aggregate's id; nil where the row has neither.
// A NULL in the role key means "as the aggregate", so that such a row still keeps its order. It may alias the batch.
func (r *Row) Key() []byte {
	v := &r[Key]
	if !v.Present() {
		v = &r[AggregateID]
	}
	switch {
	case !v.Present():
		return nil
	case v.Bytes == nil:
		return []byte{} // empty, which is a key
	}
	return v.Bytes
}

// Tx is the transaction that a row came from, shared by all of its rows, also across batches. Immutable once a batch
// that refers to it was handed out.
type Tx struct {
	// ID names the transaction in a prefix: commit LSN, GTID, or file:pos of its start (contract.md, "prefix.tx").
	ID string
	// Source is the informative head of the `source` header, to which "#<row>" is appended, e.g.
	// "postgres/outtail_orders/0/16B3748" or "mysql/<GTID>".
	Source string
	// Commit is the time at which the server says that it committed.
	Commit time.Time
}

// Event is one row that was inserted into an outbox table by a committed transaction.
type Event struct {
	Tx *Tx
	// Index counts the rows that the source delivers of Tx, from 0. It is stable over re-reads for the same selection.
	Index uint64
	// Table is the schema-qualified table, as configured.
	Table string
	Row   Row
	// Size is how many bytes of buffers this event keeps alive until the acked prefix has passed it (I11).
	Size int
	// Err is set where the row could not be decoded or rendered for its own sake (class Record): it has its place in the
	// order and is subject to the poison policy; Row may be incomplete.
	Err *Fault
}

// Bound is a point between transactions in a batch: once the first After events of the batch (and all earlier ones)
// have passed, the position named by At may be stored.
type Bound struct {
	After int
	// At is the source's own ordinal of the position; it never decreases within a session. Source.Position turns it
	// into a Position.
	At uint64
}

// Batch is what one read of the log yielded: events in commit order and the bounds between transactions. Bounds are in
// order of After and At; only the last bound of several with the same After matters. A batch may have bounds without
// events (I6).
type Batch struct {
	Events []Event
	Bounds []Bound
	// Release, where not nil, gives the batch's buffers back to its source. The pipeline calls it exactly once, when the
	// acked prefix has passed the whole batch or the session is over and nothing refers to it any more. Any goroutine.
	Release func()
}

// AppendPlace appends where the event was read, the `source` header: "<Tx.Source>#<row>", rows counted from 0.
func AppendPlace(b []byte, ev *Event) []byte {
	b = append(b, ev.Tx.Source...)
	b = append(b, '#')
	return strconv.AppendUint(b, ev.Index, 10)
}
