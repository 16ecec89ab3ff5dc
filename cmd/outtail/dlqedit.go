package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/pipeline"
)

// replays picks for a replay. With another payload it is the event that has it, and none that was parked since and fits the pick too.
func (q *deadAct) replays(e *event.Parked) bool { return q.picks(e) && (!q.Edit || e.Edited) }

// prepareReplay records that a replay begins, and stores the payload that a person changes, before anything is sent. An edit that cannot
// work is refused before anything is changed.
func (d *deadLetters) prepareReplay(ctx context.Context, p *pipeline.Pipeline, q *deadAct, orders []int64) (err error) {
	letters := d.store.DeadLetters()
	begun := q.audit(checkpoint.ActionReplay, "", checkpoint.OutcomeBegun, nil)
	if !q.Edit {
		return letters.Audit(begun)
	}
	if len(orders) != 1 {
		return d.faultEditOne(q, orders)
	}
	whole, err := letters.Get(q.Pipeline, orders[0])
	switch {
	case err != nil:
		return err
	case whole == nil || whole.Ended != event.Open: // moved or ended meanwhile
		return faultNothingPicked(q.Pipeline)
	case whole.Row == nil:
		return faultEditRefused(q.Pipeline, whole, "its row is not in the dead-letter store", "leave it out: outtail dlq skip -c FILE --pipeline "+q.Pipeline+" "+names(whole)+" --reason R")
	}
	was := whole.Row[event.Payload]
	q.Payload = withoutFinalBreak(q.Payload, was.Bytes)
	whole.Row[event.Payload] = event.Value{Set: true, Bytes: q.Payload}
	if err := checkEdit(ctx, p, q, whole, was); err != nil {
		return err
	}
	if err := letters.Audit(begun); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, letters.Audit(q.audit(checkpoint.ActionReplay, "", checkpoint.OutcomeOf(err), nil)))
		}
	}()
	said := fmt.Sprintf("event %s at %s: payload %s became %s", whole.ID, whole.Place(), digest(was.Bytes), digest(q.Payload))
	err = letters.Change(q.Pipeline, orders[0], func(e *event.Parked) (*event.Row, error) {
		e.Edited = true
		return whole.Row, nil
	})
	return errors.Join(err, letters.Audit(q.audit(checkpoint.ActionEdit, said, checkpoint.OutcomeOf(err), nil)))
}

// withoutFinalBreak takes away the one line break with which an editor ends a file, where the payload that is kept has none at its end.
func withoutFinalBreak(b, was []byte) []byte {
	if bytes.HasSuffix(was, []byte("\n")) {
		return b
	}
	if cut, ok := bytes.CutSuffix(b, []byte("\n")); ok {
		return bytes.TrimSuffix(cut, []byte("\r"))
	}
	return b
}

// checkEdit says what would refuse the event with its new payload.
func checkEdit(ctx context.Context, p *pipeline.Pipeline, q *deadAct, e *event.Parked, was event.Value) error {
	if !q.NotJSON && structured(was.Bytes) {
		if err := wellFormed(q.Payload); err != nil {
			return faultEditRefused(q.Pipeline, e, "the new payload is no JSON, and the one that is kept is: "+err.Error(),
				"correct the file, which is to hold the payload and nothing else; if it is meant to be no JSON, say --not-json")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, fitsWithin)
	defer cancel()
	if err := p.Fits(ctx, e, q.Topic); err != nil {
		f := event.AsFault(err)
		if f == nil {
			return err
		}
		return faultEditRefused(q.Pipeline, e, f.Code+", "+f.Text, f.Hint)
	}
	return nil
}

// fitsWithin is how long a broker is asked what its topic takes; where it does not answer, sending finds out.
const fitsWithin = 5 * time.Second

// structured says whether a payload is a JSON object or array. Other JSON (a number, a word in quotes) may as well be text.
func structured(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && (b[0] == '{' || b[0] == '[') && json.Valid(b)
}

// wellFormed says where JSON ends to be JSON, and quotes nothing of it (I10).
func wellFormed(b []byte) error {
	var whole json.RawMessage
	err := json.Unmarshal(b, &whole)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case len(bytes.TrimSpace(b)) == 0:
		return errors.New("it is empty")
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(b[:min(int(syntax.Offset), len(b))], []byte("\n"))
		return fmt.Errorf("it is broken at byte %d, line %d", syntax.Offset, line)
	}
	return errors.New("it cannot be read")
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// names are the flags that pick one entry, whatever else is kept under its id.
func names(e *event.Parked) string {
	number := fmt.Sprintf("--number %d", e.Order)
	if e.ID == "" {
		return number
	}
	return "--id " + event.ShellWord(e.ID) + " " + number
}

// editMost is how many events a refusal names.
const editMost = 5

func (d *deadLetters) faultEditOne(q *deadAct, orders []int64) error {
	list := ""
	err := d.store.DeadLetters().Each(q.Pipeline, orders[0], func(e *event.Parked) error {
		if !slices.Contains(orders[:min(editMost, len(orders))], e.Order) {
			return nil
		}
		why := e.Code
		if e.Behind {
			why = "waits behind another"
		}
		list += fmt.Sprintf("\n  %s   (%s, read at %s, parked %s, %s)", names(e), aggregateName(e.Aggregate), e.Place(), e.ParkedAt.UTC().Format(time.RFC3339), why)
		return nil
	})
	if err != nil {
		return err
	}
	if more := len(orders) - editMost; more > 0 {
		list += fmt.Sprintf("\nand %d more: outtail dlq list -c FILE --pipeline %s", more, q.Pipeline)
	}
	return &event.Fault{Code: "OT0013", Class: event.Usage, Op: "edit a parked event", Place: "pipeline " + q.Pipeline,
		Text: fmt.Sprintf("--edit is for one event, and %d are picked; nothing was changed", len(orders)), Hint: "name one of them:" + list}
}

func faultEditRefused(name string, e *event.Parked, why, hint string) *event.Fault {
	return &event.Fault{Code: "OT0026", Class: event.Usage, Op: "edit a parked event", Place: "pipeline " + name + ", event read at " + e.Place(),
		Text: "nothing was changed or sent: " + why, Hint: hint}
}
