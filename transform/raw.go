package transform

import (
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/arena"
	"github.com/outtail/outtail/internal/rowheaders"
)

// The names of the headers that outtail itself writes; a row's own header of one of these names is skipped and counted.
// traceparent is not among them: a row may bring its own, unless the role is mapped.
const (
	headerOccurredAt  = "occurred_at"
	headerSource      = "source"
	headerTraceparent = "traceparent"
)

// leading are the roles whose text becomes a header of their name, in the order of the contract.
var leading = [...]event.Role{
	event.ID, event.EventType, event.AggregateType, event.AggregateID, event.AggregateVersion, event.EventVersion,
}

const (
	headerRoom   = 32                                 // a block with less room than that is left
	headerBlock  = 1024                               // headers per allocation
	headerSize   = int(unsafe.Sizeof(event.Header{})) // of bookkeeping per header
	maxNames     = 1024                               // names of rows' own headers that are remembered
	maxNameBytes = 256                                // longer names are not
)

// Raw makes messages of format raw: the payload's bytes as the value (I7), everything else in headers. It cuts what it
// makes from blocks that are never reused, so a message stays valid for as long as its batch does. One goroutine.
type Raw struct {
	// Skipped, where not nil, is told how many of a row's own headers were left out because outtail writes a header of that name
	// itself. Set it before the first Transform.
	Skipped func(headers int)
	// Replaced, where not nil, is told that a record has the commit time, since its occurred_at is no time or none that brokers take.
	Replaced func()

	mem     arena.Arena
	headers []event.Header // the rest of the current block
	names   map[string]string
	scanner rowheaders.Scanner
	scratch []byte
}

// NewRaw makes a transformer for one pipeline.
func NewRaw() *Raw { return &Raw{names: map[string]string{}} }

// Transform fills in Value, Headers, Timestamp, Commit, Place and Size; the rest of the message is the router's. An error
// is a Record fault. Value and headers may alias the batch.
func (t *Raw) Transform(ev *event.Event, m *event.Message) error {
	row := &ev.Row
	m.Commit, m.Timestamp = ev.Tx.Commit, ev.Tx.Commit
	m.Value = value(&row[event.Payload])

	h := t.take()
	for _, role := range leading {
		if v := &row[role]; v.Present() {
			h = append(h, event.Header{Name: role.String(), Value: v.Bytes})
		}
	}
	if v := &row[event.OccurredAt]; v.Present() {
		text := v.Bytes
		at, ok := parseTime(v.Bytes)
		switch {
		case ok && accepted(at, ev.Tx.Commit):
			m.Timestamp = at
		case t.Replaced != nil:
			t.Replaced()
		}
		if ok {
			t.scratch = appendTime(t.scratch[:0], at)
			text = t.mem.Copy(t.scratch)
		}
		h = append(h, event.Header{Name: headerOccurredAt, Value: text})
	}
	source := t.source(ev)
	m.Place = arena.View(source)
	h = append(h, event.Header{Name: headerSource, Value: source})

	trace := &row[event.TraceParent]
	if v := &row[event.Headers]; v.Present() {
		var err error
		if h, err = t.rowHeaders(h, v.Bytes, trace.Present()); err != nil {
			return faultHeaders(ev, err)
		}
	}
	if trace.Present() {
		h = append(h, event.Header{Name: headerTraceparent, Value: trace.Bytes})
	}
	m.Headers = t.keep(h)
	m.Size = ev.Size + len(m.Key) + len(source) + len(h)*headerSize
	return nil
}

// value keeps NULL and empty apart: nil is a null value, a tombstone.
func value(v *event.Value) []byte {
	if !v.Present() {
		return nil
	}
	if v.Bytes == nil {
		return []byte{}
	}
	return v.Bytes
}

// source is "<place of the transaction>#<row>".
func (t *Raw) source(ev *event.Event) []byte {
	t.scratch = append(t.scratch[:0], ev.Tx.Source...)
	t.scratch = append(t.scratch, '#')
	t.scratch = strconv.AppendUint(t.scratch, ev.Index, 10)
	return t.mem.Copy(t.scratch)
}

func (t *Raw) rowHeaders(h []event.Header, text []byte, traced bool) ([]event.Header, error) {
	s := &t.scanner
	s.Reset(text)
	skipped := 0
	for s.Next() {
		if reserved(s.Name, traced) {
			skipped++
			continue
		}
		if s.Kind == rowheaders.Null {
			continue // as a NULL column: no header
		}
		h = append(h, event.Header{Name: t.name(s.Name), Value: s.Value})
	}
	err := s.Err()
	if skipped > 0 && err == nil && t.Skipped != nil {
		t.Skipped(skipped)
	}
	return h, err
}

func reserved(name []byte, traced bool) bool {
	switch string(name) {
	case "id", "event_type", "aggregate_type", "aggregate_id", "aggregate_version", "event_version", headerOccurredAt, headerSource:
		return true
	case headerTraceparent:
		return traced
	}
	return false
}

// name gives one string per header name: rows use the same few again and again.
func (t *Raw) name(b []byte) string {
	if s, ok := t.names[string(b)]; ok {
		return s
	}
	s := strings.Clone(string(b))
	if len(b) <= maxNameBytes {
		if len(t.names) >= maxNames {
			clear(t.names)
		}
		t.names[s] = s
	}
	return s
}

// take gives an empty slice with room in the current block; keep makes what was appended to it the event's own. Headers
// are written once, in place: they are full of pointers, and each copy costs the collector as well.
func (t *Raw) take() []event.Header {
	if len(t.headers) < headerRoom {
		t.headers = make([]event.Header, headerBlock)
	}
	return t.headers[:0]
}

func (t *Raw) keep(h []event.Header) []event.Header {
	if cap(h) != cap(t.headers) {
		return h // more than the block had room for: append has moved them to memory of their own
	}
	t.headers = t.headers[len(h):]
	return h[:len(h):len(h)]
}

// futureLimit is the default of Kafka's message.timestamp.after.max.ms: brokers refuse what is further ahead of their
// clock. Its counterpart for the past has no limit by default.
const futureLimit = time.Hour

// accepted says whether a broker takes the time as a record's timestamp. It is compared with the commit time, not with a
// clock, so that a redelivery decides alike.
func accepted(at, commit time.Time) bool {
	return at.Unix() >= 0 && !at.After(commit.Add(futureLimit))
}
