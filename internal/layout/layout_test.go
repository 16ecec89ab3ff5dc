// Package layout holds the rules of the house as tests: who may import whom, which words the project does not use, how
// long a file may be, and that the list of error codes in the docs is current.
package layout

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/outtail/outtail/"

// allowed lists, per package, the packages of this module that it may import: the arrows of docs/ARCHITECTURE.md. A
// package that is not listed must be added here, with thought. test/ and cmd/ may import everything.
var allowed = map[string][]string{
	"event":               {},
	"pipeline":            {"event"},
	"binlog":              {"event", "internal/slab"},
	"wal":                 {"event", "internal/slab"},
	"router":              {"event", "internal/arena", "internal/glob", "internal/rowheaders", "internal/template", "internal/topicname"},
	"transform":           {"event", "internal/arena", "internal/rowheaders"},
	"checkpoint":          {"event", "internal/owner"},
	"sink/kafka":          {"event", "internal/glob", "internal/topicname"},
	"sink/stdout":         {"event"},
	"sink/sinktest":       {"event"},
	"config":              {"event", "internal/glob", "internal/suggest", "internal/template", "internal/topicname"},
	"metrics":             {"event", "pipeline"},
	"admin":               {"event"},
	"doctor":              {"event"},
	"internal/arena":      {},
	"internal/control":    {"event", "internal/owner"},
	"internal/demo":       {"event"},
	"internal/glob":       {},
	"internal/layout":     {},
	"internal/owner":      {},
	"internal/rowheaders": {"internal/arena"},
	"internal/slab":       {},
	"internal/suggest":    {},
	"internal/template":   {"event", "internal/suggest"},
	"internal/topicname":  {},
}

// forbidden libraries: event stands on the standard library alone; routing and transforming touch neither network, files
// nor processes.
var forbidden = map[string][]string{
	"event":     {"net", "os", "os/exec"},
	"router":    {"net", "os", "os/exec", "net/http"},
	"transform": {"net", "os", "os/exec", "net/http"},
}

type pkg struct {
	ImportPath string
	Imports    []string
	Module     *struct{ Main bool }
}

func packages(t *testing.T) []pkg {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Module", module+"...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	require.NoError(t, err)
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

func root(t *testing.T) string {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	require.NoError(t, err)
	return filepath.Dir(strings.TrimSpace(string(out)))
}

func TestWhoImportsWhom(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		seen[name] = true
		if strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "test/") {
			continue
		}
		may, known := allowed[name]
		if !known {
			t.Errorf("package %s is not in the table of arrows", name)
			continue
		}
		for _, imp := range p.Imports {
			if inner, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(may, inner) {
				t.Errorf("%s imports %s: no such arrow", name, inner)
			}
			if slices.Contains(forbidden[name], imp) {
				t.Errorf("%s imports %s", name, imp)
			}
			if name == "event" && strings.Contains(strings.Split(imp, "/")[0], ".") {
				t.Errorf("event imports %s: it stands on the standard library alone", imp)
			}
		}
	}
	for name := range allowed {
		if !seen[name] {
			t.Errorf("the table of arrows lists %s, which does not exist", name)
		}
	}
}

// files walks the repository's text files that are kept under version control.
func files(t *testing.T, visit func(path string)) {
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); n == ".git" || n == "bin" || n == "data" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(top, path)
		if err == nil {
			visit(rel)
		}
		return err
	})
	require.NoError(t, err)
}

func TestGoFilesAreShortEnoughToRead(t *testing.T) {
	top := root(t)
	files(t, func(path string) {
		if !strings.HasSuffix(path, ".go") {
			return
		}
		f, err := os.Open(filepath.Join(top, path))
		require.NoError(t, err)
		defer f.Close()
		n := 0
		for s := bufio.NewScanner(f); s.Scan(); {
			n++
		}
		if n > 700 {
			t.Errorf("%s has %d lines; 700 is the limit", path, n)
		}
	})
}

func TestEveryDirectDependencyHasItsReason(t *testing.T) {
	top := root(t)
	mod, err := os.ReadFile(filepath.Join(top, "go.mod"))
	require.NoError(t, err)
	doc, err := os.ReadFile(filepath.Join(top, "docs", "DEPENDENCIES.md"))
	require.NoError(t, err)
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || !strings.Contains(fields[0], ".") || !strings.HasPrefix(fields[1], "v") {
			continue // a directive, or indirect
		}
		if !strings.Contains(string(doc), fields[0]) {
			t.Errorf("docs/DEPENDENCIES.md does not say what %s is for", fields[0])
		}
	}
}
