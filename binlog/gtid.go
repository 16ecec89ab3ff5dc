package binlog

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sid is a source identifier: a server's UUID with the tag that MySQL 8.3 and later may add. It is comparable, so that
// adding a GTID is one map look-up.
type sid struct {
	uuid [16]byte
	tag  string
}

// String prints "uuid" or "uuid:tag".
func (s sid) String() string { return string(s.append(nil)) }

func (s sid) append(b []byte) []byte {
	b = appendUUID(b, s.uuid[:])
	if s.tag != "" {
		b = append(b, ':')
		b = append(b, s.tag...)
	}
	return b
}

func (s sid) compare(o sid) int {
	if c := slices.Compare(s.uuid[:], o.uuid[:]); c != 0 {
		return c
	}
	return strings.Compare(s.tag, o.tag)
}

// span is a run of transaction numbers, both ends included.
type span struct{ first, last int64 }

// gtidSet is a set of MySQL GTIDs: per source identifier ascending, disjoint, not adjacent spans. Adding the successor
// of the highest number, which is what a stream does, moves one integer.
type gtidSet struct {
	spans map[sid][]span
}

func newGTIDSet() *gtidSet { return &gtidSet{spans: map[sid][]span{}} }

// add puts first..last of s into the set.
func (g *gtidSet) add(s sid, first, last int64) {
	if first > last {
		return
	}
	have := g.spans[s]
	if n := len(have); n > 0 && first >= have[n-1].first && first <= have[n-1].last+1 {
		if last > have[n-1].last {
			have[n-1].last = last
		}
		return
	}
	// lo: the first span that reaches first-1 or beyond; hi: behind the last one that begins at last+1 or before.
	lo, _ := slices.BinarySearchFunc(have, first, func(h span, f int64) int {
		if h.last+1 < f {
			return -1
		}
		return 1
	})
	hi := lo
	for hi < len(have) && have[hi].first <= last+1 {
		first, last = min(first, have[hi].first), max(last, have[hi].last)
		hi++
	}
	g.spans[s] = slices.Replace(have, lo, hi, span{first, last})
}

// has reports whether number n of s is in the set.
func (g *gtidSet) has(s sid, n int64) bool {
	have := g.spans[s]
	i, _ := slices.BinarySearchFunc(have, n, func(h span, n int64) int {
		if h.last < n {
			return -1
		}
		return 1
	})
	return i < len(have) && have[i].first <= n
}

// union adds all of o.
func (g *gtidSet) union(o *gtidSet) {
	for s, list := range o.spans {
		for _, x := range list {
			g.add(s, x.first, x.last)
		}
	}
}

// minus is what g has and o has not.
func (g *gtidSet) minus(o *gtidSet) *gtidSet {
	out := newGTIDSet()
	for s, list := range g.spans {
		gone := o.spans[s]
		for _, x := range list {
			at := x.first
			for _, y := range gone {
				if y.last < at {
					continue
				}
				if y.first > x.last {
					break
				}
				out.add(s, at, y.first-1)
				at = y.last + 1
			}
			out.add(s, at, x.last)
		}
	}
	return out
}

// ofUUID reports whether a number of the server of this UUID is in the set, with whatever tag.
func (g *gtidSet) ofUUID(uuid string) bool {
	var u [16]byte
	if parseUUID(&u, uuid) != nil {
		return false
	}
	for s, list := range g.spans {
		if s.uuid == u && len(list) > 0 {
			return true
		}
	}
	return false
}

// contains reports whether all of o is in g.
func (g *gtidSet) contains(o *gtidSet) bool { return o.minus(g).empty() }

func (g *gtidSet) empty() bool {
	for _, list := range g.spans {
		if len(list) > 0 {
			return false
		}
	}
	return true
}

func (g *gtidSet) clone() *gtidSet {
	out := newGTIDSet()
	for s, list := range g.spans {
		out.spans[s] = slices.Clone(list)
	}
	return out
}

func (g *gtidSet) sids() []sid {
	out := make([]sid, 0, len(g.spans))
	for s, list := range g.spans {
		if len(list) > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, sid.compare)
	return out
}

// String is the form that the server prints, without line breaks: "uuid:1-3:5,uuid:1:tag:1-2".
func (g *gtidSet) String() string {
	var b []byte
	var last [16]byte
	for i, s := range g.sids() {
		if i == 0 || s.uuid != last {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendUUID(b, s.uuid[:])
			last = s.uuid
		}
		if s.tag != "" {
			b = append(b, ':')
			b = append(b, s.tag...)
		}
		for _, x := range g.spans[s] {
			b = append(b, ':')
			b = strconv.AppendInt(b, x.first, 10)
			if x.last > x.first {
				b = append(b, '-')
				b = strconv.AppendInt(b, x.last, 10)
			}
		}
	}
	return string(b)
}

// parseGTIDSet reads the server's or a person's text; line breaks, blanks and upper case are allowed.
func parseGTIDSet(text string) (*gtidSet, error) {
	g := newGTIDSet()
	for part := range strings.SplitSeq(text, ",") {
		part = strings.ToLower(strings.TrimSpace(part))
		if part == "" {
			continue
		}
		fields := strings.Split(part, ":")
		var s sid
		if err := parseUUID(&s.uuid, strings.TrimSpace(fields[0])); err != nil {
			return nil, fmt.Errorf("%q is not a GTID set: %w", part, err)
		}
		if len(fields) == 1 {
			return nil, fmt.Errorf("%q is not a GTID set: no interval", part)
		}
		open := false
		for _, f := range fields[1:] {
			f = strings.TrimSpace(f)
			if isTag(f) {
				if open {
					return nil, fmt.Errorf("%q is not a GTID set: tag %q has no interval", part, s.tag)
				}
				s.tag, open = f, true
				continue
			}
			a, b, ranged := strings.Cut(f, "-")
			first, err := strconv.ParseInt(strings.TrimSpace(a), 10, 64)
			last := first
			if err == nil && ranged {
				last, err = strconv.ParseInt(strings.TrimSpace(b), 10, 64)
			}
			if err != nil || first < 1 {
				return nil, fmt.Errorf("%q is not a GTID set: bad interval %q", part, f)
			}
			g.add(s, first, last)
			open = false
		}
		if open {
			return nil, fmt.Errorf("%q is not a GTID set: tag %q has no interval", part, s.tag)
		}
	}
	return g, nil
}

var ownedUUID = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// parseOwned reads gtid_owned: "uuid:12#7:14#9", a number and the thread that owns it, the next UUID behind it or behind a comma. What is
// not understood is left out.
func parseOwned(text string) *gtidSet {
	g := newGTIDSet()
	text = strings.ToLower(text)
	at := ownedUUID.FindAllStringIndex(text, -1)
	for i, where := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		var s sid
		if parseUUID(&s.uuid, text[where[0]:where[1]]) != nil {
			continue
		}
		for f := range strings.SplitSeq(text[where[1]:end], ":") {
			if isTag(f) {
				s.tag = f
				continue
			}
			number, _, owned := strings.Cut(f, "#")
			if n, err := strconv.ParseInt(number, 10, 64); owned && err == nil && n > 0 {
				g.add(s, n, n)
			}
		}
	}
	return g
}

func isTag(f string) bool {
	if f == "" || len(f) > 32 || f[0] >= '0' && f[0] <= '9' {
		return false
	}
	for _, c := range []byte(f) {
		if c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// encode is the form of COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS_EVENT: classic without tags, else the tagged format of
// MySQL 8.3, whose first eight bytes carry format 1 at both ends and the count in between.
func (g *gtidSet) encode() []byte {
	sids := g.sids()
	tagged := slices.ContainsFunc(sids, func(s sid) bool { return s.tag != "" })
	b := make([]byte, 8)
	binary.LittleEndian.PutUint64(b, uint64(len(sids)))
	if tagged {
		binary.LittleEndian.PutUint64(b, uint64(len(sids))<<8|1|1<<56)
	}
	for _, s := range sids {
		b = append(b, s.uuid[:]...)
		if tagged {
			b = append(b, byte(len(s.tag)<<1))
			b = append(b, s.tag...)
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(len(g.spans[s])))
		for _, x := range g.spans[s] {
			b = binary.LittleEndian.AppendUint64(b, uint64(x.first))
			b = binary.LittleEndian.AppendUint64(b, uint64(x.last+1))
		}
	}
	return b
}

var errShort = errors.New("the bytes end early")

// decodeGTIDSet reads what encode writes, as PREVIOUS_GTIDS_EVENT carries it.
func decodeGTIDSet(b []byte) (*gtidSet, error) {
	if len(b) < 8 {
		return nil, errShort
	}
	n := binary.LittleEndian.Uint64(b)
	tagged := b[7] == 1
	if tagged {
		n = n << 8 >> 16
	}
	b = b[8:]
	g := newGTIDSet()
	for range n {
		var s sid
		if len(b) < 16 {
			return nil, errShort
		}
		copy(s.uuid[:], b)
		b = b[16:]
		if tagged {
			if len(b) < 1 || len(b) < 1+int(b[0]>>1) {
				return nil, errShort
			}
			n := 1 + int(b[0]>>1)
			s.tag = strings.ToLower(string(b[1:n])) // as the text has it
			if n > 1 && !isTag(s.tag) {
				return nil, fmt.Errorf("%q is no tag", s.tag)
			}
			b = b[n:]
		}
		if len(b) < 8 {
			return nil, errShort
		}
		m := binary.LittleEndian.Uint64(b)
		b = b[8:]
		if m > uint64(len(b)/16) {
			return nil, errShort
		}
		for range m {
			first, end := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
			if first < 1 || end <= first {
				return nil, errors.New("a GTID interval is empty")
			}
			g.add(s, first, end-1)
			b = b[16:]
		}
	}
	return g, nil
}

func appendUUID(b, u []byte) []byte {
	for i, part := range [...]int{4, 2, 2, 2, 6} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, u[:part])
		u = u[part:]
	}
	return b
}

func parseUUID(out *[16]byte, s string) error {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return fmt.Errorf("%q is not a UUID", s)
	}
	if _, err := hex.Decode(out[:], []byte(strings.ReplaceAll(s, "-", ""))); err != nil {
		return fmt.Errorf("%q is not a UUID", s)
	}
	return nil
}
