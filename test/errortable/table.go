// Package errortable is for tests that go through every error a library knows, so that one which a new version brings fails a test until
// somebody has decided what it means.
package errortable

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Names finds errors in a package's source: each is what the pattern's groups match in a line. Libraries have no lists of them.
func Names(t testing.TB, pkg, pattern string) (all [][]string) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	require.NoError(t, err)
	re := regexp.MustCompile("(?m)" + pattern)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range re.FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1:])
		}
	}
	require.NotEmpty(t, all, "no error in %s", pkg)
	return all
}

// Check compares what is made of each error with the committed table, testdata/errors.txt, or writes it where update is set.
func Check(t testing.TB, update bool, got string) {
	t.Helper()
	file := filepath.Join("testdata", "errors.txt")
	if update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "errors of a library that nobody has decided about, or that are decided otherwise now: see the classifier, and run this test with -update")
}
