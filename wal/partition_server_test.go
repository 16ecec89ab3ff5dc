package wal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/wal"
)

// notes is a log that may be read while it is written.
type notes struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(b)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

func TestPartitionsComeAsTheirTableWhateverThePublicationCallsThem(t *testing.T) {
	for _, version := range harness.PostgresVersions() {
		for _, root := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/root %v", version, root), func(t *testing.T) {
				b := newBenchOn(t, servers.Postgres(t, version))
				b.exec(`CREATE TABLE parts (id text, aggregate_id text, payload text, raw bytea, d int) PARTITION BY RANGE (d)`,
					`CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (10)`, `CREATE TABLE p0 PARTITION OF parts FOR VALUES FROM (90) TO (100)`,
					`CREATE TABLE later (d int, raw bytea, junk int, payload text, aggregate_id text, id text)`, `ALTER TABLE later DROP COLUMN junk`,
					fmt.Sprintf(`CREATE PUBLICATION pub FOR TABLE parts, other WITH (publish = 'insert', publish_via_partition_root = %v)`, root))
				o := b.options()
				o.Tables, o.CheckEvery = []string{"public.parts"}, 200*time.Millisecond
				s := b.open(o, event.Checkpoint{})
				insert := func(id string, d int) string {
					return fmt.Sprintf(`INSERT INTO parts (id, aggregate_id, payload, d) VALUES ('%s', 'a', 'x', %d)`, id, d)
				}
				b.exec(insert("1", 1), insert("default", 99), `INSERT INTO other VALUES (1)`,
					`CREATE TABLE p2 PARTITION OF parts FOR VALUES FROM (10) TO (20)`, insert("2", 11),
					`ALTER TABLE parts ATTACH PARTITION later FOR VALUES FROM (20) TO (30)`, insert("3", 21),
					`CREATE TABLE sub PARTITION OF parts FOR VALUES FROM (30) TO (40) PARTITION BY RANGE (d)`,
					`CREATE TABLE sub1 PARTITION OF sub FOR VALUES FROM (30) TO (35)`, insert("4", 31))
				for _, id := range []string{"1", "default", "2", "3", "4"} {
					e := s.event()
					require.Equal(t, id, string(e.Row[event.ID].Bytes))
					require.Equal(t, "public.parts", e.Table, "whatever partition it is in")
					require.Equal(t, "x", string(e.Row[event.Payload].Bytes))
				}

				// Partitions that were read go, and nothing stops, now and at a restart.
				cp := s.passed(b.end())
				b.exec(insert("5", 12), insert("6", 22), insert("7", 2))
				require.Equal(t, []string{"5", "6", "7"}, ids(t, s, 3))
				b.exec(`ALTER TABLE parts DETACH PARTITION later`, `DROP TABLE later`, `DROP TABLE p2`, insert("8", 2))
				require.Equal(t, []string{"8"}, ids(t, s, 1))
				// What was known goes with every later position.
				require.Eventually(t, func() bool {
					cp.Depends = s.passed(b.end()).Depends
					var d struct{ Tables []struct{ Parts []uint32 } }
					require.NoError(t, json.Unmarshal(cp.Depends, &d))
					return root || len(d.Tables[0].Parts) >= 5
				}, patience, 50*time.Millisecond)
				require.NoError(t, s.source.Close())
				// The log from before is read with the catalogs from after.
				s.reopen(cp)
				require.Equal(t, []string{"5", "6", "7", "8"}, ids(t, s, 4))
			})
		}
	}
}

func TestRowsOfAPartitionThatNobodyRemembersAreNotPassedOver(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE parts (id text, aggregate_id text, payload text, raw bytea, d int) PARTITION BY RANGE (d)`,
		`CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (10)`,
		`CREATE PUBLICATION pub FOR TABLE parts WITH (publish = 'insert')`)
	o := b.options()
	o.Tables, o.CheckEvery = []string{"public.parts"}, 200*time.Millisecond
	s := b.open(o, event.Checkpoint{})
	require.NoError(t, s.source.Close())
	b.exec(`CREATE TABLE p2 PARTITION OF parts FOR VALUES FROM (10) TO (20)`,
		`INSERT INTO parts VALUES ('1', 'a', 'x', NULL, 1)`, `INSERT INTO parts VALUES ('lost?', 'a', 'x', NULL, 11)`, `DROP TABLE p2`,
		`INSERT INTO parts VALUES ('2', 'a', 'x', NULL, 2)`)
	s.reopen(s.cp)
	require.Equal(t, []string{"1"}, ids(t, s, 1))
	s.drop()
	f := s.fault()
	require.Equal(t, wal.CodePartitionGone, f.Code)
	require.Equal(t, event.Safety, f.Class)
	require.Contains(t, f.Text, "public.p2")
	require.NoError(t, s.source.Close())

	s.cp.Accepted = []string{wal.CodePartitionGone}
	s.reopen(s.cp)
	require.Equal(t, []string{"1", "2"}, ids(t, s, 2))
}

func TestChildrenByInheritanceAreToldAndNoEvents(t *testing.T) {
	b := newBench(t)
	b.exec(`CREATE TABLE child () INHERITS (outbox)`)
	o, log := b.options(), &notes{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	s := b.open(o, event.Checkpoint{})
	require.Contains(t, log.String(), wal.CodeInherited)
	require.Contains(t, log.String(), "public.child")
	b.exec(`INSERT INTO child VALUES ('child', 'a')`, `INSERT INTO outbox VALUES ('1', 'a')`)
	require.Equal(t, []string{"1"}, ids(t, s, 1))
	require.NoError(t, s.source.Close())

	// Named, it is a table of its own.
	o.Tables = []string{"public.outbox", "public.child"}
	s = b.open(o, s.cp)
	e := s.event()
	require.Equal(t, "public.child", e.Table)
	require.Equal(t, []string{"1"}, ids(t, s, 1))
}

// A server before 15 goes on as if a table were not published whose rows a session has read before it was attached. That is noticed,
// while it streams and at a start, and the session that follows is begun anew once it has read past those rows.
func TestWhatATableHadBeforeItWasAttachedCostsNothingLater(t *testing.T) {
	for _, version := range harness.PostgresVersions() {
		for _, root := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/root %v", version, root), func(t *testing.T) {
				p := servers.Postgres(t, version)
				b := newBenchOn(t, p)
				b.exec(`CREATE TABLE parts (id text, aggregate_id text, payload text, raw bytea, d int) PARTITION BY RANGE (d)`,
					`CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (10)`, `CREATE TABLE loaded (LIKE parts)`, `CREATE TABLE empty (LIKE parts)`,
					fmt.Sprintf(`CREATE PUBLICATION pub FOR TABLE parts WITH (publish = 'insert', publish_via_partition_root = %v)`, root))
				o := b.options()
				o.Tables, o.CheckEvery = []string{"public.parts"}, 100*time.Millisecond
				s := b.open(o, event.Checkpoint{})
				from := s.cp
				insert := func(id string, d int) string {
					return fmt.Sprintf(`INSERT INTO parts (id, aggregate_id, payload, d) VALUES ('%s', 'a', 'x', %d)`, id, d)
				}
				b.exec(`INSERT INTO loaded (id, d) VALUES ('no event of ours', 21)`, insert("1", 1))
				require.Equal(t, []string{"1"}, ids(t, s, 1), "what came before was read")
				b.exec(`ALTER TABLE parts ATTACH PARTITION empty FOR VALUES FROM (10) TO (20)`, insert("2", 11))
				require.Equal(t, []string{"2"}, ids(t, s, 1))
				s.passed(b.end())
				b.exec(`BEGIN`, `ALTER TABLE parts ATTACH PARTITION loaded FOR VALUES FROM (20) TO (30)`, insert("3", 21), insert("4", 1), `COMMIT`)
				if p.Major() >= 15 {
					require.Equal(t, []string{"3", "4"}, ids(t, s, 2))
					return
				}
				told := func(f *event.Fault) {
					require.Equal(t, wal.CodeDependsChanged, f.Code, "%v", f)
					require.Contains(t, f.Text, "the table public.loaded had rows before it was attached to public.parts")
					require.NotContains(t, f.Text, "public.empty")
				}
				told(s.fault())
				require.NoError(t, s.source.Close())
				told(b.refuse(o, from))

				from.Accepted = []string{wal.CodeDependsChanged}
				s = b.open(o, from)
				require.Equal(t, []string{"1", "2", "4"}, ids(t, s, 3), "the row that the stop told of is the server's loss")
				f := s.fault()
				require.Equal(t, wal.CodeRenewed, f.Code)
				cp := s.checkpoint()
				require.Equal(t, event.Retry, f.Class)
				require.NoError(t, s.source.Close())
				s.reopen(cp)
				b.exec(insert("5", 21), insert("6", 1))
				require.Equal(t, []string{"5", "6"}, ids(t, s, 2))
			})
		}
	}
}
