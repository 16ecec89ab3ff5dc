package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/outtail/outtail/internal/suggest"
)

// reader walks the parsed file and collects what is wrong with it. Sections are read key by key with their defaults; a key
// that nobody asked for is a finding, so the code that reads a section is also its list of keys.
type reader struct {
	file string
	env  Environment
	// noSecrets leaves secrets empty and unresolved.
	noSecrets bool
	findings  Findings
	warnings  Findings
	// merges counts the mappings taken in by <<, which could otherwise grow exponentially.
	merges int
	// keys, where not nil, is told of every key that is known, with the indices of its path removed.
	keys map[string]bool
}

const maxMerges = 1000

func (r *reader) fault(n *yaml.Node, code, path, text, hint string) {
	r.findings = append(r.findings, r.finding(n, code, path, text, hint))
}

func (r *reader) warn(n *yaml.Node, code, path, text, hint string) {
	r.warnings = append(r.warnings, r.finding(n, code, path, text, hint))
}

func (r *reader) finding(n *yaml.Node, code, path, text, hint string) Finding {
	return Finding{Code: code, File: r.file, Line: n.Line, Col: n.Column, Path: path, Text: text, Hint: hint}
}

// field is one key of a section with its value; a field that was not written has neither.
type field struct {
	r     *reader
	path  string
	key   *yaml.Node
	value *yaml.Node
	// home is where a finding about an absent field points.
	home *yaml.Node
}

// set reports whether the key was written.
func (f field) set() bool { return f.value != nil }

// at is the node that a finding about the field points to.
func (f field) at() *yaml.Node {
	if f.value == nil {
		return f.home
	}
	return f.value
}

func (f field) bad(code, text, hint string) { f.r.fault(f.at(), code, f.path, text, hint) }

func (f field) warn(code, text, hint string) { f.r.warn(f.at(), code, f.path, text, hint) }

// shown is the value as it stands in the file, for findings.
func (f field) shown() string {
	const limit = 60
	s := f.value.Value
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return strconv.Quote(s)
}

// section is a mapping that is being read.
type section struct {
	r      *reader
	path   string
	node   *yaml.Node
	fields map[string]field
	order  []string
	known  []string
}

// section opens the field as a mapping; nil where it is none (a finding unless it is absent). An empty value is an empty
// mapping.
func (f field) section() *section {
	if !f.set() {
		return nil
	}
	s := &section{r: f.r, path: f.path, node: f.value, fields: map[string]field{}}
	if f.key != nil {
		s.node = f.key
	}
	n := f.value
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return s
	}
	if n.Kind != yaml.MappingNode {
		f.bad(codeType, "has to be a mapping, and is "+kindOf(n), "")
		return nil
	}
	s.take(n, map[string]*yaml.Node{}, 0)
	return s
}

// take adds the keys of a mapping; the mappings that it merges come last and lose against its own keys.
func (s *section) take(n *yaml.Node, merged map[string]*yaml.Node, depth int) {
	own := map[string]*yaml.Node{}
	var later []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], target(n.Content[i+1])
		if key.Tag == "!!merge" {
			later = append(later, value)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			s.r.fault(key, codeType, s.path, "a key has to be a word, and is "+kindOf(key), "")
			continue
		}
		name := key.Value
		if first, twice := own[name]; twice {
			s.r.fault(key, codeDuplicate, s.child(name), fmt.Sprintf("stands twice, first in line %d", first.Line), "remove one of them")
			continue
		}
		own[name] = key
		if _, ok := merged[name]; ok {
			continue
		}
		merged[name] = key
		s.fields[name] = field{r: s.r, path: s.child(name), key: key, value: value}
		s.order = append(s.order, name)
	}
	for _, value := range later {
		s.merge(value, merged, depth+1)
	}
}

func (s *section) merge(value *yaml.Node, merged map[string]*yaml.Node, depth int) {
	s.r.merges++
	if depth > 20 || s.r.merges > maxMerges {
		if s.r.merges <= maxMerges+1 {
			s.r.fault(value, codeSyntax, s.path, "<< is nested too deeply or used too often", "write the keys out")
			s.r.merges = maxMerges + 1
		}
		return
	}
	switch value.Kind {
	case yaml.MappingNode:
		s.take(value, merged, depth)
	case yaml.SequenceNode:
		for _, item := range value.Content {
			s.merge(target(item), merged, depth+1)
		}
	default:
		s.r.fault(value, codeType, s.path, "<< takes a mapping or a list of mappings", "")
	}
}

// target follows an alias.
func target(n *yaml.Node) *yaml.Node {
	for range 10 {
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			return n
		}
		n = n.Alias
	}
	return n
}

func (s *section) child(name string) string {
	if s.path == "" {
		return name
	}
	return s.path + "." + name
}

// get asks for a key and makes it known.
func (s *section) get(name string) field {
	if !slices.Contains(s.known, name) {
		s.known = append(s.known, name)
	}
	if s.r.keys != nil {
		s.r.keys[withoutIndices(s.child(name))] = true
	}
	if f, ok := s.fields[name]; ok {
		return f
	}
	return field{r: s.r, path: s.child(name), home: s.node}
}

func withoutIndices(path string) string {
	var b strings.Builder
	skip := false
	for _, c := range path {
		switch {
		case c == '[':
			skip = true
		case c == ']':
			skip = false
		case !skip:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// close reports the keys that nobody asked for, and how many there were.
func (s *section) close() int {
	known := map[string]bool{}
	for _, k := range s.known {
		known[k] = true
	}
	unknown := 0
	for _, name := range s.order {
		if known[name] {
			continue
		}
		unknown++
		hint := suggest.DidYouMean(name, s.known)
		if hint == "" {
			hint = "keys here are " + strings.Join(s.known, ", ")
		}
		s.r.fault(s.fields[name].key, codeUnknown, s.child(name), "unknown key", hint)
	}
	return unknown
}

// text resolves the scalar; ok is false where it is absent or a finding was made.
func (f field) text() (text string, ok bool) {
	text, bad := f.peek()
	f.r.findings = append(f.r.findings, bad...)
	return text, f.set() && len(bad) == 0
}

// peek is text without making findings; it gives them.
func (f field) peek() (text string, bad Findings) {
	if !f.set() {
		return "", nil
	}
	n := f.value
	if n.Kind != yaml.ScalarNode {
		return "", Findings{f.r.finding(n, codeType, f.path, "has to be a single value, and is "+kindOf(n), "")}
	}
	if n.Tag == "!!null" {
		return "", Findings{f.r.finding(n, codeType, f.path, "has no value", `write "" for an empty text, or leave the key out`)}
	}
	text, errs := resolve(n.Value, f.r.env)
	for _, e := range errs {
		bad = append(bad, f.r.finding(n, codeReference, f.path, e.text, e.hint))
	}
	return text, bad
}

// broken reports whether one of the fields was written and has no value: what it lacks is then no second finding.
func broken(fields ...field) bool {
	for _, f := range fields {
		if _, bad := f.peek(); len(bad) > 0 {
			return true
		}
	}
	return false
}

// str is a text; def where it is absent or wrong.
func (f field) str(def string) string {
	if text, ok := f.text(); ok {
		return text
	}
	return def
}

// required is a text that must be there and not be empty.
func (f field) required(hint string) string {
	if !f.set() {
		f.bad(codeMissing, "is required", hint)
		return ""
	}
	text, ok := f.text()
	if ok && strings.TrimSpace(text) == "" {
		f.bad(codeMissing, "is required, and is empty", hint)
	}
	return text
}

func (f field) secret() Secret {
	if f.r.noSecrets {
		return Secret{}
	}
	return Secret{f.str("")}
}

// enum is one of the values; def where it is absent or wrong.
func (f field) enum(def string, values ...string) string {
	text, ok := f.text()
	if !ok {
		return def
	}
	for _, v := range values {
		if text == v {
			return text
		}
	}
	hint := suggest.DidYouMean(text, values)
	if hint == "" {
		hint = "values are " + list(values)
	}
	f.bad(codeType, f.shown()+" is not one of its values", hint)
	return def
}

func list(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values[:len(values)-1], ", ") + " and " + values[len(values)-1]
}

func (f field) boolean(def bool) bool {
	text, ok := f.text()
	if !ok {
		return def
	}
	switch text {
	case "true":
		return true
	case "false":
		return false
	}
	f.bad(codeType, f.shown()+" is neither true nor false", "")
	return def
}

// number is a whole number from low to high.
func (f field) number(def, low, high int64) int64 {
	text, ok := f.text()
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if err != nil {
		f.bad(codeType, f.shown()+" is no whole number", "")
		return def
	}
	if n < low || n > high {
		f.bad(codeType, fmt.Sprintf("%s is not from %d to %d", f.shown(), low, high), "")
		return def
	}
	return n
}

// duration is at least low.
func (f field) duration(def, low time.Duration) time.Duration {
	text, ok := f.text()
	if !ok {
		return def
	}
	d, err := ParseDuration(text)
	if err != nil {
		f.bad(codeType, f.shown()+" "+err.Error(), "write a duration such as 100ms, 10s or 24h")
		return def
	}
	if d < low {
		f.bad(codeType, fmt.Sprintf("%s is below %v", f.shown(), low), "")
		return def
	}
	return d
}

// size is at least low.
func (f field) size(def, low Size) Size {
	text, ok := f.text()
	if !ok {
		return def
	}
	n, err := ParseSize(text)
	if err != nil {
		f.bad(codeType, f.shown()+" "+err.Error(), "write a size such as 64KiB, 16MiB, 10GiB or 512B")
		return def
	}
	if n < low {
		f.bad(codeType, fmt.Sprintf("%s is below %v", f.shown(), low), "")
		return def
	}
	return n
}

// items are the elements of a list, as fields of their own.
func (f field) items() []field {
	if !f.set() {
		return nil
	}
	if f.value.Kind != yaml.SequenceNode {
		hint := ""
		if f.value.Kind == yaml.ScalarNode && f.value.Tag != "!!null" && !hasReference(f.value.Value) {
			hint = "write [" + f.value.Value + "]"
		}
		f.bad(codeType, "has to be a list, and is "+kindOf(f.value), hint)
		return nil
	}
	var out []field
	for i, n := range f.value.Content {
		out = append(out, field{r: f.r, path: fmt.Sprintf("%s[%d]", f.path, i), value: target(n)})
	}
	return out
}
