package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outtail/outtail/event"
)

// xaMark goes with a position and says for which XA transactions prepared before it nothing could be kept. It is made where
// reading begins: at a first start, after `checkpoint set`, and when a table was added to the selection.
//
// XA RECOVER is asked after the position was chosen, and the log's end after that. Behind that end (Until) a commit is of a
// transaction that XA RECOVER listed (Before), or of one whose PREPARE we met. Up to it a transaction may have been decided
// before we asked, so there every commit counts whose PREPARE we did not meet; that is why up to there those without rows of
// ours are remembered too.
type xaMark struct {
	Store  string    `json:"store,omitempty"` // identity of what keeps rows, "" while nothing was kept
	Tables []string  `json:"tables"`
	Before []string  `json:"before,omitempty"`
	Until  *logPoint `json:"until,omitempty"`
	// Anew: a person went back, and it has to be made anew.
	Anew bool `json:"anew,omitempty"`
}

func (m *xaMark) clone() *xaMark {
	if m == nil {
		return nil
	}
	c := *m
	c.Before = slices.Clone(m.Before)
	return &c
}

// inWindow reports whether the stream is not beyond Until.
func (st *stream) inWindow() bool {
	m := st.s.mark
	if m == nil || m.Until == nil || st.file == nil {
		return false
	}
	c := compareFiles(st.file.name, m.Until.File)
	if c < 0 || c == 0 && st.pos <= m.Until.Pos {
		return true
	}
	m.Until = nil
	st.depends = st.s.dependsNow(st)
	return false
}

// fromBefore reports whether a commit may publish rows that nobody saw.
func (st *stream) fromBefore(name xid, k *kept) bool {
	if st.s.mark == nil {
		return false
	}
	for _, b := range st.s.mark.Before {
		if x, ok := parseXIDText([]byte(b)); ok && x.same(name) {
			return true
		}
	}
	return k == nil && st.inWindow()
}

// seenPrepared: the PREPARE was met, or the decision; a later one of this name is of another transaction.
func (st *stream) seenPrepared(name xid) {
	m := st.s.mark
	if m == nil || len(m.Before) == 0 {
		return
	}
	n := len(m.Before)
	m.Before = slices.DeleteFunc(m.Before, func(b string) bool {
		x, ok := parseXIDText([]byte(b))
		return ok && x.same(name)
	})
	if len(m.Before) < n {
		st.depends = st.s.dependsNow(st)
	}
}

// forgive: a person knows of what was prepared before.
func (st *stream) forgive() {
	st.s.mark.Before, st.s.mark.Until = nil, nil
	st.depends = st.s.dependsNow(st)
}

func (st *stream) beforeFault(name xid, k *kept) *event.Fault {
	text := fmt.Sprintf("XA transaction %s commits, which was prepared before the position at which reading began: if it inserted into an outbox table, these rows were not read", name)
	if k != nil {
		text = fmt.Sprintf("XA transaction %s commits, which was prepared before a table was added to the configuration: if it inserted into that one, these rows were not kept", name)
	}
	var others []string
	for _, b := range st.s.mark.Before {
		if x, ok := parseXIDText([]byte(b)); ok && !x.same(name) {
			others = append(others, b)
		}
	}
	if n := len(others); n > 10 {
		others = append(others[:10], fmt.Sprintf("and %d more", n-10))
	}
	if len(others) > 0 {
		text += "; prepared before, too: " + strings.Join(others, "; ")
	}
	return &event.Fault{Code: codeXA, Class: event.Safety, Op: "read the binlog", Place: st.here(), Text: text,
		Hint: "look at what it wrote. --to a position before its XA PREPARE reads it all again; accepting the finding leaves out the outbox rows of this one and of all others that the finding names. " +
			st.s.ways(codeXA, "GTID", "FILE:POS")}
}

// markXA makes sure that it is known what was prepared before the stored position. fresh: what the stored mark says does not
// hold for what will be read.
func (s *Source) markXA(ctx context.Context, c *conn, from event.Checkpoint, fresh bool) error {
	d := parseDepends(from.Depends)
	s.mark, s.addedTables = d.XA.clone(), false
	id := ""
	if s.o.Prepared != nil {
		var err error
		if id, err = s.o.Prepared.ID(); err != nil {
			return err
		}
	}
	if s.mark != nil && s.mark.Store != "" && s.mark.Store != id {
		if !slices.Contains(from.Accepted, codeXALost) {
			return s.fault(codeXALost, event.Safety, "resume after "+from.Position.String(),
				"parked.db, which keeps the rows of prepared XA transactions, is gone or is another one: when they commit, their outbox rows are missing",
				"restore parked.db and outtail.db together. Or accept it: the transactions that are still prepared are named when they commit. Or "+s.ways(codeXALost, "now", "GTID", "FILE:POS"))
		}
		fresh = true
	}
	tables := make([]string, len(s.tables))
	for i, t := range s.tables {
		tables[i] = t.schema + "." + t.table
	}
	slices.Sort(tables)
	anew := s.mark != nil && s.mark.Anew
	if s.mark != nil && !fresh {
		for _, t := range tables {
			s.addedTables = s.addedTables || !slices.Contains(s.mark.Tables, t)
		}
		fresh = s.addedTables || anew
		sameServer := s.mark.Until == nil || s.mark.Until.Server == s.serverName()
		if !fresh && sameServer {
			s.mark.Store, s.mark.Tables = id, tables
			return nil
		}
	}
	s.mark = &xaMark{Store: id, Tables: tables, Anew: anew}
	names, known, err := s.recoverXA(ctx, c)
	if err != nil {
		return err
	}
	if !known && s.o.Prepared != nil {
		s.log.Warn("XA transactions that were prepared before this position cannot be listed: if one of them inserted outbox rows, they are not sent when it commits, and nobody is told",
			"hint", "where XA transactions write outbox rows: GRANT XA_RECOVER_ADMIN ON *.* TO '"+s.o.User+"'@'%';")
	}
	for _, x := range names {
		s.mark.Before = append(s.mark.Before, x.String())
	}
	if len(names) > 0 {
		s.log.Warn("XA transactions are prepared already: outbox rows that they wrote before this position are not sent; a commit of one of them is a safety stop", "prepared", len(names), "code", codeXA)
	}
	end, err := s.logEnd(ctx, c, false)
	if err != nil {
		return err
	}
	s.mark.Until = &logPoint{Server: s.serverName(), File: end.file, Pos: end.pos}
	return nil
}

func (s *Source) serverName() string {
	if s.server.maria {
		return serverName("", s.server.id)
	}
	return serverName(s.server.uuid, s.server.id)
}

// recoverXA lists what is prepared on the server. known is false where the user may not know.
func (s *Source) recoverXA(ctx context.Context, c *conn) (names []xid, known bool, err error) {
	r, err := c.query(ctx, "XA RECOVER")
	var refused *mysql.MyError
	if errors.As(err, &refused) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, s.queryFault("list prepared XA transactions", err)
	}
	for i := range r.RowNumber() {
		// formatID, gtrid_length, bqual_length, data
		format, _ := r.GetString(i, 0)
		n, _ := r.GetInt(i, 1)
		m, _ := r.GetInt(i, 2)
		data, _ := r.GetString(i, 3)
		f, err := strconv.ParseInt(format, 10, 64)
		if err != nil || n < 0 || m < 0 || n+m > int64(len(data)) {
			continue
		}
		names = append(names, xid{uint64(f), data[:n], data[n : n+m]})
	}
	return names, true, nil
}

// openPrepared puts what is kept back to what it was at the position from which the session reads.
func (s *Source) openPrepared(at event.Position) error {
	kept, err := loadPrepared(s.o.Prepared, s.o.XALimit, reachOf(at))
	if err != nil {
		if event.AsFault(err) == nil {
			return &event.Fault{Code: codeXALost, Class: event.Safety, Op: "read parked.db", Place: s.place(),
				Text: "what is kept of prepared XA transactions cannot be read", Hint: s.ways(codeXALost, "now", "GTID", "FILE:POS"), Err: err}
		}
		return err
	}
	s.st.xa = kept
	s.st.askPrepared = func(ctx context.Context) ([]xid, bool) {
		c, err := s.connectSame(ctx)
		if err != nil {
			return nil, false
		}
		defer c.close()
		names, known, err := s.recoverXA(ctx, c)
		return names, known && err == nil
	}
	if n := len(kept.open); n > 0 {
		s.log.Info("prepared XA transactions wait for their decision", "transactions", n, "bytes", kept.bytes)
	}
	if s.mark.Anew {
		s.mark.keptHere(kept.open)
		s.mark.Anew = false
	}
	// Tables that were added since are not in what is kept.
	for _, k := range kept.open {
		if s.addedTables && !slices.Contains(s.mark.Before, k.XID) {
			s.mark.Before = append(s.mark.Before, k.XID)
		}
	}
	return nil
}
