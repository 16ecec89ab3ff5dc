package binlog

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each way out says in a few words what it costs, and accepting is offered only where it helps.
func TestWaysOutSayWhatTheyCost(t *testing.T) {
	s := &Source{o: Options{Pipeline: "orders"}}
	line := regexp.MustCompile(`^  outtail checkpoint (set|accept) -c FILE --pipeline orders --(to|code) \S+ --reason R   \(.+\)$`)
	for _, code := range append(Acceptable(), codeLayout, codeDump, codeDropped, codeUnread, codeFlavour) {
		lines := regexp.MustCompile("\n").Split(s.ways(code, "now", "earliest", "GTID", "FILE:POS"), -1)
		require.Equal(t, "choose one:", lines[0])
		for _, l := range lines[1:] {
			require.Regexp(t, line, l)
		}
		_, helps := acceptCosts[code]
		require.Len(t, lines, 5+btoi(helps), code)
	}
}

// Whatever the source lets pass when it was accepted, a person can accept: the list and the code are kept in step.
func TestWhatIsLetPassCanBeAccepted(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	passes := regexp.MustCompile(`(?:stops\(|[aA]ccepted, )(code\w+)`)
	value := regexp.MustCompile(`\b(code\w+)\s+= "(OT\d+)"`)
	codes, found := map[string]string{}, map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range value.FindAllSubmatch(b, -1) {
			codes[string(m[1])] = string(m[2])
		}
		for _, m := range passes.FindAllSubmatch(b, -1) {
			found[string(m[1])] = true
		}
	}
	require.Greater(t, len(found), 4)
	for name := range found {
		require.Contains(t, acceptCosts, codes[name], name)
	}
}
