package wal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outtail/outtail/event"
)

func at(lsn event.LSN) event.Position {
	return event.Position{Kind: event.Postgres, SystemID: "1", Slot: "s", LSN: lsn}
}

func TestWithoutAWindowWhatIsStoredIsConfirmed(t *testing.T) {
	w := newWindow(&Options{})
	w.begin(at(100), 50, nil)
	require.Equal(t, event.LSN(100), w.held(100))
}

func TestAWindowOfBytes(t *testing.T) {
	w := newWindow(&Options{RewindBytes: 100})
	w.begin(at(500), 450, nil)
	for _, c := range []struct{ stored, held event.LSN }{{500, 450}, {540, 450}, {560, 460}, {1000, 900}} {
		require.Equal(t, c.held, w.held(c.stored))
	}
	w.begin(at(950), 900, nil) // a person went back
	require.Equal(t, event.LSN(900), w.held(950))
	w.begin(at(30), 20, nil)
	require.Equal(t, event.LSN(20), w.held(30), "a log shorter than the window")
}

func TestAWindowOfTime(t *testing.T) {
	clock := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	start := func() *window {
		w := newWindow(&Options{RewindWindow: time.Hour})
		w.now = func() time.Time { return clock }
		return w
	}
	w := start()
	w.begin(at(100), 100, nil)
	require.Equal(t, event.LSN(100), w.held(100))
	clock = clock.Add(59 * time.Minute)
	require.Equal(t, event.LSN(100), w.held(200))
	clock = clock.Add(30 * time.Minute)
	require.Equal(t, event.LSN(100), w.held(300), "200 was stored half an hour ago")
	clock = clock.Add(30 * time.Minute)
	require.Equal(t, event.LSN(200), w.held(300), "the clock alone moves it, without a new position")

	past := []Moment{
		{clock.Add(-3 * time.Hour), at(120)}, {clock.Add(-2 * time.Hour), at(150)}, {clock.Add(-30 * time.Minute), at(250)},
		{clock.Add(-70 * time.Minute), event.Position{Kind: event.Postgres, SystemID: "2", Slot: "s", LSN: 200}},
		{clock.Add(-69 * time.Minute), event.Position{Kind: event.Postgres, SystemID: "1", Slot: "other", LSN: 210}},
		{clock.Add(-20 * time.Minute), at(400)},
	}
	w = start() // a new process, which knows the checkpoint's history
	w.begin(at(300), 110, past)
	require.Equal(t, event.LSN(150), w.held(300), "of this server and slot, an hour old")
	clock = clock.Add(31 * time.Minute)
	require.Equal(t, event.LSN(250), w.held(320))
	clock = clock.Add(30 * time.Minute)
	require.Equal(t, event.LSN(300), w.held(320), "400 is of a time from which a person went back")

	w = start() // without a history nothing moves for an hour
	w.begin(at(300), 110, nil)
	clock = clock.Add(59 * time.Minute)
	require.Equal(t, event.LSN(110), w.held(350))
	clock = clock.Add(2 * time.Minute)
	require.Equal(t, event.LSN(300), w.held(350))
}

// The window is compared with one that remembers every position: it never lets go of more, and holds at most one step
// and the time between two looks longer.
func TestAWindowNeverLetsGoEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := time.Unix(1_000_000, 0)
		w := newWindow(&Options{RewindWindow: time.Hour})
		w.now = func() time.Time { return clock }
		w.begin(at(1000), 1000, nil)
		all := []sample{{clock, 1000}}
		stored, last := event.LSN(1000), event.LSN(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			clock = clock.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			stored += event.LSN(rapid.IntRange(0, 50).Draw(t, "log"))
			all = append(all, sample{clock, stored})
			exact, loose := event.LSN(1000), event.LSN(1000)
			for _, s := range all {
				if clock.Sub(s.at) >= time.Hour {
					exact = s.lsn
				}
				if clock.Sub(s.at) >= time.Hour+time.Hour/windowSteps+400*time.Second {
					loose = s.lsn
				}
			}
			held := w.held(stored)
			require.LessOrEqual(t, held, exact)
			require.GreaterOrEqual(t, held, loose)
			require.GreaterOrEqual(t, held, last)
			require.LessOrEqual(t, len(w.samples), windowSteps+2)
			last = held
		}
	})
}
