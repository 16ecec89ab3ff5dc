package binlog

import (
	"slices"
	"strconv"
	"time"

	"github.com/outtail/outtail/event"
)

// txState is the running group.
type txState struct {
	active    bool // between the event that begins a group and the one that ends it
	begun     bool // BEGIN was seen: ends with XID, COMMIT or ROLLBACK
	startFile *fileRef
	startPos  uint64
	sum       uint32 // MySQL: of the GTID event
	at        uint32 // of the GTID event
	gtid      gtidEvent
	hasGTID   bool
	anonymous bool
	maria     mariaGTID
	hasMaria  bool
	name      xid // of the XA transaction, where the log says it in full
	named     bool
	halfAlter bool // MariaDB: an ALTER TABLE that begins, or is taken back
	commit    time.Time
	tx        *event.Tx
	rows      uint64 // of ours, those of a prefix included
	skip      uint64 // rows of the stored prefix
	saves     []savepoint

	raw      uint64    // rows of ours as the log has them, those that were taken back included
	gone     []rowSpan // those that were
	counting bool      // the rows are more than limits.spill: see again
	lastTag  string    // of the group before: a tagged GTID may refer to it
	accepted []string  // what was accepted when the group began
}

type savepoint struct {
	name   string
	rows   uint64
	raw    uint64
	offset int64 // in the spill file; -1 not there
}

// begin starts a group.
func (st *stream) begin(h header, body []byte) error {
	if st.tx.active {
		if err := st.abandon(); err != nil {
			return err
		}
	}
	t := st.newTx(h)
	if st.again.flowing() && t.startPos != st.again.start {
		return st.damaged("a large transaction is not where it was when it was read first")
	}
	if h.kind != evMariaGTID {
		t.sum = eventSum(h, body)
	}
	switch h.kind {
	case evMariaGTID:
		g, flags, ok := parseMariaGTID(body, h.server)
		if !ok {
			return st.damaged("a GTID event cannot be read")
		}
		t.maria, t.hasMaria = g, true
		t.begun = flags&mariaStandalone == 0
		t.halfAlter = halfAlter(body)
	case evGTIDTagged:
		last := ""
		if st.tx.hasGTID {
			last = st.tx.gtid.sid.tag
			t.lastTag = last
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

// amidst: what belongs into a transaction comes without its begin.
func (st *stream) amidst() error {
	return st.s.fault(codeDump, event.Safety, "read the binlog", st.here()+" is inside of a transaction: its begin, and with it the table that rows belong to, lies before the position",
		st.s.ways(codeDump, "now", "earliest", "GTID", "FILE:POS"))
}

// ensure begins a group where the server writes no event for it (old files, GTIDs off on MariaDB before 10.0).
func (st *stream) ensure(h header) {
	if st.tx.active {
		return
	}
	st.tx = st.newTx(h)
	st.tx.anonymous = true
	st.tables = st.tables[:0]
}

func (st *stream) newTx(h header) txState {
	t := txState{active: true, startFile: st.file, startPos: st.pos - uint64(h.size), saves: st.tx.saves[:0], accepted: slices.Clone(st.accepted), at: h.at}
	if st.again.flowing() {
		t.gone = st.again.gone
	}
	return t
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
		// A session may have set its timestamp to anything; nothing was committed before its file was begun.
		at := h.at
		if st.file != nil {
			at = max(at, st.file.stamp)
		}
		t.commit = time.Unix(int64(at), 0)
	}
	// The same towards the future, and for a clock that is ahead: a broker refuses a record whose time is (by default) an hour ahead.
	if now := time.Now(); t.commit.Sub(now) > clockSkew {
		t.commit = now
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
		if err := st.rolledBack(); err != nil {
			return err
		}
		return st.endTx(h, false)
	case stmtSavepoint:
		st.tx.save(name)
		return nil
	case stmtRollbackTo:
		return st.rollbackTo(name)
	case stmtXAEnd:
		st.tx.name, st.tx.named = xaName(q.text)
		return nil
	case stmtXACommit, stmtXARollback:
		return st.xaDecided(h, q.text, kind == stmtXACommit)
	}
	st.ensure(h)
	if kind == stmtDML || kind == stmtSelect {
		if err := st.logged(q); err != nil {
			return err
		}
	}
	if kind == stmtDDL && !st.tx.halfAlter {
		st.s.carriers.follow(q, st.s.tables)
		for i := range st.s.tables {
			st.ddl(&st.s.tables[i], changes(q, &st.s.tables[i], st.s.folded, st.s.o.Kind == event.MariaDB))
		}
	}
	if !st.tx.begun {
		return st.endTx(h, false)
	}
	return nil
}

// logged takes in a statement that changed data and was logged as such, not as rows (binlog_format STATEMENT or MIXED, in a
// session if not on the server). One that adds to an outbox table stops us, whichever way it does; DELETE is cleaning up; an UPDATE
// is what it is as rows (on_update); others are foreign.
func (st *stream) logged(q query) error {
	s := st.s
	w := writtenBy(q.text)
	for i := range s.tables {
		t := &s.tables[i]
		if w.into(q, t.schema, t.table) {
			return st.excuse(st.statementFault("it adds to "+t.name+": what it inserted cannot be read", ""))
		}
	}
	s.lookForCarriers(s.reading)
	if f := st.carried(q, &w); f != nil {
		return st.excuse(f)
	}
	for i := range s.tables {
		if t := &s.tables[i]; w.changes(q, t.schema, t.table) {
			if f := s.sawUpdate(t, st.here(), 1); f != nil {
				if err := st.excuse(f); err != nil {
					return err
				}
			}
		}
	}
	s.sawStatement(st.here(), string(q.schema))
	return nil
}

func (st *stream) statementFault(why, hint string) *event.Fault {
	return &event.Fault{Code: codeStatement, Class: event.Safety, Op: "read the binlog", Place: st.here(), Text: "a statement was logged as a statement, not as rows; " + why,
		Hint: hint + "SET GLOBAL binlog_format = 'ROW'; and no session may set it otherwise. Then " + st.s.ways(codeStatement, "now", "GTID", "FILE:POS")}
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
	return st.query(h, query{schema: body[26+vars : 26+vars+schema], text: body[26+vars+schema+1:], vars: body[26 : 26+vars]})
}

// clockSkew is how far the server's clock may be ahead of ours before a commit's time is not believed.
const clockSkew = 10 * time.Minute

// commitTx ends the running group with its rows.
func (st *stream) commitTx(h header) error {
	st.ensure(h)
	return st.endTx(h, true)
}

// endTx ends the running group: its rows are published or dropped, and the position moves behind it.
func (st *stream) endTx(h header, commit bool) error {
	t := &st.tx
	if commit && st.spill != nil {
		if err := st.spillOut(); err != nil { // the rest; it may be too much
			return err
		}
	}
	if commit && t.counting && t.rows > 0 {
		return st.readAgain()
	}
	if st.again.flowing() {
		if err := st.flowed(commit); err != nil {
			return err
		}
	}
	if !commit && t.rows > 0 {
		st.asm.rollback()
		if err := st.dropSpill(); err != nil {
			return err
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
		g.seen.mysql = t.gtid
	}
	if t.hasMaria {
		g.maria = []mariaGTID{t.maria}
		g.seen = witness{from: st.pos - uint64(h.size), sum: eventSum(h, st.body), maria: t.maria, at: t.at, before: st.domains.last[t.maria.domain]}
		st.ordered(&g, t.maria)
	} else if t.sum != 0 {
		g.seen.from, g.seen.sum = t.startPos, t.sum
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

// abandon drops a group that has no end, as the crash of a server leaves it. It gives no bound and its GTID does not count: a
// server that lost it may use the number again.
func (st *stream) abandon() error {
	if st.again.flowing() {
		return st.flowed(false)
	}
	st.log.Warn("a transaction in the log has no end; it is dropped, as the server does", "at", st.here(), "rows", st.tx.rows)
	st.asm.rollback()
	st.tx.rows, st.tx.active = 0, false
	return st.dropSpill()
}

// rolledBack looks at a group with rows of ours that ends in ROLLBACK. Servers log one where a statement in it touched a table
// without transactions. Rows of such a table stay although it was rolled back: of ours nobody can tell what became of them.
// (As rows, servers log those in a group of their own, which ends in COMMIT.)
func (st *stream) rolledBack() error {
	if st.tx.rows == 0 {
		return nil
	}
	for i := range st.tables {
		p := st.tables[i].plan
		if p == nil {
			continue
		}
		safe, err := st.s.transactional(st.s.reading, p.table)
		if err != nil {
			return err
		}
		if !safe {
			return st.excuse(&event.Fault{Code: codeEngine, Class: event.Safety, Op: "read the binlog", Place: st.here(),
				Text: "rows of " + p.table.name + " are in a transaction that was rolled back, and its storage engine keeps them all the same: whether they count is unknown",
				Hint: "ALTER TABLE " + backtick(p.table.schema) + "." + backtick(p.table.table) + " ENGINE = InnoDB; accepted, they are not sent. " + st.s.ways(codeEngine, "now", "GTID", "FILE:POS")})
		}
	}
	return nil
}

// savesLooked is how many savepoints are looked at for one of the same name, which a new one replaces: a loop sets the same one
// again and again, and must not grow the list.
const savesLooked = 8

func (t *txState) save(name string) {
	for i := len(t.saves) - 1; i >= max(0, len(t.saves)-savesLooked); i-- {
		if t.saves[i].name == name {
			t.saves = slices.Delete(t.saves, i, i+1)
			break
		}
	}
	t.saves = append(t.saves, savepoint{name: name, rows: t.rows, raw: t.raw, offset: -1})
}

// rollbackTo drops the rows since a savepoint.
func (st *stream) rollbackTo(name string) error {
	if st.again.flowing() {
		return nil // known from the first reading
	}
	for i := len(st.tx.saves) - 1; i >= 0; i-- {
		sp := st.tx.saves[i]
		if sp.name != name {
			continue
		}
		st.tx.saves = st.tx.saves[:i+1]
		if st.tx.rows == sp.rows {
			return nil
		}
		st.tx.takeBack(sp.raw)
		if st.spill != nil && sp.offset >= 0 {
			if err := st.spill.truncate(sp.offset); err != nil {
				return st.spillFault(err)
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
