package router

import (
	"fmt"
	"sort"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/glob"
	"github.com/outtail/outtail/internal/template"
	"github.com/outtail/outtail/internal/topicname"
)

// Route is one rule as it is configured.
type Route struct {
	// Match holds a pattern per role, exact or with * and ?; all have to match. Empty matches every event. A role that is
	// unmapped or NULL matches no pattern, not even *.
	Match map[event.Role]string
	// Topic is a template of ${role} and ${headers.name}.
	Topic string
	// Key is a template too; empty means the role key, else aggregate_id.
	Key string
	// OnPoison is the policy of what this route takes.
	OnPoison event.Policy
}

// NoRoute is what becomes of an event that no route matches: it is dropped by rule, or fails, and OnPoison decides.
type NoRoute struct {
	Drop     bool
	OnPoison event.Policy
}

type condition struct {
	role    event.Role
	pattern glob.Pattern
}

// route is a compiled Route. eventType is apart because the table is built on it.
type route struct {
	eventType *glob.Pattern
	rest      []condition
	topic     *template.Template
	constant  string // the topic where it is constant
	role      event.Role
	single    bool // the topic is one role and nothing else
	key       *template.Template
	onPoison  event.Policy
}

func compile(i int, r Route) (*route, error) {
	c := &route{onPoison: r.OnPoison}
	for role, text := range r.Match {
		if role >= event.RoleCount {
			return nil, fmt.Errorf("routes[%d].match: unknown role %d", i, role)
		}
		p := glob.Compile(text)
		if role == event.EventType {
			c.eventType = &p
			continue
		}
		c.rest = append(c.rest, condition{role, p})
	}
	sort.Slice(c.rest, func(a, b int) bool { return c.rest[a].role < c.rest[b].role })
	var err error
	if c.topic, err = template.Compile(r.Topic); err != nil {
		return nil, fmt.Errorf("routes[%d].topic: %w", i, err)
	}
	if topic, ok := c.topic.Constant(); ok {
		if !topicname.Valid(topic) {
			return nil, fmt.Errorf("routes[%d].topic: %q is no topic name", i, topic)
		}
		c.constant = topic
	}
	c.role, c.single = c.topic.Single()
	if r.Key != "" {
		if c.key, err = template.Compile(r.Key); err != nil {
			return nil, fmt.Errorf("routes[%d].key: %w", i, err)
		}
	}
	return c, nil
}

// matches checks everything but event_type.
func (r *route) matches(row *event.Row) bool {
	for i := range r.rest {
		c := &r.rest[i]
		if v := &row[c.role]; !v.Present() || !c.pattern.Match(v.Bytes) {
			return false
		}
	}
	return true
}

// table answers "which routes can match this event_type" with one map look-up. Candidates are in the routes' order, so
// the first that matches wins, and end with the first one that needs no further look.
type table struct {
	exact map[string][]*route // the event types that routes name exactly
	other []*route            // for every other event type: patterns are still to be checked
	null  []*route            // where event_type is unmapped or NULL
}

func buildTable(routes []*route) table {
	t := table{exact: map[string][]*route{}}
	for _, r := range routes {
		if r.eventType != nil && r.eventType.Exact() {
			t.exact[r.eventType.String()] = nil
		}
	}
	for name := range t.exact {
		for _, r := range routes {
			if r.eventType == nil || r.eventType.MatchString(name) {
				t.exact[name] = append(t.exact[name], r)
				if len(r.rest) == 0 {
					break
				}
			}
		}
	}
	for _, r := range routes {
		if r.eventType == nil {
			t.null = append(t.null, r)
		}
		if r.eventType == nil || !r.eventType.Exact() {
			t.other = append(t.other, r)
		}
	}
	return t
}

// find is the first route that matches, nil if there is none.
func (t *table) find(row *event.Row) *route {
	v := &row[event.EventType]
	if !v.Present() {
		return first(t.null, row)
	}
	if candidates, ok := t.exact[string(v.Bytes)]; ok {
		return first(candidates, row)
	}
	for _, r := range t.other {
		if (r.eventType == nil || r.eventType.Match(v.Bytes)) && r.matches(row) {
			return r
		}
	}
	return nil
}

func first(candidates []*route, row *event.Row) *route {
	for _, r := range candidates {
		if r.matches(row) {
			return r
		}
	}
	return nil
}
