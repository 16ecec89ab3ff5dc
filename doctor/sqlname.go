package doctor

import (
	"fmt"
	"strings"
)

// sqlName is a schema-qualified table.
type sqlName struct {
	schema, table string
}

// pg quotes the name for Postgres.
func (n sqlName) pg() string { return pgIdent(n.schema) + "." + pgIdent(n.table) }

// my quotes the name for MySQL.
func (n sqlName) my() string { return backtick(n.schema) + "." + backtick(n.table) }

// String is for people.
func (n sqlName) String() string { return n.schema + "." + n.table }

func pgIdent(s string) string  { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
func backtick(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// literal quotes a string constant, for both kinds of servers: what is quoted here holds no backslash on Postgres, and
// on MySQL both escapes are written.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func myLiteral(s string) string { return literal(strings.ReplaceAll(s, `\`, `\\`)) }

// parseName reads schema.table; quotes are the characters that may enclose a part, and fold lowers what is not enclosed.
func parseName(s, schema, quotes string, fold bool) (sqlName, error) {
	var parts []string
	for rest := s; ; {
		var part string
		if rest != "" && strings.ContainsRune(quotes, rune(rest[0])) {
			q := rest[:1]
			end := 1
			for {
				i := strings.Index(rest[end:], q)
				if i < 0 {
					return sqlName{}, fmt.Errorf("%q: a quote is open", s)
				}
				end += i + 1
				if !strings.HasPrefix(rest[end:], q) {
					break
				}
				end++
			}
			part, rest = strings.ReplaceAll(rest[1:end-1], q+q, q), rest[end:]
		} else {
			part, _, _ = strings.Cut(rest, ".")
			rest = rest[len(part):]
			if fold {
				part = asciiLower(part)
			}
		}
		if part == "" {
			return sqlName{}, fmt.Errorf("%q is not schema.table", s)
		}
		parts = append(parts, part)
		if rest == "" {
			break
		}
		if rest[0] != '.' {
			return sqlName{}, fmt.Errorf("%q is not schema.table", s)
		}
		rest = rest[1:]
	}
	switch {
	case len(parts) == 2:
		return sqlName{parts[0], parts[1]}, nil
	case len(parts) == 1 && schema != "":
		return sqlName{schema, parts[0]}, nil
	}
	return sqlName{}, fmt.Errorf("%q is not schema.table", s)
}

// asciiLower folds as Postgres does in UTF-8 databases.
func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
