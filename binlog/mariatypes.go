package binlog

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/binary"
	"io"
	"strconv"
)

// appendOpaque writes a UUID, INET4 or INET6 of MariaDB as the server prints it. The log leaves trailing zero bytes out, as of
// BINARY(n).
func appendOpaque(dst, v []byte, kind opaque) ([]byte, error) {
	var b [16]byte
	n := 16
	if kind == opaqueINET4 {
		n = 4
	}
	if len(v) > n {
		return dst, errOpaque
	}
	copy(b[:], v)
	switch kind {
	case opaqueINET4:
		return appendIPv4(dst, b[:4]), nil
	case opaqueINET6:
		return appendIPv6(dst, &b), nil
	case opaqueUUID:
		// Versions 1 to 5 are kept with their groups in reverse order; the server tells them by these two bytes, and so do we.
		// In tables made before 10.11.5 all are; that differs from this rule only for versions above 7, and nothing that can be
		// asked shows a table's age (ALTER TABLE … FORCE makes it new).
		if b[6]&-b[8]&0x80 == 0 {
			return appendUUID(dst, b[:]), nil
		}
	}
	var u [16]byte
	copy(u[0:4], b[12:16])
	copy(u[4:6], b[10:12])
	copy(u[6:8], b[8:10])
	copy(u[8:10], b[6:8])
	copy(u[10:16], b[0:6])
	return appendUUID(dst, u[:]), nil
}

func appendIPv4(dst, b []byte) []byte {
	for i, c := range b {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = strconv.AppendUint(dst, uint64(c), 10)
	}
	return dst
}

// appendIPv6 shortens the first of the longest runs of zeros, even one of a single group, and writes the tail of IPv4-mapped and
// IPv4-compatible addresses as IPv4: the server does, other than RFC 5952.
func appendIPv6(dst []byte, b *[16]byte) []byte {
	var w [8]uint16
	for i := range w {
		w[i] = binary.BigEndian.Uint16(b[2*i:])
	}
	gap, length := -1, 0
	for i := 0; i < 8; i++ {
		n := 0
		for i+n < 8 && w[i+n] == 0 {
			n++
		}
		if n > length {
			gap, length = i, n
		}
		i += n
	}
	for i := 0; i < 8; i++ {
		switch {
		case i == gap:
			if i == 0 {
				dst = append(dst, ':')
			}
			dst = append(dst, ':')
			i += length - 1
		case i == 6 && gap == 0 && (length == 6 || length == 5 && w[5] == 0xffff):
			return appendIPv4(dst, b[12:])
		default:
			dst = strconv.AppendUint(dst, uint64(w[i]), 16)
			if i < 7 {
				dst = append(dst, ':')
			}
		}
	}
	return dst
}

// unpack gives the value of a COMPRESSED column: nothing, or a byte that names the method before it. Method 0 is none; 8 is zlib,
// with the length of the length (3 bits) and whether zlib's own frame was left out (1 bit) in the same byte, then the length.
func unpack(v []byte, limit int) ([]byte, error) {
	if len(v) == 0 {
		return v, nil
	}
	head, v := v[0], v[1:]
	switch head >> 4 {
	case 0:
		return v, nil
	case 8:
	default:
		return nil, errPacked
	}
	n := int(head & 7)
	if n > 4 || len(v) < n {
		return nil, errPacked
	}
	size := 0
	for _, c := range v[:n] {
		size = size<<8 | int(c)
	}
	if size > limit {
		return nil, errUnfolds
	}
	var r io.ReadCloser
	if head&8 != 0 {
		r = flate.NewReader(bytes.NewReader(v[n:]))
	} else {
		var err error
		if r, err = zlib.NewReader(bytes.NewReader(v[n:])); err != nil {
			return nil, errPacked
		}
	}
	out := make([]byte, size)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, errPacked
	}
	// The end is looked at too: it is where zlib compares its checksum.
	if n, err := io.ReadFull(r, make([]byte, 1)); n != 0 || err != io.EOF {
		return nil, errPacked
	}
	return out, nil
}
