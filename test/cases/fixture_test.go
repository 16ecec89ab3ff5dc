// Package cases holds situations that broke connectors of this kind, each under its number, against the real binary and real
// servers.
package cases

import (
	"os"
	"testing"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

var servers harness.Pool

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }

// onMySQL runs a test on the shared MySQL.
func onMySQL(t *testing.T, test func(t *testing.T, db *shop.MySQL)) {
	t.Run("mysql", func(t *testing.T) { test(t, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil)) })
}

// onMariaDB runs a test on the shared MariaDB.
func onMariaDB(t *testing.T, test func(t *testing.T, db *shop.MySQL)) {
	t.Run("mariadb", func(t *testing.T) {
		test(t, shop.NewMySQL(t, servers.MySQLWith(t, harness.MySQLOptions{MariaDB: true}), "mariadb", nil))
	})
}

// onBoth runs a test on the shared MySQL and the shared MariaDB.
func onBoth(t *testing.T, test func(t *testing.T, db *shop.MySQL)) {
	onMySQL(t, test)
	onMariaDB(t, test)
}

// TestACaseIsSeen keeps the stage itself honest: what commits arrives, what is rolled back does not.
func TestACaseIsSeen(t *testing.T) {
	onBoth(t, func(t *testing.T, db *shop.MySQL) {
		s := scene.New(t, &servers, db)
		p := s.Start()
		tx, err := db.Begin(t.Context())
		if err == nil {
			err = tx.Exec(t.Context(), scene.InsertEvent, scene.NewUUID(), "order.changed", "{}")
		}
		if err == nil {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Insert(3)
		s.Arrived(p)
		s.Stop(p)
	})
}
