package binlog

import (
	"bytes"
	"fmt"

	"github.com/outtail/outtail/event"
)

// mapped is a table id of the running group; plan nil means foreign.
type mapped struct {
	id   uint64
	plan *plan
}

// plan is what is done with the rows of a table of ours.
type plan struct {
	table  *table
	tm     *tableMap
	layout *layout // nil until the first row: a layout may have to be proved
}

func (st *stream) foreign(kind byte, body []byte) bool {
	switch kind {
	case evWriteRows, evUpdateRows, evDeleteRows, evWriteRowsV1, evUpdateRowsV1, evDeleteRowsV1, evPartialUpdateRows:
		if len(body) < 6 {
			return false
		}
		p, known := st.plan(tableID(body))
		return known && p == nil
	}
	return false
}

func tableID(b []byte) uint64 {
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 | uint64(b[5])<<40
}

func (st *stream) plan(id uint64) (*plan, bool) {
	for i := len(st.tables) - 1; i >= 0; i-- {
		if st.tables[i].id == id {
			return st.tables[i].plan, true
		}
	}
	return nil, false
}

// tableMap decides once per statement whether its rows are ours, by the bytes of the names.
func (st *stream) tableMap(body []byte) error {
	id, schema, name, _, ok := tableMapHead(body)
	if !ok {
		return st.damaged("a table map cannot be read")
	}
	var p *plan
	if t := st.s.find(schema, name); t != nil {
		// The same map as the last one, as is the rule, needs no second look.
		if st.lastPlan == nil || !bytes.Equal(st.lastMap, body[6:]) {
			tm, err := parseTableMap(body, st.s.o.Kind == event.MariaDB)
			if err != nil {
				return st.damaged("the table map of " + t.name + " cannot be read")
			}
			st.lastPlan = &plan{table: t, tm: tm}
			st.lastMap = append(st.lastMap[:0], body[6:]...)
		}
		p = st.lastPlan
	}
	for i := range st.tables {
		if st.tables[i].id == id {
			st.tables[i].plan = p
			return nil
		}
	}
	st.tables = append(st.tables, mapped{id, p})
	return nil
}

// planOf finds the plan for a rows event; nil is a foreign table.
func (st *stream) planOf(kind byte, body []byte) (*plan, rowsHead, error) {
	head, ok := parseRowsHead(kind, body)
	if !ok {
		return nil, head, st.damaged("a rows event cannot be read")
	}
	p, known := st.plan(head.table)
	if !known {
		return nil, head, st.damaged(fmt.Sprintf("rows of table id %d come without its table map", head.table))
	}
	return p, head, nil
}

// rowsEvent takes in inserted rows.
func (st *stream) rowsEvent(h header, body []byte) error {
	p, head, err := st.planOf(h.kind, body)
	if p == nil || err != nil {
		return err
	}
	if p.layout == nil {
		if p.layout, err = st.s.layout(st, p); err != nil {
			return err
		}
	}
	img, rows, ok := parseRowImage(head.body)
	if !ok || img.count == 0 { // rows without bytes would never end
		return st.damaged("a rows event cannot be read")
	}
	if col := p.layout.lacks(img); col != "" {
		return st.excuse(st.partial(p, col))
	}
	tx := st.txRef(h)
	for len(rows) > 0 {
		if p.layout.rowEnd >= 0 {
			until, rest, ok := p.tm.skipRow(&img, rows, p.layout.rowEnd)
			if !ok {
				return st.rowFault(p, errRows)
			}
			if past(until) {
				st.pastRow()
				rows = rest
				continue
			}
		}
		counts, wanted := st.tx.place(st.again)
		if !wanted {
			// Its place is counted, its values are not wanted: delivered before, by the stored prefix, or to be later.
			st.scratch.buf = st.scratch.buf[:0]
			if rows, _, _, err = p.layout.decode(&st.scratch, &event.Event{}, img, rows); err != nil {
				return st.rowFault(p, err)
			}
			if counts {
				st.tx.rows++
			}
			continue
		}
		seg := st.asm.room(len(rows))
		seg.events = append(seg.events, event.Event{})
		ev := &seg.events[len(seg.events)-1]
		at := len(seg.buf)
		var column string
		var bad error
		rows, column, bad, err = p.layout.decode(seg, ev, img, rows)
		if err != nil {
			seg.events = seg.events[:len(seg.events)-1]
			return st.rowFault(p, err)
		}
		if err := st.takeRow(p, tx, seg, ev, at, column, bad); err != nil {
			return err
		}
	}
	if st.again.flowing() {
		st.asm.settle()
	}
	return nil
}

// takeRow finishes a decoded row, whose bytes begin at at in the segment.
func (st *stream) takeRow(p *plan, tx *event.Tx, seg *segment, ev *event.Event, at int, column string, bad error) error {
	ev.Tx, ev.Index, ev.Table = tx, st.tx.rows, p.table.name
	st.tx.rows++
	if size := len(seg.buf) - at; size > st.s.rowLimit {
		ev.Err = st.tooLarge(p.table, &ev.Row, size)
		keepShort(seg, ev, at)
	} else if bad != nil && ev.Err == nil {
		ev.Err = &event.Fault{Code: codeValue, Class: event.Record, Op: "read a row of " + p.table.name, Place: st.here() + rowID(&ev.Row),
			Text: "column " + column, Hint: "correct the column or the mapping; the row follows its poison policy", Err: bad}
	}
	ev.Size = len(seg.buf) - at + eventOverhead
	if st.asm.pending() > st.spillAt && !st.again.flowing() {
		return st.spillOut()
	}
	return nil
}

func (st *stream) partial(p *plan, column string) *event.Fault {
	return &event.Fault{Code: codePartial, Class: event.Safety, Op: "read a row of " + p.table.name, Place: st.here(),
		Text: "the log leaves column " + column + " out (binlog_row_image is not FULL in the session that wrote it)",
		Hint: "SET GLOBAL binlog_row_image = 'FULL'; and no session may set it otherwise. Then " + st.s.ways(codePartial, "now", "GTID", "FILE:POS")}
}

// shortValue is how long a value may be that is kept of a row beyond limits.row: ids, types and keys are shorter.
const shortValue = 1024

// keepShort drops the long values of a row that is not delivered, and the room they took.
func keepShort(seg *segment, ev *event.Event, at int) {
	kept := make([]byte, 0, 256)
	for r := range ev.Row {
		v := &ev.Row[r]
		switch {
		case len(v.Bytes) > shortValue:
			*v = event.Value{}
		case len(v.Bytes) > 0:
			from := len(kept)
			kept = append(kept, v.Bytes...)
			v.Bytes = kept[from:len(kept):len(kept)]
		}
	}
	seg.buf = seg.buf[:at]
}

// rowID names a row in a fault by its id, where it is known and short.
func rowID(row *event.Row) string {
	if v := &row[event.ID]; v.Present() && len(v.Bytes) <= 128 {
		return ", id " + string(v.Bytes)
	}
	return ""
}

func (st *stream) tooLarge(t *table, row *event.Row, size int) *event.Fault {
	return &event.Fault{Code: codeTooLarge, Class: event.Record, Op: "read a row of " + t.name, Place: st.here() + rowID(row),
		Text: fmt.Sprintf("the row has %d bytes, the limit is %d", size, st.s.rowLimit), Hint: "raise limits.row, or write smaller rows"}
}

func (st *stream) rowFault(p *plan, err error) error {
	for i := range p.layout.fields {
		if f := &p.layout.fields[i]; f.size == sizeUnknown {
			return &event.Fault{Code: codeUnread, Class: event.Safety, Op: "read a row of " + p.table.name, Place: st.here(),
				Text: fmt.Sprintf("column %d has type %d, which is not known to this version", i+1, f.kind), Hint: "upgrade outtail"}
		}
	}
	return &event.Fault{Code: codeUnread, Class: event.Safety, Op: "read a row of " + p.table.name, Place: st.here(),
		Text: "the row does not fit the table's map", Hint: "report this with the table's definition", Err: err}
}

// oversized takes in an event that is larger than the reader keeps.
func (st *stream) oversized(h header, body []byte, total int) error {
	switch h.kind {
	case evWriteRows, evWriteRowsV1:
		if p, _, err := st.planOf(h.kind, body); p == nil || err != nil {
			return err
		}
	case evMariaWriteCompressed1, evMariaWriteCompressed2:
		return st.mariaGiant(h, body, total)
	case evUpdateRows, evUpdateRowsV1, evPartialUpdateRows:
		return st.update(h.kind, body)
	case evDeleteRows, evDeleteRowsV1:
		return st.deleted(h.kind, body)
	case evRowsQuery, evMariaAnnotate, evMariaUpdateCompressed, evMariaUpdateCompressd2,
		evMariaDeleteCompressed, evMariaDeleteCompressd2, evUserVar, evBeginLoadQuery, evTransactionContext, evViewChange:
		return nil
	case evQuery, evExecuteLoadQuery, evMariaQueryCompressed:
		q, ok := parseQuery(body)
		if !ok {
			return st.damaged("a query event cannot be read")
		}
		return st.query(h, q)
	}
	return &event.Fault{Code: codeUnread, Class: event.Safety, Op: "read the binlog", Place: st.here(),
		Text: fmt.Sprintf("an event of type %d has %d bytes", h.kind, total), Hint: "report this"}
}

// update applies on_update.
func (st *stream) update(kind byte, body []byte) error {
	p, head, err := st.planOf(kind, body)
	if p == nil || err != nil {
		return err
	}
	rows := 1 // nobody counts those of a partial update (JSON)
	if kind != evPartialUpdateRows {
		rowEnd, err := st.rowEnd(p)
		if err != nil {
			return err
		}
		n, ended := p.tm.countRows(head.body, true, rowEnd)
		if ended > 0 {
			st.filtered("deleted", ended)
			if n == ended {
				return nil
			}
		}
		rows = max(1, n-ended)
	}
	return st.updated(p, rows)
}

// filtered counts rows that are no events; those of a second reading were counted in the first.
func (st *stream) filtered(reason string, rows int) {
	if !st.again.flowing() {
		st.s.o.Filtered(reason, rows)
	}
}

func (st *stream) updated(p *plan, rows int) error {
	if st.again.flowing() {
		rows = 0 // counted when they were read first
	}
	if f := st.s.sawUpdate(p.table, st.here(), rows); f != nil {
		return st.excuse(f)
	}
	return nil
}

// deleted counts: cleaning up is normal.
func (st *stream) deleted(kind byte, body []byte) error {
	p, head, err := st.planOf(kind, body)
	if p == nil || err != nil {
		return err
	}
	n, _ := p.tm.countRows(head.body, false, -1)
	st.filtered("deleted", max(1, n))
	return nil
}
