package event

import (
	"strconv"
	"time"
)

// Policy is what becomes of an event that cannot be delivered for its own sake (design: failures).
type Policy uint8

const (
	// Halt stops the pipeline in front of the event.
	Halt Policy = iota
	// Park keeps the event in the dead-letter store, and every later event of its aggregate behind it, so that the order per
	// aggregate survives while everybody else flows.
	Park
	// Alone keeps this one event in the dead-letter store and lets its aggregate go on (configured as dlq).
	Alone
	// Skip leaves the event out, counted and logged.
	Skip
)

var policyNames = [...]string{"halt", "park", "dlq", "skip"}

// String is the policy's name in configurations.
func (p Policy) String() string {
	if int(p) < len(policyNames) {
		return policyNames[p]
	}
	return "unknown"
}

// ParsePolicy finds the policy of a configured name.
func ParsePolicy(s string) (Policy, bool) {
	for i, n := range policyNames {
		if n == s {
			return Policy(i), true
		}
	}
	return 0, false
}

// Ended says how a parked event left its queue.
type Ended string

// How a parked event ended; "" is open. One that ended stays in the store until the stored position has passed its row, so
// that a re-run treats it alike.
const (
	Open     Ended = ""
	Replayed Ended = "replayed"
	Skipped  Ended = "skipped"
)

// Parking is one change of the store's queue: a new entry, or one that is kept under From, open or ended, and is open under
// Order from now on.
type Parking struct {
	Entry *Parked // nil moves
	From  int64
	Order int64
}

// Ending is how one entry ends.
type Ending struct {
	Order     int64
	How       Ended
	Tombstone bool // the row may be read again, so that this has to be remembered
	// ToTopic is the topic that a person named, for the tombstone.
	ToTopic string
}

// Parked is one event in the dead-letter store. The row is apart: it may be large, and most who look do not need it.
type Parked struct {
	// Order is the event's place among those of its pipeline that wait for each other; lower is earlier. The store's key.
	Order int64 `json:"order"`
	// Tx, Index, Selection and Table say which row it was, Source and Commit what a message tells of its transaction.
	Tx        string    `json:"tx"`
	Index     uint64    `json:"index"`
	Selection string    `json:"selection,omitempty"`
	Table     string    `json:"table"`
	Source    string    `json:"source"`
	Commit    time.Time `json:"commit"`
	// ID, Aggregate, Topic and Key are the message's, as far as it was prepared.
	ID        string `json:"id"`
	Aggregate string `json:"aggregate"`
	Topic     string `json:"topic,omitempty"`
	Key       []byte `json:"key,omitempty"`
	// Behind is set where the event is good in itself and waits behind another of its aggregate or key; Alone where nothing
	// waits behind it.
	Behind bool `json:"behind,omitempty"`
	Alone  bool `json:"alone,omitempty"`
	// Code, Class, Text and Hint tell why, and what to do about it; Tries counts deliveries that failed.
	Code  string `json:"code"`
	Class string `json:"class"`
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`
	Tries int    `json:"tries"`
	// ParkedAt is when. Size is what the entry takes of the store's bound, in bytes.
	ParkedAt time.Time `json:"parked_at"`
	Size     int64     `json:"size"`
	Ended    Ended     `json:"ended,omitempty"`
	// ToTopic is the topic that took a replayed one, where a person named another than the route's; Edited marks a payload that a
	// person replaced.
	ToTopic string `json:"to_topic,omitempty"`
	Edited  bool   `json:"edited,omitempty"`
	// Mirrored: a copy of it is in the mirror topic.
	Mirrored bool `json:"mirrored,omitempty"`

	// Row is set where the store was asked for it.
	Row *Row `json:"-"`
}

// Place is where the event was read, as in the `source` header.
func (p *Parked) Place() string { return p.Source + "#" + strconv.FormatUint(p.Index, 10) }
