package binlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outtail/outtail/event"
)

// witness is the last transaction before a position, so far as it proves that a log holds the history that was read (I5). Names
// prove little: after a RESET, on a server that was restored or cloned, files of the same name grow again past our offset and
// GTIDs are given out twice, within the second that a format description tells, too.
//
// Of the place: where one event of the transaction begins in the position's file, and what it is. On MySQL that is the GTID event, which has the
// commit time in microseconds; on MariaDB the last one, whose XID no other transaction of the server's life has. Of the
// transaction: its GTID and when it committed, which replicas keep.
type witness struct {
	from uint64 // 0: no event is known
	sum  uint32

	mysql  gtidEvent // commit 0: not known
	maria  mariaGTID // seq 0: none
	before mariaGTID // the GTID before it in its domain; seq 0: not known
	at     uint32    // MariaDB: the seconds of its GTID event
}

// follow is what the witness becomes when the position moves on to another one, with a transaction or without.
func (w *witness) follow(next witness) {
	if next == (witness{}) {
		w.from, w.sum = 0, 0
		return
	}
	*w = next
}

// elsewhere is the witness where the dump begins at another place: of another server that goes on by GTID only the transaction
// counts, of a log that is read from its beginning nothing.
func (w witness) elsewhere(begin origin) witness {
	if begin.file != "" {
		return witness{}
	}
	w.from, w.sum = 0, 0
	return w
}

// String is how a witness is stored, within the position: from:sum, then the GTID, the time, and on MariaDB the GTID before it.
func (w witness) String() string {
	if w == (witness{}) {
		return ""
	}
	s := fmt.Sprintf("%d:%08x", w.from, w.sum)
	switch {
	case w.mysql.commit != 0:
		s += fmt.Sprintf(" %s:%d %d", w.mysql.sid, w.mysql.gno, w.mysql.commit)
	case w.maria.seq != 0:
		s += fmt.Sprintf(" %s %d", w.maria, w.at)
		if w.before.seq != 0 {
			s += " " + w.before.String()
		}
	}
	return s
}

// parseWitness reads what String wrote; what it cannot read proves nothing.
func parseWitness(kind, s string) (w witness) {
	f := strings.Fields(s)
	if len(f) == 0 {
		return w
	}
	if n, err := fmt.Sscanf(f[0], "%d:%x", &w.from, &w.sum); n != 2 || err != nil {
		return witness{}
	}
	if len(f) < 3 {
		return w
	}
	when, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		return w
	}
	if kind == event.MySQL {
		set, err := parseGTIDSet(f[1])
		if err != nil || len(set.spans) != 1 {
			return w
		}
		for s, list := range set.spans {
			w.mysql = gtidEvent{sid: s, gno: list[0].first, commit: when}
		}
		return w
	}
	one := func(s string) mariaGTID {
		pos, err := parseMariaPos(s)
		if err != nil || len(pos) != 1 {
			return mariaGTID{}
		}
		for _, g := range pos {
			return g
		}
		return mariaGTID{}
	}
	w.maria, w.at = one(f[1]), uint32(when)
	if len(f) > 3 {
		w.before = one(f[3])
	}
	return w
}

// gtid names the transaction, "" where it has no GTID that could be looked for.
func (w witness) gtid() string {
	switch {
	case w.mysql.commit != 0:
		return fmt.Sprintf("%s:%d", w.mysql.sid, w.mysql.gno)
	case w.maria.seq != 0:
		return w.maria.String()
	}
	return ""
}

// committed is when, for people.
func (w witness) committed() string {
	if w.mysql.commit != 0 {
		return time.UnixMicro(int64(w.mysql.commit)).UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	return time.Unix(int64(w.at), 0).UTC().Format(time.RFC3339)
}

// eventSum is what an event is: its time, type, server and the beginning of its body. Not what one dump may show otherwise than another (flags,
// the checksum).
func eventSum(h header, body []byte) uint32 {
	var head [9]byte
	binary.LittleEndian.PutUint32(head[:], h.at)
	head[4] = h.kind
	binary.LittleEndian.PutUint32(head[5:], h.server)
	c := ^uint32(0)
	for _, b := range head { // what crc32 is given escapes, and this is called for each transaction
		c = crc32.IEEETable[byte(c)^b] ^ c>>8
	}
	return crc32.Update(^c, crc32.IEEETable, body[:min(len(body), 64)])
}

// proof is what looking for a witness gave.
type proof int

const (
	unproved proof = iota // nobody can say
	proved
	refuted
)

// connectSame connects once more, to the same server: behind an address that moves (a proxy, a failover) the next connection may reach
// another one, of which nothing was asked.
func (s *Source) connectSame(ctx context.Context) (*conn, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	q, is := "SELECT @@global.server_uuid", s.server.uuid
	if s.server.maria {
		q, is = "SELECT @@global.server_id", strconv.FormatUint(uint64(s.server.id), 10)
	}
	got, err := s.value(ctx, c, q)
	switch {
	case err != nil:
		err = s.queryFault("ask which server this is", err)
	case got != is:
		err = s.fault(codeLost, event.Retry, "connect to "+s.o.Kind, "two connections reached two servers, as they do in the middle of a failover", "the connection is made anew")
	default:
		return c, nil
	}
	c.close()
	return nil, err
}

// peek opens a short dump of its own and shows its events to look until that has seen enough. A refusal of the server, as *errDump, and
// errEnd come back as they are.
func (s *Source) peek(ctx context.Context, from origin, look func(h header, body []byte) (enough bool)) error {
	c, err := s.connectSame(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if err := s.dump(ctx, c, from, s.side("peek"), dumpNonBlock); err != nil {
		return err
	}
	rd := c.reader(openLimit, 1<<20)
	stop := context.AfterFunc(ctx, func() { _ = rd.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	sum := false
	for {
		ev, total, err := rd.next(ctx)
		if err != nil {
			var refused *errDump
			if errors.Is(err, errEnd) || errors.As(err, &refused) && refused.code == mysql.ER_MASTER_FATAL_ERROR_READING_BINLOG {
				return err
			}
			return s.dumpFault(err)
		}
		h, ok := parseHeader(ev)
		if !ok {
			return s.fault(codeDamaged, event.Retry, "look into the binlog", "an event cannot be read", "the connection is made anew")
		}
		body := ev[headerLen:]
		if sum && total == len(ev) && len(body) >= 4 && h.kind != evFormatDescription && h.kind != evRotate {
			body = body[:len(body)-4]
		}
		if h.kind == evFormatDescription {
			d, ok := parseFormatDescription(body)
			sum = ok && d.sum
		}
		if look(h, body) {
			return nil
		}
	}
}

// stampOf reads a file's identity: the header timestamp of its format description event.
func (s *Source) stampOf(ctx context.Context, file string) (stamp uint32, err error) {
	err = s.peek(ctx, origin{file: file, pos: 4}, func(h header, _ []byte) bool {
		stamp = h.at
		return h.kind == evFormatDescription
	})
	if err != nil {
		return 0, s.dumpFault(err)
	}
	return stamp, nil
}

// provePlace looks whether the stored file is the one that was read, and whether the witness is at its place.
func (s *Source) provePlace(ctx context.Context, f *facts) error {
	w := f.witness
	from := origin{file: f.stored.File, pos: 4}
	exact := w.from >= 4 && w.from < min(f.stored.Pos, maxPos)
	if exact {
		from.pos = w.from
	}
	err := s.peek(ctx, from, func(h header, body []byte) bool {
		switch {
		case h.kind == evRotate && h.flags&flagArtificial != 0, h.kind == evHeartbeat, h.kind == evHeartbeatV2:
			return false
		case h.kind == evFormatDescription && f.stamp == 0:
			f.stamp = h.at
			return !exact || f.stamp != f.dep.Stamp
		case h.kind == evFormatDescription, h.kind == evMariaGTIDList && h.flags&flagArtificial != 0, h.kind == evMariaStartEncryption:
			return false
		}
		f.place = refuted
		if eventSum(h, body) == w.sum {
			f.place = proved
		}
		return true
	})
	var refused *errDump
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errEnd):
		// Our event would have come before the end.
		f.place = refuted
		return nil
	case errors.As(err, &refused) && strings.Contains(strings.ToLower(refused.text), "cannot replicate"):
		// While gtid_mode is ON the server does not send a transaction without GTID, nor one with GTID while it is OFF, not even to
		// look at. What lies behind it decides.
		if f.stamp == 0 {
			f.stamp, err = s.stampOf(ctx, f.stored.File)
			return err
		}
		return nil
	case errors.As(err, &refused) && exact:
		// No event begins there; or the file went away meanwhile, and then this tells it.
		f.place = refuted
		if f.stamp == 0 {
			f.stamp, err = s.stampOf(ctx, f.stored.File)
			return err
		}
		return nil
	}
	return s.dumpFault(err)
}

// proveHistory looks whether the server's transaction of the witness's GTID is the one that was read, where the server still has it:
// it is told that we have all others.
func (s *Source) proveHistory(ctx context.Context, f *facts) error {
	w := f.witness
	var from origin
	switch {
	case w.mysql.commit != 0:
		if !f.server.executed.has(w.mysql.sid, w.mysql.gno) || f.server.purged.has(w.mysql.sid, w.mysql.gno) {
			return nil
		}
		it := newGTIDSet()
		it.add(w.mysql.sid, w.mysql.gno, w.mysql.gno)
		from.set = f.server.executed.minus(it)
	case w.maria.seq != 0 && w.before.seq != 0:
		if !f.server.binlogState.has(w.maria) || !f.server.binlogState.has(w.before) {
			return nil
		}
		from.maria = f.server.binlogPos.clone()
		from.maria[w.before.domain] = w.before
	default:
		return nil
	}
	err := s.peek(ctx, from, func(h header, body []byte) bool {
		var g gtidEvent
		ok := false
		switch h.kind {
		case evGTID:
			g, ok = parseGTID(body)
		case evGTIDTagged:
			g, ok = parseGTIDTagged(body, "")
		case evMariaGTID:
			m, _, ok := parseMariaGTID(body, h.server)
			if !ok || m.domain != w.maria.domain {
				return false
			}
			if m == w.maria {
				f.history = refuted
				if h.at == w.at {
					f.history = proved
				}
				f.theirs = witness{maria: m, at: h.at}
			}
			return true
		}
		if !ok || g.sid != w.mysql.sid || g.gno != w.mysql.gno {
			return false
		}
		if g.commit != 0 {
			f.history = refuted
			if g.commit == w.mysql.commit {
				f.history = proved
			}
			f.theirs = witness{mysql: g}
		}
		return true
	})
	var refused *errDump
	if errors.Is(err, errEnd) || errors.As(err, &refused) {
		return nil // it is not there any more, or cannot be shown
	}
	return err
}

// look gathers what deciding needs beside what was asked already.
func (s *Source) look(ctx context.Context, f *facts) error {
	f.witness = parseWitness(f.kind, f.stored.Mark)
	byGTID := f.stored.GTID != "" && f.server.gtids
	if size, there := f.file(); there && size >= f.stored.Pos && f.dep.File == f.stored.File && f.dep.Stamp != 0 && (f.sameServer() || !byGTID) {
		if err := s.provePlace(ctx, f); err != nil {
			return err
		}
	}
	if !byGTID || f.placed() && f.place == proved {
		return nil
	}
	if f.kind == event.MariaDB && len(f.server.files) > 0 {
		var err error
		if f.purged, err = s.purgedMaria(ctx); err != nil {
			return err
		}
	}
	return s.proveHistory(ctx, f)
}

// purgedMaria is what the oldest file begins behind.
func (s *Source) purgedMaria(ctx context.Context) (purged mariaPos, err error) {
	err = s.peek(ctx, origin{file: s.server.files[0].name, pos: 4}, func(h header, body []byte) bool {
		if h.kind == evMariaGTIDList && h.flags&flagArtificial == 0 {
			purged, _ = parseMariaGTIDList(body)
			return true
		}
		return !slices.Contains([]byte{evRotate, evFormatDescription, evHeartbeat, evMariaGTIDList, evMariaStartEncryption}, h.kind)
	})
	var refused *errDump
	if errors.Is(err, errEnd) || errors.As(err, &refused) {
		return purged, nil // the dump itself says what cannot be served
	}
	return purged, err
}
