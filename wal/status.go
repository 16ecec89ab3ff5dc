package wal

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/outtail/outtail/event"
)

const (
	// statusGap is the least time between answers that only tell of a new position.
	statusGap = 500 * time.Millisecond
	// statusMost is the most time between answers.
	statusMost = 10 * time.Second
	// writeLimit is how long a write may take; a status update is 39 bytes.
	writeLimit = 10 * time.Second
)

// statusUpdate writes a standby status update: write, flush and apply all say what is durable here (I4), so that no
// server or library fills one from another.
func statusUpdate(b []byte, at event.LSN, now time.Time, reply bool) []byte {
	b = append(b, 'd', 0, 0, 0, 38, 'r')
	for range 3 {
		b = binary.BigEndian.AppendUint64(b, uint64(at))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(now.UnixMicro()-postgresEpoch))
	if reply {
		return append(b, 1)
	}
	return append(b, 0)
}

// answerer owns the writes of the replication connection. Its goroutine begins with the session and ends with it; it
// answers by its own timer, also while nobody reads (the sink is down for an hour), so that the server keeps us.
type answerer struct {
	conn      net.Conn
	every     time.Duration
	confirmed atomic.Uint64 // stored durably
	hold      *window       // what of it the server is told
	patience  time.Duration // wal_sender_timeout, 0: for ever
	began     time.Time
	told      atomic.Int64  // when the server was told last that we live, since began
	moved     chan struct{} // a position was confirmed
	asked     chan struct{} // the server wants an answer
	lost      func(error)   // the server does not take what is written
	done      chan struct{} // closed: say the last position and end
	ended     chan struct{}
}

func newAnswerer(conn net.Conn, every, patience time.Duration, at event.LSN, hold *window, lost func(error)) *answerer {
	a := &answerer{
		conn: conn, every: every, patience: patience, began: time.Now(), hold: hold, lost: lost,
		moved: make(chan struct{}, 1), asked: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{}),
	}
	a.confirmed.Store(uint64(at))
	return a
}

// overdue says that the server may have given the session up: this process stood still (it was frozen, or its machine was) for as long as
// the server waits for a sign of life. Another process may read the slot by now, so that what still lies in the socket is not ours to send any
// more: it would come behind newer events (I3).
func (a *answerer) overdue() bool {
	return a.patience > 0 && time.Since(a.began)-time.Duration(a.told.Load()) >= a.patience
}

var errOverdue = errors.New("this process stood still for longer than wal_sender_timeout")

// confirm never goes back and never blocks.
func (a *answerer) confirm(at event.LSN) {
	for {
		old := a.confirmed.Load()
		if uint64(at) <= old {
			return
		}
		if a.confirmed.CompareAndSwap(old, uint64(at)) {
			break
		}
	}
	poke(a.moved)
}

// ask says that the server wants an answer.
func (a *answerer) ask() { poke(a.asked) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run answers until done, then says the last position, ends the stream and closes the connection.
func (a *answerer) run() {
	defer close(a.ended)
	defer a.conn.Close()
	var buf []byte
	send := func(reply bool, limit time.Duration) bool {
		now := time.Since(a.began)
		if a.overdue() {
			a.lost(errOverdue)
			return false
		}
		a.conn.SetWriteDeadline(time.Now().Add(limit))
		buf = statusUpdate(buf[:0], a.hold.held(event.LSN(a.confirmed.Load())), time.Now(), reply)
		if _, err := a.conn.Write(buf); err != nil {
			a.lost(err)
			return false
		}
		a.told.Store(int64(now))
		return true
	}
	a.told.Store(int64(time.Since(a.began))) // the server begins to wait with the stream
	regular := time.NewTimer(a.every)
	defer regular.Stop()
	gap := time.NewTimer(0)
	defer gap.Stop()
	moved := false // a move waits for the gap to end
	free := false  // the gap has ended
	for {
		reply := false
		select {
		case <-a.done:
			if send(false, time.Second) {
				_, _ = a.conn.Write([]byte{'c', 0, 0, 0, 4, 'X', 0, 0, 0, 4}) // CopyDone, Terminate; a connection that is gone needs neither
				// A connection that is closed with something unread is reset, and a server that just then sends ends before it has read
				// the position. Nobody else reads any more.
				_ = a.conn.SetReadDeadline(time.Now().Add(time.Second))
				_, _ = io.Copy(io.Discard, a.conn)
			}
			return
		case <-regular.C:
			reply = true // the answer proves that the server lives, and tells how far it is
		case <-a.asked:
		case <-a.moved:
			if moved = true; !free {
				continue
			}
		case <-gap.C:
			if free = true; !moved {
				continue
			}
		}
		if !send(reply, writeLimit) {
			return // Read sees the closed connection, or the pipeline that it is lost
		}
		moved, free = false, false
		gap.Reset(statusGap)
		regular.Reset(a.every)
	}
}

// stop ends the goroutine and waits for it, a second or two where the server does not take what it writes.
func (a *answerer) stop() {
	close(a.done)
	a.conn.SetWriteDeadline(time.Now().Add(time.Second))
	<-a.ended
}
