package pipeline

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// rewind puts the stored position back to one of the past. What is parked then is still there once, and waits in its order.
func (l *lot) rewind(t *testing.T, rnd *rand.Rand) {
	if len(l.past) == 0 {
		return
	}
	was := l.store.cps["p"]
	cp := l.past[rnd.IntN(len(l.past))]
	if cp.Position.LSN > was.Position.LSN || cp.Position.LSN == was.Position.LSN && rowsOf(cp) > rowsOf(was) {
		return // that would be forward
	}
	require.NoError(t, l.store.Save(t.Context(), map[string]event.Checkpoint{"p": cp}))
}

func rowsOf(cp event.Checkpoint) uint64 {
	if cp.Prefix == nil {
		return 0
	}
	return cp.Prefix.Rows
}

// What a replay has handed over and not closed is neither sent nor left out when its row is read again: the loop waits for the end.
func TestARowIsNotPassedWhileItIsOnItsWayOut(t *testing.T) {
	w := newWindow(16, 1000, func() {}, time.Now)
	w.keep = func(...keeping) {}
	ev := &event.Event{Tx: &event.Tx{ID: "1"}, Index: 2}
	other := &event.Event{Tx: ev.Tx, Index: 3}
	e := &event.Parked{Tx: "1", Index: 2, Aggregate: "a"}
	w.parked.load(e, false)
	require.Nil(t, w.leaving(ev))
	r := &replayed{entry: e, volley: &volley{}}
	w.handOut(slot{replay: r})
	wait := w.leaving(ev)
	require.NotNil(t, wait)
	require.Nil(t, w.leaving(other))
	select {
	case <-wait:
		t.Fatal("nothing has ended")
	default:
	}
	w.handedOut([]*replayed{r, {entry: &event.Parked{}}})
	<-wait
	require.Nil(t, w.leaving(ev))
	require.Zero(t, w.out.Load())
	// What the position covers does not come by again.
	covered := &replayed{entry: &event.Parked{Tx: "0", Aggregate: "b"}, volley: &volley{}}
	w.parked.load(covered.entry, true)
	w.handOut(slot{replay: covered})
	require.Zero(t, w.out.Load())
}

// With other tables the rows of a transaction have other numbers, so that the number of a parked one is now that of another row.
func TestAParkedRowIsNotTakenForAnotherOneOfOtherTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.broker.refuse("a:1", "s:1")
		l.log.append("a:0")
		l.log.append("a:1", "a:2", "s:1")
		l.start()
		pass(time.Second)
		require.ElementsMatch(t, []string{"a:1", "a:2", "s:1"}, l.dead.open())
		_, err := l.w.p.SkipParked(t.Context(), "skipped", func(e *event.Parked) bool { return e.ID == "s:1" })
		require.NoError(t, err)
		require.NoError(t, l.end(false))

		l.tables = "more"
		l.log.txs[1] = append([]string{"b:0"}, l.log.txs[1]...)
		l.store.cps["p"] = event.Checkpoint{Position: event.Position{Kind: event.Postgres, Slot: "s", LSN: 1}}
		l.start()
		pass(time.Second)
		require.Equal(t, []string{"b:0"}, l.broker.of("b"))
		l.broker.refuse()
		_, err = l.w.p.Replay(t.Context(), Replay{})
		require.NoError(t, err)
		l.log.append("a:3")
		pass(time.Second)
		require.Equal(t, []string{"a:0", "a:1", "a:2", "a:1", "a:2", "a:3"}, l.broker.of("a"), "repeated, in order, and no other left out")
		require.Empty(t, l.dead.open())
		require.NoError(t, l.end(false))
	})
}
