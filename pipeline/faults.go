package pipeline

import (
	"fmt"
	"time"

	"github.com/outtail/outtail/event"
)

func faultHalted(id, place string, cause error) *event.Fault {
	return halted(id, place, "its poison policy is halt", "", cause)
}

// faultUnparkable: nobody can say what would have to wait behind the event.
func faultUnparkable(id, place string, cause error) *event.Fault {
	return halted(id, place, "it cannot be parked, because its aggregate is unknown",
		"\nor have such events leave the others alone: on_poison: dlq (it alone is kept) or skip, of the route that takes them; on_no_route where none does", cause)
}

func halted(id, place, why, instead string, cause error) *event.Fault {
	text := "an event cannot be delivered and " + why
	if id != "" {
		text = fmt.Sprintf("event %s cannot be delivered and %s", id, why)
	}
	mend := "mend what the cause names"
	if f := event.AsFault(cause); f != nil && f.Hint != "" {
		mend = f.Hint
	}
	mend += instead
	return &event.Fault{
		Code: "OT6001", Class: event.Record, Op: "deliver", Place: place, Text: text,
		Hint: mend + "\nthen start again: the event is sent first. To leave this one event out for good: " +
			"outtail checkpoint set -c FILE --pipeline P --to 'after:" + place + "' --reason R",
		Err: cause,
	}
}

// parkedHint says what mends an event that is parked, and then how it is looked at and sent. An entry's number may change when it is read
// again, so it is named by its id where it has one.
func parkedHint(mend, pipeline, id string, number int64) string {
	which := fmt.Sprintf("--number %d", number)
	if id != "" {
		which = "--id " + event.ShellWord(id)
	}
	of := " -c FILE --pipeline " + pipeline + " " + which
	hint := "send it, and what waits behind it, again: outtail dlq replay" + of + " --reason R; or look at it: outtail dlq show" + of
	if mend != "" {
		hint = mend + "; then " + hint
	}
	return hint
}

// waitingHint says what becomes of parked events that nobody looks after.
func waitingHint(pipeline string) string {
	of := " -c FILE --pipeline " + pipeline
	return "outtail dlq list" + of + " shows them; mend what it names, then: outtail dlq replay" + of + " --all --reason R (or leave them out for good: outtail dlq skip)"
}

// CodeOtherCluster is the finding of a start that meets another cluster than the one that acknowledged the stored position.
const CodeOtherCluster = "OT6003"

// Acceptable are the codes of this package's findings that a person can accept (checkpoint accept).
func Acceptable() []string { return []string{CodeOtherCluster} }

func faultOtherCluster(stored, now string) *event.Fault {
	return &event.Fault{
		Code: CodeOtherCluster, Class: event.Safety, Op: "compare the broker with the checkpoint", Place: now,
		Text: fmt.Sprintf("the stored position was acknowledged by cluster %s, and this is cluster %s: what the old one has may not be in the new one", stored, now),
		Hint: "point sink.kafka.brokers at the old cluster, or, if the new one is meant to go on from here: outtail checkpoint accept -c FILE --pipeline P --code OT6003 --reason R",
	}
}

func faultSourceLost(cause *event.Fault) *event.Fault {
	f := *cause
	if f.Class == event.Environment {
		f.Class = event.Retry
	}
	return &f
}

func faultNotStreaming(name string) *event.Fault {
	return &event.Fault{Code: "OT6010", Class: event.Retry, Op: "replay parked events", Place: name, Text: "the pipeline does not stream now",
		Hint: "look at /readyz or the log for what holds it up, and ask again when it streams"}
}

func faultReplayCut(name string) *event.Fault {
	return &event.Fault{Code: "OT6014", Class: event.Retry, Op: "replay parked events", Place: name, Text: "the pipeline ended before the replay did",
		Hint: "what was delivered is counted; what was not waits as before, and is replayed by the same command when the pipeline streams again"}
}

func faultGone(e *event.Parked) *event.Fault {
	return &event.Fault{Code: "OT6011", Class: event.Record, Op: "replay a parked event", Place: e.Place(), Text: "its row is not in the dead-letter store",
		Hint: "the row could not be read when it was parked; mend what its text names and read it again: outtail checkpoint set -c FILE --pipeline P --to POSITION --reason R"}
}

func faultNowDropped(e *event.Parked) *event.Fault {
	return &event.Fault{Code: "OT6012", Class: event.Record, Op: "replay a parked event", Place: e.Place(), Text: "the routes drop it now",
		Hint: "skip it (outtail dlq skip), or name a topic (outtail dlq replay --topic)"}
}

func faultKeyless(e *event.Parked) *event.Fault {
	return &event.Fault{Code: "OT6013", Class: event.Record, Op: "replay a parked event", Place: e.Place(),
		Text: "it has no key: no route gives it one, and the role key and aggregate_id are NULL or unmapped",
		Hint: "without a key no order can be kept: give a route that takes it a key template, start again and replay it, or leave it out: outtail dlq skip -c FILE --id ID --reason R"}
}

func faultBrokenContract(what string, seq uint64) *event.Fault {
	return &event.Fault{
		Code: "OT6004", Class: event.Internal, Op: "track acks", Text: fmt.Sprintf("%s (event number %d)", what, seq),
		Hint: "nothing was lost: start again, it goes on from the stored position. This is a bug, please report it with the log",
	}
}

func faultUnclassified(op string, err error) *event.Fault {
	return &event.Fault{Code: "OT6005", Class: event.Internal, Op: op, Err: err, Text: "an error without a class",
		Hint: "nothing was lost: start again, it goes on from the stored position. This is a bug, please report it with the log"}
}

func faultConnecting() *event.Fault {
	return &event.Fault{Code: "OT6006", Class: event.Retry, Op: "start", Text: "source and sink were asked, and have not both answered so far",
		Hint: "the source is waited for until start_timeout, a broker for ever"}
}

func faultEvicted(cause *event.Fault, unacked int) *event.Fault {
	return &event.Fault{Code: "OT6008", Class: event.Internal, Op: "wait as a standby", Place: cause.Place,
		Text: fmt.Sprintf("another process holds the source, and %d of our events are unacked: ending, so that they cannot arrive late", unacked),
		Hint: "nothing was lost: the other process sends them. Start again, and this one waits as a standby", Err: cause}
}

func faultNoAnswer() *event.Fault {
	return &event.Fault{Code: "OT6007", Class: event.Environment, Op: "start", Text: "the source did not answer in time",
		Hint: "look at the server and at what lies between; start_timeout is how long it is waited for"}
}

func faultStartTimeout(cause *event.Fault, timeout time.Duration) *event.Fault {
	f := *cause
	f.Class, f.Immediate = event.Environment, true
	f.Text = joinText(f.Text, fmt.Sprintf("gave up after start_timeout (%s)", timeout))
	return &f
}

// faultStarting is what holds up a start, with how long that is waited for.
func faultStarting(cause *event.Fault, timeout time.Duration) *event.Fault {
	f := *cause
	f.Text = joinText(f.Text, fmt.Sprintf("outtail tries again for start_timeout (%s)", timeout))
	return &f
}

func joinText(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
