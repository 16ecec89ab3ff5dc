package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/pipeline"
	"github.com/outtail/outtail/router"
	"github.com/outtail/outtail/sink/kafka"
	"github.com/outtail/outtail/sink/stdout"
	"github.com/outtail/outtail/transform"
	"github.com/outtail/outtail/wal"
)

// process is what the pipelines of one process share.
type process struct {
	cfg       *config.Config
	store     *checkpoint.Store
	committer *pipeline.Committer
	observer  pipeline.Observer
	log       *slog.Logger
	stdout    io.Writer
	spill     binlog.SpillSpace
}

// build makes one pipeline from its configuration. Nothing connects yet.
func (p *process) build(c config.Pipeline) (*pipeline.Pipeline, error) {
	routes := make([]router.Route, len(c.Routes))
	for i, r := range c.Routes {
		routes[i] = router.Route{Match: r.Match, Topic: r.Topic, Key: r.Key, OnPoison: r.OnPoison}
	}
	rt, err := router.New(routes, router.NoRoute{Drop: c.DropNoRoute, OnPoison: c.OnNoRoute})
	if err != nil {
		return nil, err
	}
	raw := transform.NewRaw()
	raw.Skipped = func(headers int) { p.observer.HeadersSkipped(c.Name, headers) }
	raw.Replaced = func() { p.observer.TimestampsReplaced(c.Name, 1) }
	p.store.DeadLetters().Limit(c.Name, checkpoint.DeadLetterLimits{MaxEvents: c.DeadLetters.MaxEvents, MaxBytes: int64(c.DeadLetters.MaxBytes)})
	pl := pipeline.New(pipeline.Options{
		Name: c.Name, Router: route{rt}, Transformer: raw, Store: p.store, Committer: p.committer,
		Observer: p.observer, Log: p.log, InFlightEvents: c.Limits.InFlightEvents, InFlightBytes: int64(c.Limits.InFlightBytes),
		MaxRate:     float64(c.Limits.MaxRate),
		DeadLetters: p.store.DeadLetters(), Columns: c.Columns, StartTimeout: p.cfg.StartTimeout, DrainTimeout: c.DrainTimeout, Version: version,
	})
	src, err := p.source(c, pl)
	if err != nil {
		return nil, err
	}
	sink, err := p.sink(c, pl)
	if err != nil {
		return nil, err
	}
	pl.Attach(src, sink)
	return pl, nil
}

// route fits the router, which knows nothing of pipelines, into one.
type route struct{ *router.Router }

func (r route) Route(ev *event.Event, m *event.Message) (pipeline.Decision, error) {
	drop, err := r.Router.Route(ev, m)
	if drop {
		return pipeline.Drop, err
	}
	return pipeline.Deliver, err
}

// source makes the source of a pipeline.
func (p *process) source(c config.Pipeline, pl *pipeline.Pipeline) (pipeline.Source, error) {
	if c.Source.Kind == event.Postgres {
		o := walOptions(c, p.log.With("pipeline", c.Name)) // binlog says its pipeline by itself
		o.RanBefore, o.Conditions = p.store.RanBefore(c.Name), pl.Condition
		o.Filtered = func(reason string, n int) { p.observer.Filtered(c.Name, reason, n) }
		if o.RewindWindow > 0 {
			past, err := p.store.History(c.Name)
			if err != nil {
				return nil, err
			}
			for _, h := range past {
				o.Past = append(o.Past, wal.Moment{At: h.At, Position: h.Checkpoint.Position})
			}
		}
		return wal.New(o)
	}
	o := binlogOptions(p.cfg, c, p.log)
	o.Conditions, o.Prepared = pl.Condition, p.store.Prepared(c.Name)
	o.SpillSpace = &p.spill
	o.Filtered = func(reason string, rows int) { p.observer.Filtered(c.Name, reason, rows) }
	return binlog.New(o)
}

func walOptions(c config.Pipeline, log *slog.Logger) wal.Options {
	s := c.Source.Postgres
	return wal.Options{
		Pipeline: c.Name, Host: s.Host, Port: s.Port, User: s.User, Password: s.Password.Reveal(), Database: s.Database,
		TLS:  wal.TLS{Mode: s.TLS.Mode, CA: s.TLS.CA, Cert: s.TLS.Cert, Key: s.TLS.Key},
		Slot: s.Slot, Publication: s.Publication, Tables: s.Tables, Columns: c.Columns, Create: s.Create,
		FailoverSlot: s.FailoverSlot, Start: s.Start.Mode, RowLimit: int(c.Limits.Row), Logger: log,
		Messages: s.Messages, Heartbeat: s.Heartbeat, RewindWindow: s.RewindWindow, RewindBytes: int64(s.RewindWindowBytes),
	}
}

func binlogOptions(cfg *config.Config, c config.Pipeline, log *slog.Logger) binlog.Options {
	s := c.Source.MySQL
	seed := cfg.DataDir
	if abs, err := filepath.Abs(cfg.DataDir); err == nil {
		seed = abs
	}
	return binlog.Options{
		Kind: c.Source.Kind, Pipeline: c.Name, Host: s.Host, Port: int(s.Port), User: s.User, Password: s.Password.Reveal(),
		Database: s.Database, TLS: binlog.TLS{Mode: s.TLS.Mode, CA: s.TLS.CA, Cert: s.TLS.Cert, Key: s.TLS.Key},
		Tables: s.Tables, ServerID: s.ServerID, Seed: hostname() + "\x00" + seed + "\x00" + c.Name,
		Start:    binlog.Start{Mode: s.Start.Mode, GTID: s.Start.GTID, File: s.Start.File, Pos: s.Start.Pos},
		OnUpdate: s.OnUpdate, Columns: c.Columns, RowLimit: int(c.Limits.Row), SpillDir: filepath.Join(cfg.DataDir, "spill"),
		SpillLimit: int64(c.Limits.Spill), XALimit: int64(c.Limits.XA), Logger: log,
	}
}

func (p *process) sink(c config.Pipeline, pl *pipeline.Pipeline) (pipeline.Sink, error) {
	if c.Sink.Kind == config.SinkStdout {
		return stdout.New(p.stdout, stdout.Options{Acks: pl}), nil
	}
	o := p.kafkaOptions(c)
	o.Acks, o.Conditions = pl, pl.Condition
	o.Observe.Unknown = func(n int) { p.observer.SendUnknown(c.Name, n) }
	return kafka.New(o)
}

// mirror makes what copies a pipeline's parked events to a topic; nil where that is not wanted.
func (p *process) mirror(c config.Pipeline, pl *pipeline.Pipeline) (func(context.Context), error) {
	topic := c.DeadLetters.MirrorTopic
	if topic == "" {
		return nil, nil
	}
	log := p.log.With("pipeline", c.Name, "mirror_topic", topic)
	m := pipeline.NewMirror(pipeline.MirrorOptions{
		Pipeline: c.Name, Topic: topic, Letters: p.store.DeadLetters(), Transformer: transform.NewRaw(), Log: log, Condition: pl.Condition,
	})
	o := p.kafkaOptions(c)
	o.AllowTopics, o.ClientID, o.Logger, o.Acks = []string{topic}, o.ClientID+"-mirror", log, m
	o.Conditions = func(key string, f *event.Fault) { pl.Condition("mirror/"+key, f) }
	sink, err := kafka.New(o)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { m.Run(ctx, sink) }, nil
}

// kafkaOptions are those of every client of a pipeline.
func (p *process) kafkaOptions(c config.Pipeline) kafka.Options {
	k := c.Sink.Kafka
	o := kafka.Options{
		Brokers: k.Brokers,
		TLS:     kafka.TLS{Enabled: k.TLS.Enabled, CA: k.TLS.CA, Cert: k.TLS.Cert, Key: k.TLS.Key, ServerName: k.TLS.ServerName},
		SASL:    kafka.SASL{Mechanism: k.SASL.Mechanism, User: k.SASL.User, Password: k.SASL.Password.Reveal()},

		Compression: k.Compression, Linger: k.Linger, AllowTopics: k.AllowTopics,
		// The window bounds what is in flight; the client's own bound is never below the largest admitted event.
		MaxBufferedBytes: 0, ClientID: "outtail-" + c.Name, Logger: p.log.With("pipeline", c.Name),
		Observe: kafka.Observe{Error: func(cl event.Class) { p.observer.SendError(c.Name, cl) }},
	}
	if t := k.CreateTopics; t != nil {
		o.CreateTopics = &kafka.CreateTopics{Partitions: t.Partitions, Replication: t.Replication}
	}
	return o
}

// pipelineNamed finds a pipeline of the configuration by its name.
func pipelineNamed(cfg *config.Config, name string) (config.Pipeline, error) {
	var names []string
	for _, p := range cfg.Pipelines {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return config.Pipeline{}, usageError{fmt.Errorf("the configuration has no pipeline %q; it has %s", name, strings.Join(names, ", "))}
}
