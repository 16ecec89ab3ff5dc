// Package stdout prints messages as lines of JSON, for trying things and for pipes.
//
// A message is acked once its line was written (and the writer flushed, where it can be): what the reader of a pipe makes of it
// is not known. Lines leave in the order of Send, in batches that form while the previous one is being written.
package stdout

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// Acks is how the sink answers. It is called from the sink's own goroutine and must not call the sink.
type Acks interface {
	Acked(seq uint64)
	Failed(seq uint64, err error)
	Reopened(seq uint64)
}

// Options are what a sink is made of.
type Options struct {
	// MaxBufferedBytes bounds the lines that wait to be written; Send blocks above it. 0 is 1 MiB. A longer line is taken
	// alone.
	MaxBufferedBytes int64
	Acks             Acks
}

const defaultBuffer = 1 << 20

// closeWithin bounds how long Close waits for a write that does not return.
const closeWithin = 2 * time.Second

// Sink writes to one writer. Send is for one goroutine at a time.
type Sink struct {
	w    io.Writer
	acks Acks
	max  int

	mu      sync.Mutex
	lines   []byte   // not yet given to the writer
	seqs    []uint64 // of lines
	writing int      // bytes that the writer has
	opened  bool
	closed  bool
	fault   *event.Fault  // the writer failed; nothing is written any more
	changed chan struct{} // closed and renewed when something was written, failed, or the sink closed

	wake chan struct{}
	stop chan struct{}
	done chan struct{} // closed when the writing goroutine has ended
}

// New makes a sink that writes to w.
func New(w io.Writer, o Options) *Sink {
	s := &Sink{
		w: w, acks: o.Acks, max: int(o.MaxBufferedBytes), changed: make(chan struct{}),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if s.max <= 0 {
		s.max = defaultBuffer
	}
	return s
}

// Open starts writing. A writer has no identity.
func (s *Sink) Open(context.Context) (event.SinkID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.opened {
		return event.SinkID{}, notOpen()
	}
	s.opened = true
	go s.write() // ends with Close, which waits for it unless a write hangs
	return event.SinkID{Kind: "stdout"}, nil
}

// Send takes a message over; its bytes are copied at once.
func (s *Sink) Send(ctx context.Context, m *event.Message) error {
	for {
		s.mu.Lock()
		if s.closed || !s.opened {
			s.mu.Unlock()
			return notOpen()
		}
		if err := ctx.Err(); err != nil {
			s.mu.Unlock()
			return err
		}
		before := len(s.lines)
		s.lines = appendLine(s.lines, m)
		if before+s.writing == 0 || len(s.lines)+s.writing <= s.max {
			break
		}
		s.lines = s.lines[:before]
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.seqs = append(s.seqs, m.Seq)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// Discard lets go of nothing: no line fails for its own sake.
func (s *Sink) Discard([]uint64) []uint64 { return nil }

// Flush waits until everything that was sent is written or failed, or ctx ends.
func (s *Sink) Flush(ctx context.Context) error {
	for {
		s.mu.Lock()
		closed, fault, left, changed := s.closed, s.fault, len(s.lines)+s.writing, s.changed
		s.mu.Unlock()
		switch {
		case closed:
			return notOpen()
		case fault != nil:
			return fault
		case left == 0:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends the sink without waiting for what is not written. Where the writer takes deadlines, as pipes do, a write that hangs
// is ended; else it is left behind after two seconds.
func (s *Sink) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	opened := s.opened
	s.notify()
	s.mu.Unlock()
	close(s.stop)
	if !opened {
		return nil
	}
	if d, ok := s.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Unix(1, 0)) // where it is not supported there is nothing to end
		defer func() { _ = d.SetWriteDeadline(time.Time{}) }()
	}
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	}
	return nil
}

// notify wakes everybody who waits. Call it with mu held.
func (s *Sink) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Sink) write() {
	defer close(s.done)
	var lines []byte
	var seqs []uint64
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		}
		s.mu.Lock()
		if s.fault != nil || s.closed {
			s.mu.Unlock()
			continue
		}
		lines, s.lines = s.lines, lines[:0]
		seqs, s.seqs = s.seqs, seqs[:0]
		s.writing = len(lines)
		s.mu.Unlock()
		if len(seqs) == 0 {
			continue
		}
		s.answer(seqs, s.writeAll(lines))
	}
}

func (s *Sink) writeAll(lines []byte) error {
	if _, err := s.w.Write(lines); err != nil {
		return err
	}
	if f, ok := s.w.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

// answer acks what was written. Where it was not, the first line is failed: how much of the batch the reader has is not known,
// and nothing after it may count as delivered.
func (s *Sink) answer(seqs []uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.writing = 0
	if err != nil {
		s.fault = unwritable(err)
		s.acks.Failed(seqs[0], s.fault)
	} else {
		for _, seq := range seqs {
			s.acks.Acked(seq)
		}
	}
	s.notify()
}

// notOpen: used before Open or after Close.
func notOpen() *event.Fault {
	return &event.Fault{
		Code: "OT5101", Class: event.Internal, Op: "write", Place: "stdout", Text: "the sink is not open",
		Hint: "this is a defect of outtail; the event is read again after a restart",
	}
}

// unwritable: the reader of the pipe has gone, or the disk is full. There is nobody to wait for.
func unwritable(err error) *event.Fault {
	return &event.Fault{
		Code: "OT5102", Class: event.Internal, Op: "write", Place: "stdout", Text: "standard output cannot be written to", Err: err,
		Hint: "check what reads from outtail's standard output; start again and it goes on at the first line that was not written",
	}
}
