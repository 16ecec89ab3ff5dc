package main

import (
	"embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/outtail/outtail/event"
)

//go:embed initial
var initial embed.FS

func newInit(c *cli) *cobra.Command {
	var source string
	var onlySQL, onlyConfig bool
	cmd := &cobra.Command{
		Use:   "init --source postgres|mysql|mariadb",
		Short: "Print the outbox table, the grants and a commented configuration",
		Long: `Prints a configuration to begin with. The SQL for the outbox table and the grants stands in front of it as comments,
so that the whole is a valid configuration file; --sql prints the SQL alone.`,
		Example: `  outtail init --source postgres > outtail.yaml
  outtail init --source mysql --sql | mysql shop`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if source != event.Postgres && source != event.MySQL && source != event.MariaDB {
				return usageError{fmt.Errorf("--source %q: it is one of postgres, mysql, mariadb", source)}
			}
			text, err := initText(source, onlySQL, onlyConfig)
			if err != nil {
				return err
			}
			return tell(c.stdout, text)
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "postgres, mysql or mariadb (required)")
	cmd.Flags().BoolVar(&onlySQL, "sql", false, "print the SQL alone")
	cmd.Flags().BoolVar(&onlyConfig, "config-only", false, "print the configuration alone")
	cmd.MarkFlagsMutuallyExclusive("sql", "config-only")
	_ = cmd.MarkFlagRequired("source")
	return cmd
}

func initText(kind string, onlySQL, onlyConfig bool) (string, error) {
	sql, err := initial.ReadFile("initial/" + kind + ".sql")
	if err != nil {
		return "", err
	}
	if onlySQL {
		return string(sql), nil
	}
	t, err := template.ParseFS(initial, "initial/config.yaml")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if !onlyConfig {
		b.WriteString("# outtail, source " + kind + ". First, in the database (also: outtail init --source " + kind + " --sql):\n#\n")
		for line := range strings.Lines(string(sql)) {
			b.WriteString(strings.TrimRight("#   "+line, " \n") + "\n")
		}
		b.WriteString("#\n# Then: outtail validate -c FILE, outtail doctor -c FILE, outtail run -c FILE. Every key: docs/CONFIGURATION.md\n\n")
	}
	err = t.Execute(&b, struct{ Kind string }{kind})
	return b.String(), err
}
