package binlog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outtail/outtail/event"
)

// facts is all that deciding how to go on needs. Deciding is pure; asking and dumping are elsewhere.
type facts struct {
	kind     string
	stored   event.Position
	dep      depends
	witness  witness
	server   *server
	accepted []string

	// What was looked up (look).
	stamp   uint32   // the identity that the stored file has on the server now; 0 where the server has no such file
	place   proof    // that the witness is at its place in that file
	history proof    // that the server's transaction of the witness's GTID is the one that was read
	theirs  witness  // what the server has instead
	purged  mariaPos // MariaDB: what the oldest file begins behind
}

// finding is a reason to stop that a person may accept.
type finding struct {
	code string
	text string
	to   []string // positions that `checkpoint set --to` can go to
}

// sameServer: the log coordinates of the stored position mean something there.
func (f *facts) sameServer() bool {
	if f.kind == event.MariaDB {
		return f.stored.ServerID == f.server.id
	}
	return f.stored.ServerUUID == f.server.uuid
}

// file finds the stored file among the server's.
func (f *facts) file() (size uint64, there bool) {
	for _, b := range f.server.files {
		if b.name == f.stored.File {
			return b.size, true
		}
	}
	return 0, false
}

// otherFile: the server's file of the stored name is not the one that was read.
func (f *facts) otherFile(size uint64) bool {
	if size < f.stored.Pos || f.place == refuted {
		return true
	}
	return f.dep.File == f.stored.File && f.dep.Stamp != 0 && f.stamp != 0 && f.dep.Stamp != f.stamp
}

// placed: the stored place is proved to be one in the server's own file of today. It is then the better half of the position:
// a dump by GTID set begins with the newest file whose PREVIOUS_GTIDS the set covers, and so passes over what was committed
// without a GTID while gtid_mode was not ON in between; and one by MariaDB's GTIDs cannot say a place where their numbers go back (I5).
func (f *facts) placed() bool {
	size, there := f.file()
	return there && f.sameServer() && f.dep.File == f.stored.File && f.dep.Stamp != 0 && f.dep.Stamp == f.stamp && f.place != refuted &&
		f.stored.Pos >= 4 && f.stored.Pos <= min(size, maxPos)
}

// oldest is where everything begins that the server still has.
func (f *facts) oldest() origin {
	var from origin
	if f.kind == event.MySQL && f.server.gtids {
		from.set = f.server.purged.clone()
	}
	if len(f.server.files) > 0 {
		from.file, from.pos = f.server.files[0].name, 4
	}
	return from
}

// resume decides where a dump begins after a stored position (I5: never a silent jump). keep says that a stored prefix still
// counts. Several findings may apply; the first that nobody accepted is returned. Where the history is another one, what was accepted
// goes on with the oldest log: which of its transactions were read is unknown, and what comes twice is better than what never comes.
func resume(f *facts) (from origin, keep bool, stop *finding) {
	keep = f.sameServer()
	// stops reports whether the finding ends it; otherwise it was accepted, and the stored prefix is one of a log that is gone.
	stops := func(code, text string, to ...string) bool {
		keep = false
		if slices.Contains(f.accepted, code) {
			return false
		}
		stop = &finding{code, text, to}
		return true
	}
	same := keep
	// byGTID: the stored set says all, whichever server holds the log.
	byGTID := f.stored.GTID != "" && f.server.gtids

	fileGone := false
	if size, there := f.file(); same && f.stored.File != "" {
		newest := ""
		if n := len(f.server.files); n > 0 {
			newest = f.server.files[n-1].name
		}
		switch {
		case there && f.otherFile(size):
			if stops(codeFileIdentity, fmt.Sprintf("%s on the server is another file of the same name, or has lost its end (RESET BINARY LOGS, a server that was rebuilt, restored or cloned, or a crash that took what was not synced): "+
				"what lay between %s and that is not there. Accepting it goes on with the oldest log that there is", f.stored.File, f.stored), "now", "earliest", "GTID", "FILE:POS") {
				return
			}
			return f.oldest(), false, nil
		case !there && sameBase(f.stored.File, newest) && compareFiles(f.stored.File, newest) > 0:
			if stops(codeFileIdentity, fmt.Sprintf("%s is newer than all of the server's binlogs, which end with %s: its log was reset, or the server rebuilt or restored. Accepting it goes on with the oldest log that there is",
				f.stored.File, newest), "now", "earliest", "GTID", "FILE:POS") {
				return
			}
			return f.oldest(), false, nil
		case !there:
			fileGone = true
			if !byGTID && stops(codeFile, "the server has purged "+f.stored.File+": what was committed after "+f.stored.String()+" and is in no binlog any more was not read. Accepting it goes on with the oldest log that there is",
				"now", "earliest", "FILE:POS") {
				return
			}
		}
	}

	if byGTID {
		if f.history == refuted {
			if stops(codeHistory, fmt.Sprintf("%s on the server is another transaction (committed %s) than the one that was read (committed %s): the server was rebuilt or restored, or is a clone that went its own way. "+
				"Accepting it goes on with the oldest log that there is", f.witness.gtid(), f.theirs.committed(), f.witness.committed()), "now", "earliest", "GTID") {
				return
			}
			return f.oldest(), false, nil
		}
		if f.kind == event.MariaDB {
			return f.byMariaGTID(keep, stops, &stop)
		}
		return f.bySet(keep, stops, &stop)
	}

	if !same {
		what := "its GTIDs are off"
		if f.stored.GTID == "" {
			what = "no GTID set is stored"
		}
		if stops(codeServer, fmt.Sprintf("this is another server (%s, not %s) and %s: a file and position of the other one mean nothing here. "+
			"Accepting it goes on at %s where that is provably the same log, else with the oldest log that there is", f.identity(), f.storedIdentity(), what, f.stored), "now", "earliest", "FILE:POS") {
			return
		}
		// A log that went on under another name of the server, as behind a removed auto.cnf.
		if f.place != proved || f.stamp != f.dep.Stamp {
			return f.oldest(), false, nil
		}
	}
	if fileGone || f.stored.File == "" {
		return f.oldest(), false, nil
	}
	return origin{file: f.stored.File, pos: max(f.stored.Pos, 4)}, keep, nil
}

// bySet goes on after a MySQL GTID set.
func (f *facts) bySet(keep bool, stops func(code, text string, to ...string) bool, stop **finding) (origin, bool, *finding) {
	set, err := parseGTIDSet(f.stored.GTID)
	if err != nil {
		if stops(codeHistory, "the stored GTID set cannot be read: "+err.Error()+". Accepting it goes on with the oldest log that there is", "now", "earliest", "GTID") {
			return origin{}, false, *stop
		}
		return f.oldest(), false, nil
	}
	if extra := set.minus(f.server.known()); !extra.empty() {
		var text string
		own := extra.ofUUID(f.server.uuid) && f.sameServer()
		if own {
			text = fmt.Sprintf("the server does not know %s, which it gave out itself and which was read: it was restored or reset, and gives such numbers out again. Accepting it goes on with the oldest log that there is", extra)
		} else {
			text = fmt.Sprintf("the server does not know %s, which was read: another history, a rebuilt server, or a promoted replica that lacks it. What was read was also published. Accepting it goes on without it", extra)
		}
		if stops(codeHistory, text, "now", "earliest", "GTID") {
			return origin{}, false, *stop
		}
		if own {
			return f.oldest(), false, nil
		}
		keep, set = false, set.minus(extra)
	}
	if gone := f.server.purged.minus(set); !gone.empty() {
		if stops(codePurged, fmt.Sprintf("the server has purged %s, which was not read", gone), "now", "earliest", "GTID") {
			return origin{}, false, *stop
		}
		set.union(gone)
		return origin{set: set}, false, nil
	}
	from := origin{set: set}
	if keep && f.placed() {
		from.file, from.pos = f.stored.File, f.stored.Pos
	}
	return from, keep, nil
}

// byMariaGTID goes on after the last GTID of each domain.
func (f *facts) byMariaGTID(keep bool, stops func(code, text string, to ...string) bool, stop **finding) (origin, bool, *finding) {
	pos, err := parseMariaPos(f.stored.GTID)
	if err != nil {
		if stops(codeHistory, "the stored position cannot be read: "+err.Error()+". Accepting it goes on with the oldest log that there is", "now", "earliest", "GTID") {
			return origin{}, false, *stop
		}
		return f.oldest(), false, nil
	}
	if f.placed() && f.place == proved {
		// The log goes on from our own place, so that nothing is lost whatever its numbers say: with a domain that was deleted since
		// (DELETE_DOMAIN_ID), or one whose numbers went back.
		maps.DeleteFunc(pos, func(d uint32, _ mariaGTID) bool { return !f.server.binlogState.knows(d) })
		return origin{maria: pos, file: f.stored.File, pos: f.stored.Pos}, keep, nil
	}
	if lacks := pos.lacking(f.server.binlogState); len(lacks) > 0 {
		own := false
		for _, g := range lacks {
			own = own || f.sameServer() && g.server == f.server.id
		}
		text := fmt.Sprintf("the server's log does not know %s, which was read: another history, a promoted replica that lacks it, or a domain that was deleted from its log (the log is at %s). "+
			"What was read was also published. Accepting it goes on behind the last transaction that both have, in a domain without one with the oldest log that there is", lacks, f.server.binlogPos)
		if own {
			text = fmt.Sprintf("the server's log does not know %s, which it gave out itself and which was read: it was restored or reset, and gives such numbers out again (it is at %s). Accepting it goes on with the oldest log that there is",
				lacks, f.server.binlogPos)
		}
		if stops(codeHistory, text, "now", "earliest", "GTID") {
			return origin{}, false, *stop
		}
		if own {
			return f.oldest(), false, nil
		}
		keep = false
		for d, g := range lacks {
			delete(pos, d)
			if last, ok := f.server.binlogState.fork(g); ok {
				pos[d] = last
			}
		}
	}
	if gone := pos.missing(f.purged); len(gone) > 0 {
		if stops(codePurged, "the server has purged "+pos.between(gone)+", which was not read", "now", "earliest", "GTID") {
			return origin{}, false, *stop
		}
		keep = false
		for d, g := range gone {
			pos[d] = g
		}
	}
	if len(pos) == 0 {
		return f.oldest(), false, nil
	}
	from := origin{maria: pos}
	if keep && f.placed() {
		from.file, from.pos = f.stored.File, f.stored.Pos
	}
	return from, keep, nil
}

// sameBase: both names are of one log_bin, whose number alone differs.
func sameBase(a, b string) bool {
	cut := func(s string) string { return s[:max(strings.LastIndexByte(s, '.'), 0)] }
	return cut(a) == cut(b)
}

func (f *facts) identity() string {
	if f.kind == event.MariaDB {
		return fmt.Sprintf("server_id %d", f.server.id)
	}
	return "server_uuid " + f.server.uuid
}

func (f *facts) storedIdentity() string {
	if f.kind == event.MariaDB {
		return fmt.Sprintf("%d", f.stored.ServerID)
	}
	return f.stored.ServerUUID
}
