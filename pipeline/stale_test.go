package pipeline

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// What the sink refuses of a session that was lost meanwhile is read again and judged then. Nothing that the lost session read behind it
// arrives without it.
func TestARefusalAfterItsSessionWasLostLetsNothingOvertake(t *testing.T) {
	for _, policy := range []event.Policy{event.Park, event.Alone, event.Skip} {
		for _, mended := range []bool{false, true} {
			t.Run(fmt.Sprint(policy, " mended ", mended), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLot(policy)
					defer l.over()
					l.broker.refuse("a:0")
					if mended {
						l.broker.heard = func(string) { l.broker.refuse() }
					}
					l.start()
					pass(time.Second)
					l.sink.waits(true)
					l.log.append("a:0", "a:1", "a:2")
					pass(time.Second)
					l.log.cutSessions()
					pass(5 * time.Second) // what is in flight is given two seconds, then there is a new session
					l.sink.waits(false)
					pass(5 * time.Second)
					switch {
					case mended:
						require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.broker.of("a"), "once, by the new session")
						require.Empty(t, l.dead.open())
					case policy == event.Park:
						require.Empty(t, l.broker.of("a"))
						require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.dead.open())
					default:
						require.Equal(t, []string{"a:1", "a:2"}, l.broker.of("a"))
					}
					require.NoError(t, l.end(false))
				})
			})
		}
	}
}

// An entry is moved, behind what fails in front of it in a re-run, while a replay has it on its way, and the stored position passes it before
// its ack comes: it is not closed in its former place, and its aggregate waits as long as it does.
func TestAnEntryThatWasMovedUnderAReplayIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.route.lose(map[string]bool{"a:1": true})
		l.log.append("a:0", "a:1")
		l.start()
		pass(time.Second)
		require.NoError(t, l.end(false))
		require.Equal(t, []string{"a:1"}, l.dead.open())

		l.store.cps["p"] = event.Checkpoint{Position: event.Position{Kind: event.Postgres, Slot: "s"}} // a person went back
		l.route.lose(nil)
		l.tuneSink = func() { l.sink.hold = true }
		l.start()
		pass(time.Second)
		replayed := make(chan ReplayResult)
		go func() { // ends with the replay
			res, err := l.w.p.Replay(t.Context(), Replay{})
			require.NoError(t, err)
			replayed <- res
		}()
		pass(time.Second)
		l.broker.refuse("a:0")
		l.sink.discarded = func() { l.sink.waits(true) }
		l.sink.waits(false)
		pass(3 * time.Second)
		require.Equal(t, []string{"a:0", "a:1"}, l.dead.open())
		require.EqualValues(t, 1, l.w.p.Checkpoint().Position.LSN, "the position has passed both")
		l.broker.refuse()
		l.sink.waits(false)
		require.Zero(t, (<-replayed).Acked, "it has to follow what failed")
		require.Equal(t, []string{"a:0", "a:1"}, l.dead.open())
		res, err := l.w.p.Replay(t.Context(), Replay{})
		require.NoError(t, err)
		require.Equal(t, 2, res.Acked)

		l.route.lose(map[string]bool{"a:2": true})
		l.log.append("a:2", "a:3")
		pass(time.Second)
		require.Equal(t, []string{"a:2", "a:3"}, l.dead.open(), "nothing overtakes")
		require.NoError(t, l.end(false))
	})
}

// What is sent again from the store waits in the sink behind what was read before it. When that is refused, now or after its session was lost,
// it does not arrive without it.
func TestAReplayIsCalledBackWhereWhatWasReadInFrontOfItIsRefused(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("session lost ", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLot(event.Park)
				defer l.over()
				l.route.lose(map[string]bool{"a:1": true})
				l.start()
				pass(time.Second)
				l.sink.waits(true)
				l.log.append("a:0", "a:1", "a:2")
				pass(time.Second)
				l.route.lose(nil)
				replayed := make(chan ReplayResult)
				go func() { // ends with the replay
					res, err := l.w.p.Replay(t.Context(), Replay{})
					require.NoError(t, err)
					replayed <- res
				}()
				pass(time.Second)
				if lost {
					l.log.cutSessions()
					pass(5 * time.Second)
				}
				l.broker.refuse("a:0")
				l.sink.waits(false)
				require.Zero(t, (<-replayed).Acked)
				pass(time.Second)
				require.Empty(t, l.broker.of("a"))
				require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.dead.open())
				l.broker.refuse()
				res, err := l.w.p.Replay(t.Context(), Replay{})
				require.NoError(t, err)
				require.Equal(t, 3, res.Acked+res.Drained)
				require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.broker.of("a"))
				require.NoError(t, l.end(false))
			})
		})
	}
}

// What was refused of a lost session is neither in the sink nor kept until it is read again: a replay of what waits behind it waits for that.
func TestAReplayWaitsForWhatIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.route.lose(map[string]bool{"a:1": true})
		l.start()
		pass(time.Second)
		l.sink.waits(true)
		l.log.append("a:0", "a:1")
		pass(time.Second)
		require.Equal(t, []string{"a:1"}, l.dead.open())
		gate := make(chan struct{})
		l.w.src.gate = gate // nothing is read by the next session, for the time being
		l.log.cutSessions()
		pass(5 * time.Second)
		l.broker.refuse("a:0")
		l.broker.heard = func(string) { l.broker.refuse() }
		l.sink.waits(false)
		pass(time.Second)
		l.route.lose(nil)
		replayed := make(chan error)
		go func() { // ends with the replay
			_, err := l.w.p.Replay(t.Context(), Replay{})
			replayed <- err
		}()
		pass(time.Second)
		require.Empty(t, l.broker.of("a"))
		close(gate)
		require.NoError(t, <-replayed)
		require.Equal(t, []string{"a:0", "a:1"}, l.broker.of("a"))
		require.NoError(t, l.end(false))
	})
}

// What is in flight when the session is lost is read again: it counts once.
func TestWhatALostSessionReadIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.start()
		pass(time.Second)
		l.sink.waits(true)
		l.log.append("a:0", "a:1", "a:2")
		pass(time.Second)
		l.log.cutSessions()
		pass(5 * time.Second)
		l.sink.waits(false)
		pass(5 * time.Second)
		require.Equal(t, []string{"a:0", "a:1", "a:2", "a:0", "a:1", "a:2"}, l.broker.of("a"))
		require.EqualValues(t, 3, l.w.p.Checkpoint().Events)
		require.NoError(t, l.end(false))
	})
}
