package demo

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func anHour() Snapshot {
	return Snapshot{
		Tally: Tally{
			Committed: 612_345, Delivered: 612_344, Duplicates: 3_210, Behind: 1, Lag: 4 * time.Millisecond,
			Recent: []time.Duration{time.Millisecond, 3 * time.Millisecond, 1700 * time.Millisecond},
		},
		Elapsed: time.Hour + 2*time.Second, RolledBack: 68_001, CommitRate: 179.6, ArrivalRate: 180.2, Kills: 240,
		NextKill: 7 * time.Second, Pid: 4242, Up: 8 * time.Second, Memory: 34 << 20,
		Lags:   []time.Duration{0, 20 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second, time.Minute},
		Notes:  []string{"59:15  one", "59:30  two", "59:45  three", "1:00:00  four"},
		Places: "postgres 127.0.0.1:1   broker 127.0.0.1:2   outtail 127.0.0.1:3/metrics",
	}
}

func TestTheScreenIsCalmAndFits(t *testing.T) {
	first := Snapshot{Duration: 40 * time.Second}
	broken := anHour()
	broken.Missing, broken.OutOfOrder, broken.Closing, broken.Pid = 1, 1234, "waiting for what is under way", 0
	for name, s := range map[string]Snapshot{"screen-first.txt": first, "screen-hour.txt": anHour(), "screen-broken.txt": broken} {
		t.Run(name, func(t *testing.T) {
			lines := s.Lines(false)
			golden(t, name, strings.Join(lines, "\n")+"\n")
			require.Len(t, lines, len(first.Lines(false)), "the height never changes")
			require.Less(t, len(lines), 24)
			for _, line := range lines {
				require.Less(t, utf8.RuneCountInString(line), 80)
				require.NotContains(t, line, "\x1b", "no colour where none is wanted")
			}
		})
	}
}

func TestAFrameIsDrawnOverTheLatest(t *testing.T) {
	s := &screen{live: true, paint: true}
	first := string(s.frame([]string{"a", "\x1b[1mbold\x1b[0m"}, 80, 24))
	require.NotContains(t, first, "A\r", "there is nothing to draw over yet")
	require.Contains(t, first, "\x1b[1mbold\x1b[0m\x1b[K\n")
	second := string(s.frame([]string{"a", "b"}, 80, 24))
	require.Contains(t, second, "\x1b[2A\r")
	require.NotContains(t, second, "\x1b[2J", "clearing the screen would flicker")

	low := string(s.frame([]string{"1", "2", "3", "4"}, 80, 3))
	require.Equal(t, 2, strings.Count(low, "\n"), "never more lines than the terminal has")
}

func TestClipCountsCharactersAndKeepsColours(t *testing.T) {
	for _, tc := range []struct{ in, out string }{
		{"", ""}, {"short", "short"}, {"exactly10!", "exactly10!"}, {"more than ten", "more than "},
		{"▁▂▃▄▅▆▇█▁▂▃▄", "▁▂▃▄▅▆▇█▁▂"},
		{"\x1b[1mmore\x1b[0m than ten", "\x1b[1mmore\x1b[0m than "},
		{"more than \x1b[1mten\x1b[0m", "more than \x1b[1m\x1b[0m"},
	} {
		require.Equal(t, tc.out, clip(tc.in, 10))
	}
}

func TestWithoutATerminalThereIsALineEveryFiveSeconds(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, environment())
	require.False(t, s.live)
	snapshot := anHour()
	snapshot.Notes = nil
	for tenths := range 160 {
		snapshot.Elapsed = time.Duration(tenths) * 100 * time.Millisecond
		if tenths == 70 {
			snapshot.Notes = append(snapshot.Notes, "00:07  SIGKILL")
		}
		s.show(snapshot)
	}
	s.close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[0], "00:01 committed 612345")
	require.Equal(t, "00:07  SIGKILL", lines[2])
	require.NotContains(t, out.String(), "\x1b")
}

func TestVerdicts(t *testing.T) {
	good := Verdict{Tally: Tally{Delivered: 7218, Duplicates: 14}, Rows: 7218, RolledBack: 778, Kills: 2, Took: 40 * time.Second}
	golden(t, "verdict-good.txt", strings.Join(good.Lines(false), "\n")+"\n")
	bad := Verdict{Tally: Tally{Delivered: 7218, OutOfOrder: 2, Invented: 1, LateAppends: 1}, Rows: 7219, Lost: 1, Kills: 1, Took: time.Hour}
	golden(t, "verdict-broken.txt", strings.Join(bad.Lines(false), "\n")+"\n")
	require.Contains(t, verdictFault(bad).Error(), "lost 1, out of order 2, invented 1, changed 0")
	require.Contains(t, strings.Join(good.Lines(true), "\n"), "\x1b[32m0\x1b[0m")
}

func TestSpansAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 ms", 0: "0 ms", time.Microsecond: "<1 ms", 999 * time.Millisecond: "999 ms",
		1500 * time.Millisecond: "1.5 s", 59 * time.Second: "59 s", time.Hour: "60 min",
	} {
		require.Equal(t, want, span(d))
	}
	require.Equal(t, "1,234,567", count(1234567))
	require.Equal(t, "999", count(999))
}

func TestRatesAreThoseOfTheLastSeconds(t *testing.T) {
	var r rates
	committed, delivered := r.perSecond()
	require.Zero(t, committed+delivered)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for s := range 100 {
		r.add(start.Add(time.Duration(s)*time.Second), uint64(s*200), uint64(max(0, s-50)*100))
	}
	committed, delivered = r.perSecond()
	require.InDelta(t, 200, committed, 0.01)
	require.InDelta(t, 100, delivered, 0.01)
	require.Less(t, len(r.samples), 10)
}

func TestAPanicOfTheCrewIsAFault(t *testing.T) {
	require.NoError(t, guarded("shop", func() error { return nil }))
	cause := errors.New("cause")
	require.ErrorIs(t, guarded("shop", func() error { return cause }), cause)
	err := guarded("shop", func() error { panic("a bug") })
	require.ErrorContains(t, err, CodePanic)
	require.ErrorContains(t, err, "a bug")
}
