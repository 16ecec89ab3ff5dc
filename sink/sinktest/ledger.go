package sinktest

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
)

// Ledger takes a sink's answers and finds the illegal ones: an answer to what was not sent, two answers to one Send, a
// Reopened of what is not acked or below which nothing is unacked.
type Ledger struct {
	mu      sync.Mutex
	state   map[uint64]answer
	order   []uint64 // as sent
	faults  map[uint64]error
	broken  []error
	reopens int
	changed chan struct{}
	closed  bool
}

type answer uint8

const (
	open answer = iota
	ack
	fail
)

// NewLedger makes an empty one.
func NewLedger() *Ledger {
	return &Ledger{state: make(map[uint64]answer), faults: make(map[uint64]error), changed: make(chan struct{})}
}

// Sent notes a message just before it is sent; answers may come during Send.
func (l *Ledger) Sent(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state[seq] = open
	l.order = append(l.order, seq)
}

// NotTaken takes a Sent back: Send returned an error.
func (l *Ledger) NotTaken(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state[seq] != open {
		l.illegal("%d was answered although Send did not take it", seq)
	}
	delete(l.state, seq)
	l.order = l.order[:len(l.order)-1]
}

// Closed says that the sink was closed: answers are illegal from now on.
func (l *Ledger) Closed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// Acked is part of what a sink answers to.
func (l *Ledger) Acked(seq uint64) { l.answer(seq, ack, nil) }

// Failed is part of what a sink answers to.
func (l *Ledger) Failed(seq uint64, err error) {
	if err == nil {
		err = errors.New("failed without an error")
	}
	l.answer(seq, fail, err)
}

// Reopened is part of what a sink answers to.
func (l *Ledger) Reopened(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state[seq] != ack {
		l.illegal("%d was reopened and is not acked", seq)
	}
	lower := false
	for _, other := range l.order {
		if other >= seq {
			break
		}
		if l.state[other] != ack {
			lower = true
			break
		}
	}
	if !lower {
		l.illegal("%d was reopened although everything below is acked", seq)
	}
	l.reopens++
	l.state[seq] = open
	l.wake()
}

func (l *Ledger) answer(seq uint64, a answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, sent := l.state[seq]
	switch {
	case l.closed:
		l.illegal("%d was answered after Close", seq)
	case !sent:
		l.illegal("%d was answered and not sent", seq)
	case was != open:
		l.illegal("%d was answered twice", seq)
	}
	l.state[seq] = a
	if err != nil {
		l.faults[seq] = err
	}
	l.wake()
}

func (l *Ledger) illegal(format string, args ...any) {
	l.broken = append(l.broken, fmt.Errorf(format, args...))
}

func (l *Ledger) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Illegal lists what was against the contract so far.
func (l *Ledger) Illegal() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]error(nil), l.broken...)
}

// Acks counts what is acked now.
func (l *Ledger) Acks() int { return l.count(ack) }

// Unanswered counts what is neither acked nor failed now.
func (l *Ledger) Unanswered() int { return l.count(open) }

// Reopens counts calls of Reopened.
func (l *Ledger) Reopens() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reopens
}

func (l *Ledger) count(a answer) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.state {
		if s == a {
			n++
		}
	}
	return n
}

// Failures gives the errors by seq.
func (l *Ledger) Failures() map[uint64]error {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[uint64]error, len(l.faults))
	for seq, err := range l.faults {
		all[seq] = err
	}
	return all
}

// IsAcked says whether seq is acked now.
func (l *Ledger) IsAcked(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state[seq] == ack
}

// Prefix is the highest seq up to which everything that was sent is acked; ok is false where not even the first is.
func (l *Ledger) Prefix() (seq uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sort.Slice(l.order, func(i, j int) bool { return l.order[i] < l.order[j] })
	for _, s := range l.order {
		if l.state[s] != ack {
			break
		}
		seq, ok = s, true
	}
	return seq, ok
}

// Wait blocks until done holds, which is asked after every answer.
func (l *Ledger) Wait(ctx context.Context, done func(*Ledger) bool) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if done(l) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d acked, %d unanswered", ctx.Err(), l.Acks(), l.Unanswered())
		}
	}
}
