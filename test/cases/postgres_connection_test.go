package cases

import (
	"testing"

	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// endSessions ends sessions of outtail's role and says how many there were.
func endSessions(t *testing.T, db *shop.Postgres, which string) int64 {
	t.Helper()
	return pgNumber(t, db, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '"+db.User()+"' AND "+which)
}

func TestB145ASessionOfPostgresThatIsTerminatedComesBack(t *testing.T) {
	onPostgres(t, func(t *testing.T, db *shop.Postgres) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		for _, which := range []string{"backend_type = 'walsender'", "backend_type <> 'walsender'", "true"} {
			s.Insert(2)
			p.Until(t, "a session to end", func() bool { return endSessions(t, db, which) > 0 })
			s.Insert(2)
			s.Arrived(p)
		}
		p.Until(t, "both sessions to be back", func() bool {
			return pgNumber(t, db, "SELECT count(*) FROM pg_stat_activity WHERE usename = '"+db.User()+"'") == 2
		})
		p.WaitReady(t)
		s.Stop(p)
	})
}
