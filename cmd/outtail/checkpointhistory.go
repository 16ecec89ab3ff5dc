package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
)

// requestHistory asks the running process for the positions that a pipeline had.
const requestHistory = "checkpoint/history"

// pastEntry is an entry of the history as `checkpoint history --json` prints it.
type pastEntry struct {
	Entry  string             `json:"entry"`
	At     time.Time          `json:"at"`
	Source checkpoint.Source  `json:"source"`
	Prefix *checkpoint.Prefix `json:"prefix"`
	Events uint64             `json:"events"`
}

// pipelineHistory is a pipeline in `checkpoint history --json`.
type pipelineHistory struct {
	Pipeline string      `json:"pipeline"`
	History  []pastEntry `json:"history"`
}

func newCheckpointHistory(c *cli) *cobra.Command {
	var only string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history -c FILE",
		Short: "List positions of the past, to which rewind can go back",
		Long: `A position is kept once a minute while it moves, and before a person changes it: those of the last hour, then one per hour for two days,
per day for 60 days, and per month for three years. EVENTS counts the events that passed up to there. ENTRY is what
outtail checkpoint rewind --to takes; how far the server can go back is its own: on Postgres only as far as rewind_window holds the slot
back (default 0s: not at all), on MySQL and MariaDB as far as the binlogs reach. Asks the running process; where none runs, reads the state file.`,
		Example: "  outtail checkpoint history -c outtail.yaml --pipeline orders\n  outtail checkpoint history -c outtail.yaml --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadWithoutSecrets(c.configFile, os.LookupEnv)
			if err != nil {
				return err
			}
			all := []pipelineHistory{}
			for _, p := range cfg.Pipelines {
				if only != "" && p.Name != only {
					continue
				}
				past, err := readHistory(cmd.Context(), cfg, p.Name)
				if err != nil {
					return err
				}
				all = append(all, showHistory(p.Name, past))
			}
			if len(all) == 0 {
				_, err := pipelineNamed(cfg, only)
				return err
			}
			if asJSON {
				if err := c.printJSON(all); err != nil || entries(all) > 0 {
					return err
				}
				return c.nothing("show the history", cfg, "")
			}
			if entries(all) == 0 {
				return c.nothing("show the history", cfg, "nothing was stored so far\n")
			}
			if err := c.listHistory(all); err != nil {
				return err
			}
			return c.tellReach(cfg, all)
		},
	}
	c.configFlag(cmd)
	cmd.Flags().StringVar(&only, "pipeline", "", "`NAME` of the pipeline (default: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func readHistory(ctx context.Context, cfg *config.Config, name string) (past []checkpoint.Past, err error) {
	err = withState(ctx, cfg, requestHistory, name, &past, func(store *checkpoint.Store) (err error) {
		past, err = store.History(name)
		return err
	})
	return past, err
}

func showHistory(name string, past []checkpoint.Past) pipelineHistory {
	h := pipelineHistory{Pipeline: name, History: []pastEntry{}}
	for _, p := range past {
		e := checkpoint.NewEntry(name, p.Checkpoint, 0)
		h.History = append(h.History, pastEntry{Entry: p.EntryID(), At: p.At, Source: e.Source, Prefix: e.Prefix, Events: e.Events})
	}
	return h
}

func entries(all []pipelineHistory) (n int) {
	for _, h := range all {
		n += len(h.History)
	}
	return n
}

func (c *cli) listHistory(all []pipelineHistory) error {
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PIPELINE\tENTRY\tSTORED\tEVENTS\tPOSITION")
	for _, h := range all {
		for _, e := range h.History {
			var prefix *event.Prefix
			if e.Prefix != nil {
				prefix = &event.Prefix{Tx: e.Prefix.Tx, Rows: e.Prefix.Rows}
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", h.Pipeline, e.Entry, e.At.UTC().Format(time.RFC3339), e.Events, reached(event.Position(e.Source), prefix))
		}
	}
	return w.Flush()
}

// tellReach says under the list how much of it Postgres can serve; which entries those are is known to the server alone.
func (c *cli) tellReach(cfg *config.Config, all []pipelineHistory) error {
	for _, h := range all {
		p, err := pipelineNamed(cfg, h.Pipeline)
		if err != nil {
			return err
		}
		if pg := p.Source.Postgres; pg != nil && len(h.History) > 0 {
			reach := "rewind_window is off, so most likely none of these"
			if pg.RewindWindow > 0 || pg.RewindWindowBytes > 0 {
				reach = "rewind_window is " + window(pg)
			}
			if err := tell(c.stderr, fmt.Sprintf("pipeline %s: Postgres serves only what lies behind the slot's confirmed position (%s); rewind --dry-run asks it\n", h.Pipeline, reach)); err != nil {
				return err
			}
		}
	}
	return nil
}
