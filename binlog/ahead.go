package binlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outtail/outtail/event"
)

// foundDDL is a statement further on in the log.
type foundDDL struct {
	at     place
	change change
}

// scan looks for DDL on a table between two places of the log, with a connection of its own, keeping nothing: rows that wait for a proof
// wait in the log, however much of it lies between. It ends at the first statement that is not understood, since nothing can be
// proved over that.
func (s *Source) scan(ctx context.Context, from, to place, t *table) (found []foundDDL, err error) {
	s.log.Info("reading ahead for changes of a table's definition", "table", t.name, "from", from.String(), "to", to.String())
	err = s.walk(ctx, from, to, func(h header, body []byte, here place) (enough bool) {
		c := s.changeOf(h, body, t)
		// Rows of it lie at the beginning, so that it exists until a statement says otherwise.
		if c.kind != changeNone && c.kind != changeIfGone {
			found = append(found, foundDDL{here, c})
		}
		return c.kind == changeUnknown
	})
	return found, err
}

// changeOf is what an event does to the columns of a table.
func (s *Source) changeOf(h header, body []byte, t *table) change {
	switch h.kind {
	case evMariaQueryCompressed:
		var err error
		if body, err = inflateQuery(body, aheadEvent); err != nil {
			return change{kind: changeUnknown}
		}
	case evQuery:
	default:
		return change{}
	}
	q, ok := parseQuery(body)
	if !ok {
		return change{kind: changeUnknown}
	}
	return changes(q, t, s.folded, s.o.Kind == event.MariaDB)
}

// aheadEvent is how much of an event is looked at when reading ahead.
const aheadEvent = 1 << 20

// walk visits the events between two places of the log, with a connection of its own, until one is enough. Statements of an ALTER TABLE
// in two phases that is not done are left out.
func (s *Source) walk(ctx context.Context, from, to place, visit func(h header, body []byte, here place) (enough bool)) error {
	c, err := s.connectSame(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if err := s.dump(ctx, c, origin{file: from.file, pos: from.pos}, s.side("scan"), dumpNonBlock); err != nil {
		return err
	}
	rd := c.reader(silenceLimit, aheadEvent)
	stop := context.AfterFunc(ctx, func() { _ = rd.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	here := from
	sum, half := false, false
	for here.compare(to) < 0 {
		ev, total, err := rd.next(ctx)
		if err != nil {
			if errors.Is(err, errEnd) {
				return nil // not blocking, the dump ends where the log ends: we are there
			}
			return s.dumpFault(err)
		}
		h, ok := parseHeader(ev)
		if !ok {
			return s.fault(codeDamaged, event.Retry, "read ahead", "an event cannot be read", "the connection is made anew")
		}
		body := ev[headerLen:]
		if (sum || h.kind == evRotate && sumOK(ev)) && total == len(ev) {
			body = body[:len(body)-4]
		}
		if h.flags&flagArtificial == 0 && h.next != 0 && h.kind != evHeartbeat && h.kind != evHeartbeatV2 {
			next := here.pos&^maxPos | uint64(h.next)
			if next < here.pos {
				next += 1 << 32
			}
			here.pos = next
		}
		switch h.kind {
		case evFormatDescription:
			d, ok := parseFormatDescription(ev[headerLen:])
			sum = ok && d.sum
		case evRotate:
			if file, pos, ok := parseRotate(body); ok {
				here = place{string(file), pos}
			}
		case evMariaGTID:
			half = halfAlter(body)
		case evQuery, evMariaQueryCompressed:
			if half {
				continue
			}
		}
		if visit(h, body, here) {
			return nil
		}
	}
	return nil
}

// refute looks whether the first rows of a table behind a place are ones that a definition can read, and says why not. Rows behind the
// next change of the table, or in a compressed transaction, show nothing.
func (s *Source) refute(ctx context.Context, at place, t *table, d definition) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, refuteTime)
	defer cancel()
	end := s.server.files[len(s.server.files)-1]
	err = s.walk(ctx, at, place{end.name, end.size}, func(h header, body []byte, here place) (enough bool) {
		if h.kind != evTableMap {
			return s.changeOf(h, body, t).kind != changeNone
		}
		_, schema, name, _, ok := tableMapHead(body)
		if !ok || s.find(schema, name) != t {
			return false
		}
		tm, bad := parseTableMap(body, s.o.Kind == event.MariaDB)
		if bad != nil {
			return true
		}
		if differs := s.fits(tm, d); differs != "" {
			why = fmt.Sprintf("they do not fit the rows at %s: %s", here, differs)
		}
		return true
	})
	if ctx.Err() != nil {
		return "", nil // so far away that a start will tell
	}
	return why, err
}

// refuteTime is how long a person waits for it.
const refuteTime = 20 * time.Second
