// Package pipeline moves events from one source through routing and transformation to one sink, and stores the position
// behind the acks. It owns the small interfaces that sources, sinks and stores fulfil, the ack tracker, the window, the
// state machine, backoff and the order of stopping. It imports no adapter.
package pipeline

import (
	"context"
	"time"

	"github.com/outtail/outtail/event"
)

// Source yields the log in commit order. One goroutine calls Open, Read and Close; Position and Confirm may be called
// from another at the same time. After Read or Close failed or ended, Close and then Open begin a new session.
type Source interface {
	// Open connects, compares identities with what is stored (at every connect, I5) and starts streaming after it. A zero
	// checkpoint means: the configured start rule. It returns the checkpoint from which the session reads (Position,
	// Prefix, Depends filled in), which the pipeline saves before it delivers the first event (start is applied once),
	// and what the source wants stored with positions from now on (Depends, Selection: set both always). Errors are *event.Fault: Environment or
	// Retry is tried again, Safety and Immediate ones end the pipeline.
	Open(ctx context.Context, from event.Checkpoint) (event.Checkpoint, error)
	// Read blocks until a batch is ready or ctx ends. The events of a stored prefix are not delivered again. The source
	// keeps its session alive by itself: a reader that does not come back for an hour costs nothing but memory bounded
	// by the source (I11). The batch and its buffers belong to the caller until Release.
	Read(ctx context.Context) (*event.Batch, error)
	// Position turns a bound of this session into the position to store, and may forget everything before it; at never
	// decreases; it may be called until the next Open, also after Close. Depends is what is to be stored with it; nil means unchanged since Open or the last Position.
	Position(at uint64) (p event.Position, depends []byte)
	// Confirm says that p is durable (after fsync, I4). It never blocks and never goes back.
	Confirm(p event.Position)
	// Lag is what the server still has to send, as far as known; -1 where it is not known.
	Lag() Lag
	// Close ends the session; it returns within seconds whatever the server does.
	Close() error
}

// Fenced is a Source whose right to send may end in the middle of a session: it holds a lock against other processes. Fence is
// asked after Open; it ends, with an *event.Fault as its cause, at the moment from which nothing more may be handed to the sink.
type Fenced interface {
	Fence() context.Context
}

// Kept is a Source whose server has to see a session, or gives up what it keeps for it (a slot). Lost is asked after Open; it ends, with an
// *event.Fault as its cause, when the session turns out to be over although nobody reads, since the sink takes nothing.
type Kept interface {
	Lost() context.Context
}

// Lag is how far the source's reader is behind the server; the type is event's, since sources do not import this package.
type Lag = event.Lag

// Sink sends in call order per topic and key, and keeps later events of an aggregate behind a held one. Each Send ends
// in exactly one Acked or Failed, from any goroutine, also during Send. Retries of class retry and config happen inside,
// for ever; a Failed is for the record's own sake or final.
type Sink interface {
	// Open prepares the client and returns what the sink is, if it can be known now. While the broker is down it returns
	// a Retry or Config fault, and is called again with backoff; events are not read before.
	Open(ctx context.Context) (event.SinkID, error)
	// Send hands a message over. It blocks only for backpressure. The message stays valid and unchanged until the acked
	// prefix has passed it. An error means that the message was not taken (ctx ended, or sink closed).
	Send(ctx context.Context, m *event.Message) error
	// Discard takes messages back that failed, or are held behind one that failed, because they are kept elsewhere now. It
	// gives those that it let go of: nothing will be answered for them any more. The others are on their way, and are acked or
	// failed like any. seqs ascend. Not called from within Acks, nor while Send is: a Send that has no room must not need it to get some.
	Discard(seqs []uint64) (dropped []uint64)
	// Flush waits until everything that was sent is acked or failed, or ctx ends.
	Flush(ctx context.Context) error
	// Close ends the client without waiting for unacked messages.
	Close() error
}

// Measurer is a Sink that can say, without sending, that it would refuse a message for its own sake. nil also where it cannot tell in
// time: sending finds out. A Record fault.
type Measurer interface {
	Fits(ctx context.Context, m *event.Message) error
}

// Acks is how a sink answers. Reopened takes an ack back before an acked message is sent again: legal because a lower
// event is unacked, so that the prefix has not passed it.
type Acks interface {
	Acked(seq uint64)
	Failed(seq uint64, err error)
	Reopened(seq uint64)
}

// Conditions is where a source or sink tells what keeps it from working, for /readyz, logs and state. The same key
// replaces; nil clears. Any goroutine; never blocks.
type Conditions interface {
	Condition(key string, f *event.Fault)
}

// Router decides where an event goes. Pure.
type Router interface {
	// Route gives the message's topic, key and partition through m, or says what else becomes of it. A Record fault is
	// returned for an event that cannot be routed for its own sake.
	Route(ev *event.Event, m *event.Message) (Decision, error)
}

// Decision is what becomes of an event.
type Decision uint8

const (
	// Deliver sends it.
	Deliver Decision = iota
	// Drop filters it by rule; counted.
	Drop
)

// Transformer fills value, headers and timestamp of a routed message. Pure.
type Transformer interface {
	Transform(ev *event.Event, m *event.Message) error
}

// Store keeps checkpoints. Save is durable when it returns (one fsync for all entries, I4).
type Store interface {
	Load(pipeline string) (event.Checkpoint, error)
	Save(ctx context.Context, entries map[string]event.Checkpoint) error
}

// DeadLetters keeps events that cannot be delivered, until a person decides (design: failures). It has room for a bounded number
// of them; Park's fault is of class Safety when it is full, so that the pipeline halts. Safe for concurrent use.
type DeadLetters interface {
	// Each gives what is kept of a pipeline from an order on, without rows, until visit returns an error. The entry is visit's only
	// until it returns.
	Each(pipeline string, from int64, visit func(*event.Parked) error) error
	// Park adds and moves entries, in order, all or none. They are durable when it returns.
	Park(ctx context.Context, pipeline string, ops []event.Parking) error
	// Get gives one with its row; nil where there is none.
	Get(pipeline string, order int64) (*event.Parked, error)
	// End closes entries, or removes those of which tombstone is false. Durable when it returns. missing are the orders at which nothing
	// was open: an entry may have been moved since it was looked at.
	End(ctx context.Context, pipeline string, ended []event.Ending) (missing []int64, err error)
	// Tried counts a delivery that failed again.
	Tried(ctx context.Context, pipeline string, order int64, f *event.Fault) error
	// Oldest is when the oldest open entry was parked; zero where there is none.
	Oldest(pipeline string) time.Time
	// Sweep removes entries that ended.
	Sweep(ctx context.Context, pipeline string, orders []int64) error
}

// Coverer is a Source that can tell whether the transaction of an id (Tx.ID) lies before a position. What it cannot tell counts
// as before it: an event kept twice is sent twice, and one that is missed would be overtaken.
type Coverer interface {
	Covers(p event.Position, tx string) bool
	// LogEnd is where the server's log ended when the session was opened, or later; zero where nobody knows. Whatever an earlier process
	// read of the same log lies before it.
	LogEnd() event.Position
}

// Observer sees what happens, for metrics and tests. Calls are cheap, from any goroutine, and never block. Counts are
// deltas.
type Observer interface {
	State(pipeline string, s State)
	Read(pipeline string, events int)
	Filtered(pipeline, reason string, events int)
	// HeadersSkipped counts headers of rows that were left out of their messages, because outtail writes a header of that name.
	HeadersSkipped(pipeline string, headers int)
	// TimestampsReplaced counts records that have the commit time, because their occurred_at is none that brokers take.
	TimestampsReplaced(pipeline string, events int)
	Sent(pipeline, topic string, events int)
	Acked(pipeline, topic string, events int)
	SendError(pipeline string, c event.Class)
	SendUnknown(pipeline string, events int)
	// Parked counts events that were put into the dead-letter store; the reason is a code, or "behind".
	Parked(pipeline, reason string, events int)
	// DeadLetters is how many events are open in the store, and since when the oldest is.
	DeadLetters(pipeline string, open int, oldest time.Duration)
	// Replayed counts events that were sent again from the store, by result: acked or failed.
	Replayed(pipeline, result string, events int)
	// Latency is commit to ack and send to ack of one acked message.
	Latency(pipeline string, commitToAck, sendToAck time.Duration)
	InFlight(pipeline string, events int, bytes int64)
	OldestUnacked(pipeline string, age time.Duration)
	Saved(pipeline string, took time.Duration, at time.Time)
	Lag(pipeline string, seconds float64, l Lag)
	Reconnect(pipeline string)
}
