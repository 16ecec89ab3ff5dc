package checkpoint

import (
	"encoding/binary"
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
)

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
	Detail string            `json:"detail,omitempty"`
	Before *event.Checkpoint `json:"before"`
	After  *event.Checkpoint `json:"after"`
}

// Audits lists all entries, the oldest first.
func (s *Store) Audits() ([]Audit, error) {
	var out []Audit
	err := s.view(func(tx *bbolt.Tx) error {
		out = nil
		return tx.Bucket([]byte(bucketAudit)).ForEach(func(k, v []byte) error {
			var a Audit
			err := decodeRecord(placeAudit(k), v, &a)
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
