package binlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// logWriter builds what a server sends: packets with events, as mysqld writes them.
type logWriter struct {
	bytes.Buffer
	seq byte
	pos uint32
	at  uint32
	// server is who wrote the events; 0 is 1.
	server uint32

	begins map[uint32]int // where in the bytes the event lies that begins at a position
}

func (w *logWriter) packet(p []byte) {
	for {
		n := min(len(p), maxFrame)
		w.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), w.seq})
		w.seq++
		w.Write(p[:n])
		p = p[n:]
		if n < maxFrame {
			return
		}
	}
}

func (w *logWriter) event(kind byte, flags uint16, body []byte) {
	if w.begins == nil {
		w.begins = map[uint32]int{}
	}
	w.begins[w.pos] = w.Len()
	size := uint32(headerLen + len(body) + 4)
	next := uint32(0)
	if flags&flagArtificial == 0 {
		w.pos += size
		next = w.pos
	}
	ev := binary.LittleEndian.AppendUint32(nil, w.at)
	ev = binary.LittleEndian.AppendUint32(append(ev, kind), max(w.server, 1))
	ev = binary.LittleEndian.AppendUint32(ev, size)
	ev = binary.LittleEndian.AppendUint32(ev, next)
	ev = binary.LittleEndian.AppendUint16(ev, flags)
	ev = append(ev, body...)
	ev = binary.LittleEndian.AppendUint32(ev, crc32.ChecksumIEEE(ev))
	w.packet(append([]byte{0}, ev...))
}

// file begins a file.
func (w *logWriter) file(name string) {
	w.rotateTo(name, 4)
	w.pos = 4
	w.description(0)
}

func (w *logWriter) rotateTo(name string, pos uint64) {
	w.event(evRotate, flagArtificial, append(binary.LittleEndian.AppendUint64(nil, pos), name...))
}

func (w *logWriter) description(flags uint16) {
	body := make([]byte, 57, 100)
	body[0] = 4
	copy(body[2:], "9.7.0")
	body[56] = headerLen
	body = append(body, make([]byte, 41)...)
	w.event(evFormatDescription, flags, append(body, 1))
}

// from is what a dump from a position sends.
func (w *logWriter) from(log []byte, name string, pos uint64) []byte {
	head := &logWriter{}
	head.rotateTo(name, pos)
	head.description(flagArtificial)
	return append(head.Bytes(), log[w.begins[uint32(pos)]:]...)
}

func (w *logWriter) gtid(n int64) {
	body := make([]byte, 42, 60)
	body[1] = 0xaa
	binary.LittleEndian.PutUint64(body[17:], uint64(n))
	body[25] = 2
	w.event(evGTID, 0, append(body, 0x40, 0x42, 0x0f, 0, 0, 0, 0)) // one second after 1970
}

func (w *logWriter) anonymous() { w.event(evAnonymousGTID, 0, make([]byte, 42)) }

func (w *logWriter) query(text string) {
	body := make([]byte, 13, 64)
	body[8] = 4
	w.event(evQuery, 0, append(append(body, "shop\x00"...), text...))
}

func (w *logWriter) tableMap(id byte, schema, name string, kinds, meta []byte) {
	body := []byte{id, 0, 0, 0, 0, 0, 1, 0, byte(len(schema))}
	body = append(append(body, schema...), 0, byte(len(name)))
	body = append(append(body, name...), 0, byte(len(kinds)))
	body = append(body, kinds...)
	body = append(append(body, byte(len(meta))), meta...)
	w.event(evTableMap, 0, append(body, make([]byte, (len(kinds)+7)/8)...))
}

// outboxMap is the table of the tests: id BIGINT, payload LONGTEXT.
func (w *logWriter) outboxMap() {
	w.tableMap(9, "shop", "outbox", []byte{typeLongLong, typeBlob}, []byte{4})
}

// rows writes inserted rows into the table of the tests; ids ascend from first.
func (w *logWriter) rows(first uint64, payloads ...string) {
	body := []byte{9, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff}
	for i, p := range payloads {
		body = append(body, 0)
		body = binary.LittleEndian.AppendUint64(body, first+uint64(i))
		body = binary.LittleEndian.AppendUint32(body, uint32(len(p)))
		body = append(body, p...)
	}
	w.event(evWriteRows, 0, body)
}

// xaPrepare ends a group as MySQL and MariaDB do.
func (w *logWriter) xaPrepare(x xid, onePhase bool) {
	w.query("XA END " + x.String())
	body := []byte{0}
	if onePhase {
		body[0] = 1
	}
	body = binary.LittleEndian.AppendUint32(body, uint32(x.format))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(x.global)))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(x.local)))
	w.event(evXAPrepare, 0, append(append(body, x.global...), x.local...))
}

func (w *logWriter) xid() { w.event(evXID, 0, make([]byte, 8)) }

func (w *logWriter) heartbeat(file string) {
	pos := w.pos
	w.event(evHeartbeatV2, 0, append([]byte{1, byte(len(file))}, append([]byte(file), 2, 5, 0xfd, byte(pos), byte(pos>>8), byte(pos>>16), 0)...))
	w.pos = pos
}

// fedConn is a connection whose server has sent bytes already and then keeps silent, or ends.
type fedConn struct {
	io.Reader
	end  error // nil: silence until a deadline
	wake chan struct{}
}

func (c *fedConn) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if n > 0 || err != io.EOF {
		return n, err
	}
	if c.end != nil {
		return 0, c.end
	}
	<-c.wake
	return 0, os.ErrDeadlineExceeded
}

func (c *fedConn) SetReadDeadline(t time.Time) error {
	if t.Before(time.Now()) {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return nil
}
func (c *fedConn) Write([]byte) (int, error)        { return 0, io.ErrClosedPipe }
func (c *fedConn) Close() error                     { return nil }
func (c *fedConn) LocalAddr() net.Addr              { return nil }
func (c *fedConn) RemoteAddr() net.Addr             { return nil }
func (c *fedConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *fedConn) SetWriteDeadline(time.Time) error { return nil }

// feed makes a source whose session reads these bytes.
func feed(t testing.TB, log io.Reader, end error, change ...func(*Options)) (*Source, *stream) {
	o := Options{Kind: event.MySQL, Pipeline: "orders", Tables: []string{"shop.outbox"}, SpillDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	o.Columns[event.ID].Column = "id"
	o.Columns[event.Payload].Column = "payload"
	for _, c := range change {
		c(&o)
	}
	s, err := New(o)
	require.NoError(t, err)
	s.ctx = context.Background()
	s.server = &server{uuid: uuidA, gtids: true, charsets: map[int]string{45: "utf8mb4", charsetBinary: "binary"}}
	s.identity.Store(s.server)
	s.known = map[*table]*known{&s.tables[0]: {proved: definition{{"id", "bigint", ""}, {"payload", "longtext", "utf8mb4"}}}}
	st := &stream{
		s: s, asm: newAssembler(s.pool), spillAt: 4 << 20, ledger: &ledger{at: folded{set: newGTIDSet()}}, log: s.log, sids: map[sid]*sid{}, domains: newDomains(nil),
	}
	st.readFrom(newWireReader(&fedConn{Reader: log, end: end, wake: make(chan struct{}, 1)}, time.Minute, s.readLimit()))
	s.st, s.reading, s.mark = st, context.Background(), &xaMark{}
	st.xa, err = loadPrepared(o.Prepared, s.o.XALimit, reach{})
	require.NoError(t, err)
	s.ledger.Store(st.ledger)
	t.Cleanup(func() { _ = s.Close() })
	return s, st
}
