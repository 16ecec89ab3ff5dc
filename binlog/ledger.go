package binlog

import "sync"

// fileRef is a binlog file as the stream saw it. Stamp is the header timestamp of its format description event: a RESET and a
// new file of the same name have another one.
type fileRef struct {
	name  string
	stamp uint32
}

// group is what a bound adds to the position: all transactions since the bound before it. Those that no wanted event
// separates are one group, so that an idle outbox beside a busy server costs nothing however long nobody asks (I11).
type group struct {
	first, last uint64 // ordinals
	file        *fileRef
	pos         uint64
	ran         gtidRun  // GTIDs that were executed: the usual run,
	other       *gtidSet // and what does not continue it
	maria       []mariaGTID
	anonymous   bool     // a transaction is among them that no GTID position tells
	adopt       *gtidSet // the set before the group is this one (PREVIOUS_GTIDS), where it was not known
	adoptMaria  mariaPos
	depends     []byte // to be stored from here on; nil unchanged
	seen        witness
}

type gtidRun struct {
	sid         *sid // interned by the stream
	first, last int64
}

func (g *group) ranGTID(s *sid, n int64) {
	if g.ran.sid == nil {
		g.ran = gtidRun{s, n, n}
		return
	}
	if g.ran.sid == s && g.ran.last+1 == n {
		g.ran.last = n
		return
	}
	if g.other == nil {
		g.other = newGTIDSet()
	}
	g.other.add(*s, n, n)
}

func (g *group) ranMaria(x mariaGTID) {
	for i := range g.maria {
		if g.maria[i].domain == x.domain {
			g.maria[i] = x
			return
		}
	}
	g.maria = append(g.maria, x)
}

// ledger turns ordinals into positions. The stream adds, the pipeline's committer asks: one lock between them, held for a
// few instructions per transaction and while a position is rendered.
type ledger struct {
	mu     sync.Mutex
	groups []group // ascending; [0] is the oldest that nobody asked for
	// joinable: no wanted event was read since the last group, so that what follows may join it.
	joinable bool
	at       folded
}

// folded is the position up to the last ordinal that was asked for.
type folded struct {
	set     *gtidSet // MySQL; nil while positions are by file
	maria   mariaPos
	file    *fileRef
	pos     uint64
	seen    witness
	depends []byte
}

// maxPos is the highest position that COM_BINLOG_DUMP can name.
const maxPos = 1<<32 - 1

// add appends the group of one transaction or heartbeat; wanted says that events of ours precede its end.
func (l *ledger) add(g group, wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.groups); n > 0 && l.joinable && !wanted && g.adopt == nil && g.adoptMaria == nil && g.depends == nil && len(g.maria) <= 1 {
		t := &l.groups[n-1]
		t.last, t.file, t.pos = g.last, g.file, g.pos
		t.anonymous = t.anonymous || g.anonymous
		t.seen.follow(g.seen)
		if g.ran.sid != nil {
			for i := g.ran.first; i <= g.ran.last; i++ {
				t.ranGTID(g.ran.sid, i)
			}
		}
		for _, m := range g.maria {
			t.ranMaria(m)
		}
		return
	}
	l.joinable = true
	l.groups = append(l.groups, g)
}

// fold moves the position up to the ordinal.
func (l *ledger) fold(at uint64) folded {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	var depends []byte
	for ; n < len(l.groups) && l.groups[n].first <= at; n++ {
		g := &l.groups[n]
		if g.adopt != nil && l.at.set == nil && l.at.maria == nil {
			l.at.set = g.adopt.clone()
		}
		if g.adoptMaria != nil && l.at.maria == nil {
			l.at.maria = g.adoptMaria.clone()
		}
		if g.anonymous {
			l.at.set, l.at.maria = nil, nil
		}
		if l.at.set != nil {
			if g.ran.sid != nil {
				l.at.set.add(*g.ran.sid, g.ran.first, g.ran.last)
			}
			if g.other != nil {
				l.at.set.union(g.other)
			}
		}
		if l.at.maria != nil {
			for _, m := range g.maria {
				l.at.maria[m.domain] = m
			}
		}
		if g.file != nil {
			if l.at.set != nil || l.at.maria != nil || g.pos <= maxPos {
				l.at.file, l.at.pos = g.file, g.pos
				l.at.seen.follow(g.seen)
			}
		}
		if g.depends != nil {
			depends = g.depends
		}
	}
	if n > 0 {
		k := copy(l.groups, l.groups[n:])
		clear(l.groups[k:])
		l.groups = l.groups[:k]
	}
	out := l.at
	out.depends = depends
	if l.at.set != nil {
		out.set = l.at.set.clone()
	}
	if l.at.maria != nil {
		out.maria = l.at.maria.clone()
	}
	return out
}
