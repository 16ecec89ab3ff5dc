package demo

import (
	"fmt"
	"strings"
)

// Lines tells a verdict: pure.
func (v Verdict) Lines(p paint) []string {
	row := func(name, value string) string { return fmt.Sprintf("    %-20s%12s", name, value) }
	right := func(text string, n uint64) string { // pads before colouring
		return fmt.Sprintf("    %-20s%s%s", text, strings.Repeat(" ", 12-len(count(n))), p.zero(n))
	}
	kills := fmt.Sprintf("%d kills", v.Kills)
	if v.Kills == 1 {
		kills = "1 kill"
	}
	lines := []string{
		"",
		"  " + p.bold("verdict") + " after " + span(v.Took) + " and " + kills,
		"",
		row("orders committed", count(v.Rows)),
		row("rolled back", count(v.RolledBack)),
		row("events delivered", count(v.Delivered)),
		row("duplicates absorbed", count(v.Duplicates)),
		right("lost", v.Lost),
		right("out of order", v.OutOfOrder),
	}
	if v.Invented+v.Changed > 0 {
		lines = append(lines, right("invented", v.Invented), right("changed", v.Changed))
	}
	if v.LateAppends > 0 {
		lines = append(lines, row("late appends", count(v.LateAppends))+"  requests of a killed process; allowed")
	}
	conclusion := p.sgr("1;32", "good") + ": every committed order arrived, in order per customer, and nothing else did"
	if !v.Good() {
		conclusion = p.sgr("1;31", "broken") + ": " + v.complaint()
	}
	return append(lines, "", "  "+conclusion, "")
}

func (v Verdict) complaint() string {
	return fmt.Sprintf("lost %d, out of order %d, invented %d, changed %d", v.Lost, v.OutOfOrder, v.Invented, v.Changed)
}
