package wal_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/wal"
)

func TestMessagesComeInOrderWithTheRowsOfTables(t *testing.T) {
	for _, version := range harness.PostgresVersions() {
		t.Run(version, func(t *testing.T) {
			b := newBenchOn(t, servers.Postgres(t, version))
			sql, err := os.ReadFile("../cmd/outtail/initial/postgres-messages.sql")
			require.NoError(t, err)
			function, _, ok := strings.Cut(string(sql), "-- BEGIN")
			require.True(t, ok)
			b.exec(function)
			o := b.options()
			o.Messages = true
			ignored := make(chan string, 10)
			o.Filtered = func(reason string, n int) { ignored <- reason }
			s := b.open(o, event.Checkpoint{})
			b.exec(`SELECT pg_logical_emit_message(false, 'outtail', '{"id": "not transactional"}')`,
				`SELECT pg_logical_emit_message(true, 'somebody', '{"id": "not ours"}')`,
				`BEGIN`, `SELECT outtail_emit('order', 'rolled back', 'x', '1')`, `ROLLBACK`,
				`BEGIN`, `INSERT INTO outbox VALUES ('1', 'a')`,
				`SELECT outtail_emit('order', 'a "b" ü', 'order.created', '{"total": 12.50,  "total": 1}', '{"h": "v"}', '00000000-0000-4000-8000-000000000002')`,
				`SAVEPOINT s`, `SELECT outtail_emit('order', 'to savepoint', 'x', '1')`, `ROLLBACK TO s`,
				`INSERT INTO outbox VALUES ('3', 'a')`, `COMMIT`,
				`SELECT outtail_emit('order', NULL, NULL, NULL, id => '00000000-0000-4000-8000-000000000004')`,
				`SELECT pg_logical_emit_message(true, 'outtail', '{"secret"')`,
				`INSERT INTO outbox VALUES ('6', 'a')`)
			start := s.cp
			text := func(e *event.Event, r event.Role) string { return string(e.Row[r].Bytes) }
			e := s.event()
			require.Equal(t, "1", text(e, event.ID))
			tx := e.Tx.ID
			e = s.event()
			require.Nil(t, e.Err)
			require.Equal(t, tx, e.Tx.ID)
			require.EqualValues(t, 1, e.Index)
			require.Equal(t, "00000000-0000-4000-8000-000000000002", text(e, event.ID))
			require.Equal(t, `a "b" ü`, text(e, event.AggregateID))
			require.Equal(t, "order", text(e, event.AggregateType))
			require.Equal(t, `{"total": 12.50,  "total": 1}`, text(e, event.Payload), "verbatim")
			require.Equal(t, `{"h": "v"}`, text(e, event.Headers))
			require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`, text(e, event.OccurredAt))
			require.Equal(t, "3", text(s.event(), event.ID))
			e = s.event()
			require.Nil(t, e.Err)
			require.True(t, e.Row[event.AggregateID].Null)
			require.False(t, e.Row[event.Payload].Present(), "SQL NULL")
			e = s.event()
			require.Equal(t, wal.CodeMessage, e.Err.Code)
			require.NotContains(t, e.Err.Error(), "secret")
			require.Equal(t, "6", text(s.event(), event.ID))
			require.Equal(t, "message_not_transactional", <-ignored)
			require.Empty(t, ignored)
			require.NoError(t, s.source.Close())

			// Rows and messages are counted together: a stored prefix ends between them.
			start.Prefix = &event.Prefix{Tx: tx, Rows: 2, Selection: start.Selection}
			s.reopen(start)
			require.Equal(t, "3", text(s.event(), event.ID))
			require.NoError(t, s.source.Close())

			// Without the switch other events are counted: the prefix does not hold.
			o.Messages = false
			s = b.open(o, start)
			require.Nil(t, s.cp.Prefix)
			require.Equal(t, []string{"1", "3", "6"}, ids(t, s, 3))
		})
	}
}

func TestMessagesNeedNoTable(t *testing.T) {
	b := newBench(t)
	o := b.options()
	o.Tables, o.Messages, o.Columns = nil, true, event.Columns{}
	s := b.open(o, event.Checkpoint{})
	b.exec(`INSERT INTO outbox VALUES ('not asked for', 'a')`, `SELECT pg_logical_emit_message(true, 'outtail', '{"id": "1"}')`,
		`SELECT pg_logical_emit_message(true, 'outtail', '{"id": "2", "payload": "' || repeat('x', 1000000) || '"}')`)
	require.Equal(t, []string{"1", "2"}, ids(t, s, 2))
	require.NoError(t, s.source.Close())
	s.reopen(s.cp)
	require.Equal(t, []string{"1", "2"}, ids(t, s, 2))
}
