package binlog

import (
	"encoding/binary"
	"time"
)

func appendClock(dst []byte, hour, minute, second int) []byte {
	dst = appendPadded(dst, hour, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, minute, 2)
	dst = append(dst, ':')
	return appendPadded(dst, second, 2)
}

// appendFraction writes "." and the first digits of the microseconds; nothing for none.
func appendFraction(dst []byte, micro, digits int) []byte {
	if digits == 0 {
		return dst
	}
	for i := digits; i < 6; i++ {
		micro /= 10
	}
	dst = append(dst, '.')
	return appendPadded(dst, micro, digits)
}

// fractionSize is how many bytes follow the seconds: two digits in each.
func fractionSize(fsp int) int { return (fsp + 1) / 2 }

// micros turns the fraction's bytes, a big-endian number of hundredths, ten-thousandths or millionths, into microseconds.
func micros(b []byte) int {
	v := int(bigEndian(b))
	for i := len(b); i < 3; i++ {
		v *= 100
	}
	return v
}

// appendTimestamp writes seconds since 1970 at +00:00; zero is the zero date (my_timestamp_from_binary).
func appendTimestamp(dst []byte, sec uint32, micro, fsp int) []byte {
	if sec == 0 && micro == 0 {
		dst = append(dst, "0000-00-00 00:00:00"...)
		return appendFraction(dst, 0, fsp)
	}
	t := time.Unix(int64(sec), 0).UTC()
	year, month, day := t.Date()
	dst = appendPadded(dst, year, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, int(month), 2)
	dst = append(dst, '-')
	dst = appendPadded(dst, day, 2)
	dst = append(dst, ' ')
	dst = appendClock(dst, t.Hour(), t.Minute(), t.Second())
	return appendFraction(dst, micro, fsp)
}

// appendDatetime2 reads five big-endian bytes with a bias of 2^39, then the fraction (my_datetime_packed_from_binary).
func appendDatetime2(dst, b []byte, fsp int) []byte {
	v := int64(bigEndian(b[:5])) - 1<<39
	dst = appendPackedDatetime(dst, v<<24, false)
	dst = dst[:len(dst)-len(".000000")]
	return appendFraction(dst, micros(b[5:]), fsp)
}

// appendTime2 reads three big-endian bytes with a bias of 2^23, then the fraction; of a negative time both are the two's
// complement of one number (my_time_packed_from_binary).
func appendTime2(dst, b []byte, fsp int) []byte {
	bits := uint(8 * len(b[3:]))
	v := int64(bigEndian(b)) - 1<<(23+bits)
	if v < 0 {
		v = -v
		dst = append(dst, '-')
	}
	whole, micro := v>>bits, int(v&(1<<bits-1))
	for i := fractionSize(fsp); i < 3; i++ {
		micro *= 100
	}
	dst = appendClock(dst, int(whole>>12&0x3ff), int(whole>>6&63), int(whole&63))
	return appendFraction(dst, micro, fsp)
}

// appendDate: day in five bits, month in four, year.
func appendDate(dst, b []byte) []byte {
	v := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	dst = appendPadded(dst, v>>9, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, v>>5&15, 2)
	dst = append(dst, '-')
	return appendPadded(dst, v&31, 2)
}

// appendOldTime: the number HHMMSS in three bytes (tables from before 5.6).
func appendOldTime(dst, b []byte) []byte {
	v := int(intAt(b, 3))
	if v < 0 {
		v = -v
		dst = append(dst, '-')
	}
	return appendClock(dst, v/10000, v/100%100, v%100)
}

// appendOldDatetime: the number YYYYMMDDHHMMSS in eight bytes (tables from before 5.6).
func appendOldDatetime(dst, b []byte) []byte {
	v := binary.LittleEndian.Uint64(b)
	date, clock := int(v/1000000), int(v%1000000)
	dst = appendPadded(dst, date/10000, 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, date/100%100, 2)
	dst = append(dst, '-')
	dst = appendPadded(dst, date%100, 2)
	dst = append(dst, ' ')
	return appendClock(dst, clock/10000, clock/100%100, clock%100)
}
