package binlog

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"
)

// utf16Text is utf16, utf16le and ucs2.
type utf16Text struct {
	little  bool
	noPairs bool // UCS-2: halves of pairs are no characters
}

func (t utf16Text) unit(b []byte) rune {
	if t.little {
		return rune(binary.LittleEndian.Uint16(b))
	}
	return rune(binary.BigEndian.Uint16(b))
}

func (t utf16Text) appendUTF8(dst, b []byte) ([]byte, error) {
	at := len(dst)
	if len(b)%2 != 0 {
		return dst, errText
	}
	for len(b) > 0 {
		r := t.unit(b)
		b = b[2:]
		if utf16.IsSurrogate(r) {
			if t.noPairs || len(b) < 2 {
				return dst[:at], errText
			}
			if r = utf16.DecodeRune(r, t.unit(b)); r == utf8.RuneError {
				return dst[:at], errText
			}
			b = b[2:]
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, nil
}

type utf32Text struct{}

func (utf32Text) appendUTF8(dst, b []byte) ([]byte, error) {
	at := len(dst)
	if len(b)%4 != 0 {
		return dst, errText
	}
	for ; len(b) > 0; b = b[4:] {
		r := binary.BigEndian.Uint32(b)
		if r > utf8.MaxRune || !utf8.ValidRune(rune(r)) {
			return dst[:at], errText
		}
		dst = utf8.AppendRune(dst, rune(r))
	}
	return dst, nil
}

// quadRune reads four bytes of GB 18030.
func quadRune(b []byte) rune {
	var out [8]byte
	n, used, err := simplifiedchinese.GB18030.NewDecoder().Transform(out[:], b[:4], true)
	if err != nil || used != 4 {
		return noRune
	}
	r, size := utf8.DecodeRune(out[:n])
	if r == utf8.RuneError || size != n {
		return noRune
	}
	return r
}
