package pipeline

import (
	"math/rand/v2"
	"testing"
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
	r := &replayed{entry: e}
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
	covered := &replayed{entry: &event.Parked{Tx: "0", Aggregate: "b"}}
	w.parked.load(covered.entry, true)
	w.handOut(slot{replay: covered})
	require.Zero(t, w.out.Load())
}
