package wal

import (
	"github.com/outtail/outtail/event"
)

// typeBytea is the OID of bytea (pg_type.dat).
const typeBytea = 17

// use is one role that a column plays.
type use struct {
	role   event.Role
	as     event.Form
	binary bool
}

// relation is what a relation message said, compiled: which columns play which roles. It holds until the next message
// for the same OID.
type relation struct {
	// table is the configured table's text; foreign relations have none and their rows are skipped undecoded.
	table   string
	foreign bool
	// plan has the uses of each column in the order of the wire; nil for columns that are not mapped.
	plan [][]use
	// mapped counts the columns with uses, so that the rest of a row can be skipped.
	mapped int
	// row holds the constants, and SQL NULL for nothing.
	row event.Row
	// missing is a mapped column that rows of this relation do not have.
	missing string
}

// target is a configured table as the decoder knows it.
type target struct {
	text    string
	name    name
	relid   uint32
	domains map[uint32]bool // types that are domains over bytea
}

// wireColumn is a column of a relation message.
type wireColumn struct {
	name []byte
	typ  uint32
}

// match finds the configured table of a relation: by OID, which survives a rename, or by name, which is what a table
// that has been recreated since still has in older log.
func match(targets []target, id uint32, schema, table []byte) *target {
	for i := range targets {
		if targets[i].relid == id && id != 0 {
			return &targets[i]
		}
	}
	for i := range targets {
		if targets[i].name.schema == string(schema) && targets[i].name.table == string(table) {
			return &targets[i]
		}
	}
	return nil
}

// compile makes the plan of a relation.
func compile(t *target, columns *event.Columns, wire []wireColumn) *relation {
	if t == nil {
		return &relation{foreign: true}
	}
	r := &relation{table: t.text, plan: make([][]use, len(wire)), row: constants(columns)}
	for i := range columns {
		role, m := event.Role(i), columns[i]
		if m.IsConst || m.Column == "" {
			continue
		}
		found := false
		for j, c := range wire {
			if string(c.name) == m.Column {
				r.plan[j] = append(r.plan[j], use{role, m.As, c.typ == typeBytea || t.domains[c.typ]})
				found = true
			}
		}
		if !found && r.missing == "" {
			r.missing = m.Column
		}
	}
	for _, uses := range r.plan {
		if uses != nil {
			r.mapped++
		}
	}
	return r
}

// constants is a row that has what no column gives.
func constants(columns *event.Columns) (row event.Row) {
	for i, m := range columns {
		if m.IsConst {
			row[i] = event.Value{Bytes: []byte(m.Constant), Set: true}
		}
	}
	return row
}
