package transform

import "time"

// parseTime reads the server's text of a timestamp: "2026-01-02 03:04:05.123456+00" as Postgres has it (any offset,
// Z, also T between date and time), "2026-01-02 03:04:05.123456" as MySQL has it, or a date alone. Without a zone it is
// UTC. More than microseconds are cut off.
//
// Not ok is everything that has no RFC 3339 form or no place on the calendar: infinity, years before 1 or after 9999,
// MySQL's zero dates, bare numbers (whose unit nobody has told). The caller passes such texts on as they are.
func parseTime(b []byte) (time.Time, bool) {
	if len(b) < 10 || b[4] != '-' || b[7] != '-' {
		return time.Time{}, false
	}
	year, ok1 := digits(b[0:4])
	month, ok2 := digits(b[5:7])
	day, ok3 := digits(b[8:10])
	if !ok1 || !ok2 || !ok3 || year < 1 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return time.Time{}, false
	}
	seconds := daysSinceEpoch(year, month, day) * 86400
	if len(b) == 10 {
		return time.Unix(seconds, 0).UTC(), true
	}
	if len(b) < 19 || (b[10] != ' ' && b[10] != 'T' && b[10] != 't') || b[13] != ':' || b[16] != ':' {
		return time.Time{}, false
	}
	hour, ok1 := digits(b[11:13])
	minute, ok2 := digits(b[14:16])
	second, ok3 := digits(b[17:19])
	if !ok1 || !ok2 || !ok3 || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	rest := b[19:]
	micros, rest, ok := fraction(rest)
	if !ok {
		return time.Time{}, false
	}
	offset, ok := zone(rest)
	if !ok {
		return time.Time{}, false
	}
	seconds += int64(hour)*3600 + int64(minute)*60 + int64(second) - offset
	t := time.Unix(seconds, micros*1000).UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}, false
	}
	return t, true
}

// fraction reads ".123456" as microseconds and gives what follows; no fraction is 0.
func fraction(b []byte) (micros int64, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '.' {
		return 0, b, true
	}
	i := 1
	for unit := int64(100_000); i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		micros += int64(b[i]-'0') * unit
		unit /= 10
	}
	return micros, b[i:], i > 1
}

// zone reads "", "Z", "+00", "+05:30", "-0330" or "+00:19:32" as seconds east of UTC.
func zone(b []byte) (seconds int64, ok bool) {
	if len(b) == 0 || (len(b) == 1 && (b[0] == 'Z' || b[0] == 'z')) {
		return 0, true
	}
	sign := int64(1)
	switch b[0] {
	case '+':
	case '-':
		sign = -1
	default:
		return 0, false
	}
	b = b[1:]
	unit := int64(3600)
	for part := 0; len(b) > 0 || part == 0; part++ {
		if part > 0 && b[0] == ':' {
			b = b[1:]
		}
		if len(b) < 2 || part > 2 {
			return 0, false
		}
		n, isNumber := digits(b[:2])
		if !isNumber || (part == 0 && n > 23) || (part > 0 && n > 59) {
			return 0, false
		}
		seconds += int64(n) * unit
		unit /= 60
		b = b[2:]
	}
	return sign * seconds, true
}

func digits(b []byte) (n int, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// daysSinceEpoch counts from 1970-01-01 in the proleptic Gregorian calendar, years beginning in March so that the leap
// day is the last (Hinnant, "chrono-compatible low-level date algorithms").
func daysSinceEpoch(year, month, day int) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400
	ofEra := year - era*400
	dayOfYear := (153*(month-3)+2)/5 + day - 1
	return int64(era*146097 + ofEra*365 + ofEra/4 - ofEra/100 + dayOfYear - 719468)
}

// appendTime writes RFC 3339 in UTC, always with six digits of fraction, so that equal times are equal texts.
func appendTime(b []byte, t time.Time) []byte {
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	micros := t.Nanosecond() / 1000
	b = append2(append2(b, year/100), year%100)
	b = append2(append(b, '-'), int(month))
	b = append2(append(b, '-'), day)
	b = append2(append(b, 'T'), hour)
	b = append2(append(b, ':'), minute)
	b = append2(append(b, ':'), second)
	b = append2(append2(append2(append(b, '.'), micros/10_000), micros/100%100), micros%100)
	return append(b, 'Z')
}

func append2(b []byte, n int) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }
