package binlog

import (
	"fmt"
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

// ways lists the ways out of a safety stop that apply (contract.md).
func (s *Source) ways(code string, to ...string) string {
	var b strings.Builder
	b.WriteString("choose one:")
	for _, t := range to {
		fmt.Fprintf(&b, "\n  outtail checkpoint set -c FILE --pipeline %s --to %s --reason R", s.o.Pipeline, t)
	}
	switch code {
	case codeDump, codeLayout, codeDropped, codeUnread, codeFlavour:
		// Accepting these once would only lead to the next one.
	default:
		fmt.Fprintf(&b, "\n  outtail checkpoint accept -c FILE --pipeline %s --code %s --reason R", s.o.Pipeline, code)
	}
	return b.String()
}

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
