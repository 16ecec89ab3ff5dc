package binlog

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"

	"github.com/outtail/outtail/event"
)

var errInflate = errors.New("a compressed event cannot be inflated")

// inflatePart reads MariaDB's compressed part (log_event.cc, binlog_buf_uncompress): a byte of which bits 4 to 6 name the
// algorithm (0: zlib) and bits 0 to 2 how many bytes of size follow, big endian; then the data.
func inflatePart(dst, b []byte, limit int) ([]byte, error) {
	if len(b) < 1 || b[0]>>4&7 != 0 {
		return dst, errInflate
	}
	n := int(b[0] & 7)
	if n < 1 || n > 4 || len(b) < 1+n {
		return dst, errInflate
	}
	size := int(bigEndian(b[1 : 1+n]))
	if size > limit {
		return dst, errTooLong
	}
	z, err := zlib.NewReader(bytes.NewReader(b[1+n:]))
	if err != nil {
		return dst, errInflate
	}
	at := len(dst)
	dst = append(dst, make([]byte, size)...)
	if _, err := io.ReadFull(z, dst[at:]); err != nil {
		return dst[:at], errInflate
	}
	return dst, nil
}

var errTooLong = errors.New("a compressed event is longer than the limit")

// inflateQuery gives the body of the QUERY_EVENT that a QUERY_COMPRESSED_EVENT stands for: its text is compressed.
func inflateQuery(body []byte, limit int) ([]byte, error) {
	q, ok := parseQuery(body)
	if !ok {
		return nil, errInflate
	}
	head := len(body) - len(q.text)
	return inflatePart(bytes.Clone(body[:head]), q.text, limit)
}

// parseMariaGTIDList reads the position at the top of a file: a count (28 bits) and flags, then domain, server, sequence. Of several
// servers in a domain the last one written comes last.
func parseMariaGTIDList(b []byte) (mariaPos, bool) {
	if len(b) < 4 {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint32(b) & (1<<28 - 1))
	b = b[4:]
	if n > len(b)/16 {
		return nil, false
	}
	pos := mariaPos{}
	for range n {
		g := mariaGTID{domain: binary.LittleEndian.Uint32(b), server: binary.LittleEndian.Uint32(b[4:]), seq: binary.LittleEndian.Uint64(b[8:])}
		pos[g.domain] = g
		b = b[16:]
	}
	return pos, true
}

func (st *stream) mariaQuery(h header, body []byte) error {
	out, err := inflateQuery(body, st.rd.limit)
	if err != nil {
		return st.damaged("a compressed query event cannot be inflated")
	}
	q, ok := parseQuery(out)
	if !ok {
		return st.damaged("a compressed query event cannot be read")
	}
	return st.query(h, q)
}

// mariaRows takes in a compressed rows event: what follows the head's column bitmaps is compressed.
func (st *stream) mariaRows(h header, body []byte) error {
	plain := byte(evWriteRowsV1)
	switch h.kind {
	case evMariaWriteCompressed2:
		plain = evWriteRows
	case evMariaUpdateCompressed:
		plain = evUpdateRowsV1
	case evMariaUpdateCompressd2:
		plain = evUpdateRows
	}
	p, head, err := st.planOf(plain, body)
	if p == nil || err != nil {
		return err
	}
	update := plain == evUpdateRows || plain == evUpdateRowsV1
	if update && !p.tm.maybeVersioned() {
		return st.updated(p, 1) // compressed, they are not worth counting
	}
	img, rows, ok := parseRowImage(head.body)
	if update && ok { // which columns the rows have afterwards
		if ok = len(rows) >= len(img.present); ok {
			rows = rows[len(img.present):]
		}
	}
	if !ok {
		return st.damaged("a compressed rows event cannot be read")
	}
	fixed := len(body) - len(rows)
	out, err := inflatePart(append(st.inflated[:0], body[:fixed]...), rows, st.rd.limit)
	st.inflated = out[:0]
	switch {
	case errors.Is(err, errTooLong) && update:
		return st.updated(p, 1)
	case errors.Is(err, errTooLong):
		return st.mariaWide(h, plain, body[:fixed], bytes.NewReader(rows))
	case err != nil:
		return st.damaged("a compressed rows event cannot be inflated")
	case update:
		return st.update(plain, out)
	}
	h.kind = plain
	return st.rowsEvent(h, out)
}

// halfAlter reports whether the statement of a MariaDB GTID event is an ALTER TABLE that began or was taken back
// (binlog_alter_two_phase): its text comes a second time when it is done, and counts there. The flags lie behind the commit id or the
// XID, where one is (log_event.h, FL_START_ALTER_E1 and FL_ROLLBACK_ALTER_E1).
func halfAlter(body []byte) bool {
	if len(body) < 14 {
		return false
	}
	flags, rest := body[12], body[13:]
	if flags&mariaGroupCommit != 0 {
		if len(rest) < 9 {
			return false
		}
		rest = rest[8:]
	}
	if flags&(mariaPreparedXA|mariaCompleteXA) != 0 {
		return false
	}
	return rest[0]&(2|8) != 0
}

// mariaWide inflates rows that are too many for memory, and reads them as they come.
func (st *stream) mariaWide(h header, plain byte, head []byte, packed io.Reader) error {
	var size [5]byte
	if _, err := io.ReadFull(packed, size[:1]); err != nil || size[0]>>4&7 != 0 || size[0]&7 > 4 {
		return st.damaged("a compressed rows event cannot be inflated")
	}
	n := int(size[0] & 7)
	if _, err := io.ReadFull(packed, size[1:1+n]); err != nil {
		return st.damaged("a compressed rows event cannot be inflated")
	}
	z, err := zlib.NewReader(packed)
	if err != nil {
		return st.damaged("a compressed rows event cannot be inflated")
	}
	long := int(bigEndian(size[1 : 1+n]))
	h.kind, h.size = plain, uint32(headerLen+len(head)+long)
	w, err := st.widen(h, append(make([]byte, headerLen), head...), false)
	if w == nil || err != nil {
		return err
	}
	if got, err := io.Copy(w, z); event.AsFault(err) != nil {
		return err
	} else if err != nil || got != int64(long) {
		return st.damaged("a compressed rows event cannot be inflated")
	}
	return st.wideEnd()
}

// mariaGiant takes in a compressed rows event that lies in memory up to the limit and in a file from there on.
func (st *stream) mariaGiant(h header, body []byte, total int) error {
	g := st.giant
	st.giant = nil
	if g == nil {
		return nil // a foreign table's
	}
	defer func() { _ = g.discard() }()
	plain := byte(evWriteRowsV1)
	if h.kind == evMariaWriteCompressed2 {
		plain = evWriteRows
	}
	head, ok := parseRowsHead(plain, body)
	if !ok {
		return st.damaged("a compressed rows event cannot be read")
	}
	_, rows, ok := parseRowImage(head.body)
	if !ok {
		return st.damaged("a compressed rows event cannot be read")
	}
	if _, err := g.f.Seek(0, io.SeekStart); err != nil {
		return st.spillFault(err)
	}
	fixed := len(body) - len(rows)
	size := total - headerLen - fixed
	if st.sum {
		size -= 4
	}
	head.body = append([]byte(nil), body[:fixed]...)
	return st.mariaWide(h, plain, head.body, io.LimitReader(io.MultiReader(bytes.NewReader(bytes.Clone(rows)), g.f), int64(size)))
}
