// Package glob matches whole texts against patterns in which * stands for any run of bytes (also an empty one) and ?
// for one character. There is no escape: the names that patterns are written for (event types, topics) hold neither.
package glob

import (
	"strings"
	"unicode/utf8"
)

// Pattern is a compiled pattern. The zero value matches the empty text only.
type Pattern struct {
	text  string
	exact bool
	// head is what precedes the first wildcard: most texts that do not match are refused by it alone.
	head string
	rest string
}

// Compile prepares a pattern; every text is a valid one.
func Compile(text string) Pattern {
	i := strings.IndexAny(text, "*?")
	if i < 0 {
		return Pattern{text: text, exact: true}
	}
	return Pattern{text: text, head: text[:i], rest: text[i:]}
}

// Exact reports whether the pattern has no wildcard, so that it matches its own text and nothing else.
func (p Pattern) Exact() bool { return p.exact || p.text == "" }

// String is the pattern as it was written.
func (p Pattern) String() string { return p.text }

// MatchString reports whether the whole of s matches.
func (p Pattern) MatchString(s string) bool {
	if p.Exact() {
		return s == p.text
	}
	if !strings.HasPrefix(s, p.head) {
		return false
	}
	return match(p.rest, s[len(p.head):])
}

// Match is MatchString for bytes, without an allocation.
func (p Pattern) Match(b []byte) bool {
	if p.Exact() {
		return string(b) == p.text
	}
	if len(b) < len(p.head) || string(b[:len(p.head)]) != p.head {
		return false
	}
	return match(p.rest, b[len(p.head):])
}

// match backtracks to the last * only, which is enough for globs and keeps the worst case at len(pattern)*len(s).
func match[T string | []byte](pattern string, s T) bool {
	p, i := 0, 0
	star, back := -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, back = p, i
			p++
		case p < len(pattern) && pattern[p] == '?':
			p++
			i += width(s, i)
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			back++
			p, i = star+1, back
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// width is the length of the character at i; a byte that is no UTF-8 counts as one character.
func width[T string | []byte](s T, i int) int {
	if s[i] < utf8.RuneSelf {
		return 1
	}
	end := min(len(s), i+utf8.UTFMax)
	_, n := utf8.DecodeRuneInString(string(s[i:end]))
	return n
}
