package binlog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outtail/outtail/event"
)

// Two processes on one pipeline. Whoever sends holds a named lock of the server (GET_LOCK) for each of its tables, on a session of
// its own. Such a lock lives as long as its session, needs no privilege and writes nothing. The bounds, from which follows that two
// never send beside each other for longer than lockLate, whatever fails:
//
//   - the holder asks its session every pingEvery whether it still holds the lock. An answer that is missing lockLate after the last
//     question that was answered, or a session that ended, ends the right to send at that moment;
//   - the server drops the session lockIdle after the last question that reached it, and only then gives the lock to another one.
//     lockIdle is longer than lockLate, so a holder that is cut off has stopped before;
//   - a session that the server ends earlier (KILL, restart) is noticed at once where the network works, else after lockLate.
//
// Another process waits as a standby. When the lock is free for good it cannot know what the other one sent, so it stops and a person
// decides (I5). Our own earlier session, which a crash left half-open, is told apart from others by two more locks that it holds:
// one of a random name that only our data_dir knows, and one of our host and data_dir.
const (
	pingEvery = 3 * time.Second
	lockLate  = 15 * time.Second
	lockIdle  = 60 * time.Second
	// standbyGrace is how long a lock must stay free before a standby believes that its holder is gone and not reconnecting.
	standbyGrace = 15 * time.Second
)

// locks are the names that a pipeline takes, each of at most 64 characters.
type locks struct {
	tables []string
	dir    string // known to whoever has our data_dir
	host   string // known to whoever has our host name, data_dir's path and pipeline
}

// lockNames derives them. Hosts with the same pipeline and tables derive the same names for tables; a table in common is enough to meet.
func lockNames(pipeline string, tables []table, folded bool, seed, token string) locks {
	hash := func(parts ...string) string {
		h := fnv.New128a()
		for _, p := range parts {
			fmt.Fprintf(h, "%d %s\n", len(p), p)
		}
		return hex.EncodeToString(h.Sum(nil)[:10])
	}
	name := strings.Map(func(r rune) rune { // what an operator sees in the server's list of locks
		if r < '!' || r > '~' {
			return '_'
		}
		return r
	}, pipeline)
	name = name[:min(len(name), 30)]
	l := locks{dir: "outtail/d/" + hash("dir", pipeline, token), host: "outtail/h/" + hash("host", pipeline, seed)}
	for _, t := range tables {
		schema, table := t.schema, t.table
		if folded {
			schema, table = strings.ToLower(schema), strings.ToLower(table)
		}
		l.tables = append(l.tables, "outtail/"+name+"/"+hash("table", pipeline, schema, table))
	}
	slices.Sort(l.tables) // one order for all, so that two who share several tables meet at the first
	l.tables = slices.Compact(l.tables)
	return l
}

// holder is a session that holds the lock; the zero value is nobody.
type holder struct {
	id   uint64
	host bool // it is of our host, data_dir and pipeline, as far as their names tell
	dir  bool // it knows what only our data_dir knows
}

func (h holder) ours() bool { return h.host || h.dir }

// waiting is what a source knows of its wait for the lock, over several attempts.
type waiting struct {
	foreign bool // somebody else held the lock since our position was stored
	now     holder
	since   time.Time // since when the same session holds it, or nobody
	killed  uint64    // the session that we ended
}

// verdict is what to do about the lock.
type verdict int

const (
	take      verdict = iota
	wait              // as a standby
	endOurs           // end our own earlier session, then wait for the lock
	stopThere         // the lock is free, and what the other one sent is not known
)

// look decides, given who holds the lock now. Pure.
func (w *waiting) look(h holder, now time.Time) verdict {
	if h.id != w.now.id || w.since.IsZero() {
		w.since = now
	}
	w.now = h
	held := now.Sub(w.since)
	switch {
	case h.id == 0 && !w.foreign:
		return take
	case h.id == 0 && held < standbyGrace:
		return wait
	case h.id == 0:
		return stopThere
	case !h.ours():
		w.foreign = true
	case held > 2*lockIdle:
		// The server would have dropped the session of a process that is gone: this one lives, on a copy of our data_dir or under our
		// host's name.
		w.foreign = true
	case h.host && h.dir && w.killed != h.id && !w.foreign:
		// Both at once prove it, and the lock on data_dir proves that the process of that session is gone.
		w.killed = h.id
		return endOurs
	}
	return wait
}

// heldLock is the lock while we hold it.
type heldLock struct {
	c     *conn
	id    uint32
	check string // the question that pings

	// ctx ends, with the fault as its cause, when the lock is no longer provably ours.
	ctx  context.Context
	lost context.CancelCauseFunc
	done chan struct{}
}

// acquire takes the lock, or says why not: Standby while another process has it, Safety where it is free and another process had it.
func (s *Source) acquire(ctx context.Context, meta *conn, from event.Checkpoint) error {
	if s.token == "" {
		s.token = parseDepends(from.Depends).Token
	}
	if s.token == "" {
		var b [16]byte
		_, _ = rand.Read(b[:])
		s.token = hex.EncodeToString(b[:])
	}
	names := lockNames(s.o.Pipeline, s.tables, s.folded, s.seed, s.token)
	if !s.recalled {
		s.recalled, s.wait.foreign = true, s.waitedBefore(from)
	}
	accepted := slices.Contains(from.Accepted, codeTakeover)
	for range 3 {
		h, err := s.lockHolder(ctx, meta, names)
		if err != nil {
			return s.lockFault(err)
		}
		if h.id == 0 && s.wait.foreign && (accepted || s.nothingSince(from)) {
			s.wait.foreign = false
		}
		switch s.wait.look(h, time.Now()) {
		case wait:
			return s.standby(from)
		case stopThere:
			return s.fault(codeTakeover, event.Safety, "take the pipeline's lock over", "another process ran this pipeline while we waited, and the stored position does not say how far it came",
				"go on from what the other one stored (outtail checkpoint show, there), or "+s.ways(codeTakeover, "GTID", "FILE:POS", "now"))
		case endOurs:
			s.log.Info("ending our own earlier session, which still holds the pipeline's lock", "connection", h.id)
			if _, err := meta.query(ctx, fmt.Sprintf("KILL CONNECTION %d", h.id)); err != nil {
				s.log.Debug("ending our own earlier session", "error", cause(err))
			}
			if err := s.awaitGone(ctx, meta, names, h.id); err != nil {
				return err
			}
			continue
		}
		l, err := s.take(ctx, names)
		if errors.Is(err, errTaken) {
			continue
		}
		if err != nil {
			return s.lockFault(err)
		}
		s.wait = waiting{}
		s.forgetWait()
		s.lock = l
		return nil
	}
	return s.standby(from)
}

// errTaken: another session was quicker.
var errTaken = errors.New("the lock was taken")

// take opens the session that holds the lock.
func (s *Source) take(ctx context.Context, names locks) (l *heldLock, err error) {
	c, err := s.connectSame(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if _, err := c.query(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", int(lockIdle.Seconds()))); err != nil {
		return nil, err
	}
	for _, n := range names.tables {
		got, err := s.value(ctx, c, "SELECT GET_LOCK("+quote(n)+", 0)")
		if err != nil {
			return nil, err
		}
		if got != "1" {
			return nil, errTaken
		}
	}
	// These only say who we are. Where one is taken already, the lock on the tables counts all the same.
	if _, err := c.query(ctx, fmt.Sprintf("SELECT GET_LOCK(%s, 0), GET_LOCK(%s, 0)", quote(names.dir), quote(names.host))); err != nil {
		return nil, err
	}
	checks := make([]string, len(names.tables))
	for i, n := range names.tables {
		checks[i] = "IS_USED_LOCK(" + quote(n) + ") = CONNECTION_ID()"
	}
	l = &heldLock{c: c, id: c.GetConnectionID(), check: "SELECT " + strings.Join(checks, " AND "), done: make(chan struct{})}
	l.ctx, l.lost = context.WithCancelCause(context.Background())
	// Owned by the lock; ends with release, which waits for it.
	go l.keep(s)
	return l, nil
}

// keep pings the session that holds the lock until it is lost or released.
func (l *heldLock) keep(s *Source) {
	defer close(l.done)
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	answered := time.Now() // when the last question that was answered was asked
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		ctx, cancel := context.WithDeadline(l.ctx, answered.Add(lockLate))
		mine, err := s.value(ctx, l.c, l.check)
		cancel()
		switch {
		case l.ctx.Err() != nil:
			return
		case err == nil && mine == "1":
			answered = asked
		case err == nil:
			l.lost(s.lockLost("the server says that the pipeline's lock is not ours any more", nil))
			return
		case errors.Is(err, context.DeadlineExceeded):
			l.lost(s.lockLost(fmt.Sprintf("the session that holds the pipeline's lock did not answer for %v", lockLate), nil))
			return
		default:
			l.lost(s.lockLost("the session that holds the pipeline's lock was lost", err))
			return
		}
	}
}

// release gives the lock back: at once where the server answers, else when it notices.
func (l *heldLock) release() {
	if l == nil {
		return
	}
	l.lost(nil)
	<-l.done
	if l.fault() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = l.c.query(ctx, "DO RELEASE_ALL_LOCKS()")
	}
	l.c.close()
}

// fault is why the lock is no longer ours; nil while it is.
func (l *heldLock) fault() *event.Fault {
	if l == nil || l.ctx.Err() == nil {
		return nil
	}
	return event.AsFault(context.Cause(l.ctx))
}

// Fence ends, with the fault as its cause, when the session that is open may send nothing more (see pipeline.Fenced).
func (s *Source) Fence() context.Context {
	if s.lock == nil {
		return context.Background()
	}
	return s.lock.ctx
}

// lockHolder asks who holds the lock of any of our tables.
func (s *Source) lockHolder(ctx context.Context, c *conn, names locks) (holder, error) {
	cols := []string{"IS_USED_LOCK(" + quote(names.dir) + ")", "IS_USED_LOCK(" + quote(names.host) + ")"}
	for _, n := range names.tables {
		cols = append(cols, "IS_USED_LOCK("+quote(n)+")")
	}
	r, err := c.query(ctx, "SELECT "+strings.Join(cols, ", "))
	if err != nil {
		return holder{}, err
	}
	ids := make([]uint64, len(cols))
	for i := range ids {
		ids[i], _ = r.GetUint(0, i) // NULL is 0
	}
	var h holder
	for _, id := range ids[2:] {
		if id == 0 {
			continue
		}
		one := holder{id, id == ids[1], id == ids[0]}
		if h.id == 0 || !one.ours() {
			h = one
		}
	}
	return h, nil
}

// awaitGone waits a moment until a session that was ended holds nothing any more.
func (s *Source) awaitGone(ctx context.Context, c *conn, names locks, id uint64) error {
	wait, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for {
		h, err := s.lockHolder(wait, c, names)
		if wait.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return s.lockFault(err)
		}
		if h.id != id {
			return nil
		}
		select {
		case <-wait.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lockFault classifies what kept the lock from being asked for.
func (s *Source) lockFault(err error) error {
	if f := event.AsFault(err); f != nil {
		return f
	}
	var me *mysql.MyError
	// A server that goes down, is short of something or ended the session says nothing about locks: asked again. Whatever else it
	// answers to a plain GET_LOCK is that it does not have it: proxies, clusters, and forks have each a code of their own for that.
	if errors.As(err, &me) && !serverGoes(me.Code) && !serverShort(me.Code) {
		return &event.Fault{Code: codeNoLock, Class: event.Environment, Immediate: true, Op: "take the pipeline's lock", Place: s.place(), Text: "the server refuses named locks (GET_LOCK)",
			Hint: "connect to a server that allows them, not through a proxy; Percona XtraDB Cluster: SET GLOBAL pxc_strict_mode = 'PERMISSIVE';", Err: cause(err)}
	}
	return s.queryFault("take the pipeline's lock", err)
}

func (s *Source) lockLost(text string, err error) *event.Fault {
	f := s.fault(codeLockLost, event.Retry, "hold the pipeline's lock", text, "nothing is sent until the lock is ours again; it is tried at once. Look at the server and the network if it happens often")
	if err != nil {
		f.Err = cause(err)
	}
	return f
}

// standby tells that we wait.
func (s *Source) standby(from event.Checkpoint) *event.Fault {
	if s.wait.foreign {
		s.rememberWait(from)
	}
	text := fmt.Sprintf("connection %d of another process holds the pipeline's lock", s.wait.now.id)
	switch {
	case s.wait.now.id == 0:
		text = "the pipeline's lock is free; its holder has a moment to come back"
	case s.wait.now.ours() && !s.wait.foreign:
		text = fmt.Sprintf("connection %d, an earlier session of ours, still holds the pipeline's lock", s.wait.now.id)
	}
	f := s.fault(codeStandby, event.Retry, "take the pipeline's lock", text,
		"this process waits as a standby. Whoever holds the lock: SELECT * FROM information_schema.processlist WHERE id = CONNECTION. A pipeline that is meant to run beside it needs another name")
	f.Standby = true
	return f
}

// nothingSince reports whether the server has committed nothing after the stored position: then nobody can have passed it.
func (s *Source) nothingSince(from event.Checkpoint) bool {
	if from.Position.GTID == "" {
		return false
	}
	if s.o.Kind == event.MariaDB {
		pos, err := parseMariaPos(from.Position.GTID)
		return err == nil && maps.Equal(pos, s.server.binlogPos)
	}
	set, err := parseGTIDSet(from.Position.GTID)
	return err == nil && s.server.gtids && s.server.executed.minus(set).empty()
}

// A standby that is restarted must not forget that it waited: what it would find then looks like a first start, or like its own
// position. So the wait is written down, with the position for which it holds; a position that a person sets ends it.

func (s *Source) waitFile() string {
	if s.o.SpillDir == "" {
		return ""
	}
	return filepath.Join(s.o.SpillDir, s.o.Pipeline+".standby")
}

func waitMark(from event.Checkpoint) string {
	if from.IsZero() {
		return "no position"
	}
	return from.SavedAt.UTC().Format(time.RFC3339Nano) + " " + from.Position.String()
}

func (s *Source) waitedBefore(from event.Checkpoint) bool {
	name := s.waitFile()
	if name == "" {
		return false
	}
	b, err := os.ReadFile(name)
	return err == nil && string(b) == waitMark(from)
}

func (s *Source) rememberWait(from event.Checkpoint) {
	name := s.waitFile()
	if name == "" || s.noted {
		return
	}
	err := os.MkdirAll(s.o.SpillDir, 0o700)
	if err == nil {
		err = os.WriteFile(name, []byte(waitMark(from)), 0o600)
	}
	if err != nil {
		s.log.Warn("that we waited as a standby could not be written down", "file", name, "error", err)
		return
	}
	s.noted = true
}

func (s *Source) forgetWait() {
	s.noted = false
	if name := s.waitFile(); name != "" {
		_ = os.Remove(name)
	}
}
