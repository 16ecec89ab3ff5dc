// Package integration runs the real binary against real servers: what commits in the database arrives in Kafka.
package integration

import (
	"os"
	"testing"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/shop"
)

var servers harness.Pool

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }

// eachSource runs a test over every kind of source.
func eachSource(t *testing.T, test func(t *testing.T, db shop.Database)) {
	for _, version := range harness.PostgresVersions() {
		t.Run("postgres"+version, func(t *testing.T) { test(t, shop.NewPostgres(t, servers.Postgres(t, version), nil)) })
	}
	t.Run("mysql", func(t *testing.T) { test(t, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil)) })
}

// eachKind runs a test over one server of each kind, where the version of Postgres makes no difference.
func eachKind(t *testing.T, test func(t *testing.T, db shop.Database)) {
	t.Run("postgres", func(t *testing.T) { test(t, shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)) })
	t.Run("mysql", func(t *testing.T) { test(t, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil)) })
}
