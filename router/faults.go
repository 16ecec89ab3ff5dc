package router

import (
	"fmt"
	"strings"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/topicname"
)

// The faults of routing are of class Record: they are the event's own, and its poison policy decides. They name table,
// place and id, which say where to look; never a payload (I10).

func faultNoRoute(ev *event.Event, id string) *event.Fault {
	return record("OT6101", ev, id,
		"no route matches event_type "+quoted(ev.Row[event.EventType])+", aggregate_type "+quoted(ev.Row[event.AggregateType]),
		"add a route that matches it, or a last route without match that takes everything; on_no_route: drop filters such events")
}

func faultMissing(ev *event.Event, id, what, template string) *event.Fault {
	return record("OT6102", ev, id,
		fmt.Sprintf("the template %q needs ${%s}, which the row does not have (unmapped or NULL)", template, what),
		"let a route above take such rows, with a template that they can fill")
}

func faultTopic(ev *event.Event, id, topic string) *event.Fault {
	if topic == "" {
		return record("OT6103", ev, id, "the topic is empty", "the row or the route has to name a topic")
	}
	return record("OT6103", ev, id,
		fmt.Sprintf("%q is no topic name", clip(topic)),
		topicname.Rule)
}

func faultNoKey(ev *event.Event, id string) *event.Fault {
	return record("OT6104", ev, id,
		"the row has no key: the role key and aggregate_id are both NULL or unmapped",
		"without a key the order per aggregate cannot be kept; fill aggregate_id, or give the route a key template")
}

func faultPartition(ev *event.Event, id string) *event.Fault {
	return record("OT6105", ev, id,
		"the role partition holds "+quoted(ev.Row[event.Partition])+", which is no partition number",
		"a partition is a whole number from 0; NULL leaves the choice to the key")
}

func faultHeaders(ev *event.Event, id string, cause error) *event.Fault {
	f := record("OT6106", ev, id,
		"the route names a header, and the row's headers cannot be read",
		"headers have to be one JSON object, or NULL")
	f.Err = cause
	return f
}

func record(code string, ev *event.Event, id, text, hint string) *event.Fault {
	place := ev.Table
	if ev.Tx != nil && ev.Tx.Source != "" {
		place += fmt.Sprintf(" at %s#%d", ev.Tx.Source, ev.Index)
	}
	if id != "" {
		place += ", id " + clip(id)
	}
	return &event.Fault{Code: code, Class: event.Record, Op: "route event", Place: place, Text: text, Hint: hint}
}

func quoted(v event.Value) string {
	switch {
	case !v.Set:
		return "(unmapped)"
	case v.Null:
		return "NULL"
	}
	return fmt.Sprintf("%q", clip(string(v.Bytes)))
}

// clip keeps a value from the row from flooding a log line.
func clip(s string) string {
	const limit = 120
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
