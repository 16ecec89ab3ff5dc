package event

import (
	"errors"
	"strings"
)

// Class says what is done about a fault (design: failures).
type Class uint8

const (
	// Retry: transient; tried again with backoff, for ever.
	Retry Class = iota
	// Record: this event cannot be delivered for its own sake; its poison policy decides.
	Record
	// Config: somebody must change something outside; held and tried again slowly.
	Config
	// Environment: the source cannot be reached or lacks something; exit 3 at start, later as Retry.
	Environment
	// Safety: going on could lose or reorder; stop, only a person goes on (exit 4).
	Safety
	// Usage: the command or its configuration is wrong (exit 2).
	Usage
	// Internal: a state that must not occur; stop (exit 1).
	Internal
)

var classNames = [...]string{"retry", "record", "config", "environment", "safety", "usage", "internal"}

// String is the class's name in logs and metrics.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

// Fault is an error as an operator sees it. It carries no payload, key material or secret (I10).
type Fault struct {
	Code  string // e.g. "OT2013", stable; docs/ERRORS.md explains each
	Class Class
	Op    string // what was being done, a verb phrase: "connect to postgres"
	Place string // where: a host, table, slot, topic, position, file:line:column
	Text  string // what is wrong, one sentence without a full stop
	Hint  string // what to do about it, exact SQL or commands where there are any
	// Immediate marks an Environment fault that waiting cannot mend (a missing table, wal_level): exit 3 at once.
	Immediate bool
	// Standby marks a wait that is not a fault: another process holds the slot or the lock, and we wait to take over.
	Standby bool
	Err     error // the cause, may be nil
}

// Error is one line: code, operation, place, text, cause. The hint is printed apart.
func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Code)
	for _, part := range []string{f.Op, f.Place, f.Text} {
		if part != "" {
			if b.Len() == len(f.Code) {
				b.WriteString(" ")
			} else {
				b.WriteString(": ")
			}
			b.WriteString(part)
		}
	}
	if f.Err != nil {
		b.WriteString(":")
		text := f.Err.Error()
		if !strings.HasPrefix(text, "\n") { // a list below needs no blank at the end of its heading
			b.WriteString(" ")
		}
		b.WriteString(text)
	}
	return b.String()
}

// ShellWord quotes what a shell would not take as one word as it stands: hints hold commands, and those are there to be copied.
func ShellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:/._-@") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Err }

// AsFault finds the Fault in an error's chain; nil if there is none.
func AsFault(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return nil
}

// ClassOf is the class of the fault in err, Internal where there is none.
func ClassOf(err error) Class {
	if f := AsFault(err); f != nil {
		return f.Class
	}
	return Internal
}
