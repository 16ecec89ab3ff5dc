package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
)

func newSchema(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Vouch for a table's columns",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSchemaAccept(c))
	return cmd
}

func newSchemaAccept(c *cli) *cobra.Command {
	var ch change
	var table, at, columns string
	cmd := &cobra.Command{
		Use:   `accept -c FILE --pipeline P --table T --at POSITION --columns "…" --reason R`,
		Short: "Vouch for a table's columns from a position on",
		Long: `The log of MySQL and MariaDB holds rows without the names of their columns unless binlog_row_metadata is FULL. Where a table was
changed more than once while outtail was down nobody can tell what it was in between, and outtail stops (OT3029). Who knows it
says it here: from the next start on, rows behind POSITION are read by these columns, until the table is changed again. A
wrong order of columns puts values under wrong names. Refused while outtail runs; the audit keeps who vouched and why.

--at       FILE:POS, as the stop printed it
--columns  all columns in their order, as SHOW CREATE TABLE lists them: name, type, unsigned, character set`,
		Example: `  outtail schema accept -c outtail.yaml --pipeline orders --table shop.outbox --at binlog.000012:4711 \
    --columns "id bigint unsigned, aggregate_id varchar(255) character set utf8mb4, payload json" --reason "migration 17"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o, err := ch.open(c, "vouch for a table's columns")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, o.close()) }()
			cfg, p, store := o.cfg, o.p, o.store
			if p.Source.Kind == event.Postgres {
				return usageError{fmt.Errorf("pipeline %s reads Postgres, whose log names the columns itself", p.Name)}
			}
			cp, err := store.Load(p.Name)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cfg.StartTimeout+30*time.Second)
			defer cancel()
			depends, err := binlog.Vouch(ctx, binlogOptions(cfg, p, newLogger(os.Stderr, cfg.Log.Level, "text")), cp, table, at, columns)
			if err != nil {
				return err
			}
			if err := store.AcceptSchema(ctx, p.Name, table+" at "+at+": "+columns, depends, ch.by()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "pipeline %s: rows of %s behind %s are read by these columns\n", p.Name, table, at)
			return err
		},
	}
	ch.flags(c, cmd)
	cmd.Flags().StringVar(&table, "table", "", "`TABLE` as the configuration names it (required)")
	cmd.Flags().StringVar(&at, "at", "", "`POSITION` from which the columns hold (required)")
	cmd.Flags().StringVar(&columns, "columns", "", "`LIST` of columns (required)")
	for _, name := range []string{"table", "at", "columns"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}
