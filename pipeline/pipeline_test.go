package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// pass lets time pass and everything come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestEventsFlowInOrderAndThePositionFollowsTheAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog([]string{"a", "b", "drop"}, nil, []string{"c"})
		src := &fakeSource{log: log, batchRows: 2}
		w := start(src, &fakeSink{id: "one"}, &fakeStore{}, nil)
		pass(2 * time.Second)
		require.Equal(t, []string{"a", "b", "c"}, w.sink.sent())
		cp := w.p.Checkpoint()
		require.Equal(t, event.LSN(3), cp.Position.LSN)
		require.Nil(t, cp.Prefix)
		require.Equal(t, uint64(4), cp.Events)
		require.Equal(t, "one", cp.Sink.ClusterID)
		require.Equal(t, event.LSN(3), src.confirmed)

		log.append() // a transaction without our rows moves the position as well (I6)
		pass(2 * time.Second)
		require.Equal(t, event.LSN(4), src.confirmed)
		require.Zero(t, src.held, "all buffers went back")

		w.stop()
		require.NoError(t, <-w.err)
		s, _, _ := w.p.State()
		require.Equal(t, Stopped, s)
		w.end()
	})
}

func TestNothingIsConfirmedBeforeItIsSavedNorSavedBeforeItIsAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog([]string{"1"}, []string{"2"}, []string{"3"})
		sink := &fakeSink{hook: func(m *event.Message) bool { return string(m.Value) == "2" }} // 2 is never acked
		src := &fakeSource{log: log, batchRows: 8}
		w := start(src, sink, &fakeStore{}, nil)
		pass(time.Second)
		require.Equal(t, event.LSN(1), w.p.Checkpoint().Position.LSN)
		require.Equal(t, event.LSN(1), src.confirmed)
		w.store.mu.Lock()
		w.store.fail = &event.Fault{Code: "OT4999", Class: event.Retry, Op: "save", Text: "disk full"}
		w.store.mu.Unlock()
		w.p.Acked(1)
		pass(time.Second)
		require.Equal(t, event.LSN(1), src.confirmed, "a save that failed confirms nothing")
		s, _, why := w.p.State()
		require.Equal(t, Degraded, s)
		require.Equal(t, "OT4999", why[0].Fault.Code)
		w.store.mu.Lock()
		w.store.fail = nil
		w.store.mu.Unlock()
		pass(10 * time.Second)
		require.Equal(t, event.LSN(3), src.confirmed)
		s, _, _ = w.p.State()
		require.Equal(t, Streaming, s)
		w.stop()
		<-w.err
		w.end()
	})
}

func TestTheWindowBoundsWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := make([]string, 100)
		for i := range rows {
			rows[i] = fmt.Sprint(i)
		}
		sink := &fakeSink{hook: func(*event.Message) bool { return true }} // a broker that does not answer
		w := start(&fakeSource{log: newLog(rows), batchRows: 100}, sink, &fakeStore{}, nil)
		pass(time.Hour)
		require.Len(t, sink.sent(), 10, "1,000 bytes, 100 each")
		w.p.Acked(1)
		pass(time.Second)
		require.Len(t, sink.sent(), 10, "an ack behind a gap makes no room")
		w.p.Acked(0)
		pass(time.Second)
		require.Len(t, sink.sent(), 12)
		require.Equal(t, &event.Prefix{Tx: "0", Rows: 2, Selection: "all"}, w.p.Checkpoint().Prefix)
		w.stop()
		require.NoError(t, <-w.err, "stopping gives up after the drain timeout")
		w.end()
	})
}

func TestAPoisonedEventHaltsWithItsPlaceAndIsFirstNextTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog([]string{"a", "poison", "b"}, []string{"c"})
		store := &fakeStore{}
		w := start(&fakeSource{log: log, batchRows: 9}, &fakeSink{}, store, nil)
		err := <-w.err
		w.end()
		f := event.AsFault(err)
		require.Equal(t, "OT6001", f.Code)
		require.Equal(t, "fake/0#1", f.Place)
		require.Equal(t, []string{"a"}, w.sink.sent())
		require.Equal(t, uint64(1), store.cps["p"].Prefix.Rows, "what lies before it was acked and saved")

		w = start(&fakeSource{log: log, batchRows: 9, restates: true}, &fakeSink{}, store, nil)
		require.Equal(t, "fake/0#1", event.AsFault(<-w.err).Place)
		w.end()
		require.Empty(t, w.sink.sent())
		require.NotNil(t, store.cps["p"].Prefix, "a bound where the session began takes nothing back")

		log.txs[0][1] = "mended"
		w = start(&fakeSource{log: log, batchRows: 9}, &fakeSink{}, store, nil)
		pass(time.Second)
		require.Equal(t, []string{"mended", "b", "c"}, w.sink.sent())
		w.stop()
		require.NoError(t, <-w.err)
		w.end()
	})
}

func TestAMessageThatFailsLateHaltsBehindWhatWasAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{}
		sink.hook = func(m *event.Message) bool {
			if string(m.Value) != "b" {
				return false
			}
			seq := m.Seq
			go sink.acks.Failed(seq, &event.Fault{Code: "OT5012", Class: event.Record, Place: "t", Text: "too large"})
			return true
		}
		store := &fakeStore{}
		w := start(&fakeSource{log: newLog([]string{"a", "b", "c"}), batchRows: 9}, sink, store, nil)
		f := event.AsFault(<-w.err)
		w.end()
		require.Equal(t, "OT6001", f.Code)
		require.ErrorContains(t, f, "OT5012")
		require.Equal(t, "fake/0#1", f.Place)
		require.Contains(t, f.Hint, "--to 'after:fake/0#1'", "the command takes it as it is printed")
		require.Equal(t, uint64(1), store.cps["p"].Prefix.Rows)
	})
}

func TestASourceThatGoesAwayIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog([]string{"a", "b"})
		var down atomic.Bool
		src := &fakeSource{log: log, batchRows: 9}
		src.openErr = func() error {
			if down.Load() {
				return &event.Fault{Code: "OT2001", Class: event.Environment, Op: "connect", Text: "refused"}
			}
			return nil
		}
		w := start(src, &fakeSink{}, &fakeStore{}, nil)
		pass(time.Second)
		down.Store(true)
		log.cutSessions()
		pass(10 * time.Minute)
		s, _, why := w.p.State()
		require.Equal(t, Degraded, s)
		require.Equal(t, "OT2001", why[0].Fault.Code)
		down.Store(false)
		log.append("c")
		pass(time.Minute)
		require.Equal(t, []string{"a", "b", "c"}, w.sink.sent())
		s, _, _ = w.p.State()
		require.Equal(t, Streaming, s)
		w.stop()
		require.NoError(t, <-w.err)
		w.end()
	})
}

func TestASinkThatHoldsEventsDoesNotKeepTheSourceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newLog([]string{"a"}, []string{"b"})
		src := &fakeSource{log: log, batchRows: 9}
		var held []uint64
		sink := &fakeSink{}
		sink.hook = func(m *event.Message) bool {
			held = append(held, m.Seq)
			return true
		}
		w := start(src, sink, &fakeStore{}, nil)
		pass(time.Second)
		log.cutSessions()
		pass(time.Minute)
		require.Equal(t, 2, src.opens)
		require.Equal(t, []string{"a", "b", "a", "b"}, sink.sent(), "a contiguous re-run behind what is held")
		require.Equal(t, event.LSN(0), w.p.Checkpoint().Position.LSN)
		for _, seq := range held {
			w.p.Acked(seq)
		}
		pass(time.Second)
		require.Equal(t, event.LSN(2), w.p.Checkpoint().Position.LSN)
		require.Zero(t, src.held)
		w.stop()
		require.NoError(t, <-w.err)
		w.end()
	})
}

func TestStartGivesUpOnAnUnreachableSource(t *testing.T) {
	for name, c := range map[string]struct {
		fault event.Fault
		after time.Duration
		class event.Class
	}{
		"unreachable: after start_timeout": {event.Fault{Code: "OT2001", Class: event.Environment}, 30 * time.Second, event.Environment},
		"a missing table: at once":         {event.Fault{Code: "OT2010", Class: event.Environment, Immediate: true}, 0, event.Environment},
		"a lost slot: at once":             {event.Fault{Code: "OT2020", Class: event.Safety}, 0, event.Safety},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				src := &fakeSource{log: newLog(), openErr: func() error { f := c.fault; return &f }}
				w := start(src, &fakeSink{}, &fakeStore{}, nil)
				f := event.AsFault(<-w.err)
				w.end()
				require.Equal(t, c.fault.Code, f.Code)
				require.Equal(t, c.class, f.Class)
				require.InDelta(t, c.after.Seconds(), time.Since(began).Seconds(), 1)
				s, _, _ := w.p.State()
				require.Equal(t, Failed, s)
			})
		})
	}
}

func TestAStandbyWaitsForAsLongAsItTakes(t *testing.T) {
	// The pauses between two attempts grow to 10 s, beyond the shorter ones.
	for _, timeout := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var free atomic.Bool
			src := &fakeSource{log: newLog([]string{"a"}), openErr: func() error {
				if free.Load() {
					return nil
				}
				return &event.Fault{Code: "OT2030", Class: event.Retry, Standby: true}
			}}
			w := start(src, &fakeSink{}, &fakeStore{}, func(o *Options) { o.StartTimeout = timeout })
			pass(time.Hour)
			_, _, why := w.p.State()
			require.Len(t, why, 1, "start_timeout %s", timeout)
			require.True(t, why[0].Fault.Standby)
			free.Store(true)
			pass(time.Minute)
			require.Equal(t, []string{"a"}, w.sink.sent())
			w.stop()
			require.NoError(t, <-w.err)
			w.end()
		})
	}
}

func TestAnotherClusterIsASafetyStopUnlessAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		down := false
		var said bytes.Buffer
		used := func(code string) int {
			return strings.Count(said.String(), "the acceptance is used up\" pipeline=p code="+code)
		}
		run := func(cluster string) *event.Fault {
			w := start(&fakeSource{log: newLog([]string{"a"})}, &fakeSink{id: cluster, down: down}, store, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&said, nil)) })
			pass(time.Second)
			w.stop()
			err := <-w.err
			w.end()
			return event.AsFault(err)
		}
		require.Nil(t, run("one"))
		require.Equal(t, "OT6003", run("two").Code)
		require.Equal(t, "OT6003", run("two").Code, "also the second time")
		cp := store.cps["p"]
		cp.Accepted = []string{"OT6003", "OT3017"}
		store.cps["p"] = cp
		down = true
		require.Nil(t, run("two"))
		down = false
		require.Equal(t, 1, used("OT3017"), "the source's, which did start")
		require.Zero(t, used("OT6003"))
		require.Nil(t, run("two"), "a start without a broker did not use the acceptance up")
		require.Empty(t, store.cps["p"].Accepted, "an acceptance is used once")
		require.Equal(t, 1, used("OT6003"), "and that is said")
		require.Equal(t, 1, used("OT3017"))
		require.Equal(t, "OT6003", run("one").Code)
	})
}

// TestCrashesLoseNothing kills the process at random instants: what was sent is there, the store keeps what was saved,
// everything else is gone. First occurrences come in commit order, repeats are contiguous re-runs.
func TestCrashesLoseNothing(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				log := newLog()
				var want []string
				for tx := range 120 {
					var rows []string
					for r := range rnd.IntN(9) {
						rows = append(rows, fmt.Sprintf("%03d.%d", tx, r))
					}
					want = append(want, rows...)
					log.append(rows...)
				}
				store := &fakeStore{}
				var ackedMu sync.Mutex
				acked := map[string]bool{}
				store.check = func(cp event.Checkpoint) { // I1: everything before the position was acked
					ackedMu.Lock()
					defer ackedMu.Unlock()
					for i, rows := range log.txs {
						for r, row := range rows {
							before := i < int(cp.Position.LSN) || (i == int(cp.Position.LSN) && cp.Prefix != nil && r < int(cp.Prefix.Rows))
							if before && !acked[row] {
								t.Errorf("saved %v/%v before the ack of %s", cp.Position, cp.Prefix, row)
							}
						}
					}
				}
				var all []string
				for life := 0; ; life++ {
					sink := &fakeSink{}
					src := &fakeSource{log: log, batchRows: 1 + rnd.IntN(20)}
					sink.hook = func(m *event.Message) bool {
						v := string(m.Value)
						seq, delay := m.Seq, rand.N(20*time.Millisecond)
						sink.wg.Add(1)
						go func() {
							defer sink.wg.Done()
							time.Sleep(delay)
							sink.mu.Lock()
							defer sink.mu.Unlock()
							if !sink.closed {
								ackedMu.Lock()
								acked[v] = true
								ackedMu.Unlock()
								sink.acks.Acked(seq)
							}
						}()
						return true
					}
					w := start(src, sink, store, func(o *Options) { o.DrainTimeout = time.Nanosecond })
					d := rand.N(300 * time.Millisecond)
					if life > 30 {
						d = time.Minute
					}
					time.Sleep(d)
					_ = sink.Close() // nothing is acked any more
					store.mu.Lock()
					store.fail = context.Canceled // and nothing saved
					store.mu.Unlock()
					w.stop()
					<-w.err
					w.end()
					store.mu.Lock()
					store.fail = nil
					store.mu.Unlock()
					all = append(all, sink.sent()...)
					if life > 30 {
						break
					}
				}
				seen := map[string]bool{}
				var first []string
				for i, v := range all {
					if !seen[v] {
						first = append(first, v)
						seen[v] = true
						continue
					}
					if i > 0 && all[i-1] != v { // a repeat follows its predecessor, or begins a re-run
						at := slices.Index(want, v)
						if at > 0 && all[i-1] != want[at-1] {
							require.LessOrEqual(t, strings.Compare(v, all[i-1]), 0, "an old event after a newer one begins a re-run")
						}
					}
				}
				require.Equal(t, want, first)
			})
		})
	}
}

// silentSource accepts a connection and says nothing.
type silentSource struct{ *fakeSource }

func (s silentSource) Open(ctx context.Context, _ event.Checkpoint) (event.Checkpoint, error) {
	<-ctx.Done()
	return event.Checkpoint{}, ctx.Err()
}

func TestASourceThatSaysNothingDoesNotStretchStartTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		src := silentSource{&fakeSource{log: newLog()}}
		w := start(src.fakeSource, &fakeSink{}, &fakeStore{}, func(o *Options) { o.Source, o.StartTimeout = src, 5*time.Second })
		pass(time.Second)
		s, _, why := w.p.State()
		require.Equal(t, Starting, s)
		require.Equal(t, "OT6006", why[0].Fault.Code, "it says what it waits for")
		f := event.AsFault(<-w.err)
		w.end()
		require.Equal(t, "OT6007", f.Code)
		require.Equal(t, event.Environment, f.Class)
		require.InDelta(t, 5, time.Since(began).Seconds(), 0.5)
	})
}

// unwillingSource answers for some time, and then as a connection does whose deadline has passed.
type unwillingSource struct {
	*fakeSource
	answers time.Time // until when
}

func (s unwillingSource) Open(ctx context.Context, _ event.Checkpoint) (event.Checkpoint, error) {
	took := 10 * time.Millisecond // of a login that is refused
	if time.Now().After(s.answers) {
		took = time.Hour
	}
	deadline, _ := ctx.Deadline()
	select {
	case <-time.After(took):
		return event.Checkpoint{}, &event.Fault{Code: "OT2002", Class: event.Environment, Text: "the server refuses the user"}
	case <-time.After(time.Until(deadline) - time.Millisecond): // the timer of a connection is not the context's
		return event.Checkpoint{}, &event.Fault{Code: "OT2001", Class: event.Environment, Text: "the server cannot be reached", Err: os.ErrDeadlineExceeded}
	}
}

func TestWhatEndsAStartIsNotTheDeadlineOfItsLastAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		answers time.Duration
		code    string
	}{
		"refused to the end":             {time.Hour, "OT2002"},
		"the last attempt had no answer": {3 * time.Second, "OT2002"},
		"no attempt had an answer":       {-time.Second, "OT2001"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				src := unwillingSource{&fakeSource{log: newLog()}, began.Add(c.answers)}
				w := start(src.fakeSource, &fakeSink{}, &fakeStore{}, func(o *Options) { o.Source, o.StartTimeout = src, 5*time.Second })
				f := event.AsFault(<-w.err)
				w.end()
				require.Equal(t, c.code, f.Code)
				require.Contains(t, f.Text, "gave up after start_timeout (5s)")
				require.NotContains(t, f.Text, "tries again", "that is over")
				require.InDelta(t, 5, time.Since(began).Seconds(), 0.5)
			})
		})
	}
}

func TestAStandbyWhoseServerGoesAwayIsGivenStartTimeoutFromThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		src := &fakeSource{log: newLog(), openErr: func() error {
			if time.Since(began) < time.Hour {
				return &event.Fault{Code: "OT3015", Class: event.Retry, Standby: true}
			}
			return &event.Fault{Code: "OT3001", Class: event.Environment}
		}}
		w := start(src, &fakeSink{}, &fakeStore{}, nil)
		require.Equal(t, "OT3001", event.AsFault(<-w.err).Code)
		w.end()
		require.InDelta(t, time.Hour.Seconds()+30, time.Since(began).Seconds(), 15)
	})
}

// fencedSource can lose the right to send.
type fencedSource struct {
	*fakeSource
	mu    sync.Mutex
	fence context.Context
	lose  context.CancelCauseFunc
}

func (s *fencedSource) Open(ctx context.Context, from event.Checkpoint) (event.Checkpoint, error) {
	s.mu.Lock()
	s.fence, s.lose = context.WithCancelCause(context.Background())
	s.mu.Unlock()
	return s.fakeSource.Open(ctx, from)
}

func (s *fencedSource) Fence() context.Context { s.mu.Lock(); defer s.mu.Unlock(); return s.fence }

func TestNothingIsHandedToTheSinkOnceTheRightToSendIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := make([]string, 100)
		for i := range rows {
			rows[i] = fmt.Sprint(i)
		}
		// The broker does not answer: the window is full, and the rest of the batch waits for room.
		var held []uint64
		answers := false
		sink := &fakeSink{}
		sink.hook = func(m *event.Message) bool {
			if !answers {
				held = append(held, m.Seq)
			}
			return !answers
		}
		var taken atomic.Bool
		src := &fencedSource{fakeSource: &fakeSource{log: newLog(rows), batchRows: 100}}
		src.openErr = func() error {
			if taken.Load() {
				return &event.Fault{Code: "OT3015", Class: event.Retry, Standby: true}
			}
			return nil
		}
		w := start(src.fakeSource, sink, &fakeStore{}, func(o *Options) { o.Source = src })
		pass(time.Minute)
		require.Len(t, sink.sent(), 10)
		taken.Store(true)
		src.lose(&event.Fault{Code: "OT3016", Class: event.Retry, Text: "lost"})
		pass(time.Second)
		_, _, why := w.p.State()
		require.NotEmpty(t, why)
		answers = true
		for _, seq := range held {
			w.p.Acked(seq)
		}
		pass(time.Hour)
		require.Len(t, sink.sent(), 10, "room in the window is no reason to send")
		taken.Store(false)
		pass(time.Minute)
		require.Subset(t, sink.sent(), rows)
		w.stop()
		require.NoError(t, <-w.err)
		w.end()
	})
}

func TestAProcessThatWasReplacedTakesItsUnackedEventsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{hook: func(*event.Message) bool { return true }} // the broker does not answer
		var taken atomic.Bool
		src := &fencedSource{fakeSource: &fakeSource{log: newLog([]string{"a"}), batchRows: 9}}
		src.openErr = func() error {
			if taken.Load() {
				return &event.Fault{Code: "OT3015", Class: event.Retry, Standby: true}
			}
			return nil
		}
		w := start(src.fakeSource, sink, &fakeStore{}, func(o *Options) { o.Source = src })
		pass(time.Second)
		taken.Store(true)
		src.lose(&event.Fault{Code: "OT3016", Class: event.Retry})
		pass(3 * time.Second)
		taken.Store(false) // our own earlier session, gone in a moment: that is no reason to end
		pass(time.Minute)
		require.Equal(t, []string{"a", "a"}, sink.sent())
		taken.Store(true)
		src.lose(&event.Fault{Code: "OT3016", Class: event.Retry})
		f := event.AsFault(<-w.err)
		w.end()
		require.Equal(t, "OT6008", f.Code)
		require.True(t, sink.closed)
	})
}
