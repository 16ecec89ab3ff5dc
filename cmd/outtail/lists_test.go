package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/event"
)

// told runs a command line that succeeds, and gives what it printed.
func told(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	return ended(t, exitOK, args...)
}

// ended runs a command line, expects its exit code, and gives what it printed.
func ended(t *testing.T, exit int, args ...string) (stdout, stderr string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer out.Close()
	errs, err := os.Create(filepath.Join(t.TempDir(), "err"))
	require.NoError(t, err)
	defer errs.Close()
	code := execute(t.Context(), args, out, errs)
	b, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	e, err := os.ReadFile(errs.Name())
	require.NoError(t, err)
	require.Equal(t, exit, code, "%s%s", b, e)
	return string(b), string(e)
}

// aligned demands that each column begins under its heading, in each of so many lines.
func aligned(t *testing.T, table string, rows int) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	require.Len(t, lines, rows+1)
	for _, heading := range strings.Fields(lines[0]) {
		at := strings.Index(lines[0], heading)
		for _, line := range lines[1:] {
			require.GreaterOrEqual(t, len(line), at, line)
			require.True(t, at == 0 || line[at-1] == ' ', "%s: %s", heading, line)
		}
	}
	return lines[1:]
}

// Lists of nothing, of one and of many are read alike, whatever the texts in them hold.
func TestListsOfNoneOneAndMany(t *testing.T) {
	for _, n := range []int{0, 1, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "outtail.yaml")
			require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
data_dir: %s
pipelines:
  - name: orders
    source: { postgres: { user: u, database: d, tables: [public.outbox], start: now } }
    routes: [{ topic: orders }]
    sink: { stdout: {} }
`, filepath.Join(dir, "data")), 0o600))
			store, err := checkpoint.Open(checkpoint.Options{Dir: filepath.Join(dir, "data"), Version: "test"})
			require.NoError(t, err)
			letters := store.DeadLetters()
			var all []event.Parking
			for i := range int64(n) {
				one := letter(i, 0, `{"n": 1}`)
				if i == 0 {
					one.Entry.ID, one.Entry.Text = "red \x1b[31m\tid\n", "line\nline"
				}
				all = append(all, one)
			}
			require.NoError(t, letters.Park(t.Context(), "orders", all))
			for i := range n {
				require.NoError(t, letters.Audit(checkpoint.Audit{Operator: "ann", Action: checkpoint.ActionSkip, Pipeline: "orders", Reason: fmt.Sprintf("why\t%d\n", i), Outcome: checkpoint.OutcomeDone}))
				if i == 99 {
					break // each is one fsync
				}
			}
			require.NoError(t, store.Close())

			list, said := told(t, "dlq", "list", "-c", file)
			audit, none := told(t, "audit", "-c", file)
			if n == 0 {
				require.Empty(t, list)
				require.Equal(t, "nothing is parked\n", said)
				require.Empty(t, audit)
				require.Equal(t, "nobody has changed anything so far\n", none)
				_, never := told(t, "checkpoint", "history", "-c", file)
				require.Equal(t, "nothing was stored so far\n", never)
				return
			}
			require.Contains(t, said, fmt.Sprintf("%d parked", n))
			rows := aligned(t, list, n)
			require.Contains(t, rows[0], `red \x1b[31m\tid\n`)
			require.Contains(t, rows[0], `line\nline`)
			require.Regexp(t, `^orders +0 `, rows[0])
			require.Regexp(t, fmt.Sprintf(`^orders +%d `, n-1), rows[n-1])
			acts := aligned(t, audit, min(n, 100))
			require.Contains(t, acts[0], `why\t0\n`)
			_, said = told(t, "dlq", "list", "-c", file, "--number", fmt.Sprint(n-1))
			require.Contains(t, said, "1 parked")
		})
	}
}
