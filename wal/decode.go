package wal

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/outtail/outtail/event"
)

// postgresEpoch is 2000-01-01, from which the server counts microseconds.
const postgresEpoch = 946684800_000_000

// wire reads pgoutput's big-endian fields (protocol-logicalrep-message-formats, version 1). A read past the end sets bad
// and yields zeros, so that a message is checked once at its end.
type wire struct {
	b   []byte
	bad bool
}

func (w *wire) take(n int) []byte {
	if n < 0 || n > len(w.b) {
		w.bad, w.b = true, nil
		return nil
	}
	v := w.b[:n]
	w.b = w.b[n:]
	return v
}

func (w *wire) byte() byte {
	if v := w.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (w *wire) u16() int {
	if v := w.take(2); v != nil {
		return int(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (w *wire) u32() uint32 {
	if v := w.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (w *wire) u64() uint64 {
	if v := w.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

// text reads a zero-terminated string.
func (w *wire) text() []byte {
	for i, c := range w.b {
		if c == 0 {
			v := w.b[:i]
			w.b = w.b[i+1:]
			return v
		}
	}
	w.bad, w.b = true, nil
	return nil
}

// decoder turns pgoutput messages into events. It is a pure state machine: no network, no clock.
type decoder struct {
	columns  *event.Columns
	targets  []target
	slot     string
	place    string
	rowLimit int
	// tolerant delivers rows that lack a mapped column (accepted by a person); else they are a safety stop.
	tolerant bool
	prefix   *event.Prefix

	// messages is what events of logical messages begin with, nil where they are not asked for; ignored counts others.
	messages *relation
	ignored  func()
	// parts finds the table of a partition, nil where rows come under the tables' own names.
	parts func(id uint32, n name) (*target, *event.Fault)

	relations map[uint32]*relation
	lastID    uint32
	last      *relation

	// inTx is true between Begin and Commit.
	inTx   bool
	final  event.LSN // commit LSN of the transaction
	commit int64     // its commit time, microseconds since 2000
	tx     *event.Tx // made with the first of our rows
	row    uint64    // rows of ours so far
	skip   uint64    // of them not to be delivered: the stored prefix
	// at is the end of the last finished transaction, or a keepalive's end of log after it; it never decreases.
	at event.LSN
	// lag is how long after its commit the last transaction was sent, by the server's clock.
	lag time.Duration
	// ours is set when a transaction with rows of ours ended: its bound is not to wait.
	ours bool
}

func newDecoder(o *Options, targets []target, at event.LSN, prefix *event.Prefix) *decoder {
	d := &decoder{
		columns: &o.Columns, targets: targets, slot: o.Slot, place: o.place(), rowLimit: o.RowLimit, prefix: prefix,
		relations: map[uint32]*relation{}, at: at, ignored: func() {},
	}
	if o.Messages {
		d.messages = &relation{table: messageTable, row: constants(&o.Columns)}
	}
	return d
}

// message decodes one pgoutput message into l.
func (d *decoder) message(l *load, m []byte) *event.Fault {
	if len(m) == 0 {
		return d.malformed('?')
	}
	w := wire{b: m[1:]}
	switch m[0] {
	case 'I':
		return d.insert(l, &w)
	case 'B':
		return d.begin(&w)
	case 'C':
		return d.end(l, &w)
	case 'R':
		return d.relation(&w)
	case 'M':
		return d.logical(l, &w)
	case 'U', 'D', 'T', 'Y', 'O':
		// Updates, deletes, truncates, types and origins are not inserts into a table (I2).
		return nil
	}
	return faultProtocol(d.place, fmt.Sprintf("the server sent a message of the unknown type %q", m[0]))
}

func (d *decoder) malformed(kind byte) *event.Fault {
	return faultProtocol(d.place, fmt.Sprintf("a message of type %q is malformed, after %s", kind, d.at))
}

func (d *decoder) begin(w *wire) *event.Fault {
	final, commit := event.LSN(w.u64()), int64(w.u64())
	w.u32() // xid
	if w.bad || d.inTx {
		return d.malformed('B')
	}
	d.inTx, d.final, d.commit, d.tx, d.row, d.skip = true, final, commit, nil, 0, 0
	if d.prefix != nil {
		if d.prefix.Tx == final.String() {
			d.skip = d.prefix.Rows
		}
		// It names the first transaction with rows of ours after the position: once passed, it is done with.
		if lsn, err := event.ParseLSN(d.prefix.Tx); err != nil || final >= lsn {
			d.prefix = nil
		}
	}
	return nil
}

func (d *decoder) end(l *load, w *wire) *event.Fault {
	w.byte() // flags
	w.u64()  // commit LSN, known from Begin
	end := event.LSN(w.u64())
	w.u64() // commit time
	if w.bad || !d.inTx || end < d.at {
		return d.malformed('C')
	}
	d.inTx, d.tx, d.at = false, nil, end
	d.ours = d.ours || d.row > 0
	l.bound(end)
	return nil
}

// keepalive moves the position over what did not concern us (I6), but never while a transaction is being received: its
// commit lies before that end of log.
func (d *decoder) keepalive(l *load, end event.LSN) {
	if d.inTx || end <= d.at {
		return
	}
	d.at = end
	l.bound(end)
}

func (d *decoder) relation(w *wire) *event.Fault {
	id := w.u32()
	schema, table := w.text(), w.text()
	w.byte() // replica identity
	n := w.u16()
	if w.bad {
		return d.malformed('R')
	}
	t := match(d.targets, id, schema, table)
	if t == nil && d.parts != nil && !w.bad {
		var f *event.Fault
		if t, f = d.parts(id, name{string(schema), string(table)}); f != nil {
			return f
		}
	}
	cols := make([]wireColumn, 0, min(n, 1600))
	for range n {
		w.byte() // flags
		c := wireColumn{name: w.text(), typ: w.u32()}
		w.u32() // type modifier
		if w.bad {
			return d.malformed('R')
		}
		cols = append(cols, c)
	}
	r := compile(t, d.columns, cols)
	d.relations[id] = r
	d.lastID, d.last = id, r
	return nil
}

// find gives a relation; the server sends it before the first row that needs it.
func (d *decoder) find(id uint32) *relation {
	if d.last != nil && d.lastID == id {
		return d.last
	}
	r := d.relations[id]
	if r != nil {
		d.lastID, d.last = id, r
	}
	return r
}

// insert decodes one row: mapped columns only, text copied once into the batch's arena.
func (d *decoder) insert(l *load, w *wire) *event.Fault {
	r := d.find(w.u32())
	if r == nil || !d.inTx {
		return d.malformed('I')
	}
	if r.foreign {
		return nil
	}
	if skip, f := d.admit(r); skip || f != nil {
		return f
	}
	if w.byte() != 'N' {
		return d.malformed('I')
	}
	n := w.u16()
	if w.bad || n != len(r.plan) {
		return d.malformed('I')
	}
	e := d.open(l, r)
	size, left := 0, r.mapped
	for i := 0; i < n && left > 0; i++ {
		kind := w.byte()
		var v []byte
		switch kind {
		case 'n', 'u':
		case 't', 'b':
			v = w.take(int(int32(w.u32())))
		default:
			return d.malformed('I')
		}
		if w.bad {
			return d.malformed('I')
		}
		uses := r.plan[i]
		if uses == nil {
			continue
		}
		left--
		for _, u := range uses {
			size += d.value(l, e, u, kind, v)
		}
	}
	d.close(e, size)
	return nil
}

// admit counts a row of ours; skip says that the stored prefix has it.
func (d *decoder) admit(r *relation) (skip bool, _ *event.Fault) {
	if r.missing != "" && !d.tolerant {
		return false, faultColumnGone(d.place, r.table, r.missing)
	}
	if d.row < d.skip {
		d.row++
		return true, nil
	}
	return false, nil
}

// open begins the event of the next row.
func (d *decoder) open(l *load, r *relation) *event.Event {
	if d.tx == nil {
		d.tx = d.newTx(l)
	}
	e := l.next()
	e.Tx, e.Index, e.Table, e.Row = d.tx, d.row, r.table, r.row
	d.row++
	return e
}

func (d *decoder) close(e *event.Event, size int) {
	e.Size = size + eventCost
	if size > d.rowLimit && e.Err == nil {
		e.Err = d.tooLarge(e, size)
	}
}

func (d *decoder) tooLarge(e *event.Event, size int) *event.Fault {
	return faultRow(CodeRowTooLarge, d.rowPlace(e), fmt.Sprintf("the row has %d bytes, more than limits.row (%d)", size, d.rowLimit), "raise limits.row, or write smaller payloads")
}

// newTx makes the transaction's shared part: two pieces of one string, in slabs, and the LSN as event.LSN prints it, since most transactions have one row.
func (d *decoder) newTx(l *load) *event.Tx {
	if len(l.txs) == cap(l.txs) {
		l.txs = make([]event.Tx, 0, 64)
	}
	var scratch [128]byte
	b := append(append(append(scratch[:0], "postgres/"...), d.slot...), '/')
	head := len(b)
	b = strconv.AppendUint(b, uint64(d.final)>>32, 16)
	b = append(b, '/')
	b = strconv.AppendUint(b, uint64(d.final)&0xffffffff, 16)
	for i := head; i < len(b); i++ {
		if b[i] >= 'a' {
			b[i] -= 'a' - 'A'
		}
	}
	source := string(b)
	l.txs = append(l.txs, event.Tx{ID: source[head:], Source: source, Commit: time.UnixMicro(d.commit + postgresEpoch).UTC()})
	return &l.txs[len(l.txs)-1]
}

func (d *decoder) rowPlace(e *event.Event) string {
	return fmt.Sprintf("%s %s#%d", e.Table, e.Tx.ID, e.Index)
}

// value sets one role and says how many bytes it took.
func (d *decoder) value(l *load, e *event.Event, u use, kind byte, v []byte) int {
	out := &e.Row[u.role]
	out.Set = true
	switch kind {
	case 'n':
		out.Null = true
		return 0
	case 'u':
		// An insert has no old row to take a value from.
		e.Err = faultRow(CodeUnchangedToast, d.rowPlace(e), fmt.Sprintf("the value of role %s was not sent", u.role), "this must not happen; please report it with the server's version")
		return 0
	}
	if !u.binary {
		b := l.grab(len(v))
		copy(b, v)
		out.Bytes = b
		return len(b)
	}
	b, ok := d.bytea(l, u, v)
	if !ok {
		e.Err = faultRow(CodeBinaryValue, d.rowPlace(e), fmt.Sprintf("the binary value of role %s cannot be rendered", u.role), "a value rendered as uuid must have 16 bytes")
		return 0
	}
	out.Bytes = b
	return len(b)
}

// bytea renders the server's hex form: as payload the bytes themselves, else the form that was asked for.
func (d *decoder) bytea(l *load, u use, v []byte) ([]byte, bool) {
	if len(v) < 2 || v[0] != '\\' || v[1] != 'x' || len(v)%2 != 0 {
		return nil, false
	}
	v = v[2:]
	if u.role != event.Payload && u.as == event.Hex {
		b := l.grab(len(v))
		copy(b, v)
		return b, true
	}
	if u.role != event.Payload && u.as == event.UUID {
		if len(v) != 32 {
			return nil, false
		}
		b := l.grab(36)
		copy(b[0:8], v[0:8])
		copy(b[9:13], v[8:12])
		copy(b[14:18], v[12:16])
		copy(b[19:23], v[16:20])
		copy(b[24:36], v[20:32])
		b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
		return b, true
	}
	raw := l.grab(hex.DecodedLen(len(v)))
	if _, err := hex.Decode(raw, v); err != nil {
		return nil, false
	}
	if u.role == event.Payload {
		return raw, true
	}
	b := l.grab(base64.StdEncoding.EncodedLen(len(raw)))
	base64.StdEncoding.Encode(b, raw)
	return b, true
}
