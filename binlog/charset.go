package binlog

import (
	"bytes"
	"errors"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// textKind says what becomes of a character column's bytes.
type textKind uint8

const (
	textAsIs    textKind = iota // UTF-8 already
	textBinary                  // no text at all
	textDecode                  // through an encoding
	textUnknown                 // a charset that nobody here can read: a fault of each row
)

// textOf says how a character set of the server becomes UTF-8. MySQL's latin1 is Windows-1252 in truth.
func textOf(charset string) (textKind, encoding.Encoding) {
	switch charset {
	case "utf8mb4", "utf8mb3", "utf8", "ascii":
		return textAsIs, nil
	case "binary":
		return textBinary, nil
	}
	var e encoding.Encoding
	switch charset {
	case "latin1":
		e = charmap.Windows1252
	case "latin2":
		e = charmap.ISO8859_2
	case "latin5":
		e = charmap.ISO8859_9
	case "latin7":
		e = charmap.ISO8859_13
	case "greek":
		e = charmap.ISO8859_7
	case "hebrew":
		e = charmap.ISO8859_8
	case "koi8r":
		e = charmap.KOI8R
	case "koi8u":
		e = charmap.KOI8U
	case "cp850":
		e = charmap.CodePage850
	case "cp852":
		e = charmap.CodePage852
	case "cp866":
		e = charmap.CodePage866
	case "cp1250":
		e = charmap.Windows1250
	case "cp1251":
		e = charmap.Windows1251
	case "cp1256":
		e = charmap.Windows1256
	case "cp1257":
		e = charmap.Windows1257
	case "macroman":
		e = charmap.Macintosh
	case "tis620":
		e = charmap.Windows874
	case "gbk", "gb2312":
		e = simplifiedchinese.GBK
	case "gb18030":
		e = simplifiedchinese.GB18030
	case "big5":
		e = traditionalchinese.Big5
	case "sjis", "cp932":
		e = japanese.ShiftJIS
	case "ujis", "eucjpms":
		e = japanese.EUCJP
	case "euckr":
		e = korean.EUCKR
	case "ucs2", "utf16":
		e = unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	case "utf16le":
		e = unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	case "utf32":
		e = utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)
	default:
		return textUnknown, nil
	}
	return textDecode, e
}

var errText = errors.New("the text has bytes that its character set does not know")

var replacement = []byte("\ufffd")

// appendText decodes b; it refuses what the encoding has no character for rather than deliver a replacement.
func appendText(dst, b []byte, e encoding.Encoding) ([]byte, error) {
	plain := true
	if _, single := e.(*charmap.Charmap); single {
		for _, c := range b {
			if c >= 0x80 {
				plain = false
				break
			}
		}
		if plain {
			return append(dst, b...), nil
		}
	}
	out, err := e.NewDecoder().Bytes(b)
	if err != nil || bytes.Contains(out, replacement) {
		return dst, errText
	}
	return append(dst, out...), nil
}
