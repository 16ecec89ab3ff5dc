package router

import (
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/arena"
	"github.com/outtail/outtail/internal/rowheaders"
)

// Router is a compiled list of routes. It remembers topics and reuses buffers, so it is used by one goroutine, the
// pipeline's own.
type Router struct {
	table   table
	noRoute NoRoute

	topics  topics
	mem     arena.Arena
	scratch []byte
	scanner rowheaders.Scanner

	// row and headersErr serve header for the event at hand; lookup is that method, made once.
	row        *event.Row
	headersErr error
	lookup     func(name string) ([]byte, bool)
}

// New compiles the routes. An error names the route and what is wrong with it.
func New(routes []Route, onNoRoute NoRoute) (*Router, error) {
	compiled := make([]*route, 0, len(routes))
	for i, r := range routes {
		c, err := compile(i, r)
		if err != nil {
			return nil, err
		}
		compiled = append(compiled, c)
	}
	rt := &Router{table: buildTable(compiled), noRoute: onNoRoute, topics: topics{}}
	rt.lookup = rt.header
	return rt, nil
}

// Route fills in ID, Topic, Key, Partition, Aggregate and OnPoison, or answers drop for an event that is filtered by rule. An error
// is a Record fault; ID, Key, Aggregate and OnPoison are set even then, as far as row and route have them, so that what follows the event
// can be held behind it. Topic, ID and Aggregate belong to nobody; Key may alias the batch.
func (rt *Router) Route(ev *event.Event, m *event.Message) (drop bool, err error) {
	row := &ev.Row
	m.Topic, m.Key, m.Partition = "", nil, -1
	m.ID = ""
	if v := &row[event.ID]; v.Present() {
		m.ID = rt.mem.String(v.Bytes)
	}
	m.Aggregate = rt.aggregate(row)

	r := rt.table.find(row)
	if r == nil {
		m.OnPoison = rt.noRoute.OnPoison
		if rt.noRoute.Drop {
			return true, nil
		}
		return false, faultNoRoute(ev, m.ID)
	}
	m.OnPoison = r.onPoison
	noTopic, noKey := rt.topic(r, ev, m), rt.key(r, ev, m)
	if m.Aggregate == "" && noKey == nil {
		m.Aggregate = rt.mem.String(m.Key)
	}
	switch {
	case noTopic != nil:
		return false, noTopic
	case noKey != nil:
		return false, noKey
	}
	if v := &row[event.Partition]; v.Present() {
		p, ok := parsePartition(v.Bytes)
		if !ok {
			return false, faultPartition(ev, m.ID)
		}
		m.Partition = p
	}
	return false, nil
}

func (rt *Router) topic(r *route, ev *event.Event, m *event.Message) *event.Fault {
	if r.constant != "" {
		m.Topic = r.constant
		return nil
	}
	var text []byte
	if r.single {
		v := &ev.Row[r.role]
		if !v.Present() {
			return faultMissing(ev, m.ID, r.role.String(), r.topic.String())
		}
		text = v.Bytes
	} else {
		var missing string
		rt.row, rt.headersErr = &ev.Row, nil
		rt.scratch, missing = r.topic.Append(rt.scratch[:0], &ev.Row, rt.lookup)
		if f := rt.unfilled(ev, m.ID, missing, r.topic.String()); f != nil {
			return f
		}
		text = rt.scratch
	}
	topic, ok := rt.topics.intern(text)
	if !ok {
		return faultTopic(ev, m.ID, topic)
	}
	m.Topic = topic
	return nil
}

func (rt *Router) key(r *route, ev *event.Event, m *event.Message) *event.Fault {
	row := &ev.Row
	if r.key != nil {
		if role, ok := r.key.Single(); ok && row[role].Present() {
			m.Key = notNil(row[role].Bytes)
			return nil
		}
		var missing string
		rt.row, rt.headersErr = row, nil
		rt.scratch, missing = r.key.Append(rt.scratch[:0], row, rt.lookup)
		if f := rt.unfilled(ev, m.ID, missing, r.key.String()); f != nil {
			return f
		}
		m.Key = rt.mem.Copy(rt.scratch)
		return nil
	}
	if m.Key = row.Key(); m.Key == nil {
		return faultNoKey(ev, m.ID)
	}
	return nil
}

func (rt *Router) unfilled(ev *event.Event, id, missing, template string) *event.Fault {
	switch {
	case rt.headersErr != nil:
		return faultHeaders(ev, id, rt.headersErr)
	case missing != "":
		return faultMissing(ev, id, missing, template)
	}
	return nil
}

// header finds a header of the row at hand; the last of several with one name, as JSON readers have it.
func (rt *Router) header(name string) ([]byte, bool) {
	v := &rt.row[event.Headers]
	if !v.Present() {
		return nil, false
	}
	var value []byte
	found := false
	rt.scanner.Reset(v.Bytes)
	for rt.scanner.Next() {
		if string(rt.scanner.Name) == name {
			value, found = rt.scanner.Value, rt.scanner.Kind != rowheaders.Null
		}
	}
	if err := rt.scanner.Err(); err != nil {
		rt.headersErr = err
		return nil, false
	}
	return value, found
}

// separator stands between type and id of an aggregate's name. It is part of no text column's usual content; where two
// aggregates get one name all the same, they only wait for each other needlessly.
const separator = 0

// aggregate names (aggregate_type, aggregate_id), or the key where they are unmapped; "" where the row has neither.
func (rt *Router) aggregate(row *event.Row) string {
	id := &row[event.AggregateID]
	if !id.Present() {
		if id = &row[event.Key]; !id.Present() {
			return ""
		}
		return rt.mem.String(id.Bytes)
	}
	kind := &row[event.AggregateType]
	if !kind.Present() {
		return rt.mem.String(id.Bytes)
	}
	b := rt.mem.Take(len(kind.Bytes) + 1 + len(id.Bytes))
	n := copy(b, kind.Bytes)
	b[n] = separator
	copy(b[n+1:], id.Bytes)
	return arena.View(b)
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// parsePartition reads a whole number from 0 to the largest that the protocol carries.
func parsePartition(b []byte) (int32, bool) {
	if len(b) == 0 || len(b) > 10 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if n > 1<<31-1 {
		return 0, false
	}
	return int32(n), true
}
