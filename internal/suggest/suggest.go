// Package suggest finds the known word that somebody probably meant.
package suggest

import (
	"fmt"
	"strings"
)

// Closest gives the known word nearest to the given one, or "" when none is near enough to be meant: at most a third of
// the longer word's letters differ. A known word that the given one abbreviates (or extends) counts as near.
func Closest(given string, known []string) string {
	g := fold(given)
	best, bestDistance := "", 1<<30
	for _, k := range known {
		f := fold(k)
		d := distance(g, f)
		if d > max(1, max(len(g), len(f))/3) && !abbreviates(g, f) {
			continue
		}
		if d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// DidYouMean is `did you mean "x"?`, or "" when nothing is near.
func DidYouMean(given string, known []string) string {
	if c := Closest(given, known); c != "" {
		return fmt.Sprintf("did you mean %q?", c)
	}
	return ""
}

// fold drops what people vary without meaning it: case, and how words are joined.
func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "", ".", "").Replace(strings.ToLower(s))
}

func abbreviates(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return len(a) >= 3 && strings.HasPrefix(b, a)
}

// distance is the number of letters to insert, delete, replace or swap with their neighbour (optimal string alignment).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
