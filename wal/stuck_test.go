package wal

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func TestAServerThatFailsAtOnePlaceIsNotAskedForEver(t *testing.T) {
	src := &Source{o: Options{Host: "h", Slot: "s", Publication: "p"}}
	fail := func(state string, messages ...message) *event.Fault {
		var b []byte
		for _, m := range messages {
			b = append(b, data(m)...)
		}
		s := testReader(b, 1000, all)
		_ = drain(s, testLoad())
		return faultOf(t, src.streamFault(&session{read: s, err: &pgconn.PgError{Severity: "ERROR", Code: state, Message: "invalid memory alloc request size"}, watch: &watcher{}}))
	}
	inside := []message{begin(0x100), outboxRelation, outboxRow("a", "1")}
	for range stuckTries - 1 {
		require.Equal(t, event.Retry, fail("XX000", inside...).Class)
	}
	f := fail("XX000", inside...)
	require.Equal(t, CodeCannotSend, f.Code)
	require.Equal(t, event.Safety, f.Class)
	require.Contains(t, f.Text, "behind 1 rows of the transaction 0/100")
	require.Contains(t, f.Hint, "--to 0/101 ")
	require.ErrorContains(t, f, "invalid memory alloc")

	// What moves on, what is no fault of the place, and what is at none, is tried again for ever.
	for range 2 * stuckTries {
		require.Equal(t, event.Retry, fail("XX000", begin(0x100), outboxRelation, outboxRow("a", "1"), outboxRow("b", "1")).Class)
		require.Equal(t, event.Retry, fail("XX000", inside...).Class)
		require.Equal(t, event.Retry, fail("57P01", inside...).Class)
		require.Equal(t, event.Retry, fail("53200", inside...).Class)
		require.Equal(t, event.Retry, fail("XX000", begin(0x100), commit(0x100, 0x110)).Class)
	}
}
