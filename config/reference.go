package config

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// Environment looks a variable up, as os.LookupEnv does.
type Environment func(name string) (value string, set bool)

const (
	envPrefix  = "${env:"
	filePrefix = "${file:"
)

// hasReference reports whether a scalar's value is not what stands in the file. Such a value is never shown in a finding:
// it may be a secret that was put into the wrong key.
func hasReference(raw string) bool {
	return strings.Contains(raw, envPrefix) || strings.Contains(raw, filePrefix)
}

// referenceError is what is wrong with one reference; name is safe to show.
type referenceError struct{ text, hint string }

func (e *referenceError) Error() string { return e.text }

// resolve replaces every ${env:NAME}, ${env:NAME:-default} and ${file:/path} of a scalar. What it puts in is not looked at
// again. Other ${…} belong to the templates of routes and stay.
func resolve(raw string, env Environment) (string, []*referenceError) {
	if !hasReference(raw) {
		return raw, nil
	}
	var b strings.Builder
	var errs []*referenceError
	for raw != "" {
		i := next(raw)
		b.WriteString(raw[:i])
		raw = raw[i:]
		if raw == "" {
			break
		}
		end := strings.IndexByte(raw, '}')
		if end < 0 {
			errs = append(errs, &referenceError{text: `"${" is not closed by "}"`})
			break
		}
		ref := raw[:end]
		raw = raw[end+1:]
		var value string
		var err *referenceError
		if body, ok := strings.CutPrefix(ref, envPrefix); ok {
			value, err = resolveEnv(body, env)
		} else {
			value, err = resolveFile(strings.TrimPrefix(ref, filePrefix))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		b.WriteString(value)
	}
	return b.String(), errs
}

// next is where the next reference begins, or the length.
func next(s string) int {
	at := len(s)
	for _, p := range []string{envPrefix, filePrefix} {
		if i := strings.Index(s, p); i >= 0 && i < at {
			at = i
		}
	}
	return at
}

func resolveEnv(body string, env Environment) (string, *referenceError) {
	name, fallback, hasFallback := strings.Cut(body, ":-")
	if name == "" || strings.ContainsAny(name, " :=$") {
		return "", &referenceError{
			text: fmt.Sprintf("${env:%s} names no variable", body),
			hint: "write ${env:NAME} or ${env:NAME:-default}",
		}
	}
	value, set := env(name)
	switch {
	case set && (value != "" || !hasFallback): // as in a shell, :- stands in for an empty variable too
	case hasFallback:
		value = fallback
	default:
		return "", &referenceError{
			text: fmt.Sprintf("the environment variable %s is not set", name),
			hint: fmt.Sprintf("set it, or give a default: ${env:%s:-…}", name),
		}
	}
	if !utf8.ValidString(value) {
		return "", &referenceError{text: fmt.Sprintf("the environment variable %s is not UTF-8", name)}
	}
	return value, nil
}

// maxReferenced bounds a referenced file: it holds one value.
const maxReferenced = 1 << 20

func resolveFile(path string) (string, *referenceError) {
	info, err := os.Stat(path)
	switch {
	case path == "":
		return "", &referenceError{text: "${file:} names no file", hint: "write ${file:/path}"}
	case err != nil:
		return "", &referenceError{text: fmt.Sprintf("the file %s cannot be read: %s", path, reason(err))}
	case !info.Mode().IsRegular():
		return "", &referenceError{text: fmt.Sprintf("%s is not a file", path)}
	case info.Size() > maxReferenced:
		return "", &referenceError{text: fmt.Sprintf("the file %s is larger than 1 MiB", path), hint: "it has to hold one value"}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", &referenceError{text: fmt.Sprintf("the file %s cannot be read: %s", path, reason(err))}
	}
	if !utf8.Valid(b) {
		return "", &referenceError{text: fmt.Sprintf("the file %s is not UTF-8", path)}
	}
	// One line break at the end is the editor's, not the value's.
	text := strings.TrimSuffix(string(b), "\n")
	return strings.TrimSuffix(text, "\r"), nil
}
