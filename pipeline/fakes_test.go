package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/outtail/outtail/event"
)

// fakeLog is a database's log: transactions of rows; position n stands after the n-th transaction.
type fakeLog struct {
	mu  sync.Mutex
	txs [][]string
	cut int // bumped to break sessions
	// add is closed and replaced when something was appended or cut.
	add chan struct{}
}

func newLog(txs ...[]string) *fakeLog { return &fakeLog{txs: txs, add: make(chan struct{})} }

func (l *fakeLog) append(rows ...string) { l.change(func() { l.txs = append(l.txs, rows) }) }
func (l *fakeLog) cutSessions()          { l.change(func() { l.cut++ }) }
func (l *fakeLog) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.add)
	l.add = make(chan struct{})
}

type fakeSource struct {
	log       *fakeLog
	openErr   func() error
	mu        sync.Mutex
	next      int // transaction
	row       int
	cut       int
	confirmed event.LSN
	opens     int
	held      int // batches not released
	batchRows int
	// selection is what it says of the tables that it reads.
	selection string
	// restates has each session tell a bound where it began, as a heartbeat does.
	restates bool
	restated bool
	// gate, where not nil, keeps it from reading until it is closed.
	gate chan struct{}
}

func (s *fakeSource) Open(ctx context.Context, from event.Checkpoint) (event.Checkpoint, error) {
	if err := ctx.Err(); err != nil {
		return event.Checkpoint{}, err // as a dial says that is begun too late
	}
	if s.openErr != nil {
		if err := s.openErr(); err != nil {
			return event.Checkpoint{}, err
		}
	}
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens++
	s.cut, s.restated = s.log.cut, false
	if from.IsZero() {
		from.Position = event.Position{Kind: event.Postgres, Slot: "s"}
	}
	s.next, s.row = int(from.Position.LSN), 0
	if p := from.Prefix; p != nil && p.Tx == fmt.Sprint(s.next) {
		s.row = int(p.Rows)
	}
	from.Selection = cmp.Or(s.selection, "all")
	return from, nil
}

func (s *fakeSource) Read(ctx context.Context) (*event.Batch, error) {
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for {
		s.log.mu.Lock()
		if s.cut != s.log.cut {
			s.log.mu.Unlock()
			return nil, &event.Fault{Code: "OT2999", Class: event.Retry, Op: "read", Text: "cut"}
		}
		if s.next < len(s.log.txs) {
			b := s.read()
			s.log.mu.Unlock()
			return b, nil
		}
		more := s.log.add
		s.log.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read takes up to batchRows rows, so that large transactions lie in several batches.
func (s *fakeSource) read() *event.Batch {
	b := &event.Batch{}
	var tx *event.Tx
	if s.restates && !s.restated {
		b.Bounds = append(b.Bounds, event.Bound{At: uint64(s.next)})
	}
	s.restated = true
	for len(b.Events) < max(1, s.batchRows) && s.next < len(s.log.txs) {
		rows := s.log.txs[s.next]
		if s.row < len(rows) {
			if tx == nil {
				tx = &event.Tx{ID: fmt.Sprint(s.next), Source: fmt.Sprintf("fake/%d", s.next), Commit: time.Now()}
			}
			ev := event.Event{Tx: tx, Index: uint64(s.row), Size: 100}
			ev.Row[event.Payload] = event.Value{Set: true, Bytes: []byte(rows[s.row])}
			if name, _, ok := strings.Cut(rows[s.row], ":"); ok {
				ev.Row[event.AggregateID] = event.Value{Set: true, Bytes: []byte(name)}
			}
			b.Events = append(b.Events, ev)
			s.row++
		}
		if s.row >= len(rows) {
			s.next, s.row, tx = s.next+1, 0, nil
			b.Bounds = append(b.Bounds, event.Bound{After: len(b.Events), At: uint64(s.next)})
		}
	}
	s.mu.Lock()
	s.held++
	s.mu.Unlock()
	b.Release = func() {
		s.mu.Lock()
		s.held--
		s.mu.Unlock()
	}
	return b
}

func (s *fakeSource) Position(at uint64) (event.Position, []byte) {
	return event.Position{Kind: event.Postgres, Slot: "s", LSN: event.LSN(at)}, nil
}

// LogEnd is where the log ends now; see Covers.
func (s *fakeSource) LogEnd() event.Position {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return event.Position{Kind: event.Postgres, Slot: "s", LSN: event.LSN(len(s.log.txs))}
}

func (s *fakeSource) Confirm(p event.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.LSN < s.confirmed {
		panic("confirmed backwards")
	}
	s.confirmed = p.LSN
}
func (s *fakeSource) Lag() Lag     { return Lag{Bytes: -1, RetainedBytes: -1, RetentionLeft: -1} }
func (s *fakeSource) Close() error { return nil }

// fakeSink acks after a random delay, each key in order, or as its hook says.
type fakeSink struct {
	down bool // no broker answers Open
	acks Acks
	id   string
	hook func(m *event.Message) (handled bool)

	mu     sync.Mutex
	got    []string
	acked  []string
	wg     sync.WaitGroup
	closed bool
}

func (s *fakeSink) answerTo(a Acks) { s.acks = a }

func (s *fakeSink) Open(context.Context) (event.SinkID, error) {
	if s.down {
		return event.SinkID{}, &event.Fault{Code: "OT5001", Class: event.Retry, Op: "connect", Text: "no broker answers", Hint: "start one"}
	}
	return event.SinkID{Kind: "kafka", ClusterID: s.id}, nil
}

func (s *fakeSink) Send(ctx context.Context, m *event.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("closed")
	}
	s.got = append(s.got, string(m.Value))
	if s.hook != nil && s.hook(m) {
		return nil
	}
	s.wg.Add(1)
	go func() { // ends within 10 ms
		defer s.wg.Done()
		time.Sleep(rand.N(10 * time.Millisecond))
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.acked = append(s.acked, string(m.Value))
		}
		s.mu.Unlock()
		if !closed {
			s.acks.Acked(m.Seq)
		}
	}()
	return nil
}

// Discard lets go of what was never acked.
func (s *fakeSink) Discard(seqs []uint64) []uint64 { return seqs }

func (s *fakeSink) Flush(ctx context.Context) error {
	done := make(chan struct{})
	go func() { s.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *fakeSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *fakeSink) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

// fakeStore keeps what was saved; check, where set, sees each save.
type fakeStore struct {
	mu    sync.Mutex
	cps   map[string]event.Checkpoint
	check func(event.Checkpoint)
	fail  error
	die   *crash
	saves int
}

func (s *fakeStore) Load(p string) (event.Checkpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cps[p], nil
}

func (s *fakeStore) Save(_ context.Context, entries map[string]event.Checkpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	if !s.die.step(func() {
		s.saves++
		for k, cp := range entries {
			if s.check != nil {
				s.check(cp)
			}
			if s.cps == nil {
				s.cps = map[string]event.Checkpoint{}
			}
			s.cps[k] = cp
		}
	}) {
		return killed
	}
	return nil
}

type plainRoute struct{}

func (plainRoute) Route(ev *event.Event, m *event.Message) (Decision, error) {
	switch string(ev.Row[event.Payload].Bytes) {
	case "drop":
		return Drop, nil
	case "poison":
		return Deliver, &event.Fault{Code: "OT6101", Class: event.Record, Op: "route", Text: "no route"}
	}
	m.Topic, m.Key = "t", []byte("k")
	return Deliver, nil
}

func (plainRoute) Transform(ev *event.Event, m *event.Message) error {
	m.Value = ev.Row[event.Payload].Bytes
	return nil
}

// Nothing is an Observer that looks away.
type nothing struct{}

func (nothing) State(string, State)                          {}
func (nothing) Read(string, int)                             {}
func (nothing) Filtered(string, string, int)                 {}
func (nothing) HeadersSkipped(string, int)                   {}
func (nothing) TimestampsReplaced(string, int)               {}
func (nothing) Sent(string, string, int)                     {}
func (nothing) Acked(string, string, int)                    {}
func (nothing) SendError(string, event.Class)                {}
func (nothing) SendUnknown(string, int)                      {}
func (nothing) Parked(string, string, int)                   {}
func (nothing) DeadLetters(string, int, time.Duration)       {}
func (nothing) Replayed(string, string, int)                 {}
func (nothing) Latency(string, time.Duration, time.Duration) {}
func (nothing) InFlight(string, int, int64)                  {}
func (nothing) OldestUnacked(string, time.Duration)          {}
func (nothing) Saved(string, time.Duration, time.Time)       {}
func (nothing) Lag(string, float64, Lag)                     {}
func (nothing) Reconnect(string)                             {}

// world is one process: a committer and a pipeline over a log, a sink and a store that may outlive it.
type world struct {
	src   *fakeSource
	sink  *fakeSink
	store *fakeStore
	p     *Pipeline
	stop  context.CancelFunc
	end   func()
	err   chan error
}

func start(src *fakeSource, sink *fakeSink, store *fakeStore, tune func(*Options)) *world {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	c := NewCommitter(store, 100*time.Millisecond, log, nothing{})
	o := Options{
		Name: "p", Source: src, Sink: sink, Router: plainRoute{}, Transformer: plainRoute{}, Store: store, Committer: c,
		Observer: nothing{}, Log: log, InFlightEvents: 16, InFlightBytes: 1000, StartTimeout: 30 * time.Second,
		DrainTimeout: 10 * time.Second, Version: "test",
	}
	if tune != nil {
		tune(&o)
	}
	p := New(o)
	o.Sink.(interface{ answerTo(Acks) }).answerTo(p)
	committing, endCommitter := context.WithCancel(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(committing) }()
	w := &world{src: src, sink: sink, store: store, p: p, stop: stop, err: make(chan error, 1)}
	w.end = func() { endCommitter(); <-done; sink.wg.Wait() }
	go func() { w.err <- p.Run(ctx) }()
	return w
}
