package binlog

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	r, err := c.query(ctx, fmt.Sprintf("SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME FROM information_schema.COLUMNS "+
		"WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION", quote(t.schema), quote(t.table)))
	if err != nil {
		return nil, s.queryFault("read the columns of "+t.name, err)
	}
	d := make(definition, r.RowNumber())
	for i := range d {
		d[i].Name, _ = r.GetString(i, 0)
		d[i].Type, _ = r.GetString(i, 1)
		d[i].Charset, _ = r.GetString(i, 2)
	}
	return d, nil
}

// sight reads a definition between two looks at the log's end.
func (s *Source) sight(ctx context.Context, c *conn, t *table) (*sighting, error) {
	before, err := s.logEnd(ctx, c, false)
	if err != nil {
		return nil, err
	}
	d, err := s.define(ctx, c, t)
	if err != nil {
		return nil, err
	}
	after, err := s.logEnd(ctx, c, false)
	if err != nil {
		return nil, err
	}
	return &sighting{def: d, before: place{before.file, before.pos}, after: place{after.file, after.pos}}, nil
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
		case col.character():
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
	low := strings.ToLower(text)
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
	case typeFloat, typeDouble:
		if _, d, ok := strings.Cut(args, ","); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(d))
			c.decimals = n + 1
		}
	}
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

// parseLabels reads the quoted list of an ENUM or SET, in which a quote is doubled.
func parseLabels(s string) [][]byte {
	var out [][]byte
	for len(s) > 0 && s[0] == '\'' {
		var b []byte
		i := 1
		for ; i < len(s); i++ {
			if s[i] == '\'' {
				if i+1 < len(s) && s[i+1] == '\'' {
					i++
				} else {
					break
				}
			}
			b = append(b, s[i])
		}
		out = append(out, append([]byte{}, b...))
		s = strings.TrimPrefix(s[min(i+1, len(s)):], ",")
	}
	return out
}

// known is, for the running session, what is known of a table's columns. Where the log names them itself it wins;
// otherwise a definition holds at a place of the log only if no DDL on the table lies between there and where it was read
// (design: positions).
type known struct {
	proved definition // holds at the stream's position; nil is unknown
	seen   *sighting  // what the catalogue said at connect or later, not yet reached or not needed so far
	word   *vouched   // what a person vouched for, from a place on that was not reached so far
	before definition // what held before the last DDL that was seen
}

// ddl ends the validity of what is known of a table.
func (st *stream) ddl(t *table) {
	k := st.s.known[t]
	if k == nil {
		return
	}
	if k.proved != nil {
		k.before, k.proved = k.proved, nil
		st.depends = st.s.dependsNow(st)
	}
	if k.word != nil && k.word.at().compare(st.place()) < 0 {
		k.word = nil
		st.depends = st.s.dependsNow(st)
	}
	// A definition that was read after this place may still hold behind it.
	if k.seen != nil && k.seen.before.compare(st.place()) < 0 {
		k.seen = nil
	}
	st.forget(t)
}

// forget makes the next rows of a table look for their layout anew.
func (st *stream) forget(t *table) {
	st.lastPlan, st.lastMap = nil, nil
	for i := range st.tables {
		if p := st.tables[i].plan; p != nil && p.table == t {
			p.layout = nil
		}
	}
}

func (st *stream) place() place {
	if st.file == nil {
		return place{}
	}
	return place{st.file.name, st.pos}
}

// promote takes over sightings, and what a person vouched for, whose place the stream has reached without DDL. The person's
// word wins over what was stored: it is given where that turned out wrong.
func (st *stream) promote() {
	s := st.s
	if s.unproved == 0 {
		return
	}
	here := st.place()
	changed := false
	for t, k := range s.known {
		if k.word != nil && st.file != nil && here.compare(k.word.at()) >= 0 {
			s.log.Warn("the columns that a person vouched for hold from here on", "table", t.name, "at", k.word.at().String(), "columns", k.word.Columns.String())
			k.proved, k.word = k.word.Columns, nil
			changed = true
			st.forget(t)
		}
		if k.proved == nil && k.seen != nil && here.compare(k.seen.after) >= 0 {
			k.proved, k.seen = k.seen.def, nil
			changed = true
		}
	}
	s.unproved = 0
	for _, k := range s.known {
		if k.proved == nil && k.seen != nil {
			s.unproved++
		}
		if k.word != nil {
			s.unproved++
		}
	}
	if changed {
		st.depends = s.dependsNow(st)
	}
}

// layout decides how the rows of a table map are read.
func (s *Source) layout(st *stream, p *plan) (*layout, error) {
	t := p.table
	st.promote()
	var columns []column
	k := s.known[t]
	if p.tm.complete() && !s.ambiguous(p.tm) {
		columns = p.tm.columns
		if k.proved != nil {
			// What the log never says, and what only shows in print: ZEROFILL and FLOAT(M,D).
			if def, err := k.proved.columns(s.charsetID); err == nil && agrees(columns, def) && sameNames(columns, def) {
				columns = merge(p.tm, def)
			}
		}
	} else {
		if k.proved == nil {
			if err := s.prove(st, p, k); err != nil {
				return nil, err
			}
		}
		def, err := k.proved.columns(s.charsetID)
		if err != nil {
			return nil, st.layoutFault(p, err.Error())
		}
		if !agrees(p.tm.columns, def) {
			return nil, st.layoutFault(p, "the catalogue's definition does not fit the rows in the log")
		}
		columns = merge(p.tm, def)
	}
	l := newLayout(t.name, columns, s.o.Columns, s.charset)
	for i := range l.fields {
		l.fields[i].limit = s.rowLimit
	}
	if len(l.missing) > 0 {
		return nil, &event.Fault{Code: codeDropped, Class: event.Safety, Op: "read a row of " + t.name, Place: st.here(),
			Text: "the table had no column " + strings.Join(l.missing, ", ") + " there",
			Hint: "correct columns in the configuration, or " + s.ways(codeDropped, "now", "GTID", "FILE:POS")}
	}
	return l, nil
}

// ambiguous reports whether a mapped column of MariaDB may be of a type that its log calls BINARY(n).
func (s *Source) ambiguous(t *tableMap) bool {
	if s.o.Kind != event.MariaDB {
		return false
	}
	for _, m := range s.o.Columns {
		if m.Column == "" || m.IsConst {
			continue
		}
		if i := findColumn(t.columns, m.Column); i >= 0 && t.columns[i].kind == typeString && (t.columns[i].meta == 4 || t.columns[i].meta == 16) {
			return true
		}
	}
	return false
}

func sameNames(a, b []column) bool {
	return slices.EqualFunc(a, b, func(x, y column) bool { return equalFold(x.name, y.name) })
}

// prove finds a definition that holds where the running transaction begins.
func (s *Source) prove(st *stream, p *plan, k *known) error {
	t := p.table
	here := place{st.tx.startFile.name, st.tx.startPos}
	if k.seen == nil {
		seen, err := s.lookAgain(s.reading, t)
		if err != nil {
			return err
		}
		k.seen = seen
	}
	if here.compare(k.seen.after) < 0 {
		found, err := s.scan(s.reading, here, k.seen.after, t)
		if err != nil {
			return err
		}
		if found != (place{}) {
			return st.layoutFault(p, fmt.Sprintf("its definition was changed at %s:%d, and what it was before nobody stored", found.file, found.pos))
		}
	}
	k.proved, k.seen = k.seen.def, nil
	st.depends = s.dependsNow(st)
	return nil
}

// layoutFault tells all that is known of the columns, since a person has to find out what they were.
func (st *stream) layoutFault(p *plan, text string) error {
	t, k := p.table, st.s.known[p.table]
	var facts strings.Builder
	fmt.Fprintf(&facts, "\nThe log shows %d columns there: %s.", len(p.tm.columns), strings.Join(p.tm.families(), ", "))
	if k.before != nil {
		fmt.Fprintf(&facts, "\nBefore the last change that was seen they were: %s", k.before)
	}
	switch {
	case k.seen != nil && len(k.seen.def) > 0:
		fmt.Fprintf(&facts, "\nIn the server's catalogue they are now: %s", k.seen.def)
	case k.proved != nil:
		fmt.Fprintf(&facts, "\nStored are: %s", k.proved)
	}
	return &event.Fault{Code: codeLayout, Class: event.Safety, Op: "find the columns of " + t.name, Place: st.here(), Text: text,
		Hint: "with SET GLOBAL binlog_row_metadata = 'FULL' the log says it itself from then on. For what was written before, vouch for the columns:\n" +
			"  outtail schema accept -c FILE --pipeline " + st.s.o.Pipeline + " --table " + t.name + " --at " + st.place().String() + " --columns \"…\" --reason R" + facts.String() + "\nOr " +
			st.s.ways(codeLayout, "now", "GTID", "FILE:POS")}
}

func (p place) String() string { return p.file + ":" + strconv.FormatUint(p.pos, 10) }
