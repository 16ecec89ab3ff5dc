package binlog

import (
	"regexp"
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
