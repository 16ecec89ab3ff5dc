package binlog

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/outtail/outtail/event"
)

// field is a column as the decoder sees it: how to find its end, and which roles want it.
type field struct {
	column
	size   sizeKind
	n      int // bytes of the value (fixed) or of the length before it
	text   textKind
	enc    transcoder
	astral bool // the character set has characters beyond the first plane
	room   int  // characters of a FLOAT or DOUBLE in plain form; 0 as many as needed
	limit  int  // bytes that a compressed value may unfold to
	wanted []want
}

// want is a role that a column fills. alias names an earlier role of the same column with the same form, whose bytes serve.
type want struct {
	role  event.Role
	form  event.Form
	alias event.Role
	same  bool
}

type sizeKind uint8

const (
	sizeFixed sizeKind = iota
	sizeLength
	sizeUnknown // a type that we have never heard of: nothing behind it can be found
)

// layout is how the rows of one table are read: everything that can be decided once is decided here.
type layout struct {
	table  string // as configured
	fields []field
	// consts holds the values of constant roles, and says which roles are mapped at all.
	row event.Row
	// missing names mapped columns that the table has not.
	missing []string
	rowEnd  int // the field that says whether a row is of the past (versioned.go); -1 none
}

// newLayout joins a table map with the mapping. charset names the character set of a collation id.
func newLayout(table string, columns []column, mapping event.Columns, charset func(int) string, texts charsets) *layout {
	l := &layout{table: table, fields: make([]field, len(columns)), rowEnd: slices.IndexFunc(columns, func(c column) bool { return c.rowEnd })}
	for i, c := range columns {
		f := field{column: c}
		f.size, f.n = valueSize(&c)
		l.fields[i] = f
	}
	for r := range event.RoleCount {
		m := mapping[r]
		if m.IsConst {
			l.row[r] = event.Value{Bytes: []byte(m.Constant), Set: true}
			continue
		}
		if m.Column == "" {
			continue
		}
		i := findColumn(columns, m.Column)
		if i < 0 {
			l.missing = append(l.missing, m.Column)
			continue
		}
		w := want{role: r, form: m.As}
		for _, o := range l.fields[i].wanted {
			if !o.same && (o.role == event.Payload) == (r == event.Payload) && o.form == m.As {
				w.alias, w.same = o.role, true
			}
		}
		l.fields[i].wanted = append(l.fields[i].wanted, w)
	}
	for i := range l.fields {
		f := &l.fields[i]
		switch {
		case len(f.wanted) == 0:
		case f.charset >= 0:
			name := charset(f.charset)
			f.text, f.enc = texts.of(name)
			f.astral = slices.Contains([]string{"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"}, name)
		case f.character() || f.labelled():
			f.text = textUnknown
		}
	}
	return l
}

// findColumn looks a name up as the server does, without regard to case.
func findColumn(columns []column, name string) int {
	for i := range columns {
		if equalFold(columns[i].name, name) {
			return i
		}
	}
	return -1
}

// valueSize is how a value's end is found (sql/rpl_utility / field.cc, calc_field_size).
func valueSize(c *column) (sizeKind, int) {
	if c.oldTime() && c.meta > 0 {
		return sizeUnknown, 0
	}
	switch c.kind {
	case typeNull:
		return sizeFixed, 0
	case typeTiny, typeYear:
		return sizeFixed, 1
	case typeShort:
		return sizeFixed, 2
	case typeInt24, typeDate, typeNewDate, typeTime:
		return sizeFixed, 3
	case typeLong, typeFloat, typeTimestamp:
		return sizeFixed, 4
	case typeLongLong, typeDouble, typeDatetime:
		return sizeFixed, 8
	case typeTimestamp2, typeDatetime2, typeTime2:
		if c.meta > 6 {
			return sizeUnknown, 0 // there are microseconds, and nothing below
		}
		whole := 4
		switch c.kind {
		case typeDatetime2:
			whole = 5
		case typeTime2:
			whole = 3
		}
		return sizeFixed, whole + fractionSize(int(c.meta))
	case typeNewDecimal:
		precision, scale := int(c.meta&0xff), int(c.meta>>8)
		if precision < scale {
			return sizeUnknown, 0
		}
		return sizeFixed, decimalSize(precision, scale)
	case typeBit:
		bits := int(c.meta&0xff) + 8*int(c.meta>>8)
		if bits > 64 {
			return sizeUnknown, 0
		}
		return sizeFixed, (bits + 7) / 8
	case typeEnum, typeSet:
		if c.meta < 1 || c.meta > 8 {
			return sizeUnknown, 0
		}
		return sizeFixed, int(c.meta)
	case typeVarchar, typeVarString, typeString, typeVarPacked:
		if c.meta > 255 {
			return sizeLength, 2
		}
		return sizeLength, 1
	case typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob, typeJSON, typeGeometry, typeVector, typeBlobPacked:
		if c.meta < 1 || c.meta > 4 {
			return sizeUnknown, 0
		}
		return sizeLength, int(c.meta)
	}
	return sizeUnknown, 0
}

// kindFits compares a logged type with one derived from the catalogue's words, which know only families.
// MariaDB's log has a VECTOR as a VARBINARY.
func kindFits(logged, defined byte) bool {
	return family(logged) == family(defined) || family(logged) == typeVarchar && defined == typeVector
}

func family(kind byte) byte {
	switch kind {
	case typeTinyBlob, typeMediumBlob, typeLongBlob, typeBlob, typeBlobPacked:
		return typeBlob
	case typeVarchar, typeVarString, typeVarPacked:
		return typeVarchar
	case typeTimestamp, typeTimestamp2:
		return typeTimestamp2
	case typeDatetime, typeDatetime2:
		return typeDatetime2
	case typeTime, typeTime2:
		return typeTime2
	case typeDate, typeNewDate:
		return typeDate
	}
	return kind
}

// merge gives the log's columns what the definition knows and the log does not say.
func merge(t *tableMap, defined []column) []column {
	out := make([]column, len(t.columns))
	copy(out, t.columns)
	for i := range out {
		d := &defined[i]
		if !t.named {
			out[i].name = d.name
		}
		if !t.signs {
			out[i].unsigned = d.unsigned
		}
		if out[i].charset < 0 {
			out[i].charset = d.charset
		}
		if out[i].labels == nil {
			out[i].labels, out[i].labelsUTF8 = d.labels, true
		}
		if out[i].oldTime() {
			out[i].meta = d.meta
		}
		out[i].width, out[i].decimals, out[i].opaque, out[i].rowEnd = d.width, d.decimals, d.opaque, d.rowEnd
	}
	return out
}

// complete reports whether the log alone says all that reading needs.
func (t *tableMap) complete() bool {
	if !t.named {
		return false
	}
	for i := range t.columns {
		c := &t.columns[i]
		// A table without numbers has no signs to tell.
		if c.numeric() && !t.signs || c.character() && c.charset < 0 || c.labelled() && c.labels == nil {
			return false
		}
	}
	return true
}

func equalFold(a, b string) bool {
	return a == b || bytes.EqualFold([]byte(a), []byte(b))
}

// valueEnd finds a value's bytes: v without its length, rest behind it.
func (f *field) valueEnd(b []byte) (v, rest []byte, ok bool) {
	if f.size == sizeFixed {
		if len(b) < f.n {
			return nil, nil, false
		}
		return b[:f.n], b[f.n:], true
	}
	if f.size != sizeLength || len(b) < f.n {
		return nil, nil, false
	}
	var n int
	switch f.n {
	case 1:
		n = int(b[0])
	case 2:
		n = int(binary.LittleEndian.Uint16(b))
	case 3:
		n = int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	default:
		n = int(binary.LittleEndian.Uint32(b))
	}
	b = b[f.n:]
	if len(b) < n {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
