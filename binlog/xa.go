package binlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/outtail/outtail/event"
)

// A prepared XA transaction is two groups of the log: its rows, which end in XA PREPARE, and, any time later and from any
// connection, XA COMMIT or XA ROLLBACK of its name. Its rows are decoded when they come, since nobody knows what their table
// will look like later, and wait in the store of prepared.go. With the commit they are the rows of the commit's group: its
// GTID, its time, its place in the order (I3). What has no rows of ours is not remembered and costs nothing.
//
// That leaves what was prepared before the position at which reading began, whose rows nobody will see. xaMark knows those.

// releaseAt is up to how many bytes a transaction's rows are released through the assembler, with others in one batch; larger
// ones piece by piece.
const releaseAt = 1 << 20

// holding is a prepared transaction for whose rows there is no room. The log is not read on.
type holding struct {
	h      header
	name   xid
	need   int64
	credit int64
	asked  time.Time
}

// release gives out a large committed transaction.
type release struct {
	h header
	k *kept
	r *spillReader
}

// never: there will be no room, since the rows are not there any more. They were more than limits.spill.
const never = math.MaxInt64 / 2

// conditionXA is the key of the condition that rows of a prepared transaction cannot be kept.
const conditionXA = "xa"

// point is the place behind the event that was read last, as the end of the running group.
func (st *stream) point() logPoint {
	t, p := &st.tx, logPoint{Server: serverName(st.s.server.uuid, st.s.server.id), Pos: st.pos}
	if st.s.o.Kind == event.MariaDB {
		p.Server = serverName("", st.s.server.id)
	}
	switch {
	case t.hasMaria:
		p.GTID = t.maria.String()
	case t.hasGTID:
		p.GTID = fmt.Sprintf("%s:%d", t.gtid.sid, t.gtid.gno)
	}
	if st.file != nil {
		p.File = st.file.name
	}
	return p
}

// handOut gives what is finished, once what lies before its bounds is durable.
func (st *stream) handOut() (*event.Batch, error) {
	if err := st.xa.flush(); err != nil {
		st.held = st.keepFault(err)
		return nil, st.held
	}
	return st.asm.take(), nil
}

// waitingXA goes on with what keeps the log from being read on: a prepared transaction without room, or one that is released.
func (st *stream) waitingXA(ctx context.Context) (b *event.Batch, err error) {
	if st.held != nil {
		return nil, st.held
	}
	if st.release != nil {
		b, err = st.releaseNext()
	} else if some, _ := st.asm.finished(); some {
		b, err = st.handOut()
	} else {
		err = st.waitForRoom(ctx)
	}
	if errors.Is(err, errInterrupted) {
		return nil, ctx.Err()
	}
	st.held = err
	return b, err
}

// xaName reads the name in XA END, XA COMMIT and XA ROLLBACK.
func xaName(text []byte) (xid, bool) {
	_, rest := firstWord(text)
	_, rest = firstWord(rest)
	return parseXIDText(rest)
}

// xaPrepare ends a group whose rows wait for the decision, or which was committed in one phase.
func (st *stream) xaPrepare(h header, body []byte) error {
	onePhase, name, ok := parseXIDEvent(body)
	if !ok {
		return st.damaged("an XA prepare event cannot be read")
	}
	if onePhase {
		return st.commitTx(h)
	}
	if st.tx.named {
		name = st.tx.name // with all of its format
	}
	st.ensure(h)
	st.seenPrepared(name)
	if old := st.xa.find(name); old != nil {
		// A name is used again only after its decision, which is not in the log: the server crashed before the transaction was
		// really prepared.
		st.log.Warn("an XA transaction was never decided, and its name is used again: its rows are dropped, as the server did", "xid", old.XID, "at", st.here())
		st.decided(old)
	}
	if st.tx.rows == 0 && (!st.inWindow() || st.xa.store == nil) {
		return st.endTx(h, false)
	}
	if st.xa.store == nil {
		return &event.Fault{Code: codeXA, Class: event.Safety, Op: "read the binlog", Place: st.here(),
			Text: "an XA transaction that inserts into an outbox table was prepared, and there is no place to keep its rows",
			Hint: "this is a fault in outtail, please report it. " + st.s.ways(codeXA, "now", "GTID", "FILE:POS")}
	}
	need := int64(st.asm.pending())
	if st.spill != nil {
		need += st.spill.size
	}
	if st.tx.counting {
		need = never
	}
	st.holding = &holding{h: h, name: name, need: need}
	if st.xa.fits(need, 0) {
		return st.keep()
	}
	return nil
}

// keep puts the running group's rows into the store and ends the group.
func (st *stream) keep() error {
	hold, p := st.holding, st.xa
	st.holding = nil
	if p.file == "" {
		id, err := p.store.Create()
		if err != nil {
			return st.keepFault(err)
		}
		p.file, st.s.mark.Store = id, id
		st.depends = st.s.dependsNow(st)
	}
	if st.spill != nil || st.asm.pending() > writeBytes {
		if err := st.spillOut(); err != nil {
			return err
		}
		if st.tx.counting {
			hold.need = never
			st.holding = hold
			return nil
		}
	}
	p.lastID++
	k := &kept{id: p.lastID, XID: hold.name.String(), name: hold.name, At: st.point(), Rows: st.tx.rows, mem: map[string][]byte{}}
	if st.tx.tx != nil {
		k.Tx = st.tx.tx.ID
	}
	w := &chunkWriter{p: p, k: k, ctx: st.s.reading, late: st.spill != nil}
	if err := st.writeRows(w); err != nil {
		return err
	}
	k.Partial = false
	p.head(k)
	p.open = append(p.open, k)
	p.fresh = append(p.fresh, k)
	p.bytes += k.size()
	st.wantedSince = true // see decided
	if p.wait >= writeBytes || w.late {
		if err := p.flush(); err != nil {
			return st.keepFault(err)
		}
	}
	st.s.o.Conditions(conditionXA, nil)
	return st.endTx(hold.h, false)
}

func (st *stream) writeRows(w *chunkWriter) error {
	if !w.late {
		rows := rowWriter(w)
		if err := st.asm.each(rows.append); err != nil {
			return err
		}
		if err := rows.w.Flush(); err != nil {
			return err
		}
		return w.chunk()
	}
	r, err := st.spill.reader()
	if err != nil {
		return st.spillFault(err)
	}
	st.spillWorks()
	// What was written so far belongs to earlier groups. A head that says that the rest is missing comes first: what a crash
	// leaves is found by it.
	w.k.Partial = true
	w.p.head(w.k)
	if err := w.p.flush(); err != nil {
		return st.keepFault(err)
	}
	if _, err := io.Copy(w, r.r); err != nil {
		return st.keepFault(err)
	}
	return w.chunk()
}

// keepFault: each new session meets the same transaction, so that it is said as long as it lasts.
func (st *stream) keepFault(err error) error {
	f := event.AsFault(err)
	if f == nil {
		return err
	}
	if f.Class == event.Retry || f.Class == event.Config || f.Class == event.Environment {
		st.s.o.Conditions(conditionXA, f)
	}
	return f
}

// waitForRoom tries again to keep what is held. Room comes when the stored position leaves decided transactions behind; and
// when somebody decides one that is kept, since its decision then lies ahead in the log, so that reading on frees it.
func (st *stream) waitForRoom(ctx context.Context) error {
	hold := st.holding
	if err := st.xa.sweep(st.s.confirmed.Load(), reachOf, true); err != nil {
		return st.keepFault(err)
	}
	if st.xa.fits(hold.need, 0) {
		return st.keep()
	}
	if st.askPrepared != nil && time.Since(hold.asked) >= sweepEvery {
		hold.asked = time.Now()
		if names, known := st.askPrepared(ctx); known {
			hold.credit = 0
			for _, k := range st.xa.open {
				if !slices.ContainsFunc(names, k.name.same) {
					hold.credit += k.size()
				}
			}
		}
	}
	if st.xa.fits(hold.need, hold.credit) {
		return st.keep()
	}
	st.s.o.Conditions(conditionXA, st.fullFault())
	again := time.NewTimer(sweepEvery)
	defer again.Stop()
	select {
	case <-ctx.Done():
		return errInterrupted
	case <-st.s.moved:
	case <-again.C:
	}
	return nil
}

func (st *stream) fullFault() *event.Fault {
	hold, p := st.holding, st.xa
	if st.tx.counting {
		return &event.Fault{Code: codeXAFull, Class: event.Retry, Op: "keep a prepared XA transaction", Place: st.here(),
			Text: fmt.Sprintf("the rows of %s take more than limits.spill (%d bytes)", hold.name, st.s.o.SpillLimit),
			Hint: "raise limits.spill, and limits.xa as far, and start again; nothing is lost, reading waits before it"}
	}
	if len(p.open) == 0 && len(p.decided) == 0 {
		return &event.Fault{Code: codeXAFull, Class: event.Retry, Op: "keep a prepared XA transaction", Place: st.here(),
			Text: fmt.Sprintf("the rows of %s take %d bytes, more than limits.xa (%d)", hold.name, hold.need, p.limit),
			Hint: "raise limits.xa and start again; nothing is lost, reading waits before it"}
	}
	oldest := "all of them are decided, and go when their events are acknowledged"
	if len(p.open) > 0 {
		oldest = fmt.Sprintf("the oldest is %s, prepared at %s", p.open[0].XID, p.open[0].At)
	}
	return &event.Fault{Code: codeXAFull, Class: event.Retry, Op: "keep a prepared XA transaction", Place: st.here(),
		Text: fmt.Sprintf("rows of %d prepared XA transactions fill limits.xa (%d bytes): %s", len(p.open)+len(p.decided), p.limit, oldest),
		Hint: "XA RECOVER; lists what is prepared. Decide the oldest with XA COMMIT or XA ROLLBACK (seen where the user has XA_RECOVER_ADMIN), or raise limits.xa and start again; nothing is lost, reading waits"}
}

// String is for people.
func (p logPoint) String() string {
	if p.GTID != "" {
		return p.GTID
	}
	return fmt.Sprintf("%s:%d", p.File, p.Pos)
}

// xaDecided takes in XA COMMIT or XA ROLLBACK.
func (st *stream) xaDecided(h header, text []byte, commit bool) error {
	st.ensure(h)
	if st.tx.rows > 0 { // a group that holds its rows itself
		return st.endTx(h, commit && st.tx.begun)
	}
	name, ok := xaName(text)
	if !ok {
		return st.damaged("the name of an XA transaction cannot be read")
	}
	k := st.xa.find(name)
	if commit && st.fromBefore(name, k) {
		if err := st.excuse(st.beforeFault(name, k)); err != nil {
			return err
		}
		st.forgive()
	}
	st.seenPrepared(name)
	if k == nil || !commit || k.Rows == 0 {
		if k != nil {
			st.decided(k)
		}
		return st.endTx(h, false)
	}
	st.txRef(h)
	st.release = &release{h: h, k: k, r: st.xa.rows(k)}
	if k.Bytes > releaseAt {
		return nil
	}
	for {
		more, err := st.releaseRow(st.asm.room(0))
		if err != nil {
			return err
		}
		if !more {
			return st.released()
		}
	}
}

// releaseRow puts the next row into a segment. more is false when the group is ended.
func (st *stream) releaseRow(seg *segment) (more bool, err error) {
	ev, at := event.Event{Tx: st.tx.tx}, len(seg.buf)
	err = st.release.r.next(seg, &ev)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		if f := event.AsFault(err); f != nil {
			return false, f
		}
		return false, &event.Fault{Code: codeXALost, Class: event.Safety, Op: "read the rows of " + st.release.k.XID, Place: st.here(),
			Text: "rows that were kept of a prepared XA transaction cannot be read", Hint: st.s.ways(codeXALost, "GTID", "FILE:POS"), Err: err}
	}
	ev.Index = st.tx.rows
	mine := slices.ContainsFunc(st.s.tables, func(t table) bool { return t.name == ev.Table })
	if mine {
		st.tx.rows++
	}
	if !mine || ev.Index < st.tx.skip {
		seg.buf = seg.buf[:at] // of a table that is not ours any more, or delivered before
		return true, nil
	}
	seg.events = append(seg.events, ev)
	return true, nil
}

// decided marks a transaction as decided by the running group. Its bound stands for itself: what joins an earlier one in the
// ledger may be stored as soon as that one may, which is before the mark is durable.
func (st *stream) decided(k *kept) {
	st.xa.decide(k, st.point())
	st.wantedSince = true
}

// released ends the group of a commit whose rows are all out.
func (st *stream) released() error {
	r := st.release
	st.release = nil
	st.decided(r.k)
	return st.endTx(r.h, true)
}

// releaseNext hands out what was finished before, then the rows by segments; the bound goes with the last.
func (st *stream) releaseNext() (*event.Batch, error) {
	if some, _ := st.asm.finished(); some {
		return st.handOut()
	}
	seg := st.asm.segment()
	for !seg.full() {
		more, err := st.releaseRow(seg)
		if err != nil {
			return nil, err
		}
		if !more {
			st.asm.segs = append(st.asm.segs[:0], seg)
			st.asm.done = mark{}
			return nil, st.released()
		}
	}
	return st.asm.batch(seg), nil
}
