package binlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// stored gives a session that has delivered one event and ended.
func (b *bench) stored(t testing.TB, o binlog.Options) event.Checkpoint {
	s := open(t, o, event.Checkpoint{})
	b.run(t, "INSERT INTO outbox (payload) VALUES ('stored')")
	s.read(t, 1)
	require.NoError(t, s.Close())
	return s.cp
}

func TestLogThatIsGoneIsASafetyStop(t *testing.T) {
	m := harness.StartMySQL(t, harness.MySQLOptions{})
	b := newBench(t, m)
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	cp := b.stored(t, o)

	t.Run("a GTID set that the server never executed", func(t *testing.T) {
		other := cp
		other.Position.GTID = cp.Position.GTID + ",11111111-2222-3333-4444-555555555555:1-7"
		_, err := tryOpen(t, o, other)
		f := requireFault(t, err, "OT3021", event.Safety)
		require.Contains(t, f.Text, "11111111-2222-3333-4444-555555555555:1-7")
		require.NotContains(t, f.Text, b.Scalar(t, "", "SELECT @@server_uuid"))

		other.Accepted = []string{"OT3021"}
		s := open(t, o, other)
		require.Empty(t, s.cp.Accepted)
		require.Equal(t, cp.Position.GTID, s.cp.Position.GTID)
		require.NoError(t, s.Close())
	})

	b.run(t, "INSERT INTO outbox (payload) VALUES ('purged')", "FLUSH BINARY LOGS", "INSERT INTO outbox (payload) VALUES ('kept')", "FLUSH BINARY LOGS")
	b.run(t, "SET @f = (SELECT 1)", "PURGE BINARY LOGS TO '"+nth(t, b, -2)+"'")

	t.Run("purged binlogs that were not read", func(t *testing.T) {
		_, err := tryOpen(t, o, cp)
		f := requireFault(t, err, "OT3022", event.Safety)
		require.Contains(t, f.Hint, "checkpoint set -c FILE --pipeline orders --to earliest")
		require.Contains(t, f.Hint, "checkpoint accept -c FILE --pipeline orders --code OT3022")

		accepted := cp
		accepted.Accepted = []string{"OT3022"}
		s := open(t, o, accepted)
		require.Equal(t, "kept", s.read(t, 1)[0].payload)
		require.NoError(t, s.Close())
	})
	t.Run("the same, by file and position", func(t *testing.T) {
		byFile := cp
		byFile.Position.GTID = ""
		_, err := tryOpen(t, o, byFile)
		requireFault(t, err, "OT3023", event.Safety)
	})
	t.Run("every answer of checkpoint set", func(t *testing.T) {
		for _, to := range []string{"now", "earliest", flat(b.Scalar(t, "", "SELECT @@global.gtid_executed")), nth(t, b, -1) + ":4"} {
			set, err := binlog.CheckSet(t.Context(), o, to)
			require.NoError(t, err, to)
			s := open(t, o, set)
			require.NoError(t, s.Close())
		}
		_, err := binlog.CheckSet(t.Context(), o, "binlog.999999:4")
		requireFault(t, err, "OT3011", event.Environment)
		_, err = binlog.CheckSet(t.Context(), o, "yesterday")
		requireFault(t, err, "OT3013", event.Usage)
	})

	now, err := binlog.CheckSet(t.Context(), o, "now")
	require.NoError(t, err)
	t.Run("a RESET and a log that grew again under the same names", func(t *testing.T) {
		uuid := b.Scalar(t, "", "SELECT @@server_uuid")
		// A file is known by the second in which it was begun.
		b.run(t, "DO SLEEP(1.1)", "RESET BINARY LOGS AND GTIDS")
		for range 10 {
			b.run(t, "FLUSH BINARY LOGS")
		}
		for range 30 {
			b.run(t, "INSERT INTO outbox (payload) VALUES ('regrown')")
		}
		regrown := now
		regrown.Position.GTID = uuid + ":1-3"
		_, err := tryOpen(t, o, regrown)
		requireFault(t, err, "OT3024", event.Safety)
		regrown.Position.GTID = ""
		_, err = tryOpen(t, o, regrown)
		requireFault(t, err, "OT3024", event.Safety)
	})
	t.Run("another server, by file and position", func(t *testing.T) {
		set, err := binlog.CheckSet(t.Context(), o, "now")
		require.NoError(t, err)
		set.Position.GTID, set.Position.ServerUUID = "", "11111111-2222-3333-4444-555555555555"
		_, err = tryOpen(t, o, set)
		requireFault(t, err, "OT3020", event.Safety)
	})
	t.Run("another server, by GTID: its log continues ours", func(t *testing.T) {
		set, err := binlog.CheckSet(t.Context(), o, "now")
		require.NoError(t, err)
		set.Position.ServerUUID = "11111111-2222-3333-4444-555555555555"
		set.Position.File = "other.000042"
		set.Prefix = &event.Prefix{Tx: "x:1", Rows: 3, Selection: set.Selection}
		s := open(t, o, set)
		require.Nil(t, s.cp.Prefix)
		b.run(t, "INSERT INTO outbox (payload) VALUES ('goes on')")
		require.Equal(t, "goes on", s.read(t, 1)[0].payload)
	})
}

// nth names the server's binlogs, counted from the end if negative.
func nth(t testing.TB, b *bench, i int) string {
	rows, err := b.DB.Query("SHOW BINARY LOGS")
	require.NoError(t, err)
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name, size, encrypted string
		into := []any{&name, &size, &encrypted}
		if b.kind == event.MariaDB {
			into = into[:2]
		}
		require.NoError(t, rows.Scan(into...))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	if i < 0 {
		i += len(names)
	}
	return names[i]
}

func TestWithoutGTIDsFileAndPositionCount(t *testing.T) {
	m := harness.StartMySQL(t, harness.MySQLOptions{Flags: []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--binlog-checksum=NONE"}})
	b := newBench(t, m)
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	s := open(t, o, event.Checkpoint{})
	require.Empty(t, s.cp.Position.GTID)
	b.run(t, "INSERT INTO outbox (payload) VALUES ('1')", "FLUSH BINARY LOGS", "INSERT INTO outbox (payload) VALUES ('2')")
	events := s.read(t, 2)
	require.Regexp(t, `^binlog\.\d+:\d+$`, events[0].tx)
	require.NoError(t, s.Close())
	m.Restart(t)
	b.run(t, "INSERT INTO outbox (payload) VALUES ('3')")
	s = open(t, o, s.cp)
	events = s.read(t, 1)
	require.Equal(t, "3", events[0].payload)

	// GTIDs are turned on while we read; the set is taken over at the next file, and the stored position then carries it.
	b.run(t, "INSERT INTO outbox (payload) VALUES ('4')", "SET GLOBAL enforce_gtid_consistency = ON", "SET GLOBAL gtid_mode = OFF_PERMISSIVE", "SET GLOBAL gtid_mode = ON_PERMISSIVE")
	require.Equal(t, []string{"4"}, payloads(s.read(t, 1))) // with ON the server serves no transaction without GTID any more
	b.run(t, "SET GLOBAL gtid_mode = ON", "INSERT INTO outbox (payload) VALUES ('5')")
	require.Equal(t, []string{"5"}, payloads(s.read(t, 1)))
	require.NoError(t, s.Close())
	s = open(t, o, s.cp)
	b.run(t, "INSERT INTO outbox (payload) VALUES ('6')", "FLUSH BINARY LOGS", "INSERT INTO outbox (payload) VALUES ('7')")
	require.Equal(t, []string{"6", "7"}, payloads(s.read(t, 2)))
	require.Equal(t, flat(b.Scalar(t, "", "SELECT @@global.gtid_executed")), s.cp.Position.GTID)
}

func TestTableDefinitionHoldsOnlyWhereItIsProved(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	s := open(t, o, event.Checkpoint{})
	b.run(t, "INSERT INTO outbox (payload) VALUES ('1')", "ALTER TABLE outbox ADD COLUMN first_one VARCHAR(10) DEFAULT 'f' FIRST", "INSERT INTO outbox (payload) VALUES ('2')")
	require.Equal(t, []string{"1", "2"}, payloads(s.read(t, 2)))
	require.NoError(t, s.Close())

	// The stored definition serves rows that were written before a change that came while we were away.
	b.run(t, "INSERT INTO outbox (payload) VALUES ('3')", "ALTER TABLE outbox DROP COLUMN note, ADD COLUMN other INT FIRST", "INSERT INTO outbox (payload) VALUES ('4')")
	mid := s.cp
	s = open(t, o, mid)
	require.Equal(t, []string{"3", "4"}, payloads(s.read(t, 2)))
	require.NoError(t, s.Close())

	// Two changes, one of which says nothing of columns: nobody knows what the table was between them.
	b.run(t, "ALTER TABLE outbox ADD COLUMN x INT FIRST", "INSERT INTO outbox (payload) VALUES ('5')", "RENAME TABLE outbox TO o, o TO outbox")
	_, err := func() ([]got, error) { s = open(t, o, s.cp); return s.tryRead(1) }()
	f := requireFault(t, err, "OT3029", event.Safety)
	require.Contains(t, f.Hint, "binlog_row_metadata")
	require.NoError(t, s.Close())
}

func TestStatementsAndPartialImagesAreSeen(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns, "CREATE TABLE other (v INT)")
	for name, c := range map[string]struct {
		code  string
		class event.Class
		stmts []string
	}{
		"a statement that names the table": {"OT3028", event.Safety, []string{"SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO outbox (payload) VALUES ('s')", "SET SESSION binlog_format = 'ROW'"}},
		"a prepared XA transaction":        {"OT3033", event.Safety, []string{"XA START 'p'", "INSERT INTO outbox (payload) VALUES ('x')", "XA END 'p'", "XA PREPARE 'p'"}},
		"an update, on_update: halt":       {"OT3031", event.Safety, []string{"INSERT INTO outbox (id, payload) VALUES (99, 'u')", "UPDATE outbox SET note = 'z' WHERE id = 99"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := b.options(t, "outbox")
			o.OnUpdate = "halt"
			s := open(t, o, event.Checkpoint{})
			b.run(t, c.stmts...)
			_, err := s.tryRead(2)
			requireFault(t, err, c.code, c.class)
			require.NoError(t, s.Close())
		})
	}
	b.decide(t, "XA ROLLBACK 'p'") // a commit would stop whoever reads this server's log from its beginning without keeping what was prepared
}

func TestWhatWaitingCannotMendIsToldAtOnce(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	at := func(change func(*binlog.Options), code string, immediate bool) func(*testing.T) {
		return func(t *testing.T) {
			o := o
			change(&o)
			_, err := tryOpen(t, o, event.Checkpoint{})
			f := requireFault(t, err, code, event.Environment)
			require.Equal(t, immediate, f.Immediate)
		}
	}
	t.Run("wrong password", at(func(o *binlog.Options) { o.Password = "no" }, "OT3002", false))
	t.Run("nobody listens", at(func(o *binlog.Options) { o.Port, _ = harness.FreePort() }, "OT3001", false))
	t.Run("no such host", at(func(o *binlog.Options) { o.Host = "nowhere.invalid" }, "OT3001", false))
	t.Run("a certificate that nobody vouches for", at(func(o *binlog.Options) { o.TLS.Mode = "verify-full" }, "OT3003", false))
	t.Run("missing table", at(func(o *binlog.Options) { o.Tables = []string{"nothing"} }, "OT3009", true))
	t.Run("missing column", at(func(o *binlog.Options) { o.Columns[event.Tenant].Column = "tenant" }, "OT3010", true))
	t.Run("MariaDB expected", at(func(o *binlog.Options) { o.Kind = event.MariaDB }, "OT3012", true))
	t.Run("missing privilege", at(func(o *binlog.Options) {
		b.run(t, "CREATE USER IF NOT EXISTS 'poor'@'%' IDENTIFIED BY 'x'", "GRANT SELECT ON "+b.db+".* TO 'poor'@'%'")
		o.User, o.Password = "poor", "x"
	}, "OT3008", true))
	for variable, c := range map[string][3]string{
		"binlog_format":    {"STATEMENT", "ROW", "OT3006"},
		"binlog_row_image": {"MINIMAL", "FULL", "OT3007"},
	} {
		t.Run(variable, func(t *testing.T) {
			b.run(t, "SET GLOBAL "+variable+" = '"+c[0]+"'")
			defer b.run(t, "SET GLOBAL "+variable+" = '"+c[1]+"'")
			at(func(*binlog.Options) {}, c[2], true)(t)
		})
	}
}

func TestConnectionThatIsCutIsMadeAnew(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	proxy := harness.NewProxy(t, b.Addr())
	o := b.options(t, "outbox")
	o.Port = proxy.Port()
	s := open(t, o, event.Checkpoint{})
	b.run(t, "INSERT INTO outbox (payload) VALUES ('1')")
	s.read(t, 1)
	proxy.Cut()
	_, err := s.tryRead(1)
	requireFault(t, err, "OT3004", event.Retry)
	require.NoError(t, s.Close())
	b.run(t, "INSERT INTO outbox (payload) VALUES ('2')")
	s = open(t, o, s.cp)
	require.Equal(t, "2", s.read(t, 1)[0].payload)

	// A server that says nothing does not keep Close from returning, nor a context from ending a read.
	proxy.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Read(ctx)
	for err == nil {
		_, err = s.Read(ctx)
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	begun := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(begun), 30*time.Second)
}

func TestTwoOfTheSameServerIDAreToldApart(t *testing.T) {
	b := newBench(t, servers.MySQL(t))
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	first := open(t, o, event.Checkpoint{})
	o.Pipeline = "audit" // beside the first by right, if its server id were another
	second := open(t, o, event.Checkpoint{})
	_, err := first.tryRead(1)
	f := event.AsFault(err)
	require.NotNil(t, f, "%v", err)
	require.Equal(t, event.Retry, f.Class)
	b.run(t, "INSERT INTO outbox (payload) VALUES ('1')")
	require.Equal(t, "1", second.read(t, 1)[0].payload)
}

// A server that waits for a semi-synchronous replica has written a transaction, and sends it to whoever reads the log, and has not executed
// it. It is neither lacking then nor of another log.
func TestATransactionIsReadBeforeItIsExecuted(t *testing.T) {
	m := harness.StartMySQL(t, harness.MySQLOptions{})
	b := newBench(t, m)
	b.run(t, "CREATE TABLE outbox "+outboxColumns)
	o := b.options(t, "outbox")
	s := open(t, o, event.Checkpoint{})
	b.run(t, "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'", "SET GLOBAL rpl_semi_sync_source_timeout = 3600000", "SET GLOBAL rpl_semi_sync_source_enabled = ON")
	written := make(chan struct{})
	go func() { // ends when the server waits no longer
		defer close(written)
		b.run(t, "INSERT INTO outbox (payload) VALUES ('waits')")
	}()
	t.Cleanup(func() { <-written })
	t.Cleanup(func() { m.Exec(t, "", "SET GLOBAL rpl_semi_sync_source_enabled = OFF") })
	e := s.read(t, 1)[0]
	require.Equal(t, "waits", e.payload)
	require.Equal(t, "0", b.Scalar(t, "", "SELECT GTID_SUBSET('"+e.tx+"', @@global.gtid_executed)"))
	require.NoError(t, s.Close())

	at := s.cp
	s = open(t, o, at)
	require.Equal(t, at.Position.GTID, s.cp.Position.GTID)
	require.True(t, s.Covers(at.Position, e.tx))
	require.True(t, s.Covers(s.LogEnd(), e.tx))
	require.Equal(t, "0", b.Scalar(t, "", "SELECT GTID_SUBSET('"+e.tx+"', @@global.gtid_executed)"), "it still waits")
	require.NoError(t, s.Close())
}
