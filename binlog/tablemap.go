package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Column types, from include/field_types.h; 140 and 141 are MariaDB's compressed columns.
const (
	typeDecimal     = 0
	typeTiny        = 1
	typeShort       = 2
	typeLong        = 3
	typeFloat       = 4
	typeDouble      = 5
	typeNull        = 6
	typeTimestamp   = 7
	typeLongLong    = 8
	typeInt24       = 9
	typeDate        = 10
	typeTime        = 11
	typeDatetime    = 12
	typeYear        = 13
	typeNewDate     = 14
	typeVarchar     = 15
	typeBit         = 16
	typeTimestamp2  = 17
	typeDatetime2   = 18
	typeTime2       = 19
	typeBlobPacked  = 140
	typeVarPacked   = 141
	typeVector      = 242
	typeJSON        = 245
	typeNewDecimal  = 246
	typeEnum        = 247
	typeSet         = 248
	typeTinyBlob    = 249
	typeMediumBlob  = 250
	typeLongBlob    = 251
	typeBlob        = 252
	typeVarString   = 253
	typeString      = 254
	typeGeometry    = 255
	charsetBinary   = 63
	charsetUnproved = -1
)

// column is what a TABLE_MAP_EVENT says of one column, and what its optional metadata or the catalogue adds.
type column struct {
	kind     byte // the real type: ENUM and SET come as STRING with the real type in meta
	meta     uint16
	name     string
	unsigned bool
	charset  int // collation id; charsetUnproved where nobody said
	labels   [][]byte
	// labelsUTF8: the labels came from the catalogue through a utf8mb4 connection, not from the log in the column's charset.
	labelsUTF8 bool
	opaque     opaque
	nullable   bool
	rowEnd     bool // MariaDB: until when a row of a versioned table was current
	width      int  // ZEROFILL: printed with this many digits at least
	decimals   int  // FLOAT(M,D), DOUBLE(M,D): D+1; 0 as many as needed
}

// opaque is a MariaDB type whose bytes in the log are not its text. The log calls it BINARY(n); only the catalogue knows better.
type opaque uint8

const (
	opaqueUUID opaque = iota + 1
	opaqueINET4
	opaqueINET6
)

// tableMap is a parsed TABLE_MAP_EVENT.
type tableMap struct {
	schema, table []byte
	columns       []column
	named         bool // column names are in the event (binlog_row_metadata=FULL)
	signs         bool // signedness is known
	charsets      bool // charsets of character columns are known
	labels        bool // the labels of ENUM and SET columns are known
	maria         bool
}

var errTableMap = errors.New("the table map cannot be read")

// tableMapHead gives id and names without looking at the rest.
func tableMapHead(body []byte) (id uint64, schema, table []byte, rest []byte, ok bool) {
	if len(body) < 9 {
		return 0, nil, nil, nil, false
	}
	id = uint64(binary.LittleEndian.Uint32(body)) | uint64(binary.LittleEndian.Uint16(body[4:]))<<32
	n := int(body[8])
	body = body[9:]
	if len(body) < n+2 {
		return 0, nil, nil, nil, false
	}
	schema, body = body[:n], body[n+1:]
	n = int(body[0])
	body = body[1:]
	if len(body) < n+1 {
		return 0, nil, nil, nil, false
	}
	return id, schema, body[:n], body[n+1:], true
}

// maxColumns is above the 4096 columns that a table may have, plus hidden ones.
const maxColumns = 1 << 13

func parseTableMap(body []byte, maria bool) (*tableMap, error) {
	_, schema, table, rest, ok := tableMapHead(body)
	if !ok {
		return nil, errTableMap
	}
	n, rest, ok := lenenc(rest)
	if !ok || n > maxColumns || uint64(len(rest)) < n {
		return nil, errTableMap
	}
	t := &tableMap{schema: bytes.Clone(schema), table: bytes.Clone(table), columns: make([]column, n), maria: maria}
	kinds := rest[:n]
	size, rest, ok := lenenc(rest[n:])
	if !ok || uint64(len(rest)) < size {
		return nil, errTableMap
	}
	meta := rest[:size]
	rest = rest[size:]
	for i, kind := range kinds {
		c := &t.columns[i]
		c.kind, c.charset = kind, charsetUnproved
		width := metaWidth(kind)
		if len(meta) < width {
			return nil, errTableMap
		}
		switch width {
		case 1:
			c.meta = uint16(meta[0])
		case 2:
			c.meta = binary.LittleEndian.Uint16(meta)
			if kind == typeString {
				// The real type in the first byte, whose bits 4 and 5 hold, inverted, bits 8 and 9 of the length.
				first, length := meta[0], uint16(meta[1])
				if first&0x30 != 0x30 {
					length |= uint16(first&0x30^0x30) << 4
					first |= 0x30
				}
				c.kind, c.meta = first, length
			}
		}
		meta = meta[width:]
	}
	null := (int(n) + 7) / 8
	if len(rest) < null {
		return nil, errTableMap
	}
	for i := range t.columns {
		t.columns[i].nullable = rest[i/8]>>(i%8)&1 == 1
	}
	return t, t.optional(rest[null:])
}

// metaWidth is how many bytes of metadata a type has (sql/field.cc, do_save_field_metadata).
func metaWidth(kind byte) int {
	switch kind {
	case typeFloat, typeDouble, typeTimestamp2, typeDatetime2, typeTime2, typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob,
		typeGeometry, typeJSON, typeVector, typeBlobPacked:
		return 1
	case typeVarchar, typeVarString, typeString, typeBit, typeNewDecimal, typeEnum, typeSet, typeVarPacked:
		return 2
	}
	return 0
}

func (c *column) numeric() bool {
	switch c.kind {
	case typeTiny, typeShort, typeInt24, typeLong, typeLongLong, typeNewDecimal, typeDecimal, typeFloat, typeDouble, typeYear:
		return true
	}
	return false
}

func (c *column) character() bool {
	switch c.kind {
	case typeString, typeVarString, typeVarchar, typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob, typeBlobPacked, typeVarPacked:
		return true
	}
	return false
}

// oldTime: MariaDB tables of before 10.1 (mysql56_temporal_format = OFF) have times in a format of which the log does not tell the
// fraction's digits, and so not the length.
func (c *column) oldTime() bool {
	return c.kind == typeTimestamp || c.kind == typeDatetime || c.kind == typeTime
}

// collated reports whether the log counts a column among those that have a character set. The servers differ in what else is
// counted, with the set binary.
func (t *tableMap) collated(c *column) bool {
	return c.character() || c.kind == typeGeometry && t.maria || c.kind == typeVector && !t.maria
}

func (c *column) labelled() bool { return c.kind == typeEnum || c.kind == typeSet }

// optional reads type-length-value metadata (enum Optional_metadata_field_type).
func (t *tableMap) optional(b []byte) error {
	var labelSets bool
	for len(b) > 0 {
		kind := b[0]
		n, rest, ok := lenenc(b[1:])
		if !ok || uint64(len(rest)) < n {
			return errTableMap
		}
		v := rest[:n]
		b = rest[n:]
		switch kind {
		case 1: // signedness: a bit per numeric column, highest first, 1 is unsigned
			t.signs = true
			i := 0
			for c := range t.each((*column).numeric) {
				if i/8 >= len(v) {
					return errTableMap
				}
				c.unsigned = v[i/8]>>(7-i%8)&1 == 1
				i++
			}
		case 2, 10: // default charset of character (2) or ENUM and SET (10) columns, then pairs of column and charset
			which := t.collated
			if kind == 10 {
				which = (*column).labelled
			} else {
				t.charsets = true
			}
			def, rest, ok := lenenc(v)
			if !ok {
				return errTableMap
			}
			other := map[uint64]uint64{}
			for len(rest) > 0 {
				var col, cs uint64
				if col, rest, ok = lenenc(rest); !ok {
					return errTableMap
				}
				if cs, rest, ok = lenenc(rest); !ok {
					return errTableMap
				}
				other[col] = cs
			}
			i := uint64(0)
			for c := range t.each(which) {
				cs, ok := other[i]
				if !ok {
					cs = def
				}
				c.charset = int(cs & 0xffff)
				i++
			}
		case 3, 11: // a charset for each character (3) or ENUM and SET (11) column
			which := t.collated
			if kind == 11 {
				which = (*column).labelled
			} else {
				t.charsets = true
			}
			for c := range t.each(which) {
				var cs uint64
				if cs, v, ok = lenenc(v); !ok {
					return errTableMap
				}
				c.charset = int(cs & 0xffff)
			}
		case 4: // names
			t.named = true
			for i := range t.columns {
				n, rest, ok := lenenc(v)
				if !ok || uint64(len(rest)) < n {
					return errTableMap
				}
				t.columns[i].name = string(rest[:n])
				v = rest[n:]
			}
		case 5, 6: // labels of SET (5) and ENUM (6) columns
			want := byte(typeSet)
			if kind == 6 {
				want = typeEnum
			}
			labelSets = true
			for c := range t.each(func(c *column) bool { return c.kind == want }) {
				n, rest, ok := lenenc(v)
				if !ok || n > 1<<16 {
					return errTableMap
				}
				v = rest
				c.labels = make([][]byte, 0, n)
				for range n {
					m, rest, ok := lenenc(v)
					if !ok || uint64(len(rest)) < m {
						return errTableMap
					}
					c.labels = append(c.labels, bytes.Clone(rest[:m]))
					v = rest[m:]
				}
			}
		}
	}
	t.labels = labelSets
	return nil
}

func (t *tableMap) each(which func(*column) bool) func(func(*column) bool) {
	return func(yield func(*column) bool) {
		for i := range t.columns {
			if which(&t.columns[i]) && !yield(&t.columns[i]) {
				return
			}
		}
	}
}
