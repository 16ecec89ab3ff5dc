package doctor

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func lsn(n uint64) *event.LSN { v := event.LSN(n); return &v }

func options() Postgres {
	return Postgres{
		Host: "db", Port: 5432, User: "outtail", Database: "shop", Slot: "outtail_orders", Publication: "outtail_orders", Tables: []string{"public.outbox"},
		Columns: columns(map[event.Role]string{event.ID: "id", event.Payload: "payload", event.OccurredAt: "occurred_at"}),
	}
}

// healthyPostgres is a server with which nothing is wrong.
func healthyPostgres() *pgFacts {
	return &pgFacts{
		Version: 170002, SystemID: "7", Timeline: 1, Replication: true, Connections: -1, Slots: 1, Senders: 1, End: 2000, Retained: 500,
		Settings: map[string]string{
			"wal_level": "logical", "max_replication_slots": "10", "max_wal_senders": "10", "max_slot_wal_keep_size": "102400 MB", "wal_sender_timeout": "60000 ms",
			"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on",
		},
		Slot:        &pgSlot{Plugin: "pgoutput", Type: "logical", Database: "shop", Restart: lsn(900), Confirmed: lsn(1000), WALStatus: "reserved"},
		Stored:      event.Checkpoint{Position: event.Position{Kind: event.Postgres, SystemID: "7", Timeline: 1, LSN: 1000}},
		Publication: &pgPublication{Insert: true},
		Tables: []pgTable{{
			Name: sqlName{"public", "outbox"}, Exists: true, Kind: "r", Persistence: "p", Select: true, Published: true,
			Columns: map[string]pgColumn{"id": {Type: "uuid"}, "payload": {Type: "jsonb"}, "occurred_at": {Type: "timestamp with time zone"}},
		}},
	}
}

func TestJudgePostgres(t *testing.T) {
	set := func(name, value string) func(*Postgres, *pgFacts) {
		return func(_ *Postgres, f *pgFacts) { f.Settings[name] = value }
	}
	one := func(e expectation) []expectation { return []expectation{e} }
	for _, c := range []struct {
		name  string
		given func(*Postgres, *pgFacts)
		want  []expectation
	}{
		{"healthy", func(*Postgres, *pgFacts) {}, nil},
		{"too old", func(_ *Postgres, f *pgFacts) { f.Version = 130014 }, one(expectation{Error, codeVersion, "13.14", "14"})},
		{"wal_level", set("wal_level", "replica"), one(expectation{Error, codeWALLevel, "replica", "ALTER SYSTEM SET wal_level = 'logical';"})},
		{"fsync", set("fsync", "off"), one(expectation{Warning, codeDurable, "fsync", "ALTER SYSTEM SET fsync = on;"})},
		{"synchronous_commit", set("synchronous_commit", "off"), one(expectation{Note, codeDurable, "synchronous_commit", ""})},
		{"the slot keeps without bound", set("max_slot_wal_keep_size", "-1 MB"), one(expectation{Note, codeKeep, "without bound", "ALTER SYSTEM"})},
		{"the slot keeps little", set("max_slot_wal_keep_size", "64 MB"), one(expectation{Warning, codeKeep, "64 MiB", "ALTER SYSTEM SET max_slot_wal_keep_size"})},
		{"no wal_sender_timeout", set("wal_sender_timeout", "0 ms"), one(expectation{Note, codeTimeouts, "0", "60s"})},
		{"short wal_sender_timeout", set("wal_sender_timeout", "2000 ms"), one(expectation{Warning, codeTimeouts, "2s", "60s"})},
		{"idle slots are invalidated", set("idle_replication_slot_timeout", "3600 s"), one(expectation{Warning, codeTimeouts, "3600 s", "idle_replication_slot_timeout = 0"})},
		{"no sender left", func(_ *Postgres, f *pgFacts) { f.Senders = 10 }, one(expectation{Error, codeRoom, "WAL senders", "max_wal_senders = 20"})},
		{"the last sender is ours", func(_ *Postgres, f *pgFacts) { f.Senders, f.Slot.Active = 10, true }, nil},
		{"one sender left", func(_ *Postgres, f *pgFacts) { f.Senders = 9 }, one(expectation{Note, codeRoom, "one is left", "max_wal_senders"})},
		{"no slot left", func(o *Postgres, f *pgFacts) {
			o.Create, o.Start = true, "now"
			f.Slot, f.Slots, f.Stored = nil, 10, event.Checkpoint{}
		}, one(expectation{Error, codeRoom, "replication slots", "max_replication_slots = 20"})},
		{"no REPLICATION", func(_ *Postgres, f *pgFacts) {
			f.Replication, f.Refused = false, &pgRefusal{State: "42501", Text: "permission denied to start WAL sender"}
		}, one(expectation{Error, codeReplication, "may not use replication", `ALTER ROLE "outtail" WITH REPLICATION;`})},
		{"a password that expires", func(_ *Postgres, f *pgFacts) { f.Expires = 72 * time.Hour }, one(expectation{Warning, codeReplication, "expires in", `ALTER ROLE "outtail" VALID UNTIL 'infinity';`})},
		{"a password that expires next year", func(_ *Postgres, f *pgFacts) { f.Expires = 9000 * time.Hour }, nil},
		{"few connections", func(_ *Postgres, f *pgFacts) { f.Connections = 2 }, one(expectation{Warning, codeReplication, "2 connections", `ALTER ROLE "outtail" CONNECTION LIMIT 12;`})},
		{"pg_hba", func(_ *Postgres, f *pgFacts) {
			f.Refused = &pgRefusal{State: "28000", Text: "no pg_hba.conf entry for replication connection"}
		}, one(expectation{Error, codeReplication, "pg_hba", "host  shop  outtail"})},
		{"a pooler", func(_ *Postgres, f *pgFacts) {
			f.Refused = &pgRefusal{State: "08P01", Text: "unsupported startup parameter: replication"}
		}, one(expectation{Error, codeReplication, "pooler", "host and port"})},
		{"a pooler that ignores the parameter", func(_ *Postgres, f *pgFacts) {
			f.Refused = &pgRefusal{State: "42601", Text: `syntax error at or near "IDENTIFY_SYSTEM"`}
		}, one(expectation{Error, codeReplication, "pooler", "host and port"})},
		{"no publication", func(_ *Postgres, f *pgFacts) { f.Publication = nil }, one(expectation{Error, codePublication, "does not exist", `CREATE PUBLICATION "outtail_orders" FOR TABLE "public"."outbox" WITH (publish = 'insert'`})},
		{"no publication yet", func(o *Postgres, f *pgFacts) {
			o.Create, o.Start = true, "now"
			f.Publication, f.Slot, f.Stored = nil, nil, event.Checkpoint{}
			f.MayCreate, f.Tables[0].Owner = true, true
		}, one(expectation{Note, codePublication, "first start creates it", "CREATE PUBLICATION"})},
		{"no publication, and the owner may not create", func(o *Postgres, f *pgFacts) {
			o.Create, o.Start = true, "now"
			f.Publication, f.Slot, f.Stored = nil, nil, event.Checkpoint{}
			f.Tables[0].Owner = true
		}, one(expectation{Error, codePublication, "lacks CREATE on the database", "CREATE PUBLICATION"})},
		{"no publication, and another owner", func(o *Postgres, f *pgFacts) {
			o.Create, o.Start = true, "now"
			f.Publication, f.Slot, f.Stored = nil, nil, event.Checkpoint{}
			f.MayCreate = true
		}, one(expectation{Error, codePublication, "does not own public.outbox", "CREATE PUBLICATION"})},
		{"no inserts", func(_ *Postgres, f *pgFacts) { f.Publication = &pgPublication{Update: true} }, one(expectation{Error, codePublication, "does not publish inserts", "SET (publish = 'insert');"})},
		{"more than inserts", func(_ *Postgres, f *pgFacts) { f.Publication.Delete = true }, one(expectation{Note, codeOperations, "more than inserts", "SET (publish = 'insert');"})},
		{"more than inserts without identity", func(_ *Postgres, f *pgFacts) {
			f.Publication.Delete, f.Nameless = true, []sqlName{{"public", "outbox"}}
		}, one(expectation{Warning, codeOperations, "no primary key", "SET (publish = 'insert');"})},
		{"not published", func(_ *Postgres, f *pgFacts) { f.Tables[0].Published = false }, one(expectation{Error, codePublication, "does not contain", `ADD TABLE "public"."outbox";`})},
		{"sent as its root", func(_ *Postgres, f *pgFacts) {
			f.Publication.ViaRoot, f.Tables[0].Ancestor = true, &sqlName{"public", "all"}
		}, one(expectation{Error, codeFilters, "as those of public.all", "publish_via_partition_root = false"})},
		{"partitioned", func(_ *Postgres, f *pgFacts) { f.Tables[0].Kind = "p" }, one(expectation{Note, codeFilters, "partitioned", "publish_via_partition_root = true"})},
		{"a row filter", func(_ *Postgres, f *pgFacts) { f.Tables[0].Filter = true }, one(expectation{Warning, codeFilters, "filters", "DROP TABLE"})},
		{"a column list", func(_ *Postgres, f *pgFacts) { f.Tables[0].List = []string{"id", "occurred_at"} }, one(expectation{Error, codeFilters, "leaves out payload", "ADD TABLE"})},
		{"no table", func(_ *Postgres, f *pgFacts) { f.Tables[0] = pgTable{Name: sqlName{"public", "outbox"}} }, one(expectation{Error, codeTables, "does not exist", "outtail init"})},
		{"a view", func(_ *Postgres, f *pgFacts) { f.Tables[0].Kind = "v" }, one(expectation{Error, codeTables, "a view", "tables"})},
		{"unlogged", func(_ *Postgres, f *pgFacts) { f.Tables[0].Persistence = "u" }, one(expectation{Error, codeTables, "unlogged", "SET LOGGED;"})},
		{"an unlogged partition", func(_ *Postgres, f *pgFacts) {
			f.Publication.ViaRoot, f.Tables[0].Kind, f.Tables[0].Unlogged = true, "p", &sqlName{"public", "part"}
		}, one(expectation{Error, codeTables, "public.part", `ALTER TABLE "public"."part" SET LOGGED;`})},
		{"no SELECT", func(_ *Postgres, f *pgFacts) { f.Tables[0].Select = false }, one(expectation{Warning, codeSelect, "may not select", `GRANT SELECT ON "public"."outbox" TO "outtail";`})},
		{"no column", func(_ *Postgres, f *pgFacts) { delete(f.Tables[0].Columns, "payload") }, one(expectation{Error, codeColumns, "payload", "ADD COLUMN"})},
		{"a generated column", func(_ *Postgres, f *pgFacts) {
			f.Tables[0].Columns["payload"] = pgColumn{Type: "jsonb", Generated: "s"}
		}, one(expectation{Error, codeColumns, "generated", "map another"})},
		{"a generated column that is published", func(_ *Postgres, f *pgFacts) {
			f.Version, f.Publication.Generated = 180000, true
			f.Tables[0].Columns["payload"] = pgColumn{Type: "jsonb", Generated: "s"}
		}, nil},
		{"a generated column that 18 could publish", func(_ *Postgres, f *pgFacts) {
			f.Version, f.Tables[0].Columns["payload"] = 180000, pgColumn{Type: "jsonb", Generated: "s"}
		}, one(expectation{Error, codeColumns, "generated", "publish_generated_columns = stored"})},
		{"a generated column that is listed", func(_ *Postgres, f *pgFacts) {
			f.Version, f.Tables[0].Columns["payload"] = 180000, pgColumn{Type: "jsonb", Generated: "s"}
			for column := range f.Tables[0].Columns {
				f.Tables[0].List = append(f.Tables[0].List, column)
			}
		}, nil},
		{"a virtual column", func(_ *Postgres, f *pgFacts) {
			f.Version, f.Publication.Generated = 180000, true
			f.Tables[0].Columns["payload"] = pgColumn{Type: "jsonb", Generated: "v"}
		}, one(expectation{Error, codeColumns, "generated", "map another column"})},
		{"a binary id", func(_ *Postgres, f *pgFacts) { f.Tables[0].Columns["id"] = pgColumn{Type: "bytea"} }, one(expectation{Note, codeColumns, "hex", "as: uuid"})},
		{"a binary payload", func(_ *Postgres, f *pgFacts) { f.Tables[0].Columns["payload"] = pgColumn{Type: "bytea"} }, nil},
		{"a time without zone", func(_ *Postgres, f *pgFacts) {
			f.Tables[0].Columns["occurred_at"] = pgColumn{Type: "timestamp without time zone"}
		}, one(expectation{Note, codeColumns, "no time zone", ""})},
		{"a time that is none", func(_ *Postgres, f *pgFacts) { f.Tables[0].Columns["occurred_at"] = pgColumn{Type: "text"} }, one(expectation{Warning, codeColumns, "of type text", ""})},
		{"no state file, a slot that is read", func(o *Postgres, f *pgFacts) {
			o.NoState, f.Stored, f.Slot.Active, f.Slot.ActivePID = "/srv/a/data", event.Checkpoint{}, true, 77
		}, one(expectation{Warning, codeStored, "no outtail.db in /srv/a/data, and the slot outtail_orders is read by process 77", "data_dir"})},
		{"no state file, a slot", func(o *Postgres, f *pgFacts) { o.NoState, f.Stored = "/srv/a/data", event.Checkpoint{} },
			one(expectation{Note, codeStored, "no outtail.db in /srv/a/data", "data_dir"})},
		{"a state file without a position, a slot that is read", func(_ *Postgres, f *pgFacts) { f.Stored, f.Slot.Active = event.Checkpoint{}, true }, nil},
		{"no slot, a position", func(_ *Postgres, f *pgFacts) { f.Slot = nil }, one(expectation{Error, codeSlot, "any more", "--to now"})},
		{"no slot, nothing makes one", func(_ *Postgres, f *pgFacts) { f.Slot, f.Stored = nil, event.Checkpoint{} }, one(expectation{Error, codeSlot, "does not exist", "pg_create_logical_replication_slot('outtail_orders', 'pgoutput');"})},
		{"no slot, earliest", func(o *Postgres, f *pgFacts) {
			o.Create, o.Start = true, "earliest"
			f.Slot, f.Stored = nil, event.Checkpoint{}
		}, one(expectation{Error, codeSlot, "earliest", "start: now"})},
		{"no slot, no start", func(o *Postgres, f *pgFacts) {
			o.Create = true
			f.Slot, f.Stored = nil, event.Checkpoint{}
		}, one(expectation{Error, codeSlot, "start is not given", "start: now"})},
		{"no slot, to be made", func(o *Postgres, f *pgFacts) {
			o.Create, o.Start = true, "now"
			f.Slot, f.Stored = nil, event.Checkpoint{}
		}, nil},
		{"a foreign slot", func(_ *Postgres, f *pgFacts) { f.Slot.Plugin = "wal2json" }, one(expectation{Error, codeSlot, "wal2json", "another slot"})},
		{"a lost slot", func(_ *Postgres, f *pgFacts) { f.Slot.WALStatus = "lost" }, one(expectation{Error, codeSlot, "lost", "pg_drop_replication_slot('outtail_orders');"})},
		{"an invalidated slot", func(_ *Postgres, f *pgFacts) { f.Slot.Invalidation = "idle_timeout" }, one(expectation{Error, codeSlot, "idle_timeout", "--to now"})},
		{"a slot beyond its bound", func(_ *Postgres, f *pgFacts) { f.Slot.WALStatus = "unreserved" }, one(expectation{Error, codeRetained, "max_slot_wal_keep_size", "ALTER SYSTEM"})},
		{"a slot near its bound", func(_ *Postgres, f *pgFacts) {
			safe := int64(1 << 20)
			f.Slot.Safe, f.Retained = &safe, 1<<30
		}, one(expectation{Warning, codeRetained, "1 MiB more", "start outtail"})},
		{"a slot that nobody reads", func(_ *Postgres, f *pgFacts) { f.Retained = 11 << 30 }, one(expectation{Warning, codeRetained, "nobody reads it", "start outtail"})},
		{"the slot has gone ahead", func(_ *Postgres, f *pgFacts) { f.Slot.Confirmed = lsn(1001) }, one(expectation{Error, codeSlotStored, "beyond the stored position", "--to slot"})},
		{"the stored position is ahead of the slot", func(_ *Postgres, f *pgFacts) { f.Stored.Position.LSN = 1500 }, nil},
		{"restored from a backup", func(_ *Postgres, f *pgFacts) { f.Stored.Position.LSN = 2001 }, one(expectation{Error, codeSlotStored, "beyond the end of the log", "--to slot"})},
		{"a start would stop", func(_ *Postgres, f *pgFacts) {
			f.Resume = &event.Fault{Code: "OT2038", Class: event.Safety, Text: "the publication was altered", Hint: "choose one"}
		}, one(expectation{Error, codeSlotStored, "was altered", "choose one"})},
		{"a start would stop on another timeline", func(_ *Postgres, f *pgFacts) {
			f.Timeline, f.Slot.Confirmed = 2, lsn(1001)
			f.Resume = &event.Fault{Code: "OT2036", Class: event.Safety, Text: "left ours at 0/3E0", Hint: "choose one"}
		}, one(expectation{Error, codeSlotStored, "0/3E0", "choose one"})},
		{"whether a start goes on is not known", func(_ *Postgres, f *pgFacts) { f.Resume = errors.New("connection reset") }, one(expectation{Warning, codeSlotStored, "connection reset", ""})},
		{"what others tell", func(_ *Postgres, f *pgFacts) {
			f.Resume = &event.Fault{Code: "OT2012", Class: event.Environment, Text: "no table", Hint: "create it"}
		}, nil},
		{"after a failover", func(_ *Postgres, f *pgFacts) { f.Timeline = 2 }, one(expectation{Note, codeSlotStored, "timeline 2", ""})},
		{"another server", func(_ *Postgres, f *pgFacts) { f.SystemID = "8" }, one(expectation{Error, codeSlotStored, "system identifier", "--to slot"})},
		{"an old transaction", func(_ *Postgres, f *pgFacts) {
			f.Held = []pgHolder{{"the prepared transaction x", 2 * time.Hour, "ROLLBACK PREPARED 'x';"}, {"pid 1", 10 * time.Minute, "…"}}
		}, []expectation{{Warning, codeHeld, "prepared transaction x", "ROLLBACK PREPARED"}, {Note, codeHeld, "pid 1", ""}}},
		{"a standby that cannot decode", func(_ *Postgres, f *pgFacts) { f.Recovery, f.Version = true, 150004 }, one(expectation{Error, codeStandby, "standby", "primary"})},
		{"a standby without feedback", func(_ *Postgres, f *pgFacts) { f.Recovery = true }, one(expectation{Warning, codeStandby, "hot_standby_feedback", "ALTER SYSTEM SET hot_standby_feedback = on;"})},
		{"a copy that nobody refreshes", func(_ *Postgres, f *pgFacts) {
			f.Recovery, f.Slot.Synced = true, true
			f.Settings["sync_replication_slots"], f.Settings["hot_standby_feedback"] = "off", "off"
		}, []expectation{{Error, codeStandby, "copy", "primary"}, {Warning, codeStandby, "sync_replication_slots is off", "ALTER SYSTEM SET sync_replication_slots = on;"},
			{Warning, codeStandby, "hot_standby_feedback", "ALTER SYSTEM SET hot_standby_feedback = on;"}}},
		{"a guard that is gone", func(o *Postgres, f *pgFacts) {
			o.FailoverSlot, f.Slot.Failover = true, true
			f.Settings["synchronized_standby_slots"] = "one, \"two\""
			f.Guards = []pgGuard{{"one", true}, {"two", false}}
		}, one(expectation{Error, codeStandby, "two", "ALTER SYSTEM SET synchronized_standby_slots"})},
		{"a guard that is there", func(o *Postgres, f *pgFacts) {
			o.FailoverSlot, f.Slot.Failover = true, true
			f.Settings["synchronized_standby_slots"] = "one"
			f.Guards = []pgGuard{{"one", true}}
		}, nil},
		{"a guard of no failover slot", func(o *Postgres, f *pgFacts) {
			f.Settings["synchronized_standby_slots"] = "one"
			f.Guards = []pgGuard{{"one", false}}
		}, nil},
		{"a synchronised slot", func(_ *Postgres, f *pgFacts) {
			f.Recovery, f.Slot.Synced, f.Settings["sync_replication_slots"], f.Settings["hot_standby_feedback"] = true, true, "on", "on"
		}, one(expectation{Error, codeStandby, "copy", "primary"})},
		{"failover before 17", func(o *Postgres, f *pgFacts) { o.FailoverSlot, f.Version = true, 160000 }, one(expectation{Error, codeStandby, "17", "failover_slot: false"})},
		{"failover is wanted", func(o *Postgres, _ *pgFacts) { o.FailoverSlot = true }, one(expectation{Warning, codeStandby, "no failover slot", "ALTER_REPLICATION_SLOT"})},
		{"failover without a guard", func(o *Postgres, f *pgFacts) { o.FailoverSlot, f.Slot.Failover = true, true }, one(expectation{Note, codeStandby, "synchronized_standby_slots", "ALTER SYSTEM"})},
		{"standbys", func(_ *Postgres, f *pgFacts) { f.Standbys = 1 }, one(expectation{Note, codeStandby, "no failover slot", "failover_slot: true"})},
		{"hidden", func(_ *Postgres, f *pgFacts) {
			f.Hidden = []hidden{{"x", "pg_read_all_stats", "GRANT pg_read_all_stats"}}
		}, one(expectation{Note, codeHidden, "may not see x", "GRANT"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, f := options(), healthyPostgres()
			c.given(&o, f)
			expect(t, judgePostgres(&o, f), c.want...)
		})
	}
}

func TestPostgresUnreachable(t *testing.T) {
	for name, c := range map[string]struct {
		said          pgRefusal
		found, repair string
	}{
		"a pooler":        {pgRefusal{State: "08P01", Text: "unsupported startup parameter: search_path"}, "pooler", "host and port"},
		"pg_hba":          {pgRefusal{State: "28000", Text: "no pg_hba.conf entry for host"}, "from here", "pg_reload_conf"},
		"a password":      {pgRefusal{State: "28P01", Text: "password authentication failed"}, "refuses the user", `ALTER ROLE "outtail"`},
		"no database":     {pgRefusal{State: "3D000", Text: ""}, "does not exist", "database"},
		"no connection":   {pgRefusal{State: "53300", Text: ""}, "no connection left", "max_connections"},
		"starting":        {pgRefusal{State: "57P03", Text: "starting"}, "starting up", "wait"},
		"TLS":             {pgRefusal{State: "", Text: "server refused TLS connection"}, "TLS", "tls.mode"},
		"nobody is there": {pgRefusal{State: "", Text: "connection refused"}, "cannot be reached", "pg_isready -h db -p 5432"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			expect(t, list{pgUnreachable(&o, &c.said)}, expectation{Error, codeReach, c.found, c.repair})
		})
	}
}

// Who looks while a server starts is told what a start would say, and how long that one would wait.
func TestWhatAStartMakesOfAServerThatIsNotThere(t *testing.T) {
	o := options()
	o.StartTimeout = 30 * time.Second
	starting := pgRefusal{State: "57P03", Text: "the database system is starting up", Fault: &event.Fault{Code: "OT2004", Class: event.Environment}}
	f := pgUnreachable(&o, &starting)
	require.Equal(t, Error, f.Severity)
	require.Contains(t, f.Why, "a start says OT2004, tries again for start_timeout (30s) and then ends with exit code 3")
	starting.Fault.Immediate = true
	require.Contains(t, pgUnreachable(&o, &starting).Why, "a start stops here (OT2004)")

	my := MySQL{StartTimeout: time.Minute}
	f = *my.unreachable(&event.Fault{Code: "OT3001", Class: event.Environment, Text: "the server cannot be reached", Hint: "check host and port"})
	require.Equal(t, "the server cannot be reached", f.Found)
	require.Contains(t, f.Why, "a start says OT3001, tries again for start_timeout (1m0s)")
}
