// Package rowheaders reads the JSON object in a row's headers column, member by member and in order, without building
// anything: values without escapes alias the text that was scanned.
//
// It accepts exactly the objects that encoding/json accepts and gives the same texts. SQL NULL, an empty text and a JSON
// null are no headers and no error: applications write all three for "none".
package rowheaders

import (
	"errors"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/outtail/outtail/internal/arena"
)

// Kind is what a member's value was in JSON.
type Kind uint8

const (
	// Null has no value: the header is left out, as that of a NULL column is.
	Null Kind = iota
	// Text is a string, unescaped.
	Text
	// Literal is a number, true or false as it was written.
	Literal
	// Nested is an object or array as it was written.
	Nested
)

// Errors say what is wrong with the text, never what it holds (I10).
var (
	ErrNotObject = errors.New("not a JSON object")
	ErrSyntax    = errors.New("broken JSON")
	ErrTooDeep   = errors.New("JSON nested too deeply")
)

// maxDepth is that of encoding/json.
const maxDepth = 10_000

// Scanner goes through one object at a time. One goroutine. The zero value is ready.
type Scanner struct {
	// Name is the member's name, valid until the next Next. Value stays valid as long as the scanned text does.
	Name  []byte
	Value []byte
	Kind  Kind

	src   []byte
	pos   int
	began bool
	done  bool
	err   error
	name  []byte // unescaped names, reused
	long  []byte // unescaped values on their way into the arena, reused
	mem   arena.Arena
}

// Reset begins a new text.
func (s *Scanner) Reset(text []byte) {
	s.src, s.pos, s.began, s.done, s.err = text, 0, false, false, nil
	s.Name, s.Value, s.Kind = nil, nil, Null
}

// Err is what ended the scan early; nil after a complete object.
func (s *Scanner) Err() error { return s.err }

// Next moves to the next member; false at the end and on an error.
func (s *Scanner) Next() bool {
	if s.done {
		return false
	}
	if !s.began {
		return s.begin()
	}
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		s.space()
		return s.member()
	case '}':
		s.pos++
		return s.end()
	}
	return s.fail(ErrSyntax)
}

func (s *Scanner) begin() bool {
	s.began = true
	s.space()
	switch {
	case s.pos == len(s.src):
		s.done = true
		return false
	case s.peek() == 'n':
		if !s.literal("null") {
			return s.fail(ErrNotObject)
		}
		return s.end()
	case s.peek() != '{':
		return s.fail(ErrNotObject)
	}
	s.pos++
	s.space()
	if s.peek() == '}' {
		s.pos++
		return s.end()
	}
	return s.member()
}

func (s *Scanner) end() bool {
	s.space()
	if s.pos != len(s.src) {
		return s.fail(ErrSyntax)
	}
	s.done = true
	return false
}

func (s *Scanner) fail(err error) bool {
	s.done = true
	if s.err == nil {
		s.err = err
	}
	return false
}

func (s *Scanner) member() bool {
	var ok bool
	if s.Name, s.name, ok = s.str(s.name, false); !ok {
		return s.fail(ErrSyntax)
	}
	s.space()
	if s.peek() != ':' {
		return s.fail(ErrSyntax)
	}
	s.pos++
	s.space()
	start := s.pos
	switch c := s.peek(); c {
	case '"':
		s.Kind = Text
		s.Value, s.long, ok = s.str(s.long, true)
		if !ok {
			return s.fail(ErrSyntax)
		}
		return true
	case 'n':
		s.Kind, s.Value = Null, nil
		if !s.literal("null") {
			return s.fail(ErrSyntax)
		}
		return true
	case '{', '[':
		s.Kind = Nested
		if err := s.skip(1); err != nil {
			return s.fail(err)
		}
	default:
		s.Kind = Literal
		if !s.scalar() {
			return s.fail(ErrSyntax)
		}
	}
	s.Value = s.valid(s.src[start:s.pos])
	return true
}

// valid replaces what is no UTF-8, which a header promises to be.
func (s *Scanner) valid(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	s.long = appendValid(s.long[:0], b)
	return s.mem.Copy(s.long)
}

func appendValid(dst, b []byte) []byte {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
	}
	return dst
}

// skip passes an object or array and checks it.
func (s *Scanner) skip(depth int) error {
	if depth >= maxDepth {
		return ErrTooDeep
	}
	object := s.peek() == '{'
	closing := byte(']')
	if object {
		closing = '}'
	}
	s.pos++
	s.space()
	if s.peek() == closing {
		s.pos++
		return nil
	}
	for {
		if object {
			if !s.skipString() {
				return ErrSyntax
			}
			s.space()
			if s.peek() != ':' {
				return ErrSyntax
			}
			s.pos++
			s.space()
		}
		switch s.peek() {
		case '{', '[':
			if err := s.skip(depth + 1); err != nil {
				return err
			}
		case '"':
			if !s.skipString() {
				return ErrSyntax
			}
		case 'n':
			if !s.literal("null") {
				return ErrSyntax
			}
		default:
			if !s.scalar() {
				return ErrSyntax
			}
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case closing:
			s.pos++
			return nil
		default:
			return ErrSyntax
		}
	}
}

// scalar passes a number, true or false.
func (s *Scanner) scalar() bool {
	switch s.peek() {
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case '-':
		s.pos++
	}
	switch c := s.peek(); {
	case c == '0':
		s.pos++
	case c >= '1' && c <= '9':
		s.digits()
	default:
		return false
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return false
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		return s.digits()
	}
	return true
}

func (s *Scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.src) && s.src[s.pos] >= '0' && s.src[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

func (s *Scanner) literal(word string) bool {
	if len(s.src)-s.pos < len(word) || string(s.src[s.pos:s.pos+len(word)]) != word {
		return false
	}
	s.pos += len(word)
	return true
}

func (s *Scanner) space() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek is the byte at hand, 0 at the end; a NUL is legal nowhere outside strings, so the two need no telling apart.
func (s *Scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// str reads a string: aliasing the text where nothing is escaped, else through scratch, which comes back grown; keep
// says that the result has to outlive the next string.
func (s *Scanner) str(scratch []byte, keep bool) (text, grown []byte, ok bool) {
	start := s.pos + 1
	plain, ok := s.scanString()
	if !ok {
		return nil, scratch, false
	}
	raw := s.src[start : s.pos-1 : s.pos-1]
	if plain {
		return raw, scratch, true
	}
	scratch = unescape(scratch[:0], raw)
	if keep {
		return s.mem.Copy(scratch), scratch, true
	}
	return scratch, scratch, true
}

func (s *Scanner) skipString() bool {
	_, ok := s.scanString()
	return ok
}

// scanString passes a string and checks it; plain says that its bytes are its text.
func (s *Scanner) scanString() (plain, ok bool) {
	if s.peek() != '"' {
		return false, false
	}
	s.pos++
	start, plain, ascii := s.pos, true, true
	for s.pos < len(s.src) {
		c := s.src[s.pos]
		switch {
		case c == '"':
			s.pos++
			return plain && (ascii || utf8.Valid(s.src[start:s.pos-1])), true
		case c < 0x20:
			return false, false
		case c == '\\':
			plain = false
			s.pos++
			switch s.peek() {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				s.pos++
			case 'u':
				s.pos++
				if _, ok := hex4(s.src[s.pos:]); !ok {
					return false, false
				}
				s.pos += 4
			default:
				return false, false
			}
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.pos++
		}
	}
	return false, false
}

// unescape appends the text of a string that scanString has checked. Half of a surrogate pair becomes U+FFFD.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			if c < utf8.RuneSelf {
				dst = append(dst, c)
				i++
				continue
			}
			r, n := utf8.DecodeRune(raw[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		switch c = raw[i+1]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hex4(raw[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				r2 := rune(utf8.RuneError)
				if len(raw)-i >= 6 && raw[i] == '\\' && raw[i+1] == 'u' {
					low, _ := hex4(raw[i+2:])
					r2 = low
				}
				if r = utf16.DecodeRune(r, r2); r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
		i += 2
	}
	return dst
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
