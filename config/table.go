package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// table is a name after the rules of SQL, for comparing.
type table struct{ schema, name string }

// readTables reads the list; texts are as written, tables are what they mean.
func readTables(f field, parseTable func(string) (table, error)) (texts []string, tables []table) {
	if !f.set() {
		f.bad(codeMissing, "is required", "list the outbox tables: tables: [schema.outbox]")
		return nil, nil
	}
	items := f.items()
	if len(items) == 0 && f.value.Kind == sequence {
		f.bad(codeMissing, "is empty", "list the outbox tables: tables: [schema.outbox]")
	}
	seen := map[table]bool{}
	for _, item := range items {
		text, ok := item.text()
		if !ok {
			continue
		}
		t, err := parseTable(text)
		if err != nil {
			what := err.Error()
			if hasReference(item.value.Value) {
				what = "is not schema.table, quoted as SQL would where needed" // the error quotes the value
			}
			item.bad(codeType, item.shown()+" "+what, "")
			continue
		}
		if seen[t] {
			item.bad(codeDuplicate, item.shown()+" is listed twice", "remove one of them")
			continue
		}
		seen[t] = true
		texts, tables = append(texts, text), append(tables, t)
	}
	return texts, tables
}

// parsePostgresTable reads schema.table; what is not in double quotes is folded to lower case, as the server does.
func parsePostgresTable(text string) (table, error) {
	parts, err := split(text, `"`, func(s string) (string, error) {
		if !plain(s, "_$") || unicode.IsDigit(rune(s[0])) || s[0] == '$' {
			return "", fmt.Errorf("needs double quotes: \"%s\"", s)
		}
		return strings.Map(func(r rune) rune {
			if r >= 'A' && r <= 'Z' {
				return r + 'a' - 'A'
			}
			return r
		}, s), nil
	})
	switch {
	case err != nil:
		return table{}, err
	case len(parts) == 1:
		return table{}, fmt.Errorf("has no schema; write public.%s", text)
	case len(parts) > 2:
		return table{}, errors.New("has too many parts; write schema.table")
	}
	for _, p := range parts {
		if len(p) > 63 {
			return table{}, errors.New("is longer than the 63 bytes that Postgres keeps")
		}
	}
	return table{parts[0], parts[1]}, nil
}

// parseMySQLTable reads schema.table or, where a database is set, table; names are taken as they are.
func parseMySQLTable(text, database string) (table, error) {
	parts, err := split(text, "`\"", func(s string) (string, error) {
		if !plain(s, "_$-") {
			return "", fmt.Errorf("needs backticks: `%s`", s)
		}
		return s, nil
	})
	switch {
	case err != nil:
		return table{}, err
	case len(parts) == 1 && database == "":
		return table{}, fmt.Errorf("has no schema; write schema.%s, or set database", text)
	case len(parts) == 1:
		return table{database, parts[0]}, nil
	case len(parts) > 2:
		return table{}, errors.New("has too many parts; write schema.table")
	}
	return table{parts[0], parts[1]}, nil
}

// plain reports whether a name needs no quotes.
func plain(s, also string) bool {
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(also, r) {
			return false
		}
	}
	return true
}

// split cuts a name at its dots, outside quotes; a quote inside quotes is doubled. unquoted treats a part without quotes.
func split(text, quotes string, unquoted func(string) (string, error)) ([]string, error) {
	var parts []string
	rest := text
	for {
		if rest == "" || rest[0] == '.' {
			return nil, errors.New("is not schema.table: a name is missing")
		}
		var part string
		if strings.IndexByte(quotes, rest[0]) >= 0 {
			var ok bool
			if part, rest, ok = quotedPart(rest); !ok {
				return nil, errors.New("has a quote that is not closed")
			}
			if part == "" {
				return nil, errors.New("is not schema.table: a name is empty")
			}
		} else {
			end := strings.IndexByte(rest, '.')
			if end < 0 {
				end = len(rest)
			}
			var err error
			if part, err = unquoted(rest[:end]); err != nil {
				return nil, err
			}
			rest = rest[end:]
		}
		parts = append(parts, part)
		if rest == "" {
			return parts, nil
		}
		if rest[0] != '.' {
			return nil, errors.New("is not schema.table: something follows a quoted name")
		}
		rest = rest[1:]
	}
}

func quotedPart(s string) (part, rest string, ok bool) {
	var b strings.Builder
	q := s[0]
	for i := 1; i < len(s); i++ {
		if s[i] != q {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == q {
			b.WriteByte(q)
			i++
			continue
		}
		return b.String(), s[i+1:], true
	}
	return "", "", false
}
