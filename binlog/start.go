package binlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outtail/outtail/event"
)

func checkStart(kind string, st Start) error {
	switch st.Mode {
	case "", "now", "earliest":
		return nil
	case "gtid":
		if strings.TrimSpace(st.GTID) == "" {
			return errors.New("gtid is empty")
		}
		if kind == event.MariaDB {
			_, err := parseMariaPos(st.GTID)
			return err
		}
		_, err := parseGTIDSet(st.GTID)
		return err
	case "position":
		if st.File == "" || strings.ContainsAny(st.File, "/\x00") {
			return fmt.Errorf("file %q is not a binlog's name", st.File)
		}
		if st.Pos > maxPos {
			return fmt.Errorf("pos %d is beyond what a dump can name (4 GiB)", st.Pos)
		}
		return nil
	}
	return fmt.Errorf("mode %q is not now, earliest, gtid or position", st.Mode)
}

// checkFirst refuses a first start without a rule: before waiting for anything.
func (s *Source) checkFirst(from event.Checkpoint) error {
	if !from.IsZero() {
		return nil
	}
	if s.o.Start.Mode == "" {
		f := s.fault(codeStart, event.Usage, "start", "no position is stored and no start is configured",
			"set start in the pipeline's source: now (only what is committed from now on), earliest (all that the server still has), { gtid: \"…\" } or { file: binlog.000012, pos: 4 }. "+
				"If this pipeline ran before, its data_dir is missing: what was committed since then is only in the server's binlogs")
		f.Immediate = true
		return f
	}
	return nil
}

// begin applies the start rule: once, loudly, because nothing on the server remembers us.
func (s *Source) begin(ctx context.Context, c *conn) (event.Checkpoint, origin, error) {
	var none event.Checkpoint
	from, cp, err := s.resolve(ctx, c, s.o.Start)
	if err != nil {
		return none, origin{}, err
	}
	s.log.Warn("first start: nothing before this position is sent", "start", s.o.Start.Mode, "position", cp.Position.String(), "server", s.place())
	return cp, from, nil
}

// resolve turns a start rule into a position of this server.
func (s *Source) resolve(ctx context.Context, c *conn, st Start) (origin, event.Checkpoint, error) {
	cp := event.Checkpoint{SavedAt: time.Now().UTC(), Selection: s.selection}
	f := folded{}
	var from origin
	refuse := func(text, hint string) (origin, event.Checkpoint, error) {
		fa := s.fault(codeStart, event.Environment, "start at "+st.Mode, text, hint)
		fa.Immediate = true
		return origin{}, event.Checkpoint{}, fa
	}
	switch st.Mode {
	case "now":
		e, err := s.logEnd(ctx, c, s.server.maria)
		if err != nil {
			return from, cp, err
		}
		from.file, from.pos = e.file, e.pos
		if s.server.maria {
			// The GTID at exactly this place; without one (an empty log of a new server) by file.
			if from.maria, err = parseMariaPos(e.gtid); err != nil {
				return refuse("the server's position cannot be read: "+err.Error(), "start at a file and position instead")
			}
			if len(from.maria) == 0 {
				from.maria = nil
			}
		} else if s.server.gtids {
			if from.set, err = parseGTIDSet(e.gtid); err != nil {
				return refuse("the server's GTID set cannot be read: "+err.Error(), "start at a file and position instead")
			}
		}
	case "earliest":
		if len(s.server.files) == 0 {
			return refuse("the server has no binary log", "SHOW BINARY LOGS lists what it has")
		}
		from.file, from.pos = s.server.files[0].name, 4
		if !s.server.maria && s.server.gtids {
			from.set = s.server.purged.clone()
		}
	case "gtid":
		if s.server.maria {
			m, err := parseMariaPos(st.GTID)
			if err != nil {
				return refuse(err.Error(), "write the GTIDs as the server does: SELECT @@global.gtid_executed, on MariaDB @@global.gtid_binlog_pos")
			}
			if lacks := m.lacking(s.server.binlogState); len(lacks) > 0 {
				return refuse(fmt.Sprintf("the server does not know %s; it is at %s", lacks, s.server.binlogPos), "give a position of this server")
			}
			if len(s.server.files) > 0 {
				purged, err := s.purgedMaria(ctx)
				if err != nil {
					return from, cp, err
				}
				if gone := m.missing(purged); len(gone) > 0 {
					return refuse("the server has purged "+m.between(gone)+", which would have to be read", "name a later GTID, or choose another start")
				}
			}
			from.maria = m
			break
		}
		if !s.server.gtids {
			return refuse("gtid_mode is not ON", "start with { file: …, pos: … }, or turn gtid_mode on")
		}
		set, err := parseGTIDSet(st.GTID)
		if err != nil {
			return refuse(err.Error(), "write the GTIDs as the server does: SELECT @@global.gtid_executed, on MariaDB @@global.gtid_binlog_pos")
		}
		if extra := set.minus(s.server.executed); !extra.empty() {
			return refuse(fmt.Sprintf("the server does not know %s", extra), "give a set that the server has executed: SELECT @@global.gtid_executed")
		}
		if gone := s.server.purged.minus(set); !gone.empty() {
			return refuse(fmt.Sprintf("the server has purged %s, which would have to be read", gone), "add it to the set, or choose another start")
		}
		from.set = set
	case "position":
		from.file, from.pos = st.File, max(st.Pos, 4)
		var size uint64
		there := false
		for _, b := range s.server.files {
			if b.name == st.File {
				size, there = b.size, true
			}
		}
		if !there {
			return refuse("the server has no binlog "+st.File, "SHOW BINARY LOGS lists what it has")
		}
		if from.pos > size {
			return refuse(fmt.Sprintf("%s has %d bytes, %d is beyond its end", st.File, size, from.pos), "SHOW BINARY LOGS lists files and sizes")
		}
	}
	f.set, f.maria = from.set, from.maria
	if from.file != "" {
		f.file, f.pos = &fileRef{name: from.file}, from.pos
	}
	cp.Position = s.position(f)
	cp.Depends = encodeDepends(depends{ServerUUID: s.server.uuid, ServerID: s.server.id})
	return from, cp, nil
}

// ParseTo reads the TO of `checkpoint set --to`: now, earliest, FILE:POS, or a GTID set.
func ParseTo(kind, to string) (Start, error) {
	to = strings.TrimSpace(to)
	switch to {
	case "now", "earliest":
		return Start{Mode: to}, nil
	case "":
		return Start{}, errors.New("now, earliest, a GTID set or FILE:POS is missing")
	}
	st := Start{Mode: "gtid", GTID: to}
	err := checkStart(kind, st)
	if err == nil {
		return st, nil
	}
	if i := strings.LastIndexByte(to, ':'); i > 0 {
		if pos, perr := strconv.ParseUint(to[i+1:], 10, 64); perr == nil {
			st = Start{Mode: "position", File: to[:i], Pos: pos}
			return st, checkStart(kind, st)
		}
	}
	return Start{}, fmt.Errorf("%q is not now, earliest, a GTID set or FILE:POS: %w", to, err)
}

// CheckSet resolves `checkpoint set --to` with the server and returns the checkpoint to store. Everything that a first start
// checks is checked.
func CheckSet(ctx context.Context, o Options, to string) (event.Checkpoint, error) {
	var none event.Checkpoint
	st, err := ParseTo(o.Kind, to)
	if err != nil {
		return none, &event.Fault{Code: codeOptions, Class: event.Usage, Op: "set the checkpoint", Place: o.Pipeline, Text: "--to: " + err.Error(),
			Hint: "--to now | earliest | GTID set | FILE:POS"}
	}
	o.Start = st
	s, err := New(o)
	if err != nil {
		return none, err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return none, err
	}
	defer c.close()
	if s.server, err = s.ask(ctx, c); err != nil {
		return none, err
	}
	if err := s.check(ctx, c); err != nil {
		return none, err
	}
	if s.server.files, err = s.binlogs(ctx, c); err != nil {
		return none, err
	}
	_, cp, err := s.resolve(ctx, c, st)
	if err != nil {
		return none, err
	}
	if cp.Position.File != "" {
		// The file's identity belongs to the position; where it cannot be read now, the next connect learns it.
		if stamp, err := s.stampOf(ctx, cp.Position.File); err == nil {
			cp.Depends = encodeDepends(depends{ServerUUID: s.server.uuid, ServerID: s.server.id, File: cp.Position.File, Stamp: stamp})
		}
	}
	return cp, nil
}
