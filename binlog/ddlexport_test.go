package binlog

import "github.com/outtail/outtail/event"

// Column is a defColumn for tests outside of the package.
type Column = defColumn

// FollowDDL gives what a statement makes of a table's columns: "none" (they stay), "edits" with the columns, or "unknown".
func FollowDDL(kind, schema, table_, statement string, columns []Column, charset string) (verdict string, out []Column) {
	t := &table{name: table_, schema: schema, table: table_}
	c := changes(query{schema: []byte(schema), text: []byte(statement)}, t, false, kind == event.MariaDB)
	switch c.kind {
	case changeNone, changeIfGone:
		return "none", columns
	case changeEdits:
		if d, ok := definition(columns).apply(c.edits, charset); ok {
			return "edits", d
		}
	}
	return "unknown", nil
}

// ReadAlike reports whether two lists of columns read rows alike.
func ReadAlike(a, b []Column) bool { return definition(a).reads(b) }
