package cases

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// A transaction of hundreds of megabytes between small ones: all arrives in commit order, the position moves at its end only, and
// memory does not grow with it. On MySQL it waits in the spill file; on MariaDB it is larger than limits.spill and is read twice.
func TestB120MemoryIsFlatWhateverTheTransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		const rows, size, at = 150_000, 2000, 50_000 // 300 MB
		s := scene.New(t, &servers, db)
		if db.Kind() == "mariadb" {
			s.Configure("Pipeline", "    limits: { spill: 64MiB }\n")
		}
		p := s.Start()
		s.Insert(3)
		s.Arrived(p)
		p.Until(t, "their position", func() bool { e := s.Stored(); return e.Events == 3 && e.Prefix == nil })
		small := s.Stored().Source
		// Some rows are taken back on the way; where the server logs them at all they must not come.
		db.Exec(t, deep(db)+"; BEGIN;"+bigInsert(db, 1, at, size)+"; SAVEPOINT s;"+bigInsert(db, rows+1, rows+100, size)+"; ROLLBACK TO s;"+
			bigInsert(db, at+1, rows, size)+"; COMMIT;"+bigInsert(db, rows+200, rows+202, 10))
		var stored scene.Entry
		p.Until(t, "the inside of the transaction", func() bool { stored = s.Stored(); return stored.Events > 3 })
		if stored.Prefix != nil {
			require.Equal(t, small.GTID, stored.Source.GTID, "the position does not move before the transaction's end")
		}
		p.Until(t, "all rows", func() bool { return s.Stored().Events == 3+rows+3 })
		peak := p.PeakRSS(t)
		t.Logf("peak %d MiB", peak>>20)
		s.Stop(p)
		require.Less(t, peak, int64(200<<20), "300 MB went through (I11)")
		if db.Kind() == "mariadb" {
			require.Contains(t, p.Stderr(), "read again")
		}

		n, again := 0, 0
		number := map[string]int{}
		for i := range 3 + rows + 3 {
			switch {
			case i < 3:
				number[s.Sent[i]] = i
			case i < 3+rows:
				number[numbered(i-2)] = i
			default:
				number[numbered(rows+200+i-3-rows)] = i
			}
		}
		s.Kafka.Consume(t, func(r *kgo.Record) bool {
			i, known := number[scene.Header(r, "id")]
			switch {
			case !known || i > n:
				t.Fatalf("event %d is %s", n, scene.Header(r, "id"))
			case i < n: // a session that was lost meanwhile
				again++
				return true
			case n >= 3 && n < 3+rows && len(r.Value) < size:
				t.Fatalf("event %d has %d bytes", n, len(r.Value))
			}
			n++
			return n < 3+rows+3
		}, s.Topic)
		t.Logf("%d events, %d of them again", n+again, again)
	})
}

// Killed while a transaction beyond limits.spill is sent, outtail goes on with what was acked of it; a row above limits.row keeps its
// place in it.
func TestALargeTransactionGoesOnAfterKills(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		t.Parallel()
		const rows, giant = 40_000, 25_000
		s := scene.New(t, &servers, db)
		s.Configure("Pipeline", "    limits: { spill: 8MiB, row: 1MiB }\n")
		p := s.Start()
		p.Kill(t)
		db.Exec(t, deep(db)+"; BEGIN;"+bigInsert(db, 1, giant-1, 1200)+";"+bigInsert(db, giant, giant, 2<<20)+";"+bigInsert(db, giant+1, rows, 1200)+"; COMMIT")
		kills := 0
		for s.Stored().Events < giant-1 && kills < 4 {
			p = s.Outtail.Start(t)
			before := s.Stored().Events
			p.Until(t, "progress", func() bool { return s.Stored().Events > before })
			p.Kill(t)
			kills++
		}
		// The row stops the pipeline at its place: nothing behind it is sent before a person decides.
		r := s.Outtail.Run(t, "run", "-c", s.Outtail.Config)
		require.NotZero(t, r.Code)
		require.Contains(t, r.Stderr, "OT3041")
		require.Equal(t, uint64(giant-1), s.Stored().Events)
		prefix := s.Stored().Prefix
		require.NotNil(t, prefix)
		require.Equal(t, uint64(giant-1), prefix.Rows)

		set := s.Set(fmt.Sprintf("after:%s/%s#%d", db.Kind(), prefix.Tx, giant-1))
		require.Zero(t, set.Code, set.Stderr)
		p = s.Outtail.Start(t)
		last := numbered(rows)
		p.Until(t, "the last row", func() bool { return s.Stored().Prefix == nil && s.Kafka.Count(t, s.Topic) >= rows-1 })
		s.Stop(p)
		var ids []string
		for i := 1; i <= rows; i++ {
			if i != giant {
				ids = append(ids, numbered(i))
			}
		}
		require.Equal(t, last, ids[len(ids)-1])
		requireRun(t, s, ids, kills)
	})
}
