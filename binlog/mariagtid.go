package binlog

import (
	"fmt"
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
	domains := make([]uint32, 0, len(m))
	for d := range m {
		domains = append(domains, d)
	}
	slices.Sort(domains)
	var b []byte
	for i, d := range domains {
		if i > 0 {
			b = append(b, ',')
		}
		b = m[d].append(b)
	}
	return string(b)
}

func (m mariaPos) clone() mariaPos {
	out := make(mariaPos, len(m))
	for d, g := range m {
		out[d] = g
	}
	return out
}

// ahead lists the GTIDs of m whose domain o does not know or knows only up to a lower sequence number.
func (m mariaPos) ahead(o mariaPos) mariaPos {
	out := mariaPos{}
	for d, g := range m {
		if have, ok := o[d]; !ok || have.seq < g.seq {
			out[d] = g
		}
	}
	return out
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
