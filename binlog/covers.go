package binlog

import (
	"strconv"
	"strings"

	"github.com/outtail/outtail/event"
)

// Covers implements pipeline.Coverer.
func (s *Source) Covers(p event.Position, tx string) bool { return Covers(p, tx) }

// LogEnd implements pipeline.Coverer.
func (s *Source) LogEnd() event.Position {
	end := event.Position{Kind: s.o.Kind, ServerUUID: s.server.uuid, ServerID: s.server.id}
	if n := len(s.server.files); n > 0 {
		end.File, end.Pos = s.server.files[n-1].name, s.server.files[n-1].size
	}
	switch {
	case s.server.maria:
		end.GTID = s.server.binlogPos.String()
	case s.server.gtids:
		end.GTID = s.server.known().String()
	}
	return end
}

// Covers reports whether the transaction of an id lies before a position: by GTID where both have one, else by file and offset
// of its start. What cannot be told, because GTIDs were switched in between, counts as before it.
func Covers(p event.Position, tx string) bool {
	if p.Kind == event.MariaDB {
		if one, err := parseMariaPos(tx); err == nil && len(one) == 1 {
			at, err := parseMariaPos(p.GTID)
			return err != nil || p.GTID == "" || len(at.missing(one)) == 0
		}
	} else if one, err := parseGTIDSet(tx); err == nil && !one.empty() {
		set, err := parseGTIDSet(p.GTID)
		return err != nil || p.GTID == "" || set.contains(one)
	}
	colon := strings.LastIndexByte(tx, ':')
	if colon <= 0 || p.File == "" {
		return true
	}
	start, err := strconv.ParseUint(tx[colon+1:], 10, 64)
	if err != nil {
		return true
	}
	if c := compareFiles(tx[:colon], p.File); c != 0 {
		return c < 0
	}
	return start < p.Pos
}
