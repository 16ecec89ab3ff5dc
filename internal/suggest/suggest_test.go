package suggest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestClosestFindsWhatWasMeant(t *testing.T) {
	known := []string{"host", "port", "user", "password", "database", "server_id", "start", "on_update", "tables"}
	for given, want := range map[string]string{
		"prot":      "port",
		"pasword":   "password",
		"serverId":  "server_id",
		"server-id": "server_id",
		"PORT":      "port",
		"pass":      "password",
		"table":     "tables",
		"databse":   "database",
		"zzz":       "",
		"":          "",
		"brokers":   "",
	} {
		require.Equal(t, want, Closest(given, known), "given %q", given)
	}
	require.Equal(t, `did you mean "port"?`, DidYouMean("prot", known))
	require.Empty(t, DidYouMean("brokers", known))
}

func TestDistanceIsAMetricOnWhatItCounts(t *testing.T) {
	require.Equal(t, 1, distance("prot", "port"))
	require.Equal(t, 3, distance("", "abc"))
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 6, -1).Draw(t, "a")
		b := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 6, -1).Draw(t, "b")
		d := distance(a, b)
		if d != distance(b, a) {
			t.Fatalf("not symmetric for %q and %q", a, b)
		}
		if (d == 0) != (a == b) {
			t.Fatalf("%q and %q are %d apart", a, b, d)
		}
	})
}
