package binlog

import (
	"bytes"
	"strings"
)

// stmtKind is what a QUERY_EVENT means to us.
type stmtKind uint8

const (
	stmtOther      stmtKind = iota
	stmtBegin               // BEGIN, XA START
	stmtCommit              // COMMIT
	stmtRollback            // ROLLBACK
	stmtSavepoint           // SAVEPOINT name
	stmtRollbackTo          // ROLLBACK TO name
	stmtXAEnd               // XA END: the transaction goes on
	stmtXACommit            // XA COMMIT, XA ROLLBACK of what was prepared before
	stmtXARollback
	stmtDML    // INSERT, REPLACE, UPDATE, DELETE, LOAD as a statement
	stmtSelect // SELECT: only one that runs a function that writes is logged
	stmtDDL    // ALTER, RENAME, CREATE, DROP of a table or schema
)

// statement classifies a statement by its first words; name is a savepoint's.
func statement(text []byte) (kind stmtKind, name string) {
	t := skipComments(text)
	word, rest := firstWord(t)
	switch strings.ToUpper(string(word)) {
	case "BEGIN", "START":
		return stmtBegin, ""
	case "COMMIT":
		return stmtCommit, ""
	case "SAVEPOINT":
		return stmtSavepoint, unquoted(rest)
	case "ROLLBACK":
		next, after := firstWord(rest)
		if bytes.EqualFold(next, []byte("WORK")) {
			next, after = firstWord(after)
		}
		if !bytes.EqualFold(next, []byte("TO")) {
			return stmtRollback, ""
		}
		if w, a := firstWord(after); bytes.EqualFold(w, []byte("SAVEPOINT")) && len(bytes.TrimSpace(a)) > 0 {
			after = a
		}
		return stmtRollbackTo, unquoted(after)
	case "XA":
		next, _ := firstWord(rest)
		switch strings.ToUpper(string(next)) {
		case "START", "BEGIN":
			return stmtBegin, ""
		case "END":
			return stmtXAEnd, ""
		case "COMMIT":
			return stmtXACommit, ""
		case "ROLLBACK":
			return stmtXARollback, ""
		}
		return stmtOther, ""
	case "INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "WITH":
		return stmtDML, ""
	case "SELECT", "DO", "CALL":
		return stmtSelect, ""
	case "RENAME", "ALTER", "CREATE", "DROP":
		return stmtDDL, ""
	case "SET":
		// MariaDB: SET STATEMENT lock_wait_timeout = 5 FOR ALTER TABLE …
		if next, after := firstWord(rest); bytes.EqualFold(next, []byte("STATEMENT")) {
			if inner := behindFor(after); inner != nil {
				return statement(inner)
			}
			return stmtDDL, "" // whatever it is
		}
	}
	return stmtOther, ""
}

// behindFor gives what stands behind the first FOR outside of quotes.
func behindFor(t []byte) []byte {
	for i := 0; i < len(t); i++ {
		switch c := t[i]; {
		case c == '\'' || c == '"' || c == '`':
			n := bytes.IndexByte(t[i+1:], c)
			if n < 0 {
				return nil
			}
			i += n + 1
		case wordByte(c):
			word, rest := firstWord(t[i:])
			if bytes.EqualFold(word, []byte("FOR")) {
				return rest
			}
			for i+1 < len(t) && wordByte(t[i+1]) {
				i++
			}
		}
	}
	return nil
}

// skipComments skips blanks and comments; of versioned ones, whose text the server runs, only what opens and closes them.
func skipComments(t []byte) []byte {
	for {
		t = bytes.TrimLeft(t, " \t\r\n;(")
		switch {
		case bytes.HasPrefix(t, []byte("/*!")), bytes.HasPrefix(t, []byte("/*M!")):
			t = bytes.TrimLeft(t[bytes.IndexByte(t, '!')+1:], "0123456789")
		case bytes.HasPrefix(t, []byte("*/")):
			t = t[2:]
		case bytes.HasPrefix(t, []byte("/*")):
			i := bytes.Index(t, []byte("*/"))
			if i < 0 {
				return nil
			}
			t = t[i+2:]
		case bytes.HasPrefix(t, []byte("--")) && (len(t) == 2 || t[2] <= ' '), bytes.HasPrefix(t, []byte("#")):
			i := bytes.IndexByte(t, '\n')
			if i < 0 {
				return nil
			}
			t = t[i+1:]
		default:
			return t
		}
	}
}

func firstWord(t []byte) (word, rest []byte) {
	t = skipComments(t)
	i := 0
	for i < len(t) && (t[i] == '_' || t[i] >= 'a' && t[i] <= 'z' || t[i] >= 'A' && t[i] <= 'Z') {
		i++
	}
	return t[:i], t[i:]
}

func unquoted(t []byte) string {
	s := strings.TrimSpace(string(t))
	if len(s) > 1 && (s[0] == '`' || s[0] == '"') {
		q := s[:1]
		s = strings.ReplaceAll(strings.TrimSuffix(s[1:], q), q+q, q)
	}
	return strings.ToLower(s)
}

// touches reports whether a statement may change the columns of a table. Too often rather than too seldom: any ALTER, RENAME,
// CREATE or DROP that contains the table's bare name anywhere, or that drops a schema.
func touches(q query, t *table) bool {
	text := q.text
	kind, _ := statement(text)
	if kind != stmtDDL {
		return false
	}
	_, rest := firstWord(text)
	next, after := firstWord(rest)
	switch strings.ToUpper(string(next)) {
	case "INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "USER", "ROLE", "TRIGGER", "FUNCTION", "PROCEDURE", "EVENT", "DEFINER":
		return false
	case "DATABASE", "SCHEMA":
		return names(after, t.schema)
	}
	return names(rest, t.table) && q.reaches(t)
}

// reaches reports whether a table's name in the statement can mean t: its schema is the default one, or is named too.
func (q query) reaches(t *table) bool {
	return equalFold(string(q.schema), t.schema) || names(q.text, t.schema)
}

// names reports whether a text contains an identifier, with regard to nothing but the letters. A name that is not ASCII may be
// written in any character set: it counts as named.
func names(text []byte, name string) bool {
	for i := range len(name) {
		if name[i] >= 0x80 {
			return true
		}
	}
	t := bytes.ToLower(text)
	name = strings.ToLower(name)
	return bytes.Contains(t, []byte(name)) ||
		bytes.Contains(t, []byte(strings.ReplaceAll(name, "`", "``"))) ||
		bytes.Contains(t, []byte(strings.ReplaceAll(name, `"`, `""`)))
}

func identByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}
