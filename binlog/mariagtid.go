package binlog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// mariaGTID is domain-server-sequence.
type mariaGTID struct {
	domain, server uint32
	seq            uint64
}

func (g mariaGTID) append(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(g.domain), 10)
	b = append(b, '-')
	b = strconv.AppendUint(b, uint64(g.server), 10)
	b = append(b, '-')
	return strconv.AppendUint(b, g.seq, 10)
}

func (g mariaGTID) String() string { return string(g.append(nil)) }

// mariaPos is MariaDB's idea of a position: the last GTID of each domain, in the order of the log.
type mariaPos map[uint32]mariaGTID

// String lists the domains in ascending order, as @@gtid_binlog_pos does.
func (m mariaPos) String() string {
	var b []byte
	for i, d := range m.domains() {
		if i > 0 {
			b = append(b, ',')
		}
		b = m[d].append(b)
	}
	return string(b)
}

func (m mariaPos) domains() []uint32 { return slices.Sorted(maps.Keys(m)) }

func (m mariaPos) clone() mariaPos {
	out := make(mariaPos, len(m))
	for d, g := range m {
		out[d] = g
	}
	return out
}

// lacking lists the GTIDs of m that a log does not have.
func (m mariaPos) lacking(log mariaState) mariaPos {
	out := mariaPos{}
	for d, g := range m {
		if !log.has(g) {
			out[d] = g
		}
	}
	return out
}

// missing lists, for what a log begins behind, the domains of which m does not reach so far: what lies between is in no log.
func (m mariaPos) missing(begin mariaPos) mariaPos {
	out := mariaPos{}
	for d, g := range begin {
		if m[d].seq < g.seq {
			out[d] = g
		}
	}
	return out
}

// between names the GTIDs from m, exclusive, to o, inclusive, for people.
func (m mariaPos) between(o mariaPos) string {
	var parts []string
	for _, d := range o.domains() {
		if have, ok := m[d]; ok {
			parts = append(parts, fmt.Sprintf("what follows %s up to %s", have, o[d]))
		} else {
			parts = append(parts, fmt.Sprintf("all of domain %d up to %s", d, o[d]))
		}
	}
	return strings.Join(parts, ", ")
}

// mariaState is @@gtid_binlog_state: the last number that the log has of each server in each domain.
type mariaState map[[2]uint32]uint64

func (s mariaState) has(g mariaGTID) bool {
	n, ok := s[[2]uint32{g.domain, g.server}]
	return ok && n >= g.seq
}

// knows reports whether anything of a domain is in the log.
func (s mariaState) knows(domain uint32) bool {
	for k := range s {
		if k[0] == domain {
			return true
		}
	}
	return false
}

// fork is the last GTID of the same server in the same domain that the log has.
func (s mariaState) fork(g mariaGTID) (mariaGTID, bool) {
	n, ok := s[[2]uint32{g.domain, g.server}]
	return mariaGTID{g.domain, g.server, n}, ok && n > 0
}

func parseMariaState(text string) (mariaState, error) {
	out := mariaState{}
	for part := range strings.SplitSeq(text, ",") {
		one, err := parseMariaPos(part)
		if err != nil {
			return nil, err
		}
		for _, g := range one {
			out[[2]uint32{g.domain, g.server}] = g.seq
		}
	}
	return out, nil
}

func parseMariaPos(text string) (mariaPos, error) {
	m := mariaPos{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		f := strings.Split(part, "-")
		if len(f) != 3 {
			return nil, fmt.Errorf("%q is not a GTID such as 0-1-42", part)
		}
		d, err1 := strconv.ParseUint(f[0], 10, 32)
		s, err2 := strconv.ParseUint(f[1], 10, 32)
		n, err3 := strconv.ParseUint(f[2], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, fmt.Errorf("%q is not a GTID such as 0-1-42", part)
		}
		if _, twice := m[uint32(d)]; twice {
			return nil, fmt.Errorf("domain %d occurs twice in %q", d, text)
		}
		m[uint32(d)] = mariaGTID{uint32(d), uint32(s), n}
	}
	return m, nil
}
