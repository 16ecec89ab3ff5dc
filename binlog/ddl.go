package binlog

import (
	"strings"
)

// change is what a statement does to the columns of one table, as far as its text tells. The server logs the text of what it has
// carried out, so that a statement that is understood to its last word says what became of the columns; anything else about
// the table is changeUnknown, and who reads rows behind it has to find their columns elsewhere.
type change struct {
	kind  changeKind
	edits []edit
}

type changeKind uint8

const (
	changeNone    changeKind = iota // nothing that rows show
	changeEdits                     // edits say what
	changeIfGone                    // CREATE TABLE IF NOT EXISTS: nothing where the table exists
	changeUnknown                   // dropped, renamed, swapped, or in words that are not understood
)

// changes tells what a statement does to a table. folded: names of tables are compared without regard to case.
func changes(q query, t *table, folded, maria bool) change {
	kind, _ := statement(q.text)
	if kind != stmtDDL {
		return change{}
	}
	if !touches(q, t) {
		return change{} // it does not even contain the name
	}
	tokens, ok := lex(q.text)
	if !ok {
		return change{kind: changeUnknown}
	}
	p := &ddlParser{tokens: tokens, q: q, t: t, folded: folded, maria: maria}
	if p.word("SET") && p.word("STATEMENT") {
		for !p.end() && !p.word("FOR") {
			p.i++
		}
	}
	switch {
	case p.word("ALTER"):
		return p.alter()
	case p.word("RENAME"):
		return p.rename()
	case p.word("CREATE"):
		return p.create()
	case p.word("DROP"):
		return p.drop()
	}
	return change{kind: changeUnknown}
}

// ddlParser reads one statement. What it does not understand makes the statement unknown, never harmless.
type ddlParser struct {
	tokens []token
	i      int
	q      query
	t      *table
	folded bool
	maria  bool
}

func (p *ddlParser) end() bool { return p.i >= len(p.tokens) }

// peek gives the word at an offset from here, in upper case; "" where there is none.
func (p *ddlParser) peek(offset int) string {
	if i := p.i + offset; i < len(p.tokens) && p.tokens[i].kind == 'w' {
		return strings.ToUpper(p.tokens[i].text)
	}
	return ""
}

// word passes one of some words.
func (p *ddlParser) word(words ...string) bool {
	have := p.peek(0)
	for _, w := range words {
		if have == w {
			p.i++
			return true
		}
	}
	return false
}

// words passes a sequence of words, all or none.
func (p *ddlParser) words(sequence ...string) bool {
	for i, w := range sequence {
		if p.peek(i) != w {
			return false
		}
	}
	p.i += len(sequence)
	return true
}

// sign passes a punctuation mark.
func (p *ddlParser) sign(mark string) bool {
	if !p.end() && p.tokens[p.i].sign() && p.tokens[p.i].text == mark {
		p.i++
		return true
	}
	return false
}

// group passes what stands in parentheses.
func (p *ddlParser) group() (inside []token, ok bool) {
	from := p.i
	if !p.sign("(") {
		return nil, false
	}
	for depth := 1; !p.end(); {
		switch {
		case p.sign("("):
			depth++
		case p.sign(")"):
			if depth--; depth == 0 {
				return p.tokens[from+1 : p.i-1], true
			}
		default:
			p.i++
		}
	}
	p.i = from
	return nil, false
}

// name passes an identifier.
func (p *ddlParser) name() (string, bool) {
	if p.end() {
		return "", false
	}
	switch t := p.tokens[p.i]; t.kind {
	case 'w', '`', '"': // with ANSI_QUOTES; where a name has to stand it can be nothing else
		p.i++
		return t.text, true
	}
	return "", false
}

// ours passes a table's name and tells whether it is the table in question.
func (p *ddlParser) ours() (is, ok bool) {
	schema := string(p.q.schema)
	name, ok := p.name()
	if !ok {
		return false, false
	}
	if p.sign(".") {
		schema = name
		if name, ok = p.name(); !ok {
			return false, false
		}
	}
	return p.same(name, p.t.table) && (schema == "" || p.same(schema, p.t.schema)), true
}

// same compares identifiers. The text of a statement is in the character set of whoever sent it: names beyond ASCII may be the same
// whatever they look like.
func (p *ddlParser) same(a, b string) bool {
	if !ascii(a) && !ascii(b) {
		return true
	}
	return a == b || p.folded && equalFold(a, b)
}

func unknownIf(is bool) change {
	if is {
		return change{kind: changeUnknown}
	}
	return change{}
}

func (p *ddlParser) rename() change {
	if p.word("USER") {
		return change{}
	}
	if !p.word("TABLE", "TABLES") {
		return change{kind: changeUnknown}
	}
	for {
		p.words("IF", "EXISTS")
		from, ok := p.ours()
		p.waits()
		if !ok || !p.word("TO") {
			return change{kind: changeUnknown}
		}
		to, ok := p.ours()
		if !ok || from || to {
			return change{kind: changeUnknown}
		}
		if p.end() {
			return change{}
		}
		if !p.sign(",") {
			return change{kind: changeUnknown}
		}
	}
}

// waits passes MariaDB's WAIT n and NOWAIT.
func (p *ddlParser) waits() {
	if p.word("WAIT") {
		p.i++
	} else {
		p.word("NOWAIT")
	}
}

func (p *ddlParser) drop() change {
	if p.words("TEMPORARY", "TABLE") || p.words("TEMPORARY", "TABLES") {
		return change{}
	}
	if p.word("DATABASE", "SCHEMA") {
		p.words("IF", "EXISTS")
		name, ok := p.name()
		return unknownIf(!ok || p.same(name, p.t.schema))
	}
	if !p.word("TABLE", "TABLES") {
		return change{}
	}
	p.words("IF", "EXISTS")
	for {
		is, ok := p.ours()
		if !ok || is {
			return change{kind: changeUnknown}
		}
		if !p.sign(",") {
			return change{}
		}
	}
}

func (p *ddlParser) create() change {
	replace := p.words("OR", "REPLACE")
	if p.words("TEMPORARY", "TABLE") {
		return change{}
	}
	if !p.word("TABLE") {
		return change{} // an index, a view, a trigger, a schema: no column comes or goes by it
	}
	ifGone := p.words("IF", "NOT", "EXISTS")
	is, ok := p.ours()
	switch {
	case ok && !is:
		return change{}
	case ok && ifGone && !replace:
		return change{kind: changeIfGone}
	}
	return change{kind: changeUnknown}
}

func (p *ddlParser) alter() change {
	for p.word("ONLINE", "IGNORE") {
	}
	if !p.word("TABLE") {
		return change{} // schemas, views, routines
	}
	p.words("IF", "EXISTS")
	ours, ok := p.ours()
	if !ok {
		return change{kind: changeUnknown}
	}
	p.waits()
	var c change
	for _, spec := range splitTokens(p.tokens[p.i:]) {
		s := &ddlParser{tokens: spec, q: p.q, t: p.t, folded: p.folded, maria: p.maria}
		if !ours {
			// Of another table it matters only whether it takes our name.
			if s.word("RENAME") && s.peek(0) != "COLUMN" && s.peek(0) != "INDEX" && s.peek(0) != "KEY" {
				_ = s.word("TO", "AS") || s.sign("=")
				if is, ok := s.ours(); is || !ok {
					return change{kind: changeUnknown}
				}
			}
			continue
		}
		if s.partitions() {
			return c // they stand alone, with lists of their own
		}
		edits, ok := s.spec()
		if !ok {
			return change{kind: changeUnknown}
		}
		c.edits = append(c.edits, edits...)
	}
	if len(c.edits) > 0 {
		c.kind = changeEdits
	}
	return c
}

// partitions reports whether a part of ALTER TABLE is about partitions that exist.
func (p *ddlParser) partitions() bool {
	switch p.peek(0) {
	case "ADD", "DROP", "REORGANIZE", "COALESCE", "TRUNCATE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "EXCHANGE", "DISCARD", "IMPORT":
		return p.peek(1) == "PARTITION"
	}
	return false
}

// splitTokens cuts at commas outside of parentheses.
func splitTokens(tokens []token) (out [][]token) {
	depth, from := 0, 0
	for i, t := range tokens {
		if !t.sign() {
			continue
		}
		switch t.text {
		case "(":
			depth++
		case ")":
			depth--
		case ",":
			if depth == 0 {
				out, from = append(out, tokens[from:i]), i+1
			}
		}
	}
	if from < len(tokens) {
		out = append(out, tokens[from:])
	}
	return out
}

// spec reads one of the comma-separated parts of ALTER TABLE. No edits and ok: rows do not show it.
func (p *ddlParser) spec() (edits []edit, ok bool) {
	switch {
	case p.word("ADD"):
		switch p.peek(0) {
		case "INDEX", "KEY", "UNIQUE", "PRIMARY", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK":
			return nil, true
		case "PERIOD", "SYSTEM", "VECTOR", "PARTITION":
			return nil, false
		}
		p.word("COLUMN")
		quiet := p.words("IF", "NOT", "EXISTS")
		if inside, listed := p.group(); listed {
			if !p.end() {
				return nil, false
			}
			for _, item := range splitTokens(inside) {
				e, ok := (&ddlParser{tokens: item, q: p.q, t: p.t, folded: p.folded, maria: p.maria}).column()
				if !ok || e.first || e.after != "" {
					return nil, false
				}
				e.what, e.quiet = editAdd, quiet
				edits = append(edits, e)
			}
			return edits, len(edits) > 0
		}
		e, ok := p.column()
		e.what, e.quiet = editAdd, quiet
		return []edit{e}, ok
	case p.word("DROP"):
		switch p.peek(0) {
		case "INDEX", "KEY", "PRIMARY", "FOREIGN", "CONSTRAINT", "CHECK":
			return nil, true
		case "PERIOD", "SYSTEM":
			return nil, false
		}
		p.word("COLUMN")
		e := edit{what: editDrop, quiet: p.words("IF", "EXISTS")}
		if e.old, ok = p.name(); !ok {
			return nil, false
		}
		p.word("RESTRICT", "CASCADE")
		return []edit{e}, p.end()
	case p.word("MODIFY"):
		p.word("COLUMN")
		quiet := p.words("IF", "EXISTS")
		e, ok := p.column()
		e.what, e.old, e.quiet = editModify, e.col.Name, quiet
		return []edit{e}, ok
	case p.word("CHANGE"):
		p.word("COLUMN")
		quiet := p.words("IF", "EXISTS")
		old, ok := p.name()
		if !ok {
			return nil, false
		}
		e, ok := p.column()
		e.what, e.old, e.quiet = editModify, old, quiet
		return []edit{e}, ok
	case p.word("RENAME"):
		if p.word("INDEX", "KEY") {
			return nil, true
		}
		if !p.word("COLUMN") {
			return nil, false // the table itself
		}
		e := edit{what: editRename, quiet: p.words("IF", "EXISTS")}
		if e.old, ok = p.name(); !ok || !p.word("TO") {
			return nil, false
		}
		if e.col.Name, ok = p.name(); !ok {
			return nil, false
		}
		return []edit{e}, p.end()
	}
	switch p.peek(0) {
	case "ALTER", // defaults, visibility, of columns, indexes and constraints
		"ORDER", "ENABLE", "DISABLE":
		return nil, true
	case "DISCARD", "IMPORT":
		return nil, p.peek(1) == "TABLESPACE"
	case "WITH", "WITHOUT":
		return nil, p.peek(1) == "VALIDATION"
	}
	return nil, p.options()
}

// options reads options of the table, which do nothing to its columns. The default character set, which columns that come later
// have, is one that must be understood: a column without one of its own has none from then on that could be proved.
func (p *ddlParser) options() bool {
	any := false
	for !p.end() {
		any = true
		switch {
		case p.word("FORCE"), p.word("NOWAIT"):
			continue
		case p.words("PARTITION", "BY"), p.words("REMOVE", "PARTITIONING"):
			return true
		case p.word("ENGINE", "TYPE", "AUTO_INCREMENT", "COMMENT", "ROW_FORMAT", "KEY_BLOCK_SIZE", "ALGORITHM", "LOCK", "STATS_PERSISTENT", "STATS_AUTO_RECALC",
			"STATS_SAMPLE_PAGES", "COMPRESSION", "ENCRYPTION", "ENCRYPTED", "ENCRYPTION_KEY_ID", "TABLESPACE", "MAX_ROWS", "MIN_ROWS", "AVG_ROW_LENGTH", "CHECKSUM",
			"TABLE_CHECKSUM", "PAGE_CHECKSUM", "PACK_KEYS", "DELAY_KEY_WRITE", "INSERT_METHOD", "TRANSACTIONAL", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL",
			"AUTOEXTEND_SIZE", "SECONDARY_ENGINE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "CONNECTION", "PASSWORD", "WAIT"):
			p.sign("=")
			if p.end() || p.tokens[p.i].sign() {
				return false
			}
			p.i++
		default:
			return false
		}
		p.sign(",")
	}
	return any
}
