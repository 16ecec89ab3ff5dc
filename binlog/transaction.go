package binlog

import (
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

// begin starts a group.
func (st *stream) begin(h header, body []byte) error {
	if st.tx.active {
		if err := st.abandon(); err != nil {
			return err
		}
	}
	t := txState{active: true, startFile: st.file, startPos: st.pos, saves: st.tx.saves[:0], at: h.at}
	t.startPos -= uint64(h.size)
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
		// A session may have set its timestamp to anything; nothing was committed before its file was begun.
		at := h.at
		if st.file != nil {
			at = max(at, st.file.stamp)
		}
		t.commit = time.Unix(int64(at), 0)
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
				if err := st.excuse(st.statementFault(&st.s.tables[i])); err != nil {
					return err
				}
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

func (st *stream) statementFault(t *table) *event.Fault {
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
			st.spillWorks()
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
	st.log.Warn("a transaction in the log has no end; it is dropped, as the server does", "at", st.here(), "rows", st.tx.rows)
	st.asm.rollback()
	st.tx.rows, st.tx.active = 0, false
	if st.spill != nil {
		p := st.spill
		st.spill = nil
		return p.discard()
	}
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

func (st *stream) xaPrepare(h header, body []byte) error {
	if len(body) < 1 {
		return st.damaged("an XA prepare event cannot be read")
	}
	if body[0] == 1 {
		return st.commitTx(h)
	}
	if st.tx.rows > 0 {
		f := &event.Fault{Code: codeXA, Class: event.Safety, Op: "read the binlog", Place: st.here(),
			Text: "an XA transaction that inserts into an outbox table was prepared; this version cannot hold its rows until it is decided",
			Hint: "write outbox rows in transactions that commit in one phase (XA COMMIT … ONE PHASE, or no XA). Then " + st.s.ways(codeXA, "now", "GTID", "FILE:POS")}
		if err := st.excuse(f); err != nil {
			return err
		}
	}
	return st.endTx(h, false)
}
