// Package failures makes what goes wrong between outtail and its ends happen for real, under load, and counts what it costs: loss,
// order, duplicates, and what is parked, skipped or halted by whose policy.
package failures

import (
	"os"
	"testing"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

var servers harness.Pool

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }

// long says that everything is to be tried, and not a cut of it.
var long = os.Getenv("OUTTAIL_LONG") != ""

var policies = []string{"park", "dlq", "halt", "skip"}

var sources = []string{"postgres", "mysql"}

func openShop(t testing.TB, kind string) shop.Database {
	if kind == "mysql" {
		return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil)
	}
	return shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
}

const configuration = `
data_dir: {{.DataDir}}
admin: { listen: {{.Admin}} }
log: { format: text, level: {{.Level}} }
pipelines:
  - name: orders
    source:
      {{.Source}}
    columns: {{.Columns}}
    routes:
      - { {{.Match}}topic: {{.Topic}} }
    on_poison: {{.Policy}}
    on_no_route: {{.Policy}}
    {{.More}}
    sink:
      kafka: { brokers: [{{.Brokers}}]{{.Sink}} }
    drain_timeout: {{.Drain}}
`
