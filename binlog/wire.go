package binlog

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// maxFrame is the payload length that says that the next frame continues the packet.
const maxFrame = 1<<24 - 1

// wireReader reads packets of the dump from the connection itself. A packet that fits into its buffer is handed out in
// place; a longer one is assembled apart, up to limit bytes, and the rest is read and dropped, so that memory stays
// bounded whatever the server holds (I11). The session's goroutine owns it; no goroutine reads ahead, because the kernel's
// buffer does.
type wireReader struct {
	conn    net.Conn
	timeout time.Duration // longest silence; the server sends heartbeats well within it
	limit   int

	buf  []byte
	r, w int
	big  []byte
	// partial is the state of a long packet whose reading a deadline interrupted.
	partial struct {
		on    bool
		total int  // bytes of finished frames and of the current one that were read
		left  int  // bytes of the current frame still to come; -1: its header comes next
		more  bool // another frame follows the current one
	}
	ctx context.Context // of the call to next

	// more, where set, reports whether a read would not wait.
	more func() bool
	// overflow, where set, is asked for a place for what the limit cuts off a packet, given what was kept; nil drops it.
	overflow func(kept []byte) (io.Writer, error)
	rest     io.Writer
}

func newWireReader(conn net.Conn, timeout time.Duration, limit int) *wireReader {
	return &wireReader{conn: conn, timeout: timeout, limit: limit, buf: make([]byte, 256<<10)}
}

// ready reports whether next can go on without waiting for the network.
func (w *wireReader) ready() bool { return w.packet() || w.more != nil && w.more() }

// packet reports whether a whole packet is in the buffer.
func (w *wireReader) packet() bool {
	have := w.w - w.r
	if w.partial.on || have < 4 {
		return false
	}
	n := frameLen(w.buf[w.r:])
	return n < maxFrame && have >= 4+n
}

func frameLen(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// errDump is an error packet of the server.
type errDump struct {
	code uint16
	text string
}

func (e *errDump) Error() string { return e.text }

// errEnd is the server's orderly end of the dump.
var errEnd = errors.New("the server ended the dump")

// next gives the next event, without the packet's status byte, valid until the following call, and how long the event is
// in the log; that is more than len(event) where the limit cut it. When ctx ends, reading can go on later.
func (w *wireReader) next(ctx context.Context) (ev []byte, total int, err error) {
	w.ctx = ctx
	var p []byte
	if w.partial.on {
		p, total, err = w.long()
	} else {
		if err = w.fill(4); err != nil {
			return nil, 0, err
		}
		n := frameLen(w.buf[w.r:])
		if n < maxFrame && 4+n <= len(w.buf) {
			if err = w.fill(4 + n); err != nil {
				return nil, 0, err
			}
			p, total = w.buf[w.r+4:w.r+4+n], n
			w.r += 4 + n
		} else {
			w.partial.on, w.partial.total, w.partial.left, w.partial.more = true, 0, -1, true
			w.big = w.big[:0]
			p, total, err = w.long()
		}
	}
	if err != nil {
		return nil, 0, err
	}
	if len(p) == 0 {
		return nil, 0, mysql.ErrMalformPacket
	}
	switch p[0] {
	case mysql.OK_HEADER:
		return p[1:], total - 1, nil
	case mysql.EOF_HEADER:
		return nil, 0, errEnd
	case mysql.ERR_HEADER:
		e := &errDump{text: "the server gave an error without text"}
		if len(p) >= 3 {
			e.code = binary.LittleEndian.Uint16(p[1:])
			p = p[3:]
			if len(p) >= 6 && p[0] == '#' {
				p = p[6:]
			}
			e.text = string(p)
		}
		return nil, 0, e
	}
	return nil, 0, mysql.ErrMalformPacket
}

// intact reports whether reading can go on after an error: only a deadline or the end of ctx came, and TLS kept its state.
func (w *wireReader) intact(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

func (w *wireReader) long() ([]byte, int, error) {
	for {
		if w.partial.left < 0 {
			if !w.partial.more {
				break
			}
			if err := w.fill(4); err != nil {
				return nil, 0, err
			}
			n := frameLen(w.buf[w.r:])
			w.r += 4
			w.partial.left, w.partial.more = n, n == maxFrame
			w.big = slices.Grow(w.big, max(0, min(n, w.limit-len(w.big))))
		}
		for w.partial.left > 0 {
			if w.r == w.w {
				if err := w.fill(1); err != nil {
					return nil, 0, err
				}
			}
			n := min(w.w-w.r, w.partial.left)
			part := w.buf[w.r : w.r+n]
			if room := w.limit - len(w.big); room > 0 {
				kept := min(n, room)
				w.big = append(w.big, part[:kept]...)
				part = part[kept:]
				if len(w.big) == w.limit && w.overflow != nil {
					var err error
					if w.rest, err = w.overflow(w.big); err != nil {
						return nil, 0, err
					}
				}
			} else if w.rest == nil {
				part = nil
			}
			if w.rest != nil && len(part) > 0 {
				if _, err := w.rest.Write(part); err != nil {
					return nil, 0, err
				}
			}
			w.r += n
			w.partial.left -= n
			w.partial.total += n
		}
		w.partial.left = -1
	}
	w.partial.on, w.rest = false, nil
	p := w.big
	if cap(w.big) > 4<<20 {
		w.big = nil // one giant is no reason to keep its room
	}
	return p, w.partial.total, nil
}

// fill sees to it that n bytes from w.r on are in the buffer; n is at most the buffer's length.
func (w *wireReader) fill(n int) error {
	for w.w-w.r < n {
		if w.r == w.w {
			w.r, w.w = 0, 0
		} else if w.r+n > len(w.buf) || w.r > len(w.buf)/2 {
			copy(w.buf, w.buf[w.r:w.w])
			w.w -= w.r
			w.r = 0
		}
		if err := w.conn.SetReadDeadline(time.Now().Add(w.timeout)); err != nil {
			return err
		}
		// The caller's AfterFunc sets a deadline in the past once ctx is done; looked at after our own one was set, no
		// order of the two misses it.
		if err := w.ctx.Err(); err != nil {
			return err
		}
		m, err := w.conn.Read(w.buf[w.w:])
		w.w += m
		if m > 0 {
			continue
		}
		if cerr := w.ctx.Err(); cerr != nil {
			return cerr
		}
		if err == nil {
			err = io.ErrNoProgress
		}
		return err
	}
	return nil
}
