package wal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPacing(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		off   bool
		size  int
		lag   time.Duration
		later time.Duration
		want  time.Duration
	}{
		"catching up, a short read":       {size: 1000, lag: time.Second, want: pacePause},
		"… the caller took its time":      {size: 1000, lag: time.Second, later: ms, want: pacePause - ms},
		"old rows that come now and then": {size: 1000, lag: time.Second, later: 50 * ms},
		"catching up, a full read":        {size: paceFull, lag: time.Second},
		"up to date":                      {size: 1000, lag: 2 * ms},
		"a far server":                    {off: true, size: 1000, lag: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := pacer{enabled: !c.off}
			now := time.Unix(1, 0)
			p.read(now, c.size, 0)
			require.Equal(t, c.want, p.pause(now.Add(c.later), c.lag))
		})
	}
}

func TestPacingEndsLaterThanItBegins(t *testing.T) {
	p := pacer{enabled: true}
	now := time.Unix(1, 0)
	at := func(lag time.Duration) bool {
		p.read(now, 1000, 0)
		return p.pause(now, lag) > 0
	}
	require.False(t, at(paceEnter))
	require.True(t, at(paceEnter+1))
	require.True(t, at(paceLeave))
	require.False(t, at(paceLeave-1))
	require.False(t, at(paceEnter-1))
}

func TestASlowSenderIsGivenMoreTimeUntilItFillsTheWindow(t *testing.T) {
	p := pacer{enabled: true}
	now := time.Unix(1, 0)
	var got []time.Duration
	for _, n := range []int{1000, 1000, 1000, 1000, paceFull, 1000, 1000} {
		p.read(now, n, 0)
		got = append(got, p.pause(now, time.Second))
	}
	require.Equal(t, []time.Duration{pacePause, 2 * pacePause, paceMost, paceMost, 0, pacePause, 2 * pacePause}, got)
}

func TestPausesInVainEndForAWhile(t *testing.T) {
	p := pacer{enabled: true}
	now := time.Unix(1, 0)
	var pauses, rests int
	for range 40 {
		p.read(now, 1000, 0)
		if d := p.pause(now, time.Second); d > 0 {
			pauses++
			now = now.Add(d)
			continue
		}
		rests++
		now = now.Add(10 * time.Millisecond)
	}
	require.Equal(t, paceVain+2, pauses, "3, 6 and then 12 ms, until they were of no use")
	require.Equal(t, 40-pauses, rests)
	p.read(now.Add(paceRest), 1000, 0)
	require.Positive(t, p.pause(now.Add(paceRest), time.Second), "and it is tried again")
}

func TestTheRestOfALargeMessageIsNotWaitedFor(t *testing.T) {
	p := pacer{enabled: true}
	now := time.Unix(1, 0)
	for _, missing := range []int{90_000, 60_000, paceLarge} {
		p.read(now, paceFull-1, missing)
		require.Zero(t, p.pause(now, time.Second))
	}
	p.read(now, 1000, paceLarge-1)
	require.Equal(t, pacePause, p.pause(now, time.Second))
}

func TestAWindowThatOnlyProbesOpenIsGivenUp(t *testing.T) {
	p := pacer{enabled: true}
	require.False(t, p.waited(time.Hour, 100), "a quiet server")
	for _, want := range []bool{false, false, true, false} {
		require.Equal(t, want, p.waited(2*paceStuck, paceFull))
		for _, n := range []int{18 << 10, 100, 300} { // as Linux was seen to let in
			require.False(t, p.waited(time.Millisecond, n))
		}
	}
	p = pacer{enabled: true}
	for range 9 {
		require.False(t, p.waited(2*paceStuck, paceFull))
		for range 5 {
			require.False(t, p.waited(time.Millisecond, paceFull), "it opened by itself in between")
		}
	}
}
