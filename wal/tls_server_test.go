package wal_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/wal"
)

func TestB151ProtectionIsWhatWasAskedForOrTheStartFails(t *testing.T) {
	for _, version := range harness.PostgresVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			p := harness.StartPostgres(t, version, harness.PostgresOptions{})
			b := newBenchOn(t, p)
			b.exec(`CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')`)
			o := b.options()
			ours, theirs := harness.NewAuthority(t, "ours"), harness.NewAuthority(t, "theirs")
			ca, otherCA := ours.File(t), theirs.File(t)
			const plain, encrypted = "f", "t" // pg_stat_ssl.ssl
			check := func(name string, tls wal.TLS, want string) {
				t.Helper()
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				o := o
				o.TLS = tls
				source := b.source(o)
				_, err := source.Open(ctx, event.Checkpoint{})
				if want != plain && want != encrypted {
					f := event.AsFault(err)
					require.NotNil(t, f, name)
					require.Equal(t, wal.CodeTLS, f.Code, name)
					require.Contains(t, f.Error(), want, name)
					require.Contains(t, f.Hint, "tls.mode", name)
					return
				}
				require.NoError(t, err, name)
				require.Equal(t, want, b.one(`SELECT s.ssl FROM pg_stat_ssl s JOIN pg_replication_slots r ON r.active_pid = s.pid WHERE r.slot_name = '`+b.slot()+`'`), name)
				require.NoError(t, source.Close())
			}
			for _, mode := range []string{"", "disable", "prefer"} {
				check("no TLS there: "+mode, wal.TLS{Mode: mode}, plain)
			}
			for _, mode := range []string{"require", "verify-ca", "verify-full"} {
				check("no TLS there: "+mode, wal.TLS{Mode: mode, CA: ca}, "refused TLS")
			}
			check("no TLS there: a ca alone", wal.TLS{CA: ca}, "refused TLS")

			use := func(cert, key string) { t.Helper(); p.UseTLS(t, cert, key) }
			later := time.Now().Add(24 * time.Hour)
			use(ours.Server(t, "127.0.0.1", later))
			check("disable", wal.TLS{Mode: "disable"}, plain)
			check("prefer", wal.TLS{Mode: "prefer"}, encrypted)
			check("no mode", wal.TLS{}, encrypted)
			check("require", wal.TLS{Mode: "require"}, encrypted)
			check("verify-ca", wal.TLS{Mode: "verify-ca", CA: ca}, encrypted)
			check("verify-full", wal.TLS{Mode: "verify-full", CA: ca}, encrypted)
			check("a ca alone verifies all", wal.TLS{CA: ca}, encrypted)
			check("verify-ca with another ca", wal.TLS{Mode: "verify-ca", CA: otherCA}, "unknown authority")
			check("verify-full with another ca", wal.TLS{Mode: "verify-full", CA: otherCA}, "unknown authority")
			check("verify-full without a ca trusts the system's", wal.TLS{Mode: "verify-full"}, "unknown authority")
			check("a ca alone, and it is another", wal.TLS{CA: otherCA}, "unknown authority")

			use(ours.Server(t, "db.example", later))
			check("verify-full with another name", wal.TLS{Mode: "verify-full", CA: ca}, "127.0.0.1")
			check("verify-ca does not look at the name", wal.TLS{Mode: "verify-ca", CA: ca}, encrypted)
			use(ours.Server(t, "127.0.0.1", time.Now().Add(-time.Hour)))
			check("verify-full, expired", wal.TLS{Mode: "verify-full", CA: ca}, "expired")
			check("verify-ca, expired", wal.TLS{Mode: "verify-ca", CA: ca}, "expired")
			use(ours.Server(t, "127.0.0.1", later))
			check("a certificate that was renewed needs no restart", wal.TLS{Mode: "verify-full", CA: ca}, encrypted)
		})
	}
}
