package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// environment has just what a test names.
func environment(pairs ...string) Environment {
	values := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}

var passwords = environment("PGPASSWORD", "one", "MYSQL_PASSWORD", "two", "MARIADB_PASSWORD", "three")

func TestEveryExampleLoads(t *testing.T) {
	files, err := filepath.Glob("../configs/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 8)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			c, err := Load(file, passwords)
			require.NoError(t, err)
			require.Empty(t, c.Warnings)
			require.NotEmpty(t, c.Pipelines)
		})
	}
}

func TestExamplesMapTheTablesThatTheyComeWith(t *testing.T) {
	for example, table := range map[string]string{
		"postgres": "postgres", "mysql": "mysql", "mariadb": "mysql",
		"polled_order": "polled_order", "biz_key": "biz_key", "versioned": "versioned",
	} {
		c, err := Load("../configs/"+example+".yaml", passwords)
		require.NoError(t, err)
		sql, err := os.ReadFile("../configs/tables/" + table + ".sql")
		require.NoError(t, err)
		columns := map[string]bool{}
		for _, line := range strings.Split(string(sql), "\n") {
			if f := strings.Fields(line); strings.HasPrefix(line, "  ") && len(f) > 1 {
				columns[f[0]] = true
			}
		}
		p := c.Pipelines[0]
		for role, m := range p.Columns {
			if m.Column != "" {
				require.True(t, columns[m.Column], "%s maps %v to %s, which %s.sql does not have", example, event.Role(role), m.Column, table)
			}
		}
		var names []string
		if p.Source.Postgres != nil {
			names = p.Source.Postgres.Tables
		} else {
			names = p.Source.MySQL.Tables
		}
		require.Len(t, names, 1)
		require.Contains(t, string(sql), "CREATE TABLE "+names[0][strings.Index(names[0], ".")+1:]+" (")
	}
}

// The reference writes every default out: leaving a key out has to mean the same.
func TestTheReferenceHasTheDefaults(t *testing.T) {
	written, err := Load("../configs/reference.yaml", passwords)
	require.NoError(t, err)
	short := `
pipelines:
  - name: orders
    source:
      postgres:
        user: outtail
        password: one
        database: shop
        tables: [public.outbox]
        start: now
    routes:
      - { match: { event_type: order.created }, topic: orders.created, key: "${aggregate_id}" }
      - { topic: orders.other }
    sink: { kafka: { brokers: ["127.0.0.1:9092"] } }
  - name: stock
    source:
      mysql: { user: outtail, password: two, tables: [shop.outbox], start: now }
    routes: [{ topic: "stock.${aggregate_type}" }]
    sink: { kafka: { brokers: ["127.0.0.1:9092"] } }
`
	left, err := Parse("short.yaml", []byte(short), environment())
	require.NoError(t, err)
	left.File = written.File
	require.Equal(t, written, left)

	require.Equal(t, "./data", left.DataDir)
	require.Equal(t, 30*time.Second, left.StartTimeout)
	require.Equal(t, "127.0.0.1:8095", left.Admin.Listen)
	p := left.Pipelines[0]
	require.Equal(t, event.Postgres, p.Source.Kind)
	require.Equal(t, Server{Host: "127.0.0.1", Port: 5432, User: "outtail", Password: NewSecret("one"), Database: "shop", TLS: TLS{Mode: "prefer"}}, p.Source.Postgres.Server)
	require.Equal(t, "outtail_orders", p.Source.Postgres.Slot)
	require.Equal(t, "outtail_orders", p.Source.Postgres.Publication)
	require.Equal(t, Limits{InFlightEvents: 4096, InFlightBytes: 32 << 20, Row: 16 << 20, Spill: 10 << 30, XA: 1 << 30}, p.Limits)
	require.Equal(t, 100*time.Millisecond, p.Checkpoint.Interval)
	require.Equal(t, 10*time.Second, p.DrainTimeout)
	require.Equal(t, &Kafka{Brokers: []string{"127.0.0.1:9092"}, Compression: "lz4"}, p.Sink.Kafka)
	require.Equal(t, "warn", left.Pipelines[1].Source.MySQL.OnUpdate)
	require.EqualValues(t, 3306, left.Pipelines[1].Source.MySQL.Port)
}

// What is written nowhere cannot be found: every key that the code knows stands in the reference and in the manual.
func TestEveryKeyIsInTheReferenceAndInTheManual(t *testing.T) {
	data, err := os.ReadFile("../configs/reference.yaml")
	require.NoError(t, err)
	r := &reader{file: "reference.yaml", env: passwords, keys: map[string]bool{}}
	_, err = parseWith(r, data)
	require.NoError(t, err)
	require.Greater(t, len(r.keys), 70)

	manual, err := os.ReadFile("../docs/CONFIGURATION.md")
	require.NoError(t, err)
	for path := range r.keys {
		key := path[strings.LastIndex(path, ".")+1:]
		require.True(t, strings.Contains(string(data), key+":"), "reference.yaml lacks %s", path)
		require.True(t, strings.Contains(string(manual), "`"+key+"`"), "CONFIGURATION.md lacks %s", path)
	}
	for _, role := range event.RoleNames() {
		require.True(t, strings.Contains(string(manual), "| `"+role+"` |"), "CONFIGURATION.md lacks the role %s", role)
	}
}

// What a limit does is told for each of them, in one table.
func TestTheManualSaysWhatEachLimitDoes(t *testing.T) {
	data, err := os.ReadFile("../configs/reference.yaml")
	require.NoError(t, err)
	r := &reader{file: "reference.yaml", env: passwords, keys: map[string]bool{}}
	_, err = parseWith(r, data)
	require.NoError(t, err)
	manual, err := os.ReadFile("../docs/CONFIGURATION.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(manual), "What each limit does when it is reached:\n\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	limits := 0
	for path := range r.keys {
		for _, section := range []string{"limits.", "dead_letters."} {
			_, key, ok := strings.Cut(path, "."+section)
			if ok && key != "mirror_topic" {
				limits++
				require.Contains(t, table, "`"+section+key+"`")
			}
		}
	}
	require.GreaterOrEqual(t, limits, 9)
}

func TestTheServiceIsNotStartedAgainWhereThatMendsNothing(t *testing.T) {
	unit, err := os.ReadFile("../configs/systemd/outtail.service")
	require.NoError(t, err)
	require.Contains(t, string(unit), "\nRestartPreventExitStatus=2 4 5\n")
	require.Contains(t, string(unit), "\nRestart=on-failure\n")
}

// What the docs print as configuration is one, beside what a pipeline needs anyway.
func TestConfigurationInDocsLoads(t *testing.T) {
	files, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	blocks := 0
	for _, file := range append(files, "../README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		rest := string(text)
		for {
			_, after, found := strings.Cut(rest, "```yaml\n")
			if !found {
				break
			}
			block, behind, _ := strings.Cut(after, "```\n")
			blocks, rest = blocks+1, behind
			whole := "pipelines:\n  - name: orders\n    source: { postgres: { user: u, database: d, tables: [public.outbox], start: now } }\n    sink: { stdout: {} }\n"
			if !strings.HasPrefix(block, "columns:") { // all roles, whatever the block uses
				whole += "    columns: { id: id, aggregate_id: a, event_type: e, topic: t, tenant: n, payload: p }\n"
			}
			if !strings.HasPrefix(block, "routes:") {
				whole += "    routes: [{ topic: orders }]\n"
			}
			for line := range strings.Lines(block) {
				whole += "    " + line
			}
			_, err := Parse(file, []byte(whole), environment())
			require.NoError(t, err, "%s:\n%s", file, block)
		}
	}
	require.Equal(t, 2, blocks, "a new one is looked at here, too")
}
