package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// kept runs a history that gets a record every step for the given time, thinned after each.
func kept(total, step time.Duration, start time.Time) (times []time.Time, now time.Time) {
	for now = start; now.Sub(start) < total; now = now.Add(step) {
		times = append(times, now)
		next := times[:0:0]
		for i, k := range thin(times, now) {
			if k {
				next = append(next, times[i])
			}
		}
		times = next
	}
	return times, now.Add(-step)
}

func within(times []time.Time, now time.Time, from, to time.Duration) (n int) {
	for _, t := range times {
		if age := now.Sub(t); age >= from && age < to {
			n++
		}
	}
	return n
}

func TestHistoryThinsWithAge(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	times, now := kept(5*day, time.Minute, time.Date(2026, 1, 1, 0, 7, 0, 0, time.UTC))
	require.Equal(t, 60, within(times, now, 0, time.Hour), "every minute of the last hour")
	require.InDelta(t, 47, within(times, now, time.Hour, 2*day), 1, "every hour of two days")
	require.InDelta(t, 3, within(times, now, 2*day, 5*day), 1, "every day before")

	times, now = kept(800*day, 12*time.Hour, time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
	require.InDelta(t, 58, within(times, now, 2*day, 60*day), 1, "every day of two months")
	require.InDelta(t, 25, within(times, now, 60*day, 800*day), 2, "every month before")
	times, now = kept(2000*day, 5*day, time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	require.Zero(t, within(times, now, 1081*day, 2001*day), "nothing after three years")
}

func TestHistoryIsBoundedAndKeepsTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		steps := rapid.SliceOfN(rapid.Int64Range(1, int64(400*time.Hour)), 1, 600).Draw(t, "steps")
		unit := rapid.SampledFrom([]int64{1, 100, 10000}).Draw(t, "unit")
		var times []time.Time
		for _, s := range steps {
			start = start.Add(time.Duration(s / unit))
			times = append(times, start)
		}
		now := start.Add(time.Duration(rapid.Int64Range(int64(-10*time.Hour), int64(3*time.Minute)).Draw(t, "now")))
		keep := thin(times, now)
		var left []time.Time
		for i, k := range keep {
			if k {
				left = append(left, times[i])
			}
		}
		require.LessOrEqual(t, len(left), maxHistory)
		require.True(t, keep[len(keep)-1], "the newest")
		for i, k := range thin(left, now) {
			require.True(t, k, "thinning again at the same time removes nothing: %s", left[i])
		}
	})
}

func TestHistoryDue(t *testing.T) {
	last := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		now  time.Time
		due  bool
	}{
		{"a moment later", last.Add(time.Second), false},
		{"almost a minute", last.Add(time.Minute - 1), false},
		{"a minute", last.Add(time.Minute), true},
		{"the clock was set back", last.Add(-time.Hour), true},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.due, historyDue(last, c.now)) })
	}
}
