package wal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// partitions says to which configured table a relation belongs that arrives under the name of a partition: a publication
// without publish_via_partition_root sends rows so. Partitions come and go, and the log that we read may be older than the
// catalogs or newer than our last look: so what was ever known as a partition is remembered with the position, what is not
// known is looked up when it comes, and what cannot be told any more (it was dropped in between) is a safety stop, since to
// skip it might be a loss (I1, I5).
type partitions struct {
	o    *Options
	look func(ctx context.Context, relid uint32) (relationFacts, error)

	mu sync.Mutex
	// known are the partitions of the configured tables, by OID; the value is the table's.
	known map[uint32]uint32
	// passed are relations that a person said not to be ours; accept lets one more in.
	passed map[uint32]bool
	accept bool
	learnt func() // something is to be stored
}

// relationFacts is a relation as the catalogs have it now.
type relationFacts struct {
	Exists    bool
	Ancestors []uint32
	Published bool // by itself, or through an ancestor
}

// restore takes what is stored with the position and what the catalogs say now.
func (p *partitions) restore(stored depends, now *facts) {
	p.known, p.passed = map[uint32]uint32{}, map[uint32]bool{}
	for _, t := range now.Tables {
		for _, old := range stored.Tables {
			if old.RelID != t.RelID {
				continue
			}
			for _, part := range old.Parts {
				p.known[part] = t.RelID
			}
		}
		for _, part := range t.Parts {
			p.known[part] = t.RelID
		}
	}
	for _, id := range stored.Passed {
		p.passed[id] = true
	}
}

// store puts what is known into what goes with the position.
func (p *partitions) store(d *depends) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range d.Tables {
		t := &d.Tables[i]
		for part, root := range p.known {
			if root == t.RelID && !slices.Contains(t.Parts, part) {
				t.Parts = append(t.Parts, part)
			}
		}
		slices.Sort(t.Parts)
	}
	d.Passed = slices.Sorted(maps.Keys(p.passed))
}

// learn notes the partitions of a look at the catalogs.
func (p *partitions) learn(f *facts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range f.Tables {
		for _, part := range t.Parts {
			p.known[part] = t.RelID
		}
	}
}

// of finds the configured table of a relation; nil is a table of somebody else.
func (p *partitions) of(id uint32, n name, targets []target, at event.LSN) (*target, *event.Fault) {
	p.mu.Lock()
	root, known := p.known[id]
	passed := p.passed[id]
	p.mu.Unlock()
	if known {
		return targetOf(targets, root), nil
	}
	if passed {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	f, err := p.look(ctx, id)
	if err != nil {
		return nil, p.o.queryFault("look a partition up", err)
	}
	for _, a := range f.Ancestors {
		if t := targetOf(targets, a); t != nil {
			p.note(func() { p.known[id] = a })
			return t, nil
		}
	}
	if f.Exists && f.Published {
		return nil, nil
	}
	if p.accept {
		p.accept = false
		p.note(func() { p.passed[id] = true })
		return nil, nil
	}
	return nil, faultPartitionGone(p.o.place(), n, f.Exists, at)
}

func (p *partitions) note(change func()) {
	p.mu.Lock()
	change()
	p.mu.Unlock()
	p.learnt()
}

func targetOf(targets []target, relid uint32) *target {
	for i := range targets {
		if targets[i].relid == relid && relid != 0 {
			return &targets[i]
		}
	}
	return nil
}

// byLeaf reports whether rows of a configured table come under the names of its partitions.
func byLeaf(f *facts) bool {
	if f.Pub == nil || f.Pub.ViaRoot {
		return false
	}
	return slices.ContainsFunc(f.Tables, func(t tableFacts) bool { return t.Kind == "p" })
}

// lookUp asks the catalogs about one relation, over a connection of its own: it happens seldom.
func (s *Source) lookUp(ctx context.Context, relid uint32) (relationFacts, error) {
	var out relationFacts
	conn, err := s.o.connect(ctx, purpose{})
	if err != nil {
		return out, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	r, err := (&catalog{conn}).one(ctx, `SELECT EXISTS (SELECT FROM pg_class WHERE oid = $1::oid),
		coalesce((SELECT string_agg(relid::oid::text, ' ') FROM pg_partition_ancestors($1::oid::regclass) WHERE relid <> $1::oid), ''),
		EXISTS (SELECT FROM pg_publication_tables p JOIN pg_namespace n ON n.nspname = p.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
			WHERE p.pubname = $2 AND c.oid = $1::oid)`, strconv.FormatUint(uint64(relid), 10), s.o.Publication)
	if err != nil {
		return out, err
	}
	out.Exists, out.Published = r[0] == "t", r[2] == "t"
	for _, a := range strings.Fields(r[1]) {
		out.Ancestors = append(out.Ancestors, oid(a))
	}
	return out, nil
}

func faultPartitionGone(place string, n name, exists bool, at event.LSN) *event.Fault {
	what := "does not exist any more"
	if exists {
		what = "is no partition of a configured table, nor published for itself, any more"
	}
	return safety(CodePartitionGone, place,
		fmt.Sprintf("after %s come rows of %s, which %s: if it was a partition of the outbox, dropped or detached since, they are events", at, n, what),
		"attach it again if it was detached and is one; if it was no partition of the outbox, or its rows are not needed:"+accept(CodePartitionGone)+wayReplay)
}
