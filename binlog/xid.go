package binlog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// xid names an XA transaction: a format, a global and a branch part of at most 64 bytes each, any bytes.
type xid struct {
	format        uint64
	global, local string
}

// String is the text that the servers write into their logs, and take in XA COMMIT: X'6731',X”,1.
func (x xid) String() string { return fmt.Sprintf("X'%x',X'%x',%d", x.global, x.local, x.format) }

// same tells whether two names mean one transaction. The format has 64 bits in statements and in XA RECOVER, 32 in
// XA_PREPARE events and on InnoDB's disk, from where a restart of the server brings it back.
func (x xid) same(o xid) bool {
	return x.global == o.global && x.local == o.local && (x.format == o.format || uint32(x.format) == uint32(o.format) && (x.format>>32 == 0 || o.format>>32 == 0))
}

// parseXIDEvent reads XA_PREPARE_LOG_EVENT: whether it is a commit in one phase (1), the format (4), the parts' lengths (4, 4),
// the parts.
func parseXIDEvent(b []byte) (onePhase bool, x xid, ok bool) {
	if len(b) < 1 {
		return false, x, false
	}
	onePhase = b[0] == 1
	if len(b) < 13 {
		return onePhase, x, onePhase
	}
	format, n, m := binary.LittleEndian.Uint32(b[1:]), uint64(binary.LittleEndian.Uint32(b[5:])), uint64(binary.LittleEndian.Uint32(b[9:]))
	b = b[13:]
	if n > 64 || m > 64 || n+m > uint64(len(b)) {
		return onePhase, x, onePhase
	}
	return onePhase, xid{uint64(format), string(b[:n]), string(b[n : n+m])}, true
}

// parseXIDText reads the name behind XA END, XA COMMIT and XA ROLLBACK, as servers write it, and as people do: parts as
// X'hex', 0xhex or 'text', the branch and the format may be missing (empty, 1).
func parseXIDText(t []byte) (x xid, ok bool) {
	x.format = 1
	t = bytes.TrimSpace(t)
	if x.global, t, ok = xidPart(t); !ok {
		return x, false
	}
	if rest, more := bytes.CutPrefix(t, []byte(",")); more {
		if x.local, t, ok = xidPart(bytes.TrimSpace(rest)); !ok {
			return x, false
		}
	}
	if rest, more := bytes.CutPrefix(t, []byte(",")); more {
		rest = bytes.TrimSpace(rest)
		n := 0
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		v, err := strconv.ParseUint(string(rest[:n]), 10, 64)
		if err != nil {
			return x, false
		}
		x.format = v
	}
	return x, true
}

func xidPart(t []byte) (part string, rest []byte, ok bool) {
	switch {
	case len(t) > 1 && (t[0] == 'X' || t[0] == 'x') && t[1] == '\'':
		i := bytes.IndexByte(t[2:], '\'')
		if i < 0 {
			return "", nil, false
		}
		b, err := hex.DecodeString(string(t[2 : 2+i]))
		return string(b), bytes.TrimSpace(t[3+i:]), err == nil
	case len(t) > 1 && t[0] == '0' && (t[1] == 'x' || t[1] == 'X'):
		n := 2
		for n < len(t) && strings.IndexByte("0123456789abcdefABCDEF", t[n]) >= 0 {
			n++
		}
		b, err := hex.DecodeString(string(t[2:n]))
		return string(b), bytes.TrimSpace(t[n:]), err == nil
	case len(t) > 0 && (t[0] == '\'' || t[0] == '"'):
		i := bytes.IndexByte(t[1:], t[0])
		if i < 0 {
			return "", nil, false
		}
		return string(t[1 : 1+i]), bytes.TrimSpace(t[2+i:]), true
	}
	return "", nil, false
}
