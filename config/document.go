package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// maxFile bounds the configuration file; it keeps a wrong path (a log, a database) from being parsed.
const maxFile = 4 << 20

// readFile gives the file's content, or a finding that says why not.
func readFile(path string) ([]byte, *Finding) {
	bad := func(text, hint string) *Finding { return &Finding{Code: codeFile, File: path, Text: text, Hint: hint} }
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, bad("there is no such file", "name it with -c FILE; `outtail init` prints one to begin with")
	case err != nil:
		return nil, bad("cannot be read: "+reason(err), "")
	case info.IsDir():
		return nil, bad("is a folder", "name the file in it with -c FILE")
	case info.Size() > maxFile:
		return nil, bad("is larger than 4 MiB, which no configuration is", "")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, bad("cannot be read: "+reason(err), "it has to be readable for the user that runs outtail")
	}
	return data, nil
}

// reason is an error without operation and path, which stand beside it.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// parse gives the root mapping of the one document.
func parse(file string, data []byte) (*yaml.Node, *Finding) {
	if f := checkText(file, data); f != nil {
		return nil, f
	}
	var doc yaml.Node
	if err := yaml.Load(data, &doc); err != nil {
		return nil, syntaxFinding(file, data, err)
	}
	root := &doc
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		return nil, &Finding{
			Code: codeSyntax, File: file, Line: max(root.Line, 1), Col: max(root.Column, 1),
			Text: "the file has to be a mapping, and is " + kindOf(root), Hint: "it begins with keys such as data_dir: and pipelines:",
		}
	}
	return root, nil
}

// checkText refuses what is no UTF-8 text, or nothing at all.
func checkText(file string, data []byte) *Finding {
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, n := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		line := 1 + bytes.Count(data[:at], []byte("\n"))
		col := 1 + utf8.RuneCount(data[bytes.LastIndexByte(data[:at], '\n')+1:at])
		return &Finding{Code: codeSyntax, File: file, Line: line, Col: col, Text: "is not UTF-8", Hint: "save the file as UTF-8"}
	}
	for _, line := range bytes.Split(data, []byte("\n")) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return nil
		}
	}
	return &Finding{Code: codeSyntax, File: file, Line: 1, Col: 1, Text: "the file is empty", Hint: "`outtail init` prints one to begin with"}
}

// syntaxFinding gives the parser's complaint a place, and the usual causes a hint.
func syntaxFinding(file string, data []byte, err error) *Finding {
	f := &Finding{Code: codeSyntax, File: file, Line: 1, Col: 1}
	var load *yaml.LoadError
	var several *yaml.LoadErrors
	switch {
	case errors.As(err, &load):
	case errors.As(err, &several) && len(several.Errors) > 0:
		load = several.Errors[0]
	default:
		f.Text = "is no YAML: " + err.Error()
		return f
	}
	f.Text = "is no YAML: " + strings.TrimPrefix(load.Message, "yaml: ")
	if strings.Contains(load.Message, "found multiple") {
		f.Text = "holds more than one document"
		f.Hint = "several pipelines are several entries of pipelines:"
		if i := bytes.LastIndex(data, []byte("\n---")); i >= 0 {
			f.Line = 2 + bytes.Count(data[:i], []byte("\n"))
		}
		return f
	}
	if load.Mark.Line > 0 {
		f.Line, f.Col = load.Mark.Line, max(load.Mark.Column, 1)
	}
	if load.ContextMsg != "" {
		f.Text += " " + load.ContextMsg
		if load.ContextMark.Line > 0 && load.ContextMark.Line != f.Line {
			f.Text += fmt.Sprintf(" that begins in line %d", load.ContextMark.Line)
		}
	}
	lines := bytes.Split(data, []byte("\n"))
	for _, n := range []int{load.ContextMark.Line, load.Mark.Line} {
		if n < 1 || n > len(lines) {
			continue
		}
		line := lines[n-1]
		indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		switch {
		case bytes.ContainsRune(indent, '\t'):
			f.Hint = "YAML is indented with spaces, not with tabs"
		case bytes.Contains(line, []byte("{")) && bytes.Contains(line, []byte(": ${")):
			f.Hint = `inside { } a value with ${…} needs quotes: { password: "${env:NAME}" }`
		}
	}
	return f
}

// kindOf says what a node is, for people.
func kindOf(n *yaml.Node) string {
	switch {
	case n == nil:
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "empty"
	}
	return "a single value"
}
