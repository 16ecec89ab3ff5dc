package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/internal/demo"
)

// exitInterrupted is the code after a second Ctrl-C (contract: exit codes).
const exitInterrupted = 130

func newDemoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the main job: Postgres to Kafka, while outtail is killed over and over",
		Long: `demo fetches and starts a real Postgres, a broker in its own process, a small order service and outtail, kills
outtail with SIGKILL every 15 seconds and starts it again, and checks every customer's sequence of orders. Ctrl-C ends
it with a verdict, a second one at once. Nothing is installed, and nothing is left behind but a cache of the binaries.

  DEMO_SECONDS=40        end by itself
  DEMO_RATE=200          transactions per second, a tenth of them rolled back
  DEMO_KILL_SECONDS=15   time between two kills
  DEMO_KEEP=1            keep the temporary folder with outtail's log and data
  DEMO_POSTGRES=DIR      use the initdb and postgres in DIR instead of fetching
  OUTTAIL_MAVEN=URL      the Maven repository to fetch from`,
		Example: "  outtail demo\n  DEMO_SECONDS=40 outtail demo",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := demo.FromEnv(os.Getenv)
			if err != nil {
				return err
			}
			options.Out, options.Notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
			// The demo answers signals itself: the first one with a verdict.
			err = demo.Run(context.WithoutCancel(cmd.Context()), options)
			if errors.Is(err, demo.ErrInterrupted) {
				fmt.Fprintln(options.Notes, "interrupted; everything was taken down")
				os.Exit(exitInterrupted)
			}
			return err
		},
	}
}
