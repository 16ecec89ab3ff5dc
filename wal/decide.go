package wal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outtail/outtail/event"
)

// plan is what Open does after it has compared what is stored with what the server says.
type plan struct {
	// Create makes the slot, and the publication first if it is absent; At is then the slot's consistent point.
	Create bool
	// At is where streaming starts and what is confirmed until more is stored.
	At event.LSN
	// RenewAt is where the session has to be begun anew; 0: nowhere.
	RenewAt event.LSN
	// Prefix survives where server, history and selection are the same.
	Prefix *event.Prefix
	// Notes are said in the log, one line each.
	Notes []string
}

// decide compares a stored checkpoint with the server (I5). It is the whole start rule: an existing slot wins whatever
// start says; without one, only create makes one, and only where nothing says that we ran before.
func decide(o *Options, names []name, from event.Checkpoint, f *facts) (plan, *event.Fault) {
	if from.Position.IsZero() {
		if fault := refuseSlot(o, f); fault != nil {
			return plan{}, fault
		}
		return decideFirst(o, f)
	}
	return decideStored(o, names, from, f)
}

// refuseSlot refuses a slot that is not ours to read.
func refuseSlot(o *Options, f *facts) *event.Fault {
	switch {
	case f.Slot == nil:
		return nil
	case f.Slot.Type != "logical" || f.Slot.Plugin != "pgoutput" || f.Slot.Database != f.Database:
		return faultForeignSlot(o.place(), o.Slot, f.Slot.Plugin, f.Slot.Database)
	case f.Slot.Synced && f.Recovery:
		return faultNotPromoted(o.place()+" slot "+o.Slot, "the slot is a copy of the primary's, which can be read only after a promotion")
	case f.Slot.TwoPhase:
		// The server turns it on for the session whatever we ask for: rows would come before their transaction has committed (I2).
		return faultTwoPhase(o.place(), o.Slot, f.Version)
	}
	return nil
}

// decideFirst is the start rule for a pipeline without a stored position.
func decideFirst(o *Options, f *facts) (plan, *event.Fault) {
	place := o.place()
	if f.Slot != nil {
		if why := f.Slot.invalid(); why != "" {
			at := event.LSN(0)
			if f.Slot.Confirmed != nil {
				at = *f.Slot.Confirmed
			}
			return plan{}, faultSlotInvalidated(place, o.Slot, why, at, f.End)
		}
		note := fmt.Sprintf("no position is stored: resuming where the slot stands, at %s", *f.Slot.Confirmed)
		if o.Start != "" {
			note += fmt.Sprintf(" (an existing slot wins over start: %s)", o.Start)
		}
		return plan{At: *f.Slot.Confirmed, Notes: []string{note}}, nil
	}
	switch {
	case o.RanBefore:
		return plan{}, faultRanBefore(place, o.Slot, f.End)
	case o.Start == "earliest":
		return plan{}, faultEarliest(place, o.Slot)
	case !o.Create:
		return plan{}, faultNoSlot(place, o.Slot)
	case o.Start == "":
		return plan{}, faultNoStart(place, o.Slot)
	}
	return plan{Create: true, Notes: []string{"no position is stored and the slot does not exist: it is created, and what was written before it is not sent (start: now)"}}, nil
}

// decideStored compares in the order in which one finding makes the next one meaningless: server, database, history,
// slot, and last what was published.
func decideStored(o *Options, names []name, from event.Checkpoint, f *facts) (plan, *event.Fault) {
	place, p := o.place(), from.Position
	out := plan{At: p.LSN, Prefix: from.Prefix}
	accepted := func(code string) bool { return slices.Contains(from.Accepted, code) }
	var stored depends
	_ = json.Unmarshal(from.Depends, &stored) // one that cannot be read compares as changed

	read := cmp.Or(stored.Timeline, p.Timeline, f.Timeline)
	toSlot := false // the position is not of this log: only the slot's own can be used
	switch {
	case p.SystemID != f.SystemID:
		if !accepted(CodeOtherServer) {
			return plan{}, faultOtherServer(place, p.SystemID, f.SystemID, p.LSN, f.End)
		}
		toSlot = true
	case stored.Database != "" && stored.Database != f.Database:
		if !accepted(CodeOtherDatabase) {
			return plan{}, faultOtherDatabase(place, stored.Database, f.Database, p.LSN)
		}
		toSlot = true
	case stored.Began != 0 && f.beganOf(read) != 0 && stored.Began != f.beganOf(read): // whatever timeline came after it there
		if !accepted(CodeOtherHistory) {
			return plan{}, faultOtherBranch(place, p.LSN, read, stored.Began, f.beganOf(read))
		}
		toSlot = true
	case p.Timeline != 0 && p.Timeline != f.Timeline:
		out.Prefix = nil
		fork, ok := forkOf(f.History, p.Timeline)
		switch {
		case f.Recovery && f.Timeline < p.Timeline:
			return plan{}, faultNotPromoted(place, fmt.Sprintf("it follows timeline %d, and the stored position is on %d", f.Timeline, p.Timeline))
		case !ok || f.Timeline < p.Timeline:
			if !accepted(CodeOtherHistory) {
				return plan{}, faultOtherHistory(place, p.LSN, p.Timeline, f.Timeline)
			}
			toSlot = true
		case p.LSN > fork:
			if !accepted(CodeBeyondFork) {
				return plan{}, faultBeyondFork(place, p.LSN, fork, p.Timeline, f.Timeline)
			}
			out.At = fork
		default:
			out.Notes = append(out.Notes, fmt.Sprintf("the server is on timeline %d now; ours (%d) is its ancestor and the position lies before the fork at %s", f.Timeline, p.Timeline, fork))
		}
	case p.LSN > f.End && f.Recovery:
		return plan{}, faultNotPromoted(place, fmt.Sprintf("it has replayed the log up to %s, and the stored position is %s", f.End, p.LSN))
	case p.LSN > f.End:
		if !accepted(CodeAheadOfServer) {
			return plan{}, faultAheadOfServer(place, p.LSN, f.End)
		}
		toSlot = true
	}

	if fault := refuseSlot(o, f); fault != nil {
		return plan{}, fault
	}
	if f.Slot == nil && p.Slot != "" && p.Slot != o.Slot {
		return plan{}, faultOtherSlot(place, o.Slot, p.Slot, p.LSN)
	}
	if f.Slot == nil {
		return plan{}, faultSlotLost(place, o.Slot, p.LSN, f.End)
	}
	if why := f.Slot.invalid(); why != "" {
		return plan{}, faultSlotInvalidated(place, o.Slot, why, p.LSN, f.End)
	}
	confirmed := *f.Slot.Confirmed
	if toSlot {
		out.At, out.Prefix = confirmed, nil
		out.Notes = append(out.Notes, fmt.Sprintf("accepted: resuming where the slot stands, at %s", confirmed))
	} else if confirmed > out.At {
		// Asked for an older position the server would silently start at its own: the gap would go unnoticed.
		if !accepted(CodeSlotAdvanced) {
			return plan{}, faultSlotAdvanced(place, o.Slot, out.At, confirmed)
		}
		out.At, out.Prefix = confirmed, nil
		out.Notes = append(out.Notes, fmt.Sprintf("accepted: resuming where the slot stands, at %s", confirmed))
	}
	now := dependsOf(o, names, f)
	if !toSlot {
		if f.Pub == nil {
			return plan{}, faultPublicationGone(place, o.Publication, p.LSN, f.End)
		}
		if changes := stored.changes(now); len(changes) > 0 && len(from.Depends) > 0 {
			if !accepted(CodeDependsChanged) {
				return plan{}, faultDependsChanged(place, changes, stored.CheckedAt, f.End)
			}
			out.Prefix = nil
			if now.filled() {
				out.RenewAt = f.End
			}
		}
	}
	if stored.RenewAt > out.At {
		out.RenewAt = max(out.RenewAt, stored.RenewAt)
	}
	out.Prefix = usable(out.Prefix, from, now.Selection)
	return out, nil
}

// usable gives the prefix back if it was counted over the same selection of rows, else nil: a duplicate is allowed, to
// skip wrong rows is not.
func usable(p *event.Prefix, from event.Checkpoint, selection string) *event.Prefix {
	if p == nil || p.Rows == 0 || p.Tx == "" || from.Selection != selection && p.Selection != selection {
		return nil
	}
	if p.Selection != "" && p.Selection != selection {
		return nil
	}
	return p
}

// timelineSwitch is one line of a timeline history: at At, the server left timeline TLI.
type timelineSwitch struct {
	TLI uint32
	At  event.LSN
}

// parseHistory reads the content of TIMELINE_HISTORY: "<parent>\t<switch point>\t<reason>" per line, # for comments.
func parseHistory(content string) []timelineSwitch {
	var out []timelineSwitch
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		tli, err := strconv.ParseUint(fields[0], 10, 32)
		at, err2 := event.ParseLSN(fields[1])
		if err == nil && err2 == nil {
			out = append(out, timelineSwitch{uint32(tli), at})
		}
	}
	return out
}

func forkOf(history []timelineSwitch, tli uint32) (event.LSN, bool) {
	for _, h := range history {
		if h.TLI == tli {
			return h.At, true
		}
	}
	return 0, false
}

// checkServer refuses a server that cannot stream at all.
func checkServer(o *Options, f *facts) *event.Fault {
	switch {
	case f.Version < 140000:
		return faultTooOld(o.place(), f.Version)
	case f.WALLevel != "logical":
		return faultWALLevel(o.place(), f.WALLevel)
	case o.FailoverSlot && f.Version < 170000:
		return faultNoFailover(o.place(), f.Version)
	case o.Messages && f.Encoding != "UTF8":
		return faultMessageEncoding(o.place(), f.Encoding)
	}
	return nil
}

// warning is told at a start that goes on all the same.
type warning struct{ code, text string }

// checkPublished refuses tables and publications from which rows would be missing. creating says that the publication is
// about to be made by us. Warnings are told and let pass.
func checkPublished(o *Options, names []name, f *facts, creating bool) (warnings []warning, _ *event.Fault) {
	place := o.place()
	for _, t := range f.Tables {
		if t.RelID == 0 {
			return nil, faultNoTable(place, t.Name)
		}
		if t.Kind != "r" && t.Kind != "p" {
			return nil, faultNotTable(place, t.Name)
		}
		if t.Persistence != "p" {
			return nil, faultUnlogged(place, t.Name, t.Name)
		}
		if t.UnloggedPart != nil {
			return nil, faultUnlogged(place, t.Name, *t.UnloggedPart)
		}
		for _, col := range columnNames(o.Columns) {
			c, ok := t.Columns[col]
			if !ok {
				return nil, faultNoColumn(place, t.Name, col)
			}
			if !f.published(&t, col) {
				return nil, faultGenerated(place, o.Publication, t.Name, col, c.Generated == "s" && f.Version >= 180000)
			}
		}
	}
	for _, t := range f.Tables {
		for _, child := range t.Children {
			if !slices.Contains(names, child) {
				warnings = append(warnings, warning{CodeInherited, fmt.Sprintf("%s inherits from %s: rows that are inserted into it are not events unless it stands in `tables`", child, t.Name)})
			}
		}
	}
	if f.Pub == nil {
		if creating {
			return warnings, nil
		}
		return nil, faultNoPublication(place, o.Publication, names)
	}
	if !f.Pub.Insert {
		return nil, faultPublicationNoInsert(place, o.Publication)
	}
	for _, t := range f.Tables {
		switch {
		case f.Pub.ViaRoot && t.PublishedAncestor != nil:
			return nil, faultSentAsRoot(place, o.Publication, t.Name, *t.PublishedAncestor)
		case !f.Pub.AllTables && t.Member == 0 && t.Schema == 0 && t.PublishedAncestor == nil:
			return nil, faultPublicationMissingTable(place, o.Publication, t.Name)
		}
		if t.ColumnList != nil {
			for _, col := range columnNames(o.Columns) {
				if !slices.Contains(t.ColumnList, col) {
					return nil, faultColumnList(place, o.Publication, t.Name, col)
				}
			}
		}
		if t.HasFilter {
			warnings = append(warnings, warning{CodeRowFilter, fmt.Sprintf("the publication %s filters the rows of %s: what it filters is never sent", showIdent(o.Publication), t.Name)})
		}
	}
	return warnings, nil
}
