package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// TestIdle: transactions that do not concern us move the stored position too, so that the server can recycle its log
// under a quiet outbox (I6), and the server hears of a position only after it is stored (I4).
func TestIdle(t *testing.T) {
	eachSource(t, func(t *testing.T, db shop.Database) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		for range 3 {
			before := s.Stored().Source
			for range 20 {
				db.Exec(t, "INSERT INTO orders (id, note) VALUES ('x', 'busy')")
			}
			switch db := db.(type) {
			case *shop.Postgres:
				end := db.Server.Scalar(t, db.DB, "pg_current_wal_insert_lsn()")
				confirmed := func() string {
					return db.Server.Scalar(t, db.DB, "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = $1", db.Slot())
				}
				reached := func(lsn string) bool {
					return db.Server.Scalar(t, db.DB, "$1::pg_lsn >= $2::pg_lsn", lsn, end) == "true"
				}
				p.Until(t, "the stored position to pass "+end, func() bool {
					c, stored := confirmed(), s.Stored().Source.LSN
					require.Equal(t, "true", db.Server.Scalar(t, db.DB, "$1::pg_lsn <= $2::pg_lsn", c, stored), "confirmed %s before it was stored (%s)", c, stored)
					return reached(stored)
				})
				p.Until(t, "confirmed_flush_lsn to pass "+end, func() bool { return reached(confirmed()) })
			case *shop.MySQL:
				executed := db.Server.Scalar(t, "", "SELECT @@global.gtid_executed")
				file := newestBinlog(t, db.Server)
				p.Until(t, "the stored GTID set to cover "+executed, func() bool {
					at := s.Stored().Source
					return db.Server.Scalar(t, "", "SELECT GTID_SUBSET(?, ?)", executed, at.GTID) == "1"
				})
				at := s.Stored().Source
				require.Equal(t, file, at.File)
				require.True(t, at.File != before.File || at.Pos > before.Pos, "%d is beyond %d", at.Pos, before.Pos)
				db.Server.Exec(t, "", "FLUSH BINARY LOGS")
				next := newestBinlog(t, db.Server)
				db.Exec(t, "INSERT INTO orders (id, note) VALUES ('x', 'in the next file')")
				p.Until(t, "the stored position to be in "+next, func() bool { return s.Stored().Source.File == next })
			}
		}
		require.Zero(t, s.Stored().Events)
		s.Insert(1)
		s.Arrived(p)
		s.Stop(p)
	})
}
