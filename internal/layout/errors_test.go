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
	"regexp"
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
			var made []code
			switch n := n.(type) {
			case *ast.CallExpr:
				made = called(n, consts)
			case *ast.FuncDecl:
				made = filledIn(n, consts)
			}
			for _, c := range made {
				if c.text == "…" && c.hint == "…" {
					continue // a constructor that is given all of it
				}
				c.pkg, c.place = f.Name.Name, fset.Position(n.Pos()).String()
				found = append(found, c)
			}
			lit, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if c, ok := warned(lit, consts); ok {
				c.pkg, c.place = f.Name.Name, fset.Position(lit.Pos()).String()
				found = append(found, c)
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
func called(call *ast.CallExpr, consts map[string]string) []code {
	if len(call.Args) < 3 {
		return nil
	}
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	class, ok := map[string]string{"fault": "record", "record": "record", "faultRow": "record", "immediate": "environment", "lacks": "environment",
		"safety": "safety", "stops": "safety"}[name]
	c := code{code: text(call.Args[0], consts), class: class}
	if !ok || !strings.HasPrefix(c.code, "OT") {
		return nil
	}
	c.class = cmp.Or(classIn(call), c.class)
	if name == "stops" { // the places where to go on, behind the text
		c.text, c.hint = text(call.Args[1], consts), waysPrinted
		return []code{c}
	}
	n := len(call.Args)
	c.text, c.hint = text(call.Args[n-2], consts), text(call.Args[n-1], consts)
	return []code{c}
}

// waysPrinted stands for a list of commands that is made at run time.
const waysPrinted = "choose one of the ways that the stop prints"

// warned reads what is logged at a start that goes on: a code and a text without keys.
func warned(lit *ast.CompositeLit, consts map[string]string) (code, bool) {
	name, ok := lit.Type.(*ast.Ident)
	if !ok || name.Name != "warning" || len(lit.Elts) != 2 {
		return code{}, false
	}
	return code{code: text(lit.Elts[0], consts), class: "-", text: text(lit.Elts[1], consts), hint: "a warning: the start goes on"}, true
}

// filledIn finds the faults whose code and text a function puts in as it tells the causes apart: `f.Code, f.Text = …`, and what
// the statements behind it put in as well. Class is that of what f was made as.
func filledIn(fn *ast.FuncDecl, consts map[string]string) (found []code) {
	classes := map[string]string{} // of what the variable was made as last
	list := func(stmts []ast.Stmt) {
		var c *code
		var of string
		end := func() {
			if c != nil && c.text != "" {
				found = append(found, *c)
			}
			c = nil
		}
		defer end()
		for _, s := range stmts {
			as, ok := s.(*ast.AssignStmt)
			if !ok || len(as.Lhs) != len(as.Rhs) {
				end()
				continue
			}
			for i, l := range as.Lhs {
				if id, ok := l.(*ast.Ident); ok {
					if class := classIn(as.Rhs[i]); class != "" {
						classes[id.Name] = class
					}
				}
				sel, ok := l.(*ast.SelectorExpr)
				if !ok {
					continue
				}
				id, ok := sel.X.(*ast.Ident)
				if !ok {
					continue
				}
				is := text(as.Rhs[i], consts)
				if sel.Sel.Name == "Code" && strings.HasPrefix(is, "OT") {
					end()
					c, of = &code{code: is, class: classes[id.Name], hint: "…"}, id.Name
				}
				if c == nil || id.Name != of {
					continue
				}
				switch sel.Sel.Name {
				case "Class":
					c.class = strings.ToLower(is)
				case "Text":
					c.text = is
				case "Hint":
					c.hint = is
				}
			}
		}
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			list(n.List)
		case *ast.CaseClause:
			list(n.Body)
		}
		return true
	})
	return found
}

// classIn is the class that an expression names, event.Retry and the like.
func classIn(e ast.Expr) (class string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && class == "" {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == "event" && slices.Contains([]string{"Retry", "Config", "Record", "Environment", "Safety", "Usage", "Internal"}, sel.Sel.Name) {
				class = strings.ToLower(sel.Sel.Name)
			}
		}
		return true
	})
	return class
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
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "ways" {
			return waysPrinted
		}
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sprintf" && len(e.Args) > 0 {
			s := text(e.Args[0], consts)
			for _, verb := range []string{"%s", "%q", "%d", "%v", "%X", "%x", "%w", "%.1f", "%t"} {
				s = strings.ReplaceAll(s, verb, "…")
			}
			return strings.ReplaceAll(s, "%%", "%")
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

// TestEveryCodeIsInTheTable: however it is made.
func TestEveryCodeIsInTheTable(t *testing.T) {
	top := root(t)
	table, err := os.ReadFile(filepath.Join(top, "docs", "ERRORS.md"))
	require.NoError(t, err)
	form := regexp.MustCompile(`^"OT\d{4}"$`)
	fset := token.NewFileSet()
	files(t, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
			return
		}
		f, err := parser.ParseFile(fset, filepath.Join(top, path), nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && form.MatchString(lit.Value) && !strings.Contains(string(table), "\n| "+lit.Value[1:7]+" ") {
				t.Errorf("%s: docs/ERRORS.md does not have %s", fset.Position(lit.Pos()), lit.Value)
			}
			return true
		})
	})
}
