package wal_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/wal"
)

func TestStartWithoutAPosition(t *testing.T) {
	b := newBench(t)
	o := b.options()

	earliest := o
	earliest.Start = "earliest"
	f := b.refuse(earliest, event.Checkpoint{})
	require.Equal(t, wal.CodeEarliest, f.Code)
	require.True(t, f.Immediate)

	manual := o
	manual.Create = false
	f = b.refuse(manual, event.Checkpoint{})
	require.True(t, f.Immediate)
	require.Equal(t, wal.CodeNoSlot, f.Code)
	require.Contains(t, f.Hint, "pg_create_logical_replication_slot('"+o.Slot+"'")

	ran := o
	ran.RanBefore = true
	f = b.refuse(ran, event.Checkpoint{})
	require.Equal(t, event.Safety, f.Class)
	require.Equal(t, "0", b.one(`SELECT count(*) FROM pg_replication_slots WHERE database = current_database()`))

	b.exec(`INSERT INTO outbox VALUES ('before', 'a')`)
	s := b.open(o, event.Checkpoint{})
	require.False(t, s.cp.Position.IsZero())
	require.NoError(t, s.source.Close())
	b.exec(`INSERT INTO outbox VALUES ('1', 'a')`)

	// An emptied data_dir: the slot remembers, whatever start and RanBefore say.
	earliest.RanBefore = true
	again := b.open(earliest, event.Checkpoint{})
	require.Equal(t, s.cp.Position, again.cp.Position)
	require.Equal(t, []string{"1"}, ids(t, again, 1))
}

func TestWhatIsMissingIsNamedWithItsRemedy(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE VIEW outbox_view AS SELECT * FROM outbox`,
		`CREATE UNLOGGED TABLE unlogged (LIKE outbox)`, `CREATE ROLE plain_`+b.database+` LOGIN PASSWORD '`+harness.RootPassword+`'`,
		`CREATE TABLE parts (LIKE outbox) PARTITION BY LIST (id)`, `CREATE TABLE p1 PARTITION OF parts DEFAULT`,
		`CREATE PUBLICATION empty`, `CREATE PUBLICATION updates FOR TABLE outbox WITH (publish = 'update')`,
		`CREATE PUBLICATION roots FOR TABLE parts WITH (publish_via_partition_root)`)
	if !b.old() {
		b.exec(`CREATE PUBLICATION columns FOR TABLE outbox (id, aggregate_id, raw)`)
	}
	admin := b.connect("postgres")
	t.Cleanup(func() {
		b.execOn(admin, `DROP ROLE plain_`+b.database)
		admin.Close(context.Background())
	})
	for name, c := range map[string]struct {
		change func(*wal.Options)
		code   string
	}{
		"table":     {func(o *wal.Options) { o.Tables = []string{"public.nothing"} }, wal.CodeNoTable},
		"view":      {func(o *wal.Options) { o.Tables = []string{"public.outbox_view"} }, wal.CodeNoTable},
		"column":    {func(o *wal.Options) { o.Columns[event.Tenant] = event.Mapping{Column: "nothing"} }, wal.CodeNoColumn},
		"unlogged":  {func(o *wal.Options) { o.Tables = []string{"public.unlogged"} }, wal.CodeUnlogged},
		"database":  {func(o *wal.Options) { o.Database = "nothing" }, wal.CodeNoDatabase},
		"privilege": {func(o *wal.Options) { o.User = "plain_" + b.database }, wal.CodePrivilege},
		"member":    {func(o *wal.Options) { o.Publication = "empty" }, wal.CodePublication},
		"updates":   {func(o *wal.Options) { o.Publication = "updates" }, wal.CodePublication},
		"columns":   {func(o *wal.Options) { o.Publication = "columns" }, wal.CodeColumnList},
		"leaf":      {func(o *wal.Options) { o.Publication, o.Tables = "roots", []string{"public.p1"} }, wal.CodePartition},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "columns" && b.old() {
				t.Skip("Postgres 14 has no column lists in publications")
			}
			o := b.options()
			c.change(&o)
			f := b.refuse(o, event.Checkpoint{})
			require.Equal(t, c.code, f.Code, "%v", f)
			require.Equal(t, event.Environment, f.Class)
			require.True(t, f.Immediate)
		})
	}
}

func TestAChangeOfThePublicationStopsAndIsAcceptedOnce(t *testing.T) {
	b := newBench(t)
	o := b.options()
	o.CheckEvery = 50 * time.Millisecond
	s := b.open(o, event.Checkpoint{})
	cp := s.cp
	// Back and forth: nothing shows afterwards but the version of a row.
	b.exec(`BEGIN`, `ALTER PUBLICATION pub SET (publish = 'update')`, `ALTER PUBLICATION pub SET (publish = 'insert')`, `COMMIT`)
	f := s.fault()
	require.Equal(t, wal.CodeDependsChanged, f.Code)
	require.Equal(t, event.Safety, f.Class)
	require.NoError(t, s.source.Close())

	f = b.refuse(o, cp)
	require.Equal(t, wal.CodeDependsChanged, f.Code)
	require.Contains(t, f.Hint, "checkpoint accept -c FILE --pipeline P --code OT2038")
	cp.Accepted = []string{wal.CodeDependsChanged}
	s.reopen(cp)
	require.Empty(t, s.cp.Accepted)
	require.NotEqual(t, string(cp.Depends), string(s.cp.Depends))
	b.exec(`INSERT INTO outbox VALUES ('1', 'a')`)
	require.Equal(t, []string{"1"}, ids(t, s, 1))

	// Each of these writes rows that no slot ever sends, and shows nothing in the log.
	for _, change := range [][]string{
		{`ALTER PUBLICATION pub SET TABLE other`, `ALTER PUBLICATION pub SET TABLE outbox`},
		{`DROP TABLE outbox`, `CREATE TABLE outbox (id text, aggregate_id text, payload text, raw bytea)`, `ALTER PUBLICATION pub ADD TABLE outbox`},
	} {
		b.exec(change...)
		f := s.fault()
		require.Equal(t, wal.CodeDependsChanged, f.Code, "%v", f)
		require.NoError(t, s.source.Close())
		s.cp.Accepted = []string{wal.CodeDependsChanged}
		s.reopen(s.cp)
	}
}

func TestADroppedPublicationStops(t *testing.T) {
	b := newBench(t)
	s := b.open(b.options(), event.Checkpoint{})
	b.exec(`INSERT INTO outbox VALUES ('1', 'a')`, `DROP PUBLICATION pub`, `INSERT INTO outbox VALUES ('2', 'a')`)
	require.Equal(t, []string{"1"}, ids(t, s, 1))
	require.Equal(t, wal.CodePublicationGone, s.fault().Code)
	require.NoError(t, s.source.Close())
	require.Equal(t, event.Safety, b.refuse(b.options(), s.cp).Class)
}

func TestASlotThatIsNotOursAnyMoreStops(t *testing.T) {
	b := newBench(t)
	o := b.options()
	s := b.open(o, event.Checkpoint{})
	cp := s.cp
	require.NoError(t, s.source.Close())
	drop := func() {
		require.Eventually(t, func() bool {
			_, err := b.sql.Exec(context.Background(), `SELECT pg_drop_replication_slot('`+o.Slot+`')`).ReadAll()
			return err == nil
		}, patience, 50*time.Millisecond)
	}
	drop()
	require.Equal(t, wal.CodeSlotLost, b.refuse(o, cp).Code)

	b.exec(`INSERT INTO outbox VALUES ('lost', 'a')`, `SELECT pg_create_logical_replication_slot('`+o.Slot+`', 'pgoutput')`)
	f := b.refuse(o, cp)
	require.Equal(t, wal.CodeSlotAdvanced, f.Code)
	require.Contains(t, f.Text, cp.Position.LSN.String())
	cp.Accepted = []string{wal.CodeSlotAdvanced}
	s.reopen(cp)
	require.Greater(t, s.cp.Position.LSN, cp.Position.LSN)
	b.exec(`INSERT INTO outbox VALUES ('1', 'a')`)
	require.Equal(t, []string{"1"}, ids(t, s, 1))
	require.NoError(t, s.source.Close())

	drop()
	b.exec(`SELECT pg_create_logical_replication_slot('` + o.Slot + `', 'test_decoding')`)
	require.Equal(t, wal.CodeForeignSlot, b.refuse(o, s.cp).Code)
}

func TestAnotherDatabaseIsNotTakenForOurs(t *testing.T) {
	b, other := newBench(t), newBench(t)
	s := b.open(b.options(), event.Checkpoint{})
	cp := s.cp
	require.NoError(t, s.source.Close())
	other.exec(`CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')`)
	o := b.options()
	o.Database = other.database
	f := b.refuse(o, cp)
	require.Equal(t, wal.CodeOtherDatabase, f.Code)
	require.Contains(t, f.Text, b.database)
	require.Contains(t, f.Text, other.database)
	// Accepted, the slot is still not of that database.
	cp.Accepted = []string{wal.CodeOtherDatabase}
	require.Equal(t, wal.CodeForeignSlot, b.refuse(o, cp).Code)
	o.Slot = other.slot()
	cp.Accepted = nil
	require.Equal(t, wal.CodeOtherDatabase, b.refuse(o, cp).Code)
}

func TestAStandbyWaitsForTheSlot(t *testing.T) {
	b := newBench(t)
	first := b.open(b.options(), event.Checkpoint{})
	o := b.options()
	told := map[string]*event.Fault{}
	o.Conditions = func(key string, f *event.Fault) { told[key] = f }
	standby := b.source(o)
	_, err := standby.Open(context.Background(), event.Checkpoint{})
	f := event.AsFault(err)
	require.NotNil(t, f, "%v", err)
	require.Equal(t, wal.CodeSlotActive, f.Code)
	require.Equal(t, event.Retry, f.Class)
	require.True(t, f.Standby)
	require.Empty(t, told, "whoever opened it tells it, once")

	b.exec(`INSERT INTO outbox VALUES ('1', 'a')`)
	require.Equal(t, []string{"1"}, ids(t, first, 1))
	first.source.Confirm(first.passed(1).Position)
	require.NoError(t, first.source.Close())
	s := &stream{bench: b, source: standby}
	s.reopen(event.Checkpoint{})
	b.exec(`INSERT INTO outbox VALUES ('2', 'a')`)
	require.Equal(t, []string{"2"}, ids(t, s, 1))
}
