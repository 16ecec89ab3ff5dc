package binlog

import (
	"context"
	"fmt"

	"github.com/outtail/outtail/event"
)

// A transaction whose rows are more than limits.spill is read twice. When the spill file is full its rows are given up; the log is
// read on to the transaction's end, and they are only counted. Had it ended in ROLLBACK, that would have been all (I2). It
// committed, so the log is read again from where the transaction begins, and now that the end is known each row is handed out as
// it comes: memory and disk stay bounded whatever the size (I11). Rows that ROLLBACK TO took back were noted by their number in the
// first reading and are left out in the second, where nobody could wait for the word that takes them back.
//
// Nothing of this survives the session. A new one begins before the transaction, or with a prefix of it that was acked, and comes
// to the same rows in the same places: they are numbered by what counts, as in any other transaction.
type again struct {
	file       *fileRef
	start      uint64 // where the transaction begins
	gone       []rowSpan
	raw        uint64 // rows of the first reading
	lastTag    string
	accepted   []string // findings that were accepted, as they were when the transaction began
	running    bool     // the second reading has begun
	transcends bool     // start is beyond what a dump can name: the file is read from its top
}

// rowSpan is rows of a transaction by their number in the log, to not included.
type rowSpan struct{ from, to uint64 }

func (a *again) due() bool     { return a != nil && !a.running }
func (a *again) flowing() bool { return a != nil && a.running }

// before reports whether an event that ends at pos lies before the transaction.
func (a *again) before(pos uint64) bool { return a.flowing() && pos <= a.start }

// countOnly gives the rows of the open transaction up and goes on with their number.
func (st *stream) countOnly() error {
	st.log.Info("a transaction is larger than limits.spill: it is read to its end, then read again and sent as it comes",
		"tx", st.tx.tx.ID, "rows so far", st.tx.rows, "limit", st.s.o.SpillLimit)
	st.tx.counting = true
	st.asm.rollback()
	return st.dropSpill()
}

// dropSpill gives the spill file back.
func (st *stream) dropSpill() error {
	if st.spill == nil {
		return nil
	}
	p := st.spill
	st.spill = nil
	st.spillWorks()
	return p.discard()
}

// place numbers the next row. Of rows that do not count nothing else is done; those that count and are not wanted were delivered
// before, or will be.
func (t *txState) place(a *again) (counts, wanted bool) {
	raw := t.raw
	t.raw++
	if a.flowing() {
		for len(t.gone) > 0 && raw >= t.gone[0].to {
			t.gone = t.gone[1:]
		}
		if len(t.gone) > 0 && raw >= t.gone[0].from {
			return false, false
		}
	}
	return true, !t.counting && t.rows >= t.skip
}

// takeBack notes that the rows since a number were rolled back.
func (t *txState) takeBack(since uint64) {
	n := len(t.gone)
	for n > 0 && t.gone[n-1].from >= since {
		n--
	}
	t.gone = t.gone[:n]
	if n > 0 && t.gone[n-1].to >= since {
		t.gone[n-1].to = t.raw
		return
	}
	t.gone = append(t.gone, rowSpan{since, t.raw})
}

// readAgain asks for the second reading of the transaction that ends here.
func (st *stream) readAgain() error {
	t := &st.tx
	st.again = &again{file: t.startFile, start: t.startPos, gone: t.gone, raw: t.raw, lastTag: t.lastTag, accepted: t.accepted, transcends: t.startPos > maxPos}
	st.log.Info("the end of a transaction larger than limits.spill is known; it is read again", "tx", t.tx.ID, "rows", t.rows,
		"from", place{t.startFile.name, t.startPos}.String(), "to", st.place().String())
	return nil
}

// turnBack begins the second reading.
func (st *stream) turnBack(ctx context.Context) error {
	a := st.again
	from := origin{file: a.file.name, pos: a.start}
	if a.transcends {
		from.pos = 4
	}
	rd, err := st.redial(ctx, from)
	if err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	if st.inflate != nil {
		_ = st.inflate.src.discard()
		st.inflate = nil
	}
	st.readFrom(rd)
	st.file, st.pos, st.newFile, st.fromTop = a.file, from.pos, false, false
	st.tx, st.tables = txState{saves: st.tx.saves[:0]}, st.tables[:0]
	st.tx.gtid.sid.tag, st.tx.hasGTID = a.lastTag, a.lastTag != ""
	st.accepted = a.accepted
	a.running = true
	return nil
}

// dumpAgain opens another dump in place of the running one: a second one beside it would end the first.
func (s *Source) dumpAgain(ctx context.Context, from origin) (*wireReader, error) {
	c, err := s.connectSame(ctx)
	if err != nil {
		return nil, err
	}
	if s.stream != nil {
		id := s.stream.GetConnectionID()
		s.stream.close()
		if _, err := c.query(ctx, fmt.Sprintf("KILL CONNECTION %d", id)); err != nil {
			s.log.Debug("ending the first reading of a large transaction", "error", cause(err))
		}
	}
	s.stream = c
	if err := s.dump(ctx, c, from, s.self, 0); err != nil {
		return nil, err
	}
	return c.reader(silenceLimit, s.readLimit()), nil
}

// flowed ends the second reading, which must have met what the first one did.
func (st *stream) flowed(commit bool) error {
	a := st.again
	if !commit || st.tx.raw != a.raw {
		return &event.Fault{Code: codeUnread, Class: event.Safety, Op: "read a large transaction again", Place: st.here(),
			Text: fmt.Sprintf("it has %d rows, and had %d when it was read first (committed: %v)", st.tx.raw, a.raw, commit),
			Hint: "report this. " + st.s.ways(codeUnread, "now", "GTID", "FILE:POS")}
	}
	st.again = nil
	return nil
}
