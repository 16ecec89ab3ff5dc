package wal_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/wal"
)

func ids(t *testing.T, s *stream, n int) []string {
	t.Helper()
	var out []string
	for range n {
		e := s.event()
		require.Nil(t, e.Err)
		out = append(out, string(e.Row[event.ID].Bytes))
	}
	return out
}

func TestOnlyCommittedInsertsComeInCommitOrder(t *testing.T) {
	b := newBench(t)
	s := b.open(b.options(), event.Checkpoint{})
	second := b.connect(b.database)
	defer second.Close(context.Background())
	b.exec(`INSERT INTO outbox VALUES ('1', 'a', 'x')`,
		`BEGIN`, `INSERT INTO outbox VALUES ('rolled back', 'a')`, `ROLLBACK`,
		`BEGIN`, `INSERT INTO outbox VALUES ('4', 'a', '', '\x00ff')`)
	// The first to commit comes first, whoever wrote first.
	b.execOn(second, `INSERT INTO outbox VALUES ('2', 'b'), ('3', 'b')`)
	b.exec(`INSERT INTO other SELECT i, 'noise' FROM generate_series(1, 500) i`,
		`SAVEPOINT p`, `INSERT INTO outbox VALUES ('rolled back to savepoint', 'a')`, `ROLLBACK TO p`,
		`INSERT INTO outbox VALUES ('5', 'a', '{"k": "ü"}')`, `COMMIT`,
		`UPDATE outbox SET payload = 'updated' WHERE id = '1'`, `DELETE FROM outbox WHERE id = '2'`,
		`INSERT INTO outbox VALUES ('6', 'a')`)

	one := s.event()
	require.Equal(t, "1", string(one.Row[event.ID].Bytes))
	require.Equal(t, "x", string(one.Row[event.Payload].Bytes))
	require.Equal(t, event.Value{Bytes: []byte("order"), Set: true}, one.Row[event.EventType])
	require.True(t, one.Row[event.Key].Null)
	require.False(t, one.Row[event.Tenant].Set)
	require.Equal(t, "public.outbox", one.Table)
	require.Equal(t, "postgres/"+b.slot()+"/"+one.Tx.ID, one.Tx.Source)
	require.WithinDuration(t, time.Now(), one.Tx.Commit, time.Hour)
	require.Equal(t, []string{"2", "3"}, ids(t, s, 2))
	four := s.event()
	require.Equal(t, "4", string(four.Row[event.ID].Bytes))
	require.True(t, four.Row[event.Payload].Present())
	require.NotNil(t, four.Row[event.Payload].Bytes)
	require.Empty(t, four.Row[event.Payload].Bytes)
	require.Equal(t, "00ff", string(four.Row[event.Key].Bytes))
	five := s.event()
	require.Equal(t, `{"k": "ü"}`, string(five.Row[event.Payload].Bytes))
	require.EqualValues(t, 1, five.Index)
	require.Equal(t, []string{"6"}, ids(t, s, 1))
}

func TestValuesRenderTheSameWhateverTheRoleHasSet(t *testing.T) {
	b := newBench(t)
	b.exec(`ALTER TABLE outbox ADD COLUMN at timestamptz`,
		`ALTER DATABASE `+b.database+` SET DateStyle = 'German'`, `ALTER DATABASE `+b.database+` SET TimeZone = 'Asia/Tokyo'`,
		`ALTER DATABASE `+b.database+` SET bytea_output = 'escape'`)
	o := b.options()
	o.Columns[event.OccurredAt] = event.Mapping{Column: "at"}
	o.Columns[event.Tenant] = event.Mapping{Column: "raw", As: event.UUID}
	o.Columns[event.Payload] = event.Mapping{Column: "raw"}
	s := b.open(o, event.Checkpoint{})
	b.exec(`INSERT INTO outbox VALUES ('1', 'a', NULL, '\x000102030405060708090a0b0c0d0e0f', '2026-01-02 03:04:05.678901+02')`,
		`INSERT INTO outbox VALUES ('2', 'a', NULL, '\x00', now())`)
	e := s.event()
	require.Equal(t, "2026-01-02 01:04:05.678901+00", string(e.Row[event.OccurredAt].Bytes))
	require.Equal(t, "00010203-0405-0607-0809-0a0b0c0d0e0f", string(e.Row[event.Tenant].Bytes))
	require.Equal(t, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, e.Row[event.Payload].Bytes)
	e = s.event()
	require.NotNil(t, e.Err)
	require.Equal(t, wal.CodeBinaryValue, e.Err.Code)
	require.Equal(t, event.Record, e.Err.Class)
	require.Equal(t, "2", string(e.Row[event.ID].Bytes))
}

func TestAPrefixOfALargeTransactionIsNotDeliveredAgain(t *testing.T) {
	b := newBench(t)
	s := b.open(b.options(), event.Checkpoint{})
	start := s.cp
	b.exec(`BEGIN`, `INSERT INTO other VALUES (0)`, `INSERT INTO outbox SELECT i::text, 'a', repeat('x', 300) FROM generate_series(0, 4999) i`, `COMMIT`)
	var tx string
	for i := range 3000 {
		e := s.event()
		require.EqualValues(t, i, e.Index)
		tx = e.Tx.ID
	}
	require.NoError(t, s.source.Close())

	cp := start
	cp.Prefix = &event.Prefix{Tx: tx, Rows: 2500, Selection: cp.Selection}
	s.reopen(cp)
	require.Equal(t, cp.Prefix, s.cp.Prefix)
	e := s.event()
	require.EqualValues(t, 2500, e.Index)
	require.Equal(t, "2500", string(e.Row[event.ID].Bytes))
	require.NoError(t, s.source.Close())

	// Other columns count other rows: everything comes again.
	o := b.options()
	o.Columns[event.Tenant] = event.Mapping{Column: "payload"}
	again := b.open(o, cp)
	require.Nil(t, again.cp.Prefix)
	require.Equal(t, "0", string(again.event().Row[event.ID].Bytes))
}

func TestARowBeyondTheLimitFailsForItself(t *testing.T) {
	b := newBench(t)
	o := b.options()
	o.RowLimit = 300 << 10
	s := b.open(o, event.Checkpoint{})
	for i, kib := range []int{1, 200, 5000, 400, 299, 1} {
		b.exec(fmt.Sprintf(`INSERT INTO other VALUES (%d, repeat('x', %d))`, i, kib*7000),
			fmt.Sprintf(`INSERT INTO outbox VALUES ('%d', 'a', repeat('%d', %d))`, i, i, kib<<10))
	}
	for i, kib := range []int{1, 200, 5000, 400, 299, 1} {
		e := s.event()
		require.Equal(t, fmt.Sprint(i), string(e.Row[event.ID].Bytes))
		require.Equal(t, "a", string(e.Row[event.AggregateID].Bytes))
		if kib > 300 {
			require.NotNil(t, e.Err, "%d KiB", kib)
			require.Equal(t, wal.CodeRowTooLarge, e.Err.Code)
			continue
		}
		require.Nil(t, e.Err)
		require.Equal(t, strings.Repeat(fmt.Sprint(i), kib<<10), string(e.Row[event.Payload].Bytes))
	}
}

func TestAKilledWalsenderIsRetriedAndLosesNothing(t *testing.T) {
	b := newBench(t)
	s := b.open(b.options(), event.Checkpoint{})
	b.exec(`INSERT INTO outbox VALUES ('1', 'a')`)
	require.Equal(t, []string{"1"}, ids(t, s, 1))
	cp := s.passed(1)
	b.exec(`INSERT INTO outbox VALUES ('2', 'a')`,
		`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '`+b.slot()+`'`)
	f := s.fault()
	require.Equal(t, event.Retry, f.Class, "%v", f)
	require.NoError(t, s.source.Close())
	s.reopen(cp)
	require.Equal(t, []string{"2"}, ids(t, s, 1))
}

func TestProgressWhileOnlyOtherTablesAreBusy(t *testing.T) {
	b := newBench(t)
	s := b.open(b.options(), event.Checkpoint{})
	b.exec(`INSERT INTO other SELECT i, 'noise' FROM generate_series(1, 2000) i`)
	target := b.end()
	cp := s.passed(target)
	s.source.Confirm(cp.Position)
	require.Eventually(t, func() bool {
		return b.one(`SELECT confirmed_flush_lsn >= '`+target.String()+`' FROM pg_replication_slots WHERE slot_name = '`+b.slot()+`'`) == "t"
	}, patience, 50*time.Millisecond)
}

func TestTheSessionLivesWhileNobodyReads(t *testing.T) {
	b := newBench(t)
	b.exec(`ALTER DATABASE ` + b.database + ` SET wal_sender_timeout = '1500ms'`)
	s := b.open(b.options(), event.Checkpoint{})
	pid := b.one(`SELECT active_pid FROM pg_replication_slots WHERE slot_name = '` + b.slot() + `'`)
	// More than socket buffers hold, so that the server waits for a reader.
	b.exec(`INSERT INTO outbox SELECT i::text, 'a', repeat('x', 1000) FROM generate_series(1, 20000) i`)
	began := b.one(`SELECT clock_timestamp()`)
	require.Eventually(t, func() bool {
		return b.one(`SELECT clock_timestamp() > '`+began+`'::timestamptz + interval '5 s'`) == "t"
	}, patience, 200*time.Millisecond)
	require.Equal(t, pid, b.one(`SELECT active_pid FROM pg_replication_slots WHERE slot_name = '`+b.slot()+`'`))
	for i := 1; i <= 20000; i++ {
		require.Equal(t, fmt.Sprint(i), string(s.event().Row[event.ID].Bytes))
	}
}

func TestReadEndsWithItsContext(t *testing.T) {
	b := newBench(t)
	before := goleak.IgnoreCurrent()
	s := b.open(b.options(), event.Checkpoint{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		for {
			if _, err := s.source.Read(ctx); err != nil {
				ended <- err
				return
			}
		}
	}()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	b.exec(`INSERT INTO outbox VALUES ('1', 'a')`)
	require.Equal(t, []string{"1"}, ids(t, s, 1))
	require.NoError(t, s.source.Close())
	goleak.VerifyNone(t, before)
	_, err := s.source.Read(ctx)
	require.Error(t, err)
}

func TestAColumnThatIsGoneStopsAndStaysAcceptedOverReconnects(t *testing.T) {
	b := newBench(t)
	s := b.open(b.options(), event.Checkpoint{})
	b.exec(`ALTER TABLE outbox RENAME COLUMN payload TO body`, `INSERT INTO outbox VALUES ('1', 'a', 'x')`, `ALTER TABLE outbox RENAME COLUMN body TO payload`)
	f := s.fault()
	require.Equal(t, wal.CodeColumnGone, f.Code)
	require.Equal(t, event.Safety, f.Class)
	require.NoError(t, s.source.Close())
	s.cp.Accepted = []string{wal.CodeColumnGone}
	for range 2 {
		s.reopen(s.cp)
		require.Empty(t, s.cp.Accepted)
		e := s.event()
		require.Equal(t, "1", string(e.Row[event.ID].Bytes))
		require.False(t, e.Row[event.Payload].Set)
		require.NoError(t, s.source.Close())
	}
}

func TestAPartitionedTableComesUnderItsOwnName(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE "Parts" (id text, aggregate_id text, payload text, raw bytea, d int) PARTITION BY RANGE (d)`,
		`CREATE TABLE p1 PARTITION OF "Parts" FOR VALUES FROM (0) TO (10)`)
	o := b.options()
	o.Tables = []string{`public."Parts"`, "public.outbox"}
	s := b.open(o, event.Checkpoint{})
	b.exec(`INSERT INTO "Parts" VALUES ('1', 'a', 'x', NULL, 1)`,
		`CREATE TABLE p2 PARTITION OF "Parts" FOR VALUES FROM (10) TO (20)`,
		`INSERT INTO "Parts" VALUES ('2', 'a', 'x', NULL, 11)`, `INSERT INTO outbox VALUES ('3', 'a')`)
	e := s.event()
	require.Equal(t, `public."Parts"`, e.Table)
	require.Equal(t, []string{"2", "3"}, ids(t, s, 2))
}
