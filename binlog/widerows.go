package binlog

import (
	"encoding/binary"
	"hash"
	"hash/crc32"
	"io"

	"github.com/outtail/outtail/event"
)

// wideRows reads a rows event of ours that is larger than the reader keeps. It may hold many rows, none of them too large, or
// one beyond limits.row: so it is read column by column as its bytes come. Values that nobody wants, and those beyond limits.row,
// are passed over without being kept (I11); a row beyond the limit still has its id and its place in the order.
type wideRows struct {
	st  *stream
	p   *plan
	img rowImage
	tx  *event.Tx

	left int         // bytes of the event still to come, without the checksum
	sum  hash.Hash32 // nil: no checksum follows
	want []byte      // the checksum

	phase  widePhase
	item   []byte // what is collected, up to need bytes
	need   int
	pass   int // bytes to pass over
	null   []byte
	col    int  // the field that is read
	bit    int  // its place among the present ones
	skip   bool // the row was delivered before, or is to be later
	past   bool // it is one of the past, of a versioned table
	counts bool // it has a place in the transaction

	row    event.Event
	seg    segment // values of the running row
	size   int     // bytes of the row's wanted values, the ones not kept included
	column string
	bad    error
}

type widePhase uint8

const (
	wideNulls widePhase = iota
	wideLength
	wideValue
)

// widen begins to read an event of which ev is there; nil is a foreign table's.
func (st *stream) widen(h header, ev []byte, sum bool) (io.Writer, error) {
	p, head, err := st.planOf(h.kind, ev[headerLen:])
	if p == nil || err != nil {
		return nil, err
	}
	if p.layout == nil {
		if p.layout, err = st.s.layout(st, p); err != nil {
			return nil, err
		}
	}
	img, rows, ok := parseRowImage(head.body)
	if !ok || img.count == 0 || img.columns != len(p.layout.fields) {
		return nil, st.damaged("a rows event cannot be read")
	}
	if col := p.layout.lacks(img); col != "" {
		if err := st.excuse(st.partial(p, col)); err != nil {
			return nil, err
		}
	}
	img.present = append([]byte(nil), img.present...)
	w := &wideRows{st: st, p: p, img: img, tx: st.txRef(h), left: int(h.size) - (len(ev) - len(rows)), need: (img.count + 7) / 8}
	if sum {
		w.left -= 4
		w.sum = crc32.NewIEEE()
		_, _ = w.sum.Write(ev[:len(ev)-len(rows)])
	}
	st.wide = w
	_, err = w.Write(rows)
	return w, err
}

// Write takes the next bytes of the event.
func (w *wideRows) Write(b []byte) (int, error) {
	n := len(b)
	data := b[:min(len(b), w.left)]
	w.want = append(w.want, b[len(data):]...)
	w.left -= len(data)
	if w.sum != nil {
		_, _ = w.sum.Write(data)
	}
	for len(data) > 0 {
		if w.pass > 0 {
			k := min(w.pass, len(data))
			data, w.pass = data[k:], w.pass-k
			if w.pass == 0 {
				if err := w.next(); err != nil {
					return 0, err
				}
			}
			continue
		}
		k := min(w.need-len(w.item), len(data))
		w.item = append(w.item, data[:k]...)
		data = data[k:]
		if len(w.item) < w.need {
			break
		}
		if err := w.whole(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// whole goes on where an item has come to its end.
func (w *wideRows) whole() error {
	switch w.phase {
	case wideNulls:
		w.null = append(w.null[:0], w.item...)
		w.row = event.Event{Row: w.p.layout.row}
		w.seg.buf, w.size, w.bad, w.column, w.past = w.seg.buf[:0], 0, nil, "", false
		w.counts, w.skip = w.st.tx.place(w.st.again)
		w.skip = !w.skip
		w.col, w.bit = -1, -1
	case wideLength:
		var b [8]byte
		copy(b[:], w.item)
		if w.value(int(binary.LittleEndian.Uint64(b[:]))) {
			return nil
		}
	case wideValue:
		w.render()
	}
	return w.next()
}

// value begins a value of so many bytes; false: there is nothing to wait for.
func (w *wideRows) value(n int) bool {
	f := &w.p.layout.fields[w.col]
	w.item = w.item[:0]
	if (len(f.wanted) == 0 || w.skip) && !f.rowEnd {
		w.pass = n
		return n > 0
	}
	if n > w.st.s.rowLimit || w.size > w.st.s.rowLimit && n > shortValue {
		w.size += n
		w.pass = n
		return n > 0
	}
	w.phase, w.need = wideValue, n
	if n == 0 {
		w.render()
	}
	return n > 0
}

func (w *wideRows) render() {
	f := &w.p.layout.fields[w.col]
	if f.rowEnd {
		w.past = past(w.item)
	}
	at := len(w.seg.buf)
	if column, bad := f.fill(&w.seg, &w.row, w.item); bad != nil && w.bad == nil {
		w.column, w.bad = column, bad
	}
	w.size += len(w.seg.buf) - at
	w.item = w.item[:0]
}

// next goes to the next value that has bytes, or to the next row.
func (w *wideRows) next() error {
	w.item = w.item[:0]
	for {
		if w.col++; w.col == len(w.p.layout.fields) {
			w.phase, w.need = wideNulls, (w.img.count+7)/8
			return w.end()
		}
		if w.img.present[w.col/8]>>(w.col%8)&1 == 0 {
			continue
		}
		f := &w.p.layout.fields[w.col]
		if w.bit++; w.null[w.bit>>3]>>(w.bit&7)&1 == 1 {
			for _, r := range f.wanted {
				w.row.Row[r.role] = event.Value{Set: true, Null: true}
			}
			continue
		}
		switch f.size {
		case sizeLength:
			w.phase, w.need = wideLength, f.n
			return nil
		case sizeFixed:
			if w.value(f.n) {
				return nil
			}
		default:
			return w.st.rowFault(w.p, errRows)
		}
	}
}

// end takes in the row.
func (w *wideRows) end() error {
	st := w.st
	if w.past {
		st.tx.raw-- // it has no number
		st.pastRow()
		return nil
	}
	if w.skip {
		if w.counts {
			st.tx.rows++
		}
		return nil
	}
	if w.size > st.s.rowLimit {
		w.row.Err = st.tooLarge(w.p.table, &w.row.Row, w.size)
		keepShort(&w.seg, &w.row, 0)
	}
	seg := st.asm.room(len(w.seg.buf))
	seg.events = append(seg.events, event.Event{})
	ev := &seg.events[len(seg.events)-1]
	at := len(seg.buf)
	var row [1]event.Event
	copyRows(seg, row[:], []event.Event{w.row})
	*ev = row[0]
	return st.takeRow(w.p, w.tx, seg, ev, at, w.column, w.bad)
}

// wideEnd ends the event.
func (st *stream) wideEnd() error {
	w := st.wide
	st.wide = nil
	if w.sum != nil && (len(w.want) != 4 || binary.LittleEndian.Uint32(w.want) != w.sum.Sum32()) {
		return st.damaged("an event fails its checksum")
	}
	if w.left != 0 || w.phase != wideNulls || len(w.item) != 0 {
		return st.rowFault(w.p, errRows)
	}
	if st.again.flowing() {
		st.asm.settle()
	}
	return nil
}
