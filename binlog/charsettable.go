package binlog

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
)

// charsets.txt has what the servers do otherwise than the standards: lines of name, code, count and first character (all but the
// count in hex; "-" for none), for that many codes and characters in a row. It is written by the test that asks a real server for
// every code.
//
//go:embed charsets.txt
var charsetsText string

// textTable is a character set of one to four bytes per character.
type textTable struct {
	single [256]rune       // noRune, or leads: more bytes follow
	double []rune          // by both bytes; nil where there are none
	triple []rune          // behind 8F, by the two others (EUC-JP)
	ascii  bool            // bytes below 80 are what they are in ASCII
	quad   bool            // GB 18030: a second byte of 30 to 39 begins four
	quads  map[uint32]rune // what differs among them
}

const (
	noRune rune = -1
	leads  rune = -2
)

func newTextTable(name string, standard encoding.Encoding) *textTable {
	t := &textTable{quads: map[uint32]rune{}}
	for i := range t.single {
		t.single[i] = noRune
		if standard == nil && i < 0x80 {
			t.single[i] = rune(i)
		}
	}
	if standard != nil {
		t.fill(name, standard)
	}
	t.correct(name)
	t.ascii = true
	for i := range rune(0x80) {
		t.ascii = t.ascii && t.single[i] == i
	}
	return t
}

// fill takes over what the standard says.
func (t *textTable) fill(name string, standard encoding.Encoding) {
	d := standard.NewDecoder()
	var out [16]byte
	one := func(code ...byte) rune {
		d.Reset()
		n, used, err := d.Transform(out[:], code, true)
		if err != nil || used != len(code) {
			return noRune
		}
		r, size := utf8.DecodeRune(out[:n])
		if r == utf8.RuneError || size != n {
			return noRune
		}
		return r
	}
	for i := range 256 {
		t.single[i] = one(byte(i))
	}
	if _, ok := standard.(*charmap.Charmap); ok {
		return
	}
	t.double = runes(1 << 16)
	t.quad = name == "gb18030"
	for lead := 0x81; lead <= 0xfe; lead++ {
		if t.single[lead] >= 0 {
			continue
		}
		t.single[lead] = leads
		for trail := 0x40; trail <= 0xfe; trail++ {
			t.double[lead<<8|trail] = one(byte(lead), byte(trail))
		}
	}
	if name == "ujis" || name == "eucjpms" {
		t.triple = runes(1 << 16)
		for a := 0xa1; a <= 0xfe; a++ {
			for b := 0xa1; b <= 0xfe; b++ {
				t.triple[a<<8|b] = one(0x8f, byte(a), byte(b))
			}
		}
	}
}

func runes(n int) []rune {
	out := make([]rune, n)
	for i := range out {
		out[i] = noRune
	}
	return out
}

// correct applies the lines of charsets.txt.
func (t *textTable) correct(name string) {
	for line := range strings.Lines(charsetsText) {
		rest, ok := strings.CutPrefix(line, name+" ")
		if !ok {
			continue
		}
		var code, count int
		var first string
		if _, err := fmt.Sscanf(rest, "%x %d %s", &code, &count, &first); err != nil {
			continue // the test of the file would have failed
		}
		r, step := noRune, rune(0)
		if first != "-" {
			_, _ = fmt.Sscanf(first, "%x", &r)
			step = 1
		}
		for i := range count {
			switch c := code + i; {
			case c < 0x100:
				t.single[c] = r
			case c < 0x10000:
				if t.single[c>>8] < 0 {
					t.single[c>>8] = leads
				}
				t.double[c] = r
			case t.quad:
				t.quads[uint32(c)] = r
			default:
				t.triple[c&0xffff] = r
			}
			r += step
		}
	}
}

func (t *textTable) appendUTF8(dst, b []byte) ([]byte, error) {
	at := len(dst)
	for len(b) > 0 {
		if t.ascii && b[0] < 0x80 {
			n := 1
			for n < len(b) && b[n] < 0x80 {
				n++
			}
			dst = append(dst, b[:n]...)
			b = b[n:]
			continue
		}
		r, n := t.single[b[0]], 1
		if r == leads {
			if r, n = t.long(b); n == 0 {
				return dst[:at], errText
			}
		}
		if r < 0 || r == utf8.RuneError {
			return dst[:at], errText
		}
		dst = utf8.AppendRune(dst, r)
		b = b[n:]
	}
	return dst, nil
}

// long reads a character of several bytes; n is 0 where it is cut off.
func (t *textTable) long(b []byte) (r rune, n int) {
	if t.triple != nil && b[0] == 0x8f {
		if len(b) < 3 {
			return noRune, 0
		}
		return t.triple[int(b[1])<<8|int(b[2])], 3
	}
	if len(b) < 2 {
		return noRune, 0
	}
	if t.quad && b[1] >= 0x30 && b[1] <= 0x39 {
		if len(b) < 4 {
			return noRune, 0
		}
		if r, ok := t.quads[binary.BigEndian.Uint32(b)]; ok {
			return r, 4
		}
		return quadRune(b), 4
	}
	return t.double[int(b[0])<<8|int(b[1])], 2
}
