package binlog

import (
	"slices"
	"strings"
)

// edit is one thing that ALTER TABLE does to the columns.
type edit struct {
	what  editKind
	old   string    // the column that is dropped, changed or renamed
	col   defColumn // what it is then; of a rename the name only
	first bool
	after string
	quiet bool // IF [NOT] EXISTS
}

type editKind uint8

const (
	editAdd editKind = iota
	editDrop
	editModify // MODIFY and CHANGE
	editRename
)

// column reads the definition of a column behind ADD, MODIFY or CHANGE, to its last word.
func (p *ddlParser) column() (e edit, ok bool) {
	if e.col.Name, ok = p.name(); !ok || !p.columnType(&e.col) {
		return e, false
	}
	for !p.end() {
		switch {
		case p.word("FIRST"):
			e.first = true
			return e, p.end()
		case p.word("AFTER"):
			e.after, ok = p.name()
			return e, ok && p.end()
		case !p.attribute(&e.col):
			return e, false
		}
	}
	return e, true
}

// columnType reads a type as the catalogue would print it, as far as reading rows depends on it. Types that servers take for
// others (SERIAL, NCHAR, LONG …) are not understood, on purpose.
func (p *ddlParser) columnType(c *defColumn) bool {
	word := strings.ToLower(p.peek(0))
	switch word {
	case "bool", "boolean":
		word = "tinyint"
	case "dec", "fixed":
		word = "decimal"
	case "serial", "real", "vector":
		return false
	case "json":
		if p.maria {
			word, c.Charset = "longtext", "utf8mb4"
		}
	case "uuid", "inet4", "inet6":
		if !p.maria {
			return false
		}
	}
	if _, known := typeWords[word]; !known {
		return false
	}
	p.i++
	if word == "double" {
		p.word("PRECISION")
	}
	c.Type = word
	args, has := p.group()
	switch {
	case word == "enum" || word == "set":
		labels := splitTokens(args)
		if !has || len(labels) == 0 {
			return false
		}
		out := make([]string, len(labels))
		for i, l := range labels {
			// The server cuts trailing blanks; what is not ASCII was written in a character set that nobody knows.
			if len(l) != 1 || l[0].kind != '\'' || !ascii(l[0].text) || strings.TrimRight(l[0].text, " ") != l[0].text {
				return false
			}
			out[i] = "'" + strings.ReplaceAll(l[0].text, "'", "''") + "'"
		}
		c.Type += "(" + strings.Join(out, ",") + ")"
	case has:
		out := ""
		for _, a := range args {
			if a.kind != 'w' && a.kind != ',' {
				return false
			}
			out += a.text
		}
		c.Type += "(" + out + ")"
	}
	unsigned, zerofill := false, false
	for {
		switch {
		case p.word("UNSIGNED"):
			unsigned = true
		case p.word("ZEROFILL"):
			if !has {
				return false // padded to a width that the server chose
			}
			unsigned, zerofill = true, true
		case p.word("SIGNED"):
		default:
			if unsigned {
				c.Type += " unsigned"
			}
			if zerofill {
				c.Type += " zerofill"
			}
			if c.Charset == "" && (textType(word) || word == "enum" || word == "set") {
				c.Charset = charsetDefault
			}
			return true
		}
	}
}

// charsetDefault stands for the table's default character set until the edit is applied.
const charsetDefault = "="

// attribute passes one attribute of a column.
func (p *ddlParser) attribute(c *defColumn) bool {
	charset := func() bool {
		name, ok := p.name()
		if !ok || c.Charset == "" {
			return false
		}
		switch name = strings.ToLower(name); name {
		case "binary":
			return false // makes another type of it
		case "default", "utf8", "ascii", "unicode", "byte":
			name = charsetUnsaid // which one these are is the server's to say
		}
		c.Charset = name
		return true
	}
	switch {
	case p.words("NOT", "NULL"), p.words("NOT", "ENFORCED"), p.word("NULL", "AUTO_INCREMENT", "VISIBLE", "INVISIBLE", "VIRTUAL", "STORED", "PERSISTENT", "ENFORCED"):
		return true
	case p.words("CHARACTER", "SET"), p.word("CHARSET"):
		return charset()
	case p.word("COLLATE"):
		name, ok := p.name()
		if !ok || equalFold(name, "binary") {
			return false
		}
		if c.Charset == charsetDefault {
			c.Charset = charsetUnsaid
		}
		return true
	case p.word("DEFAULT"):
		return p.value()
	case p.words("ON", "UPDATE"):
		return p.value()
	case p.words("GENERATED", "ALWAYS", "AS"), p.word("AS"), p.word("CHECK"):
		_, ok := p.group()
		return ok
	case p.word("CONSTRAINT"):
		if p.peek(0) != "CHECK" {
			if _, ok := p.name(); !ok {
				return false
			}
		}
		if !p.word("CHECK") {
			return false
		}
		_, ok := p.group()
		return ok
	case p.word("COMMENT"):
		if p.end() || p.tokens[p.i].kind != '\'' && p.tokens[p.i].kind != '"' {
			return false
		}
		p.i++
		return true
	case p.word("COLUMN_FORMAT", "STORAGE"):
		_, ok := p.name()
		return ok
	case p.words("PRIMARY", "KEY"), p.words("UNIQUE", "KEY"), p.word("UNIQUE", "KEY"):
		return true
	}
	return false
}

// value passes what stands behind DEFAULT and ON UPDATE.
func (p *ddlParser) value() bool {
	if _, ok := p.group(); ok {
		return true
	}
	_ = p.sign("-") || p.sign("+")
	if p.end() || p.tokens[p.i].sign() || p.tokens[p.i].kind == '`' {
		return false
	}
	word := p.tokens[p.i].kind == 'w'
	p.i++
	if word {
		p.group()
		if !p.end() && p.tokens[p.i].kind == '\'' {
			p.i++ // b'1', x'00', _utf8mb4'x'
		}
	}
	return true
}

// apply gives what edits make of a definition, in the order in which the server carries them out (sql_table.cc, prepare_fields_and_keys
// and mysql_prepare_alter_table): what exists first, where it stands, and then what is new or moved. charset is the table's default one,
// charsetUnsaid where that is not known. What depends on more than that is not ok.
func (d definition) apply(edits []edit, charset string) (out definition, ok bool) {
	pending := slices.Clone(edits)
	moved, renamed, placed := 0, false, false
	for i := range pending {
		e := &pending[i]
		if e.col.Charset == charsetDefault {
			e.col.Charset = charset
		}
		moved += btoi(e.what == editModify && (e.first || e.after != ""))
		placed = placed || e.after != ""
		renamed = renamed || e.what == editRename || e.what == editModify && !equalFold(e.old, e.col.Name)
		if e.quiet && len(edits) > 1 {
			return nil, false
		}
	}
	if moved > 0 && len(edits) > 1 || renamed && placed && len(edits) > 1 {
		return nil, false
	}
	find := func(in definition, name string) int {
		return slices.IndexFunc(in, func(c defColumn) bool { return equalFold(c.Name, name) })
	}
	if len(edits) == 1 && edits[0].quiet {
		if e := edits[0]; e.what == editAdd && find(d, e.col.Name) >= 0 || e.what != editAdd && find(d, e.old) < 0 {
			return d, true
		}
	}
	for _, c := range d {
		keep := c
		drop := false
		for i := 0; i < len(pending); i++ {
			e := &pending[i]
			if e.what == editAdd || !equalFold(e.old, c.Name) {
				continue
			}
			switch {
			case e.what == editDrop:
				drop = true
			case e.what == editRename:
				keep.Name = e.col.Name
			case e.first || e.after != "":
				drop = true
				continue // it comes back below
			default:
				keep = e.col
			}
			pending = slices.Delete(pending, i, i+1)
			i--
		}
		if !drop {
			out = append(out, keep)
		}
	}
	for _, e := range pending {
		if e.what != editAdd && (e.what != editModify || find(d, e.old) < 0) || find(out, e.col.Name) >= 0 {
			return nil, false // the server would have refused it: the definition was another one
		}
		at := out.shown()
		switch {
		case e.first:
			at = 0
		case e.after != "":
			if at = find(out, e.after) + 1; at == 0 {
				return nil, false
			}
		}
		out = slices.Insert(out, at, e.col)
	}
	for i := range out {
		if find(out, out[i].Name) != i {
			return nil, false
		}
	}
	return out, len(out) > 0
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// reads reports whether two definitions read rows alike. A character set that is not known agrees with any; keys and their hidden columns
// come and go by themselves (followHashes).
func (d definition) reads(o definition) bool {
	return slices.EqualFunc(d[:len(d)-d.hashes()], o[:len(o)-o.hashes()], func(a, b defColumn) bool {
		x, errX := parseColumnType(a.Type)
		y, errY := parseColumnType(b.Type)
		return errX == nil && errY == nil && equalFold(a.Name, b.Name) && family(x.kind) == family(y.kind) && x.unsigned == y.unsigned && x.opaque == y.opaque && x.rowEnd == y.rowEnd &&
			x.width == y.width && x.decimals == y.decimals && slices.EqualFunc(x.labels, y.labels, func(l, m []byte) bool { return string(l) == string(m) }) &&
			(a.Charset == b.Charset || a.Charset == charsetUnsaid || b.Charset == charsetUnsaid)
	})
}
