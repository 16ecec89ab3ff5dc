package demo

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Fetches the real binaries into an empty cache and starts them: heavier than a unit test may be, and it needs a Maven
// repository.
func TestPostgresIsFetchedVerifiedAndStarted(t *testing.T) {
	if os.Getenv("OUTTAIL_SERVERS") != "1" {
		t.Skip("downloads Postgres from a Maven repository and starts it; OUTTAIL_SERVERS=1 runs it")
	}
	var unreachable net.Error
	var notes bytes.Buffer
	cache := t.TempDir()
	options, err := FromEnv(os.Getenv)
	require.NoError(t, err)
	options.Notes = &notes
	options = options.withDefaults()

	b, err := fetchBinaries(t.Context(), options, cache)
	if errors.As(err, &unreachable) {
		t.Skipf("no Maven repository can be reached: %v", err)
	}
	require.NoError(t, err)
	require.Contains(t, notes.String(), postgresVersion)
	again, err := findBinaries(t.Context(), Options{Repository: "http://127.0.0.1:1", Notes: &notes}, cache)
	require.NoError(t, err, "the second time the cache is enough")
	require.Equal(t, b.bin, again.bin)

	n := newNursery()
	t.Cleanup(n.close)
	folder, err := os.MkdirTemp("", "outtail-demo-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	require.NoError(t, os.Chmod(folder, 0o711))
	p, err := startPostgres(t.Context(), n, b, folder)
	require.NoError(t, err)
	t.Cleanup(func() { p.stop(false) })
	require.Regexp(t, `^17\.`, p.version)

	session, err := p.connect(t.Context(), "postgres", "postgres")
	require.NoError(t, err)
	var level string
	require.NoError(t, session.QueryRow(t.Context(), "SHOW wal_level").Scan(&level))
	require.Equal(t, "logical", level)
	require.NoError(t, session.Close(t.Context()))

	p.stop(true)
	require.True(t, p.process.gone(time.Minute))
}
