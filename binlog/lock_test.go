package binlog

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLockNamesMeetWhereAPipelineAndATableAreShared(t *testing.T) {
	names := func(pipeline string, folded bool, tables ...string) locks {
		list, err := parseTables(tables, "shop")
		require.NoError(t, err)
		return lockNames(pipeline, list, folded, "host\x00/data\x00"+pipeline, "token")
	}
	one := names("orders", false, "outbox")
	require.Equal(t, one, names("orders", false, "shop.outbox"))
	require.Subset(t, names("orders", false, "audit", "outbox").tables, one.tables, "a table in common is enough to meet")
	require.Len(t, names("orders", false, "outbox", "shop.outbox").tables, 1)
	require.NotEqual(t, one.tables, names("billing", false, "outbox").tables, "another pipeline on the same table is meant to run")
	require.NotEqual(t, one.tables, names("orders", false, "other.outbox").tables)
	require.NotEqual(t, one.tables, names("orders", false, "Outbox").tables)
	require.Equal(t, one.tables, names("orders", true, "Outbox").tables, "one table on a server that folds names")
	for _, n := range []string{"x", "orders", strings.Repeat("long ", 40), strings.Repeat("é", 64)} {
		l := names(n, false, "outbox")
		for _, name := range append(l.tables, l.dir, l.host) {
			require.LessOrEqual(t, len(name), 64)
			require.Regexp(t, `^outtail/[!-~]+$`, name)
		}
	}
}

func TestWhoeverWaitedForAnotherProcessStops(t *testing.T) {
	nobody := holder{}
	other, ours := holder{id: 7}, holder{id: 8, host: true, dir: true}
	sameHost, sameDir := holder{id: 9, host: true}, holder{id: 10, dir: true}
	type step struct {
		after time.Duration
		h     holder
		want  verdict
	}
	for name, steps := range map[string][]step{
		"nobody holds it":                          {{0, nobody, take}},
		"another process, then nobody":             {{0, other, wait}, {time.Hour, other, wait}, {time.Second, nobody, wait}, {standbyGrace, nobody, stopThere}},
		"the holder comes back":                    {{0, other, wait}, {1, nobody, wait}, {standbyGrace - 2, holder{id: 70}, wait}, {1, nobody, wait}, {standbyGrace - 1, nobody, wait}, {1, nobody, stopThere}},
		"our own earlier session":                  {{0, ours, endOurs}, {1, nobody, take}},
		"it is ended once":                         {{0, ours, endOurs}, {1, ours, wait}, {1, nobody, take}},
		"an earlier session of another host name":  {{0, sameDir, wait}, {lockIdle, sameDir, wait}, {1, nobody, take}},
		"a session before anything was stored":     {{0, sameHost, wait}, {lockIdle, nobody, take}},
		"a copy of our data_dir that lives":        {{0, sameDir, wait}, {2*lockIdle + 1, sameDir, wait}, {1, nobody, wait}, {standbyGrace, nobody, stopThere}},
		"a host of our name that lives":            {{0, sameHost, wait}, {2*lockIdle + 1, sameHost, wait}, {standbyGrace, nobody, wait}, {standbyGrace, nobody, stopThere}},
		"what lives on a copy is not ended either": {{0, sameDir, wait}, {2*lockIdle + 1, sameDir, wait}, {1, ours, wait}},
	} {
		t.Run(name, func(t *testing.T) {
			var w waiting
			now := time.Unix(1_000_000, 0)
			for i, s := range steps {
				now = now.Add(s.after)
				require.Equal(t, s.want, w.look(s.h, now), "step %d", i)
			}
		})
	}
}
