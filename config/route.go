package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/glob"
	"github.com/outtail/outtail/internal/suggest"
	"github.com/outtail/outtail/internal/template"
	"github.com/outtail/outtail/internal/topicname"
)

// Route is one rule: the first that matches decides.
type Route struct {
	// Match holds a pattern per role; empty matches everything.
	Match map[event.Role]string
	// Topic and Key are templates; an empty Key is the default.
	Topic string
	Key   string
	// Format is raw.
	Format string
	// OnPoison is what becomes of an event of this route that cannot be delivered for its own sake.
	OnPoison event.Policy
}

// readRoutes reads the list, or gives the route that the columns suggest.
func (p *readPipeline) readRoutes(f field, preset string) {
	r, mapped := f.r, p.Columns
	if pg := p.Source.Postgres; pg != nil && pg.Messages {
		for i := range mapped { // a message may name any role
			if !mapped[i].Mapped() {
				mapped[i].Column = event.Role(i).String()
			}
		}
	}
	if !f.set() {
		switch {
		case preset == presetDebezium:
			p.Routes = []Route{{Topic: "outbox.event.${aggregate_type}", Format: "raw", OnPoison: p.OnPoison}}
		case p.Columns[event.Topic].Mapped():
			p.Routes = []Route{{Topic: "${topic}", Format: "raw", OnPoison: p.OnPoison}}
		default:
			f.bad(codeMissing, "is required: nothing says to which topic events go",
				"name one, for example routes: [{ topic: orders }], or map the role topic and use ${topic}")
		}
		return
	}
	items := f.items()
	if len(items) == 0 && f.value.Kind == sequence {
		f.bad(codeMissing, "is empty", "leave it out for the default, or name a topic: routes: [{ topic: orders }]")
	}
	all := "" // the path of a route that takes everything
	for _, item := range items {
		s := item.section()
		if s == nil {
			continue
		}
		if all != "" {
			item.warn(codeUseless, "is never reached: "+all+" takes every event", "put the route without match last")
		}
		route := Route{Match: r.match(s.get("match"), mapped)}
		topic := s.get("topic")
		route.Topic = r.template(topic, mapped, true)
		route.Key = r.template(s.get("key"), mapped, false)
		format := s.get("format")
		if v := format.enum("raw", "raw", "json", "cloudevents", "debezium"); v != "raw" {
			format.notYet("format "+v, "leave it out, or write raw")
		}
		route.Format = "raw"
		route.OnPoison = poison(s.get("on_poison"), p.OnPoison)
		s.close()
		if len(route.Match) == 0 && !s.fields["match"].set() {
			all = item.path
		}
		p.Routes, p.topics = append(p.Routes, route), append(p.topics, topic)
	}
}

func (r *reader) match(f field, mapped event.Columns) map[event.Role]string {
	s := f.section()
	if s == nil {
		return nil
	}
	var names []string
	for role := range event.RoleCount {
		if role != event.Payload && role != event.Headers {
			names = append(names, role.String())
		}
	}
	match := map[event.Role]string{}
	for _, name := range s.order {
		value := s.fields[name]
		role, ok := event.ParseRole(name)
		if !ok || role == event.Payload || role == event.Headers {
			hint := suggest.DidYouMean(name, names)
			if hint == "" || ok {
				hint = "routes match on " + list(names)
			}
			r.fault(value.key, codeUnknown, value.path, "unknown role", hint)
			continue
		}
		pattern, ok := value.text()
		if !ok {
			continue
		}
		if !mapped[role].Mapped() {
			r.fault(value.key, codeUseless, value.path, "the route never matches: "+unmapped(role), "map it, or leave the condition out")
			continue
		}
		match[role] = pattern
	}
	return match
}

// template reads a topic or key and checks that the rows can fill it.
func (r *reader) template(f field, mapped event.Columns, topic bool) string {
	var text string
	if topic {
		text = f.required("it names the topic, for example orders or ${topic}")
	} else {
		text = f.str("")
	}
	if f.set() && !topic && text == "" && !broken(f) {
		f.bad(codeMissing, "is empty", "leave it out for the default: the role key if mapped, else aggregate_id")
	}
	if text == "" {
		return ""
	}
	t, err := template.Compile(text)
	if err != nil {
		var e *template.Error
		if errors.As(err, &e) {
			what := e.Text
			if hasReference(f.value.Value) {
				what = "is no template" // the error quotes the value
			}
			f.bad(codeUnknown, what, e.Hint)
		}
		return text
	}
	if name, constant := t.Constant(); constant && topic && !topicname.Valid(name) {
		f.bad(codeType, f.shown()+" is no topic name", topicname.Rule)
	}
	for _, role := range t.Roles() {
		if !mapped[role].Mapped() {
			f.bad(codeUseless, "cannot be filled: "+unmapped(role), "")
		}
	}
	if topic && !hasReference(f.value.Value) {
		for _, part := range literals(text) {
			if strings.TrimSpace(part) != "" && !topicname.Valid("x"+part) {
				f.bad(codeType, fmt.Sprintf("%q can be part of no topic name", part), topicname.Rule)
			}
		}
	}
	return text
}

// literals are the parts of a template between its ${…}; none for a constant, which is checked as a whole.
func literals(text string) []string {
	if !strings.Contains(text, "${") {
		return nil
	}
	var out []string
	for text != "" {
		i := strings.Index(text, "${")
		if i < 0 {
			return append(out, text)
		}
		out = append(out, text[:i])
		end := strings.IndexByte(text[i:], '}')
		text = text[i+end+1:]
	}
	return out
}

// checkTopics compares constant topics with what the sink may write.
func (p *readPipeline) checkTopics() {
	if p.Sink.Kafka == nil {
		return
	}
	for i, f := range p.topics {
		topic := p.Routes[i].Topic
		if topic == "" || strings.Contains(topic, "${") || p.Sink.Kafka.Allows(topic) {
			continue
		}
		hint := "allow_topics does not name it"
		if len(p.Sink.Kafka.AllowTopics) == 0 {
			hint = "names that begin with __ are Kafka's own unless allow_topics lists them"
		}
		f.bad(codeUseless, "the sink does not allow this topic", hint)
	}
}

// Allows reports whether events may go to the topic.
func (k *Kafka) Allows(topic string) bool {
	if len(k.AllowTopics) == 0 {
		return !strings.HasPrefix(topic, "__")
	}
	for _, g := range k.AllowTopics {
		if glob.Compile(g).MatchString(topic) {
			return true
		}
	}
	return false
}
