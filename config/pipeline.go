package config

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/topicname"
)

var pipelineName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// policyDrop is a name of on_no_route only: such events are filtered by rule.
const policyDrop = "drop"

// readPipeline is a pipeline with the nodes that findings across pipelines point to.
type readPipeline struct {
	Pipeline
	name   field
	source field // the one of the kind
	slot   field
	id     field // server_id
	sink   field
	topics []field // of the routes that were written, in their order
	tables []table
}

func (r *reader) pipeline(f field) *readPipeline {
	s := f.section()
	if s == nil {
		return nil
	}
	if f.value.Kind == sequence || len(s.order) == 0 {
		f.bad(codeMissing, "is empty", "a pipeline has a name, a source and a sink")
		return nil
	}
	p := &readPipeline{}
	p.name = s.get("name")
	p.Name = p.name.required("it names the pipeline's position, metrics and, by default, its slot")
	if p.Name != "" && !pipelineName.MatchString(p.Name) {
		p.name.bad(codeType, p.name.shown()+" is no name", "a name has 1 to 63 of a-z, 0-9 and -")
	}
	p.readSource(s.get("source"))
	var preset string
	p.Columns, preset = r.columns(s.get("columns"))
	p.OnPoison = poison(s.get("on_poison"), event.Park)
	p.readRoutes(s.get("routes"), preset)
	p.DropNoRoute, p.OnNoRoute = noRoute(s.get("on_no_route"))
	dead := s.get("dead_letters")
	p.DeadLetters = r.deadLetters(dead)
	p.readSink(s.get("sink"))
	p.Limits = r.limits(s.get("limits"))
	p.Checkpoint = r.checkpoint(s.get("checkpoint"))
	p.DrainTimeout = s.get("drain_timeout").duration(10*time.Second, 0)
	s.close()
	p.checkTopics()
	p.checkMirror(dead)
	return p
}

// notYet is a finding about a value that a later version will take.
func (f field) notYet(what, hint string) {
	f.bad(codeUnavailable, what+" is not available yet", hint)
}

// policies are the names of event.Policy; routes default to the pipeline's, which defaults to park.
func policies() []string {
	return []string{event.Park.String(), event.Alone.String(), event.Halt.String(), event.Skip.String()}
}

func poison(f field, def event.Policy) event.Policy {
	p, _ := event.ParsePolicy(f.enum(def.String(), policies()...))
	return p
}

// noRoute reads on_no_route: the same policies, and drop.
func noRoute(f field) (drop bool, p event.Policy) {
	name := f.enum(event.Park.String(), append(policies(), policyDrop)...)
	p, _ = event.ParsePolicy(name)
	return name == policyDrop, p
}

func (r *reader) deadLetters(f field) DeadLetters {
	s := f.section()
	if s == nil {
		s = r.absent(f)
	}
	d := DeadLetters{
		MaxEvents: s.get("max_events").number(1_000_000, 1, 1<<40),
		MaxBytes:  s.get("max_bytes").size(1<<30, 1),
	}
	retention := s.get("retention")
	if d.Retention = retention.duration(0, 0); d.Retention > 0 && d.Retention < time.Second {
		retention.bad(codeType, retention.shown()+" is below a second", "write for example 30d, or 0s for ever")
	} else if d.Retention > 0 {
		retention.warn(codeRisky, "parked events that wait longer than "+retention.shown()+" are left out for good", "0s keeps them until a person replays or skips them")
	}
	mirror := s.get("mirror_topic")
	if d.MirrorTopic = mirror.str(""); d.MirrorTopic != "" && !topicname.Valid(d.MirrorTopic) {
		mirror.bad(codeType, mirror.shown()+" is no topic name", topicname.Rule)
	}
	s.close()
	return d
}

// checkMirror compares the mirror topic with what can have one, and with where events go: a consumer there would take copies for events.
func (p *readPipeline) checkMirror(f field) {
	switch {
	case p.DeadLetters.MirrorTopic == "":
	case p.Sink.Kind == SinkStdout:
		f.bad(codeUseless, "copies of parked events (mirror_topic) need a Kafka sink", "leave it out")
	case slices.ContainsFunc(p.Routes, func(r Route) bool { return r.Topic == p.DeadLetters.MirrorTopic }):
		f.bad(codeUseless, "mirror_topic is a topic that a route sends events to", "name a topic of its own")
	}
}

func (r *reader) limits(f field) Limits {
	s := f.section()
	if s == nil {
		s = r.absent(f)
	}
	l := Limits{
		InFlightEvents: int(s.get("in_flight_events").number(4096, 1, 1<<20)),
		InFlightBytes:  s.get("in_flight_bytes").size(32<<20, 1<<10),
		Row:            s.get("row").size(16<<20, 1<<10),
		Spill:          s.get("spill").size(10<<30, 0),
		XA:             s.get("xa").size(1<<30, 0),
		MaxRate:        s.get("max_rate").number(0, 0, 1<<40),
	}
	if row := s.get("row"); l.Row > 1<<30 {
		row.bad(codeType, fmt.Sprintf("%s is above 1GiB", row.shown()), "no source sends rows of that size")
	}
	s.close()
	return l
}

func (r *reader) checkpoint(f field) Checkpoint {
	s := f.section()
	if s == nil {
		s = r.absent(f)
	}
	interval := s.get("interval")
	c := Checkpoint{Interval: interval.duration(100*time.Millisecond, 10*time.Millisecond)}
	if c.Interval > time.Minute {
		interval.warn(codeRisky, "a crash sends again what was sent since the last save, with this up to "+c.Interval.String(), "")
	}
	s.close()
	return c
}
