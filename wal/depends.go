package wal

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outtail/outtail/event"
)

// depends is what a position depended on, stored with it: if one of it changed, inserts may have gone unpublished in
// between, although the log itself has no gap (I5). An unlogged table, a publication that published nothing for a while
// or a table outside of it write rows that no slot ever sends.
type depends struct {
	Database string `json:"database"`
	// Began is where the timeline that was read, Timeline, left its parent; 0: the first one, or not known. Two standbys that were
	// promoted without knowing of each other have the same number and other histories, and so have those that follow them.
	Began event.LSN `json:"began,omitempty"`
	// Timeline stands here too, since one that changes while it is read is told with Began and not with the position; 0: the position's.
	Timeline    uint32         `json:"timeline,omitempty"`
	Publication dependsPub     `json:"publication"`
	Tables      []dependsTable `json:"tables"`
	Selection   string         `json:"selection"`
	// CheckedAt is the end of the log when this was last compared; not itself compared.
	CheckedAt event.LSN `json:"checked_at"`
	// Tolerant says that a person accepted rows without a mapped column, under this selection; not compared.
	Tolerant bool `json:"tolerant,omitempty"`
	// RenewAt is where the session has to be begun anew once it has been passed (before 15, see filledVersion); not compared.
	RenewAt event.LSN `json:"renew_at,omitempty"`
	// Passed are relations that a person said not to be partitions of ours; not compared.
	Passed []uint32 `json:"passed,omitempty"`
}

type dependsPub struct {
	Name string `json:"name"`
	OID  uint32 `json:"oid"`
	Row  string `json:"row"` // xmin of its row in pg_publication
}

type dependsTable struct {
	Name        string   `json:"name"`
	RelID       uint32   `json:"relid"`
	Member      uint32   `json:"member,omitempty"`
	Schema      uint32   `json:"schema,omitempty"`
	Persistence string   `json:"persistence"`
	Ancestors   []uint32 `json:"ancestors,omitempty"`
	// Parts are all partitions that it is known to have had, where rows come under their names or the server is older than 15; not
	// compared.
	Parts []uint32 `json:"parts,omitempty"`
	// Filled are new ones that had rows when they were attached (before 15); not stored.
	Filled []name `json:"-"`
}

// dependsOf takes the part of the facts on which positions depend.
func dependsOf(o *Options, names []name, f *facts) depends {
	d := depends{Database: f.Database, Began: f.began(), Timeline: f.Timeline, Publication: dependsPub{Name: o.Publication}, CheckedAt: f.End}
	if f.Pub != nil {
		d.Publication.OID, d.Publication.Row = f.Pub.OID, f.Pub.Row
	}
	for _, t := range f.Tables {
		persistence := t.Persistence
		if t.UnloggedPart != nil {
			persistence = "u"
		}
		d.Tables = append(d.Tables, dependsTable{
			Name: t.Name.String(), RelID: t.RelID, Member: t.Member, Schema: t.Schema, Persistence: persistence, Ancestors: t.Ancestors, Parts: t.Parts, Filled: t.Filled,
		})
	}
	d.Selection = selection(names, d, o.Columns, o.Messages)
	return d
}

func (d depends) json() json.RawMessage {
	b, err := json.Marshal(d)
	if err != nil {
		return nil // strings and numbers only: it cannot fail
	}
	return b
}

// filled says whether a table was attached with rows in it.
func (d depends) filled() bool {
	return slices.ContainsFunc(d.Tables, func(t dependsTable) bool { return len(t.Filled) > 0 })
}

// changes lists what is different on the server. Tables that only one side has are changes of the configuration, not of
// the server.
func (d depends) changes(now depends) []string {
	var out []string
	was, is := d.Publication, now.Publication
	switch {
	case was.Name != is.Name:
		out = append(out, fmt.Sprintf("the publication is now %s, it was %s", showIdent(is.Name), showIdent(was.Name)))
	case was.OID != is.OID:
		out = append(out, fmt.Sprintf("the publication %s was dropped and created again", showIdent(is.Name)))
	case was.Row != is.Row:
		out = append(out, fmt.Sprintf("the publication %s was altered", showIdent(is.Name)))
	}
	for _, t := range now.Tables {
		i := slices.IndexFunc(d.Tables, func(o dependsTable) bool { return o.Name == t.Name })
		if i < 0 {
			continue
		}
		old := d.Tables[i]
		switch {
		case t.RelID == 0:
			out = append(out, fmt.Sprintf("the table %s is gone", t.Name))
		case old.RelID != t.RelID:
			out = append(out, fmt.Sprintf("the table %s is another one of that name", t.Name))
		case was.OID == is.OID && (old.Member != t.Member || old.Schema != t.Schema):
			out = append(out, fmt.Sprintf("the table %s left the publication or was added again", t.Name))
		case old.Persistence != t.Persistence:
			out = append(out, fmt.Sprintf("the table %s was altered between LOGGED and UNLOGGED", t.Name))
		case !slices.Equal(old.Ancestors, t.Ancestors):
			out = append(out, fmt.Sprintf("the table %s was attached to or detached from a partitioned table", t.Name))
		}
		for _, part := range t.Filled {
			out = append(out, fmt.Sprintf("the table %s had rows before it was attached to %s, and Postgres 14 sends nothing more of it to a session that has read those", part, t.Name))
		}
	}
	return out
}
