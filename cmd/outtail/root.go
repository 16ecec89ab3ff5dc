package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
)

// cli is what all commands share.
type cli struct {
	stdout, stderr *os.File
	configFile     string
}

func newRoot(stdout, stderr *os.File) *cobra.Command {
	c := &cli{stdout: stdout, stderr: stderr}
	root := &cobra.Command{
		Use:   "outtail",
		Short: "Turns inserts into outbox tables into broker messages, from the database's log",
		Long: `outtail tails the MySQL/MariaDB binlog or the Postgres WAL, keeps only inserts into outbox tables, in commit order,
and sends each row to Kafka, keyed by aggregate_id. Its position is stored only after the broker has acknowledged:
a crash may repeat events, it never loses or reorders them.`,
		Example: `  outtail init --source postgres      print the table, the grants and a commented configuration
  outtail validate -c outtail.yaml    check a configuration
  outtail run -c outtail.yaml         run it
  outtail demo                        see the whole thing work, with nothing to install`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	for _, sub := range []*cobra.Command{
		newRun(c), newValidate(c), newInit(c), newCheckpoint(c), newDemoCommand(), newVersion(c),
	} {
		root.AddCommand(sub)
	}
	strictArgs(root)
	return root
}

// strictArgs makes wrong arguments usage errors (exit 2), in every command.
func strictArgs(cmd *cobra.Command) {
	if args := cmd.Args; args != nil {
		cmd.Args = func(c *cobra.Command, a []string) error {
			if err := args(c, a); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strictArgs(sub)
	}
}

func (c *cli) configFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.configFile, "config", "c", "", "configuration `FILE` (required)")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
}

// tell writes to a person or a pipe; nobody can act on a failure to do so but the caller, who sees it at the end.
func tell(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return err
}
