package binlog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outtail/outtail/event"
)

// known is, for the running session, what is known of a table's columns. Where the log names them itself it wins (layout). Otherwise
// a definition counts only where it is proved:
//
//   - the catalogue's, at and before the place at which it was read, back to the last DDL on the table, and on to the next one;
//   - what was stored as proved with the position, on to the next DDL;
//   - between two DDLs, what the first makes of the definition before it, if all DDL from there to the place at which the
//     catalogue was read, carried out on it in thought, gives what the catalogue says (claimed and ahead);
//   - a person's word, from its place on to the next DDL.
//
// Naive designs take the catalogue's definition of now for rows of then, or follow DDL and never look whether the result is the
// server's: both put values under wrong names, silently.
type known struct {
	proved  definition // holds at the stream's position; nil is unknown
	charset string     // the default character set of the table that proved or claimed describe; "" unknown
	vouched bool       // proved is a person's word
	claimed definition // what the DDL since made of what was proved; counts once the catalogue confirms where it leads
	ahead   []step     // confirmed: what the DDL behind the stream's position makes of it
	seen    *sighting  // what the catalogue said at connect or later, not yet reached or not needed so far
	asked   bool       // the catalogue was asked since the last DDL
	word    *vouched   // what a person vouched for, from a place on that was not reached so far
	before  definition // what held before the last DDL that was seen
}

// step is a DDL and what it left.
type step struct {
	at  place
	def definition
}

// ddl takes in that a statement may have changed a table's columns.
func (st *stream) ddl(t *table, c change) {
	k := st.s.known[t]
	if k == nil || c.kind == changeNone {
		return
	}
	base := k.proved
	if base == nil {
		base = k.claimed
	}
	if c.kind == changeIfGone && (base != nil || k.seen != nil && len(k.seen.def) > 0) {
		return // the table is there: nothing was created
	}
	here := st.place()
	if base != nil {
		k.before = base
	}
	k.proved, k.claimed, k.vouched, k.asked = nil, nil, false, false
	if len(k.ahead) > 0 && k.ahead[0].at == here {
		k.proved, k.ahead = k.ahead[0].def, k.ahead[1:]
	} else {
		k.ahead = nil
		if c.kind == changeEdits && base != nil {
			k.claimed, _ = base.apply(c.edits, k.defaultCharset())
		}
	}
	if k.claimed == nil && k.proved == nil {
		k.charset = ""
	}
	if k.word != nil && k.word.at().compare(here) < 0 {
		k.word = nil
	}
	// A definition that was read after this place may still hold behind it.
	if k.seen != nil && k.seen.before.compare(here) < 0 {
		k.seen = nil
	}
	st.s.count()
	st.depends = st.s.dependsNow(st)
	st.forget(t)
}

func (k *known) defaultCharset() string {
	if k.charset == "" {
		return charsetUnsaid
	}
	return k.charset
}

// count keeps track of whether anything waits for the stream to get somewhere, or for a look at the catalogue.
func (s *Source) count() {
	s.unproved = 0
	for _, k := range s.known {
		if k.proved == nil || k.word != nil {
			s.unproved++
		}
	}
}

// forget makes the next rows of a table look for their layout anew.
func (st *stream) forget(t *table) {
	st.lastPlan, st.lastMap = nil, nil
	for i := range st.tables {
		if p := st.tables[i].plan; p != nil && p.table == t {
			p.layout = nil
		}
	}
}

func (st *stream) place() place {
	if st.file == nil {
		return place{}
	}
	return place{st.file.name, st.pos}
}

func (p place) String() string { return p.file + ":" + strconv.FormatUint(p.pos, 10) }

// promote takes over sightings, and what a person vouched for, whose place the stream has reached without DDL. The person's
// word wins over what was stored: it is given where that turned out wrong.
func (st *stream) promote() {
	s := st.s
	if s.unproved == 0 {
		return
	}
	here := st.place()
	changed := false
	for t, k := range s.known {
		if k.word != nil && st.file != nil && here.compare(k.word.at()) >= 0 {
			s.log.Warn("the columns that a person vouched for hold from here on", "table", t.name, "at", k.word.at().String(), "columns", k.word.Columns.String())
			k.proved, k.charset, k.claimed, k.ahead, k.word, k.vouched = k.word.Columns, "", nil, nil, nil, true
			changed = true
			st.forget(t)
		}
		if k.proved == nil && k.seen != nil && len(k.seen.def) > 0 && here.compare(k.seen.after) >= 0 {
			k.take(k.seen)
			changed = true
		}
	}
	if changed {
		s.count()
		st.depends = s.dependsNow(st)
	}
}

// take makes a sighting what holds.
func (k *known) take(seen *sighting) {
	k.proved, k.charset, k.claimed, k.ahead, k.seen, k.vouched = seen.def, seen.charset, nil, nil, nil, false
}

// lookIdle reads the catalogue after a DDL while the log has nothing else for us: a definition that is known before the next DDL
// comes is one that is proved, and a stored one survives whatever happens while we are down. Not being able to costs nothing, since
// rows that need it ask again.
func (st *stream) lookIdle() {
	s := st.s
	if s.unproved == 0 || st.tx.active || st.file == nil || st.newFile {
		return
	}
	for i := range s.tables {
		t := &s.tables[i]
		k := s.known[t]
		if k == nil || k.proved != nil || k.seen != nil || k.asked {
			continue
		}
		k.asked = true
		seen, err := s.lookAgain(s.reading, t)
		if err != nil {
			s.log.Debug("the columns could not be read", "table", t.name, "error", err)
			continue
		}
		k.seen = seen
	}
	if was := s.unproved; was > 0 {
		if st.promote(); s.unproved < was {
			st.bound(group{}) // so that it is stored, though nothing else comes
		}
	}
}

// layout decides how the rows of a table map are read.
func (s *Source) layout(st *stream, p *plan) (*layout, error) {
	t := p.table
	st.promote()
	var columns []column
	k := s.known[t]
	if p.tm.complete() && !s.ambiguous(p.tm) {
		columns = p.tm.columns
		if k.proved != nil && sameNamesAs(columns, k.proved) && s.fits(p.tm, k.proved) == "" {
			// What the log never says, and what only shows in print: ZEROFILL and FLOAT(M,D).
			if def, err := k.proved.columns(s.charsetID); err == nil {
				columns = merge(p.tm, def)
			}
		}
	} else {
		if k.proved == nil {
			if err := s.prove(st, p, k); err != nil {
				return nil, err
			}
		}
		s.followHashes(p.tm, k, t)
		def, err := k.proved.columns(s.charsetID)
		if err != nil {
			return nil, st.layoutFault(p, err.Error())
		}
		if differs := s.fits(p.tm, k.proved); differs != "" {
			if k.vouched {
				return nil, st.layoutFault(p, "the columns that a person vouched for do not fit the rows in the log: "+differs)
			}
			return nil, st.layoutFault(p, "its definition does not fit the rows in the log: "+differs+". Somebody changed it in a way that the log does not show (sql_log_bin = 0, or on a replica)")
		}
		columns = merge(p.tm, def)
	}
	l := newLayout(t.name, columns, s.o.Columns, s.charset, s.texts)
	for i := range l.fields {
		f := &l.fields[i]
		f.limit, f.room = s.rowLimit, s.plainRoom(f.kind)
		if len(f.wanted) > 0 && f.charset < 0 && f.character() {
			return nil, st.layoutFault(p, "the character set of column "+f.name+" is not known there")
		}
	}
	if len(l.missing) > 0 {
		return nil, &event.Fault{Code: codeDropped, Class: event.Safety, Op: "read a row of " + t.name, Place: st.here(),
			Text: "the table had no column " + strings.Join(l.missing, ", ") + " there",
			Hint: "correct columns in the configuration, or " + s.ways(codeDropped, "now", "GTID", "FILE:POS")}
	}
	return l, nil
}

// plainRoom is how long the server prints a number of a type in plain form.
func (s *Source) plainRoom(kind byte) int {
	switch {
	case s.o.Kind == event.MariaDB:
		return anyRoomNoSign
	case kind == typeFloat:
		return floatRoom
	}
	return doubleRoom
}

// ambiguous reports whether a mapped column of MariaDB may be of a type that its log calls BINARY(n), the table a versioned one, or one with times
// of unknown length.
func (s *Source) ambiguous(t *tableMap) bool {
	if s.o.Kind != event.MariaDB {
		return false
	}
	if t.maybeVersioned() || slices.ContainsFunc(t.columns, func(c column) bool { return c.oldTime() }) {
		return true
	}
	for _, m := range s.o.Columns {
		if m.Column == "" || m.IsConst {
			continue
		}
		if i := findColumn(t.columns, m.Column); i >= 0 && t.columns[i].kind == typeString && (t.columns[i].meta == 4 || t.columns[i].meta == 16) {
			return true
		}
	}
	return false
}

func sameNamesAs(a []column, b definition) bool {
	return slices.EqualFunc(a, b, func(x column, y defColumn) bool { return equalFold(x.name, y.Name) })
}

// prove finds a definition that holds where the running transaction begins.
func (s *Source) prove(st *stream, p *plan, k *known) error {
	t := p.table
	here := place{st.tx.startFile.name, st.tx.startPos}
	var found []foundDDL
	for tries := 0; ; tries++ {
		if k.seen == nil {
			seen, err := s.lookAgain(s.reading, t)
			if err != nil {
				return err
			}
			k.seen, k.asked = seen, true
		}
		if here.compare(k.seen.after) >= 0 {
			break
		}
		var err error
		if found, err = s.scan(s.reading, here, k.seen.after, t); err != nil {
			return err
		}
		// A change between the two looks at the log's end: the definition may be the one before it or the one behind.
		during := func(f foundDDL) bool { return f.change.kind != changeUnknown && f.at.compare(k.seen.before) > 0 }
		if !slices.ContainsFunc(found, during) {
			break
		}
		if k.seen = nil; tries == lookTries {
			return s.fault(codeLost, event.Retry, "find the columns of "+t.name, "the table is changed again and again while it is looked at", "the connection is made anew")
		}
	}
	if len(found) > 0 {
		if why := k.confirm(found); why != "" {
			return st.layoutFault(p, fmt.Sprintf("it was changed at %s, and what its columns were before that cannot be proved: %s", found[0].at, why))
		}
		st.s.log.Info("the columns of a table between two changes are proved: what the log says of the changes leads to what the catalogue says", "table", t.name,
			"changes ahead", len(found), "columns", k.proved.String())
		s.count()
		st.depends = s.dependsNow(st)
		return nil
	}
	if len(k.seen.def) == 0 {
		return st.layoutFault(p, "the table was dropped or renamed since, and the log does not name its columns")
	}
	k.take(k.seen)
	s.count()
	st.depends = s.dependsNow(st)
	return nil
}

// lookTries is how often the catalogue is asked while a table is being changed.
const lookTries = 20

// confirm carries out the changes ahead on what is claimed. If that ends in the catalogue's definition, the claim and all that lies
// between are proved; else it says why not.
func (k *known) confirm(found []foundDDL) (why string) {
	if k.claimed == nil {
		return "nothing that is known leads there"
	}
	cur := k.claimed
	var steps []step
	for _, f := range found {
		if f.change.kind != changeEdits {
			return fmt.Sprintf("what the statement at %s did to the columns is not understood", f.at)
		}
		next, ok := cur.apply(f.change.edits, k.defaultCharset())
		if !ok {
			return fmt.Sprintf("the change at %s does not fit what is known", f.at)
		}
		cur = next
		steps = append(steps, step{f.at, cur})
	}
	if !cur.reads(k.seen.def) {
		return "following the changes does not lead to what the catalogue says"
	}
	steps[len(steps)-1].def = k.seen.def
	k.proved, k.claimed, k.ahead = k.claimed, nil, steps
	return ""
}

// layoutFault tells all that is known of the columns, since a person has to find out what they were.
func (st *stream) layoutFault(p *plan, text string) error {
	t, k := p.table, st.s.known[p.table]
	var facts strings.Builder
	fmt.Fprintf(&facts, "\nThe log shows %d columns there: %s.", len(p.tm.columns), strings.Join(p.tm.families(), ", "))
	var candidates []definition
	tell := func(what string, d definition) {
		if len(d) > 0 {
			fmt.Fprintf(&facts, "\n%s: %s", what, d)
			candidates = append(candidates, d)
		}
	}
	tell("By the changes that the log holds they were", k.claimed)
	tell("Before the last change that was seen they were", k.before)
	if k.seen != nil {
		tell("In the server's catalogue they are now", k.seen.def)
	} else if k.proved == nil || !k.vouched {
		if seen, err := st.s.lookAgain(st.s.reading, t); err == nil {
			tell("In the server's catalogue they are now", seen.def)
		}
	}
	tell("Known so far are", k.proved)
	columns, whose := p.tm.skeleton(), "the types are the log's, names are to be put in"
	for _, d := range candidates {
		if st.s.fits(p.tm, d) == "" {
			columns, whose = d.String(), "these fit the log; whether they are right you have to know"
			break
		}
	}
	at := st.place()
	if st.tx.active && st.tx.startFile != nil {
		at = place{st.tx.startFile.name, st.tx.startPos}
	}
	return &event.Fault{Code: codeLayout, Class: event.Safety, Op: "find the columns of " + t.name, Place: st.here(), Text: text,
		Hint: "with SET GLOBAL binlog_row_metadata = 'FULL' the log says it itself from then on. For what was written before, vouch for the columns (nothing is left out; " + whose + "):\n" +
			"  outtail schema accept -c FILE --pipeline " + st.s.o.Pipeline + " --table " + t.name + " --at " + at.String() + " --columns " + shellQuote(columns) + " --reason R" + facts.String() + "\nOr " +
			st.s.ways(codeLayout, "now", "GTID", "FILE:POS")}
}

// shellQuote makes one word of a text.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// skeleton writes a table map as `schema accept --columns` reads it; names that the log does not have are numbered.
func (t *tableMap) skeleton() string {
	d := make(definition, len(t.columns))
	for i := range t.columns {
		c := &t.columns[i]
		d[i].Name = c.name
		if d[i].Name == "" {
			d[i].Name = "column_" + strconv.Itoa(i+1)
		}
		d[i].Type = kindWord(c)
	}
	return d.String()
}

// kindWord is a type that a column of the log may have had.
func kindWord(c *column) string {
	name := kindName(c.kind)
	name, _, _ = strings.Cut(name, " or ")
	switch c.kind {
	case typeEnum, typeSet:
		name += "('…')"
	case typeVarchar, typeVarString, typeString, typeVarPacked:
		name += "(" + strconv.Itoa(int(c.meta)) + ")"
	case typeBlob, typeBlobPacked:
		name = [...]string{"text", "tinytext", "text", "mediumtext", "longtext"}[min(c.meta, 4)]
	case typeNewDecimal:
		name += fmt.Sprintf("(%d,%d)", c.meta&0xff, c.meta>>8)
	case typeBit:
		name += "(" + strconv.Itoa(int(c.meta&0xff)+8*int(c.meta>>8)) + ")"
	case typeTimestamp2, typeDatetime2, typeTime2:
		if c.meta > 0 {
			name += "(" + strconv.Itoa(int(c.meta)) + ")"
		}
	}
	if c.unsigned {
		name += " unsigned"
	}
	return name
}
