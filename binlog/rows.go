package binlog

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/outtail/outtail/event"
)

var errRows = errors.New("the rows event cannot be read")

// rowsHead is the fixed part of a rows event.
type rowsHead struct {
	table uint64
	last  bool // the statement ends with this event
	body  []byte
}

// parseRowsHead reads table id, flags and, in version 2, the extra data (whose length counts itself).
func parseRowsHead(kind byte, b []byte) (h rowsHead, ok bool) {
	if len(b) < 8 {
		return h, false
	}
	h.table = uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
	h.last = b[6]&1 != 0
	b = b[8:]
	switch kind {
	case evWriteRows, evUpdateRows, evDeleteRows, evPartialUpdateRows:
		if len(b) < 2 {
			return h, false
		}
		n := int(binary.LittleEndian.Uint16(b))
		if n < 2 || len(b) < n {
			return h, false
		}
		b = b[n:]
	}
	h.body = b
	return h, true
}

// rowImage is the part between a rows event's head and its rows: which columns each row has.
type rowImage struct {
	columns int
	present []byte
	count   int // of present columns
}

func parseRowImage(b []byte) (img rowImage, rows []byte, ok bool) {
	n, b, ok := lenenc(b)
	if !ok || n > maxColumns {
		return img, nil, false
	}
	size := (int(n) + 7) / 8
	if len(b) < size {
		return img, nil, false
	}
	img.columns, img.present = int(n), b[:size]
	for i, c := range img.present {
		if i == size-1 && n%8 != 0 {
			c &= 1<<(n%8) - 1
		}
		img.count += bits.OnesCount8(c)
	}
	return img, b[size:], true
}

// lacks names a column that is needed and that the image has not; "" where it has all (binlog_row_image).
func (l *layout) lacks(img rowImage) string {
	if img.count == img.columns {
		return ""
	}
	for i := range l.fields {
		if (len(l.fields[i].wanted) > 0 || i == l.rowEnd) && (i >= img.columns || img.present[i/8]>>(i%8)&1 == 0) {
			return l.fields[i].name
		}
	}
	return ""
}

// decode reads one row into ev, whose bytes go into s, and gives what follows it. bad is set where the row's values cannot be
// rendered for their own sake (the first such column and why); an error means that the end of the row is not known.
func (l *layout) decode(s *segment, ev *event.Event, img rowImage, b []byte) (rest []byte, badColumn string, bad, err error) {
	nulls := (img.count + 7) / 8
	if len(b) < nulls || img.columns != len(l.fields) {
		return nil, "", nil, errRows
	}
	null := b[:nulls]
	b = b[nulls:]
	ev.Row = l.row
	whole := img.count == img.columns
	bit := 0
	for i := range l.fields {
		f := &l.fields[i]
		if !whole && img.present[i/8]>>(i%8)&1 == 0 {
			continue
		}
		isNull := null[bit>>3]>>(bit&7)&1 == 1
		bit++
		if isNull {
			for _, w := range f.wanted {
				ev.Row[w.role] = event.Value{Set: true, Null: true}
			}
			continue
		}
		v, after, ok := f.valueEnd(b)
		if !ok {
			return nil, "", nil, errRows
		}
		b = after
		if len(f.wanted) > 0 {
			if column, verr := f.fill(s, ev, v); verr != nil && bad == nil {
				badColumn, bad = column, verr
			}
		}
	}
	return b, badColumn, bad, nil
}

// countRows counts the rows of an update (two images each) or delete event, as far as they can be told apart by their types alone, and
// how many of the updates end a row of a versioned table, whose column rowEnd says so (-1 is none).
func (t *tableMap) countRows(b []byte, update bool, rowEnd int) (n, ended int) {
	first, b, ok := parseRowImage(b)
	if !ok || first.columns != len(t.columns) || first.count == 0 {
		return 0, 0
	}
	images := []rowImage{first}
	if update {
		size := (first.columns + 7) / 8
		if len(b) < size {
			return 0, 0
		}
		second := rowImage{columns: first.columns, present: b[:size]}
		for i := range first.columns {
			second.count += int(second.present[i/8] >> (i % 8) & 1)
		}
		images, b = append(images, second), b[size:]
	}
	for len(b) > 0 {
		var until []byte
		for i := range images {
			if until, b, ok = t.skipRow(&images[i], b, rowEnd); !ok {
				return n, ended
			}
		}
		n++
		if past(until) {
			ended++
		}
	}
	return n, ended
}

// skipRow finds the end of a row, and on the way the value of one of its columns: nil where it has none.
func (t *tableMap) skipRow(img *rowImage, b []byte, want int) (v, rest []byte, ok bool) {
	nulls := (img.count + 7) / 8
	if len(b) < nulls || img.columns != len(t.columns) {
		return nil, nil, false
	}
	null := b[:nulls]
	b = b[nulls:]
	bit := 0
	for i := range t.columns {
		if img.present[i/8]>>(i%8)&1 == 0 {
			continue
		}
		isNull := null[bit>>3]>>(bit&7)&1 == 1
		bit++
		if isNull {
			continue
		}
		f := field{column: t.columns[i]}
		f.size, f.n = valueSize(&f.column)
		var value []byte
		if value, b, ok = f.valueEnd(b); !ok {
			return nil, nil, false
		}
		if i == want {
			v = value
		}
	}
	return v, b, true
}

// fill renders a value for each role that wants it; where one cannot be rendered, it stays unset, and the column and why are told.
func (f *field) fill(s *segment, ev *event.Event, v []byte) (badColumn string, bad error) {
	for _, w := range f.wanted {
		if w.same {
			ev.Row[w.role] = ev.Row[w.alias]
			continue
		}
		at := len(s.buf)
		out, err := f.appendValue(s.buf, v, w.role, w.form)
		if err != nil {
			if bad == nil {
				badColumn, bad = f.name, err
			}
			ev.Row[w.role] = event.Value{}
			continue
		}
		s.buf = out
		ev.Row[w.role] = event.Value{Bytes: out[at:len(out):len(out)], Set: true}
	}
	return badColumn, bad
}
