package binlog

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

type ddlTokenKind uint8

const (
	tokenWord   ddlTokenKind = iota + 1 // a keyword, a name, a number
	tokenQuoted                         // a name in backticks
	tokenDouble                         // in double quotes: a string, or a name where sql_mode has ANSI_QUOTES
	tokenString
	tokenSign
)

// ddlToken is a piece of a statement. text is without quotes.
type ddlToken struct {
	kind ddlTokenKind
	text string
}

// lex cuts a statement, more strictly than tokens does: what it makes of it is carried out. It gives up where the meaning depends on what the text does not say: on the server's version (versioned
// comments), on sql_mode (a backslash in quotes), on the client's character set (what is not UTF-8).
func lex(text []byte) (out []ddlToken, ok bool) {
	if !utf8.Valid(text) {
		return nil, false
	}
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c <= ' ':
			i++
		case c == '#', c == '-' && i+2 < len(text) && text[i+1] == '-' && text[i+2] <= ' ':
			n := bytes.IndexByte(text[i:], '\n')
			if n < 0 {
				return out, true
			}
			i += n + 1
		case c == '/' && i+1 < len(text) && text[i+1] == '*':
			if bytes.HasPrefix(text[i:], []byte("/*!")) || bytes.HasPrefix(text[i:], []byte("/*M!")) {
				return nil, false
			}
			n := bytes.Index(text[i+2:], []byte("*/"))
			if n < 0 {
				return nil, false
			}
			i += n + 4
		case c == '`' || c == '\'' || c == '"':
			var b strings.Builder
			for i++; ; i++ {
				if i >= len(text) || text[i] == '\\' && c != '`' {
					return nil, false
				}
				if text[i] == c {
					if i+1 >= len(text) || text[i+1] != c {
						break
					}
					i++
				}
				b.WriteByte(text[i])
			}
			i++
			kind := tokenString
			switch c {
			case '`':
				kind = tokenQuoted
			case '"':
				kind = tokenDouble
			}
			out = append(out, ddlToken{kind, b.String()})
		case wordByte(c):
			from := i
			digits := c >= '0' && c <= '9'
			for i < len(text) && (wordByte(text[i]) || digits && text[i] == '.') {
				i++
			}
			out = append(out, ddlToken{tokenWord, string(text[from:i])})
		default:
			out = append(out, ddlToken{tokenSign, string(text[i : i+1])})
			i++
		}
	}
	for len(out) > 0 && out[len(out)-1] == (ddlToken{tokenSign, ";"}) {
		out = out[:len(out)-1]
	}
	return out, true
}
