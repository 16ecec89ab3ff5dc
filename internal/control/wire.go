package control

import (
	"encoding/json"
	"errors"

	"github.com/outtail/outtail/event"
)

// prefix of all requests' paths; the number changes when old and new could misunderstand each other.
const prefix = "/v1/"

// maxRequest and maxAnswer bound bodies in bytes. The largest answers are parked rows, with a third on top for base64, of which limits.row has a
// say; what is asked is read by the process that runs, whose memory is bounded (I11).
const (
	maxRequest = 64 << 20
	maxAnswer  = 1 << 30
)

// answer is what a request gets: one of the two.
type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Fault  *wireFault      `json:"fault,omitempty"`
}

type wireFault struct {
	Code      string `json:"code"`
	Class     string `json:"class"`
	Op        string `json:"op,omitempty"`
	Place     string `json:"place,omitempty"`
	Text      string `json:"text"`
	Hint      string `json:"hint,omitempty"`
	Immediate bool   `json:"immediate,omitempty"`
	Standby   bool   `json:"standby,omitempty"`
	Cause     string `json:"cause,omitempty"`
}

func toWire(f *event.Fault) *wireFault {
	w := &wireFault{Code: f.Code, Class: f.Class.String(), Op: f.Op, Place: f.Place, Text: f.Text, Hint: f.Hint, Immediate: f.Immediate, Standby: f.Standby}
	if f.Err != nil {
		w.Cause = f.Err.Error()
	}
	return w
}

func (w *wireFault) fault() *event.Fault {
	f := &event.Fault{Code: w.Code, Class: event.Internal, Op: w.Op, Place: w.Place, Text: w.Text, Hint: w.Hint, Immediate: w.Immediate, Standby: w.Standby}
	for c := event.Retry; c <= event.Internal; c++ {
		if c.String() == w.Class {
			f.Class = c
		}
	}
	if w.Cause != "" {
		f.Err = errors.New(w.Cause)
	}
	return f
}
