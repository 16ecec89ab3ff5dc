package layout

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/ERRORS.md anew")

type code struct {
	code, class, op, text, hint, pkg, place string
}

// codes finds every event.Fault literal with a Code in the product's source.
func codes(t *testing.T) []code {
	top := root(t)
	var found, comments []code
	all := map[string]string{} // constants of all packages, PACKAGE.NAME
	fset := token.NewFileSet()
	var parsed []*ast.File
	files(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
			return
		}
		f, err := parser.ParseFile(fset, filepath.Join(top, path), nil, parser.ParseComments)
		require.NoError(t, err)
		parsed = append(parsed, f)
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
				for i, name := range v.Names {
					if s := text(v.Values[i], nil); strings.HasPrefix(s, "OT") && len(s) == 6 {
						all[f.Name.Name+"."+name.Name] = s
						if v.Comment != nil {
							comments = append(comments, code{code: s, text: strings.TrimSpace(v.Comment.Text()), class: "-", hint: "the finding says where and what to do"})
						}
					}
				}
			}
			return true
		})
	})
	for _, f := range parsed {
		consts := map[string]string{}
		for k, v := range all {
			if name, ok := strings.CutPrefix(k, f.Name.Name+"."); ok {
				consts[name] = v
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if c, ok := called(call, consts); ok {
					c.pkg, c.place = f.Name.Name, fset.Position(call.Pos()).String()
					found = append(found, c)
				}
				return true
			}
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			c := code{pkg: f.Name.Name, place: fset.Position(lit.Pos()).String()}
			for _, e := range lit.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				key, _ := kv.Key.(*ast.Ident)
				if key == nil {
					continue
				}
				switch key.Name {
				case "Code":
					c.code = text(kv.Value, consts)
				case "Class":
					c.class = strings.ToLower(text(kv.Value, nil))
				case "Op":
					c.op = text(kv.Value, nil)
				case "Text":
					c.text = text(kv.Value, nil)
				case "Hint":
					c.hint = text(kv.Value, nil)
				}
			}
			if strings.HasPrefix(c.code, "OT") && c.class != "" {
				found = append(found, c)
			}
			return true
		})
	}
	for _, c := range comments { // of codes that are only ever filled in
		if !slices.ContainsFunc(found, func(f code) bool { return f.code == c.code }) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b code) int { return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(a.text, b.text)) })
	return found
}

// called reads a call of a package's constructor of faults: the code first, then maybe a class, and text and hint last.
func called(call *ast.CallExpr, consts map[string]string) (code, bool) {
	if len(call.Args) < 3 {
		return code{}, false
	}
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	class, ok := map[string]string{"fault": "record", "record": "record", "immediate": "environment", "safety": "safety"}[name]
	c := code{code: text(call.Args[0], consts), class: class}
	if !ok || !strings.HasPrefix(c.code, "OT") {
		return c, false
	}
	for _, a := range call.Args {
		if sel, ok := a.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == "event" {
				c.class = strings.ToLower(sel.Sel.Name)
			}
		}
	}
	n := len(call.Args)
	c.text, c.hint = text(call.Args[n-2], consts), text(call.Args[n-1], consts)
	return c, true
}

// text renders the constant parts of an expression; what is put in at run time becomes "…".
func text(e ast.Expr, consts map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil {
			return s
		}
	case *ast.BinaryExpr:
		return text(e.X, consts) + text(e.Y, consts)
	case *ast.SelectorExpr:
		if id, ok := e.X.(*ast.Ident); ok && id.Name == "event" {
			return e.Sel.Name
		}
	case *ast.Ident:
		if s, ok := consts[e.Name]; ok {
			return s
		}
	case *ast.CallExpr:
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sprintf" && len(e.Args) > 0 {
			s := text(e.Args[0], consts)
			for _, verb := range []string{"%s", "%q", "%d", "%v", "%X", "%x", "%w", "%.1f", "%t"} {
				s = strings.ReplaceAll(s, verb, "…")
			}
			return s
		}
	}
	return "…"
}

func TestEveryFaultSaysWhatToDo(t *testing.T) {
	for _, c := range codes(t) {
		if c.hint == "" {
			t.Errorf("%s: %s has no hint", c.place, c.code)
		}
	}
}

func TestErrorsAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Error codes\n\nEvery error that an operator sees has a code, a class, the place, and a hint. The class says what outtail does:\n" +
		"*retry* tries again for ever; *config* holds and looks again slowly; *record* applies the event's poison policy; *environment* ends a start with exit code 3 and is retried later;\n" +
		"*safety* stops with exit code 4 until a person decides; *usage* is exit code 2; *internal* is a bug. \"…\" stands for what is filled in.\n\n" +
		"This file is made from the source: `go test ./internal/layout -update`.\n\n| code | class | what | hint |\n|---|---|---|---|\n")
	cell := strings.NewReplacer("|", "\\|", "\n", "<br>")
	seen := map[string]bool{}
	for _, c := range codes(t) {
		what := c.text
		if c.op != "" && c.op != "…" {
			what = c.op + ": " + what
		}
		line := fmt.Sprintf("| %s | %s | %s | %s |\n", c.code, c.class, cell.Replace(what), cell.Replace(c.hint))
		if !seen[line] {
			b.WriteString(line)
			seen[line] = true
		}
	}
	path := filepath.Join(root(t), "docs", "ERRORS.md")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, string(have) == b.String(), "docs/ERRORS.md is not current: go test ./internal/layout -update")
}
