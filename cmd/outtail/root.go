package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// cli is what all commands share.
type cli struct {
	stdout, stderr *os.File
	configFile     string
	began          bool // a command was found, its flags were right, and it ran
}

func newRoot(c *cli) *cobra.Command {
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
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetVersionTemplate(versionLine())
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	for _, sub := range []*cobra.Command{
		newRun(c), newValidate(c), newInit(c), newCheckpoint(c), newDLQ(c), newAudit(c), newSchema(c), newDoctor(c), newDemoCommand(), newVersion(c),
	} {
		root.AddCommand(sub)
	}
	c.strict(root)
	c.helpCommand(root)
	return root
}

// helpCommand makes `outtail help` know what it is asked about: cobra's own answers a mistyped command with the help of outtail and
// exit 0, which a script takes for a success.
func (c *cli) helpCommand(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
			c.began = true
			about, rest, err := root.Find(args)
			if err == nil {
				err = about.ValidateArgs(rest) // what strict says of an unknown command
			}
			if err != nil {
				return usageError{fmt.Errorf("%w\n  hint: %s --help", err, about.CommandPath())}
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		}
	}
}

// strict notes in every command that it began, so that all that went wrong before is a usage error (exit 2), and answers
// a mistyped command with the one that was meant.
func (c *cli) strict(cmd *cobra.Command) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.began = true
		return run(cmd, args)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return nil
		case !cmd.HasAvailableSubCommands():
			return fmt.Errorf("%s takes no argument, and there is %q", cmd.CommandPath(), args[0])
		}
		err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			err = fmt.Errorf("%w; did you mean %q?", err, cmd.CommandPath()+" "+near[0])
		}
		return err
	}
	for _, sub := range cmd.Commands() {
		c.strict(sub)
	}
}

func (c *cli) configFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.configFile, "config", "c", "", "configuration `FILE` (required)")
	_ = cmd.MarkFlagRequired("config")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
}

// cell is text from elsewhere (an event's id, a reason, what a server said) for one place in a line or table: nothing in it moves the
// cursor, breaks the line or shifts a column.
func cell(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
	}
	return b.String()
}

// tell writes to a person or a pipe; nobody can act on a failure to do so but the caller, who sees it at the end.
func tell(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return err
}
