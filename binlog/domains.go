package binlog

// domains follows the numbers of MariaDB's replication domains. Within one they ascend, unless a session sets them otherwise
// (gtid_seq_no, server_id) or several primaries write to one domain. The server finds a position by number, and may pass over what
// lies between where they go back: then only file and offset tell the place (I5), until the numbers are higher than all before.
type domains struct {
	last       map[uint32]mariaGTID
	top        map[uint32]uint64
	disordered map[uint32]bool
	complete   bool // all domains are known, not only those that were read
}

func newDomains(pos mariaPos) *domains {
	d := &domains{last: map[uint32]mariaGTID{}, top: map[uint32]uint64{}, disordered: map[uint32]bool{}}
	d.begin(pos)
	return d
}

// begin takes over a position that was learnt from the log.
func (d *domains) begin(pos mariaPos) {
	d.complete = d.complete || pos != nil
	for n, g := range pos {
		d.last[n] = g
		d.top[n] = max(d.top[n], g.seq)
	}
}

// saw takes in the next GTID.
func (d *domains) saw(g mariaGTID) {
	if g.seq <= d.top[g.domain] {
		d.disordered[g.domain] = true
	} else {
		delete(d.disordered, g.domain)
		d.top[g.domain] = g.seq
	}
	d.last[g.domain] = g
}

// ordered: a position by GTID tells the place.
func (d *domains) ordered() bool { return len(d.disordered) == 0 }

// ordered takes a MariaDB GTID into the domains, and makes the position one by file where GTIDs do not tell it, or one by GTID
// again.
func (st *stream) ordered(g *group, x mariaGTID) {
	was := st.domains.ordered()
	st.domains.saw(x)
	switch is := st.domains.ordered(); {
	case !is:
		g.anonymous = true
		if was {
			st.log.Warn("the GTIDs of a domain go back, so that no GTID says where we are: until they are higher than all before, only this server can be resumed from, by file and position (gtid_strict_mode = ON keeps them in order)",
				"at", st.here(), "gtid", x.String())
		}
	case !was && st.byFile && st.domains.complete:
		st.adoptMaria = mariaPos(st.domains.last).clone()
	}
}
