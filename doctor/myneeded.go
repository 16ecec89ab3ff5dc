package doctor

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

// judgeNeeded compares the stored position with what the server still has, and says how long it lasts.
func (f *myFacts) judgeNeeded(l *list, o *MySQL) {
	if !l.stored(f.Stored, f.StoredErr, o.Kind) {
		if f.StoredErr == nil && f.Stored.IsZero() && o.Start == "" {
			l.add(Error, codeNeeded, "no position is stored and start is not given", "a start stops here; if the pipeline ran before, its data_dir is missing", "start: now in the pipeline's source, or earliest, { gtid: … } or { file: …, pos: … }")
		}
		return
	}
	p := f.Stored.Position
	var fault *event.Fault
	switch {
	case errors.As(f.Resume, &fault) && fault.Class == event.Safety:
		l.add(Error, codeNeeded, fault.Text, "a start stops here ("+fault.Code+")", fault.Hint)
		return
	case f.Resume != nil:
		l.add(Warning, codeNeeded, "whether the server still has what follows the stored position could not be asked: "+plainCause(f.Resume), "a start looks, and stops where it has not", "")
		return
	}
	if p.ServerUUID != "" && f.Vars["server_uuid"] != "" && !strings.EqualFold(p.ServerUUID, f.Vars["server_uuid"]) {
		l.add(Note, codeNeeded, "the server is another one than before (server_uuid "+f.Vars["server_uuid"]+")", "outtail goes on here: the server has all that was sent and all that follows", "")
	}
	there := "what follows the stored position is there"
	if p.File != "" && f.behind() < 0 && len(f.Files) > 0 {
		there += ", by GTID"
	}
	f.judgeLeft(l, o, there)
}

// judgeChanges says whether rows that wait in the log can be read, where tables were changed since the stored position.
func (f *myFacts) judgeChanges(l *list) {
	if f.ChangeErr != nil {
		l.add(Warning, codeChanges, "whether the tables were changed since the stored position could not be looked at: "+plainCause(f.ChangeErr), "a start looks, and stops at rows whose columns cannot be proved", "")
		return
	}
	named := strings.EqualFold(f.Vars["binlog_row_metadata"], "FULL")
	for _, c := range f.Changes {
		times := count(c.Changes, "time")
		accept := func(at, columns string) string {
			return "with the columns that the table had there:\nouttail schema accept -c FILE --pipeline P --table " + c.Table + " --at " + at + " --columns '" + strings.ReplaceAll(columns, "'", `'\''`) + "' --reason R\n" +
				"and for what is written from now on: " + f.global("binlog_row_metadata", "'FULL'")
		}
		switch {
		case c.Changes < 0:
			l.add(Note, codeChanges, "the columns of "+c.Table+" are others than at the stored position, and the log between could not be followed to its end", "a start follows it, and stops at rows whose columns cannot be proved", "")
		case c.Unproved == "":
			l.ok(codeChanges, "%s was changed %s since the stored position, first at %s, in ways that can be followed", c.Table, times, c.First)
		case named:
			l.add(Note, codeChanges, c.Table+" was changed since the stored position, and what its columns were in between is only known where the log names them: "+c.Unproved, "rows that were written before binlog_row_metadata was FULL stop a start there", "")
		case c.Changes == 0:
			p := f.Stored.Position
			l.add(Warning, codeChanges, "the columns of "+c.Table+" are others than at the stored position, and the log does not show what changed them (sql_log_bin = 0, or a change on a replica)",
				"a start reads what was written since by the old columns, and stops at the first row that does not fit them (OT3029)", accept(p.File+":"+strconv.FormatUint(p.Pos, 10), c.Now))
		default:
			l.add(Warning, codeChanges, c.Table+" was changed "+times+" since the stored position, first at "+c.First+", and what its columns were in between cannot be proved: "+c.Unproved,
				"a start stops at rows that were written in between, if there are any (OT3029). Before all of them the columns were: "+c.Stored, accept(c.First, c.Now))
		}
	}
}

// judgeLeft says how long what is needed lasts. A file is purged when its last write is older than the retention, and the
// file of the position was written to at least until about the time when the position was saved.
func (f *myFacts) judgeLeft(l *list, o *MySQL, there string) {
	behind := f.behind()
	if behind >= 0 {
		there += ", " + size(behind) + " of log behind it"
	}
	keep := f.retention()
	if keep == 0 || f.Stored.SavedAt.IsZero() {
		l.ok(codeNeeded, "%s", there)
		return
	}
	left := keep - o.Now().Sub(f.Stored.SavedAt)
	if f.Stored.Position.File == f.EndFile {
		l.ok(codeNeeded, "%s; the file is the newest, which is never purged", there)
		return
	}
	switch {
	case left <= 0:
		l.add(Warning, codeNeeded, there+"; it may be purged at any moment", "the position is older than the server keeps its log", "start outtail now, and keep the log longer:\n"+f.keepLonger(30))
	case left < keep/4 || left < 6*time.Hour:
		l.add(Warning, codeNeeded, there+"; about "+span(left)+" are left before it is purged", "what is then not read is gone", "start outtail, and keep the log longer:\n"+f.keepLonger(30))
	default:
		l.ok(codeNeeded, "%s; about %s are left before it is purged", there, span(left))
	}
}

// behind counts the log after the stored position; -1 where its file is not listed.
func (f *myFacts) behind() int64 {
	n, found := int64(0), false
	for _, file := range f.Files {
		switch {
		case found:
			n += int64(file.Size)
		case file.Name == f.Stored.Position.File:
			found = true
			n = max(0, int64(file.Size)-int64(f.Stored.Position.Pos))
		}
	}
	if !found {
		return -1
	}
	return n
}

func (f *myFacts) judgeRest(l *list, o *MySQL) {
	if f.ReplicaOf != "" {
		logs, known := f.Vars["log_replica_updates"]
		if !known {
			logs = f.Vars["log_slave_updates"]
		}
		name := "log_replica_updates"
		if !known {
			name = "log_slave_updates"
		}
		switch {
		case logs == "ON" && f.Halted != "":
			l.add(Warning, codeReplica, "the server is a replica of "+f.ReplicaOf+" that does not replicate: "+f.Halted, "what is committed at "+f.ReplicaOf+" arrives when it does again", "SHOW "+map[bool]string{true: "SLAVE", false: "REPLICA"}[f.Maria]+" STATUS;  says why")
		case logs == "ON":
			l.add(Note, codeReplica, "the server is a replica of "+f.ReplicaOf, "events arrive later by its lag; inserts made here show too", "")
		default:
			l.add(Error, codeReplica, "the server is a replica of "+f.ReplicaOf+" and "+name+" is OFF", "what it replicates is not in its own log: no event is ever sent", "add "+name+" = ON to the server's configuration and restart it, or connect to "+f.ReplicaOf)
		}
	} else {
		l.ok(codeReplica, "the server is not a replica, as far as the user can see")
	}
	var loose, repair []string
	for _, v := range []string{"sync_binlog", "innodb_flush_log_at_trx_commit"} {
		if is := f.Vars[v]; is != "1" {
			loose, repair = append(loose, v+" is "+is), append(repair, f.global(v, "1"))
		}
	}
	if loose == nil {
		l.ok(codeDurable, "commits are on disk before they are acknowledged")
	} else {
		l.add(Note, codeDurable, strings.Join(loose, ", "), "when the machine of the server crashes, commits can be lost whose events were already sent", strings.Join(repair, "\n"))
	}
	if packet := f.number("max_allowed_packet"); packet > 0 {
		if packet > o.RowLimit {
			l.ok(codePacket, "the server takes rows up to %s, outtail up to limits.row, %s", size(packet), size(o.RowLimit))
		} else {
			l.ok(codePacket, "max_allowed_packet is %s, within limits.row", size(packet))
		}
	}
	switch {
	case f.XA > 0:
		l.add(Note, codeXA, strconv.Itoa(f.XA)+" XA transactions are prepared", "what they wrote is sent when they commit, unless they were prepared before the first start; old ones hold locks", "XA RECOVER CONVERT XID;  then XA COMMIT …; or XA ROLLBACK …;")
	case f.XA == 0:
		l.ok(codeXA, "no XA transaction is prepared")
	}
}
