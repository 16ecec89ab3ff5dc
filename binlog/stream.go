package binlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/outtail/outtail/event"
)

// stream turns the events of one dump into batches. It belongs to the session's goroutine; only the ledger is shared.
//
// The server writes rows before it says how their transaction ended. Rows are decoded as they come, behind the assembler's
// mark; XID, COMMIT and a one-phase XA_PREPARE move the mark (I1), ROLLBACK cuts back to it (I2). Everything else that ends a
// group moves the position only.
type stream struct {
	s      *Source
	rd     *wireReader
	asm    *assembler
	ledger *ledger
	log    *slog.Logger

	sum     bool     // events end in a CRC32
	file    *fileRef // nil until the first ROTATE
	pos     uint64   // behind the last event, in file
	fromTop bool     // the file is read from its beginning
	newFile bool     // a ROTATE named a file whose format description is still to come
	opened  bool     // the first format description was read

	sids     map[sid]*sid
	ordinal  uint64
	byFile   bool // the position is a file position: no GTID set is known
	adopt    *gtidSet
	depends  []byte // to be attached to the next group
	prefix   *event.Prefix
	tables   []mapped // of the running group
	lastMap  []byte   // the TABLE_MAP_EVENT that lastPlan was made from, without its id
	lastPlan *plan

	tx          txState
	scratch     segment // for rows that are counted and not kept
	wantedSince bool    // events of ours since the last bound
	emptyAt     time.Time
	spill       *spill
	spillAt     int
	drain       *drain
	inflate     *inflated
	giant       *giant
	inflated    []byte        // room for MariaDB's compressed events
	zstd        *zstd.Decoder // reused; Close gives its goroutines back
	held        error         // what to report once everything before it was handed out
}

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

// txState is the running group.
type txState struct {
	active    bool // between the event that begins a group and the one that ends it
	begun     bool // BEGIN was seen: ends with XID, COMMIT or ROLLBACK
	startFile *fileRef
	startPos  uint64
	gtid      gtidEvent
	hasGTID   bool
	anonymous bool
	maria     mariaGTID
	hasMaria  bool
	mariaXA   bool // MariaDB: XA PREPARE group
	commit    time.Time
	tx        *event.Tx
	rows      uint64 // of ours, those of a prefix included
	skip      uint64 // rows of the stored prefix
	saves     []savepoint
}

type savepoint struct {
	name   string
	rows   uint64
	offset int64 // in the spill file; -1 not there
}

// read gives the next batch. It waits for the network only when nothing finished is at hand.
func (st *stream) read(ctx context.Context) (*event.Batch, error) {
	for {
		if st.asm.whole() {
			return st.asm.take(), nil
		}
		if st.drain != nil {
			if b, err := st.drainNext(); b != nil || err != nil {
				return b, err
			}
			continue
		}
		idle := st.inflate == nil && !st.rd.ready()
		if idle || st.held != nil {
			some, events := st.asm.finished()
			if some && (events || st.held != nil || time.Since(st.emptyAt) >= emptyEvery) {
				if !events {
					st.emptyAt = time.Now()
				}
				return st.asm.take(), nil
			}
			if st.held != nil {
				return nil, st.held
			}
			if some {
				if err := st.stepWithin(ctx, emptyEvery); errors.Is(err, errInterrupted) {
					return nil, ctx.Err()
				} else if err != nil {
					st.held = err
				}
				continue
			}
		}
		if err := st.step(ctx); errors.Is(err, errInterrupted) {
			return nil, ctx.Err()
		} else if err != nil {
			st.held = err
		}
	}
}

// errInterrupted: ctx ended between events, so that reading may go on. Any other error ends the session: what it happened in was
// taken from the log and not finished.
var errInterrupted = errors.New("interrupted")

// emptyEvery bounds how often a batch without events is handed out (I6).
const emptyEvery = 250 * time.Millisecond

// stepWithin is step that gives up after a while, so that a finished bound does not wait for the next event.
func (st *stream) stepWithin(ctx context.Context, d time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	stop := st.wake(wait)
	defer stop()
	err := st.step(wait)
	if errors.Is(err, errInterrupted) && ctx.Err() == nil {
		return nil
	}
	return err
}

// wake makes a waiting read return when ctx ends. Its stop waits for a wake that has begun: one that came late would cut off
// the next read.
func (st *stream) wake(ctx context.Context) (stop func()) {
	woken := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = st.rd.conn.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !undo() {
			<-woken
		}
	}
}

// step reads and takes in one event.
func (st *stream) step(ctx context.Context) error {
	if st.inflate != nil {
		return st.stepInflated()
	}
	ev, total, err := st.rd.next(ctx)
	if err != nil {
		if ctx.Err() != nil && st.rd.intact(err) {
			return errInterrupted
		}
		return st.s.dumpFault(err)
	}
	return st.take(ev, total)
}

func (st *stream) damaged(what string) error {
	return &event.Fault{Code: codeDamaged, Class: event.Retry, Op: "read the binlog", Place: st.here(), Text: what,
		Hint: "the connection is made anew; if this recurs at the same place, check the file with mysqlbinlog --verify-binlog-checksum"}
}

// here is the place for messages.
func (st *stream) here() string {
	if st.file == nil {
		return st.s.place()
	}
	return st.s.place() + " " + st.file.name + ":" + strconv.FormatUint(st.pos, 10)
}

// take takes in one event as the dump sent it.
func (st *stream) take(ev []byte, total int) error {
	h, ok := parseHeader(ev)
	if !ok || int(h.size) != total {
		return st.damaged("an event is shorter than its header says")
	}
	whole := total == len(ev)
	switch h.kind {
	case evFormatDescription:
		if !whole || !sumOK(ev) && len(ev) > 0 && st.descriptionSums(ev) {
			return st.damaged("the format description event fails its checksum")
		}
		return st.formatDescription(h, ev[headerLen:])
	case evRotate:
		body := ev[headerLen:]
		if sumOK(ev) {
			body = body[:len(body)-4]
		} else if st.sum && h.flags&flagArtificial == 0 {
			return st.damaged("a rotate event fails its checksum")
		}
		return st.rotate(h, body)
	}
	if h.flags&flagArtificial == 0 && h.next != 0 && h.kind != evHeartbeat && h.kind != evHeartbeatV2 {
		st.advance(h.next)
	}
	if !whole && h.kind == evTransactionPayload {
		return st.giantPayload(ev, total)
	}
	body := ev[headerLen:]
	if st.sum {
		// Rows of foreign tables are not looked at, not even for damage.
		if whole && !st.foreign(h.kind, body) && !sumOK(ev) {
			return st.damaged("an event fails its checksum")
		}
		if whole {
			body = body[:len(body)-4]
		}
	}
	return st.dispatch(h, body, whole, total)
}

// descriptionSums: the description says itself whether it carries a checksum; it always does on servers that know them.
func (st *stream) descriptionSums(ev []byte) bool {
	d, ok := parseFormatDescription(ev[headerLen:])
	return !ok || d.sum
}

// advance moves the position. The header has 32 bits; within a file positions only grow, so that a smaller one has wrapped.
func (st *stream) advance(low uint32) {
	p := st.pos&^maxPos | uint64(low)
	if p < st.pos {
		p += 1 << 32
	}
	st.pos = p
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

// dispatch takes in one event whose checksum is gone; a TRANSACTION_PAYLOAD's events come here too.
func (st *stream) dispatch(h header, body []byte, whole bool, total int) error {
	if !whole {
		return st.oversized(h, body, total)
	}
	switch h.kind {
	case evTableMap:
		return st.tableMap(body)
	case evWriteRows, evWriteRowsV1:
		return st.rowsEvent(h, body)
	case evUpdateRows, evUpdateRowsV1, evPartialUpdateRows:
		return st.update(h.kind, body)
	case evDeleteRows, evDeleteRowsV1:
		return nil
	case evXID:
		return st.commitTx(h)
	case evQuery:
		q, ok := parseQuery(body)
		if !ok {
			return st.damaged("a query event cannot be read")
		}
		return st.query(h, q)
	case evGTID, evAnonymousGTID, evGTIDTagged, evMariaGTID:
		return st.begin(h, body)
	case evTransactionPayload:
		return st.payload(h, body)
	case evXAPrepare:
		return st.xaPrepare(h, body)
	case evHeartbeat:
		st.heartbeat(body, uint64(h.next))
		return nil
	case evHeartbeatV2:
		if file, pos, ok := parseHeartbeatV2(body); ok {
			st.heartbeat(file, pos)
		}
		return nil
	case evPreviousGTIDs:
		if st.byFile && st.fromTop && st.adopt == nil && st.s.server.gtids && !st.tx.active {
			if set, err := decodeGTIDSet(body); err == nil {
				st.adopt = set
			}
		}
		return nil
	case evIncident:
		return st.s.fault(codeIncident, event.Safety, "read the binlog",
			"the server logged an incident at "+st.here()+": it may have lost events",
			st.s.ways(codeIncident, "now", "GTID", "FILE:POS"))
	case evIntvar, evRand, evUserVar, evBeginLoadQuery, evRowsQuery, evMariaAnnotate, evMariaCheckpoint, evMariaGTIDList, evStop,
		evTransactionContext, evViewChange, evMariaStartEncryption:
		return nil
	case evExecuteLoadQuery:
		return st.loadQuery(h, body)
	case evMariaQueryCompressed:
		return st.mariaQuery(h, body)
	case evMariaWriteCompressed1, evMariaWriteCompressed2, evMariaUpdateCompressed, evMariaUpdateCompressd2:
		return st.mariaRows(h, body)
	case evMariaDeleteCompressed, evMariaDeleteCompressd2:
		return nil
	}
	if h.flags&flagIgnorable != 0 {
		return nil
	}
	return &event.Fault{Code: codeUnread, Class: event.Safety, Op: "read the binlog", Place: st.here(),
		Text: fmt.Sprintf("event type %d is not known to this version, and the server says that it matters", h.kind), Hint: "upgrade outtail"}
}

// formatDescription begins a file, in the dump if not on disk.
func (st *stream) formatDescription(h header, body []byte) error {
	d, ok := parseFormatDescription(body)
	if !ok {
		return st.damaged("the format description event cannot be read")
	}
	st.sum = d.sum
	st.tables = st.tables[:0]
	if st.file != nil && st.file.stamp == 0 {
		st.file.stamp = h.at
	}
	if h.flags&flagArtificial == 0 && uint64(h.next) > st.pos {
		st.advance(h.next)
	}
	st.opened = true
	if st.newFile {
		// The file's identity is known now: positions in it may be stored.
		st.newFile = false
		st.depends = st.s.dependsNow(st)
		st.bound(group{})
	}
	return nil
}

// rotate names the file that follows. One that the dump made up, at its begin and after each file, repeats what is known.
func (st *stream) rotate(h header, body []byte) error {
	file, pos, ok := parseRotate(body)
	if !ok {
		return st.damaged("a rotate event cannot be read")
	}
	if st.file != nil && st.file.name == string(file) {
		if h.flags&flagArtificial != 0 && pos > st.pos {
			st.pos = pos
		}
		return nil
	}
	if st.tx.active && st.tx.begun {
		// A file never ends inside a transaction; one that its server's end cut off has no continuation.
		if err := st.endTx(h, false); err != nil {
			return err
		}
	}
	st.tx.active = false
	known := st.file != nil
	st.file, st.pos = &fileRef{name: string(file)}, pos
	st.fromTop = pos <= 4
	st.newFile = known
	return nil
}

// heartbeat says how far the server has read; nothing of ours lies before it.
func (st *stream) heartbeat(file []byte, pos uint64) {
	if st.tx.active || st.file == nil || string(file) != st.file.name || pos <= st.pos && pos != 0 {
		return
	}
	if pos > st.pos {
		st.pos = pos
		st.bound(group{})
	}
}

// bound puts a point between transactions behind everything that was read.
func (st *stream) bound(g group) {
	st.promote()
	st.ordinal++
	g.first, g.last, g.file, g.pos = st.ordinal, st.ordinal, st.file, st.pos
	g.depends, st.depends = st.depends, nil
	if st.adopt != nil {
		g.adopt, st.adopt, st.byFile = st.adopt, nil, false
	}
	if g.anonymous {
		st.byFile = true
	}
	st.ledger.add(g, st.wantedSince)
	st.wantedSince = false
	st.asm.commit(st.ordinal)
}

// begin starts a group.
func (st *stream) begin(h header, body []byte) error {
	if st.tx.active {
		if err := st.endTx(h, false); err != nil {
			return err
		}
	}
	t := txState{active: true, startFile: st.file, startPos: st.pos, saves: st.tx.saves[:0]}
	t.startPos -= uint64(h.size)
	switch h.kind {
	case evMariaGTID:
		g, flags, ok := parseMariaGTID(body, h.server)
		if !ok {
			return st.damaged("a GTID event cannot be read")
		}
		t.maria, t.hasMaria = g, true
		t.begun = flags&mariaStandalone == 0
		t.mariaXA = flags&mariaPreparedXA != 0
	case evGTIDTagged:
		last := ""
		if st.tx.hasGTID {
			last = st.tx.gtid.sid.tag
		}
		g, ok := parseGTIDTagged(body, last)
		if !ok {
			return st.damaged("a tagged GTID event cannot be read")
		}
		t.gtid, t.hasGTID = g, true
	default:
		g, ok := parseGTID(body)
		if !ok {
			return st.damaged("a GTID event cannot be read")
		}
		t.gtid = g
		t.hasGTID = h.kind == evGTID
		t.anonymous = h.kind == evAnonymousGTID
	}
	if t.gtid.commit != 0 {
		t.commit = time.UnixMicro(int64(t.gtid.commit))
	}
	st.tx = t
	st.tables = st.tables[:0]
	return nil
}

// ensure begins a group where the server writes no event for it (old files, GTIDs off on MariaDB before 10.0).
func (st *stream) ensure(h header) {
	if st.tx.active {
		return
	}
	st.tx = txState{active: true, anonymous: true, startFile: st.file, startPos: st.pos - uint64(h.size), saves: st.tx.saves[:0]}
	st.tables = st.tables[:0]
}

// txRef makes the Tx that rows refer to.
func (st *stream) txRef(h header) *event.Tx {
	t := &st.tx
	if t.tx != nil {
		return t.tx
	}
	var buf [160]byte
	b := append(buf[:0], st.s.o.Kind...)
	b = append(b, '/')
	head := len(b)
	switch {
	case t.hasMaria:
		b = t.maria.append(b)
	case t.hasGTID:
		b = t.gtid.sid.append(b)
		b = append(b, ':')
		b = strconv.AppendInt(b, t.gtid.gno, 10)
	default:
		if t.startFile != nil {
			b = append(b, t.startFile.name...)
		}
		b = append(b, ':')
		b = strconv.AppendUint(b, t.startPos, 10)
	}
	source := string(b)
	if t.commit.IsZero() {
		t.commit = time.Unix(int64(h.at), 0)
	}
	t.tx = &event.Tx{ID: source[head:], Source: source, Commit: t.commit}
	if p := st.prefix; p != nil {
		if p.Tx == t.tx.ID {
			t.skip = p.Rows
		}
	}
	return t.tx
}

// query takes in a statement.
func (st *stream) query(h header, q query) error {
	if len(q.text) == 5 && string(q.text) == "BEGIN" {
		st.ensure(h)
		st.tx.begun = true
		return nil
	}
	kind, name := statement(q.text)
	switch kind {
	case stmtBegin:
		st.ensure(h)
		st.tx.begun = true
		return nil
	case stmtCommit:
		return st.commitTx(h)
	case stmtRollback:
		return st.endTx(h, false)
	case stmtSavepoint:
		st.tx.saves = append(st.tx.saves, savepoint{name: name, rows: st.tx.rows, offset: -1})
		return nil
	case stmtRollbackTo:
		return st.rollbackTo(name)
	case stmtXAEnd:
		return nil
	case stmtXACommit:
		// Inside of a group it ends it. Alone it is the second phase of what was prepared before, whose rows, had there been any of
		// ours, stopped us when they were read.
		st.ensure(h)
		return st.endTx(h, st.tx.begun)
	case stmtXARollback:
		st.ensure(h)
		return st.endTx(h, false)
	}
	st.ensure(h)
	if kind == stmtDML {
		for i := range st.s.tables {
			if writes(q, &st.s.tables[i]) {
				return st.statementFault(&st.s.tables[i])
			}
		}
		st.s.sawStatement(st.here())
	}
	if kind == stmtDDL {
		for i := range st.s.tables {
			if touches(q, &st.s.tables[i]) {
				st.ddl(&st.s.tables[i])
			}
		}
	}
	if !st.tx.begun {
		return st.endTx(h, false)
	}
	return nil
}

func (st *stream) statementFault(t *table) error {
	return &event.Fault{Code: codeStatement, Class: event.Safety, Op: "read the binlog", Place: st.here(),
		Text: "a statement that names " + t.name + " was logged as a statement, not as rows: what it inserted cannot be read",
		Hint: "SET GLOBAL binlog_format = 'ROW'; and no session may set it otherwise. Then " + st.s.ways(codeStatement, "now", "GTID", "FILE:POS")}
}

func (st *stream) loadQuery(h header, body []byte) error {
	// thread 4, seconds 4, length of schema 1, error 2, length of status variables 2, file id 4, start 4, end 4, duplicates 1
	if len(body) < 26 {
		return st.damaged("an execute load query event cannot be read")
	}
	vars, schema := int(body[11])|int(body[12])<<8, int(body[8])
	if len(body) < 26+vars+schema+1 {
		return st.damaged("an execute load query event cannot be read")
	}
	return st.query(h, query{schema: body[26+vars : 26+vars+schema], text: body[26+vars+schema+1:]})
}

// commitTx ends the running group with its rows.
func (st *stream) commitTx(h header) error {
	st.ensure(h)
	return st.endTx(h, true)
}

// endTx ends the running group: its rows are published or dropped, and the position moves behind it.
func (st *stream) endTx(h header, commit bool) error {
	t := &st.tx
	if !commit && t.rows > 0 {
		st.asm.rollback()
		if st.spill != nil {
			if err := st.spill.discard(); err != nil {
				return err
			}
			st.spill = nil
		}
		t.rows = 0
	}
	t.active = false
	g := group{anonymous: t.anonymous && st.s.o.Kind == event.MySQL}
	if t.hasGTID {
		s := st.sids[t.gtid.sid]
		if s == nil {
			c := t.gtid.sid
			s = &c
			st.sids[c] = s
		}
		g.ran = gtidRun{s, t.gtid.gno, t.gtid.gno}
	}
	if t.hasMaria {
		g.maria = []mariaGTID{t.maria}
	}
	if t.rows > 0 {
		st.prefix = nil // counted only for the first transaction that has rows of ours
		st.wantedSince = true
	}
	if st.spill != nil {
		return st.startDrain(g)
	}
	st.bound(g)
	return nil
}

// rollbackTo drops the rows since a savepoint.
func (st *stream) rollbackTo(name string) error {
	for i := len(st.tx.saves) - 1; i >= 0; i-- {
		sp := st.tx.saves[i]
		if sp.name != name {
			continue
		}
		st.tx.saves = st.tx.saves[:i+1]
		if st.tx.rows == sp.rows {
			return nil
		}
		if st.spill != nil && sp.offset >= 0 {
			if err := st.spill.truncate(sp.offset); err != nil {
				return err
			}
		}
		st.asm.truncate(sp.rows)
		st.tx.rows = sp.rows
		return nil
	}
	if st.tx.rows == 0 {
		return nil
	}
	return &event.Fault{Code: codeUnread, Class: event.Safety, Op: "read the binlog", Place: st.here(),
		Text: "a rollback names a savepoint that the log does not set: which rows it takes back is unknown",
		Hint: "report this. " + st.s.ways(codeUnread, "now", "GTID", "FILE:POS")}
}

func (st *stream) xaPrepare(h header, body []byte) error {
	if len(body) < 1 {
		return st.damaged("an XA prepare event cannot be read")
	}
	if body[0] == 1 {
		return st.commitTx(h)
	}
	if st.tx.rows > 0 {
		return &event.Fault{Code: codeXA, Class: event.Safety, Op: "read the binlog", Place: st.here(),
			Text: "an XA transaction that inserts into an outbox table was prepared; this version cannot hold its rows until it is decided",
			Hint: "write outbox rows in transactions that commit in one phase (XA COMMIT … ONE PHASE, or no XA). Then " + st.s.ways(codeXA, "now", "GTID", "FILE:POS")}
	}
	return st.endTx(h, false)
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
			tm, err := parseTableMap(body)
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
	if !ok {
		return st.damaged("a rows event cannot be read")
	}
	if col := p.layout.lacks(img); col != "" {
		return &event.Fault{Code: codePartial, Class: event.Safety, Op: "read a row of " + p.table.name, Place: st.here(),
			Text: "the log leaves column " + col + " out (binlog_row_image is not FULL in the session that wrote it)",
			Hint: "SET GLOBAL binlog_row_image = 'FULL'; and no session may set it otherwise. Then " + st.s.ways(codePartial, "now", "GTID", "FILE:POS")}
	}
	tx := st.txRef(h)
	for len(rows) > 0 {
		if st.tx.rows < st.tx.skip {
			// Delivered before, by the stored prefix: its place is counted, its values are not wanted.
			st.scratch.buf = st.scratch.buf[:0]
			if rows, _, _, err = p.layout.decode(&st.scratch, &event.Event{}, img, rows); err != nil {
				return st.rowFault(p, err)
			}
			st.tx.rows++
			continue
		}
		seg := st.asm.room()
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
		ev.Tx, ev.Index, ev.Table = tx, st.tx.rows, p.table.name
		ev.Size = len(seg.buf) - at + eventOverhead
		st.tx.rows++
		if size := len(seg.buf) - at; size > st.s.rowLimit {
			seg.buf = seg.buf[:at]
			ev.Row, ev.Size = p.layout.row, eventOverhead
			ev.Err = st.tooLarge(p.table, size)
		} else if bad != nil {
			ev.Err = &event.Fault{Code: codeValue, Class: event.Record, Op: "read a row of " + p.table.name, Place: st.here(),
				Text: "column " + column, Hint: "correct the column or the mapping; the row follows its poison policy", Err: bad}
		}
		if st.asm.pending() > st.spillAt {
			if err := st.spillOut(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (st *stream) tooLarge(t *table, size int) *event.Fault {
	return &event.Fault{Code: codeTooLarge, Class: event.Record, Op: "read a row of " + t.name, Place: st.here(),
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
	case evWriteRows, evWriteRowsV1, evMariaWriteCompressed1, evMariaWriteCompressed2:
		p, _, err := st.planOf(h.kind, body)
		if p == nil || err != nil {
			return err
		}
		tx := st.txRef(h)
		if st.tx.rows >= st.tx.skip {
			seg := st.asm.room()
			seg.events = append(seg.events, event.Event{Tx: tx, Index: st.tx.rows, Table: p.table.name, Size: eventOverhead, Err: st.tooLarge(p.table, total)})
		}
		st.tx.rows++
		return nil
	case evUpdateRows, evUpdateRowsV1, evPartialUpdateRows:
		return st.update(h.kind, body)
	case evDeleteRows, evDeleteRowsV1, evRowsQuery, evMariaAnnotate, evMariaUpdateCompressed, evMariaUpdateCompressd2,
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
	p, _, err := st.planOf(kind, body)
	if p == nil || err != nil {
		return err
	}
	return st.s.sawUpdate(p.table, st.here())
}
