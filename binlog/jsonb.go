package binlog

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"strconv"
)

// The binary JSON of sql-common/json_binary.h, written as the text that the server prints for the column: members in stored
// order, ", " and ": " between them. In place, without building a tree.
const (
	jsonSmallObject = 0
	jsonLargeObject = 1
	jsonSmallArray  = 2
	jsonLargeArray  = 3
	jsonLiteral     = 4
	jsonInt16       = 5
	jsonUint16      = 6
	jsonInt32       = 7
	jsonUint32      = 8
	jsonInt64       = 9
	jsonUint64      = 10
	jsonDouble      = 11
	jsonString      = 12
	jsonOpaque      = 15
)

var errJSON = errors.New("the binary JSON value is damaged")

// maxJSONDepth is the server's own limit (JSON_DOCUMENT_MAX_DEPTH), plus one.
const maxJSONDepth = 101

// appendJSON writes the text of a column's value. An empty one stands for the JSON null, which the server writes where a
// NOT NULL column was given no value by an IGNOREd statement.
func appendJSON(dst, b []byte) ([]byte, error) {
	if len(b) == 0 {
		return append(dst, "null"...), nil
	}
	// No sound value becomes more than eight times longer as text; a damaged one whose members overlap could, without end.
	return appendJSONValue(dst, b[0], b[1:], 1, len(dst)+8*len(b)+64)
}

func appendJSONValue(dst []byte, kind byte, b []byte, depth, limit int) ([]byte, error) {
	switch kind {
	case jsonSmallObject, jsonSmallArray:
		return appendJSONNested(dst, b, kind == jsonSmallObject, 2, depth, limit)
	case jsonLargeObject, jsonLargeArray:
		return appendJSONNested(dst, b, kind == jsonLargeObject, 4, depth, limit)
	case jsonLiteral:
		if len(b) < 1 || b[0] > 2 {
			return dst, errJSON
		}
		return append(dst, [...]string{"null", "true", "false"}[b[0]]...), nil
	case jsonInt16:
		if len(b) < 2 {
			return dst, errJSON
		}
		return strconv.AppendInt(dst, int64(int16(binary.LittleEndian.Uint16(b))), 10), nil
	case jsonUint16:
		if len(b) < 2 {
			return dst, errJSON
		}
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint16(b)), 10), nil
	case jsonInt32:
		if len(b) < 4 {
			return dst, errJSON
		}
		return strconv.AppendInt(dst, int64(int32(binary.LittleEndian.Uint32(b))), 10), nil
	case jsonUint32:
		if len(b) < 4 {
			return dst, errJSON
		}
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(b)), 10), nil
	case jsonInt64, jsonUint64, jsonDouble:
		if len(b) < 8 {
			return dst, errJSON
		}
		v := binary.LittleEndian.Uint64(b)
		switch kind {
		case jsonInt64:
			return strconv.AppendInt(dst, int64(v), 10), nil
		case jsonUint64:
			return strconv.AppendUint(dst, v, 10), nil
		}
		return appendJSONDouble(dst, math.Float64frombits(v)), nil
	case jsonString:
		s, ok := jsonBytes(b)
		if !ok {
			return dst, errJSON
		}
		return appendJSONString(dst, s), nil
	case jsonOpaque:
		if len(b) < 1 {
			return dst, errJSON
		}
		s, ok := jsonBytes(b[1:])
		if !ok {
			return dst, errJSON
		}
		return appendJSONOpaque(dst, b[0], s)
	}
	return dst, errJSON
}

// appendJSONNested: count, size, for objects an entry of offset and length per key, an entry of type and offset (or the
// value itself, where it fits) per value. Offsets count from the count on.
func appendJSONNested(dst, b []byte, object bool, width, depth, limit int) ([]byte, error) {
	if depth > maxJSONDepth || len(b) < 2*width {
		return dst, errJSON
	}
	n, size := jsonInt(b, width), jsonInt(b[width:], width)
	if size > len(b) {
		return dst, errJSON
	}
	b = b[:size]
	keys, values := 2*width, 2*width
	if object {
		values += n * (width + 2)
	}
	if n > size || values+n*(1+width) > size {
		return dst, errJSON
	}
	open, end := byte('['), byte(']')
	if object {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	for i := range n {
		if i > 0 {
			dst = append(dst, ',', ' ')
		}
		if object {
			k := b[keys+i*(width+2):]
			at, length := jsonInt(k, width), int(binary.LittleEndian.Uint16(k[width:]))
			if at > size-length {
				return dst, errJSON
			}
			dst = append(appendJSONString(dst, b[at:at+length]), ':', ' ')
		}
		v := b[values+i*(1+width):]
		kind := v[0]
		var err error
		switch {
		case kind == jsonLiteral || kind == jsonInt16 || kind == jsonUint16 || width == 4 && (kind == jsonInt32 || kind == jsonUint32):
			dst, err = appendJSONValue(dst, kind, v[1:1+width], depth+1, limit)
		default:
			at := jsonInt(v[1:], width)
			if at < values+n*(1+width) || at > size {
				return dst, errJSON
			}
			dst, err = appendJSONValue(dst, kind, b[at:], depth+1, limit)
		}
		if err != nil {
			return dst, err
		}
		if len(dst) > limit {
			return dst, errJSON
		}
	}
	return append(dst, end), nil
}

func jsonInt(b []byte, width int) int {
	if width == 2 {
		return int(binary.LittleEndian.Uint16(b))
	}
	return int(binary.LittleEndian.Uint32(b))
}

// jsonBytes reads a length of seven bits per byte, lowest first, and so many bytes.
func jsonBytes(b []byte) ([]byte, bool) {
	n := 0
	for i := 0; i < 5 && i < len(b); i++ {
		n |= int(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			b = b[i+1:]
			if n > len(b) {
				return nil, false
			}
			return b[:n], true
		}
	}
	return nil, false
}

// appendJSONString quotes as the server's double_quote does: the short escapes, \u00xx for other control characters,
// everything else as it is.
func appendJSONString(dst, s []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; ; i++ {
		if i += plain(s[i:]); i == len(s) {
			break
		}
		c := s[i]
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// plain counts the bytes before the first one that has to be escaped, eight at a time. The subtractions borrow from a byte to the next
// higher one only where the lower one is a hit itself, so that the lowest hit is a true one.
func plain(s []byte) (n int) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(s)-n >= 8; n += 8 {
		v := binary.LittleEndian.Uint64(s[n:])
		quote, slash := v^ones*'"', v^ones*'\\'
		if hit := ((v-ones*0x20)&^v | (quote-ones)&^quote | (slash-ones)&^slash) & highs; hit != 0 {
			return n + bits.TrailingZeros64(hit)/8
		}
	}
	for ; n < len(s); n++ {
		if c := s[n]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return n
}

// appendJSONDouble is a double with ".0" where nothing else would tell it from an integer.
func appendJSONDouble(dst []byte, f float64) []byte {
	from := len(dst)
	dst = appendDouble(dst, f, 0)
	for _, c := range dst[from:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, '.', '0')
}

// appendJSONOpaque writes values that JSON has no type for: decimals as numbers, times as strings with six decimals, the rest
// as "base64:type<number>:…".
func appendJSONOpaque(dst []byte, kind byte, b []byte) ([]byte, error) {
	switch kind {
	case typeNewDecimal:
		if len(b) < 2 {
			return dst, errJSON
		}
		out, rest, err := appendDecimal(dst, b[2:], int(b[0]), int(b[1]))
		if err != nil || len(rest) != 0 {
			return dst, errJSON
		}
		return out, nil
	case typeDate, typeDatetime, typeTimestamp, typeTime:
		if len(b) != 8 {
			return dst, errJSON
		}
		v := int64(binary.LittleEndian.Uint64(b))
		dst = append(dst, '"')
		if kind == typeTime {
			dst = appendPackedTime(dst, v)
		} else {
			dst = appendPackedDatetime(dst, v, kind == typeDate)
		}
		return append(dst, '"'), nil
	}
	dst = append(dst, `"base64:type`...)
	dst = strconv.AppendUint(dst, uint64(kind), 10)
	dst = append(dst, ':')
	// The server breaks the lines of what it encodes.
	const line = 76 / 4 * 3
	for len(b) > line {
		dst = append(base64.StdEncoding.AppendEncode(dst, b[:line]), '\\', 'n')
		b = b[line:]
	}
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"'), nil
}

// appendPackedDatetime: year times 13 plus month, day, hour, minute, second, 24 bits of microseconds (my_time.h).
func appendPackedDatetime(dst []byte, v int64, dateOnly bool) []byte {
	if v < 0 {
		v = -v
	}
	micro, high := v&0xffffff, v>>24
	ymd, hms := high>>17, high&0x1ffff
	ym := ymd >> 5
	dst = appendPadded(dst, int(ym/13), 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, int(ym%13), 2)
	dst = append(dst, '-')
	dst = appendPadded(dst, int(ymd&31), 2)
	if dateOnly {
		return dst
	}
	dst = append(dst, ' ')
	dst = appendClock(dst, int(hms>>12), int(hms>>6&63), int(hms&63))
	return appendFraction(dst, int(micro), 6)
}

// appendPackedTime: sign, hour, minute, second, 24 bits of microseconds.
func appendPackedTime(dst []byte, v int64) []byte {
	if v < 0 {
		v = -v
		dst = append(dst, '-')
	}
	micro, hms := v&0xffffff, v>>24
	dst = appendClock(dst, int(hms>>12&0x3ff), int(hms>>6&63), int(hms&63))
	return appendFraction(dst, int(micro), 6)
}
