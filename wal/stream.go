package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outtail/outtail/event"
)

const (
	// readSize is the buffer that the socket is read into; it grows for a row that is larger, up to the row limit.
	readSize = 128 << 10
	// frameHead is a message's type and length, dataHead that of an XLogData message inside ('w', start, end, time).
	frameHead = 5
	dataHead  = 25
	// keepBuffer is a buffer above which the usual one comes back after calmReads reads without large rows.
	keepBuffer = 1 << 20
	calmReads  = 32
	// idleEvery is how often progress without events is told.
	idleEvery = time.Second
)

// reader reads the replication connection: frames, the messages in them, and what the server says about the connection.
// It belongs to the goroutine that calls Read.
type reader struct {
	conn     deadlineReader
	dec      *decoder
	pace     pacer
	widen    func() // gives the connection a receive buffer of the usual size; set where pace is enabled
	place    string
	maxFrame int // a larger frame is not buffered
	replied  func()
	quiet    func(n int) // SO_RCVLOWAT while pausing; may be nil

	buf  []byte
	r, w int
	need int // bytes that the next step needs in the buffer
	drop int // bytes of a frame that is not wanted, still to come
	big  *bigRow
	calm int       // reads since a frame was larger than the usual buffer
	last time.Time // when bytes came last
}

// deadlineReader is what reader needs of a net.Conn.
type deadlineReader interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// bigRow is a row of ours in a frame that is not buffered whole, while its bytes pass by: what is mapped is kept up to that
// size, so that a large value that nobody wants costs nothing, and small ones anyway, so that the record failure can be told
// with its id.
type bigRow struct {
	rel    *relation
	left   int // bytes of the frame that are not consumed
	i, n   int // column, columns
	size   int // of the frame
	values []bigValue
	kept   int
	lost   bool // a mapped value was too large to keep
}

type bigValue struct {
	uses []use
	kind byte
	b    []byte
}

// keepValue is the largest value of a row beyond the limit that is kept.
const keepValue = 4 << 10

// parse consumes what is in the buffer, up to an incomplete frame. An error is returned after what came before it is in l.
func (s *reader) parse(l *load) error {
	for {
		if s.drop > 0 {
			n := min(s.drop, s.w-s.r)
			s.r, s.drop = s.r+n, s.drop-n
			if s.drop > 0 {
				return nil
			}
		}
		if s.big != nil {
			if done, f := s.walk(l); f != nil {
				return f
			} else if !done {
				return nil
			}
			continue
		}
		s.need = frameHead
		if s.w-s.r < frameHead {
			return nil
		}
		size := int(binary.BigEndian.Uint32(s.buf[s.r+1:])) + 1
		if size < frameHead {
			return faultProtocol(s.place, "a frame's length is impossible")
		}
		if s.w-s.r < size {
			if size > readSize {
				if wait, f := s.oversize(l, size); wait || f != nil {
					return faultOrNil(f)
				}
				continue
			}
			s.need = size
			return nil
		}
		frame := s.buf[s.r : s.r+size]
		s.r += size
		l.ahead = s.w - s.r
		if err := s.frame(l, frame[0], frame[frameHead:]); err != nil {
			return err
		}
	}
}

// faultOrNil keeps a nil *Fault from becoming an error that is not nil.
func faultOrNil(f *event.Fault) error {
	if f == nil {
		return nil
	}
	return f
}

// frame takes one complete message of the connection.
func (s *reader) frame(l *load, kind byte, body []byte) error {
	switch kind {
	case 'd':
		return s.copyData(l, body)
	case 'E':
		return serverError(body)
	case 'N':
		return s.notice(body)
	case 'S', 'A':
		return nil
	case 'c', 'C', 'Z':
		return io.EOF // the server ends the stream, as when it shuts down
	}
	return faultProtocol(s.place, fmt.Sprintf("a message of type %q does not belong into a stream", kind))
}

func (s *reader) copyData(l *load, body []byte) error {
	if len(body) >= dataHead && body[0] == 'w' {
		if f := s.dec.message(l, body[dataHead:]); f != nil {
			return f
		}
		if s.dec.inTx {
			s.dec.lag = time.Duration(int64(binary.BigEndian.Uint64(body[17:]))-s.dec.commit) * time.Microsecond
		}
		return nil
	}
	if len(body) == 18 && body[0] == 'k' {
		s.dec.keepalive(l, event.LSN(binary.BigEndian.Uint64(body[1:])))
		if body[17] != 0 {
			s.replied()
		}
		return nil
	}
	return faultProtocol(s.place, "a replication message has an unknown form")
}

// errPublicationSkipped is the server's warning, from 18 on, that it goes on without a publication that does not exist.
var errPublicationSkipped = errors.New("the server goes on without the publication")

// notice looks for the one warning that matters. Its text is translated, its SQLSTATE is not, and no other warning of a
// walsender has it.
func (s *reader) notice(body []byte) error {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err == nil && n.Code == stateNotPrerequisite {
		return errPublicationSkipped
	}
	return nil
}

func serverError(body []byte) error {
	var e pgproto3.ErrorResponse
	if err := e.Decode(body); err != nil {
		return io.ErrUnexpectedEOF
	}
	return pgconn.ErrorResponseToPgError(&e)
}

// oversize decides about a frame that is larger than the usual buffer: a row of ours within the limit is buffered, one
// beyond it is walked through, and what is not ours is dropped as it comes (I11). wait: more bytes are needed first.
func (s *reader) oversize(l *load, size int) (wait bool, _ *event.Fault) {
	const head = frameHead + dataHead + 1 + 4 + 1 + 2 // up to the number of columns
	if s.w-s.r < head {
		s.need = head
		return true, nil
	}
	b := s.buf[s.r:]
	kind := b[frameHead+dataHead]
	if b[0] != 'd' || b[frameHead] != 'w' || kind == 'R' || kind == 'B' || kind == 'C' {
		if size > keepBuffer { // an error, a notice or a relation of 1,600 columns is smaller
			return false, faultProtocol(s.place, fmt.Sprintf("a message of type %q is impossibly large", b[0]))
		}
		s.need = size
		return true, nil
	}
	if kind == 'I' {
		w := wire{b: b[frameHead+dataHead+1 : head]}
		rel := s.dec.find(w.u32())
		if rel == nil || !s.dec.inTx {
			return false, s.dec.malformed('I')
		}
		if !rel.foreign && size <= s.maxFrame {
			s.need = size
			return true, nil
		}
		if !rel.foreign {
			skip, f := s.dec.admit(rel)
			if f != nil {
				return false, f
			}
			w.byte()
			if n := w.u16(); !skip {
				if n != len(rel.plan) {
					return false, s.dec.malformed('I')
				}
				s.big = &bigRow{rel: rel, left: size - head, n: n, size: size - head}
				s.r += head
				return false, nil
			}
		}
	}
	if kind == 'M' {
		const head = frameHead + dataHead + 1 + messageHead
		if len(b) < head {
			s.need = head
			return true, nil
		}
		if s.dec.largeMessage(b[frameHead+dataHead+1 : head]) {
			if size <= s.maxFrame {
				s.need = size
				return true, nil
			}
			if f := s.dec.hugeMessage(l, size); f != nil {
				return false, f
			}
		}
	}
	s.r, s.drop = s.r+head, size-head
	return false, nil
}

// walk goes through a row that is too large, value by value.
func (s *reader) walk(l *load) (done bool, _ *event.Fault) {
	b := s.big
	for b.i < b.n {
		have := s.buf[s.r:s.w]
		if len(have) < 5 && len(have) < b.left {
			s.need = min(5, b.left)
			return false, nil
		}
		if len(have) == 0 {
			return false, s.dec.malformed('I')
		}
		kind, head, size := have[0], 1, 0
		if kind == 't' || kind == 'b' {
			if len(have) < 5 {
				return false, s.dec.malformed('I')
			}
			head, size = 5, int(binary.BigEndian.Uint32(have[1:]))
		}
		if head+size > b.left {
			return false, s.dec.malformed('I')
		}
		uses := b.rel.plan[b.i]
		if uses != nil && size > keepValue && (b.lost || b.kept+size > s.maxFrame) {
			b.lose()
			uses = nil
		}
		if uses == nil {
			b.i, b.left = b.i+1, b.left-head-size
			s.r, s.drop = s.r+head, size
			if s.drop > 0 {
				return true, nil // parse drops the value and comes back
			}
			continue
		}
		if len(have) < head+size {
			s.need = head + size
			return false, nil
		}
		b.values = append(b.values, bigValue{uses, kind, bytes.Clone(have[head : head+size])})
		b.kept += size
		s.r += head + size
		b.i, b.left = b.i+1, b.left-head-size
	}
	if b.left != 0 {
		return false, s.dec.malformed('I')
	}
	e, size := s.dec.open(l, b.rel), 0
	for _, v := range b.values {
		for _, u := range v.uses {
			size += s.dec.value(l, e, u, v.kind, v.b)
		}
	}
	s.dec.close(e, size)
	if b.lost {
		e.Err = s.dec.tooLarge(e, b.size)
	}
	s.big = nil
	return true, nil
}

// lose gives up on the row's large values.
func (b *bigRow) lose() {
	b.lost = true
	b.values = slices.DeleteFunc(b.values, func(v bigValue) bool { return len(v.b) > keepValue })
}

// fill reads more. It makes room first: what is left of a frame moves to the front, a row that needs more gets it, and
// when those have ended the usual buffer comes back.
func (s *reader) fill(ctx context.Context, deadline time.Time) error {
	left := s.w - s.r
	if s.need > readSize {
		s.calm = 0
	} else {
		s.calm++
	}
	switch {
	case len(s.buf) < max(readSize, s.need):
		s.resize(max(readSize, 1<<bits.Len(uint(s.need-1))))
	case len(s.buf) > keepBuffer && left <= readSize && s.calm > calmReads:
		s.resize(readSize)
	case s.r > 0:
		copy(s.buf, s.buf[s.r:s.w])
		s.r, s.w = 0, left
	}
	if pause := s.pace.pause(time.Now(), s.dec.lag); pause > 0 {
		if s.quiet != nil {
			s.quiet(paceFull)
		}
		nap(ctx, pause)
		if s.quiet != nil {
			s.quiet(1)
		}
	}
	if err := s.conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	if ctx.Err() != nil { // after the deadline was set: whoever ends ctx sets a past one
		return os.ErrDeadlineExceeded
	}
	began := time.Now()
	n, err := s.conn.Read(s.buf[s.w:])
	s.w += n
	if n > 0 {
		s.last = time.Now()
		s.pace.read(s.last, n, s.need-left)
		if s.pace.waited(s.last.Sub(began), n) {
			s.pace.enabled = false
			s.widen()
		}
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

func (s *reader) resize(n int) {
	b := make([]byte, n)
	s.w = copy(b, s.buf[s.r:s.w])
	s.r, s.buf = 0, b
}

// nap sleeps for some milliseconds, or until ctx ends.
func nap(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
