package pipeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhenAPositionIsSaved(t *testing.T) {
	last := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		need need
		want time.Duration // after the last save; negative: never
	}{
		"nothing happened":                  {need{inFlight: 3}, -1},
		"acks wait for the interval":        {need{acked: 1, inFlight: 3}, 100 * time.Millisecond},
		"4,000 acks do not":                 {need{acked: 4000, inFlight: 3}, 10 * time.Millisecond},
		"idle for 20 ms":                    {need{acked: 1, idleAt: last.Add(30 * time.Millisecond)}, 50 * time.Millisecond},
		"never twice within 10 ms":          {need{acked: 1, idleAt: last.Add(-time.Minute)}, 10 * time.Millisecond},
		"idle does not outwait interval":    {need{acked: 1, idleAt: last.Add(95 * time.Millisecond)}, 100 * time.Millisecond},
		"progress without events: a second": {need{moved: true, inFlight: 2}, time.Second},
		"acks hurry progress":               {need{moved: true, acked: 1, inFlight: 2}, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			c.need.lastSave = last
			at, ok := c.need.due(100 * time.Millisecond)
			require.Equal(t, c.want >= 0, ok)
			if ok {
				require.Equal(t, c.want, at.Sub(last))
			}
		})
	}
}

func TestStates(t *testing.T) {
	for _, s := range States() {
		final := s == Stopped || s == Failed
		require.Equal(t, final, len(transitions[s]) == 0, "%s", s)
		if !final {
			require.True(t, s.mayBecome(Failed), "%s may fail", s)
		}
		require.NotEqual(t, "unknown", s.String())
	}
	require.Equal(t, "unknown", State(99).String())
}

func TestBackoffGrowsWithJitterAndResets(t *testing.T) {
	b := backoff{first: 100 * time.Millisecond, most: time.Second}
	for _, most := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		d := b.next()
		require.LessOrEqual(t, d, most*time.Millisecond)
		require.GreaterOrEqual(t, d, most*time.Millisecond/2)
	}
	b.reset()
	require.LessOrEqual(t, b.next(), 100*time.Millisecond)
	for range 100 {
		require.LessOrEqual(t, b.next(), time.Second)
	}
}
