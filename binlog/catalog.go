package binlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outtail/outtail/event"
)

// definition is a table's columns as the catalogue gives them, in the words that are stored with positions.
type definition []defColumn

type defColumn struct {
	Name    string `json:"n"`
	Type    string `json:"t"` // COLUMN_TYPE
	Charset string `json:"c,omitempty"`
}

// sighting is a definition with the log positions between which it was read: it holds at some point of that span.
type sighting struct {
	def           definition
	charset       string // the table's default character set
	before, after place
}

// place is a position in the log of one server.
type place struct {
	file string
	pos  uint64
}

// compare orders places. File names end in a number that grows; it is not always as wide.
func (p place) compare(o place) int {
	if c := compareFiles(p.file, o.file); c != 0 {
		return c
	}
	switch {
	case p.pos < o.pos:
		return -1
	case p.pos > o.pos:
		return 1
	}
	return 0
}

func compareFiles(a, b string) int {
	na, nb := fileNumber(a), fileNumber(b)
	switch {
	case na < nb:
		return -1
	case na > nb:
		return 1
	}
	return 0
}

func fileNumber(name string) uint64 {
	n, _ := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 10, 64)
	return n
}

// define reads a table's definition.
func (s *Source) define(ctx context.Context, c *conn, t *table) (definition, error) {
	where := fmt.Sprintf(" WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s", quote(t.schema), quote(t.table))
	more := ""
	if s.o.Kind == event.MariaDB {
		more = hiddenSQL(where)
	}
	r, err := c.query(ctx, "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME"+more+" FROM information_schema.COLUMNS"+where+" ORDER BY ORDINAL_POSITION")
	if err != nil {
		return nil, s.queryFault("read the columns of "+t.name, err)
	}
	d := make(definition, r.RowNumber())
	for i := range d {
		d[i].Name, _ = r.GetString(i, 0)
		d[i].Type, _ = r.GetString(i, 1)
		d[i].Charset, _ = r.GetString(i, 2)
	}
	if more != "" && len(d) > 0 {
		d = withHidden(d, r)
	}
	return d, nil
}

// sight reads a definition between two looks at the log's end. A DDL is in the log some moments before the catalogue shows it (the log is
// flushed first), so that a definition read just then would be older than the place says: the server is asked for something in between
// that waits for the lock which a DDL holds until it is done.
func (s *Source) sight(ctx context.Context, c *conn, t *table) (*sighting, error) {
	before, err := s.logEnd(ctx, c, false)
	if err != nil {
		return nil, err
	}
	var me *mysql.MyError
	if _, err := c.query(ctx, "SHOW CREATE TABLE "+backtick(t.schema)+"."+backtick(t.table)); err != nil && (!errors.As(err, &me) || me.Code == mysql.ER_LOCK_WAIT_TIMEOUT) {
		return nil, s.queryFault("read the columns of "+t.name, err)
	}
	d, err := s.define(ctx, c, t)
	if err != nil {
		return nil, err
	}
	charset, err := s.defaultCharset(ctx, c, t)
	if err != nil {
		return nil, err
	}
	after, err := s.logEnd(ctx, c, false)
	if err != nil {
		return nil, err
	}
	return &sighting{def: d, charset: charset, before: place{before.file, before.pos}, after: place{after.file, after.pos}}, nil
}

// defaultCharset reads what a column has that names no character set. A collation's name begins with its character set's.
func (s *Source) defaultCharset(ctx context.Context, c *conn, t *table) (string, error) {
	r, err := c.query(ctx, fmt.Sprintf("SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s", quote(t.schema), quote(t.table)))
	if err != nil {
		return "", s.queryFault("read the character set of "+t.name, err)
	}
	if r.RowNumber() == 0 {
		return "", nil
	}
	name, _ := r.GetString(0, 0)
	name, _, _ = strings.Cut(name, "_")
	return name, nil
}

// columns turns the catalogue's words into what rows are read by.
func (d definition) columns(charsetID func(string) int) ([]column, error) {
	out := make([]column, len(d))
	for i, c := range d {
		col, err := parseColumnType(c.Type)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		col.name, col.charset = c.Name, charsetUnproved
		switch {
		case c.Charset != "":
			col.charset = charsetID(c.Charset)
		case col.character(), col.kind == typeVector:
			col.charset = charsetBinary
		}
		out[i] = col
	}
	return out, nil
}

var typeWords = map[string]byte{
	"tinyint": typeTiny, "smallint": typeShort, "mediumint": typeInt24, "int": typeLong, "integer": typeLong, "bigint": typeLongLong,
	"float": typeFloat, "double": typeDouble, "real": typeDouble, "decimal": typeNewDecimal, "numeric": typeNewDecimal, "bit": typeBit, "year": typeYear,
	"date": typeDate, "time": typeTime2, "datetime": typeDatetime2, "timestamp": typeTimestamp2,
	"char": typeString, "varchar": typeVarchar, "binary": typeString, "varbinary": typeVarchar,
	"tinyblob": typeBlob, "blob": typeBlob, "mediumblob": typeBlob, "longblob": typeBlob,
	"tinytext": typeBlob, "text": typeBlob, "mediumtext": typeBlob, "longtext": typeBlob,
	"enum": typeEnum, "set": typeSet, "json": typeJSON, "vector": typeVector,
	"geometry": typeGeometry, "point": typeGeometry, "linestring": typeGeometry, "polygon": typeGeometry, "multipoint": typeGeometry,
	"multilinestring": typeGeometry, "multipolygon": typeGeometry, "geometrycollection": typeGeometry, "geomcollection": typeGeometry,
	"uuid": typeString, "inet6": typeString, "inet4": typeString,
}

// parseColumnType reads COLUMN_TYPE, e.g. "bigint unsigned", "decimal(10,2) unsigned zerofill", "enum('a','b')".
func parseColumnType(text string) (column, error) {
	low := lowerASCII(text)
	i := 0
	for i < len(low) && (low[i] >= 'a' && low[i] <= 'z' || low[i] >= '0' && low[i] <= '9') {
		i++
	}
	kind, ok := typeWords[low[:i]]
	if !ok {
		return column{}, fmt.Errorf("type %q is not known to this version", text)
	}
	c := column{kind: kind}
	switch low[:i] {
	case "uuid":
		c.opaque = opaqueUUID
	case "inet4":
		c.opaque = opaqueINET4
	case "inet6":
		c.opaque = opaqueINET6
	}
	args, tail := "", low[i:]
	if strings.HasPrefix(low[i:], "(") {
		end := strings.LastIndexByte(low, ')')
		if end < i {
			return column{}, fmt.Errorf("type %q cannot be read", text)
		}
		args, tail = text[i+1:end], low[end+1:]
	}
	switch kind {
	case typeEnum, typeSet:
		c.labels = parseLabels(args)
		c.labelsUTF8 = true
		return c, nil
	case typeTimestamp2, typeDatetime2, typeTime2:
		digits, _ := strconv.Atoi(strings.TrimSpace(args))
		c.meta = uint16(digits)
	case typeFloat, typeDouble:
		if _, d, ok := strings.Cut(args, ","); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(d))
			c.decimals = n + 1
		}
	}
	c.rowEnd = strings.HasSuffix(tail, asRowEnd)
	c.unsigned = strings.Contains(tail, "unsigned")
	if strings.Contains(tail, "zerofill") {
		m, d, fraction := strings.Cut(args, ",")
		c.width, _ = strconv.Atoi(strings.TrimSpace(m))
		if n, _ := strconv.Atoi(strings.TrimSpace(d)); fraction && n > 0 && kind == typeNewDecimal {
			c.width++ // the point counts
		}
		c.unsigned = true
	}
	return c, nil
}

// lowerASCII keeps the length, which strings.ToLower does not where a label is no ASCII.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// parseLabels reads the quoted list of an ENUM or SET, in which a quote is doubled and some characters are escaped, whatever
// sql_mode says (append_unescaped in sql/).
func parseLabels(s string) [][]byte {
	var out [][]byte
	for len(s) > 0 && s[0] == '\'' {
		b := []byte{}
		i := 1
		for ; i < len(s); i++ {
			c := s[i]
			if c == '\'' {
				if i+1 >= len(s) || s[i+1] != '\'' {
					break
				}
				i++
			} else if c == '\\' && i+1 < len(s) {
				i++
				switch c = s[i]; c {
				case 'n':
					c = '\n'
				case 'r':
					c = '\r'
				case '0':
					c = 0
				}
			}
			b = append(b, c)
		}
		out = append(out, b)
		s = strings.TrimPrefix(s[min(i+1, len(s)):], ",")
	}
	return out
}
