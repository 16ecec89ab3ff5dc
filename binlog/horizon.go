package binlog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outtail/outtail/event"
)

// Horizon is how far back the server can send, as it was when it was asked. Asking changes nothing, and may be done beside a
// running session.
type Horizon struct {
	s *Source
	c *conn
}

// LookBack asks the server.
func LookBack(ctx context.Context, o Options) (*Horizon, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	s.seed += "/resume" // a running session's own short looks are not to be ended by ours
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	if s.server, err = s.ask(ctx, c); err == nil {
		s.server.files, err = s.binlogs(ctx, c)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return &Horizon{s, c}, nil
}

// Close ends the connection.
func (h *Horizon) Close() { h.c.close() }

// Serves says whether a session could go on after a checkpoint of the past, exactly as Open would decide: a fault where not.
func (h *Horizon) Serves(ctx context.Context, cp event.Checkpoint) error {
	_, err := h.s.resumeAfter(ctx, cp)
	return err
}

// Oldest names the oldest position from which the server can send, "" where there is none.
func (h *Horizon) Oldest() string {
	if len(h.s.server.files) == 0 {
		return ""
	}
	return h.s.server.files[0].name + ":4"
}

// Between is how many bytes of log lie between two positions, of all that was written there; -1 where that is not known.
func (h *Horizon) Between(from, to event.Position) int64 {
	here := func(p event.Position) bool {
		return p.File != "" && (&facts{kind: h.s.o.Kind, stored: p, server: h.s.server}).sameServer()
	}
	if !here(from) || !here(to) {
		return -1
	}
	return bytesUntil(place{from.File, from.Pos}, logSpan{place: place{to.File, to.Pos}, files: h.s.server.files})
}

// Compare tells which of two positions comes first in the log: -1, 0 or 1. An error says that nobody can tell.
func Compare(a, b event.Position) (int, error) {
	unknown := fmt.Errorf("nobody can tell which of %s and %s comes first", a, b)
	if a.Kind != b.Kind {
		return 0, unknown
	}
	if a.GTID != "" && b.GTID != "" && a.GTID != b.GTID {
		var before, after bool // a has nothing that b has not, and the other way round
		if a.Kind == event.MariaDB {
			x, err := parseMariaPos(a.GTID)
			y, yerr := parseMariaPos(b.GTID)
			if err != nil || yerr != nil {
				return 0, unknown
			}
			before, after = len(y.missing(x)) == 0, len(x.missing(y)) == 0
		} else {
			x, err := parseGTIDSet(a.GTID)
			y, yerr := parseGTIDSet(b.GTID)
			if err != nil || yerr != nil {
				return 0, unknown
			}
			before, after = y.contains(x), x.contains(y)
		}
		switch {
		case before == after:
			return 0, unknown
		case before:
			return -1, nil
		}
		return 1, nil
	}
	same := a.ServerUUID == b.ServerUUID && a.ServerID == b.ServerID
	switch {
	case same && a.File != "" && b.File != "":
		return cmp.Or(compareFiles(a.File, b.File), cmp.Compare(a.Pos, b.Pos)), nil
	case a.GTID != "" && a.GTID == b.GTID:
		return 0, nil
	}
	return 0, unknown
}

// Rewound is what goes with a position to which a person goes back: what it depended on then, and of now what belongs to our
// sessions. What was kept of XA transactions that were decided since is swept, so what the mark of then knows of them does not hold: it
// is made anew where reading begins, and a commit whose rows are gone is a finding, not a gap.
func Rewound(past, now json.RawMessage) json.RawMessage {
	d, is := parseDepends(past), parseDepends(now)
	d.Token = is.Token
	if d.XA == nil {
		d.XA = is.XA.clone()
	}
	if d.XA != nil {
		d.XA.Anew, d.XA.Store = true, ""
		if is.XA != nil {
			d.XA.Store = is.XA.Store
		}
	}
	return encodeDepends(d)
}

// Portable is what of it may leave the host: not the secret by which our own sessions are known there, and not which parked.db
// has rows of prepared transactions, unless it has some.
func Portable(raw json.RawMessage, kept bool) json.RawMessage {
	if len(raw) == 0 {
		return raw
	}
	d := parseDepends(raw)
	d.Token = ""
	if d.XA != nil && !kept {
		d.XA.Store = ""
	}
	return encodeDepends(d)
}

// keptHere takes the transactions that are kept off the list of those that were prepared before.
func (m *xaMark) keptHere(open []*kept) {
	m.Before = slices.DeleteFunc(m.Before, func(b string) bool {
		x, ok := parseXIDText([]byte(b))
		return ok && slices.ContainsFunc(open, func(k *kept) bool { return k.name.same(x) })
	})
}

// Waiting counts the prepared transactions whose rows are kept behind a position and are not decided there.
func Waiting(store Prepared, p event.Position) (n int64, err error) {
	if p.Kind != event.MySQL && p.Kind != event.MariaDB {
		return 0, nil
	}
	at := reachOf(p)
	err = store.Each("h", func(_ string, head []byte) error {
		var k kept
		if err := json.Unmarshal(head, &k); err != nil {
			return errKeptDamaged
		}
		behind, known := at.covers(k.At)
		if k.Partial || known && !behind {
			return nil
		}
		if k.Decided != nil {
			if done, _ := at.covers(*k.Decided); done {
				return nil
			}
		}
		n++
		return nil
	})
	return n, err
}
