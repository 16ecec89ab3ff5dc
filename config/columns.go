package config

import (
	"fmt"
	"strings"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/suggest"
)

const (
	presetOuttail  = "outtail"
	presetDebezium = "debezium"
)

// presetColumns are the tables of the two presets, role by role.
var presetColumns = map[string]map[event.Role]string{
	presetOuttail: {
		event.ID: "id", event.AggregateType: "aggregate_type", event.AggregateID: "aggregate_id", event.EventType: "event_type",
		event.Payload: "payload", event.Headers: "headers", event.OccurredAt: "occurred_at",
	},
	presetDebezium: {
		event.ID: "id", event.AggregateType: "aggregatetype", event.AggregateID: "aggregateid", event.EventType: "type",
		event.Payload: "payload",
	},
}

// Preset gives the columns of a preset; false where there is none of that name.
func Preset(name string) (event.Columns, bool) {
	var c event.Columns
	roles, ok := presetColumns[name]
	for role, column := range roles {
		c[role] = event.Mapping{Column: column}
	}
	return c, ok
}

// columns reads a preset's name or a mapping of roles.
func (r *reader) columns(f field) (c event.Columns, preset string) {
	if !f.set() || f.value.Kind == scalar {
		name := f.enum(presetOuttail, presetOuttail, presetDebezium)
		c, _ = Preset(name)
		return c, name
	}
	s := f.section()
	if s == nil {
		return c, ""
	}
	for _, name := range s.order {
		role, ok := event.ParseRole(name)
		if !ok {
			hint := suggest.DidYouMean(name, event.RoleNames())
			if hint == "" {
				hint = "roles are " + list(event.RoleNames())
			}
			r.fault(s.fields[name].key, codeUnknown, s.child(name), "unknown role", hint)
			continue
		}
		c[role] = r.mapping(s.fields[name], role)
	}
	need := func(ok bool, text, hint string) {
		if !ok && !s.wrote(event.ID, event.Payload, event.AggregateID, event.Key) {
			f.bad(codeMissing, text, hint)
		}
	}
	_, id := s.fields[event.ID.String()]
	_, payload := s.fields[event.Payload.String()]
	_, aggregate := s.fields[event.AggregateID.String()]
	_, key := s.fields[event.Key.String()]
	need(id, "the role id is required", "every delivery of an event carries its id, so that consumers can absorb duplicates")
	need(payload, "the role payload is required", "")
	need(aggregate || key, "one of the roles aggregate_id and key is required", "events are kept in order per key")
	if c[event.ID].IsConst {
		s.fields["id"].bad(codeType, "the id cannot be a constant", "every event has an id of its own")
	}
	if c[event.AggregateID].IsConst && !c[event.Key].Mapped() {
		s.fields["aggregate_id"].warn(codeRisky, "a constant aggregate_id puts all events of the pipeline behind each other in one partition", "")
	}
	return c, ""
}

// wrote reports whether an unknown key of the section is probably one of the roles, misspelt: then that is the finding.
func (s *section) wrote(roles ...event.Role) bool {
	for _, name := range s.order {
		if _, ok := event.ParseRole(name); ok {
			continue
		}
		for _, r := range roles {
			if suggest.Closest(name, event.RoleNames()) == r.String() {
				return true
			}
		}
	}
	return false
}

// mapping reads a column's name, a constant in single quotes, or { column, as }.
func (r *reader) mapping(f field, role event.Role) event.Mapping {
	if f.value.Kind != mapping {
		text, ok := f.text()
		if !ok {
			return event.Mapping{}
		}
		if inner, ok := quotedConstant(text); ok {
			return event.Mapping{Constant: inner, IsConst: true}
		}
		switch {
		case strings.TrimSpace(text) == "":
			f.bad(codeMissing, "names no column", "leave a role out that no column has")
		case strings.HasPrefix(text, "'") || strings.HasSuffix(text, "'"):
			f.bad(codeType, f.shown()+" is neither a column nor a constant", `a constant is written "'text'"`)
		}
		return event.Mapping{Column: text}
	}
	s := f.section()
	m := event.Mapping{Column: s.get("column").required("it names the column")}
	as := s.get("as")
	switch as.enum("hex", "hex", "base64", "uuid") {
	case "base64":
		m.As = event.Base64
	case "uuid":
		m.As = event.UUID
	}
	if as.set() && role == event.Payload {
		as.bad(codeUseless, "has no effect on a payload, which is always the bytes", "leave it out")
	}
	s.close()
	return m
}

// quotedConstant gives the text between single quotes, ” being one quote.
func quotedConstant(text string) (string, bool) {
	if len(text) < 2 || text[0] != '\'' || text[len(text)-1] != '\'' {
		return "", false
	}
	inner := text[1 : len(text)-1]
	if strings.Contains(strings.ReplaceAll(inner, "''", ""), "'") {
		return "", false
	}
	return strings.ReplaceAll(inner, "''", "'"), true
}

// unmapped says that a role has neither column nor constant, for findings of routes.
func unmapped(role event.Role) string {
	return fmt.Sprintf("the role %s is not mapped in columns", role)
}
