package config

import (
	"fmt"
	"sort"
	"strings"
)

// Finding is one thing that is wrong, and where.
type Finding struct {
	// Code is stable, e.g. "OT1011".
	Code string `json:"code"`
	File string `json:"file"`
	// Line and Col count from 1; 0 where the finding is about the file as a whole.
	Line int `json:"line,omitempty"`
	Col  int `json:"column,omitempty"`
	// Path is the key, e.g. pipelines[0].source.mysql.port.
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// String is `file:line:column: path: text; hint`.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Col)
	}
	b.WriteString(": ")
	if f.Path != "" {
		b.WriteString(f.Path)
		b.WriteString(": ")
	}
	b.WriteString(f.Text)
	if f.Hint != "" {
		b.WriteString("; ")
		b.WriteString(f.Hint)
	}
	return b.String()
}

// Findings is everything that is wrong with a file, in the file's order.
type Findings []Finding

// Error has one finding per line.
func (f Findings) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

func (f Findings) sort() {
	sort.SliceStable(f, func(a, b int) bool {
		if f[a].Line != f[b].Line {
			return f[a].Line < f[b].Line
		}
		return f[a].Col < f[b].Col
	})
}
