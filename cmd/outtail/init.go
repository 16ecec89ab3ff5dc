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
	var onlySQL, onlyConfig, messages bool
	cmd := &cobra.Command{
		Use:   "init --source postgres|mysql|mariadb",
		Short: "Print the outbox table, the grants and a commented configuration",
		Long: `Prints a configuration to begin with. The SQL for the outbox table and the grants stands in front of it as comments,
so that the whole is a valid configuration file; --sql prints the SQL alone, which may be piped into a client: it leaves no user with
a password that others know, and what is left to do is repeated on stderr. With --messages the outbox needs no table: a
function writes events into the log (Postgres 14 and newer).`,
		Example: `  outtail init --source postgres > outtail.yaml
  outtail init --source postgres --sql | psql shop
  outtail init --source mysql --sql | mysql shop`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if source != event.Postgres && source != event.MySQL && source != event.MariaDB {
				return usageError{fmt.Errorf("--source %q: it is one of postgres, mysql, mariadb", source)}
			}
			if messages && source != event.Postgres {
				return usageError{fmt.Errorf("--messages: only postgres has logical messages")}
			}
			text, err := initText(source, messages, onlySQL, onlyConfig)
			if err != nil {
				return err
			}
			if err := tell(c.stdout, text); err != nil || !onlySQL {
				return err
			}
			return tell(c.stderr, leftToDo(text))
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "postgres, mysql or mariadb (required)")
	cmd.Flags().BoolVar(&onlySQL, "sql", false, "print the SQL alone")
	cmd.Flags().BoolVar(&onlyConfig, "config-only", false, "print the configuration alone")
	cmd.Flags().BoolVar(&messages, "messages", false, "Postgres: an outbox without a table")
	cmd.MarkFlagsMutuallyExclusive("sql", "config-only")
	_ = cmd.MarkFlagRequired("source")
	return cmd
}

// leftToDo is the end of the SQL, which says what a person has to do behind it; a client that is fed with the SQL does not show it.
func leftToDo(sql string) string {
	if at := strings.Index(sql, "-- Left to do"); at >= 0 {
		return sql[at:]
	}
	return ""
}

func initText(kind string, messages, onlySQL, onlyConfig bool) (string, error) {
	file, flag := kind, ""
	if messages {
		file, flag = kind+"-messages", " --messages"
	}
	sql, err := initial.ReadFile("initial/" + file + ".sql")
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
		b.WriteString("# outtail, source " + kind + ". First, in the database (also: outtail init --source " + kind + flag + " --sql):\n#\n")
		for line := range strings.Lines(string(sql)) {
			b.WriteString(strings.TrimRight("#   "+line, " \n") + "\n")
		}
		b.WriteString("#\n# Then: outtail validate -c FILE, outtail doctor -c FILE, outtail run -c FILE. Every key: docs/CONFIGURATION.md\n\n")
	}
	err = t.Execute(&b, struct {
		Kind     string
		Messages bool
	}{kind, messages})
	return b.String(), err
}
