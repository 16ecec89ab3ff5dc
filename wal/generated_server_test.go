package wal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/wal"
)

func TestAGeneratedColumnIsReadWhereTheServerSendsIt(t *testing.T) {
	for _, version := range harness.PostgresVersions() {
		t.Run(version, func(t *testing.T) {
			b := newBenchOn(t, servers.Postgres(t, version))
			b.exec(`ALTER TABLE outbox ADD upper text GENERATED ALWAYS AS (upper(id)) STORED`)
			o := b.options()
			o.Columns[event.EventType] = event.Mapping{Column: "upper"}
			refused := func() *event.Fault {
				f := b.refuse(o, event.Checkpoint{})
				require.Equal(t, wal.CodeNoColumn, f.Code)
				require.Contains(t, f.Text, "generated")
				return f
			}
			const setting = "publish_generated_columns = stored"
			if version < "18" {
				require.NotContains(t, refused().Hint, setting, "which this version does not have")
				return
			}
			require.Contains(t, refused().Hint, setting, "nor does a publication of ours send it")
			b.exec(`CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')`)
			require.Contains(t, refused().Hint, setting)
			for _, change := range []string{
				`ALTER PUBLICATION pub SET (publish_generated_columns = stored)`,
				`ALTER PUBLICATION pub SET (publish_generated_columns = none); ALTER PUBLICATION pub SET TABLE outbox (id, aggregate_id, payload, raw, upper)`,
			} {
				b.exec(change)
				s := b.open(o, event.Checkpoint{})
				b.exec(`INSERT INTO outbox VALUES ('x', 'a')`)
				e := s.event()
				require.Equal(t, "X", string(e.Row[event.EventType].Bytes))
				require.NoError(t, s.source.Close())
				b.exec(`DELETE FROM outbox`, `SELECT pg_drop_replication_slot('`+b.slot()+`')`)
			}
			b.exec(`ALTER PUBLICATION pub SET TABLE outbox`, `ALTER PUBLICATION pub SET (publish_generated_columns = stored)`,
				`ALTER TABLE outbox ADD lower text GENERATED ALWAYS AS (lower(id)) VIRTUAL`)
			o.Columns[event.EventType] = event.Mapping{Column: "lower"}
			require.NotContains(t, refused().Hint, setting, "a virtual one is never sent")
		})
	}
}
