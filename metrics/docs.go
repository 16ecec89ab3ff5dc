package metrics

import (
	"fmt"
	"strings"
)

// Markdown is the text of docs/METRICS.md; a test keeps the file equal to it.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Metrics\n\n" +
		"`GET /metrics` on `admin.listen` serves these, and those of the Go runtime and the process, in Prometheus' text format.\n" +
		"Names, labels, units and meaning are kept from version to version. A value that is not known is NaN.\n" +
		"No label ever holds an id or anything of a payload.\n\n" +
		"This file is made from `metrics/names.go`: `go test ./metrics -update`.\n\n" +
		"| name | type | labels | unit | what it tells | what to do |\n|---|---|---|---|---|---|\n")
	for _, m := range Table() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.labels(), ", "), m.Unit, m.Tells, m.Do)
	}
	return b.String()
}
