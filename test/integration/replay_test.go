package integration

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

// A replay to a mistyped topic waits for it. It is ended by Ctrl-C, or from elsewhere, and nothing of it stays: not in the sink, where it would
// keep the position and others, and not as a reason to be degraded.
func TestAReplayIsEndedByAPerson(t *testing.T) {
	l := newParkLot(t, shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil))
	p := l.Start()
	l.write("a", "payment.made", 0) // no route
	l.write("a", "order.changed", 0)
	p.Until(t, "two parked", func() bool { return len(l.parked()) == 2 })
	l.dlq(2, "stop")
	for _, how := range []string{"Ctrl-C", "dlq stop"} {
		r := l.Outtail.Launch(t, "dlq", "replay", "-c", l.Outtail.Config, "--all", "--topic", "typo-"+l.Topic, "--reason", "a slip")
		require.Contains(t, l.Says(p, "OT5004"), "typo-")
		require.Contains(t, l.dlq(2, "skip", "--all", "--reason", "beside it").Stderr, "OT0012")
		if how == "Ctrl-C" {
			r.Signal(t, syscall.SIGINT)
		} else {
			require.Contains(t, l.dlq(0, "stop").Stdout, "0 delivered")
		}
		said := r.Wait(t)
		require.Equal(t, 1, said.Code, said.Stderr)
		require.Contains(t, said.Stdout, "0 delivered")
		require.Contains(t, said.Stderr, "OT0028")
		p.WaitReady(t)
	}
	for range 20 {
		l.write("b", "order.created", 0)
	}
	l.holds(p, map[string]int{"b": 20})
	p.Until(t, "the position behind them", func() bool { return l.Stored().Events == 22 })
	require.Contains(t, l.dlq(0, "replay", "--all", "--topic", l.Topic, "--reason", "meant").Stdout, "2 delivered")
	l.write("a", "order.paid", 0)
	l.holds(p, map[string]int{"a": 3})
	require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.seen["a"])
	l.Stop(p)
	audit := l.Outtail.Run(t, "audit", "-c", l.Outtail.Config).Stdout
	require.Equal(t, 2, strings.Count(audit, "stopped"), audit)
}

// A log that was reset gives its GTIDs a second time. What is parked of the old log is not taken for the new one's.
func whatIsParkedOfALogThatWasReset(t *testing.T, server *harness.MySQL) {
	l := newParkLot(t, shop.NewMySQL(t, server, "mysql", nil))
	p := l.Start()
	for range 5 {
		l.write("b", "order.created", 0)
	}
	l.write("a", "payment.made", 0) // no route
	p.Until(t, "one parked", func() bool { return len(l.parked()) == 1 })
	l.Stop(p)
	server.Exec(t, "", "RESET BINARY LOGS AND GTIDS")
	l.write("c", "order.created", 0)
	l.TakeWay(l.Stops(4, "OT302"), "--to now")
	p = l.Start()
	for range 30 { // one of them has the GTID of what is parked
		l.write("d", "order.created", 0)
	}
	l.write("a", "order.paid", 0)
	l.holds(p, map[string]int{"b": 5, "d": 30})
	p.Until(t, "two parked", func() bool { return len(l.parked()) == 2 })
	l.Stop(p)
	l.Configure("Match", "")
	p = l.Start()
	require.Contains(t, l.dlq(0, "replay", "--all", "--reason", "route added").Stdout, "2 delivered")
	l.holds(p, map[string]int{"a": 2})
	require.Equal(t, []string{"a:0", "a:1"}, l.seen["a"])
	l.Stop(p)
	require.Equal(t, l.next["d"], len(l.seen["d"]))
}
