package event

import "time"

// Header is one header of a message, UTF-8 text.
type Header struct {
	Name  string
	Value []byte
}

// Message is what a sink sends. Its bytes may alias the batch's buffers; they stay valid until the acked prefix has
// passed the message, so a sink may send it again without copying.
type Message struct {
	// Seq numbers the pipeline's messages in commit order, without gaps among those that were sent to the sink only by
	// chance: filtered events use numbers too.
	Seq uint64
	// Topic, Key and Partition choose the place. A nil Key is no key. Partition is -1 unless a role names it.
	Topic     string
	Key       []byte
	Partition int32
	// Value is the payload; nil is a null value (tombstone).
	Value     []byte
	Headers   []Header
	Timestamp time.Time
	// Aggregate names the aggregate for holding and parking: events of one aggregate never overtake each other, across
	// topics. Equal strings, same aggregate.
	Aggregate string
	// OnPoison is what becomes of the event if it cannot be delivered for its own sake.
	OnPoison Policy
	// ID is the event's id as text, for messages to operators. Commit is the commit time, for latency.
	ID     string
	Commit time.Time
	// Place is where the event was read (the `source` header), for messages to operators.
	Place string
	// Size is how many bytes the message keeps alive.
	Size int
}
