package binlog

import (
	"context"
	"fmt"
	"time"

	"github.com/outtail/outtail/event"
)

// ColumnsChange is what became of a table's columns since the stored position, as far as the log names no columns itself.
type ColumnsChange struct {
	Table       string // as configured
	Changes     int    // statements in the log that changed them; -1 the log behind the position could not be read to its end
	First       string // where the first one is, FILE:POS
	Stored, Now string // definitions; Now is "" where the table is gone
	Unproved    string // why rows between the first and the last of them cannot be read; "" they can
}

// CheckColumns compares the definitions that are stored with a position with what the server has now, and follows the log between as a
// session would. Tables whose columns are the same, and were not changed between, are left out.
func CheckColumns(ctx context.Context, o Options, from event.Checkpoint) ([]ColumnsChange, error) {
	s, c, err := lookAt(ctx, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	dep := parseDepends(from.Depends)
	begin := place{from.Position.File, from.Position.Pos}
	if f := (&facts{kind: o.Kind, stored: from.Position, server: s.server}); !f.sameServer() {
		begin = place{} // of another log
	}
	var out []ColumnsChange
	for i := range s.tables {
		t := &s.tables[i]
		name := t.schema + "." + t.table
		k := &known{claimed: dep.Tables[name], charset: dep.Charsets[name]}
		if k.claimed == nil {
			continue // nothing is stored that could be compared
		}
		begin := begin
		if w := dep.Vouched[name]; w != nil && begin.file != "" && w.at().compare(begin) > 0 {
			begin, k.claimed, k.charset = w.at(), w.Columns, "" // up to there by what is stored, from there on by a person's word
		}
		if k.seen, err = s.sight(ctx, c, t); err != nil {
			return nil, err
		}
		change := ColumnsChange{Table: t.name, Stored: k.claimed.String(), Now: k.seen.def.String()}
		found, whole, err := s.changesBetween(ctx, begin, k.seen.after, t)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			change.Changes, change.First = len(found), found[0].at.String()
		}
		same := k.claimed.reads(k.seen.def)
		switch {
		case !whole:
			change.Changes = -1
		case len(found) == 0 && same:
			continue
		case len(found) == 0:
			change.Unproved = "the log does not show what changed them"
		case len(found) > 1:
			change.Unproved = k.confirm(found)
		case len(k.seen.def) == 0:
			change.Unproved = "the table is gone"
		}
		if whole || !same {
			out = append(out, change)
		}
	}
	return out, nil
}

// manyChanges is how many are more than a person needs to be told of.
const manyChanges = 100

// lookTime is how long a person waits for the log to be read.
const lookTime = 10 * time.Second

// changesBetween is scan within lookTime, over statements that are not understood too; whole says that it came to the end.
func (s *Source) changesBetween(parent context.Context, from, to place, t *table) (found []foundDDL, whole bool, err error) {
	if from.file == "" {
		return nil, false, nil
	}
	ctx, cancel := context.WithTimeout(parent, lookTime)
	defer cancel()
	for len(found) < manyChanges {
		more, err := s.scan(ctx, from, to, t)
		found = append(found, more...)
		switch {
		case ctx.Err() != nil && parent.Err() == nil:
			return found, false, nil
		case err != nil:
			return found, false, err
		}
		if len(more) == 0 || more[len(more)-1].change.kind != changeUnknown {
			return found, true, nil
		}
		from = more[len(more)-1].at
	}
	return found, true, nil
}

// CheckServer looks at what a start looks at before anything else: the Fault that it would end with, or nil.
func CheckServer(ctx context.Context, o Options) error {
	s, c, err := lookAt(ctx, o)
	if err != nil {
		return err
	}
	defer c.close()
	return s.check(ctx, c)
}

// Writers names the triggers, views and routines by which statements that do not name an outbox table write to it.
func Writers(ctx context.Context, o Options) ([]string, error) {
	s, c, err := lookAt(ctx, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	objects, err := s.objects(ctx, c)
	if err != nil {
		return nil, s.queryFault("look for triggers, views and routines", err)
	}
	s.carriers.take(objects, s.tables)
	var out []string
	for _, k := range s.carriers.list {
		out = append(out, fmt.Sprintf("%s %s.%s (into %s)", k.kind, k.schema, k.name, k.into.name))
	}
	return out, nil
}
