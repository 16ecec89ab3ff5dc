package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// startingPostgres answers everybody as a server does that is not up yet.
func startingPostgres(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	serving.Go(func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				b := pgproto3.NewBackend(c, c)
				for {
					m, err := b.ReceiveStartupMessage()
					if err != nil {
						return
					}
					if _, tls := m.(*pgproto3.SSLRequest); !tls {
						break
					}
					if _, err := c.Write([]byte("N")); err != nil {
						return
					}
				}
				b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P03", Message: "the database system is starting up"})
				_ = b.Flush()
			})
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// Who asks the doctor about a server that is just starting, or not there, reads the finding of a start, and how long that one waits.
func TestDoctorAndRunAgreeOnAServerThatIsNotUp(t *testing.T) {
	closed := func(t *testing.T) int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		return l.Addr().(*net.TCPAddr).Port
	}
	for name, c := range map[string]struct {
		source     string
		port       func(*testing.T) int
		code, text string
	}{
		"postgres starts":       {"postgres: { user: u, database: d, tables: [public.outbox], start: now, port: %d }", startingPostgres, "OT2004", "the server is starting up, shutting down or recovering"},
		"postgres is not there": {"postgres: { user: u, database: d, tables: [public.outbox], start: now, port: %d }", closed, "OT2001", "the server cannot be reached"},
		"mysql is not there":    {"mysql: { user: u, database: d, tables: [d.outbox], start: now, port: %d }", closed, "OT3001", "the server cannot be reached"},
		"mariadb is not there":  {"mariadb: { user: u, database: d, tables: [d.outbox], start: now, port: %d }", closed, "OT3001", "the server cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "outtail.yaml")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
data_dir: %s
start_timeout: 300ms
admin: { listen: "" }
pipelines:
  - name: orders
    source: { %s }
    routes: [{ topic: orders }]
    sink: { stdout: {} }
`, filepath.Join(dir, "data"), fmt.Sprintf(c.source, c.port(t))), 0o600))
			said, _ := ended(t, exitEnvironment, "doctor", "-c", file, "--json")
			require.Contains(t, said, c.text)
			require.Contains(t, said, "a start says "+c.code+", tries again for start_timeout (300ms) and then ends with exit code 3")
			require.Equal(t, 1, strings.Count(said, "connection refused")+strings.Count(said, "database system is starting"), "the cause is told once: %s", said)
			_, log := ended(t, exitEnvironment, "run", "-c", file)
			require.Contains(t, log, c.code)
			require.NotRegexp(t, `connection refused\\n.*connection refused`, log)
			require.Contains(t, log, c.text)
			require.Contains(t, log, "tries again for start_timeout (300ms)")
			require.Contains(t, log, "gave up after start_timeout (300ms)")
		})
	}
}
