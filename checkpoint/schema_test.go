package checkpoint

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func TestColumnsThatAPersonVouchesForLeaveThePositionAlone(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	vouched := json.RawMessage(`{"vouched":{"app.outbox":{}}}`)
	require.Error(t, s.AcceptSchema(t.Context(), "orders", "app.outbox", vouched, By{"ada", "read the migration"}), "there is no position that it could belong to")

	before := pg(100, 42)
	before.Prefix = &event.Prefix{Tx: "0/70", Rows: 3}
	save(t, s, map[string]event.Checkpoint{"orders": before})
	stored, err := s.Load("orders")
	require.NoError(t, err)
	require.Error(t, s.AcceptSchema(t.Context(), "orders", "app.outbox", vouched, By{"ada", " "}))
	require.NoError(t, s.AcceptSchema(t.Context(), "orders", "app.outbox at binlog.000001:4: id int", vouched, By{"ada", "read the migration"}))
	after, err := s.Load("orders")
	require.NoError(t, err)
	require.JSONEq(t, string(vouched), string(after.Depends))
	after.Depends = stored.Depends
	require.Equal(t, stored, after)

	audits, err := s.Audits()
	require.NoError(t, err)
	require.Len(t, audits, 1)
	require.Equal(t, ActionSchema, audits[0].Action)
	require.Equal(t, "app.outbox at binlog.000001:4: id int", audits[0].Detail)
	require.JSONEq(t, string(vouched), string(audits[0].After.Depends))
}
