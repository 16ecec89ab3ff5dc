package wal

import (
	"context"
	"fmt"

	"github.com/outtail/outtail/event"
)

// Horizon is how far back the server can send, as it was when it was asked. Asking changes nothing, and may be done beside a
// running session.
type Horizon struct {
	s *Source
	u *setup
}

// LookBack asks the server.
func LookBack(ctx context.Context, o Options) (*Horizon, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	u, err := s.prepare(ctx)
	if err != nil {
		return nil, err
	}
	return &Horizon{s, u}, nil
}

// Close ends the connections.
func (h *Horizon) Close() { h.u.close() }

// Serves says whether a session could go on after a checkpoint of the past, exactly as Open would decide: a fault where not.
func (h *Horizon) Serves(ctx context.Context, cp event.Checkpoint) error {
	f := &h.u.facts
	if slot := f.Slot; slot == nil || slot.invalid() != "" || cp.Position.SystemID == f.SystemID && cp.Position.LSN < *slot.Confirmed {
		if _, err := resolve(&h.s.o, f, cp.Position.LSN.String(), cp.Position.LSN); err != nil {
			return err
		}
	}
	_, _, err := h.s.decide(ctx, h.u, cp)
	return err
}

// CheckResume asks whether a start would go on after what is stored, and gives the fault that it would end with. It moves nothing,
// and may be asked beside a session: so stored is loaded between the slot, which must not be newer, and the end of the log, which
// must not be older.
func CheckResume(ctx context.Context, o Options, stored func(context.Context) (event.Checkpoint, error)) error {
	h, err := LookBack(ctx, o)
	if err != nil {
		return err
	}
	defer h.Close()
	from, err := stored(ctx)
	if err != nil || from.IsZero() {
		return err
	}
	if err := h.u.cat.server(ctx, &h.u.facts); err != nil {
		return h.s.o.queryFault(opStart, err)
	}
	_, _, err = h.s.decide(ctx, h.u, from)
	return err
}

// Oldest names the oldest position from which the server can send, "" where there is none.
func (h *Horizon) Oldest() string {
	if slot := h.u.facts.Slot; slot != nil && slot.invalid() == "" {
		return slot.Confirmed.String()
	}
	return ""
}

// Between is how many bytes of log lie between two positions, of all that was written there; -1 where that is not known.
func (h *Horizon) Between(from, to event.Position) int64 {
	if from.SystemID != to.SystemID || to.LSN < from.LSN {
		return -1
	}
	return int64(to.LSN - from.LSN)
}

// Compare tells which of two positions comes first in the log: -1, 0 or 1. An error says that nobody can tell.
func Compare(a, b event.Position) (int, error) {
	switch {
	case a.SystemID != b.SystemID:
		return 0, fmt.Errorf("%s and %s are positions of different servers", a, b)
	case a.LSN < b.LSN:
		return -1, nil
	case a.LSN > b.LSN:
		return 1, nil
	}
	return 0, nil
}
