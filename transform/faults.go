package transform

import (
	"fmt"

	"github.com/outtail/outtail/event"
)

// faultHeaders is of class Record: the row's own defect, and its poison policy decides. It tells where the row is and
// what kind of defect it has, never what the column holds (I10).
func faultHeaders(ev *event.Event, cause error) *event.Fault {
	place := ev.Table
	if ev.Tx != nil && ev.Tx.Source != "" {
		place += fmt.Sprintf(" at %s#%d", ev.Tx.Source, ev.Index)
	}
	if id := ev.Row[event.ID]; id.Present() {
		place += fmt.Sprintf(", id %.120s", id.Bytes)
	}
	return &event.Fault{
		Code: "OT6201", Class: event.Record, Op: "read the row's headers", Place: place,
		Text: "the headers column holds no JSON object",
		Hint: "headers have to be one JSON object such as {\"trace\":\"…\"}, or NULL; unmap the role headers where the column holds something else",
		Err:  cause,
	}
}
