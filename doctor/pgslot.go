package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// invalid says why the slot cannot be read any more; "" if it can.
func (s *pgSlot) invalid() string {
	switch {
	case s.Invalidation != "":
		return s.Invalidation
	case s.Conflicting:
		return "conflict with recovery"
	case s.WALStatus == "lost":
		return "wal_status lost"
	case s.Restart == nil || s.Confirmed == nil:
		return "it keeps no log"
	}
	return ""
}

func (f *pgFacts) judgeSlot(l *list, o *Postgres) {
	known := false
	if !f.judgeElsewhere(l, o) {
		known = l.stored(f.Stored, f.StoredErr, event.Postgres)
	}
	if known && f.Stored.Position.SystemID != "" && f.SystemID != "" && f.Stored.Position.SystemID != f.SystemID {
		l.add(Error, codeSlotStored, fmt.Sprintf("the stored position is of the server with system identifier %s, this one is %s", f.Stored.Position.SystemID, f.SystemID),
			"a start stops here: positions of two servers have nothing to do with each other", "connect to the former server, or\n"+setTo("slot"))
		known = false
	}
	s := f.Slot
	if s == nil {
		f.judgeNoSlot(l, o, known)
		return
	}
	if s.Type != "logical" || s.Plugin != "pgoutput" || s.Database != o.Database {
		l.add(Error, codeSlot, fmt.Sprintf("the slot %s is somebody else's (plugin %q, database %q)", o.Slot, s.Plugin, s.Database), "a start stops here", "name another slot in slot")
		return
	}
	if why := s.invalid(); why != "" {
		l.add(Error, codeSlot, "the server has given up the slot "+o.Slot+" ("+why+")", "what it kept cannot be read from it any more; the rows are in the table unless they were deleted",
			"SELECT pg_drop_replication_slot("+literal(o.Slot)+");\n"+setTo("now"))
		return
	}
	if s.TwoPhase {
		l.add(Error, codeSlot, "the slot "+o.Slot+" was made with two_phase", "it sends the rows of prepared transactions before they commit: a start stops here",
			"name another slot in slot, or\nSELECT pg_drop_replication_slot("+literal(o.Slot)+");\n"+setTo("now"))
		return
	}
	switch {
	case s.Active:
		l.ok(codeSlot, "the slot %s is read by process %d (%s)", o.Slot, s.ActivePID, s.Application)
	default:
		l.ok(codeSlot, "the slot %s exists and nobody reads it", o.Slot)
	}
	f.judgeRetained(l, o)
	if known {
		f.judgeSlotStored(l, o)
	}
}

// judgeElsewhere says that nothing is stored here although there is a slot, which the data_dir of somebody else may belong to. Whether
// what the slot has confirmed is more than where it was made, the server does not say.
func (f *pgFacts) judgeElsewhere(l *list, o *Postgres) bool {
	s := f.Slot
	if o.NoState == "" || s == nil || s.Confirmed == nil || f.StoredErr != nil || !f.Stored.IsZero() {
		return false
	}
	severity, found := Note, fmt.Sprintf("no position is stored, there is no outtail.db in %s, and the slot %s has confirmed %s", o.NoState, o.Slot, *s.Confirmed)
	why := "fine before the first start, which goes on where the slot stands; if the pipeline ran before, this is not its data_dir"
	if s.Active {
		severity, found = Warning, fmt.Sprintf("no position is stored, there is no outtail.db in %s, and the slot %s is read by process %d (%s)", o.NoState, o.Slot, s.ActivePID, s.Application)
		why = "who reads it has another data_dir: positions, parked events and the audit are there, and a start from here finds the slot in use"
	}
	l.add(severity, codeStored, found, why, "a relative data_dir is looked for from the folder in which the command runs: give it in the one in which outtail is started, or make data_dir absolute")
	return true
}

func (f *pgFacts) judgeNoSlot(l *list, o *Postgres, known bool) {
	create := "SELECT pg_create_logical_replication_slot(" + literal(o.Slot) + ", 'pgoutput');"
	switch {
	case known:
		l.add(Error, codeSlot, "the slot "+o.Slot+" does not exist any more, and a position is stored", "the server has not kept what lies between; a start stops here", setTo("now"))
	case !o.Create:
		l.add(Error, codeSlot, "the slot "+o.Slot+" does not exist", "a start stops here", create+"\nor create: true in the configuration")
	case o.Start == "earliest":
		l.add(Error, codeSlot, "start is earliest, and the slot "+o.Slot+" does not exist", "without a slot Postgres keeps nothing; a start stops here", create+"\nor start: now")
	case o.Start == "":
		l.add(Error, codeSlot, "the slot "+o.Slot+" does not exist, and start is not given", "a start stops here", "start: now in the configuration")
	default:
		l.ok(codeSlot, "the slot %s does not exist yet; the first start creates it (create: true)", o.Slot)
	}
}

func (f *pgFacts) judgeRetained(l *list, o *Postgres) {
	s := f.Slot
	kept := "an unknown amount of log"
	if f.Retained >= 0 {
		kept = size(f.Retained)
	}
	read := "start outtail, or find out what holds it up (outtail checkpoint show, /readyz)"
	switch {
	case s.WALStatus == "unreserved":
		l.add(Error, codeRetained, "the slot keeps "+kept+" and has passed max_slot_wal_keep_size", "the next checkpoint of the server may remove what it needs",
			"ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf();\n"+read)
	case s.Safe != nil && *s.Safe < f.Retained/3:
		l.add(Warning, codeRetained, "the slot keeps "+kept+"; "+size(max(*s.Safe, 0))+" more may be written before the server gives it up", "what it kept is then not sent", read)
	case f.Retained > 10<<30 && !s.Active:
		l.add(Warning, codeRetained, "the slot keeps "+kept+" and nobody reads it", "the disk of the server fills up", read+"; or, if the pipeline is gone for good:\nSELECT pg_drop_replication_slot("+literal(o.Slot)+");")
	case f.Retained > 10<<30:
		l.add(Warning, codeRetained, "the slot keeps "+kept, "outtail is far behind, or an old transaction holds the slot back", read)
	default:
		l.ok(codeRetained, "the slot keeps %s of log (wal_status %s)", kept, s.WALStatus)
	}
}

func (f *pgFacts) judgeSlotStored(l *list, o *Postgres) {
	at, confirmed := f.Stored.Position.LSN, *f.Slot.Confirmed
	moved := f.Stored.Position.Timeline != 0 && f.Timeline != 0 && f.Stored.Position.Timeline != f.Timeline
	var fault *event.Fault
	stops := errors.As(f.Resume, &fault) && fault.Class == event.Safety
	// What the start says of a log that is another one comes before what its numbers look like.
	branch := stops && fault.Code == "OT2037"
	switch {
	case !moved && !branch && at > f.End:
		l.add(Error, codeSlotStored, fmt.Sprintf("the stored position %s lies beyond the end of the log, %s", at, f.End), "the server was restored from a backup: a start stops here, or what it writes up to there would be skipped", setTo("slot"))
	case !moved && !branch && confirmed > at:
		l.add(Error, codeSlotStored, fmt.Sprintf("the slot stands at %s, beyond the stored position %s", confirmed, at), "it was recreated, or somebody else read it: what lies between is not sent by it any more; a start stops here",
			setTo("slot")+"\nand send what lies between again from the table")
	case stops:
		l.add(Error, codeSlotStored, fault.Text, "a start stops here ("+fault.Code+")", fault.Hint)
	case f.Resume != nil && fault == nil:
		l.add(Warning, codeSlotStored, "whether a start could go on after the stored position could not be asked: "+plainCause(f.Resume), "a start looks, and stops where it cannot", "")
	case moved:
		l.add(Note, codeSlotStored, fmt.Sprintf("the server is on timeline %d, the stored position on %d", f.Timeline, f.Stored.Position.Timeline),
			"there was a failover; the position lies before it, and a start goes on", "")
	default:
		l.ok(codeSlotStored, "slot (%s) and stored position (%s) fit", confirmed, at)
	}
}

func (f *pgFacts) judgeHeld(l *list) {
	fine := true
	for _, h := range f.Held {
		s := Note
		if h.Age >= time.Hour {
			s = Warning
		}
		fine = false
		l.add(s, codeHeld, h.What+" is open since "+span(h.Age), "the server keeps the log from its beginning on, and a new slot cannot be finished before it ends", h.End)
	}
	if fine {
		l.ok(codeHeld, "no transaction that the user can see is open for long")
	}
}

func (f *pgFacts) judgeStandby(l *list, o *Postgres) {
	failover := f.Slot != nil && f.Slot.Failover
	switch {
	case f.Recovery:
		f.judgeRecovery(l)
	case o.FailoverSlot && f.Version < 170000:
		l.add(Error, codeStandby, "failover_slot needs Postgres 17, the server is "+f.version(), "a start stops here", "failover_slot: false")
	case f.Slot != nil && o.FailoverSlot && !failover:
		l.add(Warning, codeStandby, "failover_slot is true, and the slot "+o.Slot+" is no failover slot", "a promoted standby has no copy of it", "while outtail is stopped, over a replication connection: ALTER_REPLICATION_SLOT "+pgIdent(o.Slot)+" ( FAILOVER true );")
	case failover && len(f.Guards) == 0:
		l.add(Note, codeStandby, "the slot is a failover slot, and synchronized_standby_slots names no standby", "events may be sent that a promoted standby does not have yet",
			"ALTER SYSTEM SET synchronized_standby_slots = 'SLOT OF THE STANDBY'; SELECT pg_reload_conf();")
	case failover && slices.ContainsFunc(f.Guards, func(g pgGuard) bool { return !g.Active }):
		f.judgeGuards(l)
	case f.Standbys > 0 && f.Version >= 170000 && !failover:
		l.add(Note, codeStandby, "standbys are attached, and the slot is no failover slot", "after a failover the slot is gone, and a start stops until a person decides", "failover_slot: true, and sync_replication_slots = on with hot_standby_feedback = on on the standby")
	default:
		l.ok(codeStandby, "the server is a primary")
	}
}

// judgeRecovery: the server itself is a standby.
func (f *pgFacts) judgeRecovery(l *list) {
	feedback := f.Settings["hot_standby_feedback"] == "on"
	switch {
	case f.Version < 160000:
		l.add(Error, codeStandby, "the server is a standby, and version "+f.version()+" cannot decode there", "a start stops here", "connect to the primary")
		return
	case f.Slot != nil && f.Slot.Synced:
		l.add(Error, codeStandby, "the server is a standby and the slot a synchronised copy", "it can be read only after a promotion", "connect to the primary")
		if f.Settings["sync_replication_slots"] != "on" {
			l.add(Warning, codeStandby, "sync_replication_slots is off", "the copy stays where it is, and after a promotion what was sent since is sent again, if the log is still there",
				"ALTER SYSTEM SET sync_replication_slots = on; SELECT pg_reload_conf();\n(it needs primary_slot_name, and a dbname in primary_conninfo)")
		}
	case feedback:
		l.add(Note, codeStandby, "the server is a standby", "the slot lives here and is lost with it", "")
	}
	if !feedback {
		l.add(Warning, codeStandby, "the server is a standby with hot_standby_feedback off", "the primary removes rows of the catalogue that the slot needs, and the slot is then lost",
			"ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf();")
	}
}

// judgeGuards: a walsender of a failover slot waits until each of these standbys has what it is about to send, for ever where one
// is away.
func (f *pgFacts) judgeGuards(l *list) {
	var there, away []string
	for _, g := range f.Guards {
		if g.Active {
			there = append(there, `"`+g.Name+`"`)
		} else {
			away = append(away, g.Name)
		}
	}
	l.add(Error, codeStandby, "synchronized_standby_slots names "+strings.Join(away, ", ")+", and no standby reads that slot", "no event of a failover slot is sent before it has what is sent",
		"ALTER SYSTEM SET synchronized_standby_slots = "+literal(strings.Join(there, ", "))+"; SELECT pg_reload_conf();\nor bring the standby back")
}

func setTo(to string) string {
	return "outtail checkpoint set -c FILE --pipeline P --to " + to + " --reason R"
}
