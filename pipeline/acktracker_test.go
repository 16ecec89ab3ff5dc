package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
)

// naive is the tracker as one would write it without thinking of speed: everything is kept for ever.
type naive struct {
	done   []bool
	bounds []seqBound
}

func (n *naive) base() uint64 {
	for i, d := range n.done {
		if !d {
			return uint64(i)
		}
	}
	return uint64(len(n.done))
}

func (n *naive) reached() (at uint64, ok bool) {
	for _, b := range n.bounds {
		if b.seq <= n.base() {
			at, ok = b.at, true
		}
	}
	return at, ok
}

func TestTrackerAgreesWithNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr ackTracker
		var n naive
		high := uint64(0) // a prefix that was passed cannot be reopened
		at := uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				tr.add(slot{size: 3})
				n.done = append(n.done, false)
			case 1:
				at++
				tr.bound(at)
				n.bounds = append(n.bounds, seqBound{uint64(len(n.done)), at})
			case 2:
				if len(n.done) > 0 {
					seq := uint64(rapid.IntRange(0, len(n.done)-1).Draw(t, "ack"))
					tr.settle(seq)
					n.done[seq] = true
				}
			case 3:
				if len(n.done) > 0 {
					seq := uint64(rapid.IntRange(0, len(n.done)-1).Draw(t, "reopen"))
					ok := tr.reopen(seq)
					require.Equal(t, seq >= high, ok)
					if ok {
						n.done[seq] = false
					}
				}
			}
			high = max(high, n.base())
			require.Equal(t, n.base(), tr.base)
			wantAt, wantOK := n.reached()
			require.Equal(t, wantOK, tr.hasReached)
			require.Equal(t, wantAt, tr.reached)
			require.Equal(t, len(n.done)-int(n.base()), tr.events)
			require.Equal(t, int64(3*tr.events), tr.bytes)
		}
	})
}

func TestTrackerCountsRowsBeyondTheBound(t *testing.T) {
	tx := &event.Tx{ID: "a"}
	var tr ackTracker
	tr.bound(1)
	for i := range uint64(3) {
		tr.add(slot{tx: tx, index: 5 + i}) // five rows were passed before the session
	}
	tr.settle(1)
	require.Nil(t, tr.inTx, "the prefix stands before the first event")
	tr.settle(0)
	require.Equal(t, uint64(7), tr.inRows)
	require.Equal(t, uint64(1), tr.reached)
	tr.bound(2)
	tr.settle(2)
	require.Nil(t, tr.inTx, "a bound ends the transaction")
	require.Equal(t, uint64(2), tr.reached)
}

func TestTrackerForgetsPositionsOfAnEarlierSession(t *testing.T) {
	var tr ackTracker
	tr.add(slot{tx: &event.Tx{ID: "old"}})
	tr.bound(9)
	tr.session()
	tr.add(slot{tx: &event.Tx{ID: "new"}, index: 3})
	tr.settle(1)
	require.False(t, tr.hasReached, "the old event is still in flight")
	tr.settle(0)
	require.False(t, tr.hasReached)
	require.Equal(t, "new", tr.inTx.ID)
	require.Equal(t, uint64(4), tr.inRows)
}

func TestBuffersGoBackOnceWhenTheWholeBatchHasPassed(t *testing.T) {
	released := 0
	f := &flight{release: func() { released++ }}
	var tr ackTracker
	for range 2 {
		f.left++
		tr.add(slot{flight: f})
	}
	tr.settle(1)
	tr.settle(0)
	require.Zero(t, released, "the batch may still grow")
	f.closed = true
	f.settle()
	f.settle()
	require.Equal(t, 1, released)
}
