package binlog

import (
	"errors"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// textKind says what becomes of a character column's bytes.
type textKind uint8

const (
	textAsIs    textKind = iota // UTF-8 already
	textBinary                  // no text at all
	textDecode                  // through a transcoder
	textUnknown                 // a character set that nobody here can read: refused at start, a fault of each row later
)

// transcoder turns the bytes of a character set into UTF-8, exactly as the server does where it knows the character; what it
// has no character for is refused, never replaced.
type transcoder interface {
	appendUTF8(dst, b []byte) ([]byte, error)
}

var errText = errors.New("the text has bytes that its character set does not know")

// charsets are those that a source has met. The tables of some are large and take milliseconds to build, so each is built
// once. The session's goroutine owns it.
type charsets map[string]transcoder

// of says how a character set of the server becomes UTF-8.
func (c charsets) of(name string) (textKind, transcoder) {
	switch name {
	case "utf8mb4", "utf8mb3", "utf8":
		return textAsIs, nil
	case "binary":
		return textBinary, nil
	}
	if known, ok := c[name]; ok {
		return textDecode, known
	}
	cs := newCharset(name)
	if cs == nil {
		return textUnknown, nil
	}
	c[name] = cs
	return textDecode, cs
}

// readable reports whether a character set of this name can be turned into UTF-8.
func readable(name string) bool {
	switch name {
	case "utf8mb4", "utf8mb3", "utf8", "binary", "utf16", "utf16le", "utf32", "ucs2":
		return true
	}
	_, ok := standards[name]
	return ok
}

func newCharset(name string) transcoder {
	switch name {
	case "utf16":
		return utf16Text{}
	case "utf16le":
		return utf16Text{little: true}
	case "ucs2":
		return utf16Text{noPairs: true}
	case "utf32":
		return utf32Text{}
	}
	standard, ok := standards[name]
	if !ok {
		return nil
	}
	return newTextTable(name, standard)
}

// standards are the encodings that the server's character sets are nearest to; nil is ASCII. What the server does otherwise is
// in charsets.txt. MySQL's latin1 is Windows-1252 in truth.
var standards = map[string]encoding.Encoding{
	"ascii":    nil,
	"armscii8": nil,
	"dec8":     nil,
	"geostd8":  nil,
	"hp8":      nil,
	"keybcs2":  nil,
	"macce":    nil,
	"swe7":     nil,
	"latin1":   charmap.Windows1252,
	"latin2":   charmap.ISO8859_2,
	"latin5":   charmap.ISO8859_9,
	"latin7":   charmap.ISO8859_13,
	"greek":    charmap.ISO8859_7,
	"hebrew":   charmap.ISO8859_8,
	"koi8r":    charmap.KOI8R,
	"koi8u":    charmap.KOI8U,
	"cp850":    charmap.CodePage850,
	"cp852":    charmap.CodePage852,
	"cp866":    charmap.CodePage866,
	"cp1250":   charmap.Windows1250,
	"cp1251":   charmap.Windows1251,
	"cp1256":   charmap.Windows1256,
	"cp1257":   charmap.Windows1257,
	"macroman": charmap.Macintosh,
	"tis620":   charmap.Windows874,
	"gbk":      simplifiedchinese.GBK,
	"gb2312":   simplifiedchinese.GBK,
	"gb18030":  simplifiedchinese.GB18030,
	"big5":     traditionalchinese.Big5,
	"sjis":     japanese.ShiftJIS,
	"cp932":    japanese.ShiftJIS,
	"ujis":     japanese.EUCJP,
	"eucjpms":  japanese.EUCJP,
	"euckr":    korean.EUCKR,
}
