package doctor

import (
	"fmt"
	"io"
	"strings"
)

// width is where explanations are wrapped; what is to be copied never is.
const width = 110

// Print tells the report to a person. Colour is for terminals.
func (r Report) Print(w io.Writer, colour bool) error {
	p := printer{colour: colour}
	var total [Error + 1]int
	for i, pl := range r.Pipelines {
		if i > 0 {
			p.b.WriteByte('\n')
		}
		p.b.WriteString(p.paint(bold, pl.Name) + "\n")
		for _, part := range pl.Parts {
			fmt.Fprintf(&p.b, "\n  %s: %s %s\n", part.Part, part.Kind, part.Place)
			for _, f := range part.Findings {
				total[f.Severity]++
				p.finding(f)
			}
		}
	}
	fmt.Fprintf(&p.b, "\n%s\n", summary(total))
	_, err := io.WriteString(w, p.b.String())
	return err
}

func summary(n [Error + 1]int) string {
	parts := []string{fmt.Sprintf("%d ok", n[OK])}
	for s := Note; s <= Error; s++ {
		if n[s] > 0 {
			word := s.String()
			if n[s] > 1 {
				word += "s"
			}
			parts = append(parts, fmt.Sprintf("%d %s", n[s], word))
		}
	}
	return strings.Join(parts, ", ")
}

type printer struct {
	b      strings.Builder
	colour bool
}

// SGR codes.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

var paints = [...]string{OK: green, Note: cyan, Warning: yellow, Error: red}

func (p *printer) paint(sgr, s string) string {
	if !p.colour {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

// indent is the column of a finding's text: "    warning  OT8020  ".
const indent = 4 + 7 + 2 + 6 + 2

func (p *printer) finding(f Finding) {
	margin := strings.Repeat(" ", indent)
	word := fmt.Sprintf("%-7s", f.Severity)
	p.b.WriteString("    " + p.paint(paints[f.Severity], word) + "  " + p.paint(dim, f.Code) + "  ")
	for i, line := range wrap(f.Found, width-indent) {
		if i > 0 {
			p.b.WriteString(margin)
		}
		p.b.WriteString(line + "\n")
	}
	for _, line := range wrap(f.Why, width-indent) {
		p.b.WriteString(margin + p.paint(dim, line) + "\n")
	}
	if f.Repair != "" {
		for line := range strings.SplitSeq(f.Repair, "\n") {
			p.b.WriteString(margin + "  " + p.paint(bold, line) + "\n")
		}
	}
}

// wrap breaks text at spaces.
func wrap(s string, n int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > n:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
