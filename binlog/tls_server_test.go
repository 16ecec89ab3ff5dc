package binlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/binlog"
	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/harness"
)

func TestB151ProtectionIsWhatWasAskedForOrTheStartFails(t *testing.T) {
	for _, kind := range []string{event.MySQL, event.MariaDB} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ours, theirs := harness.NewAuthority(t, "ours"), harness.NewAuthority(t, "theirs")
			later := time.Now().Add(24 * time.Hour)
			cert, key := ours.Server(t, "127.0.0.1", later)
			m := harness.StartMySQL(t, harness.MySQLOptions{
				MariaDB: kind == event.MariaDB,
				Files:   map[string]string{"/tmp/ca.pem": ours.PEM, "/tmp/cert.pem": cert, "/tmp/key.pem": key},
				Flags:   []string{"--ssl-ca=/tmp/ca.pem", "--ssl-cert=/tmp/cert.pem", "--ssl-key=/tmp/key.pem"},
			})
			b := newBench(t, m)
			b.kind = kind
			b.run(t, "CREATE TABLE outbox "+outboxColumns)
			o := b.options(t, "outbox")
			reload := "ALTER INSTANCE RELOAD TLS"
			if kind == event.MariaDB {
				reload = "FLUSH SSL"
			}
			ca, otherCA := ours.File(t), theirs.File(t)

			// encrypted: whether the session is; code: the refusal, "" for none.
			type expectation struct {
				tls       binlog.TLS
				encrypted bool
				code      string
				hint      string
			}
			check := func(t *testing.T, name string, e expectation) {
				t.Helper()
				t.Run(name, func(t *testing.T) {
					o := o
					o.TLS = e.tls
					s, err := tryOpen(t, o, event.Checkpoint{})
					if e.code != "" {
						f := requireFault(t, err, e.code, event.Environment)
						require.Contains(t, f.Hint, e.hint)
						return
					}
					require.NoError(t, err)
					cipher := b.Scalar(t, "", "SELECT COUNT(*) FROM information_schema.processlist WHERE user = ? AND command LIKE 'Binlog Dump%'", o.User)
					require.Equal(t, "1", cipher)
					if kind == event.MySQL {
						used := b.Scalar(t, "", "SELECT connection_type FROM performance_schema.threads WHERE processlist_id = ?", s.LockConnection())
						require.Equal(t, e.encrypted, used == "SSL/TLS", used)
					}
					b.run(t, "INSERT INTO outbox (payload) VALUES ('over the wire')")
					require.Equal(t, "over the wire", s.read(t, 1)[0].payload)
					require.NoError(t, s.Close())
				})
			}
			check(t, "disable", expectation{tls: binlog.TLS{Mode: "disable"}})
			check(t, "prefer", expectation{tls: binlog.TLS{Mode: "prefer"}, encrypted: true})
			check(t, "no mode", expectation{encrypted: true})
			check(t, "require", expectation{tls: binlog.TLS{Mode: "require"}, encrypted: true})
			check(t, "verify-ca", expectation{tls: binlog.TLS{Mode: "verify-ca", CA: ca}, encrypted: true})
			check(t, "verify-full", expectation{tls: binlog.TLS{Mode: "verify-full", CA: ca}, encrypted: true})
			check(t, "a ca alone verifies all", expectation{tls: binlog.TLS{CA: ca}, encrypted: true})
			check(t, "verify-ca with another ca", expectation{tls: binlog.TLS{Mode: "verify-ca", CA: otherCA}, code: "OT3003", hint: "tls.ca"})
			check(t, "verify-full with another ca", expectation{tls: binlog.TLS{Mode: "verify-full", CA: otherCA}, code: "OT3003", hint: "tls.ca"})
			check(t, "verify-full without a ca trusts the system's", expectation{tls: binlog.TLS{Mode: "verify-full"}, code: "OT3003", hint: "tls.ca"})
			check(t, "a ca alone, and it is another", expectation{tls: binlog.TLS{CA: otherCA}, code: "OT3003", hint: "tls.ca"})

			replace := func(host string, until time.Time) {
				cert, key := ours.Server(t, host, until)
				m.WriteFile(t, "/tmp/cert.pem", cert)
				m.WriteFile(t, "/tmp/key.pem", key)
				b.run(t, reload)
			}
			replace("db.example", later)
			check(t, "verify-full with another name", expectation{tls: binlog.TLS{Mode: "verify-full", CA: ca}, code: "OT3003", hint: "verify-ca"})
			check(t, "verify-ca does not look at the name", expectation{tls: binlog.TLS{Mode: "verify-ca", CA: ca}, encrypted: true})
			// MySQL loads no certificate that has expired: it must do so in use.
			soon := time.Now().Add(10 * time.Second)
			replace("127.0.0.1", soon)
			<-time.After(time.Until(soon.Add(time.Second)))
			check(t, "verify-full, expired", expectation{tls: binlog.TLS{Mode: "verify-full", CA: ca}, code: "OT3003", hint: "renew"})
			check(t, "verify-ca, expired", expectation{tls: binlog.TLS{Mode: "verify-ca", CA: ca}, code: "OT3003", hint: "renew"})
			check(t, "prefer does not fall back from a certificate that it does not look at", expectation{tls: binlog.TLS{Mode: "prefer"}, encrypted: true})
			replace("127.0.0.1", later)
			check(t, "a certificate that was renewed needs no restart", expectation{tls: binlog.TLS{Mode: "verify-full", CA: ca}, encrypted: true})
		})
	}
}

func TestB151AServerWithoutTLS(t *testing.T) {
	for kind, flags := range map[string][]string{event.MySQL: {"--tls-version="}, event.MariaDB: {"--skip-ssl"}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, harness.StartMySQL(t, harness.MySQLOptions{MariaDB: kind == event.MariaDB, Flags: flags}))
			b.kind = kind
			b.run(t, "CREATE TABLE outbox "+outboxColumns)
			o := b.options(t, "outbox")
			for mode, code := range map[string]string{"": "", "disable": "", "prefer": "", "require": "OT3003", "verify-ca": "OT3003", "verify-full": "OT3003"} {
				o.TLS.Mode = mode
				s, err := tryOpen(t, o, event.Checkpoint{})
				if code == "" {
					require.NoError(t, err, mode)
					require.NoError(t, s.Close())
					continue
				}
				f := requireFault(t, err, code, event.Environment)
				require.Contains(t, f.Error(), "TLS", mode)
				require.Contains(t, f.Hint, "tls.mode: disable", mode)
			}
		})
	}
}
