package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// examined is what `doctor --json` says.
type examined struct {
	Pipelines []struct {
		Pipeline string
		Parts    []struct {
			Part     string
			Findings []diagnosis
		}
	}
}

type diagnosis struct {
	Severity, Code, Found, Why, Repair string
}

// doctor runs `outtail doctor` and expects its exit code. Whatever it says, it never says a password.
func doctor(s *scene.Scene, exit int) (all []diagnosis) {
	s.T.Helper()
	r := s.Outtail.Run(s.T, "doctor", "-c", s.Outtail.Config, "--json")
	require.Equal(s.T, exit, r.Code, "%s%s", r.Stdout, r.Stderr)
	var e examined
	require.NoError(s.T, json.Unmarshal([]byte(r.Stdout), &e), r.Stdout)
	require.Len(s.T, e.Pipelines, 1)
	for _, p := range e.Pipelines[0].Parts {
		all = append(all, p.Findings...)
	}
	require.NotContains(s.T, r.Stdout+r.Stderr, "pw-", "no password")
	return all
}

// of gives what a check found that is more than a note.
func of(all []diagnosis, code string) (found []diagnosis) {
	for _, d := range all {
		if d.Code == code && d.Severity != "ok" && d.Severity != "note" {
			found = append(found, d)
		}
	}
	return found
}

// repaired runs doctor, expects a finding of the code, applies the statement that it prints, and sees it gone.
func repaired(s *scene.Scene, code string, exit int, says string, apply func(sql string)) {
	s.T.Helper()
	all := doctor(s, exit)
	found := of(all, code)
	require.Len(s.T, found, 1, "%s in %+v", code, all)
	require.Contains(s.T, found[0].Found+found[0].Why, says)
	require.NotEmpty(s.T, found[0].Why)
	sql, _, _ := strings.Cut(found[0].Repair, "\n")
	require.True(s.T, strings.HasSuffix(sql, ";"), "a statement to copy: %q", found[0].Repair)
	apply(sql)
	// Other breakages may be left; this one is gone.
	r := s.Outtail.Run(s.T, "doctor", "-c", s.Outtail.Config, "--json")
	var e examined
	require.NoError(s.T, json.Unmarshal([]byte(r.Stdout), &e), r.Stdout)
	for _, p := range e.Pipelines[0].Parts {
		require.Empty(s.T, of(p.Findings, code), "after %s", sql)
	}
}

// healthy expects nothing but notes, before the first start, beside a running process, and after it.
func healthy(s *scene.Scene) {
	s.T.Helper()
	doctor(s, 0)
	p := s.Start()
	s.Insert(2)
	s.Arrived(p)
	doctor(s, 0)
	s.Stop(p)
	all := doctor(s, 0)
	require.NotEmpty(s.T, all)
	out := s.Outtail.Run(s.T, "doctor", "-c", s.Outtail.Config)
	require.Equal(s.T, 0, out.Code)
	require.Contains(s.T, out.Stdout, "orders\n")
	require.Contains(s.T, out.Stdout, "stored position")
	require.NotContains(s.T, out.Stdout, "\x1b", "colour is for terminals")
	s.T.Log(out.Stdout)
}

// TestDoctorOnPostgres: nothing is wrong with a healthy server, each breakage is found with the statement that repairs it,
// and a server that is down is exit code 3.
func TestDoctorOnPostgres(t *testing.T) {
	pg := harness.StartPostgres(t, harness.NewestPostgres(), harness.PostgresOptions{Settings: map[string]string{"wal_level": "", "fsync": "", "max_wal_senders": ""}})
	pg.Exec(t, "postgres", "ALTER SYSTEM SET wal_level = 'logical'")
	pg.Restart(t)
	db := shop.NewPostgres(t, pg, nil)
	s := scene.New(t, &servers, db)
	user := db.User()
	sql := func(q string) { pg.Exec(t, db.DB, q) }
	t.Run("a publication that the user may not create", func(t *testing.T) {
		sql("DROP PUBLICATION outtail_orders")
		s.Stops(3, "OT2011")
		sql("GRANT CREATE ON DATABASE " + db.DB + " TO " + user) // and not the owner
		repaired(s, "OT8025", 3, "does not own public.outbox", sql)
	})
	healthy(s)

	t.Run("a table left the publication", func(t *testing.T) {
		sql("ALTER PUBLICATION outtail_orders DROP TABLE outbox")
		repaired(s, "OT8025", 3, "does not contain", sql)
		// What was inserted meanwhile is in no log: a start would stop, and doctor says so before.
		found := of(doctor(s, 3), "OT8029")
		require.Len(t, found, 1)
		require.Contains(t, found[0].Found, "left the publication or was added again")
		require.Contains(t, found[0].Why, "OT2038")
		require.Contains(t, found[0].Repair, "outtail checkpoint accept -c "+s.Outtail.Config+" --pipeline orders --code OT2038")
		s.Accept("OT2038")
		doctor(s, 0)
	})
	for _, c := range []struct {
		name, broken, code, says string
		exit                     int
	}{
		{"the role lost REPLICATION", "ALTER ROLE " + user + " NOREPLICATION", "OT8021", "replication", 3},
		{"the password expires", "ALTER ROLE " + user + " VALID UNTIL '" + time.Now().Add(50*time.Hour).UTC().Format(time.RFC3339) + "'", "OT8021", "expires in", 1},
		{"the role has few connections", "ALTER ROLE " + user + " CONNECTION LIMIT 3", "OT8021", "3 connections", 1},
		{"the role lost SELECT", "REVOKE SELECT ON outbox FROM " + user, "OT8007", "select", 1},
		{"the publication publishes nothing", "ALTER PUBLICATION outtail_orders SET (publish = 'update')", "OT8025", "inserts", 3},
		{"updates cannot be told", "ALTER PUBLICATION outtail_orders SET (publish = 'insert, update'); ALTER TABLE outbox REPLICA IDENTITY NOTHING", "OT8026", "primary key", 1},
		{"the table became unlogged", "DROP PUBLICATION outtail_orders; ALTER TABLE outbox SET UNLOGGED", "OT8005", "unlogged", 3},
		{"the publication is gone", "SELECT 1", "OT8025", "does not exist", 3},
		{"the slot may keep little", "ALTER SYSTEM SET max_slot_wal_keep_size = '64MB'; SELECT pg_reload_conf()", "OT8023", "64 MiB", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for q := range strings.SplitSeq(c.broken, "; ") {
				sql(q)
			}
			repaired(s, c.code, c.exit, c.says, func(fix string) {
				for q := range strings.SplitSeq(strings.TrimSuffix(fix, ";"), "; ") {
					sql(q)
				}
			})
		})
	}
	t.Run("the slot was recreated", func(t *testing.T) {
		sql(fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", db.Slot()))
		require.Len(t, of(doctor(s, 3), "OT8028"), 1)
		sql(fmt.Sprintf("SELECT pg_create_logical_replication_slot('%s', 'pgoutput')", db.Slot()))
		found := of(doctor(s, 3), "OT8029")
		require.Len(t, found, 1)
		command, _, _ := strings.Cut(found[0].Repair, " --reason R")
		require.Equal(t, "outtail checkpoint set -c "+s.Outtail.Config+" --pipeline orders --to slot", command, "complete, to be copied")
		require.Equal(t, 0, s.Set("slot").Code)
		doctor(s, 0)
	})
	t.Run("wal_level", func(t *testing.T) {
		pg.Exec(t, "postgres", fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", db.Slot()), "ALTER SYSTEM SET wal_level = 'replica'")
		pg.Restart(t)
		repaired(s, "OT8020", 3, "wal_level is replica", func(fix string) {
			pg.Exec(t, "postgres", fix)
			pg.Restart(t)
		})
	})
	t.Run("a server that is down", func(t *testing.T) {
		pg.Stop(t)
		require.Len(t, of(doctor(s, 3), "OT8001"), 1)
		pg.Start(t)
	})
}

// TestDoctorOnMySQL: as for Postgres.
func TestDoctorOnMySQL(t *testing.T) {
	my := harness.StartMySQL(t, harness.MySQLOptions{})
	db := shop.NewMySQL(t, my, "mysql", nil)
	s := scene.New(t, &servers, db)
	healthy(s)

	user := my.Scalar(t, "", "SELECT MAX(user) FROM mysql.user WHERE user LIKE 'u\\_%'")
	sql := func(q string) { my.Exec(t, db.DB, q) }
	for _, c := range []struct {
		name, broken, code, says string
		exit                     int
	}{
		{"statements in the log", "SET GLOBAL binlog_format = 'MIXED'", "OT8041", "MIXED", 3},
		{"columns missing in the log", "SET GLOBAL binlog_row_image = 'MINIMAL'", "OT8041", "MINIMAL", 3},
		{"the log is kept for an hour", "SET GLOBAL binlog_expire_logs_seconds = 3600", "OT8043", "1h", 1},
		{"no dump privilege", "REVOKE REPLICATION SLAVE ON *.* FROM '" + user + "'@'%'", "OT8046", "REPLICATION SLAVE", 3},
		{"no privilege to ask for the log's end", "REVOKE REPLICATION CLIENT ON *.* FROM '" + user + "'@'%'", "OT8046", "REPLICATION CLIENT", 3},
		{"the table knows no transactions", "ALTER TABLE outbox ENGINE = MyISAM", "OT8005", "MyISAM", 1},
		{"no SELECT", "REVOKE SELECT ON `" + db.DB + "`.* FROM '" + user + "'@'%'", "OT8007", "select", 3},
		{"a mapped column is gone", "ALTER TABLE outbox RENAME COLUMN headers TO extra", "OT8006", "headers", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			sql(c.broken)
			repaired(s, c.code, c.exit, c.says, sql)
		})
	}
	t.Run("a trigger writes while statements are logged", func(t *testing.T) {
		sql("CREATE TABLE purchases (id CHAR(36)); CREATE TRIGGER after_order AFTER INSERT ON purchases FOR EACH ROW INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type) VALUES (NEW.id, 'order', NEW.id, 'order.changed')")
		sql("CREATE VIEW events AS SELECT * FROM outbox; GRANT SELECT, TRIGGER, SHOW VIEW ON `" + db.DB + "`.* TO '" + user + "'@'%'")
		require.Empty(t, of(doctor(s, 0), "OT8057"), "rows are logged")
		sql("SET GLOBAL binlog_format = 'STATEMENT'")
		found := of(doctor(s, 3), "OT8057")
		require.Len(t, found, 2)
		says := found[0].Found + found[1].Found
		require.Contains(t, says, "the trigger "+db.DB+".after_order")
		require.Contains(t, says, "the view "+db.DB+".events")
		repair, _, _ := strings.Cut(found[0].Repair, "\n")
		sql(repair)
		require.Empty(t, of(doctor(s, 0), "OT8057"))
		sql("DROP TABLE purchases; DROP VIEW events")
	})
	t.Run("what is needed was purged", func(t *testing.T) {
		s.InsertUnseen(1, "order.changed")
		sql("FLUSH BINARY LOGS")
		s.InsertUnseen(1, "order.changed")
		sql("FLUSH BINARY LOGS; PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
		found := of(doctor(s, 3), "OT8044")
		require.Len(t, found, 1)
		require.Contains(t, found[0].Found, "purged")
		require.Equal(t, 0, s.Set("now").Code)
		doctor(s, 0)
	})
	t.Run("the log was reset, and grew again under the same file name", func(t *testing.T) {
		doctorKnowsTheLogIsAnother(s, sql)
	})
	t.Run("the state file is gone, and the pipeline ran before", func(t *testing.T) {
		state := filepath.Join(s.Outtail.DataDir, "outtail.db")
		require.NoError(t, os.Rename(state, state+".away"))
		found := of(doctor(s, 3), "OT8003")
		require.Len(t, found, 1)
		require.Contains(t, found[0].Why, "OT0004")
		require.NoError(t, os.Rename(state+".away", state))
		doctor(s, 0)
	})
	t.Run("a topic is missing", func(t *testing.T) {
		s.Configure("Topic", "missing-"+harness.Unique())
		found := of(doctor(s, 1), "OT8081")
		require.Len(t, found, 1)
		require.Contains(t, found[0].Repair, "kafka-topics.sh")
	})
	t.Run("a server that is down", func(t *testing.T) {
		my.Stop(t)
		require.Len(t, of(doctor(s, 3), "OT8001"), 1)
		my.Start(t)
	})
}

// doctorKnowsTheLogIsAnother: a file of the stored name and more than the stored length is not the one that was read.
func doctorKnowsTheLogIsAnother(s *scene.Scene, sql func(string)) {
	s.T.Helper()
	p := s.Start()
	s.Insert(1)
	s.Arrived(p)
	s.Stop(p)
	stored := s.Stored().Source
	// A file is known by the second in which it was begun.
	sql("DO SLEEP(1.1)")
	reset := "RESET BINARY LOGS AND GTIDS"
	if s.DB.Kind() == "mariadb" {
		reset = "RESET MASTER"
	}
	sql(reset)
	for range fileNumber(s.T, stored.File) - 1 {
		sql("FLUSH BINARY LOGS")
	}
	for range 30 {
		s.InsertUnseen(100, "order.changed")
	}
	found := of(doctor(s, 3), "OT8044")
	require.Len(s.T, found, 1)
	require.Contains(s.T, found[0].Repair, "outtail checkpoint set -c "+s.Outtail.Config+" --pipeline orders --to earliest --reason R   (all that")
	require.Equal(s.T, 0, s.Set("now").Code)
	doctor(s, 0)
}

func fileNumber(t *testing.T, name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
	require.NoError(t, err)
	return n
}

// TestDoctorOnMariaDB: as for MySQL, in MariaDB's words.
func TestDoctorOnMariaDB(t *testing.T) {
	my := harness.StartMySQL(t, harness.MySQLOptions{MariaDB: true})
	db := shop.NewMySQL(t, my, "mariadb", nil)
	s := scene.New(t, &servers, db)
	healthy(s)
	user := my.Scalar(t, "", "SELECT MAX(user) FROM mysql.user WHERE user LIKE 'u\\_%'")
	sql := func(q string) { my.Exec(t, db.DB, q) }
	for _, c := range []struct {
		name, broken, code, says string
		exit                     int
	}{
		{"statements in the log", "SET GLOBAL binlog_format = 'MIXED'", "OT8041", "MIXED", 3},
		{"columns missing in the log", "SET GLOBAL binlog_row_image = 'MINIMAL'", "OT8041", "MINIMAL", 3},
		{"the log is kept for an hour", "SET GLOBAL binlog_expire_logs_seconds = 3600", "OT8043", "1h", 1},
		{"no dump privilege", "REVOKE REPLICATION SLAVE ON *.* FROM '" + user + "'@'%'", "OT8046", "REPLICATION SLAVE", 3},
		{"no privilege to ask for the log's end", "REVOKE BINLOG MONITOR ON *.* FROM '" + user + "'@'%'", "OT8046", "BINLOG MONITOR", 3},
		{"the table knows no transactions", "ALTER TABLE outbox ENGINE = MyISAM", "OT8005", "MyISAM", 1},
		{"a mapped column is gone", "ALTER TABLE outbox RENAME COLUMN headers TO extra", "OT8006", "headers", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			sql(c.broken)
			repaired(s, c.code, c.exit, c.says, sql)
		})
	}
	t.Run("a table that is versioned by transaction", func(t *testing.T) {
		sql("ALTER TABLE outbox ADD COLUMN since BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, ADD COLUMN until BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, ADD PERIOD FOR SYSTEM_TIME (since, until), ADD SYSTEM VERSIONING")
		found := of(doctor(s, 3), "OT8005")
		require.Len(t, found, 1)
		require.Contains(t, found[0].Why, "OT3006")
		repair, _, _ := strings.Cut(found[0].Repair, "\n(")
		sql(repair)
		all := doctor(s, 1)
		require.Empty(t, of(all, "OT8005"))
		require.Len(t, of(all, "OT8056"), 1, "two changes of which nobody can say what they did")
	})
	t.Run("the log was reset, and grew again under the same file name", func(t *testing.T) { doctorKnowsTheLogIsAnother(s, sql) })
}

// TestDoctorSpeaksTo: the questions are understood by the other servers too. A shared server writes without fsync, for
// speed; that, and nothing else, is a warning.
func TestDoctorSpeaksTo(t *testing.T) {
	for name, db := range map[string]func(t *testing.T) shop.Database{
		"postgres": func(t *testing.T) shop.Database {
			return shop.NewPostgres(t, servers.Postgres(t, harness.OldestPostgres()), nil)
		},
		"mariadb": func(t *testing.T) shop.Database {
			return shop.NewMySQL(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true}), "mariadb", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene.New(t, &servers, db(t))
			exit := 0
			if s.DB.Kind() == "postgres" {
				exit = 1
			}
			for _, d := range doctor(s, exit) {
				require.True(t, d.Severity == "ok" || d.Severity == "note" || d.Code == "OT8009", "%+v", d)
			}
		})
	}
}
