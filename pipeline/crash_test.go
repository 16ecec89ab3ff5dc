package pipeline

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// crash ends a process at one of its steps, before or behind it: what it wrote till then is all that is left.
type crash struct {
	mu    sync.Mutex
	at, n int  // the step that is the last; those that were done
	after bool // it is done, and nobody hears of it
	dead  bool
}

// step does something durable; false where the process is dead, and does not learn what became of it.
func (c *crash) step(do func()) bool {
	if c == nil {
		do()
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false
	}
	if c.n++; c.n < c.at {
		do()
		return true
	}
	c.dead = true
	if c.after {
		do()
	}
	return false
}

func (c *crash) happened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// TestACrashBetweenAnyTwoStepsOfParkingAndReplaying ends the process before and behind every single thing that it makes durable: an
// append of the broker, a write of the dead-letter store, a save of the position. Whatever the broker has acknowledged may be
// unknown to the store, and what the store has may be unknown to the position; the next process makes all of it good.
func TestACrashBetweenAnyTwoStepsOfParkingAndReplaying(t *testing.T) {
	for _, after := range []bool{false, true} {
		steps := 0
		for at, more := 1, true; more; at++ {
			more = false
			t.Run(fmt.Sprintf("step %d, behind it %v", at, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { more = crashAt(t, &crash{at: at, after: after}) })
			})
			steps = at
		}
		require.Greater(t, steps, 20)
	}
}

// crashAt plays one story, in which a process may end at any step; another one goes on from there. It reports whether it did.
func crashAt(t *testing.T, c *crash) bool {
	l := newLot(event.Park)
	l.dead.die, l.store.die, l.broker.die = c, c, c
	defer l.over()
	l.start()
	chapter := func(f func()) {
		f()
		pass(time.Second)
		if c.happened() && l.dead.die != nil {
			_ = l.end(true)
			l.dead.die, l.store.die, l.broker.die = nil, nil, nil
			l.start()
			pass(time.Second)
			f() // whoever asked for it asks again
			pass(time.Second)
		}
	}
	replay := func(r Replay) func() {
		return func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a dead process answers nothing
			defer cancel()
			_, _ = l.w.p.Replay(ctx, r)
		}
	}
	write := func(rows ...string) func() {
		n := len(l.log.txs)
		return func() {
			if len(l.log.txs) == n {
				l.log.append(rows...)
			}
		}
	}
	chapter(func() { l.broker.refuse("a:1"); l.route.lose(map[string]bool{"b:1": true}) })
	chapter(write("a:0", "b:0", "a:1", "a:2", "b:1"))
	chapter(write("b:2", "c:0", "a:3"))
	chapter(replay(Replay{})) // refused again
	chapter(func() { l.broker.refuse(); l.route.lose(nil) })
	chapter(replay(Replay{Canary: 1}))
	chapter(write("a:4", "b:3"))
	chapter(replay(Replay{}))
	chapter(write("a:5", "b:4", "c:1"))
	res, err := l.w.p.Replay(t.Context(), Replay{})
	require.NoError(t, err)
	require.Zero(t, res.Failed)
	pass(5 * time.Second)
	require.Empty(t, l.dead.open())
	inOrder(t, l.broker.of("a"), 6)
	inOrder(t, l.broker.of("b"), 5)
	inOrder(t, l.broker.of("c"), 2)
	require.EqualValues(t, len(l.log.txs), l.w.p.Checkpoint().Position.LSN)
	require.NoError(t, l.end(false))
	require.Empty(t, l.dead.all, "nothing that ended is left")
	return c.happened()
}

// What precedes a parked event may have been on its way when the process died. A replay that is asked for at once waits until it was read
// again.
func TestAReplayRightAfterACrashOvertakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.route.lose(map[string]bool{"a:1": true})
		l.start()
		l.sink.mu.Lock()
		l.sink.hold = true // a:0 is never answered
		l.sink.mu.Unlock()
		l.log.append("a:0", "a:1", "a:2")
		pass(time.Second)
		require.Equal(t, []string{"a:1", "a:2"}, l.dead.open())
		_ = l.end(true)
		l.route.lose(nil)

		l.gate = make(chan struct{})
		l.start()
		pass(time.Second)
		replayed := make(chan error)
		go func() { // ends with the replay
			_, err := l.w.p.Replay(t.Context(), Replay{})
			replayed <- err
		}()
		pass(time.Second)
		require.Empty(t, l.broker.of("a"))
		close(l.gate)
		require.NoError(t, <-replayed)
		require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.broker.of("a"))
		require.NoError(t, l.end(false))
	})
}

// What was replayed is read again after a crash, and a configuration in between does not route it any more: it waits again, and what was
// replayed behind it with it.
func TestAReplayedEventThatFailsInAReRunWaitsAgain(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late ", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLot(event.Park)
				defer l.over()
				spoil := func() {
					if late {
						l.broker.refuse("a:1")
					} else {
						l.route.lose(map[string]bool{"a:1": true})
					}
				}
				mend := func() { l.broker.refuse(); l.route.lose(nil) }
				spoil()
				l.start()
				pass(time.Second)
				l.store.mu.Lock()
				l.store.fail = killed // the position stays where it is
				l.store.mu.Unlock()
				l.log.append("a:0", "a:1", "a:2")
				pass(time.Second)
				mend()
				_, err := l.w.p.Replay(t.Context(), Replay{})
				require.NoError(t, err)
				require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.broker.of("a"))
				_ = l.end(true)

				spoil()
				l.start()
				pass(time.Second)
				require.Equal(t, []string{"a:1", "a:2"}, l.dead.open())
				require.Equal(t, []string{"a:0", "a:1", "a:2", "a:0"}, l.broker.of("a"), "what comes behind does not follow without it")
				mend()
				_, err = l.w.p.Replay(t.Context(), Replay{})
				require.NoError(t, err)
				inOrder(t, l.broker.of("a"), 3)
				require.Empty(t, l.dead.open())
				require.NoError(t, l.end(false))
			})
		})
	}
}
