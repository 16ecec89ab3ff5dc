package template

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func TestTemplatesRender(t *testing.T) {
	var row event.Row
	row[event.EventType] = event.Value{Bytes: []byte("order.created"), Set: true}
	row[event.Tenant] = event.Value{Bytes: []byte{}, Set: true}
	row[event.Topic] = event.Value{Set: true, Null: true}
	header := func(name string) ([]byte, bool) {
		if name == "region" {
			return []byte("eu"), true
		}
		return nil, false
	}
	for _, c := range []struct{ text, want, missing string }{
		{"", "", ""},
		{"orders", "orders", ""},
		{"a$b$", "a$b$", ""},
		{"${event_type}", "order.created", ""},
		{"x.${event_type}.${headers.region}.y", "x.order.created.eu.y", ""},
		{"<${tenant}>", "<>", ""},
		{"${topic}", "", "topic"},
		{"${key}", "", "key"},
		{"${headers.zone}", "", "headers.zone"},
	} {
		tpl, err := Compile(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.text, tpl.String())
		out, missing := tpl.Append(nil, &row, header)
		require.Equal(t, c.missing, missing, c.text)
		if missing == "" {
			require.Equal(t, c.want, string(out), c.text)
		}
	}
}

func TestBrokenTemplatesSayWhere(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int
		says   string
	}{
		{"ab${event_type", 2, "not closed"},
		{"ab${}", 2, "is no role"},
		{"${event_typ}", 0, `did you mean "event_type"?`},
		{"${zzz}", 0, "names are headers.NAME"},
		{"${headers.}", 0, "names no header"},
		{"${tenant}${payload}", 9, "cannot be part"},
		{"${headers}", 0, "${headers.NAME}"},
	} {
		_, err := Compile(c.text)
		var e *Error
		require.True(t, errors.As(err, &e), c.text)
		require.Equal(t, c.offset, e.Offset, c.text)
		require.ErrorContains(t, err, c.says)
	}
}

func TestWhatATemplateNeedsIsKnown(t *testing.T) {
	constant, err := Compile("orders")
	require.NoError(t, err)
	text, ok := constant.Constant()
	require.True(t, ok)
	require.Equal(t, "orders", text)

	single, err := Compile("${topic}")
	require.NoError(t, err)
	_, ok = single.Constant()
	require.False(t, ok)
	role, ok := single.Single()
	require.True(t, ok)
	require.Equal(t, event.Topic, role)

	mixed, err := Compile("x${topic}${headers.a}")
	require.NoError(t, err)
	_, ok = mixed.Single()
	require.False(t, ok)
	require.Equal(t, []event.Role{event.Topic, event.Headers}, mixed.Roles())
}
