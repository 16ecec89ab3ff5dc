package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/doctor"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/template"
	"github.com/outtail/outtail/wal"
)

// doctorPatience bounds the look at one server.
const doctorPatience = 60 * time.Second

func newDoctor(c *cli) *cobra.Command {
	var asJSON bool
	var only string
	cmd := &cobra.Command{
		Use:   "doctor -c FILE",
		Short: "Look at the databases and brokers, and say how to repair what is wrong",
		Long: `Connects to the source and the sink of each pipeline, as run would, and says what it finds, why it matters, and the SQL or
command that repairs it. It changes nothing, needs no superuser, and may run beside a running outtail. What the user may
not see is a note that says so.

Exit code 0: fine (there may be notes); 1: warnings, or the broker lacks something; 2: configuration; 3: a source cannot be
used as it is.`,
		Example: "  outtail doctor -c outtail.yaml\n  outtail doctor -c outtail.yaml --pipeline orders --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(c.configFile, os.LookupEnv)
			if err != nil {
				return err
			}
			pipelines := cfg.Pipelines
			if only != "" {
				p, err := pipelineNamed(cfg, only)
				if err != nil {
					return err
				}
				pipelines = []config.Pipeline{p}
			}
			return c.doctor(cmd.Context(), cfg, pipelines, asJSON)
		},
	}
	c.configFlag(cmd)
	cmd.Flags().StringVar(&only, "pipeline", "", "look at the pipeline of this `NAME` only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c *cli) doctor(ctx context.Context, cfg *config.Config, pipelines []config.Pipeline, asJSON bool) error {
	report := doctor.Report{Version: 1, Pipelines: []doctor.Pipeline{}}
	for _, p := range pipelines {
		report.Pipelines = append(report.Pipelines, c.examine(ctx, cfg, p))
	}
	if asJSON {
		enc := json.NewEncoder(c.stdout)
		enc.SetEscapeHTML(false) // statements are to be read
		enc.SetIndent("", "  ")
		if err := enc.Encode(report); err != nil {
			return err
		}
	} else if err := report.Print(c.stdout, colours(c.stdout)); err != nil {
		return err
	}
	switch {
	case report.Worst("source") == doctor.Error:
		return silent{&event.Fault{Code: "OT0005", Class: event.Environment, Op: "look at the sources", Text: "a source cannot be used as it is",
			Hint: "repair the findings of severity error"}}
	case report.Worst("") >= doctor.Warning:
		return silent{errors.New("there are warnings")}
	}
	return nil
}

// examine looks at one pipeline. Commands in what it finds are completed, so that they can be copied.
func (c *cli) examine(ctx context.Context, cfg *config.Config, p config.Pipeline) doctor.Pipeline {
	out := doctor.Pipeline{Name: p.Name}
	bounded := func(check func(ctx context.Context) doctor.Part) {
		ctx, cancel := context.WithTimeout(ctx, doctorPatience)
		defer cancel()
		part := check(ctx)
		for i := range part.Findings {
			r := &part.Findings[i].Repair
			*r = c.complete(*r, p.Name)
		}
		out.Parts = append(out.Parts, part)
	}
	stored := func(ctx context.Context) (event.Checkpoint, error) { return storedOf(ctx, cfg, p) }
	bounded(func(ctx context.Context) doctor.Part {
		if p.Source.Kind == event.Postgres {
			return doctor.CheckPostgres(ctx, doctorPostgres(cfg, p, stored))
		}
		return doctor.CheckMySQL(ctx, doctorMySQL(cfg, p, stored))
	})
	if p.Sink.Kind == config.SinkKafka {
		bounded(func(ctx context.Context) doctor.Part { return doctor.CheckKafka(ctx, doctorKafka(p, stored)) })
	}
	return out
}

// storedOf is what a start would go on after, the zero value where there is none, or what it would stop with.
func storedOf(ctx context.Context, cfg *config.Config, p config.Pipeline) (cp event.Checkpoint, err error) {
	err = withState(ctx, cfg, requestLoad, p.Name, &cp, func(store *checkpoint.Store) (err error) {
		if cp, err = store.Load(p.Name); err != nil {
			return err
		}
		others, err := unconfigured(cfg, store)
		if err != nil {
			return err
		}
		if err := renamed(p, cp, others); err != nil {
			return err
		}
		return lost(cfg, p, cp, store)
	})
	return cp, err
}

func doctorPostgres(cfg *config.Config, p config.Pipeline, stored doctor.Stored) doctor.Postgres {
	o := walOptions(p, slog.New(slog.DiscardHandler))
	none := ""
	if noState("", cfg) != nil {
		none = absolute(cfg.DataDir)
	}
	return doctor.Postgres{
		Host: o.Host, Port: o.Port, User: o.User, Password: o.Password, Database: o.Database, TLS: doctor.TLS(o.TLS),
		Slot: o.Slot, Publication: o.Publication, Tables: o.Tables, Columns: o.Columns, Create: o.Create, FailoverSlot: o.FailoverSlot,
		Start: o.Start, StartTimeout: cfg.StartTimeout, Refused: func(err error) *event.Fault { return wal.ConnectFault(o, err) },
		Stored: stored, NoState: none, Resume: func(ctx context.Context) error { return wal.CheckResume(ctx, o, stored) },
	}
}

func doctorMySQL(cfg *config.Config, p config.Pipeline, stored doctor.Stored) doctor.MySQL {
	o := binlogOptions(cfg, p, slog.New(slog.DiscardHandler))
	id, uuid := o.Self()
	return doctor.MySQL{
		Kind: o.Kind, Host: o.Host, Port: o.Port, User: o.User, Database: o.Database,
		Connect: func(ctx context.Context) (*client.Conn, bool, error) { return binlog.Connect(ctx, o) },
		Tables:  o.Tables, Columns: o.Columns, ReplicaID: id, ReplicaUUID: uuid, ReplicaHost: o.ReportHost(), Start: o.Start.Mode, RowLimit: int64(o.RowLimit),
		StartTimeout: cfg.StartTimeout, Stored: stored,
		Resume: func(ctx context.Context, cp event.Checkpoint) error { return binlog.CheckResume(ctx, o, cp) },
		Changes: func(ctx context.Context, cp event.Checkpoint) (out []doctor.ColumnsChange, err error) {
			changes, err := binlog.CheckColumns(ctx, o, cp)
			for _, c := range changes {
				out = append(out, doctor.ColumnsChange(c))
			}
			return out, err
		},
		Check:   func(ctx context.Context) error { return binlog.CheckServer(ctx, o) },
		Writers: func(ctx context.Context) ([]string, error) { return binlog.Writers(ctx, o) },
	}
}

func doctorKafka(p config.Pipeline, stored doctor.Stored) doctor.Kafka {
	k := p.Sink.Kafka
	o := doctor.Kafka{
		Brokers:  k.Brokers,
		TLS:      doctor.KafkaTLS{Enabled: k.TLS.Enabled, CA: k.TLS.CA, Cert: k.TLS.Cert, Key: k.TLS.Key, ServerName: k.TLS.ServerName},
		SASL:     doctor.SASL{Mechanism: k.SASL.Mechanism, User: k.SASL.User, Password: k.SASL.Password.Reveal()},
		RowLimit: int64(p.Limits.Row),
		ClusterID: func(ctx context.Context) string {
			cp, err := stored(ctx)
			if err != nil || cp.Sink.Kind != config.SinkKafka {
				return ""
			}
			return cp.Sink.ClusterID
		},
	}
	if t := k.CreateTopics; t != nil {
		o.Creates, o.Replication = true, t.Replication
	}
	for _, r := range p.Routes {
		topic, constant := r.Topic, false
		if t, err := template.Compile(r.Topic); err == nil {
			if text, ok := t.Constant(); ok {
				topic, constant = text, true
			}
		}
		list := &o.Templates
		if constant {
			list = &o.Topics
		}
		if !slices.Contains(*list, topic) {
			*list = append(*list, topic)
		}
	}
	return o
}

// colours says whether colour helps: on a terminal, unless NO_COLOR (https://no-color.org) or TERM says otherwise.
func colours(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
