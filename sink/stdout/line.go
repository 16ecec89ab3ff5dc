package stdout

import (
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/outtail/outtail/event"
)

// appendLine appends one JSON object and a line feed. Text that is not UTF-8 goes into a field of its own, in base64, so that
// both forms can be told apart and nothing is changed on the way (I7). Nothing is parsed or re-indented.
//
//	{"topic":"orders","partition":3,"key":"42","value":"{\"a\": 1}","headers":[{"name":"id","value":"…"}],"timestamp":"2026-01-02T03:04:05.678Z"}
func appendLine(b []byte, m *event.Message) []byte {
	b = append(b, `{"topic":`...)
	b = appendString(b, m.Topic)
	if m.Partition >= 0 {
		b = append(b, `,"partition":`...)
		b = strconv.AppendInt(b, int64(m.Partition), 10)
	}
	b = appendBytes(b, "key", m.Key)
	b = appendBytes(b, "value", m.Value)
	b = append(b, `,"headers":[`...)
	for i := range m.Headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"name":`...)
		b = appendString(b, m.Headers[i].Name)
		b = appendBytes(b, "value", m.Headers[i].Value)
		b = append(b, '}')
	}
	b = append(b, `],"timestamp":"`...)
	b = m.Timestamp.UTC().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"', '}', '\n')
}

// appendBytes appends a field: null, text, or base64 under NAME_base64.
func appendBytes(b []byte, name string, v []byte) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	switch {
	case v == nil:
		return append(b, `":null`...)
	case utf8.Valid(v):
		return appendString(append(b, '"', ':'), v)
	}
	b = append(b, `_base64":"`...)
	b = base64.StdEncoding.AppendEncode(b, v)
	return append(b, '"')
}

const hex = "0123456789abcdef"

// appendString quotes valid UTF-8 by RFC 8259 section 7: only what must be escaped is.
func appendString[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
