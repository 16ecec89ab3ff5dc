package wal

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outtail/outtail/event"
)

var errUnread = errors.New("the server has no session for the slot any more")

// retainedEvery is how often the slot's retained log is asked for.
const retainedEvery = 10 * time.Second

// watcher owns the catalog connection once the session streams: it compares every minute what positions depend on, and
// asks how much log the slot keeps. Its goroutine begins with the session and ends when its context does. A lost catalog
// connection is opened again; it never ends the stream.
type watcher struct {
	o     *Options
	names []name
	cat   *catalog
	found func(*event.Fault) // a safety finding
	lost  func(error)        // the session is over
	at    func() event.LSN   // up to where the stream was handed over

	unread bool // nobody read the slot at the last look

	parts *partitions
	again chan struct{} // a look is wanted before it is due

	version int
	guarded bool // the slot is a failover slot
	base    depends

	// A standby goes on streaming over a promotion, its own or that of the server it follows: what it sends from the fork on is of
	// another timeline. moved is told of it.
	standby  bool
	timeline uint32
	moved    func(timeline uint32)

	end      atomic.Uint64 // end of the server's log at the last look
	retained atomic.Int64
	checked  atomic.Pointer[json.RawMessage] // depends with the time of the last look, not yet handed out
	ended    chan struct{}
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.ended)
	defer w.disconnect()
	retained := time.NewTicker(min(retainedEvery, w.o.CheckEvery))
	defer retained.Stop()
	check := time.NewTicker(w.o.CheckEvery)
	defer check.Stop()
	var beat <-chan time.Time
	if w.o.Heartbeat > 0 {
		t := time.NewTicker(w.o.Heartbeat)
		defer t.Stop()
		beat = t.C
	}
	w.do(ctx, w.look)
	for {
		select {
		case <-ctx.Done():
			return
		case <-retained.C:
			w.do(ctx, w.look)
		case <-check.C:
			w.do(ctx, w.check)
		case <-w.again:
			w.do(ctx, w.check)
		case <-beat:
			w.do(ctx, w.heartbeat)
		}
	}
}

// do runs one task, over a new connection if the last one was lost.
func (w *watcher) do(ctx context.Context, task func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := error(nil)
	if w.cat == nil {
		conn, cerr := w.o.connect(ctx, purpose{})
		if err = cerr; err == nil {
			w.cat = &catalog{conn}
		}
	}
	if err == nil {
		err = task(ctx)
	}
	if err == nil || ctx.Err() == context.Canceled {
		return
	}
	w.o.Logger.Warn("the server's catalogs cannot be read; it is tried again", "error", err)
	w.retained.Store(-1)
	w.disconnect()
}

func (w *watcher) disconnect() {
	if w.cat == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.cat.conn.Close(ctx)
	w.cat = nil
}

func (w *watcher) look(ctx context.Context) error {
	k, err := w.cat.retained(ctx, w.o.Slot)
	if err != nil {
		return err
	}
	w.end.Store(uint64(k.end))
	w.retained.Store(k.bytes)
	if k.unread && w.unread { // twice: the first time what the server said last may still be on its way to us
		w.lost(errUnread)
	}
	w.unread = k.unread
	if w.base.RenewAt != 0 && w.at() >= w.base.RenewAt {
		w.found(faultRenewed(w.o.place() + " slot " + w.o.Slot))
	}
	var limit *event.Fault
	if k.danger() {
		limit = faultSlotLimit(w.o.place(), w.o.Slot, k)
	}
	w.o.Conditions("slot_limit", limit)
	if w.guarded {
		if err := w.guard(ctx); err != nil {
			return err
		}
	}
	if w.standby {
		return w.follow(ctx)
	}
	return nil
}

// guard tells why a server may send nothing from a failover slot although there is something: a standby is away for which it waits.
func (w *watcher) guard(ctx context.Context) error {
	away, err := w.cat.away(ctx)
	if err != nil {
		return err
	}
	var f *event.Fault
	if away != "" {
		f = faultStandbyAway(w.o.place(), w.o.Slot, away)
	}
	w.o.Conditions("standby_away", f)
	return nil
}

// follow asks a standby over a replication connection of its own which timeline it is on now.
func (w *watcher) follow(ctx context.Context) error {
	u := &setup{}
	defer u.close()
	var err error
	if u.repl, err = w.o.connect(ctx, purpose{replication: true}); err != nil {
		return err
	}
	id, err := pglogrepl.IdentifySystem(ctx, u.repl)
	if err != nil || uint32(id.Timeline) == w.timeline {
		return err
	}
	u.facts.Timeline = uint32(id.Timeline)
	if err := w.o.history(ctx, u, event.Checkpoint{}); err != nil {
		return err
	}
	w.o.Logger.Info("the server has left its timeline while it streamed", "timeline", id.Timeline, "fork", u.facts.began().String())
	w.timeline, w.base.Timeline, w.base.Began = u.facts.Timeline, u.facts.Timeline, u.facts.began()
	j := w.base.json()
	w.checked.Store(&j)
	w.moved(w.timeline)
	return nil
}

// check compares; a difference ends the session with a safety stop that names the window (I5).
func (w *watcher) check(ctx context.Context) error {
	f := facts{Version: w.version}
	if err := w.cat.server(ctx, &f); err != nil {
		return err
	}
	if err := w.cat.published(ctx, &f, w.o.Publication, w.names); err != nil {
		return err
	}
	if err := w.cat.filled(ctx, &f, w.base); err != nil {
		return err
	}
	now := dependsOf(w.o, w.names, &f)
	if f.Pub == nil {
		w.found(faultPublicationGone(w.o.place(), w.o.Publication, w.base.CheckedAt, f.End))
		return nil
	}
	if changes := w.base.changes(now); len(changes) > 0 {
		w.found(faultDependsChanged(w.o.place(), changes, w.base.CheckedAt, f.End))
		return nil
	}
	now.Tolerant, now.RenewAt, now.Timeline, now.Began = w.base.Tolerant, w.base.RenewAt, w.base.Timeline, w.base.Began
	w.parts.learn(&f)
	w.parts.store(&now)
	w.base = now
	j := now.json()
	w.checked.Store(&j)
	return nil
}

func (w *watcher) heartbeat(ctx context.Context) error {
	_, err := w.cat.one(ctx, `SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_logical_emit_message(false, $1, '') END`, heartbeatPrefix)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == statePrivilege {
		// EXECUTE is granted to everybody by default: somebody took it away. The connection is fine.
		w.o.Logger.Warn("no heartbeat: the role may not execute pg_logical_emit_message", "error", pgText(pg))
		return nil
	}
	return err
}

// lag is what the server still has to send.
func (w *watcher) lag() (bytes, retained int64) {
	end := w.end.Load()
	if end == 0 {
		return -1, w.retained.Load()
	}
	return max(0, int64(end)-int64(w.at())), w.retained.Load()
}
