package wal

import (
	"fmt"
	"strings"
	"unicode"
)

// name is a schema-qualified table after the rules of SQL.
type name struct {
	schema, table string
}

// sql quotes the name for a statement.
func (n name) sql() string { return quoteIdent(n.schema) + "." + quoteIdent(n.table) }

// String is for people: quoted only where SQL needs it.
func (n name) String() string { return showIdent(n.schema) + "." + showIdent(n.table) }

// parseTable reads schema.table as SQL would: what is not in double quotes is folded to lower case, a quote inside quotes
// is doubled.
func parseTable(s string) (name, error) {
	schema, rest, err := parseIdent(s)
	if err != nil {
		return name{}, fmt.Errorf("table %q: %w", s, err)
	}
	if !strings.HasPrefix(rest, ".") {
		return name{}, fmt.Errorf("table %q: write it as schema.table, for example public.%s", s, showIdent(schema))
	}
	table, rest, err := parseIdent(rest[1:])
	if err != nil {
		return name{}, fmt.Errorf("table %q: %w", s, err)
	}
	if rest != "" {
		return name{}, fmt.Errorf("table %q: %q is left over after schema.table", s, rest)
	}
	return name{schema, table}, nil
}

// parseIdent reads one identifier from the front of s.
func parseIdent(s string) (ident, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		var b strings.Builder
		for i := 1; i < len(s); i++ {
			if s[i] != '"' {
				b.WriteByte(s[i])
				continue
			}
			if i+1 < len(s) && s[i+1] == '"' {
				b.WriteByte('"')
				i++
				continue
			}
			if b.Len() == 0 {
				return "", "", fmt.Errorf("an identifier is empty")
			}
			return checked(b.String(), s[i+1:])
		}
		return "", "", fmt.Errorf("a quote is not closed")
	}
	end := len(s)
	for i, r := range s {
		if !identRune(r, i == 0) {
			end = i
			break
		}
	}
	if end == 0 {
		return "", "", fmt.Errorf("an identifier is missing or needs double quotes")
	}
	// The server folds ASCII letters only, in UTF-8 databases.
	return checked(strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s[:end]), s[end:])
}

// checked refuses what no server can hold: a zero byte, or a name that it would cut at 63 bytes.
func checked(ident, rest string) (string, string, error) {
	if strings.IndexByte(ident, 0) >= 0 {
		return "", "", fmt.Errorf("an identifier holds a zero byte")
	}
	if len(ident) > 63 {
		return "", "", fmt.Errorf("an identifier is longer than 63 bytes")
	}
	return ident, rest, nil
}

func identRune(r rune, first bool) bool {
	switch {
	case r == '_', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return true
	case r >= 0x80:
		return r != unicode.ReplacementChar && !unicode.IsSpace(r)
	}
	return !first && (r == '$' || r >= '0' && r <= '9')
}

// quoteIdent quotes always, so that reserved words need no list.
func quoteIdent(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// quoteLiteral quotes a string constant; standard_conforming_strings is on in our sessions.
func quoteLiteral(s string) string { return `'` + strings.ReplaceAll(s, `'`, `''`) + `'` }

// showIdent quotes an identifier only where SQL would fold or refuse it.
func showIdent(s string) string {
	for i, r := range s {
		if !identRune(r, i == 0) || r >= 'A' && r <= 'Z' {
			return quoteIdent(s)
		}
	}
	return s
}
