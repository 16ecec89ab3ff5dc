package binlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outtail/outtail/event"
)

// vouched is a person's word for a table's columns: they hold from a place on, in the log of one server, until a DDL on the
// table. Where that log is not the one that is read, the word counts nothing (I5).
type vouched struct {
	ServerUUID string     `json:"server_uuid,omitempty"`
	ServerID   uint32     `json:"server_id,omitempty"`
	File       string     `json:"file"`
	Pos        uint64     `json:"pos"`
	Stamp      uint32     `json:"stamp"`
	Columns    definition `json:"columns"`
}

func (v *vouched) at() place { return place{v.File, v.Pos} }

// Vouch gives what is stored beside a position once a person vouches for a table's columns from a place (FILE:POS) on. The
// server is asked whether it has that place.
func Vouch(ctx context.Context, o Options, cp event.Checkpoint, tableName, at, columns string) (json.RawMessage, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	refuse := func(text, hint string) (json.RawMessage, error) {
		return nil, &event.Fault{Code: codeVouch, Class: event.Usage, Op: "accept the columns of " + tableName, Place: o.Pipeline, Text: text, Hint: "correct the command: " + hint}
	}
	i := slices.IndexFunc(s.tables, func(t table) bool { return t.name == tableName || t.schema+"."+t.table == tableName })
	if i < 0 {
		i = slices.Index(o.Tables, tableName) // as the configuration writes it
	}
	if i < 0 {
		return refuse("the pipeline has no such table", "name it with --table as the configuration does: "+strings.Join(o.Tables, ", "))
	}
	def, err := parseDefinition(columns)
	if err != nil {
		return refuse("--columns: "+err.Error(), "write the columns as SHOW CREATE TABLE does: \"id bigint unsigned, payload longtext character set utf8mb4\"")
	}
	if u := slices.IndexFunc(def, func(c defColumn) bool { return c.Charset == charsetUnsaid }); u >= 0 && s.o.Kind == event.MariaDB {
		return refuse("--columns: column "+def[u].Name+" has no character set, and MariaDB's log does not say it",
			"name it behind the type, such as: "+def[u].Name+" "+def[u].Type+" character set utf8mb4 (the table's own, where SHOW CREATE TABLE names none at the column)")
	}
	for r := range event.RoleCount {
		if m := o.Columns[r]; m.Column != "" && !m.IsConst && !slices.ContainsFunc(def, func(c defColumn) bool { return equalFold(c.Name, m.Column) }) {
			return refuse(fmt.Sprintf("--columns: no column %s, which the configuration reads as %s", m.Column, r), "name all columns of the table, or change columns in the configuration first")
		}
	}
	file, digits, _ := cutLastByte(at, ':')
	pos, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || file == "" || pos < 4 {
		return refuse("--at "+at+" is not FILE:POS", "take the place that the stop printed, such as binlog.000012:4711")
	}
	if cp.IsZero() {
		return refuse("the pipeline has no position yet", "run it once")
	}

	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if s.server, err = s.ask(ctx, c); err != nil {
		return nil, err
	}
	if s.server.files, err = s.binlogs(ctx, c); err != nil {
		return nil, err
	}
	have := slices.IndexFunc(s.server.files, func(f binlogFile) bool { return f.name == file })
	if have < 0 || s.server.files[have].size < pos {
		return refuse("the server has no place "+at, "take the place that the stop printed; SHOW BINARY LOGS lists files and sizes")
	}
	f := &facts{kind: s.o.Kind, stored: cp.Position, server: s.server}
	from := place{cp.Position.File, cp.Position.Pos}
	if here := (place{file, pos}); f.sameServer() && from.file != "" && here.compare(from) < 0 {
		return refuse(at+" lies before the stored position "+from.String()+", and what changed between them nobody sees", "vouch for the columns from "+from.String()+" on, or take the place that the stop printed")
	}
	s.folded = s.server.foldNames
	t := &s.tables[i]
	why, err := s.refute(ctx, place{file, pos}, t, def)
	switch f := event.AsFault(err); {
	case f != nil && f.Class == event.Safety:
		return refuse("the server cannot read its log from "+at+" on: "+f.Text, "take the place that the stop printed; it must lie between two events")
	case err != nil:
		return nil, err
	case why != "":
		return refuse("--columns: "+why, "write the columns that the table had there, in their order")
	}
	stamp, err := s.stampOf(ctx, file)
	if err != nil {
		return nil, err
	}
	d := parseDepends(cp.Depends)
	if d.Vouched == nil {
		d.Vouched = map[string]*vouched{}
	}
	d.Vouched[t.schema+"."+t.table] = &vouched{ServerUUID: s.server.uuid, ServerID: s.server.id, File: file, Pos: pos, Stamp: stamp, Columns: def}
	return encodeDepends(d), nil
}

// takeWord takes over what a person vouched for, if it is about the log of this server.
func (s *Source) takeWord(ctx context.Context, t *table, v *vouched) (*vouched, error) {
	if v == nil {
		return nil, nil
	}
	there := slices.ContainsFunc(s.server.files, func(f binlogFile) bool { return f.name == v.File })
	if same := v.ServerUUID == s.server.uuid && v.ServerID == s.server.id; same && there {
		stamp, err := s.stampOf(ctx, v.File)
		if err != nil {
			return nil, err
		}
		if stamp == v.Stamp {
			return v, nil
		}
	}
	s.log.Warn("the accepted columns are about another log and count nothing", "table", t.name, "at", v.at().String())
	return nil, nil
}

// String writes a definition as `schema accept --columns` reads it.
func (d definition) String() string {
	var b strings.Builder
	for i, c := range d {
		if i > 0 {
			b.WriteString(", ")
		}
		if plainName(c.Name) {
			b.WriteString(c.Name)
		} else {
			b.WriteString(backtick(c.Name))
		}
		b.WriteString(" " + c.Type)
		if c.Charset != "" && c.Charset != charsetUnsaid {
			b.WriteString(" character set " + c.Charset)
		}
	}
	return b.String()
}

// charsetUnsaid stands for the character set of a text column for which none was named. It is no server's name of one, so
// that only the log can say it; where that does not either, the column has no text that could be proved.
const charsetUnsaid = "?"

// parseDefinition reads columns as SHOW CREATE TABLE lists them: "`id` bigint unsigned NOT NULL, payload longtext CHARACTER SET
// utf8mb4". What does not matter to reading rows is passed over, and so are keys.
func parseDefinition(text string) (definition, error) {
	var out definition
	items, err := splitColumns(text)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		name, quoted, rest := columnName(item)
		rest = strings.TrimSpace(rest)
		word, _, _ := strings.Cut(strings.ToLower(rest), " ")
		if i := strings.IndexByte(word, '('); i >= 0 {
			word = word[:i]
		}
		_, known := typeWords[word]
		if !quoted && !known && keyWord(name) {
			continue
		}
		switch {
		case name == "":
			return nil, fmt.Errorf("%q does not begin with a name", item)
		case rest == "":
			return nil, fmt.Errorf("column %s has no type", name)
		}
		c := defColumn{Name: name}
		if c.Type, c.Charset, err = columnType(rest); err != nil {
			return nil, fmt.Errorf("column %s: %w", name, err)
		}
		col, err := parseColumnType(c.Type)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", name, err)
		}
		if col.labelled() && len(col.labels) == 0 {
			return nil, fmt.Errorf("column %s has no labels", name)
		}
		if c.Charset == "" && textType(word) {
			c.Charset = charsetUnsaid
		}
		if slices.ContainsFunc(out, func(o defColumn) bool { return equalFold(o.Name, name) }) {
			return nil, fmt.Errorf("column %s is there twice", name)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("no column is named")
	}
	return out, nil
}

func textType(word string) bool {
	switch word {
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		return true
	}
	return false
}

// columnType reads a type and the words behind it, of which UNSIGNED, ZEROFILL and the character set count.
func columnType(s string) (kind, charset string, err error) {
	head, tail := s, ""
	if i := strings.IndexAny(s, " \t\n("); i >= 0 {
		head, tail = s[:i], s[i:]
	}
	kind = strings.ToLower(head)
	if t := strings.TrimLeft(tail, " \t\n"); strings.HasPrefix(t, "(") {
		end := endOf(t, ')')
		if end < 0 {
			return "", "", errors.New("a parenthesis is open")
		}
		args, err := splitColumns(t[1:end])
		if err != nil {
			return "", "", err
		}
		kind += "(" + strings.Join(args, ",") + ")"
		tail = t[end+1:]
	}
	words := strings.Fields(tail)
	unsigned, zerofill, mark := false, false, ""
	for i := 0; i < len(words); i++ {
		after := ""
		if i+1 < len(words) {
			after = strings.ToLower(strings.Trim(words[i+1], "`'\""))
		}
		switch w := strings.ToLower(words[i]); {
		case w == "unsigned":
			unsigned = true
		case w == "zerofill":
			unsigned, zerofill = true, true
		case w == "charset" && after != "":
			charset, i = after, i+1
		case w == "character" && after == "set" && i+2 < len(words):
			charset, i = strings.ToLower(strings.Trim(words[i+2], "`'\"")), i+2
		case w == "collate" && after != "":
			if charset == "" {
				charset, _, _ = strings.Cut(after, "_")
			}
			i++
		case (w == "generated" || w == "as") && rowMark(words[i:]) != "":
			mark = rowMark(words[i:])
			i = len(words)
		case w == "default" || w == "comment" || w == "generated" || w == "as" || w == "check" || w == "on":
			// Free text and expressions follow, in which any word may occur; what counts comes before them.
			i = len(words)
		}
	}
	if unsigned {
		kind += " unsigned"
	}
	if zerofill {
		kind += " zerofill"
	}
	return kind + mark, charset, nil
}

// keyWord reports whether an item of a table's definition that begins so is no column.
func keyWord(word string) bool {
	switch strings.ToLower(word) {
	case "primary", "unique", "key", "index", "fulltext", "spatial", "constraint", "foreign", "check", "period":
		return true
	}
	return false
}

// columnName takes the name at the beginning of an item, in backticks or plain.
func columnName(item string) (name string, quoted bool, rest string) {
	if strings.HasPrefix(item, "`") {
		if end := endOf(item, 0); end > 0 {
			return strings.ReplaceAll(item[1:end], "``", "`"), true, item[end+1:]
		}
		return "", true, ""
	}
	i := strings.IndexAny(item, " \t\n(")
	if i < 0 {
		return item, false, ""
	}
	return item[:i], false, item[i:]
}

func plainName(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '$' {
			return false
		}
	}
	return s != "" && !keyWord(s)
}

// splitColumns cuts at commas outside of parentheses and quotes, and trims.
func splitColumns(s string) ([]string, error) {
	var out []string
	for {
		i := endOf(s, ',')
		if i == unbalanced {
			return nil, errors.New("a parenthesis or a quote is open")
		}
		item := s
		if i >= 0 {
			item = s[:i]
		}
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
		if i < 0 {
			return out, nil
		}
		s = s[i+1:]
	}
}

const (
	absent     = -1
	unbalanced = -2
)

// endOf finds a byte outside of quotes and of parentheses, but for ')', which is the one that closes the first '('. With 0 it
// finds the end of the quote with which s begins. A doubled quote inside of one is no end.
func endOf(s string, want byte) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\'', '"', '`':
			for i++; ; i++ {
				if i >= len(s) {
					return unbalanced
				}
				if s[i] != c {
					continue
				}
				if i+1 < len(s) && s[i+1] == c {
					i++
					continue
				}
				break
			}
			if want == 0 {
				return i
			}
		case '(':
			depth++
		case ')':
			depth--
			if want == ')' && depth == 0 {
				return i
			}
			if depth < 0 {
				return unbalanced
			}
		default:
			if c == want && depth == 0 {
				return i
			}
		}
	}
	if depth != 0 {
		return unbalanced
	}
	return absent
}

func cutLastByte(s string, c byte) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, c)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// families names the kinds of a table map's columns: all that the log tells of types.
func (t *tableMap) families() []string {
	out := make([]string, len(t.columns))
	for i := range t.columns {
		c := &t.columns[i]
		out[i] = kindName(c.kind)
		if c.name != "" {
			out[i] = c.name + " " + out[i]
		}
	}
	return out
}

func kindName(kind byte) string {
	switch family(kind) {
	case typeTiny:
		return "tinyint"
	case typeShort:
		return "smallint"
	case typeInt24:
		return "mediumint"
	case typeLong:
		return "int"
	case typeLongLong:
		return "bigint"
	case typeFloat:
		return "float"
	case typeDouble:
		return "double"
	case typeNewDecimal:
		return "decimal"
	case typeBit:
		return "bit"
	case typeYear:
		return "year"
	case typeDate:
		return "date"
	case typeTime2:
		return "time"
	case typeDatetime2:
		return "datetime"
	case typeTimestamp2:
		return "timestamp"
	case typeString:
		return "char or binary"
	case typeVarchar:
		return "varchar or varbinary"
	case typeBlob:
		return "text or blob"
	case typeJSON:
		return "json"
	case typeEnum:
		return "enum"
	case typeSet:
		return "set"
	case typeGeometry:
		return "geometry"
	case typeVector:
		return "vector"
	}
	return "type " + strconv.Itoa(int(kind))
}
