package config

import (
	"fmt"
	"sort"
	"strings"

	"github.com/outtail/outtail/event"
)

// compare finds what single pipelines cannot know: names that stand twice, and pipelines that would get in each other's
// way on one server.
func (r *reader) compare(pipelines []*readPipeline) {
	names := map[string]field{}
	slots := map[string]*readPipeline{}
	ids := map[string]*readPipeline{}
	work := map[string]*readPipeline{}
	var stdout *readPipeline
	for _, p := range pipelines {
		if !pipelineName.MatchString(p.Name) {
			continue // a finding of its own, and nothing to call it by
		}
		if first, ok := names[p.Name]; ok {
			p.name.bad(codeDuplicate, fmt.Sprintf("the name %s stands twice, first in line %d", p.name.shown(), first.at().Line), "positions are kept by name")
		} else {
			names[p.Name] = p.name
		}
		if pg := p.Source.Postgres; pg != nil && pg.Slot != "" {
			at := p.server() + "/" + pg.Slot
			if first, ok := slots[at]; ok && first.Name != p.Name {
				p.slot.bad(codeDuplicate, "the slot is used by pipeline "+first.Name+" on the same server", "a slot has one reader")
			}
			slots[at] = p
		}
		if my := p.Source.MySQL; my != nil && my.ServerID != 0 {
			at := fmt.Sprintf("%s/%d", p.server(), my.ServerID)
			if first, ok := ids[at]; ok {
				p.id.bad(codeDuplicate, fmt.Sprintf("%d is used by pipeline %s on the same server", my.ServerID, first.Name), "the server keeps one reader per id; 0 gives each pipeline its own")
			}
			ids[at] = p
		}
		if p.Sink.Kind == SinkStdout {
			if stdout != nil {
				r.fault(p.sink.key, codeDuplicate, p.sink.path, "standard output is used by pipeline "+stdout.Name, "there is only one: lines of two pipelines cannot be told apart")
			}
			stdout = p
		}
		if key := p.what(); key != "" {
			if first, ok := work[key]; ok && first.Name != p.Name {
				p.name.warn(codeRisky, fmt.Sprintf("reads the same tables and writes to the same sink as pipeline %s", first.Name), "every event would be sent twice")
			}
			work[key] = p
		}
	}
}

// server is the place of the source's server.
func (p *readPipeline) server() string {
	var s Server
	switch {
	case p.Source.Postgres != nil:
		s = p.Source.Postgres.Server
	case p.Source.MySQL != nil:
		s = p.Source.MySQL.Server
	}
	return fmt.Sprintf("%s:%d", strings.ToLower(s.Host), s.Port)
}

// what identifies the work of a pipeline: where it reads, what, and where it writes.
func (p *readPipeline) what() string {
	if len(p.tables) == 0 || p.Sink.Kind == "" {
		return ""
	}
	database := ""
	if p.Source.Kind == event.Postgres {
		database = p.Source.Postgres.Database
	}
	var parts []string
	for _, t := range p.tables {
		parts = append(parts, fmt.Sprintf("%q.%q", t.schema, t.name))
	}
	sort.Strings(parts)
	to := ""
	if k := p.Sink.Kafka; k != nil {
		brokers := append([]string(nil), k.Brokers...)
		sort.Strings(brokers)
		to = strings.Join(brokers, ",")
	}
	return strings.Join([]string{p.Source.Kind, p.server(), database, strings.Join(parts, ","), p.Sink.Kind, to}, "|")
}
