package wal

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outtail/outtail/event"
)

// slotPatience is how long an active slot is waited for within one Open: the server needs a moment to notice that our
// own former session is gone.
const slotPatience = 3 * time.Second

// setup holds the two connections while a session is prepared.
type setup struct {
	repl  *pgconn.PgConn
	cat   *catalog
	facts facts
}

func (u *setup) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if u.repl != nil {
		u.repl.Close(ctx)
	}
	if u.cat != nil {
		u.cat.conn.Close(ctx)
	}
}

// Open implements pipeline.Source.
func (s *Source) Open(ctx context.Context, from event.Checkpoint) (event.Checkpoint, error) {
	if s.session != nil {
		return event.Checkpoint{}, faultNotOpen()
	}
	u, err := s.prepare(ctx)
	if err != nil {
		return event.Checkpoint{}, err
	}
	cp, err := s.open(ctx, u, from)
	if err != nil {
		u.close()
		return event.Checkpoint{}, err
	}
	return cp, nil
}

// prepare connects twice and asks for everything that decides about the start. The order makes the first finding the one
// that mends most: an ordinary connection tells that wal_level is wrong, a replication connection could not.
func (s *Source) prepare(ctx context.Context) (_ *setup, err error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	u := &setup{}
	defer func() {
		if err != nil {
			u.close()
		}
	}()
	conn, err := s.o.connect(ctx, purpose{})
	if err != nil {
		return nil, err
	}
	u.cat = &catalog{conn}
	if err := u.cat.server(ctx, &u.facts); err != nil {
		return nil, s.o.queryFault(opStart, err)
	}
	if f := checkServer(&s.o, &u.facts); f != nil {
		return nil, f
	}
	if u.repl, err = s.o.connect(ctx, purpose{replication: true, encoding: u.facts.Encoding}); err != nil {
		return nil, err
	}
	id, err := pglogrepl.IdentifySystem(ctx, u.repl)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == stateSyntaxError {
		return nil, faultPooler(s.o.place(), pg.Message) // the command came over an ordinary connection
	}
	if err != nil {
		return nil, s.o.queryFault("identify the server", err)
	}
	u.facts.SystemID, u.facts.Timeline, u.facts.Database = id.SystemID, uint32(id.Timeline), id.DBName
	u.facts.End = max(u.facts.End, event.LSN(id.XLogPos))
	if u.facts.SenderLimit, err = s.settings(ctx, u.repl, u.facts.Encoding); err != nil {
		return nil, s.o.queryFault(opStart, err)
	}
	if u.facts.Slot, err = u.cat.slot(ctx, s.o.Slot); err != nil {
		return nil, s.o.queryFault("read the replication slot", err)
	}
	if err := u.cat.published(ctx, &u.facts, s.o.Publication, s.names); err != nil {
		return nil, s.o.queryFault("read the publication", err)
	}
	return u, nil
}

// settings asks the walsender itself for wal_sender_timeout, which may be the role's, and whether what we set at startup
// holds: a pooler that was told to ignore such settings would have values rendered in another form.
func (s *Source) settings(ctx context.Context, repl *pgconn.PgConn, encoding string) (time.Duration, error) {
	res, err := repl.Exec(ctx, `SELECT lower(name), setting FROM pg_settings`).ReadAll()
	if err != nil {
		return 0, err
	}
	found := map[string]string{}
	for _, r := range res[0].Rows {
		found[string(r[0])] = string(r[1])
	}
	for name, want := range rendering(encoding) {
		if got, ok := found[strings.ToLower(name)]; ok && got != want {
			return 0, faultPooler(s.o.place(), fmt.Sprintf("%s was set to %s and is %s", name, want, got))
		}
	}
	if path := found["search_path"]; path != searchPath { // nobody's default, so that a pooler shows whose settings happen to be ours
		return 0, faultPooler(s.o.place(), fmt.Sprintf("search_path was set to %s and is %s", searchPath, path))
	}
	limit, err := time.ParseDuration(found["wal_sender_timeout"] + "ms")
	if err != nil {
		return time.Minute, nil
	}
	return limit, nil
}

// open decides, creates what is to be created, starts the stream and then looks once more: what moved between the first
// look and the start of the stream (another process let go of the slot) is decided anew.
func (s *Source) open(ctx context.Context, u *setup, from event.Checkpoint) (event.Checkpoint, error) {
	o := &s.o
	p, warnings, err := s.decide(ctx, u, from)
	if err != nil {
		return event.Checkpoint{}, err
	}
	if p.Create {
		at, fault := s.create(ctx, u)
		if fault != nil {
			return event.Checkpoint{}, fault
		}
		p.At = at
	}
	conn, err := s.start(ctx, u, p.At)
	if err != nil {
		return event.Checkpoint{}, err
	}
	if p, err = s.lookAgain(ctx, u, from, p); err != nil {
		conn.Close()
		return event.Checkpoint{}, err
	}
	for _, w := range warnings {
		o.Logger.Warn(w.text, "code", w.code)
	}
	for _, n := range p.Notes {
		o.Logger.Info(n, "slot", o.Slot)
	}
	o.Conditions("standby_away", nil) // the watcher looks, if there is anything to look at
	return s.begin(u, conn, from, p), nil
}

// decide compares, and refuses what could not be streamed.
func (s *Source) decide(ctx context.Context, u *setup, from event.Checkpoint) (p plan, warnings []warning, _ error) {
	o, f := &s.o, &u.facts
	if err := o.history(ctx, u, from); err != nil {
		return p, nil, err
	}
	var stored depends
	if json.Unmarshal(from.Depends, &stored) == nil {
		if err := u.cat.filled(ctx, f, stored); err != nil {
			return p, nil, o.queryFault("look for partitions that were attached", err)
		}
	}
	p, fault := decide(o, s.names, from, f)
	if fault == nil && f.Pub == nil && !p.Create {
		fault = faultPublicationGone(o.place(), o.Publication, p.At, f.End)
	}
	if fault == nil {
		warnings, fault = checkPublished(o, s.names, f, p.Create)
	}
	if fault != nil {
		return p, nil, since(fault, from.SavedAt)
	}
	return p, warnings, nil
}

// history asks for the server's timeline history. Without it nothing can be decided on another timeline than the stored one.
func (o *Options) history(ctx context.Context, u *setup, from event.Checkpoint) error {
	if u.facts.Timeline <= 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	h, err := pglogrepl.TimelineHistory(ctx, u.repl, int32(u.facts.Timeline))
	switch p := from.Position; {
	case err == nil:
		u.facts.History = parseHistory(string(h.Content))
	case !p.IsZero() && p.Timeline != u.facts.Timeline:
		return o.queryFault("read the server's timeline history", err)
	}
	return nil
}

// create makes the publication, if it is absent, and then the slot.
func (s *Source) create(ctx context.Context, u *setup) (event.LSN, *event.Fault) {
	if u.facts.Pub == nil {
		if f := createPublication(ctx, &s.o, u.cat, s.names); f != nil {
			return 0, f
		}
		if err := u.cat.published(ctx, &u.facts, s.o.Publication, s.names); err != nil {
			return 0, s.o.queryFault("read the publication", err)
		}
	}
	return createSlot(ctx, &s.o, u.repl)
}

// start takes the connection over from pgconn and starts the stream on it. From here on every byte goes through our own
// framing, so that nothing that the server sends right behind its answer is left in somebody else's buffer.
func (s *Source) start(ctx context.Context, u *setup, at event.LSN) (net.Conn, error) {
	if err := u.repl.SyncConn(ctx); err != nil {
		return nil, s.o.queryFault(opStart, err)
	}
	h, err := u.repl.Hijack()
	if err != nil {
		return nil, s.o.queryFault(opStart, err)
	}
	u.repl = nil
	conn := h.Conn
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	sql := fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s%s)",
		quoteIdent(s.o.Slot), at, quoteLiteral(quoteIdent(s.o.Publication)), messagesOption(&s.o))
	patience := time.Now().Add(slotPatience)
	for {
		err := startStream(conn, sql)
		if err == nil {
			conn.SetDeadline(time.Time{})
			return conn, nil
		}
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if ok && pg.Code == stateObjectInUse && time.Now().Before(patience) && ctx.Err() == nil {
			nap(ctx, 100*time.Millisecond)
			continue
		}
		conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !ok {
			return nil, faultConnectionLost(s.o.place(), err)
		}
		return nil, s.startFault(ctx, u, at, pg)
	}
}

// messagesOption asks for logical messages; a server before 14 does not know the option.
func messagesOption(o *Options) string {
	if !o.Messages {
		return ""
	}
	return ", messages 'true'"
}

func (s *Source) startFault(ctx context.Context, u *setup, at event.LSN, pg *pgconn.PgError) *event.Fault {
	switch pg.Code {
	case stateObjectInUse:
		pid := 0
		if now, err := u.cat.slot(ctx, s.o.Slot); err == nil && now != nil {
			pid = now.ActivePID
		}
		return faultSlotActive(s.o.place(), s.o.Slot, pid)
	case stateUndefinedObject: // the slot was dropped since we looked
		return &event.Fault{Code: CodeServerError, Class: event.Retry, Op: opStart, Place: s.o.place(), Text: "the slot went away while it was opened", Hint: "it is looked at again", Err: pgText(pg)}
	}
	return s.serverFault(s.o.place()+" slot "+s.o.Slot, at, pg, u.facts.End)
}

// startStream sends the command and reads up to the answer. After an error the connection is ready for another command.
func startStream(conn net.Conn, sql string) error {
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	b := append([]byte{'Q'}, binary.BigEndian.AppendUint32(nil, uint32(len(sql)+5))...)
	b = append(append(b, sql...), 0)
	if _, err := conn.Write(b); err != nil {
		return err
	}
	var failed error
	for {
		var head [frameHead]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size < 4 || size > 1<<20 {
			return io.ErrUnexpectedEOF
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return err
		}
		switch head[0] {
		case 'W': // CopyBothResponse
			return nil
		case 'E':
			failed = serverError(body)
		case 'Z':
			if failed == nil {
				failed = io.ErrUnexpectedEOF
			}
			return failed
		}
	}
}

// lookAgain compares once more now that the slot is ours and can move no more.
func (s *Source) lookAgain(ctx context.Context, u *setup, from event.Checkpoint, p plan) (plan, error) {
	slot, err := u.cat.slot(ctx, s.o.Slot)
	if err != nil {
		return p, s.o.queryFault("read the replication slot", err)
	}
	if slot == nil || slot.Confirmed == nil {
		return p, faultSlotLost(s.o.place(), s.o.Slot, p.At, u.facts.End)
	}
	if p.Create || u.facts.Slot != nil && *slot.Confirmed == *u.facts.Slot.Confirmed {
		return p, nil
	}
	u.facts.Slot = slot
	again, fault := decide(&s.o, s.names, from, &u.facts)
	if fault != nil {
		return p, fault
	}
	return again, nil
}

// begin makes the session and starts its goroutines; nothing fails from here on.
func (s *Source) begin(u *setup, conn net.Conn, from event.Checkpoint, p plan) event.Checkpoint {
	o, f := &s.o, &u.facts
	d := dependsOf(o, s.names, f)
	every := o.StatusEvery
	if every <= 0 {
		every = statusMost
		if f.SenderLimit > 0 {
			every = max(10*time.Millisecond, min(every, f.SenderLimit/3))
		}
	}
	position := event.Position{Kind: event.Postgres, SystemID: f.SystemID, Timeline: f.Timeline, Slot: o.Slot, LSN: p.At}
	s.logEnd = position
	s.logEnd.LSN = max(f.End, p.At)
	confirmed := p.At
	if f.Slot != nil {
		confirmed = *f.Slot.Confirmed
	}
	s.hold.begin(position, confirmed, o.Past)
	c := &session{position: position, silence: 2*every + max(f.SenderLimit, time.Minute)}
	lost, lose := context.WithCancelCause(context.Background())
	c.lost = lost
	over := func(err error) { lose(faultConnectionLost(o.place()+" slot "+o.Slot, err)) }
	c.answer = newAnswerer(conn, every, f.SenderLimit, p.At, s.hold, over)
	dec := newDecoder(o, s.targets(f), p.At, p.Prefix)
	var stored depends
	_ = json.Unmarshal(from.Depends, &stored)
	d.Tolerant = slices.Contains(from.Accepted, CodeColumnGone) || stored.Tolerant && stored.Selection == d.Selection
	dec.tolerant, d.RenewAt = d.Tolerant, p.RenewAt
	told := false // by the reader's goroutine only
	parts := &partitions{o: o, look: s.lookUp, accept: slices.Contains(from.Accepted, CodePartitionGone), learnt: func() { poke(c.watch.again) }}
	parts.restore(stored, f)
	parts.store(&d)
	if byLeaf(f) {
		dec.parts = func(id uint32, n name) (*target, *event.Fault) { return parts.of(id, n, dec.targets, dec.at) }
	}
	dec.ignored = func() {
		o.Filtered(ignoredMessage, 1)
		if !told {
			o.Logger.Warn("a logical message for outtail is not transactional, and is no event: write pg_logical_emit_message(true, …); it is said once, and counted", "reason", ignoredMessage)
		}
		told = true
	}
	c.read = &reader{
		conn: conn, dec: dec, place: o.place(), replied: c.answer.ask, last: time.Now(),
		maxFrame: 2*o.RowLimit + 64<<10, // a bytea travels as two digits per byte
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if rtt, ok := minRTT(tcp); ok && rtt < paceRTT && clampWindow(tcp, paceWindow) {
			c.read.pace.enabled = true
			c.read.quiet = func(n int) { lowWater(tcp, n) }
			c.read.widen = func() {
				clampWindow(tcp, 1<<20)
				o.Logger.Debug("the replication connection reads without pauses from now on: its window was stuck")
			}
		}
	}
	c.passed.Store(uint64(p.At))
	c.timeline.Store(f.Timeline)
	c.saved.Store(from.SavedAt.UnixMicro())
	if from.SavedAt.IsZero() {
		c.saved.Store(time.Now().UnixMicro())
	}
	c.watch = &watcher{
		moved: c.timeline.Store, standby: f.Recovery, guarded: f.Slot != nil && f.Slot.Failover || p.Create && o.FailoverSlot, timeline: f.Timeline,
		o: o, names: s.names, cat: u.cat, version: f.Version, base: d, found: c.stopWith, lost: over,
		parts: parts, again: make(chan struct{}, 1),
		at: func() event.LSN { return event.LSN(c.handed.Load()) }, ended: make(chan struct{}),
	}
	c.watch.retained.Store(-1)
	c.watch.end.Store(uint64(f.End))
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	// Both goroutines are the session's; Close ends them and waits.
	go c.answer.run()
	go c.watch.run(ctx)
	s.session = c
	s.shared.Store(c)

	cp := from
	cp.Position, cp.Prefix, cp.Accepted = c.position, p.Prefix, nil
	cp.Depends, cp.Selection = d.json(), d.Selection
	retained := int64(-1) // what the server keeps for the slot, whoever forgot about it
	if f.Slot != nil && f.Slot.Restart != nil && f.End >= *f.Slot.Restart {
		retained = int64(f.End - *f.Slot.Restart)
	}
	o.Logger.Info("replication started", "retained_bytes", retained, "slot", o.Slot, "publication", o.Publication, "lsn", p.At.String(), "timeline", f.Timeline, "server_version", f.Version)
	return cp
}

// targets are the configured tables as the decoder needs them, by the text of the configuration.
func (s *Source) targets(f *facts) []target {
	out := make([]target, len(s.names))
	for i, n := range s.names {
		out[i] = target{text: strings.TrimSpace(s.o.Tables[i]), name: n, domains: map[uint32]bool{}}
		if i < len(f.Tables) {
			out[i].relid = f.Tables[i].RelID
			for _, c := range f.Tables[i].Columns {
				if c.Base == typeBytea && c.Type != typeBytea {
					out[i].domains[c.Type] = true
				}
			}
		}
	}
	return out
}
