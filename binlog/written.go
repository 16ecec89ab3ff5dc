package binlog

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// tokens reads a statement's words. Comments are skipped; what a versioned comment (/*! */, /*M! */) holds is read, because
// the server runs it.
type tokens struct {
	b []byte
	// unsure: how the statement reads depends on what its text does not say: the server's version (a versioned comment), sql_mode (a
	// backslash in quotes); or a quote or comment is open.
	unsure bool
}

// token is a piece of a statement, without its quotes.
type token struct {
	kind byte // 'w' a word or number; '`', '"' or '\'' what was in such quotes; 0 the end; else the character itself
	text string
}

func (t token) sign() bool { return t.kind != 'w' && t.kind != '`' && t.kind != '"' && t.kind != '\'' }

func (t token) is(words ...string) bool {
	return t.kind == 'w' && slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(t.text, w) })
}

// name reports whether the token can be an identifier. Double quotes make one in sql_mode ANSI_QUOTES, and stand nowhere where
// an identifier is expected in any other.
func (t token) name() bool { return t.kind == 'w' || t.kind == '`' || t.kind == '"' }

// lex cuts a whole statement; ok only where its text alone says how it reads. What is made of it is carried out.
func lex(text []byte) (out []token, ok bool) {
	s := tokens{b: text, unsure: !utf8.Valid(text)} // in the client's character set, whichever that is
	for t := s.next(); t.kind != 0; t = s.next() {
		out = append(out, t)
	}
	for len(out) > 0 && out[len(out)-1].kind == ';' {
		out = out[:len(out)-1]
	}
	return out, !s.unsure
}

func (s *tokens) next() token {
	for {
		for len(s.b) > 0 && s.b[0] <= ' ' {
			s.b = s.b[1:]
		}
		switch {
		case bytes.HasPrefix(s.b, []byte("/*!")), bytes.HasPrefix(s.b, []byte("/*M!")):
			s.unsure = true
			s.b = s.b[bytes.IndexByte(s.b, '!')+1:]
			for len(s.b) > 0 && s.b[0] >= '0' && s.b[0] <= '9' {
				s.b = s.b[1:]
			}
			continue
		case bytes.HasPrefix(s.b, []byte("/*")):
			s.b = s.b[2:]
			s.unsure = !s.skipTo("*/") || s.unsure
			continue
		case bytes.HasPrefix(s.b, []byte("*/")):
			s.unsure = true
			s.b = s.b[2:]
			continue
		case bytes.HasPrefix(s.b, []byte("#")), bytes.HasPrefix(s.b, []byte("--")) && (len(s.b) == 2 || s.b[2] <= ' '):
			s.skipTo("\n")
			continue
		}
		break
	}
	if len(s.b) == 0 {
		return token{}
	}
	switch c := s.b[0]; {
	case c == '`' || c == '"' || c == '\'':
		return s.quoted(c)
	case wordByte(c):
		n, number := 0, true // 1.5 is one word, 1db.outbox three
		for n < len(s.b) && (wordByte(s.b[n]) || number && s.b[n] == '.') {
			number = number && (s.b[n] == '.' || s.b[n] >= '0' && s.b[n] <= '9')
			n++
		}
		t := token{'w', string(s.b[:n])}
		s.b = s.b[n:]
		return t
	default:
		s.b = s.b[1:]
		return token{c, string(c)}
	}
}

func (s *tokens) skipTo(end string) (found bool) {
	i := bytes.Index(s.b, []byte(end))
	if i < 0 {
		s.b = nil
		return false
	}
	s.b = s.b[i+len(end):]
	return true
}

func (s *tokens) quoted(q byte) token {
	var out []byte
	i := 1
	for ; i < len(s.b); i++ {
		c := s.b[i]
		if c == '\\' && q != '`' && i+1 < len(s.b) {
			s.unsure = true
			i++
			out = append(out, s.b[i])
			continue
		}
		if c == q {
			if i+1 < len(s.b) && s.b[i+1] == q {
				i++
			} else {
				break
			}
		}
		out = append(out, c)
	}
	s.unsure = s.unsure || i >= len(s.b)
	s.b = s.b[min(i+1, len(s.b)):]
	return token{q, string(out)}
}

// tableName reads [schema.]table, given its first token.
func (s *tokens) tableName(first token) (schema, name string) {
	if first.kind == '.' { // .t is t
		first = s.next()
	}
	if !first.name() {
		return "", ""
	}
	rest := *s
	if rest.next().kind == '.' {
		if t := rest.next(); t.name() {
			*s = rest
			return first.text, t.text
		}
	}
	return "", first.text
}

// written is what a DML statement writes, as far as its words tell.
type written struct {
	verb          string // INSERT, REPLACE, LOAD, UPDATE, DELETE; "" is none of them
	schema, table string // what INSERT, REPLACE and LOAD add rows to; table "" could not be found
	targets       []byte // of UPDATE: the text before SET, which names what is changed and what it is joined with
	doubtful      bool   // the words may mislead: a versioned comment is among them
}

// adds reports whether rows are added by the statement itself.
func (w *written) adds() bool { return w.verb == "INSERT" || w.verb == "REPLACE" || w.verb == "LOAD" }

func writtenBy(text []byte) (w written) {
	s := tokens{b: text}
	t := s.next()
	for t.kind == '(' || t.kind == ';' {
		t = s.next()
	}
	if t.is("WITH") {
		for depth := 0; t.kind != 0; t = s.next() {
			switch t.kind {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth == 0 && t.is("INSERT", "REPLACE", "UPDATE", "DELETE", "SELECT") {
				break
			}
		}
	}
	if t.kind != 'w' {
		return w
	}
	switch w.verb = strings.ToUpper(t.text); w.verb {
	case "INSERT", "REPLACE":
		t = s.next()
		for t.is("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO") {
			t = s.next()
		}
		w.schema, w.table = s.tableName(t)
	case "LOAD":
		for into := false; t.kind != 0; t = s.next() {
			if into && t.is("TABLE") {
				w.schema, w.table = s.tableName(s.next())
				break
			}
			into = t.is("INTO")
		}
	case "UPDATE":
		rest := s.b
		for t.kind != 0 && !t.is("SET") {
			t = s.next()
		}
		w.targets = rest[:len(rest)-len(s.b)]
	case "DELETE":
	default:
		w.verb = ""
	}
	w.doubtful = w.adds() && w.table == "" || bytes.Contains(text, []byte("/*!")) || bytes.Contains(text, []byte("/*M!"))
	return w
}

// into reports whether the statement adds rows to the table schema.name.
func (w *written) into(q query, schema, name string) bool {
	if !w.adds() {
		// WITH, SELECT and what is no DML at all: only with doubt there is more behind it than the first word says.
		return w.doubtful && named(q, schema, name) && (word(q.text, "insert") || word(q.text, "replace") || word(q.text, "load"))
	}
	if w.doubtful {
		return named(q, schema, name)
	}
	in := w.schema
	if in == "" {
		in = string(q.schema)
	}
	return sameName(w.table, name) && sameName(in, schema)
}

// changes reports whether an UPDATE may change rows of the table.
func (w *written) changes(q query, schema, name string) bool {
	return w.verb == "UPDATE" && named(query{schema: q.schema, text: w.targets}, schema, name)
}

// sameName compares names as carefully as can be: a name that is not ASCII may be written in any character set, so that two such
// count as the same.
func sameName(a, b string) bool {
	return equalFold(a, b) || !ascii(a) && !ascii(b)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// named reports whether a statement names the table as a word, and its schema can be meant.
func named(q query, schema, name string) bool {
	return (word(q.text, name) || !ascii(name) && names(q.text, name)) && (equalFold(string(q.schema), schema) || names(q.text, schema))
}

// word reports whether a text contains a name that is no part of a longer one.
func word(text []byte, name string) bool {
	return wordWhere(text, name, func(_, _ []byte) bool { return true })
}

// wordWhere looks for such a name between two texts (in lower case) that are as asked for.
func wordWhere(text []byte, name string, fits func(before, behind []byte) bool) bool {
	low, name := bytes.ToLower(text), strings.ToLower(name)
	if name == "" {
		return false
	}
	for from := 0; ; {
		i := bytes.Index(low[from:], []byte(name))
		if i < 0 {
			return false
		}
		i += from
		end := i + len(name)
		if (i == 0 || !identByte(low[i-1])) && (end == len(low) || !identByte(low[end])) && fits(low[:i], low[end:]) {
			return true
		}
		from = i + 1
	}
}

// invokes reports whether a text calls a routine: by CALL, or with parentheses behind its name.
func invokes(q query, schema, name string) bool {
	return named(q, schema, name) && (!ascii(name) || wordWhere(q.text, name, func(before, behind []byte) bool {
		return bytes.HasPrefix(bytes.TrimLeft(behind, "`\" \t\r\n"), []byte("(")) || word(before[max(0, len(before)-256):], "call")
	}))
}

func wordByte(c byte) bool { return identByte(c) || c >= 'A' && c <= 'Z' }
