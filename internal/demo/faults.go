package demo

import (
	"fmt"
	"strings"

	"github.com/outtail/outtail/event"
)

// Codes of the demo's faults.
const (
	CodeSetting   = "OT9001" // an environment variable has no usable value
	CodeDownload  = "OT9002" // the Postgres binaries cannot be had
	CodePostgres  = "OT9003" // Postgres does not start
	CodeBroker    = "OT9004" // the broker in the process does not start
	CodeNotReady  = "OT9005" // outtail does not get ready
	CodeEnded     = "OT9006" // outtail ended although nobody killed it
	CodeShop      = "OT9007" // the order service cannot write
	CodeConsumer  = "OT9008" // the consumer cannot read
	CodeVerdict   = "OT9009" // something was lost, out of order, invented or changed
	CodeWorkspace = "OT9010" // the temporary folder cannot be made
	CodePanic     = "OT9011" // a defect in the demo itself
)

func settingFault(name, value, want string) *event.Fault {
	return &event.Fault{
		Code: CodeSetting, Class: event.Usage, Op: "read the environment", Place: name,
		Text: fmt.Sprintf("%q is not %s", value, want),
		Hint: "unset " + name + " to use the default",
	}
}

func downloadFault(place string, err error) *event.Fault {
	return &event.Fault{
		Code: CodeDownload, Class: event.Environment, Op: "fetch the Postgres binaries", Place: place,
		Hint: "name a Maven repository that can be reached in OUTTAIL_MAVEN=https://…, or the bin folder of an " +
			"installed Postgres 14 or later in DEMO_POSTGRES=/usr/lib/postgresql/17/bin",
		Immediate: true, Err: err,
	}
}

func postgresFault(op, place, logTail string, err error) *event.Fault {
	hint := "look at the end of its log above; TMPDIR chooses another folder where /tmp is full or mounted noexec"
	if logTail == "" {
		hint = "TMPDIR chooses another folder where /tmp is full or mounted noexec"
	}
	return &event.Fault{
		Code: CodePostgres, Class: event.Environment, Op: op, Place: place, Text: logTail, Hint: hint,
		Immediate: true, Err: err,
	}
}

func brokerFault(err error) *event.Fault {
	return &event.Fault{
		Code: CodeBroker, Class: event.Environment, Op: "start the broker", Place: "127.0.0.1",
		Hint: "the loopback interface must be up and allow listening", Immediate: true, Err: err,
	}
}

func notReadyFault(text, logTail string) *event.Fault {
	return &event.Fault{
		Code: CodeNotReady, Class: event.Internal, Op: "wait until outtail is ready", Place: "outtail run",
		Text: withTail(text, logTail), Hint: "the end of outtail's log says what it waits for",
	}
}

func endedFault(how, logTail string) *event.Fault {
	return &event.Fault{
		Code: CodeEnded, Class: event.Internal, Op: "keep outtail running", Place: "outtail run",
		Text: withTail("it ended although nobody killed it ("+how+")", logTail),
		Hint: "the end of outtail's log says why",
	}
}

func shopFault(err error) *event.Fault {
	return &event.Fault{
		Code: CodeShop, Class: event.Environment, Op: "insert an order", Place: "the demo's Postgres",
		Hint: "look whether the disk under TMPDIR is full", Err: err,
	}
}

func consumerFault(err error) *event.Fault {
	return &event.Fault{
		Code: CodeConsumer, Class: event.Internal, Op: "read the topic", Place: topic,
		Hint: "this is a defect in the demo; please report it", Err: err,
	}
}

func workspaceFault(err error) *event.Fault {
	return &event.Fault{
		Code: CodeWorkspace, Class: event.Environment, Op: "make a temporary folder",
		Hint: "TMPDIR must name a folder that can be written", Immediate: true, Err: err,
	}
}

func verdictFault(v Verdict) *event.Fault {
	return &event.Fault{
		Code: CodeVerdict, Class: event.Internal, Op: "judge the run", Place: "topic " + topic,
		Text: v.complaint(), Hint: "run it again with DEMO_KEEP=1 to keep the folder with outtail's log and data",
	}
}

func panicFault(where string, value any) *event.Fault {
	return &event.Fault{
		Code: CodePanic, Class: event.Internal, Op: "run the demo", Place: where, Text: fmt.Sprint(value),
		Hint: "this is a defect in the demo; please report it",
	}
}

func withTail(text, tail string) string {
	if tail == "" {
		return text
	}
	return text + "; the end of its log:\n  " + strings.ReplaceAll(tail, "\n", "\n  ")
}
