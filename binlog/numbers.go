package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
)

var errDecimal = errors.New("the decimal value is damaged")

// digitBytes is how many bytes hold so many decimal digits, up to nine (strings/decimal.cc, dig2bytes).
var digitBytes = [10]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

func decimalSize(precision, scale int) int {
	whole := precision - scale
	return whole/9*4 + digitBytes[whole%9] + scale/9*4 + digitBytes[scale%9]
}

// appendDecimal writes a packed DECIMAL: groups of nine digits in four bytes, big endian, the first bit inverted, all bits
// inverted where the number is negative.
func appendDecimal(dst, b []byte, precision, scale int) (out, rest []byte, err error) {
	if precision < 1 || precision > 81 || scale > precision || scale > 38 {
		return dst, b, errDecimal
	}
	size := decimalSize(precision, scale)
	if len(b) < size {
		return dst, b, errDecimal
	}
	var buf [48]byte
	d := buf[:size]
	copy(d, b)
	negative := d[0]&0x80 == 0
	d[0] ^= 0x80
	if negative {
		for i := range d {
			d[i] = ^d[i]
		}
		dst = append(dst, '-')
	}
	group := func(digits int) (v uint32) {
		n := digitBytes[digits]
		for range n {
			v = v<<8 | uint32(d[0])
			d = d[1:]
		}
		return v
	}
	whole := precision - scale
	begun := false
	if n := whole % 9; n > 0 {
		if v := group(n); v != 0 {
			dst = strconv.AppendUint(dst, uint64(v), 10)
			begun = true
		}
	}
	for range whole / 9 {
		v := group(9)
		switch {
		case begun:
			dst = appendPadded(dst, int(v), 9)
		case v != 0:
			dst = strconv.AppendUint(dst, uint64(v), 10)
			begun = true
		}
	}
	if !begun {
		dst = append(dst, '0')
	}
	if scale > 0 {
		dst = append(dst, '.')
		for range scale / 9 {
			dst = appendPadded(dst, int(group(9)), 9)
		}
		if n := scale % 9; n > 0 {
			dst = appendPadded(dst, int(group(n)), n)
		}
	}
	return dst, b[size:], nil
}

// appendPadded writes v with at least so many digits.
func appendPadded(dst []byte, v, digits int) []byte {
	var buf [20]byte
	i := len(buf)
	for v > 0 || digits > 0 {
		i--
		buf[i] = byte('0' + v%10)
		v /= 10
		digits--
	}
	return append(dst, buf[i:]...)
}

// appendDouble writes a DOUBLE as the server's my_gcvt does: the shortest digits that read back the same, plain between 1e-15
// and 1e15 if that takes no more than room characters (0: any number), else with an exponent without plus sign and leading zeros.
func appendDouble(dst []byte, f float64, room int) []byte { return appendReal(dst, f, -1, room) }

// appendFloat writes a FLOAT: six significant digits.
func appendFloat(dst []byte, f float32, room int) []byte {
	return appendReal(dst, float64(f), 6, room)
}

// How long MySQL prints numbers of columns in plain form; MariaDB, and JSON values, have no such limit.
const (
	floatRoom  = 12
	doubleRoom = 24
	// anyRoomNoSign: MariaDB prints negative zero without its sign.
	anyRoomNoSign = -1
)

func appendReal(dst []byte, f float64, digits, room int) []byte {
	if f == 0 {
		if math.Signbit(f) && room != anyRoomNoSign {
			dst = append(dst, '-')
		}
		return append(dst, '0')
	}
	var buf [32]byte
	e := strconv.AppendFloat(buf[:0], f, 'e', max(digits-1, -1), 64)
	if e[0] == '-' {
		dst = append(dst, '-')
		e = e[1:]
	}
	cut := len(e) - 1
	for cut > 0 && e[cut] != 'e' {
		cut--
	}
	if cut == 0 {
		return append(dst, e...) // not a number; the server stores none
	}
	exp, _ := strconv.Atoi(string(e[cut+1:]))
	var raw [24]byte
	num := append(raw[:0], e[0])
	if cut > 2 {
		num = append(num, e[2:cut]...)
	}
	for len(num) > 1 && num[len(num)-1] == '0' {
		num = num[:len(num)-1]
	}
	point := exp + 1 // digits before the point
	plain := max(point, len(num))
	if point <= 0 {
		plain = len("0.") - point + len(num)
	} else if point < len(num) {
		plain++ // the point itself
	}
	if f < 0 {
		plain++
	}
	switch {
	case point > 15 || point < -14 || room > 0 && plain > room:
		dst = append(dst, num[0])
		if len(num) > 1 {
			dst = append(dst, '.')
			dst = append(dst, num[1:]...)
		}
		dst = append(dst, 'e')
		return strconv.AppendInt(dst, int64(exp), 10)
	case point <= 0:
		dst = append(dst, '0', '.')
		for range -point {
			dst = append(dst, '0')
		}
		return append(dst, num...)
	case point >= len(num):
		dst = append(dst, num...)
		for range point - len(num) {
			dst = append(dst, '0')
		}
		return dst
	}
	dst = append(dst, num[:point]...)
	dst = append(dst, '.')
	return append(dst, num[point:]...)
}

// appendFixed writes FLOAT(M,D) and DOUBLE(M,D) as my_fcvt does: zeros where more decimals are declared than tell the number apart.
func appendFixed(dst []byte, f float64, decimals int) []byte {
	at := len(dst)
	if f == 0 {
		f = 0 // negative zero has no sign here
	}
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	point := bytes.IndexByte(dst[at:], '.')
	have := 0
	if point >= 0 {
		have = len(dst) - at - point - 1
	}
	if have > decimals {
		return strconv.AppendFloat(dst[:at], f, 'f', decimals, 64)
	}
	if point < 0 && decimals > 0 {
		dst = append(dst, '.')
	}
	for ; have < decimals; have++ {
		dst = append(dst, '0')
	}
	return dst
}

// intAt reads a little-endian integer of so many bytes, sign extended.
func intAt(b []byte, width int) int64 {
	switch width {
	case 1:
		return int64(int8(b[0]))
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case 3:
		return int64(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24) >> 8)
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return int64(binary.LittleEndian.Uint64(b))
}

func uintAt(b []byte, width int) uint64 {
	v := uint64(0)
	for i := width - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

// bigEndian reads a big-endian integer of up to eight bytes.
func bigEndian(b []byte) uint64 {
	v := uint64(0)
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}
