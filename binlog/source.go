package binlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outtail/outtail/event"
)

// Source reads the binlog of a MySQL or MariaDB server. It implements pipeline.Source: one goroutine calls Open, Read and
// Close; Position, Confirm and Lag may be called from another.
type Source struct {
	o         Options
	tables    []table
	selection string
	rowLimit  int
	seed      string
	self      replica
	log       *slog.Logger
	pool      *sync.Pool

	// The session. server, known and st belong to the goroutine that calls Open, Read and Close.
	ctx      context.Context
	reading  context.Context // of the call that runs: what it asks the server meanwhile ends with it
	opened   bool            // a session was open before: what is missing now may come back
	cancel   context.CancelFunc
	meta     *conn // while the session is open it belongs to the lag poller
	stream   *conn
	server   *server
	folded   bool
	known    map[*table]*known
	unproved int
	st       *stream
	polled   sync.WaitGroup

	lock     *heldLock
	wait     waiting
	token    string // see lock.go
	recalled bool   // whether an earlier process waited was looked up
	noted    bool   // that we wait is written down

	ledger   atomic.Pointer[ledger]
	identity atomic.Pointer[server]
	end      atomic.Pointer[logSpan]
	ended    lastWrite // the lag poller's
	at       atomic.Pointer[place]

	confirmed   atomic.Pointer[event.Position] // what is stored
	moved       chan struct{}                  // it was confirmed; holds one
	mark        *xaMark                        // the session's
	addedTables bool                           // since the mark that was stored was made

	updates struct {
		count uint64
		said  time.Time
	}
	statements time.Time // when statement logging was last said
	carriers   carriers
	texts      charsets // the session's goroutine owns it
}

// New checks the options. It connects to nothing.
func New(o Options) (*Source, error) {
	s := &Source{o: o, log: o.Logger, rowLimit: o.RowLimit, seed: o.Seed, pool: newSegmentPool(), moved: make(chan struct{}, 1), texts: charsets{}}
	bad := func(text, hint string) error {
		return &event.Fault{Code: codeOptions, Class: event.Usage, Op: "configure the source", Place: o.Pipeline, Text: text, Hint: hint}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.log = s.log.With("pipeline", o.Pipeline)
	if s.o.Conditions == nil {
		s.o.Conditions = func(string, *event.Fault) {}
	}
	if s.o.Filtered == nil {
		s.o.Filtered = func(string, int) {}
	}
	if o.Kind != event.MySQL && o.Kind != event.MariaDB {
		return nil, bad(fmt.Sprintf("kind %q is not mysql or mariadb", o.Kind), "")
	}
	if s.o.Host == "" {
		s.o.Host = "127.0.0.1"
	}
	if s.o.Port == 0 {
		s.o.Port = 3306
	}
	switch o.OnUpdate {
	case "":
		s.o.OnUpdate = "warn"
	case "ignore", "warn", "halt":
	default:
		return nil, bad(fmt.Sprintf("on_update %q is not ignore, warn or halt", o.OnUpdate), "")
	}
	var err error
	if s.tables, err = parseTables(o.Tables, o.Database); err != nil {
		return nil, bad("tables: "+err.Error(), "write tables as [schema.table]")
	}
	if err := checkStart(o.Kind, o.Start); err != nil {
		return nil, bad("start: "+err.Error(), "start: now | earliest | { gtid: \"…\" } | { file: binlog.000012, pos: 4 }")
	}
	if s.rowLimit <= 0 {
		s.rowLimit = defaultRowLimit
	}
	if s.o.SpillLimit <= 0 {
		s.o.SpillLimit = defaultSpillLimit
	}
	if s.o.SpillSpace == nil {
		s.o.SpillSpace = &SpillSpace{}
	}
	if s.o.XALimit <= 0 {
		s.o.XALimit = defaultXALimit
	}
	if s.seed == "" {
		host, _ := os.Hostname()
		s.seed = host + "/" + o.Pipeline
	}
	s.self = replica{id: o.ServerID, uuid: deriveUUID(s.seed)}
	if s.self.id == 0 {
		s.self.id = deriveServerID(s.seed)
	}
	s.selection = selection(&s.o, s.tables)
	return s, nil
}

// place names the server in messages.
func (s *Source) place() string { return net.JoinHostPort(s.o.Host, strconv.Itoa(s.o.Port)) }

// find gives the configured table of a name; nil is a foreign one. No allocation: every table map of the log comes here.
func (s *Source) find(schema, name []byte) *table {
	for i := range s.tables {
		t := &s.tables[i]
		if string(name) == t.table && string(schema) == t.schema {
			return t
		}
		if s.folded && len(name) == len(t.table) && equalFold(string(name), t.table) && equalFold(string(schema), t.schema) {
			return t
		}
	}
	return nil
}

func (s *Source) charset(id int) string { return s.server.charsets[id] }

// charsetID gives any collation of a character set: only the set matters.
func (s *Source) charsetID(name string) int {
	best := charsetUnproved
	for id, n := range s.server.charsets {
		if n == name && (best < 0 || id < best) {
			best = id
		}
	}
	return best
}

// Open connects, checks, decides where to begin and starts the dump.
func (s *Source) Open(ctx context.Context, from event.Checkpoint) (event.Checkpoint, error) {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.dropOldSpill()
	out, err := s.open(ctx, from)
	if err != nil {
		_ = s.Close()
		return event.Checkpoint{}, err
	}
	return out, nil
}

func (s *Source) open(ctx context.Context, from event.Checkpoint) (event.Checkpoint, error) {
	var none event.Checkpoint
	if !from.IsZero() && from.Position.Kind != s.o.Kind {
		return none, s.fault(codeFlavour, event.Safety, "resume", "the stored position is one of "+from.Position.Kind+", not of "+s.o.Kind, s.ways(codeFlavour, "now", "earliest"))
	}
	meta, err := s.connect(ctx)
	if err != nil {
		return none, err
	}
	s.meta = meta
	if s.server, err = s.ask(ctx, meta); err != nil {
		return none, err
	}
	s.folded = s.server.foldNames
	s.identity.Store(s.server)
	if err := s.check(ctx, meta); err != nil {
		if f := event.AsFault(err); f != nil && s.opened {
			f.Immediate = false
		}
		return none, err
	}
	if err := s.checkFirst(from); err != nil {
		return none, err
	}
	if err := s.acquire(ctx, meta, from); err != nil {
		return none, err
	}
	if s.server.files, err = s.binlogs(ctx, meta); err != nil {
		return none, err
	}

	out := from
	out.Selection = s.selection
	var begin origin
	first, goesOn := from.IsZero(), false
	if first {
		if out, begin, err = s.begin(ctx, meta); err != nil {
			return none, err
		}
	} else {
		f, err := s.resumeAfter(ctx, from)
		if err != nil {
			return none, err
		}
		keep := f.keep
		begin = f.from
		goesOn = keep || !f.sameServer() && len(from.Accepted) == 0
		out.Accepted = nil
		if !keep || !s.countsFor(from) {
			out.Prefix = nil
		}
		if !keep {
			// File and offset of another log would be compared with this one at the next connect.
			out.Position.File, out.Position.Pos = begin.file, begin.pos
			out.Position.Mark = f.witness.elsewhere(begin).String()
		}
		if !f.sameServer() && begin.file == "" {
			s.log.Warn("the server is another one; its log continues ours by GTID", "server", f.identity(), "before", f.storedIdentity())
		}
	}

	// Definitions: what was stored holds at the stored position; what the catalogue says now may hold at some later place.
	s.known = map[*table]*known{}
	dep := parseDepends(out.Depends)
	for i := range s.tables {
		t := &s.tables[i]
		k := &known{}
		name := t.schema + "." + t.table
		if d, ok := dep.Tables[name]; ok && !first {
			k.proved, k.charset = d, dep.Charsets[name]
		} else if k.seen, err = s.sight(ctx, meta, t); err != nil {
			return none, err
		}
		if !first {
			if k.proved == nil {
				k.claimed, k.charset = dep.Claimed[name], dep.Charsets[name]
			}
			if k.word, err = s.takeWord(ctx, t, dep.Vouched[name]); err != nil {
				return none, err
			}
		}
		s.known[t] = k
	}
	s.count()

	if err := s.markXA(ctx, meta, from, first || !goesOn); err != nil {
		return none, err
	}
	if err := s.startDump(ctx, begin, &out); err != nil {
		return none, err
	}
	if err := s.openPrepared(out.Position); err != nil {
		return none, err
	}
	d := parseDepends(out.Depends)
	d.Token, d.XA = s.token, s.mark
	out.Depends = encodeDepends(d)
	if s.st.depends != nil {
		s.st.depends = s.dependsNow(s.st)
	}
	s.st.accepted = slices.Clone(from.Accepted)
	s.opened = true
	s.polled.Add(1)
	// Owned by the session; ends with s.cancel in Close, which waits for it.
	go func(ctx context.Context) {
		defer s.polled.Done()
		s.pollEnd(ctx)
	}(s.ctx)
	return out, nil
}

// countsFor reports whether a stored prefix was counted over the rows that we select.
func (s *Source) countsFor(c event.Checkpoint) bool {
	if c.Prefix == nil || c.Prefix.Rows == 0 {
		return false
	}
	if c.Prefix.Selection != "" {
		return c.Prefix.Selection == s.selection
	}
	return c.Selection == s.selection
}

// startDump opens the second connection and reads until the first format description, so that a position that the server cannot
// serve shows here.
func (s *Source) startDump(ctx context.Context, from origin, cp *event.Checkpoint) error {
	c, err := s.connectSame(ctx)
	if err != nil {
		return err
	}
	s.stream = c
	context.AfterFunc(s.lock.ctx, c.close) // nothing more is read once the lock is lost; at the latest when it is released
	if err := s.dump(ctx, c, from, s.self, 0); err != nil {
		return err
	}
	l := &ledger{}
	l.at = folded{set: from.set, maria: from.maria, file: &fileRef{name: cp.Position.File}, pos: cp.Position.Pos, seen: parseWitness(s.o.Kind, cp.Position.Mark)}
	if from.set != nil {
		l.at.set = from.set.clone()
	}
	st := &stream{
		s: s, asm: newAssembler(s.pool), spillAt: spillAt, ledger: l, log: s.log, sids: map[sid]*sid{}, byFile: from.set == nil && from.maria == nil, domains: newDomains(from.maria),
		redial: s.dumpAgain,
	}
	st.readFrom(c.reader(openLimit, s.readLimit()))
	st.xa = &prepared{}
	if cp.Prefix != nil {
		p := *cp.Prefix
		st.prefix = &p
	}
	s.reading = ctx
	stop := st.wake(ctx)
	defer stop()
	for !st.opened {
		if err := st.step(ctx); err != nil {
			if errors.Is(err, errInterrupted) {
				return s.fault(codeLost, event.Retry, "read the binlog", "the server did not begin to send", "it is tried again; look at SHOW PROCESSLIST on the server")
			}
			return err
		}
	}
	st.rd.timeout = silenceLimit
	// A stored position keeps its file until the stream has a boundary of its own; one without (a GTID set given by a person)
	// takes the file that the server begins with, and no place in it: what lies before the set's end there was not asked for.
	if cp.Position.File == "" && st.file != nil {
		cp.Position.File, cp.Position.Pos = st.file.name, st.pos
		if from.file == "" {
			cp.Position.Pos = 0
		}
	}
	l.at.file, l.at.pos = &fileRef{name: cp.Position.File}, cp.Position.Pos
	if st.file != nil && st.file.name == cp.Position.File {
		l.at.file = st.file
		d, was := parseDepends(s.dependsNow(st)), parseDepends(cp.Depends)
		d.Tables, d.Claimed, d.Charsets = was.Tables, was.Claimed, was.Charsets
		cp.Depends = encodeDepends(d)
	} else {
		st.depends = s.dependsNow(st)
	}
	cp.Position = s.position(l.fold(0))
	s.st = st
	s.ledger.Store(l)
	return nil
}

// readLimit is how much of one event is kept in memory: a row at its limit, before and after, and what goes with it.
func (s *Source) readLimit() int { return 2*s.rowLimit + 64<<10 }

// Read gives the next batch.
func (s *Source) Read(ctx context.Context) (*event.Batch, error) {
	st := s.st
	if st == nil {
		return nil, s.fault(codeLost, event.Retry, "read the binlog", "the session is closed", "a new session is opened")
	}
	if f := s.lock.fault(); f != nil {
		return nil, f
	}
	stop := st.wake(ctx)
	defer stop()
	s.reading = ctx
	b, err := st.read(ctx)
	if f := s.lock.fault(); f != nil {
		if b != nil && b.Release != nil {
			b.Release()
		}
		return nil, f
	}
	if st.file != nil {
		s.at.Store(&place{st.file.name, st.pos})
	}
	return b, err
}

// Position is the position of an ordinal that a bound gave.
func (s *Source) Position(at uint64) (event.Position, []byte) {
	l := s.ledger.Load()
	if l == nil {
		return event.Position{}, nil
	}
	f := l.fold(at)
	return s.positionOf(s.identity.Load(), f), f.depends
}

// Confirm tells the server nothing, which keeps its log by its own rules. What is kept of XA transactions is swept by it.
func (s *Source) Confirm(p event.Position) {
	s.confirmed.Store(&p)
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// Lag is how many bytes of the log lie between what was read, or what is stored, and where it ended some seconds ago, and how
// long the server keeps the file that it begins in; -1 while unknown.
func (s *Source) Lag() event.Lag {
	lag := event.Lag{Bytes: s.lagBytes(), RetainedBytes: -1, RetentionLeft: -1}
	if end, needed := s.end.Load(), s.needed(); end != nil && needed != nil {
		lag.RetainedBytes, lag.RetentionLeft = bytesUntil(*needed, *end), end.left
	}
	return lag
}

// logSpan is where the log ended, and, while we are in an older file, how long the files are.
type logSpan struct {
	place
	files []binlogFile
	left  time.Duration // until the file of what is stored is purged; -1 unknown
}

func (s *Source) lagBytes() int64 {
	at, end := s.at.Load(), s.end.Load()
	if at == nil || end == nil {
		return -1
	}
	return bytesUntil(*at, *end)
}

// bytesUntil is how many bytes of log lie between a place and the end.
func bytesUntil(at place, end logSpan) int64 {
	switch c := compareFiles(at.file, end.file); {
	case c == 0:
		return max(int64(end.pos)-int64(at.pos), 0)
	case c > 0:
		return 0
	}
	total, found := int64(0), false
	for _, f := range end.files {
		switch {
		case f.name == end.file:
			total += int64(end.pos)
		case f.name == at.file:
			total += int64(f.size) - int64(at.pos)
			found = true
		case compareFiles(f.name, at.file) > 0 && compareFiles(f.name, end.file) < 0:
			total += int64(f.size)
		}
	}
	if !found {
		return -1
	}
	return max(total, 0)
}

// lookAgain reads a definition anew, after a DDL; an empty one is that of no table.
func (s *Source) lookAgain(ctx context.Context, t *table) (*sighting, error) {
	c, err := s.connectSame(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := s.prepare(ctx, c, s.server); err != nil {
		return nil, err
	}
	return s.sight(ctx, c, t)
}

// Close ends the session. The dump thread on the server notices by itself, at its next heartbeat at the latest.
func (s *Source) Close() error {
	if s.cancel != nil {
		s.cancel()
	}
	var dump uint32
	if s.stream != nil {
		dump = s.stream.GetConnectionID()
		s.stream.close()
		s.stream = nil
	}
	s.polled.Wait() // it ends with s.cancel
	if s.meta != nil {
		if dump != 0 && s.lock.fault() == nil {
			// Best effort, so that our successor does not find our thread still holding the server id.
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, _ = s.meta.query(ctx, fmt.Sprintf("KILL CONNECTION %d", dump))
			cancel()
		}
		s.meta.close()
	}
	s.lock.release()
	s.lock = nil
	s.meta = nil
	if s.st != nil {
		if s.st.spill != nil {
			_ = s.st.spill.discard()
		}
		if s.st.giant != nil {
			_ = s.st.giant.discard()
		}
		if inf := s.st.inflate; inf != nil {
			_ = inf.src.discard()
		}
		if s.st.zstd != nil {
			s.st.zstd.Close()
		}
		s.st = nil
	}
	return nil
}

// sawUpdate applies on_update to rows of one event.
func (s *Source) sawUpdate(t *table, at string, rows int) *event.Fault {
	if s.o.OnUpdate == "halt" {
		return &event.Fault{Code: codeUpdate, Class: event.Safety, Op: "read the binlog", Place: at, Text: "a row of " + t.name + " was updated (UPDATE, REPLACE or ON DUPLICATE KEY UPDATE)",
			Hint: "on_update: warn goes on without it. " + s.ways(codeUpdate, "GTID", "FILE:POS")}
	}
	s.o.Filtered("updated", rows)
	if s.o.OnUpdate == "ignore" {
		return nil
	}
	s.updates.count += uint64(rows)
	if time.Since(s.updates.said) > time.Minute {
		s.updates.said = time.Now()
		s.log.Warn("rows of an outbox table are updated; only inserts are events (on_update: ignore silences this)", "table", t.name, "at", at, "updates", s.updates.count)
	}
	return nil
}

// sawStatement warns of statement logging beside us.
func (s *Source) sawStatement(at, schema string) {
	if time.Since(s.statements) < time.Minute {
		return
	}
	s.statements = time.Now()
	text := "a session logs statements instead of rows; outbox rows that it inserts cannot be read (SET GLOBAL binlog_format = 'ROW', and in no session otherwise)"
	if see := s.carriers.trigger; see == nil || !see(schema) {
		text += "; whether triggers there insert into an outbox table cannot be seen (GRANT TRIGGER ON " + backtick(schema) + ".* would show it)"
	}
	s.log.Warn(text, "at", at)
}

// dropOldSpill removes what a killed process left.
func (s *Source) dropOldSpill() {
	if s.o.SpillDir != "" {
		_ = os.Remove(filepath.Join(s.o.SpillDir, s.o.Pipeline+".rows"))
		_ = os.Remove(filepath.Join(s.o.SpillDir, s.o.Pipeline+".payload.rows"))
	}
}
