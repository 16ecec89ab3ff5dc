package config

import (
	"fmt"
	"regexp"
	"time"
)

var pipelineName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

const (
	policyHalt = "halt"
	policyPark = "park"
	policyDrop = "drop"
)

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
	p.OnPoison = r.poison(s.get("on_poison"))
	p.readRoutes(s.get("routes"), preset)
	p.OnNoRoute = r.noRoute(s.get("on_no_route"))
	p.DeadLetters = r.deadLetters(s.get("dead_letters"))
	p.readSink(s.get("sink"))
	p.Limits = r.limits(s.get("limits"))
	p.Checkpoint = r.checkpoint(s.get("checkpoint"))
	p.DrainTimeout = s.get("drain_timeout").duration(10*time.Second, 0)
	s.close()
	p.checkTopics()
	return p
}

// notYet is a finding about a value that a later version will take.
func (f field) notYet(what, hint string) {
	f.bad(codeUnavailable, what+" is not available yet", hint)
}

// poison reads on_poison. Until parking exists, its default park means that the pipeline halts: nothing is skipped.
func (r *reader) poison(f field) string {
	switch v := f.enum(policyPark, policyPark, "dlq", policyHalt, "skip"); v {
	case policyPark:
		if f.set() {
			f.warn(codeUnavailable, "parking is not available yet: a record that cannot be sent halts the pipeline", "halt says the same without this warning")
		}
	case policyHalt:
	default:
		f.notYet(v, "until it is, a record that cannot be sent halts the pipeline: write halt, or leave the key out")
	}
	return policyHalt
}

func (r *reader) noRoute(f field) string {
	switch v := f.enum(policyPark, policyPark, "dlq", policyHalt, "skip", policyDrop); v {
	case policyDrop:
		return policyDrop
	case policyPark:
		if f.set() {
			f.warn(codeUnavailable, "parking is not available yet: an event without a route halts the pipeline", "halt says the same without this warning")
		}
	case policyHalt:
	default:
		f.notYet(v, "until it is, write halt or drop")
	}
	return policyHalt
}

func (r *reader) deadLetters(f field) DeadLetters {
	s := f.section()
	if s == nil {
		s = r.absent(f)
	}
	def := DeadLetters{MaxEvents: 1_000_000, MaxBytes: 1 << 30}
	d := DeadLetters{
		MaxEvents:   s.get("max_events").number(def.MaxEvents, 1, 1<<40),
		MaxBytes:    s.get("max_bytes").size(def.MaxBytes, 1),
		Retention:   s.get("retention").duration(0, 0),
		MirrorTopic: s.get("mirror_topic").str(""),
	}
	for key, changed := range map[string]bool{
		"max_events": d.MaxEvents != def.MaxEvents, "max_bytes": d.MaxBytes != def.MaxBytes,
		"retention": d.Retention != 0, "mirror_topic": d.MirrorTopic != "",
	} {
		if changed {
			s.get(key).notYet("another value than the default", "leave it out: until dead letters are available a record that cannot be sent halts the pipeline")
		}
	}
	s.close()
	return d
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
	}
	rate := s.get("max_rate")
	if l.MaxRate = rate.number(0, 0, 1<<40); l.MaxRate > 0 {
		rate.notYet("a limit on the rate", "leave it out, or write 0 for unlimited")
		l.MaxRate = 0
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
