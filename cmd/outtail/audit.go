package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
)

func newAudit(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit -c FILE",
		Short: "Show what people did to the state, and why",
		Long: `Every act on positions, findings, columns and parked events, the oldest first. Entries are only ever added. What takes its time is there
twice: when it began, and how it ended, with counts. Asks the running process; where none runs, reads the state file.`,
		Example: "  outtail audit -c outtail.yaml\n  outtail audit -c outtail.yaml --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadWithoutSecrets(c.configFile, os.LookupEnv)
			if err != nil {
				return err
			}
			all, err := onDead(cmd.Context(), cfg, requestAudit, struct{}{}, false, func(l *deadLetters) ([]checkpoint.Audit, error) { return l.store.Audits() })
			if err != nil {
				return err
			}
			if asJSON {
				if all == nil {
					all = []checkpoint.Audit{}
				}
				for _, a := range all {
					withoutSecrets(a.Before)
					withoutSecrets(a.After)
				}
				if err := c.printJSON(all); err != nil || len(all) > 0 {
					return err
				}
				return c.nothing("show the audit", cfg, "")
			}
			if len(all) == 0 {
				return c.nothing("show the audit", cfg, "nobody has changed anything so far\n")
			}
			w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "TIME\tOPERATOR\tACTION\tPIPELINE\tOUTCOME\tREASON\tDETAIL")
			for _, a := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Time.UTC().Format(time.RFC3339), cell(a.Operator), a.Action, a.Pipeline, cell(a.Outcome), cell(a.Reason), cell(about(a)))
			}
			return w.Flush()
		},
	}
	c.configFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// about is what an act was about, in a line.
func about(a checkpoint.Audit) string {
	var parts []string
	if r := a.Range; r != nil {
		if len(r.Picked) > 0 {
			parts = append(parts, string(r.Picked))
		}
		if r.To != "" {
			parts = append(parts, "from "+r.From+" to "+r.To)
		}
	} else if a.Detail == "" && a.After != nil {
		parts = append(parts, reached(a.After.Position, a.After.Prefix))
	}
	if a.Detail != "" {
		parts = append(parts, a.Detail)
	}
	if a.Action == checkpoint.ActionAccept && a.After != nil && !a.After.IsZero() {
		parts = append(parts, "accepted at "+reached(a.After.Position, a.After.Prefix))
	}
	return strings.Join(parts, ": ")
}

// withoutSecrets takes out of a checkpoint what nobody but the process on this data_dir should know.
func withoutSecrets(cp *event.Checkpoint) {
	if cp != nil && cp.Position.Kind != event.Postgres {
		cp.Depends = binlog.Portable(cp.Depends, true)
	}
}
