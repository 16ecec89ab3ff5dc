// Command report turns the results of `make bench` into tables and drawings:
//
//	go run ./test/bench/report results.jsonl [DIR]
//
// The tables go to stdout as Markdown: the median of all runs, the lowest and the highest in brackets. Into DIR go growth-SOURCE.svg.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// line is one run, as test/bench writes it.
type line map[string]any

func (l line) text(k string) string { s, _ := l[k].(string); return s }

// table is what is printed for one kind of measurement.
var tables = []struct {
	what, title string
	columns     []column
}{
	{"drain", "Draining a backlog", []column{
		{"steady, events/s", "steady_events_per_second", "%.0f"}, {"first to last", "events_per_second", "%.0f"}, {"from process start", "from_start_events_per_second", "%.0f"},
		{"start to first, s", "start_to_first_seconds", "%.2f"}, {"CPU-s per million", "cpu_seconds_per_million", "%.1f"}, {"database's", "database_cpu_seconds_per_million", "%.1f"},
		{"allocations per event", "allocations_per_event", "%.1f"}, {"peak RSS, MiB", "peak_rss_mib", "%.0f"}, {"idle behind it", "idle_rss_mib", "%.0f"},
	}},
	{"crash", "SIGKILL in the middle of a drain", []column{{"sent again", "sent_again", "%.0f"}, {"kill to next event, s", "start_to_first_seconds", "%.2f"}}},
	{"spread", "10,000 aggregates over many routes and topics", []column{
		{"steady, events/s", "steady_events_per_second", "%.0f"}, {"first to last", "events_per_second", "%.0f"}, {"CPU-s per million", "cpu_seconds_per_million", "%.1f"}, {"peak RSS, MiB", "peak_rss_mib", "%.0f"},
	}},
	{"way", "TLS, and a database that is far away", []column{
		{"first to last, events/s", "events_per_second", "%.0f"}, {"CPU-s per million", "cpu_seconds_per_million", "%.1f"}, {"database's", "database_cpu_seconds_per_million", "%.1f"},
	}},
	{"latency", "Commit to consumer", []column{{"p50, ms", "p50_ms", "%.2f"}, {"p99", "p99_ms", "%.2f"}, {"p999", "p999_ms", "%.1f"}, {"cores", "cores", "%.2f"}}},
}

type column struct{ title, key, format string }

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./test/bench/report results.jsonl [DIR for drawings]")
		os.Exit(2)
	}
	lines, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, t := range tables {
		print(lines, t.what, t.title, t.columns)
	}
	if len(os.Args) > 2 {
		if err := draw(lines, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func read(path string) (all []line, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		all = append(all, l)
	}
	return all, s.Err()
}

// print writes a table of the lines of a kind, a row for each source and arm in the order in which they first ran.
func print(lines []line, what, title string, columns []column) {
	type row struct{ source, arm string }
	var order []row
	runs := map[row][]line{}
	for _, l := range lines {
		if l.text("what") != what {
			continue
		}
		r := row{l.text("source"), l.text("arm")}
		if runs[r] == nil {
			order = append(order, r)
		}
		runs[r] = append(runs[r], l)
	}
	if len(order) == 0 {
		return
	}
	fmt.Printf("### %s\n\n| source | arm | runs |", title)
	for _, c := range columns {
		fmt.Printf(" %s |", c.title)
	}
	fmt.Printf("\n|%s\n", strings.Repeat("---|", 3+len(columns)))
	for _, r := range order {
		fmt.Printf("| %s | %s | %d |", r.source, r.arm, len(runs[r]))
		for _, c := range columns {
			fmt.Printf(" %s |", c.cell(runs[r]))
		}
		fmt.Println()
	}
	fmt.Println()
}

func (c column) cell(runs []line) string {
	var v []float64
	for _, l := range runs {
		if x, ok := l[c.key].(float64); ok {
			v = append(v, x)
		} else if c.key == "sent_again" {
			v = append(v, 0)
		}
	}
	switch slices.Sort(v); len(v) {
	case 0:
		return "–"
	case 1:
		return fmt.Sprintf(c.format, v[0])
	}
	return fmt.Sprintf(c.format+" ("+c.format+" to "+c.format+")", median(v), v[0], v[len(v)-1])
}

// median of sorted values.
func median(v []float64) float64 {
	n := len(v)
	return (v[n/2] + v[(n-1)/2]) / 2
}

// draw makes one drawing a source: a panel for each axis of growth, with the rate above and the memory below.
func draw(lines []line, dir string) error {
	type key struct{ source, axis string }
	points := map[key]map[int][]line{}
	var sources, axes []string
	for _, l := range lines {
		if l.text("what") != "growth" {
			continue
		}
		k := key{l.text("source"), l.text("load")}
		if !slices.Contains(sources, k.source) {
			sources = append(sources, k.source)
		}
		if !slices.Contains(axes, k.axis) {
			axes = append(axes, k.axis)
		}
		at, _ := l["at"].(float64)
		if points[k] == nil {
			points[k] = map[int][]line{}
		}
		points[k][int(at)] = append(points[k][int(at)], l)
	}
	for _, source := range sources {
		var b strings.Builder
		fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d 420" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="white"/>`, 300*len(axes)+20)
		for i, axis := range axes {
			at := points[key{source, axis}]
			panel(&b, 300*i+20, 30, "events/s against "+axis, "#2563eb", bars(at, "events_per_second"))
			panel(&b, 300*i+20, 230, "peak RSS, MiB", "#d97706", bars(at, "peak_rss_mib"))
		}
		b.WriteString("</svg>\n")
		if err := os.WriteFile(filepath.Join(dir, "growth-"+source+".svg"), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

type bar struct {
	label string
	value float64
}

func bars(at map[int][]line, k string) (all []bar) {
	var order []int
	for x := range at {
		order = append(order, x)
	}
	slices.SortFunc(order, cmp.Compare[int])
	for _, x := range order {
		var v []float64
		for _, l := range at[x] {
			y, _ := l[k].(float64)
			v = append(v, y)
		}
		slices.Sort(v)
		all = append(all, bar{short(float64(x)), median(v)})
	}
	return all
}

// panel draws bars with their values, 260 wide and 160 high.
func panel(b *strings.Builder, x, y int, title, colour string, all []bar) {
	const width, height = 260, 130
	top := 1.0
	for _, v := range all {
		top = max(top, v.value)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`, x, y-8, title)
	step := float64(width) / float64(max(1, len(all)))
	for i, v := range all {
		h := v.value / top * (height - 20)
		left := float64(x) + float64(i)*step
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, left+4, float64(y+height)-h, step-8, h, colour)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, left+step/2, float64(y+height)-h-4, short(v.value))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%s</text>`, left+step/2, y+height+16, v.label)
	}
}

// short writes 117432 as 117k.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v >= 1e3:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}
