package transform

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestServersTextsOfTimesAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-02 03:04:05.123456+00":    "2026-01-02T03:04:05.123456Z",
		"2026-01-02 03:04:05+00":           "2026-01-02T03:04:05.000000Z",
		"2026-01-02 03:04:05.1+00":         "2026-01-02T03:04:05.100000Z",
		"2026-01-02 03:04:05.123456":       "2026-01-02T03:04:05.123456Z",
		"2026-01-02 03:04:05":              "2026-01-02T03:04:05.000000Z",
		"2026-01-02 03:04:05.123456789+00": "2026-01-02T03:04:05.123456Z",
		"2026-01-02 03:04:05.5+05:30":      "2026-01-01T21:34:05.500000Z",
		"2026-01-01 23:04:05-03":           "2026-01-02T02:04:05.000000Z",
		"2026-01-01 23:04:05-0330":         "2026-01-02T02:34:05.000000Z",
		"1890-05-06 00:19:32+00:19:32":     "1890-05-06T00:00:00.000000Z",
		"2026-01-02T03:04:05Z":             "2026-01-02T03:04:05.000000Z",
		"2026-01-02T03:04:05.000001+00:00": "2026-01-02T03:04:05.000001Z",
		"2026-01-02":                       "2026-01-02T00:00:00.000000Z",
		"1969-12-31 23:59:59.999999":       "1969-12-31T23:59:59.999999Z",
		"2024-02-29 00:00:00":              "2024-02-29T00:00:00.000000Z",
		"0001-01-01 00:00:00":              "0001-01-01T00:00:00.000000Z",
		"9999-12-31 23:59:59.999999":       "9999-12-31T23:59:59.999999Z",
	} {
		at, ok := parseTime([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, string(appendTime(nil, at)), text)
	}
}

func TestWhatIsNoTimeIsLeftAlone(t *testing.T) {
	for _, text := range []string{
		"", "infinity", "-infinity", "0000-00-00 00:00:00", "2026-00-10 00:00:00", "2026-01-00 00:00:00", "2026-13-01",
		"2025-02-29 00:00:00", "1900-02-29", "0044-03-15 12:00:00+00 BC", "12026-01-02 03:04:05+00", "1767323045",
		"1767323045123", "2026-01-02 24:00:00", "2026-01-02 03:60:00", "2026-01-02 03:04:60", "2026-01-02 03:04",
		"2026-01-02 03:04:05.", "2026-01-02 03:04:05+", "2026-01-02 03:04:05+1", "2026-01-02 03:04:05+24",
		"2026-01-02 03:04:05+00:60", "2026-01-02 03:04:05+00:00:00:00", "2026-01-02 03:04:05 CET", "2026/01/02 03:04:05",
		"2026-01-02_03:04:05", "0001-01-01 00:00:00+01", "9999-12-31 23:59:59-01", "２026-01-02", "2026-01-02 03:04:05.1x",
	} {
		_, ok := parseTime([]byte(text))
		require.False(t, ok, text)
	}
}

func TestTimesSurviveTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC).UnixMicro()
		want := time.UnixMicro(rapid.Int64Range(first, last).Draw(t, "microseconds")).UTC()
		for _, layout := range []string{"2006-01-02 15:04:05.999999-07", "2006-01-02 15:04:05.000000", time.RFC3339Nano} {
			text := want.Format(layout)
			got, ok := parseTime([]byte(text))
			if !ok || !got.Equal(want) {
				t.Fatalf("%q is read as %v, %v", text, got, ok)
			}
		}
		if text := string(appendTime(nil, want)); text != want.Format("2006-01-02T15:04:05.000000Z") {
			t.Fatalf("%v is written as %q", want, text)
		}
	})
}

func FuzzParseTime(f *testing.F) {
	for _, seed := range []string{"2026-01-02 03:04:05.123456+00", "2026-01-02T03:04:05Z", "infinity", "2026-01-02 03:04:05-03:30:15"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if at, ok := parseTime(b); ok {
			again, ok := parseTime(appendTime(nil, at))
			require.True(t, ok)
			require.True(t, again.Equal(at))
		}
	})
}
