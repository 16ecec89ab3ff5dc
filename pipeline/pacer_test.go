package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func TestAPacerIsSmoothAndSavesNothingUp(t *testing.T) {
	for _, rate := range []float64{0.5, 7, 100, 5_000, 200_000} {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer(rate)
			depth := rate*paceDepth.Seconds() + 1
			for range 3 { // a quiet hour in between brings no burst
				began := time.Now()
				for n := 1.0; n <= max(3, rate/2); n++ {
					require.NoError(t, p.wait(t.Context()))
					p.spend()
					most := rate*time.Since(began).Seconds() + depth
					require.LessOrEqual(t, n, most+0.01, "at any moment no more than the rate allows, %v/s", rate)
					require.GreaterOrEqual(t, n+1.01, most-depth, "and no less, %v/s", rate)
				}
				pass(time.Hour)
			}
		})
	}
}

func TestAPacerLetsGoOfWhoGivesUp(t *testing.T) {
	require.Nil(t, newPacer(0))
	require.NoError(t, newPacer(0).wait(t.Context()))
	newPacer(0).spend()

	p := newPacer(0.001)
	p.spend()
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	require.ErrorIs(t, p.wait(ctx), over)
}

// What is filtered costs nothing, replays count as well as what is read, and the position follows.
func TestMaxRateHoldsForAllThatIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLot(event.Park)
		defer l.over()
		l.rate = 100
		var rows []string
		for i := range 500 {
			rows = append(rows, fmt.Sprint("a:", i))
		}
		l.log.append(rows...)
		l.start()
		for seconds := range 4 {
			pass(time.Second)
			sent := len(l.broker.of("a"))
			require.InDelta(t, (seconds+1)*100, sent, 10)
		}
		pass(time.Second + 100*time.Millisecond)
		require.Len(t, l.broker.of("a"), 500)
		pass(time.Second)
		require.EqualValues(t, 1, l.w.p.Checkpoint().Position.LSN)

		l.route.lose(map[string]bool{"b:0": true})
		rows = rows[:0]
		for i := range 200 {
			rows = append(rows, fmt.Sprint("b:", i))
		}
		l.log.append(rows...)
		pass(time.Second)
		require.Len(t, l.dead.open(), 200, "what is parked waits for no token")
		l.route.lose(map[string]bool{})
		began := time.Now()
		res, err := l.w.p.Replay(t.Context(), Replay{})
		require.NoError(t, err)
		require.Equal(t, 200, res.Acked)
		require.GreaterOrEqual(t, time.Since(began), 1900*time.Millisecond)
		require.NoError(t, l.end(false))
	})
}

func TestParkedEventsThatWaitAreToldAtGrowingIntervals(t *testing.T) {
	var w patience
	var told []time.Duration
	for age := time.Duration(0); age <= 100*time.Hour; age += time.Minute {
		if w.over(age) {
			told = append(told, age/time.Hour)
		}
	}
	require.Equal(t, []time.Duration{1, 2, 4, 8, 16, 32, 56, 80}, told)
	require.False(t, w.over(0))
	require.True(t, w.over(90*time.Hour), "the next one that waits is told anew")
	require.True(t, slices.IsSorted(told))
}
