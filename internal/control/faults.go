package control

import (
	"errors"
	"fmt"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/owner"
)

// ErrNotRunning is in the chain of Ask's error when no process listens: open the state file instead.
var ErrNotRunning = errors.New("no outtail process runs with this data_dir")

// The codes of this package.
const (
	CodeListen     = "OT4101"
	CodePath       = "OT4102"
	CodeRuns       = "OT4103"
	CodeNoAnswer   = "OT4104"
	CodeUnknown    = "OT4105"
	CodeFailed     = "OT4106"
	CodeNotRunning = "OT4107"
	CodeDenied     = "OT4108"
)

func faultListen(path string, err error) *event.Fault {
	return &event.Fault{
		Code: CodeListen, Class: event.Environment, Immediate: true, Op: "listen for commands", Place: path,
		Text: "the control socket cannot be made", Err: err,
		Hint: "data_dir must be on a file system that has unix sockets, writable for outtail's user",
	}
}

func faultPath(path string) *event.Fault {
	return &event.Fault{
		Code: CodePath, Class: event.Usage, Op: "reach the control socket", Place: path,
		Text: fmt.Sprintf("the path has %d bytes, a unix socket's may have %d", len(path), maxPath),
		Hint: "use a shorter data_dir, or start outtail in a directory near it and give data_dir as a relative path",
	}
}

// Runs is the refusal of what is only possible while the pipeline stands still.
func Runs(op, pipeline string) *event.Fault {
	return &event.Fault{
		Code: CodeRuns, Class: event.Usage, Op: op, Place: "pipeline " + pipeline,
		Text: fmt.Sprintf("pipeline %s runs: stop it first", pipeline),
		Hint: "stop the process that runs it (SIGTERM), then try again",
	}
}

func faultNoAnswer(path string, err error) *event.Fault {
	return &event.Fault{
		Code: CodeNoAnswer, Class: event.Environment, Immediate: true, Op: "ask the running process", Place: path,
		Text: "a process listens but did not answer in time", Err: err,
		Hint: "see whether it is stopped or overloaded, and what it logs",
	}
}

func faultEnded(path string, err error) *event.Fault {
	return &event.Fault{
		Code: CodeNoAnswer, Class: event.Environment, Immediate: true, Op: "ask the running process", Place: path,
		Text: "the process ended before it answered: whether it did what it was asked is not known", Err: err,
		Hint: "see what it logged; look at what is there now, and ask again",
	}
}

// faultDenied says nothing of whether a process runs: who may not look does not know.
func faultDenied(path string) *event.Fault {
	return &event.Fault{
		Code: CodeDenied, Class: event.Environment, Immediate: true, Op: "ask the running process", Place: path,
		Text: "permission denied: this user may not use the data_dir, and cannot tell whether a process runs with it",
		Hint: "give the command as the user that runs outtail: " + owner.Sudo(path),
	}
}

func faultUnknown(name, version string) *event.Fault {
	return &event.Fault{
		Code: CodeUnknown, Class: event.Usage, Op: "ask the running process", Place: name,
		Text: fmt.Sprintf("the running process (outtail %s) does not know this request", version),
		Hint: "use the outtail version that runs, or restart the process with this one",
	}
}

func faultFailed(name, text string) *event.Fault {
	return &event.Fault{
		Code: CodeFailed, Class: event.Internal, Op: "ask the running process", Place: name, Text: text,
		Hint: "see what the running process logs",
	}
}

func faultNotRunning(path string) *event.Fault {
	return &event.Fault{
		Code: CodeNotRunning, Class: event.Usage, Op: "ask the running process", Place: path, Text: "nobody listens",
		Hint: "start `outtail run` with this data_dir", Err: ErrNotRunning,
	}
}
