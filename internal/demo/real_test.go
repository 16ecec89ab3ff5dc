package demo_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/internal/demo"
	"github.com/outtail/outtail/test/harness"
)

// The demo as `make demo` runs it, shorter: a real Postgres, the real outtail, several kills, a good verdict, and
// nothing left behind.
func TestTheDemoEndsWithAGoodVerdictAndLeavesNothing(t *testing.T) {
	harness.Required(t)
	binary := os.Getenv("OUTTAIL_BINARY")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "outtail")
		build := exec.Command("go", "build", "-o", binary, "./cmd/outtail")
		build.Dir = harness.ModuleRoot(t)
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	temporary, err := os.MkdirTemp("", "outtail-demo-run-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(temporary)) })
	require.NoError(t, os.Chmod(temporary, 0o711)) // Postgres is another user where this one is root
	t.Setenv("TMPDIR", temporary)

	options, err := demo.FromEnv(os.Getenv)
	require.NoError(t, err)
	var out, notes bytes.Buffer
	options.Binary, options.Out, options.Notes = binary, &out, &notes
	options.Duration, options.KillEvery = 10*time.Second, 3*time.Second

	err = demo.Run(context.Background(), options)
	require.NoError(t, err, "%s\n%s", notes.String(), out.String())
	require.Regexp(t, `verdict after .* and [1-9]\d* kill`, out.String())
	require.Regexp(t, `lost +0\n`, out.String())
	require.Regexp(t, `out of order +0\n`, out.String())
	require.Regexp(t, `orders committed +[1-9]`, out.String())

	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}
