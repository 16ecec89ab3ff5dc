package binlog

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"

	"github.com/outtail/outtail/event"
)

var (
	errGeometry = errors.New("a GEOMETRY column has no text; map it to the payload, whose bytes it then is")
	errOpaque   = errors.New("the log's bytes do not fit the column's type UUID, INET4 or INET6")
	errPacked   = errors.New("the value of a COMPRESSED column cannot be unpacked")
	errUnfolds  = errors.New("the value of a COMPRESSED column is larger than limits.row once unpacked; raise limits.row")
	errCharset  = errors.New("the column's character set is not known here; CONVERT the column to utf8mb4")
	errLabel    = errors.New("the value is outside of the column's list of labels")
	// The catalogue is in utf8mb3: what it has no character for it shows as a question mark.
	errLabelLost = errors.New("the catalogue shows a question mark in the value's label, which may stand for another character; with SET GLOBAL binlog_row_metadata = 'FULL' the log names labels itself")
	errBytes     = errors.New("as: uuid needs 16 bytes")
)

// appendValue writes a value as the server prints it at time zone +00:00. Binary values are the bytes themselves for the payload
// and take form elsewhere.
func (f *field) appendValue(dst, v []byte, role event.Role, form event.Form) ([]byte, error) {
	if f.opaque != 0 {
		return appendOpaque(dst, v, f.opaque)
	}
	switch f.kind {
	case typeTiny, typeShort, typeInt24, typeLong, typeLongLong:
		at := len(dst)
		if f.unsigned {
			dst = strconv.AppendUint(dst, uintAt(v, f.n), 10)
		} else {
			dst = strconv.AppendInt(dst, intAt(v, f.n), 10)
		}
		return zerofill(dst, at, f.width), nil
	case typeYear:
		if v[0] == 0 {
			return append(dst, "0000"...), nil
		}
		return strconv.AppendInt(dst, 1900+int64(v[0]), 10), nil
	case typeNewDecimal:
		at := len(dst)
		dst, _, err := appendDecimal(dst, v, int(f.meta&0xff), int(f.meta>>8))
		return zerofill(dst, at, f.width), err
	case typeFloat:
		x := math.Float32frombits(binary.LittleEndian.Uint32(v))
		at := len(dst)
		if f.decimals > 0 {
			dst = appendFixed(dst, float64(x), f.decimals-1)
		} else {
			dst = appendFloat(dst, x, f.room)
		}
		return zerofill(dst, at, f.width), nil
	case typeDouble:
		x := math.Float64frombits(binary.LittleEndian.Uint64(v))
		at := len(dst)
		if f.decimals > 0 {
			dst = appendFixed(dst, x, f.decimals-1)
		} else {
			dst = appendDouble(dst, x, f.room)
		}
		return zerofill(dst, at, f.width), nil
	case typeBit:
		return appendBinary(dst, v, role, form)
	case typeDate, typeNewDate:
		return appendDate(dst, v), nil
	case typeTime:
		return appendOldTime(dst, v), nil
	case typeTime2:
		return appendTime2(dst, v, int(f.meta)), nil
	case typeDatetime:
		return appendOldDatetime(dst, v), nil
	case typeDatetime2:
		return appendDatetime2(dst, v, int(f.meta)), nil
	case typeTimestamp:
		return appendTimestamp(dst, binary.LittleEndian.Uint32(v), 0, 0), nil
	case typeTimestamp2:
		return appendTimestamp(dst, binary.BigEndian.Uint32(v), micros(v[4:]), int(f.meta)), nil
	case typeJSON:
		return appendJSON(dst, v)
	case typeEnum:
		return f.appendLabels(dst, uintAt(v, f.n))
	case typeSet:
		return f.appendSet(dst, uintAt(v, f.n))
	case typeVarPacked, typeBlobPacked:
		var err error
		if v, err = unpack(v, f.limit); err != nil {
			return dst, err
		}
	case typeVector:
		return appendBinary(dst, v, role, form)
	case typeGeometry:
		if role != event.Payload {
			return dst, errGeometry
		}
		return append(dst, v...), nil
	}
	switch f.text {
	case textAsIs:
		return append(dst, v...), nil
	case textBinary:
		if f.kind == typeString && len(v) < int(f.meta) {
			// BINARY(n): the log leaves trailing zero bytes out.
			return appendPaddedBinary(dst, v, int(f.meta), role, form)
		}
		return appendBinary(dst, v, role, form)
	case textDecode:
		return f.enc.appendUTF8(dst, v)
	}
	return dst, errCharset
}

// zerofill puts zeros before the number that begins at from.
func zerofill(dst []byte, from, width int) []byte {
	for n := width - (len(dst) - from); n > 0; n-- {
		dst = append(dst, 0)
		copy(dst[from+1:], dst[from:])
		dst[from] = '0'
	}
	return dst
}

func appendBinary(dst, v []byte, role event.Role, form event.Form) ([]byte, error) {
	if role == event.Payload {
		return append(dst, v...), nil
	}
	switch form {
	case event.Base64:
		return base64.StdEncoding.AppendEncode(dst, v), nil
	case event.UUID:
		if len(v) != 16 {
			return dst, errBytes
		}
		return appendUUID(dst, v), nil
	}
	return hex.AppendEncode(dst, v), nil
}

func appendPaddedBinary(dst, v []byte, n int, role event.Role, form event.Form) ([]byte, error) {
	var buf [256]byte
	whole := append(buf[:0], v...)
	for len(whole) < n {
		whole = append(whole, 0)
	}
	return appendBinary(dst, whole, role, form)
}

// appendLabels writes the label of an ENUM; number 0 is the empty string that stands for an invalid value.
func (f *field) appendLabels(dst []byte, n uint64) ([]byte, error) {
	if n == 0 {
		return dst, nil
	}
	if n > uint64(len(f.labels)) {
		return dst, errLabel
	}
	return f.appendLabel(dst, f.labels[n-1])
}

func (f *field) appendSet(dst []byte, bits uint64) ([]byte, error) {
	first := true
	for i := 0; bits != 0; i, bits = i+1, bits>>1 {
		if bits&1 == 0 {
			continue
		}
		if i >= len(f.labels) {
			return dst, errLabel
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		var err error
		if dst, err = f.appendLabel(dst, f.labels[i]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendLabel: labels are in the column's character set; the catalogue's came as UTF-8 and have kind textAsIs.
func (f *field) appendLabel(dst, label []byte) ([]byte, error) {
	if f.labelsUTF8 {
		if f.astral && bytes.IndexByte(label, '?') >= 0 {
			return dst, errLabelLost
		}
		return append(dst, label...), nil
	}
	switch f.text {
	case textAsIs, textBinary:
		return append(dst, label...), nil
	case textDecode:
		return f.enc.appendUTF8(dst, label)
	}
	for _, c := range label {
		if c >= 0x80 {
			return dst, errCharset
		}
	}
	return append(dst, label...), nil
}
