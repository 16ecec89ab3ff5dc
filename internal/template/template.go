// Package template compiles and renders the templates of routes: text with ${role} and ${headers.name}.
package template

import (
	"fmt"
	"strings"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/suggest"
)

const headersPrefix = "headers."

// Template is compiled once and rendered per event. Immutable.
type Template struct {
	text  string
	parts []part
}

type part struct {
	literal string
	isRole  bool
	role    event.Role
	header  string
}

// Error says where in a template something is wrong.
type Error struct {
	Offset int // in bytes
	Text   string
	Hint   string
}

func (e *Error) Error() string {
	if e.Hint != "" {
		return e.Text + "; " + e.Hint
	}
	return e.Text
}

// Compile reads a template. A $ that no { follows is itself.
func Compile(text string) (*Template, error) {
	t := &Template{text: text}
	rest, at := text, 0
	for {
		i := strings.Index(rest, "${")
		if i < 0 {
			if rest != "" {
				t.parts = append(t.parts, part{literal: rest})
			}
			return t, nil
		}
		if i > 0 {
			t.parts = append(t.parts, part{literal: rest[:i]})
		}
		end := strings.IndexByte(rest[i:], '}')
		if end < 0 {
			return nil, &Error{Offset: at + i, Text: `"${" is not closed by "}"`}
		}
		p, err := parsePart(rest[i+2:i+end], at+i)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, p)
		at += i + end + 1
		rest = rest[i+end+1:]
	}
}

func parsePart(name string, at int) (part, error) {
	if h, ok := strings.CutPrefix(name, headersPrefix); ok {
		if h == "" {
			return part{}, &Error{Offset: at, Text: "${headers.} names no header"}
		}
		return part{header: h}, nil
	}
	role, ok := event.ParseRole(name)
	if !ok {
		hint := "names are headers.NAME and the roles " + strings.Join(templateRoles(), ", ")
		if s := suggest.DidYouMean(name, append(templateRoles(), "headers.NAME")); s != "" {
			hint = s
		}
		return part{}, &Error{Offset: at, Text: fmt.Sprintf("${%s} is no role", name), Hint: hint}
	}
	if role == event.Payload || role == event.Headers {
		return part{}, &Error{Offset: at, Text: fmt.Sprintf("${%s} cannot be part of a topic or key", name), Hint: "name single headers as ${headers.NAME}"}
	}
	return part{isRole: true, role: role}, nil
}

// templateRoles are the roles whose text may name a place.
func templateRoles() []string {
	var names []string
	for r := range event.RoleCount {
		if r != event.Payload && r != event.Headers {
			names = append(names, r.String())
		}
	}
	return names
}

// String is the template as it was written.
func (t *Template) String() string { return t.text }

// Constant gives the text of a template that names nothing.
func (t *Template) Constant() (string, bool) {
	switch len(t.parts) {
	case 0:
		return "", true
	case 1:
		p := t.parts[0]
		return p.literal, !p.isRole && p.header == ""
	}
	return "", false
}

// Single gives the role of a template that is one role and nothing else.
func (t *Template) Single() (event.Role, bool) {
	if len(t.parts) == 1 && t.parts[0].isRole {
		return t.parts[0].role, true
	}
	return 0, false
}

// Roles lists the roles that the template names, the headers role for a header.
func (t *Template) Roles() []event.Role {
	var roles []event.Role
	for _, p := range t.parts {
		switch {
		case p.isRole:
			roles = append(roles, p.role)
		case p.header != "":
			roles = append(roles, event.Headers)
		}
	}
	return roles
}

// Append renders the template for a row. header looks a header of the row up. missing names the role or header that the
// row does not have, "" when everything was there.
func (t *Template) Append(dst []byte, row *event.Row, header func(name string) ([]byte, bool)) (out []byte, missing string) {
	for i := range t.parts {
		p := &t.parts[i]
		switch {
		case p.isRole:
			v := &row[p.role]
			if !v.Present() {
				return dst, p.role.String()
			}
			dst = append(dst, v.Bytes...)
		case p.header != "":
			v, ok := header(p.header)
			if !ok {
				return dst, headersPrefix + p.header
			}
			dst = append(dst, v...)
		default:
			dst = append(dst, p.literal...)
		}
	}
	return dst, ""
}
