package binlog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

// xaBench is a server of the test's own, since XA RECOVER lists what all of a server's users prepared, and a place for rows.
type xaBench struct {
	*bench
	o   binlog.Options
	dir string
}

func newXABench(t *testing.T, m *harness.MySQL, kind string) *xaBench {
	b := &xaBench{bench: &bench{MySQL: m, kind: kind, db: m.NewDatabase(t)}, dir: t.TempDir()}
	b.run(t, "CREATE TABLE outbox "+outboxColumns, "CREATE TABLE other (v LONGTEXT)")
	b.o = b.options(t, "outbox")
	if kind == event.MySQL {
		b.Exec(t, "", "GRANT XA_RECOVER_ADMIN ON *.* TO "+b.o.User)
	}
	return b
}

// opened is a session with the store of a process that lives as long.
func (b *xaBench) opened(t *testing.T, from event.Checkpoint) (s *session, end func()) {
	t.Helper()
	s, end, err := b.tried(t, from)
	require.NoError(t, err)
	return s, end
}

func (b *xaBench) tried(t *testing.T, from event.Checkpoint) (*session, func(), error) {
	t.Helper()
	store, err := checkpoint.Open(checkpoint.Options{Dir: b.dir})
	require.NoError(t, err)
	o := b.o
	o.Prepared = store.Prepared(o.Pipeline)
	s, err := tryOpen(t, o, from)
	end := func() {
		_ = s.Close()
		require.NoError(t, store.Close())
	}
	if err != nil {
		end()
	}
	return s, end, err
}

// prepare leaves an XA transaction prepared by a connection that ends.
func (b *xaBench) prepare(t *testing.T, name string, statements ...string) {
	t.Helper()
	all := append([]string{"XA START " + name}, statements...)
	b.run(t, append(all, "XA END "+name, "XA PREPARE "+name)...)
}

// decide commits or rolls back from another connection; the server may take a moment to see that the one that prepared is gone.
func (b *bench) decide(t *testing.T, what string) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		_, err = b.DB.ExecContext(t.Context(), what)
		return err == nil
	}, harness.Patience, 20*time.Millisecond, "%s: %v", what, err)
}

func insert(payload string) string { return "INSERT INTO outbox (payload) VALUES ('" + payload + "')" }

// TestPreparedXA runs in each way that a server names places and writes events, one part after the other.
func TestPreparedXA(t *testing.T) {
	for _, c := range []struct {
		name  string
		kind  string
		flags []string
	}{
		{"mysql", event.MySQL, nil},
		{"mysql by file and position, compressed", event.MySQL, []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--binlog-transaction-compression=ON"}},
		{"mariadb", event.MariaDB, nil},
		{"mariadb, compressed", event.MariaDB, []string{"--log-bin-compress=ON", "--log-bin-compress-min-len=10"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := harness.StartMySQL(t, harness.MySQLOptions{MariaDB: c.kind == event.MariaDB, Flags: c.flags})
			run := func(name string, test func(t *testing.T, b *xaBench)) {
				t.Run(name, func(t *testing.T) { test(t, newXABench(t, m, c.kind)) })
			}
			run("its rows wait for the decision", rowsWait)
			run("prepared before the start", preparedBefore)
			if c.name == "mysql" {
				run("other tables", otherTables)
				run("no privilege", noPrivilege)
			}
		})
	}
}

func rowsWait(t *testing.T, b *xaBench) {
	const binary = `X'00ff275c',X'0a',2147483647`
	s, end := b.opened(t, event.Checkpoint{})
	b.prepare(t, "'foreign'", "INSERT INTO other VALUES ('x')")
	b.decide(t, "XA COMMIT 'foreign'")
	b.run(t, insert("1"))
	require.Equal(t, []string{"1"}, payloads(s.read(t, 1)))
	require.NoFileExists(t, filepath.Join(b.dir, checkpoint.ParkedName), "what does not concern us costs nothing")

	b.prepare(t, "'g1'", insert("gone"))
	b.prepare(t, binary, insert("b1"), "INSERT INTO other VALUES ('x')", insert("b2"))
	b.prepare(t, "'big'", "INSERT INTO outbox (payload) VALUES (REPEAT('y', 3000000))")
	b.run(t, insert("2"))
	plain := s.read(t, 1)
	require.Equal(t, "2", plain[0].payload)
	end()
	require.FileExists(t, filepath.Join(b.dir, checkpoint.ParkedName))

	// outtail stops, the server restarts, and then they are decided from elsewhere.
	b.Restart(t)
	b.decide(t, "XA ROLLBACK 'g1'")
	b.run(t, insert("3"))
	b.decide(t, "XA COMMIT "+binary)
	b.decide(t, "XA COMMIT 'big'")
	b.run(t, "XA START 'one'", insert("4"), "XA END 'one'", "XA COMMIT 'one' ONE PHASE")
	from := s.cp
	s, end = b.opened(t, from)
	events := s.read(t, 5)
	require.Equal(t, []string{"3", "b1", "b2", strings.Repeat("y", 3000000), "4"}, payloads(events))
	require.Equal(t, events[1].tx, events[2].tx)
	require.Equal(t, []uint64{0, 1}, []uint64{events[1].index, events[2].index})
	txs := map[string]bool{plain[0].tx: true}
	for _, e := range []got{events[0], events[1], events[3], events[4]} {
		require.False(t, txs[e.tx], "the rows are those of the commit's own group")
		txs[e.tx] = true
	}
	after := s.cp
	end()

	t.Run("a crash after they were sent sends them again", func(t *testing.T) {
		s, end := b.opened(t, from)
		require.Equal(t, payloads(events), payloads(s.read(t, 5)))
		end()
		partly := from
		partly.Prefix = &event.Prefix{Tx: events[1].tx, Rows: 1, Selection: from.Selection}
		s, end = b.opened(t, partly)
		require.Equal(t, []string{"3", "b1", "b2"}, payloads(s.read(t, 5))[:3], "the prefix is not of the next transaction")
		end()
	})
	t.Run("what is stored is swept", func(t *testing.T) {
		s, end := b.opened(t, after)
		b.run(t, insert("5"))
		require.Equal(t, []string{"5"}, payloads(s.read(t, 1)))
		end()
		store, err := checkpoint.Open(checkpoint.Options{Dir: b.dir})
		require.NoError(t, err)
		defer store.Close()
		require.NoError(t, store.Prepared(b.o.Pipeline).Each("", func(key string, _ []byte) error { return fmt.Errorf("%q is left", key) }))
	})
}

func preparedBefore(t *testing.T, b *xaBench) {
	const odd = `X'00ff',X'',7`
	b.prepare(t, odd, insert("before"))
	b.prepare(t, "'old'", insert("before"))
	b.prepare(t, "'gone'", insert("before"))
	s, end := b.opened(t, event.Checkpoint{})
	b.run(t, insert("1"))
	b.decide(t, "XA ROLLBACK 'gone'")
	b.decide(t, "XA COMMIT "+odd)
	events, err := s.tryRead(2)
	require.Equal(t, []string{"1"}, payloads(events))
	f := requireFault(t, err, "OT3033", event.Safety)
	require.Contains(t, f.Text, odd+" commits")
	require.Contains(t, f.Text, "X'6f6c64',X'',1", "the others are named, too")
	require.NotContains(t, f.Text, "X'676f6e65'", "but not what was rolled back")
	end()

	accepted := s.cp
	accepted.Accepted = []string{"OT3033"}
	s, end = b.opened(t, accepted)
	b.decide(t, "XA COMMIT 'old'")
	b.run(t, insert("2"))
	require.Equal(t, []string{"2"}, payloads(s.read(t, 1)), "accepting one finding accepts what it named")
	b.prepare(t, "'new'", insert("3"))
	b.run(t, insert("4"))
	s.read(t, 1)
	stored := s.cp
	end()

	t.Run("the second file is lost", func(t *testing.T) {
		require.NoError(t, os.Rename(filepath.Join(b.dir, checkpoint.ParkedName), filepath.Join(b.dir, "elsewhere")))
		_, _, err := b.tried(t, stored)
		f := requireFault(t, err, "OT3052", event.Safety)
		require.Contains(t, f.Hint, "checkpoint accept")
		lost := stored
		lost.Accepted = []string{"OT3052"}
		s, end := b.opened(t, lost)
		b.decide(t, "XA COMMIT 'new'")
		_, err = s.tryRead(1)
		f = requireFault(t, err, "OT3033", event.Safety)
		require.Contains(t, f.Text, "X'6e6577'")
		end()
		require.NoError(t, os.Rename(filepath.Join(b.dir, "elsewhere"), filepath.Join(b.dir, checkpoint.ParkedName)))
	})
	t.Run("and found again", func(t *testing.T) {
		s, end := b.opened(t, stored)
		require.Equal(t, []string{"3"}, payloads(s.read(t, 1)))
		end()
	})
}

// otherTables changes what is selected between PREPARE and COMMIT.
func otherTables(t *testing.T, b *xaBench) {
	b.run(t, "CREATE TABLE outbox2 "+outboxColumns)
	both := b.options(t, "outbox", "outbox2")
	one := b.o
	both.User, both.Password = one.User, one.Password
	b.o = both
	s, end := b.opened(t, event.Checkpoint{})
	b.prepare(t, "'x'", "INSERT INTO outbox2 (payload) VALUES ('no')", insert("x1"), "INSERT INTO outbox2 (payload) VALUES ('no')", insert("x2"))
	b.prepare(t, "'y'", insert("y1"))
	b.run(t, insert("1"))
	s.read(t, 1)
	stored := s.cp
	end()

	b.o = one
	b.decide(t, "XA COMMIT 'x'")
	s, end = b.opened(t, stored)
	events := s.read(t, 2)
	require.Equal(t, []string{"x1", "x2"}, payloads(events), "a table that was left out is left out")
	require.Equal(t, uint64(1), events[1].index)
	stored = s.cp
	end()

	b.o = both
	b.decide(t, "XA COMMIT 'y'")
	s, end = b.opened(t, stored)
	_, err := s.tryRead(1)
	f := requireFault(t, err, "OT3033", event.Safety)
	require.Contains(t, f.Text, "a table was added")
	end()
	stored.Accepted = []string{"OT3033"}
	s, end = b.opened(t, stored)
	require.Equal(t, []string{"y1"}, payloads(s.read(t, 1)))
	end()
}

// noPrivilege: XA RECOVER is optional.
func noPrivilege(t *testing.T, b *xaBench) {
	b.Exec(t, "", "REVOKE XA_RECOVER_ADMIN ON *.* FROM "+b.o.User)
	b.prepare(t, "'old'", insert("before"))
	s, end := b.opened(t, event.Checkpoint{})
	b.prepare(t, "'new'", insert("1"))
	b.decide(t, "XA COMMIT 'old'")
	b.decide(t, "XA COMMIT 'new'")
	require.Equal(t, []string{"1"}, payloads(s.read(t, 1)))
	end()
}
