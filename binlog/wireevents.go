package binlog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// Event types, from libs/mysql/binlog/event/binlog_event.h of MySQL and sql/log_event.h of MariaDB.
const (
	evQuery              = 2
	evStop               = 3
	evRotate             = 4
	evIntvar             = 5
	evRand               = 13
	evUserVar            = 14
	evFormatDescription  = 15
	evXID                = 16
	evBeginLoadQuery     = 17
	evExecuteLoadQuery   = 18
	evTableMap           = 19
	evWriteRowsV1        = 23
	evUpdateRowsV1       = 24
	evDeleteRowsV1       = 25
	evIncident           = 26
	evHeartbeat          = 27
	evRowsQuery          = 29
	evWriteRows          = 30
	evUpdateRows         = 31
	evDeleteRows         = 32
	evGTID               = 33
	evAnonymousGTID      = 34
	evPreviousGTIDs      = 35
	evTransactionContext = 36
	evViewChange         = 37
	evXAPrepare          = 38
	evPartialUpdateRows  = 39
	evTransactionPayload = 40
	evHeartbeatV2        = 41
	evGTIDTagged         = 42

	evMariaAnnotate         = 160
	evMariaCheckpoint       = 161
	evMariaGTID             = 162
	evMariaGTIDList         = 163
	evMariaStartEncryption  = 164
	evMariaQueryCompressed  = 165
	evMariaWriteCompressed1 = 166
	evMariaUpdateCompressed = 167
	evMariaDeleteCompressed = 168
	evMariaWriteCompressed2 = 169
	evMariaUpdateCompressd2 = 170
	evMariaDeleteCompressd2 = 171
)

const (
	headerLen = 19
	// flagArtificial marks an event that the dump made up and that is in no file; flagIgnorable one that a reader who does
	// not know its type may skip.
	flagArtificial = 0x20
	flagIgnorable  = 0x80
)

// header is the common header of an event: seconds since 1970, type, server, length, where the next event begins (the low
// 32 bits), flags.
type header struct {
	at     uint32
	kind   byte
	server uint32
	size   uint32
	next   uint32
	flags  uint16
}

func parseHeader(ev []byte) (header, bool) {
	if len(ev) < headerLen {
		return header{}, false
	}
	return header{
		at: binary.LittleEndian.Uint32(ev), kind: ev[4], server: binary.LittleEndian.Uint32(ev[5:]),
		size: binary.LittleEndian.Uint32(ev[9:]), next: binary.LittleEndian.Uint32(ev[13:]), flags: binary.LittleEndian.Uint16(ev[17:]),
	}, true
}

// sumOK compares the CRC32 at the event's end (IEEE, over all before it).
func sumOK(ev []byte) bool {
	n := len(ev) - 4
	return n >= headerLen && crc32.ChecksumIEEE(ev[:n]) == binary.LittleEndian.Uint32(ev[n:])
}

// formatDescription is what we need of FORMAT_DESCRIPTION_EVENT: whether the events of this file end in a CRC32, and how
// long the fixed part of row events is (10 with extra data, else 8).
type formatDescription struct {
	server  string
	sum     bool
	created uint32
}

func parseFormatDescription(body []byte) (formatDescription, bool) {
	// version 2, server version 50, created 4, header length 1, post-header lengths, checksum algorithm 1, checksum 4
	if len(body) < 57+5 || binary.LittleEndian.Uint16(body) != 4 || body[56] != headerLen {
		return formatDescription{}, false
	}
	server, _, _ := bytes.Cut(body[2:52], []byte{0})
	return formatDescription{
		server: string(server), created: binary.LittleEndian.Uint32(body[52:]), sum: body[len(body)-5] == 1,
	}, true
}

func parseRotate(body []byte) (file []byte, pos uint64, ok bool) {
	if len(body) < 9 {
		return nil, 0, false
	}
	return body[8:], binary.LittleEndian.Uint64(body), true
}

// gtidEvent is GTID_LOG_EVENT, ANONYMOUS_GTID_LOG_EVENT or GTID_TAGGED_LOG_EVENT: whose number begins, and when the
// transaction committed (microseconds since 1970, 0 unknown), on the server where it first did.
type gtidEvent struct {
	sid    sid
	gno    int64
	commit uint64
}

func parseGTID(body []byte) (g gtidEvent, ok bool) {
	// flags 1, uuid 16, number 8, kind of logical clock 1, last committed 8, sequence number 8, immediate commit
	// timestamp 7 whose top bit says that the original one follows
	if len(body) < 25 {
		return g, false
	}
	copy(g.sid.uuid[:], body[1:])
	g.gno = int64(binary.LittleEndian.Uint64(body[17:]))
	if len(body) >= 42+7 && body[25] == 2 {
		at := uint56(body[42:])
		g.commit = at &^ (1 << 55)
		if at>>55 != 0 && len(body) >= 42+14 {
			g.commit = uint56(body[49:])
		}
	}
	return g, true
}

func uint56(b []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(b)) | uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48
}

// parseGTIDTagged reads mysql::serialization: a version, the size, the last field that may not be ignored, then fields that
// begin with their number; all integers of variable length. tag may be shared with the previous event's to spare the copy.
func parseGTIDTagged(body []byte, tag string) (g gtidEvent, ok bool) {
	d := varReader{b: body}
	d.uint()
	d.uint()
	d.uint()
	for next := uint64(0); len(d.b) > 0 && !d.bad; {
		id := d.uint()
		if id < next {
			break // padding
		}
		next = id + 1
		switch id {
		case 0:
			d.uint()
		case 1:
			for i := range g.sid.uuid {
				g.sid.uuid[i] = byte(d.uint())
			}
		case 2:
			g.gno = d.int()
		case 3:
			n := d.uint()
			if n > uint64(len(d.b)) {
				return g, false
			}
			if g.sid.tag = tag; string(d.b[:n]) != tag {
				g.sid.tag = string(d.b[:n])
			}
			d.b = d.b[n:]
		case 4, 5:
			d.int()
		case 6:
			g.commit = d.uint()
		case 7:
			g.commit = d.uint()
		default:
			d.b = nil
		}
	}
	return g, !d.bad && g.gno > 0
}

type varReader struct {
	b   []byte
	bad bool
}

// uint: as many one bits at the low end of the first byte as bytes follow it; the value lies above them.
func (d *varReader) uint() uint64 {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	n := bits.TrailingZeros8(^d.b[0]) + 1
	if len(d.b) < n {
		d.bad = true
		return 0
	}
	var v uint64
	if n == 9 {
		v = binary.LittleEndian.Uint64(d.b[1:])
	} else {
		for i := n - 1; i >= 0; i-- {
			v = v<<8 | uint64(d.b[i])
		}
		v >>= n
	}
	d.b = d.b[n:]
	return v
}

func (d *varReader) int() int64 {
	v := d.uint()
	if v&1 == 1 {
		return -int64(v>>1) - 1
	}
	return int64(v >> 1)
}

// query is QUERY_EVENT.
type query struct {
	schema, text []byte
	vars         []byte // status variables
}

func parseQuery(body []byte) (q query, ok bool) {
	// thread 4, seconds 4, length of schema 1, error 2, length of status variables 2
	if len(body) < 13 {
		return q, false
	}
	schema, vars := int(body[8]), int(binary.LittleEndian.Uint16(body[11:]))
	body = body[13:]
	if len(body) < vars+schema+1 {
		return q, false
	}
	return query{schema: body[vars : vars+schema], text: body[vars+schema+1:], vars: body[:vars]}, true
}

// written tells the schemas in which MySQL says that the statement wrote, by trigger or function too (Q_UPDATED_DB_NAMES, kept for
// parallel replicas); known is false where it says nothing: MariaDB, and beyond 16 schemas.
func (q query) written() (schemas []string, known bool) {
	b := q.vars
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		n := -1
		switch kind { // sql/log_event.cc, Query_log_event::write
		case 0, 10:
			n = 4
		case 4:
			n = 6
		case 1, 9, 17:
			n = 8
		case 3:
			n = 4
		case 7, 8, 18:
			n = 2
		case 13:
			n = 3
		case 16, 19, 20:
			n = 1
		case 5, 6, 11:
			texts := 1
			if kind == 11 {
				texts = 2
			}
			n = 0
			for range texts {
				if n >= len(b) {
					return nil, false
				}
				n += 1 + int(b[n])
			}
		case 12:
			if len(b) == 0 || b[0] > 16 {
				return nil, false
			}
			count := int(b[0])
			b = b[1:]
			for range count {
				i := bytes.IndexByte(b, 0)
				if i < 0 {
					return nil, false
				}
				schemas = append(schemas, string(b[:i]))
				b = b[i+1:]
			}
			return schemas, true
		}
		if n < 0 || n > len(b) {
			return nil, false
		}
		b = b[n:]
	}
	return nil, false
}

// MariaDB's GTID event and its flags.
const (
	mariaStandalone  = 1
	mariaGroupCommit = 2
	mariaPreparedXA  = 64
	mariaCompleteXA  = 128
)

func parseMariaGTID(body []byte, server uint32) (g mariaGTID, flags byte, ok bool) {
	if len(body) < 13 {
		return g, 0, false
	}
	return mariaGTID{domain: binary.LittleEndian.Uint32(body[8:]), server: server, seq: binary.LittleEndian.Uint64(body)}, body[12], true
}

// parseHeartbeatV2 reads type-length-value fields: 1 is the file's name, 2 the position.
func parseHeartbeatV2(body []byte) (file []byte, pos uint64, ok bool) {
	for len(body) > 0 {
		kind := body[0]
		if kind == 0 {
			break
		}
		n, rest, good := lenenc(body[1:])
		if !good || n > uint64(len(rest)) {
			return nil, 0, false
		}
		switch kind {
		case 1:
			file = rest[:n]
		case 2:
			v, _, good := lenenc(rest[:n])
			if !good {
				return nil, 0, false
			}
			pos = v
		}
		body = rest[n:]
	}
	return file, pos, len(file) > 0 && pos > 0
}

// lenenc reads a length-encoded integer.
func lenenc(b []byte) (v uint64, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	var n int
	switch b[0] {
	case 0xfb, 0xff:
		return 0, nil, false
	case 0xfc:
		n = 2
	case 0xfd:
		n = 3
	case 0xfe:
		n = 8
	default:
		return uint64(b[0]), b[1:], true
	}
	if len(b) < 1+n {
		return 0, nil, false
	}
	for i := n; i > 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v, b[1+n:], true
}
