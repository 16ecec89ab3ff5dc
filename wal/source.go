package wal

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outtail/outtail/event"
)

// Source reads one replication slot. One goroutine calls Open, Read and Close; Position, Confirm and Lag may be called
// from others.
type Source struct {
	o     Options
	names []name
	pool  sync.Pool // of *load, across sessions
	hold  *window   // across sessions
	stuck stuck     // across sessions
	// logEnd is where the server's log ended when the session was opened.
	logEnd event.Position

	session *session // owned by the goroutine of Open, Read and Close
	shared  atomic.Pointer[session]
}

// session is one connection to the slot, from Open to Close.
type session struct {
	position event.Position // identity of the server; the LSN comes from bounds
	read     *reader
	answer   *answerer
	watch    *watcher
	lost     context.Context    // ends when the session turns out to be over although nobody reads
	stop     context.CancelFunc // of the watcher
	silence  time.Duration
	passed   atomic.Uint64 // decoder.at, for Lag
	handed   atomic.Uint64 // the last bound that was handed over
	saved    atomic.Int64  // when the position was, microseconds
	timeline atomic.Uint32 // of what is read; a standby changes it while it streams

	load   *load
	idleAt time.Time // when progress without events was told last
	err    error     // why reading ended
	found  atomic.Pointer[event.Fault]
}

// New checks the options. It connects to nothing.
func New(o Options) (*Source, error) {
	names, f := o.check()
	if f != nil {
		return nil, f
	}
	s := &Source{o: o, names: names, hold: newWindow(&o)}
	s.pool.New = func() any { return newLoad(&s.pool) }
	return s, nil
}

// Read implements pipeline.Source. It reads the socket in the caller's goroutine: while the caller is away nothing is
// read, and the server waits (I11).
func (s *Source) Read(ctx context.Context) (*event.Batch, error) {
	c := s.session
	if c == nil {
		return nil, faultNotOpen()
	}
	defer context.AfterFunc(ctx, func() { c.interrupt() })()
	for {
		if f := c.found.Load(); f != nil {
			return nil, since(f, time.UnixMicro(c.saved.Load()))
		}
		if c.load == nil {
			c.load = s.pool.Get().(*load)
		}
		if c.err == nil {
			c.err = c.read.parse(c.load)
			c.passed.Store(uint64(c.read.dec.at))
		}
		if c.answer.overdue() {
			c.stopWith(faultConnectionLost(s.o.place()+" slot "+s.o.Slot, errOverdue))
			continue
		}
		now := time.Now()
		if c.ready(now) {
			return c.hand(now), nil
		}
		if c.err != nil {
			return nil, since(s.streamFault(c), time.UnixMicro(c.saved.Load()))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		deadline := now.Add(c.silence)
		due := c.idleAt.Add(idleEvery)
		if len(c.load.batch.Bounds) > 0 && due.Before(deadline) {
			deadline = due
		}
		err := c.read.fill(ctx, deadline)
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			// An end of ctx, a finding, progress that is due, or silence; the loop finds out which.
			if since := time.Now(); !since.Before(now.Add(c.silence)) {
				c.err = faultSilent(s.o.place())
			}
		default:
			c.err = err
		}
	}
}

// ready says whether the batch is to be handed over: events and the ends of their transactions at once, progress without
// events once a second (I6), what came before an error before the error.
func (c *session) ready(now time.Time) bool {
	b := &c.load.batch
	switch {
	case len(b.Events) > 0 || c.read.dec.ours:
		return true
	case len(b.Bounds) > 0:
		return c.err != nil || now.Sub(c.idleAt) >= idleEvery
	}
	return false
}

func (c *session) hand(now time.Time) *event.Batch {
	l := c.load
	if n := len(l.batch.Bounds); n > 0 {
		c.idleAt = now
		c.handed.Store(uint64(l.batch.Bounds[n-1].At))
	}
	c.load, c.read.dec.ours = nil, false
	return &l.batch
}

// interrupt ends a Read that waits. Read sets its deadline before it looks why it should end, so none is missed.
func (c *session) interrupt() { _ = c.read.conn.SetReadDeadline(time.Unix(1, 0)) }

// stopWith ends the session's reading with a finding.
func (c *session) stopWith(f *event.Fault) {
	if c.found.CompareAndSwap(nil, f) {
		c.interrupt()
	}
}

// streamFault says what an error of the stream means. SQLSTATE decides, never text.
func (s *Source) streamFault(c *session) *event.Fault {
	at := c.read.dec.at
	if f := event.AsFault(c.err); f != nil {
		return f
	}
	place := s.o.place() + " slot " + s.o.Slot
	if errors.Is(c.err, errPublicationSkipped) {
		return faultPublicationGone(place, s.o.Publication, at, event.LSN(c.watch.end.Load()))
	}
	pg, ok := errors.AsType[*pgconn.PgError](c.err)
	if !ok {
		return faultConnectionLost(place, c.err)
	}
	f := s.serverFault(place, at, pg, event.LSN(c.watch.end.Load()))
	if f.Code == CodeServerError && f.Class == event.Retry && s.stuck.again(c.read.dec, pg) {
		return faultCannotSend(place, s.stuck.tx, s.stuck.row, s.stuck.tries, pgText(pg))
	}
	return f
}

// stuckTries is how often the server may fail at one place before that counts as the place's fault.
const stuckTries = 3

// stuck is where the server failed last, and how often in a row it did there.
type stuck struct {
	tx    event.LSN
	row   uint64
	state string
	tries int
}

// again counts an error of the server inside of a transaction, and says whether the same one has come too often to be tried
// again. Shutdowns (class 57) and lack of resources (53) are not the row's.
func (s *stuck) again(d *decoder, pg *pgconn.PgError) bool {
	if !d.inTx || len(pg.Code) != 5 || pg.Code[:2] == "57" || pg.Code[:2] == "53" {
		return false
	}
	if s.tx != d.final || s.row != d.row || s.state != pg.Code {
		*s = stuck{tx: d.final, row: d.row, state: pg.Code}
	}
	s.tries++
	return s.tries >= stuckTries
}

// serverFault classifies an ErrorResponse of the walsender.
func (s *Source) serverFault(place string, at event.LSN, pg *pgconn.PgError, end event.LSN) *event.Fault {
	switch pg.Code {
	case stateUndefinedFile:
		return faultLogRemoved(place, at, pgText(pg)) // "requested WAL segment … has already been removed"
	case stateNotPrerequisite:
		return faultSlotInvalidated(place, s.o.Slot, pg.Message, at, end)
	case stateUndefinedObject:
		return faultPublicationGone(place, s.o.Publication, at, end) // up to 17: publication "…" does not exist
	case stateObjectInUse:
		return faultSlotActive(s.o.place(), s.o.Slot, 0)
	case statePrivilege:
		return faultServer(place, event.Environment, pgText(pg))
	}
	// Shutdown (57P01), crash (57P02), start (57P03), lack of resources (53xxx) and whatever else: a new session tries
	// again and compares all identities.
	return faultServer(place, event.Retry, pgText(pg))
}

// Position implements pipeline.Source.
func (s *Source) Position(at uint64) (event.Position, []byte) {
	c := s.shared.Load()
	if c == nil {
		return event.Position{}, nil
	}
	p := c.position
	p.LSN, p.Timeline = event.LSN(at), c.timeline.Load()
	if d := c.watch.checked.Swap(nil); d != nil {
		return p, *d
	}
	return p, nil
}

// Confirm implements pipeline.Source.
func (s *Source) Confirm(p event.Position) {
	if c := s.shared.Load(); c != nil && p.Kind == event.Postgres && p.SystemID == c.position.SystemID {
		c.answer.confirm(p.LSN)
		c.saved.Store(time.Now().UnixMicro())
	}
}

// Lost implements pipeline.Kept: while the sink takes nothing nobody reads, and that the server takes no answers, or has no session for the
// slot (a proxy may go on taking answers for it), is how the end is found. A slot without a session is one that the server may give up
// (idle_replication_slot_timeout).
func (s *Source) Lost() context.Context {
	if c := s.shared.Load(); c != nil {
		return c.lost
	}
	return context.Background()
}

// Lag implements pipeline.Source.
func (s *Source) Lag() event.Lag {
	c := s.shared.Load()
	if c == nil {
		return event.Lag{Bytes: -1, RetainedBytes: -1, RetentionLeft: -1}
	}
	bytes, retained := c.watch.lag()
	return event.Lag{Bytes: bytes, RetainedBytes: retained, RetentionLeft: -1}
}

// Close implements pipeline.Source. The last confirmed position is said before the connection ends.
func (s *Source) Close() error {
	c := s.session
	if c == nil {
		return nil
	}
	s.session = nil
	c.stop()
	c.answer.stop()
	<-c.watch.ended
	if c.load != nil {
		c.load.release()
		c.load = nil
	}
	return nil
}
