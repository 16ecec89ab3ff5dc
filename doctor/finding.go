package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// Severity says what a finding asks of the reader.
type Severity uint8

const (
	// OK: looked at, and as it should be.
	OK Severity = iota
	// Note: worth knowing; nothing has to be done.
	Note
	// Warning: it works now and will cost something later.
	Warning
	// Error: it cannot work as it is.
	Error
)

var severityNames = [...]string{"ok", "note", "warning", "error"}

// String is the word in the output and in JSON.
func (s Severity) String() string { return severityNames[s] }

// MarshalJSON writes the word.
func (s Severity) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// Finding is the result of one check. No field holds a payload or a secret (I10).
type Finding struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"` // OT80xx: names the check, whatever its result
	Found    string   `json:"found"`
	Why      string   `json:"why,omitempty"`    // why it matters, or what follows
	Repair   string   `json:"repair,omitempty"` // SQL or a command, to be copied; empty where there is nothing to do
}

// Part is what was looked at: a source or a sink.
type Part struct {
	Part     string    `json:"part"` // source or sink
	Kind     string    `json:"kind"`
	Place    string    `json:"place"`
	Findings []Finding `json:"findings"`
}

// Pipeline is everything about one pipeline.
type Pipeline struct {
	Name  string `json:"pipeline"`
	Parts []Part `json:"parts"`
}

// Report is the answer of `outtail doctor --json`.
type Report struct {
	Version   int        `json:"version"`
	Pipelines []Pipeline `json:"pipelines"`
}

// Worst is the highest severity of the parts named so; all where part is empty.
func (r Report) Worst(part string) Severity {
	worst := OK
	for _, p := range r.Pipelines {
		for _, s := range p.Parts {
			if part != "" && s.Part != part {
				continue
			}
			for _, f := range s.Findings {
				worst = max(worst, f.Severity)
			}
		}
	}
	return worst
}

// Stored is what is known of a pipeline's stored position. It is asked for between two looks at the server, so that a
// running process that moves on in between never looks like a position behind its own slot, or beyond the log's end.
type Stored func(context.Context) (event.Checkpoint, error)

// TLS says how a connection to a source is protected; the files are PEM.
type TLS struct {
	Mode          string // disable, prefer, require, verify-ca or verify-full; empty: prefer, or verify-full with a CA
	CA, Cert, Key string
}

// hidden is something that the user may not see.
type hidden struct {
	what  string // "prepared XA transactions"
	needs string // the privilege
	sql   string // that gives it
}

// outside says what a start makes of what keeps us from the server: it has the same finding, under this code, and may wait for it to pass.
func outside(f *event.Fault, startTimeout time.Duration) string {
	switch {
	case f == nil:
		return "outtail cannot start; nothing else could be looked at"
	case f.Immediate || f.Class != event.Environment:
		return "a start stops here (" + f.Code + "); nothing else could be looked at"
	}
	return fmt.Sprintf("a start says %s, tries again for start_timeout (%s) and then ends with exit code 3; an outtail that runs tries again for ever. Nothing else could be looked at", f.Code, startTimeout)
}

// list gathers findings.
type list []Finding

func (l *list) add(s Severity, code, found, why, repair string) {
	*l = append(*l, Finding{Severity: s, Code: code, Found: found, Why: why, Repair: repair})
}

func (l *list) ok(code, format string, args ...any) {
	l.add(OK, code, fmt.Sprintf(format, args...), "", "")
}

func (l *list) hide(all []hidden) {
	for _, h := range all {
		l.add(Note, codeHidden, "the user may not see "+h.what+" (needs "+h.needs+")", "it was not looked at; outtail runs without it", h.sql)
	}
}

// storedFinding judges what could be learned of the stored position at all.
func (l *list) stored(cp event.Checkpoint, err error, kind string) (known bool) {
	var fault *event.Fault
	switch {
	case errors.As(err, &fault) && fault.Class == event.Safety:
		l.add(Error, codeStored, fault.Text, "a start stops here ("+fault.Code+")", fault.Hint)
	case err != nil:
		l.add(Warning, codeStored, "the stored position cannot be read: "+err.Error(), "whether the server still has what is needed could not be compared", "")
	case cp.IsZero():
		l.ok(codeStored, "no position is stored: the next start is the first")
	case cp.Position.Kind != kind:
		l.add(Error, codeStored, "the stored position is of "+cp.Position.Kind+", the configured source is "+kind, "a start stops here: a position of another kind of server means nothing to this one",
			"give the new source another pipeline name, or another data_dir")
	default:
		l.ok(codeStored, "stored position %s, saved %s", shorten(cp.Position.String()), cp.SavedAt.UTC().Format(time.RFC3339))
		return true
	}
	return false
}

// shorten keeps long GTID sets from filling the screen.
func shorten(s string) string {
	if len(s) <= 160 {
		return s
	}
	return s[:110] + " … " + s[len(s)-45:]
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// size is bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 || v == float64(int64(v)) {
		return fmt.Sprintf("%d %s", int64(v), units[i])
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// span is a duration for people: one unit, or two.
func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	case d >= time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return d.Truncate(time.Second).String()
}
