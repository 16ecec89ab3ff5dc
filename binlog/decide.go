package binlog

import (
	"fmt"
	"slices"

	"github.com/outtail/outtail/event"
)

// facts is all that deciding how to go on needs. Deciding is pure; asking and dumping are elsewhere.
type facts struct {
	kind     string
	stored   event.Position
	dep      depends
	server   *server
	accepted []string
	// stamp is the identity that the stored file has on the server now; 0 where the server has no such file.
	stamp uint32
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

// placed: the stored place is proved to be one in the server's own file of today. It is then the better half of the position:
// a dump by GTID set begins with the newest file whose PREVIOUS_GTIDS the set covers, and so passes over what was committed
// without a GTID while gtid_mode was not ON in between (I5).
func (f *facts) placed() bool {
	size, there := f.file()
	return there && f.dep.File == f.stored.File && f.dep.Stamp != 0 && f.dep.Stamp == f.stamp &&
		f.stored.Pos >= 4 && f.stored.Pos <= min(size, maxPos)
}

// resume decides where a dump begins after a stored position (I5: never a silent jump). keep says that a stored prefix still
// counts. Several findings may apply; the first that nobody accepted is returned.
func resume(f *facts) (from origin, keep bool, stop *finding) {
	found := func(code, text string, to ...string) bool {
		if slices.Contains(f.accepted, code) {
			keep = false
			return false
		}
		stop = &finding{code, text, to}
		return true
	}
	same := f.sameServer()
	keep = same
	// byGTID: the stored set says all, whichever server holds the log.
	byGTID := f.stored.GTID != "" && f.server.gtids

	fileGone := false
	if same && f.stored.File != "" {
		size, there := f.file()
		switch {
		case there && (size < f.stored.Pos || f.dep.File == f.stored.File && f.dep.Stamp != 0 && f.stamp != 0 && f.dep.Stamp != f.stamp):
			fileGone = true
			if found(codeFileIdentity, fmt.Sprintf("%s on the server is another file of the same name (RESET BINARY LOGS, or a rebuilt server): what lay between %s and its reset is not there",
				f.stored.File, f.stored), "now", "earliest", "GTID", "FILE:POS") {
				return
			}
		case !there && len(f.server.files) > 0 && compareFiles(f.stored.File, f.server.files[len(f.server.files)-1].name) > 0:
			fileGone = true
			if found(codeFileIdentity, fmt.Sprintf("%s is newer than all of the server's binlogs, which end with %s: its log was reset or the server rebuilt",
				f.stored.File, f.server.files[len(f.server.files)-1].name), "now", "earliest", "GTID", "FILE:POS") {
				return
			}
		case !there:
			fileGone = true
			if !byGTID && found(codeFile, "the server has purged "+f.stored.File+": what was committed after "+f.stored.String()+" and is in no binlog any more was not read",
				"now", "earliest", "FILE:POS") {
				return
			}
		}
	}

	if byGTID && f.kind == event.MariaDB {
		pos, err := parseMariaPos(f.stored.GTID)
		if err != nil {
			found(codeHistory, "the stored position cannot be read: "+err.Error(), "now", "earliest", "GTID")
			return
		}
		if ahead := pos.ahead(f.server.binlogPos); len(ahead) > 0 {
			if found(codeHistory, fmt.Sprintf("the server does not know %s, which was read: another history, a rebuilt server, or a promoted replica that lacks it (the server is at %s)",
				ahead, f.server.binlogPos), "now", "earliest", "GTID") {
				return
			}
			for d := range ahead {
				delete(pos, d)
				if have, ok := f.server.binlogPos[d]; ok {
					pos[d] = have
				}
			}
		}
		return origin{maria: pos}, keep, nil
	}
	if byGTID {
		set, err := parseGTIDSet(f.stored.GTID)
		if err != nil {
			found(codeHistory, "the stored GTID set cannot be read: "+err.Error(), "now", "earliest", "GTID")
			return
		}
		if extra := set.minus(f.server.executed); !extra.empty() {
			if found(codeHistory, fmt.Sprintf("the server does not know %s, which was read: another history, a rebuilt server, or a promoted replica that lacks it", extra),
				"now", "earliest", "GTID") {
				return
			}
			set = set.minus(extra)
		}
		if gone := f.server.purged.minus(set); !gone.empty() {
			if found(codePurged, fmt.Sprintf("the server has purged %s, which was not read", gone), "now", "earliest", "GTID") {
				return
			}
			set.union(gone)
			return origin{set: set}, keep, nil
		}
		from = origin{set: set}
		if keep && f.placed() {
			from.file, from.pos = f.stored.File, f.stored.Pos
		}
		return from, keep, nil
	}

	if !same {
		what := "its GTIDs are off"
		if f.stored.GTID == "" {
			what = "no GTID set is stored"
		}
		if found(codeServer, fmt.Sprintf("this is another server (%s, not %s) and %s: a file and position of the other one mean nothing here",
			f.identity(), f.storedIdentity(), what), "now", "earliest", "FILE:POS") {
			return
		}
		_, there := f.file()
		fileGone = !there
	}
	if fileGone || f.stored.File == "" {
		// Accepted: from the oldest log that there is.
		if len(f.server.files) > 0 {
			return origin{file: f.server.files[0].name, pos: 4}, false, nil
		}
	}
	return origin{file: f.stored.File, pos: max(f.stored.Pos, 4)}, keep, nil
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
