package wal

import (
	"context"
	"fmt"
	"time"

	"github.com/outtail/outtail/event"
)

// CheckSet resolves `checkpoint set --to` with the server and returns the checkpoint to store: an LSN that the slot can
// still serve, "slot" (where the slot stands), or "now" (the end of the log; a slot that does not exist is created there,
// and with Create the publication, too). Everything that a start checks of publication and tables is checked.
func CheckSet(ctx context.Context, o Options, to string) (event.Checkpoint, error) {
	at := event.LSN(0)
	if to != "slot" && to != "now" {
		var err error
		if at, err = event.ParseLSN(to); err != nil || at == 0 {
			return event.Checkpoint{}, faultPosition("--to "+to, "it is neither an LSN (0/16B3748) nor slot nor now", "see outtail checkpoint set --help")
		}
	}
	s, err := New(o)
	if err != nil {
		return event.Checkpoint{}, err
	}
	u, err := s.prepare(ctx)
	if err != nil {
		return event.Checkpoint{}, err
	}
	defer u.close()
	if err := s.settle(ctx, u); err != nil {
		return event.Checkpoint{}, err
	}
	create := to == "now" && u.facts.Slot == nil
	if at, err = resolve(&s.o, &u.facts, to, at); err != nil {
		return event.Checkpoint{}, err
	}
	if _, f := checkPublished(&s.o, s.names, &u.facts, create && o.Create); f != nil {
		return event.Checkpoint{}, f
	}
	if create {
		var f *event.Fault
		if at, f = s.create(ctx, u); f != nil {
			return event.Checkpoint{}, f
		}
	}
	if err := s.o.history(ctx, u, event.Checkpoint{}); err != nil {
		return event.Checkpoint{}, err
	}
	d := dependsOf(&s.o, s.names, &u.facts)
	return event.Checkpoint{
		Position:  event.Position{Kind: event.Postgres, SystemID: u.facts.SystemID, Timeline: u.facts.Timeline, Slot: o.Slot, LSN: at},
		Depends:   d.json(),
		Selection: d.Selection,
	}, nil
}

// settle waits a moment for a slot that is active: the server may not have noticed yet that its reader is gone. A slot
// that stays active moves under whoever sets a position.
func (s *Source) settle(ctx context.Context, u *setup) error {
	patience := time.Now().Add(slotPatience)
	for u.facts.Slot != nil && u.facts.Slot.Active {
		if !time.Now().Before(patience) || ctx.Err() != nil {
			return faultPosition(s.o.place()+" slot "+s.o.Slot, fmt.Sprintf("the slot is in use by the server's process %d", u.facts.Slot.ActivePID),
				"stop what reads the slot first, then try again")
		}
		nap(ctx, 100*time.Millisecond)
		var err error
		if u.facts.Slot, err = u.cat.slot(ctx, s.o.Slot); err != nil {
			return s.o.queryFault("read the replication slot", err)
		}
	}
	return nil
}

// resolve finds the position, or says why the server could not serve it.
func resolve(o *Options, f *facts, to string, at event.LSN) (event.LSN, error) {
	place := o.place() + " slot " + o.Slot
	slot := f.Slot
	if slot == nil {
		if to == "now" {
			return 0, nil // the new slot's consistent point
		}
		return 0, faultPosition(place, "the slot does not exist, so that the server keeps nothing for us",
			"--to now creates it where the log ends, or: "+fmt.Sprintf(hintCreateSlotFormat, quoteLiteral(o.Slot)))
	}
	if slot.Type != "logical" || slot.Plugin != "pgoutput" || slot.Database != f.Database {
		return 0, faultForeignSlot(o.place(), o.Slot, slot.Plugin, slot.Database)
	}
	if why := slot.invalid(); why != "" {
		return 0, faultPosition(place, fmt.Sprintf("the server has invalidated the slot (%s)", why),
			fmt.Sprintf("SELECT pg_drop_replication_slot(%s); then --to now", quoteLiteral(o.Slot)))
	}
	switch {
	case to == "slot":
		return *slot.Confirmed, nil
	case to == "now":
		return max(f.End, *slot.Confirmed), nil
	case at > f.End:
		return 0, faultPosition(place, fmt.Sprintf("%s lies beyond the end of the server's log, %s", at, f.End), "--to now is the end of the log")
	case at < *slot.Confirmed:
		return 0, faultPosition(place, fmt.Sprintf("the slot stands at %s, the oldest position that it can send from", *slot.Confirmed),
			"--to slot begins there; a rewind_window holds the slot back from now on; outtail replay sends again what lies before")
	}
	return at, nil
}
