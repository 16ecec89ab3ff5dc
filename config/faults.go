package config

import (
	"fmt"

	"github.com/outtail/outtail/event"
)

// Codes of findings. They name what kind of mistake it is; place and text say the rest.
const (
	codeFile        = "OT1001" // the file cannot be read
	codeInvalid     = "OT1002" // the file has findings: the code of the whole
	codeSyntax      = "OT1003" // it is no YAML, or not one document
	codeUnknown     = "OT1004" // an unknown key or name
	codeType        = "OT1005" // a value of the wrong type, or not of the allowed values
	codeMissing     = "OT1006" // a required key is not there
	codeDuplicate   = "OT1007" // something stands twice, or contradicts something else
	codeReference   = "OT1008" // a ${…} reference cannot be resolved
	codeUnavailable = "OT1009" // known, but of a later version
	codeUseless     = "OT1010" // it can have no effect
	codeRisky       = "OT1011" // it works, and may not be what is meant
)

// faultInvalid is what Load answers: exit code 2, the findings being its cause.
func faultInvalid(path string, findings Findings) *event.Fault {
	f := &event.Fault{
		Code: codeInvalid, Class: event.Usage, Op: "read configuration", Immediate: true,
		Hint: "docs/CONFIGURATION.md explains every key; `outtail validate` checks a file without running it",
	}
	if len(findings) == 1 {
		// The finding says where and what by itself.
		f.Code, f.Err = findings[0].Code, findings
		if f.Code == codeFile {
			f.Hint = ""
		}
		return f
	}
	f.Place, f.Text, f.Err = path, fmt.Sprintf("%d findings", len(findings)), below{findings}
	return f
}

// below puts several findings under the sentence that counts them, so that each begins its own line.
type below struct{ Findings }

func (b below) Error() string { return "\n" + b.Findings.Error() }

// Unwrap leads errors.As to the findings themselves.
func (b below) Unwrap() error { return b.Findings }
