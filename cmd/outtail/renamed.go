package main

import (
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
)

// checkRenamed refuses to start a MySQL pipeline without a position while the state file holds one of a name that the
// configuration no longer has, for the same kind of source: a renamed pipeline would apply `start` and skip what lies in
// between (I5). On Postgres the slot remembers.
func checkRenamed(cfg *config.Config, store *checkpoint.Store, log *slog.Logger) error {
	others, err := unconfigured(cfg, store)
	if err != nil || len(others) == 0 {
		return err
	}
	for _, p := range cfg.Pipelines {
		own, err := store.Load(p.Name)
		if err != nil {
			return err
		}
		if err := renamed(p, own, others); err != nil {
			return err
		}
	}
	log.Info("the state file holds positions of pipelines that are not configured", "pipelines", len(others))
	return nil
}

// unconfigured are the positions of pipelines that the configuration does not name.
func unconfigured(cfg *config.Config, store *checkpoint.Store) (map[string]event.Checkpoint, error) {
	names := make([]string, len(cfg.Pipelines))
	for i, p := range cfg.Pipelines {
		names[i] = p.Name
	}
	return store.Others(names...)
}

func renamed(p config.Pipeline, own event.Checkpoint, others map[string]event.Checkpoint) error {
	if p.Source.Kind == event.Postgres || !own.IsZero() || slices.Contains(own.Accepted, codeRenamed) {
		return nil
	}
	for name, cp := range others {
		if cp.Position.Kind == p.Source.Kind {
			return faultRenamed(p.Name, name, cp)
		}
	}
	return nil
}

const codeRenamed = "OT0003"

func faultRenamed(name, old string, cp event.Checkpoint) *event.Fault {
	return &event.Fault{
		Code: codeRenamed, Class: event.Safety, Op: "start", Place: "pipeline " + name,
		Text: fmt.Sprintf("it has no position, and the state file holds one of pipeline %s, which is not configured, on the same kind of server, at %s: was it renamed?", old, cp.Position),
		Hint: fmt.Sprintf("name it %s again; or, to begin at that place: outtail checkpoint set -c FILE --pipeline %s --to '%s' --reason R; "+
			"or, if it is another one: outtail checkpoint accept -c FILE --pipeline %s --code %s --reason R", old, name, setForm(cp.Position), name, codeRenamed),
	}
}

// checkLost refuses to apply `start` to a MySQL pipeline that stored positions in this data_dir although the state file has
// none: somebody moved outtail.db away, and nothing on the server remembers (I5). On Postgres the slot does.
func checkLost(cfg *config.Config, store *checkpoint.Store) error {
	for _, p := range cfg.Pipelines {
		own, err := store.Load(p.Name)
		if err != nil {
			return err
		}
		if err := lost(cfg, p, own, store); err != nil {
			return err
		}
	}
	return nil
}

func lost(cfg *config.Config, p config.Pipeline, own event.Checkpoint, store *checkpoint.Store) error {
	if p.Source.Kind == event.Postgres || !own.IsZero() || !store.RanBefore(p.Name) || slices.Contains(own.Accepted, codeLost) {
		return nil
	}
	return faultLost(p.Name, cfg.DataDir)
}

const codeLost = "OT0004"

func faultLost(name, dir string) *event.Fault {
	return &event.Fault{
		Code: codeLost, Class: event.Safety, Op: "start", Place: "pipeline " + name,
		Text: "it ran before in " + dir + ", and the state file there has no position of it: what was committed since would be skipped",
		Hint: `bring back outtail.db, or choose one:
  outtail checkpoint set -c FILE --pipeline P --to POSITION --reason R   (a GTID set or FILE:POS, from the log or a backup)
  outtail checkpoint set -c FILE --pipeline P --to earliest --reason R   (all that the server still has is sent again)
  outtail checkpoint set -c FILE --pipeline P --to now --reason R   (what was committed until now is not sent)`,
	}
}

// setForm is a position as `checkpoint set --to` takes it.
func setForm(p event.Position) string {
	switch {
	case p.Kind == event.Postgres:
		return p.LSN.String()
	case p.GTID != "":
		return p.GTID
	}
	return fmt.Sprintf("%s:%d", p.File, p.Pos)
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
