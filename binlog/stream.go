package binlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
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
	s  *Source
	rd *wireReader
	// waiting is the connection of rd, for whoever interrupts a read.
	waiting atomic.Pointer[net.Conn]
	asm     *assembler
	ledger  *ledger
	log     *slog.Logger

	sum     bool     // events end in a CRC32
	file    *fileRef // nil until the first ROTATE
	pos     uint64   // behind the last event, in file
	fromTop bool     // the file is read from its beginning
	newFile bool     // a ROTATE named a file whose format description is still to come
	opened  bool     // the first format description was read

	sids       map[sid]*sid
	ordinal    uint64
	byFile     bool     // the position is a file position: no GTID set is known
	adopt      *gtidSet // the set before the next group, learnt at the top of a file
	adoptMaria mariaPos
	domains    *domains // MariaDB
	body       []byte   // of the event that is taken in
	depends    []byte   // to be attached to the next group
	prefix     *event.Prefix
	redial     func(ctx context.Context, from origin) (*wireReader, error) // opens another dump in place of this one
	accepted   []string                                                    // findings that a person accepted and that were not met so far
	tables     []mapped                                                    // of the running group
	lastMap    []byte                                                      // the TABLE_MAP_EVENT that lastPlan was made from, without its id
	lastPlan   *plan

	tx          txState
	scratch     segment // for rows that are counted and not kept
	wantedSince bool    // events of ours since the last bound
	emptyAt     time.Time
	spill       *spill
	spillAt     int
	drain       *drain
	inflate     *inflated
	giant       *spill        // of a payload event that is too large for memory
	again       *again        // a transaction that has to be read a second time, or is
	wide        *wideRows     // the rows event that is read as it comes
	inflated    []byte        // room for MariaDB's compressed events
	zstd        *zstd.Decoder // reused; Close gives its goroutines back
	xa          *prepared
	holding     *holding
	release     *release
	askPrepared func(context.Context) (names []xid, known bool) // nil: nobody can be asked
	held        error                                           // what to report once everything before it was handed out
}

// readFrom makes a reader the one that is read.
func (st *stream) readFrom(rd *wireReader) {
	rd.overflow = st.overflow
	st.rd = rd
	st.waiting.Store(&rd.conn)
}

// read gives the next batch. It waits for the network only when nothing finished is at hand.
func (st *stream) read(ctx context.Context) (*event.Batch, error) {
	for {
		if st.asm.whole() {
			return st.handOut()
		}
		if st.holding != nil || st.release != nil {
			if b, err := st.waitingXA(ctx); b != nil || err != nil {
				return b, err
			}
			continue
		}
		if st.drain != nil {
			if b, err := st.drainNext(); b != nil || err != nil {
				return b, err
			}
			continue
		}
		idle := st.inflate == nil && !st.rd.ready() || st.again.due()
		if idle && st.held == nil && st.again == nil {
			st.lookIdle()
		}
		if idle || st.held != nil {
			some, events := st.asm.finished()
			if some && (events || st.held != nil || time.Since(st.emptyAt) >= emptyEvery) {
				if !events {
					st.emptyAt = time.Now()
				}
				return st.handOut()
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
		if err := st.xa.sweep(st.s.confirmed.Load(), reachOf, false); err != nil {
			return nil, st.keepFault(err)
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
		_ = (*st.waiting.Load()).SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !undo() {
			<-woken
		}
	}
}

// step reads and takes in one event.
func (st *stream) step(ctx context.Context) error {
	if st.again.due() {
		return st.turnBack(ctx)
	}
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
		st.body = nil
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
	if st.again.before(st.pos) {
		return nil
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

// dispatch takes in one event whose checksum is gone; a TRANSACTION_PAYLOAD's events come here too.
func (st *stream) dispatch(h header, body []byte, whole bool, total int) error {
	st.body = body
	if st.wide != nil {
		return st.wideEnd()
	}
	if !whole {
		return st.oversized(h, body, total)
	}
	switch h.kind {
	case evTableMap:
		if !st.tx.active {
			return st.amidst()
		}
		return st.tableMap(body)
	case evWriteRows, evWriteRowsV1:
		return st.rowsEvent(h, body)
	case evUpdateRows, evUpdateRowsV1, evPartialUpdateRows:
		return st.update(h.kind, body)
	case evDeleteRows, evDeleteRowsV1:
		return st.deleted(h.kind, body)
	case evXID:
		if !st.tx.active {
			return st.amidst()
		}
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
		if st.byFile && st.fromTop && st.adopt == nil && !st.tx.active {
			if set, err := decodeGTIDSet(body); err == nil {
				st.adopt = set
			}
		}
		return nil
	case evMariaGTIDList:
		if st.byFile && st.fromTop && st.adopt == nil && st.adoptMaria == nil && !st.tx.active {
			if pos, ok := parseMariaGTIDList(body); ok && st.domains.ordered() {
				st.adoptMaria = pos
				st.domains.begin(pos)
			}
		}
		return nil
	case evIncident:
		return st.excuse(st.s.fault(codeIncident, event.Safety, "read the binlog",
			"the server logged an incident at "+st.here()+": it may have lost events",
			st.s.ways(codeIncident, "now", "GTID", "FILE:POS")))
	case evIntvar, evRand, evUserVar, evBeginLoadQuery, evRowsQuery, evMariaAnnotate, evMariaCheckpoint, evStop,
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
	if st.again != nil && st.again.file.stamp != h.at {
		return st.damaged("the binlog was written anew while a large transaction was read")
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
	if st.tx.active {
		// A file never ends inside of a transaction.
		if err := st.abandon(); err != nil {
			return err
		}
	}
	known := st.file != nil
	if st.file != nil && sameBase(st.file.name, string(file)) && compareFiles(st.file.name, string(file)) >= 0 {
		return st.s.fault(codeLost, event.Retry, "read the binlog", "behind "+st.file.name+" the server goes on with "+string(file)+": its log was reset", "the connection is made anew, and what happened is looked at")
	}
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
	if st.adopt != nil && g.ran.sid != nil {
		// A set is taken over where transactions have GTIDs: what gtid_mode was when we connected may have changed since.
		g.adopt, st.byFile = st.adopt, false
	}
	if g.ran.sid != nil || g.anonymous {
		st.adopt = nil
	}
	if st.adoptMaria != nil {
		g.adoptMaria, st.adoptMaria, st.byFile = st.adoptMaria, nil, false
	}
	if g.anonymous {
		st.byFile = true
	}
	st.ledger.add(g, st.wantedSince)
	st.wantedSince = false
	st.asm.commit(st.ordinal)
}
