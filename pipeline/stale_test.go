package pipeline

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// What the sink refuses of a session that was lost meanwhile is read again and judged then. Nothing that the lost session read behind it
// arrives without it.
func TestARefusalAfterItsSessionWasLostLetsNothingOvertake(t *testing.T) {
	for _, policy := range []event.Policy{event.Park, event.Alone, event.Skip} {
		for _, mended := range []bool{false, true} {
			t.Run(fmt.Sprint(policy, " mended ", mended), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLot(policy)
					defer l.over()
					l.broker.refuse("a:0")
					if mended {
						l.broker.heard = func(string) { l.broker.refuse() }
					}
					l.start()
					pass(time.Second)
					l.sink.waits(true)
					l.log.append("a:0", "a:1", "a:2")
					pass(time.Second)
					l.log.cutSessions()
					pass(5 * time.Second) // what is in flight is given two seconds, then there is a new session
					l.sink.waits(false)
					pass(5 * time.Second)
					switch {
					case mended:
						require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.broker.of("a"), "once, by the new session")
						require.Empty(t, l.dead.open())
					case policy == event.Park:
						require.Empty(t, l.broker.of("a"))
						require.Equal(t, []string{"a:0", "a:1", "a:2"}, l.dead.open())
					default:
						require.Equal(t, []string{"a:1", "a:2"}, l.broker.of("a"))
					}
					require.NoError(t, l.end(false))
				})
			})
		}
	}
}
