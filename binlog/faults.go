package binlog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outtail/outtail/event"
)

// The codes of this package. docs/ERRORS.md explains each.
const (
	codeUnreachable  = "OT3001"
	codeAuth         = "OT3002"
	codeTLS          = "OT3003"
	codeLost         = "OT3004"
	codeLogBin       = "OT3005"
	codeFormat       = "OT3006"
	codeImage        = "OT3007"
	codePrivilege    = "OT3008"
	codeTable        = "OT3009"
	codeColumn       = "OT3010"
	codeStart        = "OT3011"
	codeFlavour      = "OT3012"
	codeOptions      = "OT3013"
	codeVouch        = "OT3014"
	codeStandby      = "OT3015"
	codeLockLost     = "OT3016"
	codeTakeover     = "OT3017"
	codeNoLock       = "OT3018"
	codeServer       = "OT3020"
	codeHistory      = "OT3021"
	codePurged       = "OT3022"
	codeFile         = "OT3023"
	codeFileIdentity = "OT3024"
	codeDump         = "OT3025"
	codeServerID     = "OT3026"
	codeIncident     = "OT3027"
	codeStatement    = "OT3028"
	codeLayout       = "OT3029"
	codePartial      = "OT3030"
	codeUpdate       = "OT3031"
	codeDropped      = "OT3032"
	codeXA           = "OT3033"
	codeDamaged      = "OT3034"
	codeUnread       = "OT3035"
	codeSpill        = "OT3036"
	codeEngine       = "OT3037"
	codeValue        = "OT3040"
	codeTooLarge     = "OT3041"
	codeXAFull       = "OT3051"
	codeXALost       = "OT3052"
)

func (s *Source) fault(code string, class event.Class, op, text, hint string) *event.Fault {
	return &event.Fault{Code: code, Class: class, Op: op, Place: s.place(), Text: text, Hint: hint}
}

// ways lists the ways out of a safety stop that apply (contract.md), and what each one costs.
func (s *Source) ways(code string, to ...string) string {
	var b strings.Builder
	b.WriteString("choose one:")
	for _, t := range to {
		fmt.Fprintf(&b, "\n  outtail checkpoint set -c FILE --pipeline %s --to %s --reason R   (%s)", s.o.Pipeline, t, setCosts[t])
	}
	if costs, helps := acceptCosts[code]; helps {
		fmt.Fprintf(&b, "\n  outtail checkpoint accept -c FILE --pipeline %s --code %s --reason R   (%s)", s.o.Pipeline, code, costs)
	}
	return b.String()
}

// setCosts says what becomes of the rows between the stored position and the new one.
var setCosts = map[string]string{
	"now":      "goes on at the end of the log: what lies between is not sent",
	"earliest": "all that the server still has is sent again",
	"GTID":     "goes on behind a set that you name: what is in it and was not sent is not sent",
	"FILE:POS": "goes on at a place that you name, between two transactions: what lies before it and was not sent is not sent",
}

// acceptCosts has the findings whose acceptance helps, and what it costs. Those that are not here would come again at once: the place cannot be
// served, the columns stay unknown.
var acceptCosts = map[string]string{
	codeTakeover:     "goes on after the other process, whatever it has sent: its events may come again, older ones behind newer ones",
	codeServer:       "goes on where this server's log is provably the same, else with the oldest log that it has: events may come again",
	codeHistory:      "goes on where the text says, behind what both have or with the oldest log: events may come again; what only the old history had stays as it was sent",
	codePurged:       "goes on with what is still there and was not read: what was purged is not sent, its rows may still be in the table",
	codeFile:         "goes on with the oldest log that the server has: what was purged is not sent, its rows may still be in the table",
	codeFileIdentity: "goes on with the oldest log that the server has: events may come again, and what is in no log is not sent",
	codeIncident:     "reads on behind it: what the server did not log is not sent",
	codeStatement:    "reads on behind it, once: what the statement inserted is not sent, its rows are in the table",
	codePartial:      "reads on behind these rows, once: they are not sent, but are in the table",
	codeUpdate:       "reads on behind it, once: the update is not sent",
	codeXA:           "reads on behind it: what this transaction and the others that it names inserted is not sent, their rows are in the table",
	codeXALost:       "goes on without what was kept: transactions that are still prepared are named when they commit, and their rows not sent",
	codeEngine:       "reads on behind them, once: these rows are not sent, but are in the table",
}

// Acceptable are the codes of the findings that a person can accept (checkpoint accept), in order.
func Acceptable() []string { return slices.Sorted(maps.Keys(acceptCosts)) }

// excuse lets a finding of the running session pass that a person accepted: once.
func (st *stream) excuse(f *event.Fault) error {
	i := slices.Index(st.accepted, f.Code)
	if i < 0 {
		return f
	}
	st.accepted = slices.Delete(st.accepted, i, i+1)
	st.log.Warn("an accepted safety finding is passed over", "code", f.Code, "at", f.Place, "finding", f.Text)
	return nil
}
