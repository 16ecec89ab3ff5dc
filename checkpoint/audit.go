package checkpoint

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// Actions in the audit.
const (
	ActionSet    = "checkpoint set"
	ActionAccept = "checkpoint accept"
	ActionSchema = "schema accept"
	ActionReplay = "dlq replay"
	ActionSkip   = "dlq skip"
	ActionEdit   = "dlq edit"
	ActionForget = "dlq forget"
	ActionRewind = "checkpoint rewind"
	ActionImport = "checkpoint import"
	ActionExpire = "dlq expire" // what the configured retention left out
)

// Outcomes of an act. One that takes its time, or changes the second file, is recorded twice: Begun before it changes anything, so
// that a crash in the middle leaves a trace, and how it ended. What was refused before it changed anything is not recorded.
const (
	OutcomeBegun   = "begun"
	OutcomeDone    = "done"
	OutcomeStopped = "stopped"
)

// OutcomeOf is the outcome of an act that ended with err.
func OutcomeOf(err error) string {
	switch {
	case err == nil:
		return OutcomeDone
	case errors.Is(err, context.Canceled):
		return OutcomeStopped
	}
	return "failed: " + err.Error()
}

// By says who acts and why; both are required.
type By struct {
	Operator string
	Reason   string
}

// Audit is one act of a person on the state. Entries are only ever added.
type Audit struct {
	Time     time.Time `json:"time"`
	Operator string    `json:"operator"`
	Action   string    `json:"action"`
	Reason   string    `json:"reason"`
	Pipeline string    `json:"pipeline"`
	// Detail is what the action was about: the code that was accepted, the table, place and columns.
	Detail string `json:"detail,omitempty"`
	// Outcome is how it ended; see the Outcome constants.
	Outcome string `json:"outcome"`
	// Range is what it went over, Counts how much of it became what.
	Range  *Range            `json:"range,omitempty"`
	Counts map[string]int64  `json:"counts,omitempty"`
	Before *event.Checkpoint `json:"before"`
	After  *event.Checkpoint `json:"after"`
}

// Range is a stretch of the log, or what of the dead letters was picked.
type Range struct {
	From   string          `json:"from,omitempty"`
	To     string          `json:"to,omitempty"`
	Picked json.RawMessage `json:"picked,omitempty"`
}

// Audits lists all entries, the oldest first.
func (s *Store) Audits() ([]Audit, error) {
	var out []Audit
	err := s.view(func(tx *bbolt.Tx) error {
		out = nil
		return tx.Bucket([]byte(bucketAudit)).ForEach(func(k, v []byte) error {
			var a Audit
			err := decodeRecord(placeAudit(k), v, &a)
			if a.Outcome == "" { // of a version that recorded only what was done
				a.Outcome = OutcomeDone
			}
			out = append(out, a)
			return err
		})
	})
	return out, err
}

func putAudit(tx *bbolt.Tx, a Audit) error {
	b := tx.Bucket([]byte(bucketAudit))
	seq, err := b.NextSequence()
	if err != nil {
		return err
	}
	key := binary.BigEndian.AppendUint64(nil, seq)
	v, err := encodeRecord(placeAudit(key), a)
	if err != nil {
		return err
	}
	return b.Put(key, v)
}
