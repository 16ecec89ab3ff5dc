package pipeline

import (
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
