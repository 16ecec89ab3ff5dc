package cases

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// requireRightValues compares what arrived with what scene.InsertEvent wrote: a value under another column's name would show.
func requireRightValues(t *testing.T, s *scene.Scene) {
	t.Helper()
	for _, r := range s.Seen {
		require.Equal(t, "order-1", string(r.Key))
		require.Equal(t, "order", scene.Header(r, "aggregate_type"))
		require.Equal(t, "order.changed", scene.Header(r, "event_type"))
		require.JSONEq(t, `{"id": "`+scene.Header(r, "id")+`"}`, string(r.Value))
	}
}

// whileDown stops outtail, changes the table with inserts between, and sees all of it arrive.
func whileDown(t *testing.T, s *scene.Scene, statements ...string) {
	t.Helper()
	s.Insert(2)
	for _, q := range statements {
		s.DB.Exec(t, q)
		s.Insert(2)
	}
	s.Prove()
	requireRightValues(t, s)
}

func TestB103ColumnsThatChangedPlacesWhileOuttailWasDownAreNotMixedUp(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		s.Prove()
		whileDown(t, s, "ALTER TABLE outbox MODIFY event_type VARCHAR(255) NOT NULL AFTER id",
			"ALTER TABLE outbox MODIFY aggregate_type VARCHAR(255) NOT NULL AFTER occurred_at",
			"ALTER TABLE outbox MODIFY event_type VARCHAR(255) NOT NULL AFTER aggregate_id")
	})
}

func TestB104ColumnsThatCameAndWentWhileOuttailWasDownCostNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		s.Prove()
		whileDown(t, s)
		whileDown(t, s, "ALTER TABLE outbox ADD COLUMN trace_id VARCHAR(255) NOT NULL DEFAULT 'wrong' FIRST")
		whileDown(t, s, "ALTER TABLE outbox ADD COLUMN other VARCHAR(255) NOT NULL DEFAULT 'wrong' AFTER id", "ALTER TABLE outbox DROP COLUMN trace_id",
			"ALTER TABLE outbox ADD COLUMN last INT, DROP COLUMN other")

		// A column that the configuration reads is another thing: it is missed before anything is read.
		s.Insert(1)
		db.Exec(t, "ALTER TABLE outbox DROP COLUMN headers")
		s.Insert(1)
		s.Stops(3, "OT3010", "has no column headers")
		s.Configure("Columns", "{ id: id, aggregate_type: aggregate_type, aggregate_id: aggregate_id, event_type: event_type, payload: payload }")
		s.Prove()
		requireRightValues(t, s)
	})
}

func TestB104ChangesWhileOuttailRuns(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		p := s.Start()
		s.Insert(1)
		for _, q := range []string{
			"ALTER TABLE outbox ADD COLUMN a VARCHAR(255) NOT NULL DEFAULT 'wrong' FIRST", "ALTER TABLE outbox DROP COLUMN a",
			"ALTER TABLE outbox MODIFY event_type VARCHAR(255) NOT NULL AFTER id", "TRUNCATE TABLE outbox", "ALTER TABLE outbox ADD INDEX i (event_type), COMMENT 'DROP COLUMN id'",
			"CREATE TABLE copy_of_outbox LIKE outbox; DROP TABLE copy_of_outbox; CREATE TABLE IF NOT EXISTS outbox (id INT)",
		} {
			db.Exec(t, q)
			s.Insert(1)
		}
		s.Arrived(p)
		requireRightValues(t, s)
		s.Stop(p)
	})
}

func TestB109LabelsThatWereInsertedInFrontDoNotShiftTheOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		db.Exec(t, "ALTER TABLE outbox MODIFY event_type ENUM('order.created','order.changed') NOT NULL")
		s.Prove()
		whileDown(t, s, "ALTER TABLE outbox MODIFY event_type ENUM('order.created','order.authorised','order.changed') NOT NULL",
			"ALTER TABLE outbox MODIFY event_type ENUM('a','b','order.authorised','order.created','order.changed') NOT NULL")
	})
}

var printedVouch = regexp.MustCompile(`outtail (schema accept) -c (\S+) --pipeline orders --table (\S+) --at (\S+) --columns '((?:[^']|'\\'')+)' --reason R`)

// TestB103WhatCannotBeProvedStops: two swaps while outtail is down leave a table between them that is in no catalogue and no statement.
func TestB103ColumnsThatCannotBeProvedStopUntilAPersonVouches(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		s.Prove()
		swap := func(n int, alter string) {
			db.Exec(t, fmt.Sprintf("CREATE TABLE _outbox_new LIKE outbox; ALTER TABLE _outbox_new %s; RENAME TABLE outbox TO _old%d, _outbox_new TO outbox", alter, n))
		}
		s.Insert(1)
		swap(1, "MODIFY event_type VARCHAR(255) NOT NULL AFTER id")
		s.Insert(2)
		swap(2, "MODIFY event_type VARCHAR(255) NOT NULL AFTER aggregate_id")
		s.Insert(1)
		stderr := s.Stops(4, "OT3029", "In the server's catalogue they are now: id char(36) ", "checkpoint set", "(goes on at the end of the log: what lies between is not sent)")
		m := printedVouch.FindStringSubmatch(stderr)
		require.NotNil(t, m, stderr)
		vouch := func(columns string) harness.Result {
			return s.Outtail.Run(t, "schema", "accept", "-c", m[2], "--pipeline", "orders", "--table", m[3], "--at", m[4], "--columns", columns, "--reason", "migration 17")
		}
		charset := regexp.MustCompile(` event_type varchar\(255\) (character set \w+),`)
		between := charset.ReplaceAllString(m[5], "")
		between = strings.Replace(between, ", aggregate_type", ", event_type varchar(255) "+charset.FindStringSubmatch(m[5])[1]+", aggregate_type", 1)

		r := vouch(strings.Replace(between, "char(36)", "char(35)", 1))
		require.Equal(t, 2, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "they do not fit the rows at")
		r = s.Outtail.Run(t, "checkpoint", "accept", "-c", s.Outtail.Config, "--pipeline", "orders", "--code", "OT3029", "--reason", "no")
		require.Equal(t, 2, r.Code, r.Stderr)
		require.Contains(t, r.Stderr, "would not let the pipeline go on")

		r = vouch(between)
		require.Equal(t, 0, r.Code, r.Stderr)
		s.Prove()
		requireRightValues(t, s)

		p := s.Start()
		r = vouch(between)
		require.Equal(t, 5, r.Code, r.Stderr)
		s.Stop(p)
	})
}

// insist runs a statement that the server may choose as the victim of a deadlock, as the tools do.
func insist(t *testing.T, db *shop.MySQL, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for {
		tx, err := db.Begin(ctx)
		require.NoError(t, err)
		if err = tx.Exec(ctx, statement); err == nil {
			require.NoError(t, tx.Commit(ctx))
			return
		}
		_ = tx.Rollback(ctx)
		var my *mysql.MySQLError
		require.ErrorAs(t, err, &my)
		require.Equal(t, uint16(1213), my.Number, err)
	}
}

// ghost runs an online schema change as gh-ost and pt-online-schema-change do: a copy with the new columns, filled while a trigger keeps
// it current, and swapped in by one RENAME. interrupted: it gives up before the swap.
func ghost(t *testing.T, db *shop.MySQL, n int, alter string, interrupted bool) {
	t.Helper()
	shared := "id, aggregate_type, aggregate_id, event_type, payload, headers, occurred_at"
	db.Exec(t, "CREATE /* gh-ost */ TABLE `"+db.DB+"`.`_outbox_gho` LIKE `"+db.DB+"`.`outbox`")
	db.Exec(t, "ALTER /* gh-ost */ TABLE `_outbox_gho` "+alter)
	values := "NEW." + strings.ReplaceAll(shared, ", ", ", NEW.")
	db.Exec(t, "CREATE TRIGGER ghost_ins AFTER INSERT ON outbox FOR EACH ROW REPLACE INTO _outbox_gho ("+shared+") VALUES ("+values+")")
	for from := range 16 { // by the first digit of the id, as the tools copy in chunks of the primary key
		insist(t, db, fmt.Sprintf("INSERT IGNORE INTO _outbox_gho (%s) SELECT %s FROM outbox WHERE id LIKE '%x%%' LOCK IN SHARE MODE", shared, shared, from))
	}
	if interrupted {
		db.Exec(t, "DROP TRIGGER ghost_ins; DROP TABLE `_outbox_gho`")
		return
	}
	db.Exec(t, fmt.Sprintf("RENAME TABLE `outbox` TO `_outbox_del%d`, `_outbox_gho` TO `outbox`", n))
	db.Exec(t, "DROP TRIGGER ghost_ins")
}

func TestB106AnOnlineSchemaChangeUnderLoadSendsEveryEventOnceAndNoCopy(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		s := scene.New(t, &servers, db)
		topic := s.Topic
		p := s.Start()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		loadCtx, enough := context.WithCancel(ctx)
		written := &shop.Written{}
		loaded := make(chan error, 1)
		go func() { // ends with enough
			loaded <- shop.Load{Events: 1_000_000, Aggregates: 20, Topic: topic, Seed: 106, Pause: 5 * time.Millisecond, Persist: true}.WriteTo(loadCtx, db, written)
		}()
		more := func() {
			n := written.Len()
			p.Until(t, "the load goes on", func() bool { return written.Len() > n+100 })
		}
		more()
		ghost(t, db, 0, "ADD COLUMN never VARCHAR(255) DEFAULT 'wrong' FIRST", true)
		more()
		ghost(t, db, 1, "ADD COLUMN trace_id VARCHAR(255) DEFAULT 'wrong' AFTER id", false)
		more()
		ghost(t, db, 2, "DROP COLUMN trace_id, ADD COLUMN tenant VARCHAR(255) DEFAULT 'wrong' FIRST", false)
		more()
		enough()
		<-loaded
		committed := written.Committed(t, db)
		p.Until(t, "everything delivered", func() bool { return int(s.Kafka.Count(t, topic)) >= len(committed) })
		s.Stop(p)
		delivered := harness.FromKafka(s.Kafka.Records(t, topic))
		require.NoError(t, harness.Check(committed, delivered, 0).Err())
		require.Equal(t, len(committed), len(delivered), "each once, and no row of a copy")
	})
}

func TestB132NamesOfTablesFollowTheServersRule(t *testing.T) {
	events := "(id CHAR(36) PRIMARY KEY, aggregate_type VARCHAR(255) NOT NULL, aggregate_id VARCHAR(255) NOT NULL, event_type VARCHAR(255) NOT NULL, payload JSON, headers JSON, " +
		"occurred_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))"
	t.Run("with regard to case", func(t *testing.T) {
		onBoth(t, func(t *testing.T, db *shop.MySQL) {
			t.Parallel()
			s := scene.New(t, &servers, db)
			// The other one is no copy of ours: its columns would put values under wrong names.
			db.Exec(t, "CREATE TABLE Outbox "+strings.Replace(events, "aggregate_id VARCHAR(255) NOT NULL, event_type VARCHAR(255) NOT NULL", "event_type VARCHAR(255) NOT NULL, aggregate_id VARCHAR(255) NOT NULL", 1))
			other := "INSERT INTO Outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('" + scene.NewUUID() + "', 'wrong', 'wrong', 'wrong', '{}')"
			p := s.Start()
			s.Insert(1)
			db.Exec(t, other)
			db.Exec(t, "ALTER TABLE Outbox ADD x INT FIRST")
			s.Insert(1)
			s.Arrived(p)
			s.Stop(p)
			requireRightValues(t, s)
			s.Configure("Source", s.Source("tables", "[OUTBOX]"))
			s.Stops(3, "OT3009", "OUTBOX", "correct tables: in the configuration: the server has "+db.DB+".", "CREATE TABLE")
			s.Configure("Source", s.Source("tables", "[nothing]"))
			s.Stops(3, "OT3009", db.DB+".nothing does not exist", "CREATE TABLE `"+db.DB+"`.`nothing` (`id` CHAR(36) PRIMARY KEY, ", "or correct tables: in the configuration")
		})
	})
	t.Run("without regard to case", func(t *testing.T) {
		t.Parallel()
		db := shop.NewMySQL(t, harness.StartMySQL(t, harness.MySQLOptions{Flags: []string{"--lower-case-table-names=1"}}), "mysql", nil)
		s := scene.New(t, &servers, db)
		s.Configure("Source", s.Source("tables", "["+strings.ToUpper(db.DB)+".OutBox]"))
		p := s.Start()
		s.Insert(1)
		db.Exec(t, "ALTER TABLE OUTBOX ADD x VARCHAR(255) DEFAULT 'wrong' FIRST")
		s.Insert(1)
		s.Arrived(p)
		s.Stop(p)
		whileDown(t, s, "DROP TABLE OUTBOX; CREATE TABLE OUTBOX "+events)
		whileDown(t, s, "ALTER TABLE OuTbOx ADD y INT FIRST", "ALTER TABLE oUTBOX DROP y")
	})
}
