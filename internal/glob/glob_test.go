package glob

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPatternsMatchWholeTexts(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"order.created", "order.created", true},
		{"order.created", "order.createdx", false},
		{"order.created", "xorder.created", false},
		{"order.*", "order.", true},
		{"order.*", "order.created", true},
		{"order.*", "orders.created", false},
		{"*.created", "order.created", true},
		{"*.created", "order.created.late", false},
		{"*a*b*", "xxaxxbxx", true},
		{"*a*b*", "xxbxxaxx", false},
		{"or?er", "order", true},
		{"or?er", "orer", false},
		{"?", "é", true},
		{"?", "\xff", true},
		{"a?c", "a字c", true},
		{"**", "", true},
		{"*?", "", false},
		{"aab*aab", "aaab", false},
	} {
		p := Compile(c.pattern)
		require.Equal(t, c.want, p.MatchString(c.text), "%q against %q", c.pattern, c.text)
		require.Equal(t, c.want, p.Match([]byte(c.text)), "%q against bytes of %q", c.pattern, c.text)
	}
}

func TestExactPatternsAreKnown(t *testing.T) {
	require.True(t, Compile("a.b").Exact())
	require.False(t, Compile("a.*").Exact())
	require.Equal(t, "a.*", Compile("a.*").String())
}

func TestMatchingAgreesWithARegularExpression(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringOfN(rapid.RuneFrom([]rune("ab*?é")), 0, 8, -1).Draw(t, "pattern")
		text := rapid.StringOfN(rapid.RuneFrom([]rune("abé")), 0, 10, -1).Draw(t, "text")
		expr := regexp.QuoteMeta(pattern)
		expr = strings.ReplaceAll(strings.ReplaceAll(expr, `\*`, "(?s:.*)"), `\?`, "(?s:.)")
		want := regexp.MustCompile("^(?:" + expr + ")$").MatchString(text)
		if got := Compile(pattern).MatchString(text); got != want {
			t.Fatalf("%q against %q: %v, regexp says %v", pattern, text, got, want)
		}
		if got := Compile(pattern).Match([]byte(text)); got != want {
			t.Fatalf("%q against bytes of %q: %v, regexp says %v", pattern, text, got, want)
		}
	})
}
