package doctor

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func myOptions() MySQL {
	return MySQL{
		Kind: event.MySQL, Host: "db", Port: 3306, User: "outtail", Database: "shop", Tables: []string{"outbox"}, ReplicaID: 4000000000, ReplicaUUID: "ours", Start: "now",
		RowLimit: 16 << 20, Now: func() time.Time { return noon },
		Columns: columns(map[event.Role]string{event.ID: "id", event.Payload: "payload", event.OccurredAt: "occurred_at"}),
	}
}

// healthyMySQL is a server with which nothing is wrong.
func healthyMySQL() *myFacts {
	return &myFacts{
		Version: "9.7.0", User: "outtail@%",
		Vars: map[string]string{
			"log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_value_options": "", "binlog_row_metadata": "FULL", "gtid_mode": "ON", "server_id": "1",
			"server_uuid": "aaa", "binlog_expire_logs_seconds": "2592000", "binlog_expire_logs_auto_purge": "ON", "sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1",
			"net_write_timeout": "60", "max_allowed_packet": "67108864", "log_replica_updates": "ON",
		},
		Files: []myFile{{"binlog.000001", 1000}, {"binlog.000002", 500}}, EndFile: "binlog.000002", EndPos: 500,
		Stored: event.Checkpoint{SavedAt: noon.Add(-time.Hour), Position: event.Position{Kind: event.MySQL, ServerUUID: "aaa", GTID: "aaa:1-5", File: "binlog.000001", Pos: 900}},
		Tables: []myTable{{Name: sqlName{"shop", "outbox"}, Exists: true, Engine: "InnoDB", Columns: map[string]myColumn{
			"id": {Type: "char(36)", Data: "char", Charset: "utf8mb4"}, "payload": {Type: "json", Data: "json"}, "occurred_at": {Type: "timestamp(6)", Data: "timestamp"},
		}}},
	}
}

func TestJudgeMySQL(t *testing.T) {
	set := func(name, value string) func(*MySQL, *myFacts) {
		return func(_ *MySQL, f *myFacts) { f.Vars[name] = value }
	}
	one := func(e expectation) []expectation { return []expectation{e} }
	byFile := func(f *myFacts) { f.Stored.Position.GTID, f.Vars["gtid_mode"] = "", "OFF" }
	noGTID := expectation{Note, codeGTID, "OFF", "gtid_mode = ON"}
	for _, c := range []struct {
		name  string
		given func(*MySQL, *myFacts)
		want  []expectation
	}{
		{"healthy", func(*MySQL, *myFacts) {}, nil},
		{"the other flavour", func(_ *MySQL, f *myFacts) { f.Maria = true }, one(expectation{Error, codeFlavour, "mariadb", "source: mariadb:"})},
		{"binlog_format", set("binlog_format", "MIXED"), one(expectation{Error, codeFormat, "MIXED", "SET PERSIST binlog_format = 'ROW';"})},
		{"binlog_row_image", set("binlog_row_image", "MINIMAL"), one(expectation{Error, codeFormat, "MINIMAL", "SET PERSIST binlog_row_image = 'FULL';"})},
		{"partial JSON", set("binlog_row_value_options", "PARTIAL_JSON"), one(expectation{Note, codeFormat, "PARTIAL_JSON", ""})},
		{"binlog_row_metadata", set("binlog_row_metadata", "MINIMAL"), one(expectation{Note, codeMetadata, "FULL is recommended", "SET PERSIST binlog_row_metadata = 'FULL';"})},
		{"compressed", set("binlog_transaction_compression", "ON"), nil},
		{"another schema is logged only", func(_ *MySQL, f *myFacts) { f.DoDB = "a,b" }, one(expectation{Error, codeLogged, "shop is not in the log", "binlog_do_db"})},
		{"the schema is logged", func(_ *MySQL, f *myFacts) { f.DoDB = "a, shop" }, nil},
		{"the schema is left out", func(_ *MySQL, f *myFacts) { f.IgnoreDB = "shop" }, one(expectation{Error, codeLogged, "shop is not in the log", "binlog_ignore_db"})},
		{"gtid_mode", set("gtid_mode", "OFF"), one(noGTID)},
		{"privileges", func(_ *MySQL, f *myFacts) { f.Missing = []string{"REPLICATION SLAVE", "REPLICATION CLIENT"} }, []expectation{
			{Error, codePrivileges, "REPLICATION SLAVE", "GRANT REPLICATION SLAVE ON *.* TO 'outtail'@'%';"},
			{Error, codePrivileges, "REPLICATION CLIENT", "GRANT REPLICATION CLIENT ON *.* TO 'outtail'@'%';"},
		}},
		{"server_id 0", set("server_id", "0"), one(expectation{Error, codeServerID, "is 0", "SET PERSIST server_id = 1;"})},
		{"our server_id is the server's", set("server_id", "4000000000"), one(expectation{Error, codeServerID, "the server's own", "server_id: 3999999999"})},
		{"our server_id is another replica's", func(_ *MySQL, f *myFacts) { f.Replicas = []myReplica{{4000000000, "theirs", "h"}} }, one(expectation{Error, codeServerID, "another replica", "server_id: 3999999999"})},
		{"we stream", func(_ *MySQL, f *myFacts) { f.Replicas = []myReplica{{4000000000, "ours", "h"}, {2, "theirs", "h"}} }, nil},
		{"no SELECT", func(_ *MySQL, f *myFacts) { f.Tables[0].Denied = true }, one(expectation{Error, codeSelect, "may not select", "GRANT SELECT ON `shop`.`outbox` TO 'outtail'@'%';"})},
		{"no table", func(_ *MySQL, f *myFacts) { f.Tables[0].Exists = false }, one(expectation{Error, codeTables, "does not exist", "outtail init --source mysql"})},
		{"a view", func(_ *MySQL, f *myFacts) { f.Tables[0].View = true }, one(expectation{Error, codeTables, "is a view", "table behind it"})},
		{"MyISAM", func(_ *MySQL, f *myFacts) { f.Tables[0].Engine = "MyISAM" }, one(expectation{Warning, codeTables, "no transactions", "ENGINE = InnoDB;"})},
		{"triggers", func(_ *MySQL, f *myFacts) { f.Tables[0].Triggers = []string{"audit"} }, one(expectation{Note, codeTriggers, "audit", ""})},
		{"no column", func(_ *MySQL, f *myFacts) { delete(f.Tables[0].Columns, "payload") }, one(expectation{Error, codeColumns, "payload", "ADD COLUMN `payload`"})},
		{"names of columns know no case", func(o *MySQL, _ *myFacts) { o.Columns[event.Payload].Column = "PayLoad" }, nil},
		{"a virtual column", func(_ *MySQL, f *myFacts) {
			f.Tables[0].Columns["payload"] = myColumn{Type: "json", Data: "json", Generated: true}
		}, one(expectation{Error, codeColumns, "virtual", "STORED"})},
		{"a binary id", func(_ *MySQL, f *myFacts) { f.Tables[0].Columns["id"] = myColumn{Type: "binary(16)", Data: "binary"} }, one(expectation{Note, codeColumns, "binary(16)", "as: uuid"})},
		{"a binary id that is shown as UUID", func(o *MySQL, f *myFacts) {
			f.Tables[0].Columns["id"] = myColumn{Type: "binary(16)", Data: "binary"}
			o.Columns[event.ID].As = event.UUID
		}, nil},
		{"latin1", func(_ *MySQL, f *myFacts) {
			f.Tables[0].Columns["id"] = myColumn{Type: "char(36)", Data: "char", Charset: "latin1"}
		}, one(expectation{Note, codeColumns, "latin1", ""})},
		{"an unknown character set", func(_ *MySQL, f *myFacts) {
			f.Tables[0].Columns["id"] = myColumn{Type: "char(36)", Data: "char", Charset: "hp8"}
		}, one(expectation{Error, codeColumns, "hp8", "CHARACTER SET utf8mb4;"})},
		{"DATETIME", func(_ *MySQL, f *myFacts) {
			f.Tables[0].Columns["occurred_at"] = myColumn{Type: "datetime", Data: "datetime"}
		}, one(expectation{Note, codeColumns, "no time zone", ""})},
		{"no time at all", func(_ *MySQL, f *myFacts) {
			f.Tables[0].Columns["occurred_at"] = myColumn{Type: "int", Data: "int"}
		}, one(expectation{Warning, codeColumns, "of type int", ""})},
		{"kept for an hour", set("binlog_expire_logs_seconds", "3600"), []expectation{
			{Warning, codeExpiry, "1h", "SET PERSIST binlog_expire_logs_seconds"}, {Warning, codeNeeded, "at any moment", "start outtail"},
		}},
		{"kept for two days", set("binlog_expire_logs_seconds", "172800"), one(expectation{Note, codeExpiry, "2 days", "SET PERSIST"})},
		{"kept for ever", set("binlog_expire_logs_auto_purge", "OFF"), nil},
		{"bounded in size", set("max_binlog_total_size", "1073741824"), one(expectation{Note, codeExpiry, "1 GiB", "max_binlog_total_size"})},
		{"a start would stop", func(_ *MySQL, f *myFacts) {
			f.Resume = &event.Fault{Code: "OT3022", Class: event.Safety, Text: "the server has purged aaa:6", Hint: "choose one"}
		}, one(expectation{Error, codeNeeded, "purged aaa:6", "choose one"})},
		{"it could not be asked", func(_ *MySQL, f *myFacts) { f.Resume = errors.New("connection reset") }, one(expectation{Warning, codeNeeded, "connection reset", ""})},
		{"the position is lost", func(_ *MySQL, f *myFacts) {
			f.Stored, f.StoredErr = event.Checkpoint{}, &event.Fault{Code: "OT0004", Class: event.Safety, Text: "it ran before", Hint: "bring back outtail.db"}
		}, one(expectation{Error, codeStored, "ran before", "bring back"})},
		{"an id that may be NULL", func(_ *MySQL, f *myFacts) {
			f.Tables[0].Columns["id"] = myColumn{Type: "char(36)", Data: "char", Charset: "utf8mb4", Nullable: true}
		}, one(expectation{Warning, codeColumns, "may be NULL", "NOT NULL;"})},
		{"no such table, to narrow eyes", func(_ *MySQL, f *myFacts) {
			f.Tables[0] = myTable{Name: f.Tables[0].Name, Denied: true, Similar: []string{"shop.Outbox"}}
		}, one(expectation{Error, codeSelect, "may not select", "or correct tables: in the configuration, if there is no such table (there is shop.Outbox)"})},
		{"a replica that halted", func(_ *MySQL, f *myFacts) {
			f.ReplicaOf, f.Halted, f.Vars["log_replica_updates"] = "primary", "REPLICA_SQL_RUNNING is No", "ON"
		}, one(expectation{Warning, codeReplica, "SQL_RUNNING is No", "SHOW REPLICA STATUS"})},
		{"soon purged", func(_ *MySQL, f *myFacts) { f.Stored.SavedAt = noon.Add(-29 * 24 * time.Hour) }, one(expectation{Warning, codeNeeded, "about 24h0m are left", "binlog_expire_logs_seconds"})},
		{"old, and in the newest file", func(_ *MySQL, f *myFacts) {
			f.Stored.SavedAt, f.Stored.Position.File = noon.Add(-60*24*time.Hour), "binlog.000002"
		}, nil},
		{"what only a start knows", func(_ *MySQL, f *myFacts) {
			f.Refusal = &event.Fault{Code: "OT3006", Class: event.Environment, Text: "it is versioned by transaction", Hint: "ALTER TABLE"}
		}, one(expectation{Error, codeTables, "versioned by transaction", "ALTER TABLE"})},
		{"what a start says too", func(_ *MySQL, f *myFacts) {
			f.Refusal = &event.Fault{Code: "OT3006", Class: event.Environment, Text: "binlog_format is MIXED", Hint: "SET"}
			f.Vars["binlog_format"] = "MIXED"
		}, one(expectation{Error, codeFormat, "MIXED", ""})},
		{"columns changed in ways that can be followed", func(_ *MySQL, f *myFacts) {
			f.Changes = []ColumnsChange{{Table: "shop.outbox", Changes: 2, First: "binlog.000001:950"}}
		}, nil},
		{"columns changed, and nobody knows how", func(_ *MySQL, f *myFacts) {
			f.Vars["binlog_row_metadata"] = "MINIMAL"
			f.Changes = []ColumnsChange{{Table: "shop.outbox", Changes: 2, First: "binlog.000001:950", Stored: "id int", Now: "id int, kind enum('a')", Unproved: "it is not understood"}}
		}, []expectation{
			{Note, codeMetadata, "FULL is recommended", ""},
			{Warning, codeChanges, "changed 2 times", `outtail schema accept -c FILE --pipeline P --table shop.outbox --at binlog.000001:950 --columns 'id int, kind enum('\''a'\'')' --reason R`},
		}},
		{"columns changed behind the log's back", func(_ *MySQL, f *myFacts) {
			f.Vars["binlog_row_metadata"] = "MINIMAL"
			f.Changes = []ColumnsChange{{Table: "shop.outbox", Stored: "id int", Now: "id bigint", Unproved: "the log does not show it"}}
		}, []expectation{{Note, codeMetadata, "FULL is recommended", ""}, {Warning, codeChanges, "sql_log_bin", "--at binlog.000001:900 --columns 'id bigint'"}}},
		{"columns changed, which the log names", func(_ *MySQL, f *myFacts) {
			f.Changes = []ColumnsChange{{Table: "shop.outbox", Changes: 2, First: "binlog.000001:950", Unproved: "it is not understood"}}
		}, one(expectation{Note, codeChanges, "only known where the log names them", ""})},
		{"columns changed far away", func(_ *MySQL, f *myFacts) { f.Changes = []ColumnsChange{{Table: "shop.outbox", Changes: -1}} }, one(expectation{Note, codeChanges, "could not be followed", ""})},
		{"changes could not be asked", func(_ *MySQL, f *myFacts) { f.ChangeErr = errors.New("connection reset") }, one(expectation{Warning, codeChanges, "connection reset", ""})},
		{"a trigger that writes while statements are logged", func(_ *MySQL, f *myFacts) {
			f.Vars["binlog_format"], f.Writers = "MIXED", []string{"trigger shop.after_order (into shop.outbox)"}
		}, []expectation{{Error, codeFormat, "MIXED", ""}, {Error, codeWriters, "the trigger shop.after_order (into shop.outbox) inserts", "SET PERSIST binlog_format = 'ROW';"}}},
		{"what writes could not be asked", func(_ *MySQL, f *myFacts) {
			f.Vars["binlog_format"], f.WriterErr = "MIXED", errors.New("connection reset")
		}, []expectation{{Error, codeFormat, "MIXED", ""}, {Warning, codeWriters, "connection reset", "binlog_format = 'ROW'"}}},
		{"another server, by GTID", set("server_uuid", "bbb"), one(expectation{Note, codeNeeded, "another one", ""})},
		{"by file", func(_ *MySQL, f *myFacts) { byFile(f) }, one(noGTID)},
		{"nothing stored", func(_ *MySQL, f *myFacts) { f.Stored = event.Checkpoint{} }, nil},
		{"nothing stored, no start", func(o *MySQL, f *myFacts) { f.Stored, o.Start = event.Checkpoint{}, "" }, one(expectation{Error, codeNeeded, "start is not given", "start: now"})},
		{"a replica", func(_ *MySQL, f *myFacts) { f.ReplicaOf = "primary" }, one(expectation{Note, codeReplica, "replica of primary", ""})},
		{"a replica that logs nothing", func(_ *MySQL, f *myFacts) { f.ReplicaOf, f.Vars["log_replica_updates"] = "primary", "OFF" }, one(expectation{Error, codeReplica, "log_replica_updates is OFF", "log_replica_updates = ON"})},
		{"durability", set("sync_binlog", "0"), one(expectation{Note, codeDurable, "sync_binlog is 0", "SET PERSIST sync_binlog = 1;"})},
		{"durability of both", func(_ *MySQL, f *myFacts) {
			f.Vars["sync_binlog"], f.Vars["innodb_flush_log_at_trx_commit"] = "0", "2"
		}, one(expectation{Note, codeDurable, "sync_binlog is 0, innodb_flush_log_at_trx_commit is 2", "SET PERSIST sync_binlog = 1;\nSET PERSIST innodb_flush_log_at_trx_commit = 1;"})},
		{"XA", func(_ *MySQL, f *myFacts) { f.XA = 2 }, one(expectation{Note, codeXA, "2 XA", "XA RECOVER"})},
		{"hidden", func(_ *MySQL, f *myFacts) { f.Hidden = []hidden{{"x", "XA_RECOVER_ADMIN", "GRANT XA_RECOVER_ADMIN"}} }, one(expectation{Note, codeHidden, "may not see x", "GRANT"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, f := myOptions(), healthyMySQL()
			c.given(&o, f)
			expect(t, judgeMySQL(&o, f), c.want...)
		})
	}
}

func TestWhatIsDurableAlreadyIsNotRepaired(t *testing.T) {
	for loose, fine := range map[string]string{"sync_binlog": "innodb_flush_log_at_trx_commit", "innodb_flush_log_at_trx_commit": "sync_binlog"} {
		o, f := myOptions(), healthyMySQL()
		f.Vars[loose] = "0"
		for _, found := range judgeMySQL(&o, f) {
			if found.Code == codeDurable {
				require.Equal(t, loose+" is 0", found.Found)
				require.NotContains(t, found.Repair, fine)
			}
		}
	}
}

func TestJudgeMySQLWithoutLog(t *testing.T) {
	o, f := myOptions(), healthyMySQL()
	f.Vars["log_bin"], f.Files, f.EndFile, f.Stored = "OFF", nil, "", event.Checkpoint{}
	expect(t, judgeMySQL(&o, f), expectation{Error, codeLogBin, "no binary log", "restart"})
}

func TestJudgeMariaDB(t *testing.T) {
	maria := func() (MySQL, *myFacts) {
		o, f := myOptions(), healthyMySQL()
		o.Kind, f.Maria, f.Version = event.MariaDB, true, "10.11.6-MariaDB"
		delete(f.Vars, "gtid_mode")
		delete(f.Vars, "server_uuid")
		delete(f.Vars, "log_replica_updates")
		delete(f.Vars, "binlog_expire_logs_auto_purge")
		f.Vars["log_slave_updates"] = "OFF"
		f.Stored.Position.Kind, f.Stored.Position.ServerUUID, f.Stored.Position.GTID = event.MariaDB, "", "0-1-5"
		return o, f
	}
	t.Run("healthy", func(t *testing.T) {
		o, f := maria()
		expect(t, judgeMySQL(&o, f))
	})
	t.Run("its words", func(t *testing.T) {
		o, f := maria()
		f.Vars["binlog_row_metadata"], f.ReplicaOf, f.Missing = "NO_LOG", "primary", []string{"BINLOG MONITOR"}
		expect(t, judgeMySQL(&o, f),
			expectation{Note, codeMetadata, "NO_LOG", "SET GLOBAL binlog_row_metadata = 'FULL';"},
			expectation{Error, codeReplica, "log_slave_updates is OFF", "log_slave_updates = ON"},
			expectation{Error, codePrivileges, "BINLOG MONITOR", "GRANT BINLOG MONITOR"})
	})
	t.Run("days", func(t *testing.T) {
		o, f := maria()
		delete(f.Vars, "binlog_expire_logs_seconds")
		f.Vars["expire_logs_days"] = "0.5"
		require.Equal(t, 12*time.Hour, f.retention())
		expect(t, judgeMySQL(&o, f), expectation{Warning, codeExpiry, "12h", "SET GLOBAL expire_logs_days = 7;"})
	})
}

func TestAccount(t *testing.T) {
	for user, want := range map[string]string{"outtail@%": "'outtail'@'%'", "o'x@10.0.0.1": "'o''x'@'10.0.0.1'", "a@b@host": "'a@b'@'host'"} {
		require.Equal(t, want, (&myFacts{User: user}).account())
	}
}
