package pipeline

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// Another topic is for one replay: what it did not deliver goes where the routes say next time, and what it did is sent there again by a
// re-run.
func TestAReplayToAnotherTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.route.lose(map[string]bool{"a:0": true})
		l.broker.refuse("b:0", "b:1", "c:0")
		l.start()
		pass(time.Second)
		l.store.mu.Lock()
		l.store.fail = killed // no position passes what follows
		l.store.mu.Unlock()
		l.log.append("a:0", "a:1", "b:0", "b:1", "c:0")
		pass(time.Second)
		require.Len(t, l.dead.open(), 5)
		res, err := l.w.p.Replay(t.Context(), Replay{Topic: "other", Select: func(e *event.Parked) bool { return e.ID == "a:0" || e.ID == "c:0" }})
		require.NoError(t, err)
		require.Equal(t, ReplayResult{Acked: 1, Failed: 1, Drained: 1, First: res.First, FirstID: "c:0"}, res)
		require.Equal(t, "other", l.broker.to["a:0"], "no route is needed for it")
		require.Equal(t, "a", l.broker.key["a:0"], "its order is its aggregate's there too")
		require.Equal(t, "t", l.broker.to["a:1"], "what waited behind it was not meant")
		l.broker.refuse()
		_, err = l.w.p.Replay(t.Context(), Replay{})
		require.NoError(t, err)
		require.Equal(t, "t", l.broker.to["c:0"])
		require.NoError(t, l.end(true))

		clear(l.broker.to)
		l.start()
		pass(time.Second)
		require.Equal(t, map[string]string{"a:0": "other", "a:1": "t", "b:0": "t", "b:1": "t", "c:0": "t"}, l.broker.to)
		require.NoError(t, l.end(false))
	})
}

// counted is an Observer of what goes to the sink, by topic.
type counted struct {
	nothing
	mu          sync.Mutex
	sent, acked map[string]int
}

func (c *counted) Sent(_, topic string, n int)  { c.mu.Lock(); c.sent[topic] += n; c.mu.Unlock() }
func (c *counted) Acked(_, topic string, n int) { c.mu.Lock(); c.acked[topic] += n; c.mu.Unlock() }

// Whoever compares the two counts would take the difference for messages that wait.
func TestWhatIsReplayedIsCountedAsSentAndAsAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		c := &counted{sent: map[string]int{}, acked: map[string]int{}}
		l.observer = c
		l.route.lose(map[string]bool{"a:0": true})
		l.start()
		l.log.append("a:0", "a:1", "b:0")
		pass(time.Second)
		_, err := l.w.p.Replay(t.Context(), Replay{Topic: "other"})
		require.NoError(t, err)
		require.NoError(t, l.end(false))
		require.Equal(t, map[string]int{"other": 2, "t": 1}, c.acked)
		require.Equal(t, c.acked, c.sent)
	})
}

// A topic is no reason to give up an order that a key would keep: what has none is refused.
func TestAReplayToAnotherTopicNeedsAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Alone)
		defer l.over()
		l.route.lose(map[string]bool{"all": true})
		l.start()
		l.log.append("nobody's", "a:0")
		pass(time.Second)
		res, err := l.w.p.Replay(t.Context(), Replay{Topic: "other"})
		require.NoError(t, err)
		require.Equal(t, 1, res.Acked)
		require.Equal(t, 1, res.Failed)
		require.Equal(t, "OT6013", res.First.Code)
		require.Equal(t, map[string]string{"a:0": "a"}, l.broker.key)
		require.Len(t, l.dead.open(), 1)
		require.NoError(t, l.end(false))
	})
}

// Where one pipeline of several has failed, the process goes on answering for it.
func TestWhoeverAsksAFailedPipelineGetsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.dead.full = 1
		l.route.lose(map[string]bool{"all": true})
		l.log.append("a:0")
		l.start()
		pass(time.Second)
		l.log.append("b:0")
		pass(time.Second)
		require.Equal(t, "OT4999", event.AsFault(<-l.w.err).Code)
		l.ended = true
		_, err := l.w.p.Replay(t.Context(), Replay{})
		require.Equal(t, "OT6010", event.AsFault(err).Code, "and not that there was nothing to deliver")
		n, err := l.w.p.SkipParked(t.Context(), "skipped", func(*event.Parked) bool { return true })
		require.NoError(t, err)
		require.Equal(t, 1, n, "which makes the room that the stop asks for")
		l.w.end()
	})
}

// A replay that is cut off by the end of its pipeline has not ended well.
func TestAReplayThatIsCutOffSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.route.lose(map[string]bool{"all": true})
		l.start()
		l.log.append("a:0", "b:0", "c:0")
		pass(time.Second)
		require.Len(t, l.dead.open(), 3)
		l.route.lose(nil)
		told := make(chan error, 1)
		go func() { // ends with the replay
			_, err := l.w.p.Replay(t.Context(), Replay{Rate: 0.1})
			told <- err
		}()
		pass(5 * time.Second)
		require.NoError(t, l.end(false))
		require.Equal(t, "OT6014", event.AsFault(<-told).Code)
	})
}

// A replay to a topic that does not exist waits for it. Whoever ends it, because the name was wrong, leaves nothing behind in the sink: the
// position goes on, and the same events go where they are meant.
func TestAReplayThatIsGivenUpLeavesNothingInTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.route.lose(map[string]bool{"a:0": true})
		l.start()
		l.log.append("a:0", "a:1")
		pass(time.Second)
		require.Equal(t, []string{"a:0", "a:1"}, l.dead.open())
		l.sink.mu.Lock()
		l.sink.away = "wrong"
		l.sink.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.w.p.Replay(ctx, Replay{Topic: "wrong"})
		require.Error(t, err)
		for i := range 40 { // more than the window has room for
			l.log.append(fmt.Sprint("b:", i))
		}
		pass(3 * time.Second)
		inOrder(t, l.broker.of("b"), 40)
		require.EqualValues(t, len(l.log.txs), l.w.p.Checkpoint().Position.LSN)
		res, err := l.w.p.Replay(t.Context(), Replay{Topic: "right"})
		require.NoError(t, err)
		require.Equal(t, 2, res.Acked)
		require.Equal(t, "right", l.broker.to["a:0"])
		l.sink.mu.Lock()
		l.sink.away = ""
		l.sink.mu.Unlock()
		l.log.append("a:2")
		pass(time.Second)
		require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.broker.of("a"), "and nothing when the topic is there after all")
		require.NoError(t, l.end(false))
	})
}

// What a replay keeps back from the loop so that it can catch up with an aggregate is the loop of everybody.
func TestAReplayWithARateKeepsNobodyElseWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.route.lose(map[string]bool{"a:0": true})
		l.start()
		a, b := 0, 0
		write := func(key string, n *int) {
			l.log.append(fmt.Sprint(key, ":", *n))
			*n++
		}
		for range 200 {
			write("a", &a)
		}
		pass(time.Second)
		require.Len(t, l.dead.open(), 200)
		l.route.lose(nil)
		ended := make(chan error, 1)
		go func() { // ends with the replay
			_, err := l.w.p.Replay(t.Context(), Replay{Rate: 20})
			ended <- err
		}()
		worst := time.Duration(0)
		for done := false; !done; {
			for range 5 { // 16 a second, not much less than the rate allows
				write("a", &a)
				write("b", &b)
				began := time.Now()
				for len(l.broker.of("b")) < b {
					time.Sleep(time.Millisecond)
				}
				worst = max(worst, time.Since(began))
				time.Sleep(60 * time.Millisecond)
			}
			select {
			case err := <-ended:
				require.NoError(t, err)
				done = true
			default:
			}
		}
		require.Less(t, worst, 1500*time.Millisecond)
		pass(time.Second)
		require.Empty(t, l.dead.open())
		inOrder(t, l.broker.of("a"), a)
		require.NoError(t, l.end(false))
	})
}

// Whoever gives up waiting for a long replay does not want what was asked for to happen some time later.
func TestASkipThatIsGivenUpDoesNotHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.route.lose(map[string]bool{"all": true})
		l.start()
		l.log.append("a:0", "b:0", "c:0")
		pass(time.Second)
		l.route.lose(nil)
		replaying, stop := context.WithCancel(t.Context())
		defer stop()
		told := make(chan error, 1)
		go func() { // ends with the replay
			_, err := l.w.p.Replay(replaying, Replay{Rate: 0.1})
			told <- err
		}()
		pass(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.w.p.SkipParked(ctx, "skipped", func(*event.Parked) bool { return true })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		stop()
		require.Error(t, <-told)
		require.NotEmpty(t, l.dead.open())
		require.NoError(t, l.end(false))
	})
}

// A log that was reset gives its numbers a second time. What is parked of the first log is neither taken for a row of the second one, nor
// waited for, and what comes waits behind it.
func TestARowOfAnotherLogIsNotTakenForAParkedOne(t *testing.T) {
	for _, ahead := range []bool{false, true} { // the new log has come as far as the old one when it is opened
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLot(event.Park)
				defer l.over()
				l.route.lose(map[string]bool{"a:1": true, "s:0": true, "r:0": true})
				l.start()
				l.log.append("a:0")
				l.log.append("s:0")
				l.log.append("a:1", "r:0")
				pass(time.Second)
				_, err := l.w.p.SkipParked(t.Context(), "skipped", func(e *event.Parked) bool { return e.ID == "s:0" })
				require.NoError(t, err)
				require.Equal(t, []string{"a:1", "r:0"}, l.dead.open())
				require.NoError(t, l.end(false))
				l.route.lose(nil)

				l.log = newLog()
				second := [][]string{{"b:0"}, {"b:1"}, {"b:2", "a:2", "r:1"}, {"b:3", "a:3"}}
				if ahead {
					l.log = newLog(second...)
				}
				l.store.cps["p"] = event.Checkpoint{Position: event.Position{Kind: event.Postgres, Slot: "s", LSN: 0}}
				l.start()
				pass(time.Second)
				if !ahead {
					for _, rows := range second {
						l.log.append(rows...)
					}
				}
				pass(time.Second)
				inOrder(t, l.broker.of("b"), 4)
				require.Equal(t, []string{"a:0"}, l.broker.of("a"))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err = l.w.p.Replay(ctx, Replay{})
				require.NoError(t, err)
				inOrder(t, l.broker.of("a"), 4)
				inOrder(t, l.broker.of("r"), 2)
				require.Empty(t, l.dead.open())
				require.NoError(t, l.end(false))
			})
		})
	}
}

// A replay sends many of an aggregate at once. Where one in the middle is refused again, nothing that is behind it arrives without it: what
// cannot be routed never reaches the sink, and what the sink refuses is taken off its hands together with what it holds behind it.
func TestAReplayOvertakesNothingThatIsRefusedAgain(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late ", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLot(event.Park)
				defer l.over()
				l.roomy = true
				l.route.lose(map[string]bool{"a:0": true})
				l.start()
				for n := range 12 {
					l.log.append(fmt.Sprint("a:", n), fmt.Sprint("b:", n))
				}
				pass(time.Second)
				require.Len(t, l.dead.open(), 12)
				for _, bad := range []int{4, 8, 9} {
					v := fmt.Sprint("a:", bad)
					if late {
						l.route.lose(nil)
						l.broker.refuse(v)
					} else {
						l.route.lose(map[string]bool{v: true})
					}
					res, err := l.w.p.Replay(t.Context(), Replay{})
					require.NoError(t, err)
					require.Equal(t, 1, res.Failed)
					require.NotZero(t, res.Waiting)
					require.Len(t, l.dead.open(), 12-bad)
					pass(time.Second)
					require.Len(t, l.broker.of("a"), bad, "%v", l.broker.of("a"))
				}
				l.broker.refuse()
				l.route.lose(nil)
				_, err := l.w.p.Replay(t.Context(), Replay{})
				require.NoError(t, err)
				l.log.append("a:12")
				pass(time.Second)
				require.Len(t, l.broker.of("a"), 13, "each once: %v", l.broker.of("a"))
				inOrder(t, l.broker.of("a"), 13)
				require.NoError(t, l.end(false))
			})
		})
	}
}

// What fails, and what is behind it, is taken off the sink's hands. An event that the loop, or a replay, is about to hand over is among
// those: it is not handed over when the one in front of it is away already.
func TestNothingIsHandedOverBehindWhatWasJustTakenBack(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("replayed ", again), func(t *testing.T) {
			l := newLot(event.Park)
			defer l.over()
			l.roomy = true
			// Unbuffered, so that a goroutine that gets through one knows where the other one is.
			refused, discarded := make(chan struct{}), make(chan struct{})
			armed := atomic.Bool{}
			l.tuneSink = func() {
				l.sink.sending = func(m *event.Message) {
					if v := string(m.Value); !armed.Load() || v != "a:2" {
						if armed.Load() && v == "a:1" {
							l.sink.waits(true) // until the next one is on its way, too
						}
						return
					}
					l.sink.waits(false)
					<-refused
					select {
					case <-discarded: // what must not be
					case <-time.After(100 * time.Millisecond):
					}
				}
				l.sink.discarded = func() {
					select {
					case discarded <- struct{}{}:
					case <-time.After(time.Millisecond):
					}
				}
			}
			l.broker.heard = func(v string) {
				if armed.Load() && v == "a:1" {
					close(refused)
				}
			}
			parked := func() bool { return slices.Equal(l.dead.open(), []string{"a:1", "a:2", "a:3"}) }
			if again {
				l.route.lose(map[string]bool{"a:0": true})
				l.start()
				l.log.append("a:0", "a:1", "a:2", "a:3")
				require.Eventually(t, func() bool { return len(l.dead.open()) == 4 }, time.Minute, time.Millisecond)
				l.route.lose(nil)
				l.broker.refuse("a:1")
				armed.Store(true)
				_, err := l.w.p.Replay(t.Context(), Replay{})
				require.NoError(t, err)
			} else {
				l.broker.refuse("a:1")
				armed.Store(true)
				l.start()
				l.log.append("a:0", "a:1", "a:2", "a:3")
			}
			require.Eventually(t, parked, time.Minute, time.Millisecond)
			l.broker.refuse()
			armed.Store(false)
			_, err := l.w.p.Replay(t.Context(), Replay{})
			require.NoError(t, err)
			require.Equal(t, []string{"a:0", "a:1", "a:2", "a:3"}, l.broker.of("a"))
			require.NoError(t, l.end(false))
		})
	}
}
