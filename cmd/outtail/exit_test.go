package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/event"
)

func TestExitCodes(t *testing.T) {
	fault := func(c event.Class) *event.Fault { return &event.Fault{Code: "OT9999", Class: c} }
	for _, c := range []struct {
		name string
		err  error
		code int
	}{
		{"nothing", nil, 0},
		{"asked to stop", context.Canceled, 0},
		{"asked to stop, wrapped", fmt.Errorf("run: %w", context.Canceled), 0},
		{"anything else", errors.New("x"), 1},
		{"an event that cannot be sent", fault(event.Record), 1},
		{"a fault of ours", fault(event.Internal), 1},
		{"a wrong file", fault(event.Usage), 2},
		{"a wrong command line", usageError{errors.New("x")}, 2},
		{"the source", fault(event.Environment), 3},
		{"a person must decide", fault(event.Safety), 4},
		{"locked", &event.Fault{Code: "OT4001", Class: event.Usage, Err: checkpoint.ErrLocked}, 5},
		{"told already", silent{fault(event.Safety)}, 4},
		{"wrapped", fmt.Errorf("run: %w", fault(event.Environment)), 3},
		{"the highest of several", errors.Join(fault(event.Environment), silent{fault(event.Safety)}, nil, errors.New("x")), 4},
		{"a cause that was cancelled is no clean stop", &event.Fault{Code: "OT9999", Class: event.Environment, Err: context.Canceled}, 3},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.code, codeOf(c.err)) })
	}
}

// TestExactCommands: what a stop prints can be copied; the text of the fault itself is not touched.
func TestExactCommands(t *testing.T) {
	c := &cli{configFile: "/etc/outtail/shop.yaml"}
	f := &event.Fault{Code: "OT6003", Class: event.Safety, Text: "x", Hint: "choose one:\n  outtail checkpoint set -c FILE --pipeline P --to slot --reason R\n  outtail checkpoint accept -c FILE --pipeline P --code OT6003 --reason R"}
	const want = "choose one:\n  outtail checkpoint set -c /etc/outtail/shop.yaml --pipeline orders --to slot --reason R\n  outtail checkpoint accept -c /etc/outtail/shop.yaml --pipeline orders --code OT6003 --reason R"
	require.Equal(t, want, event.AsFault(c.exact(f, "orders")).Hint)
	require.Equal(t, want, event.AsFault(c.exact(errors.Join(nil, f), "orders")).Hint)
	require.Contains(t, f.Hint, "FILE")
	require.NoError(t, c.exact(nil, "orders"))

	require.Equal(t, "start it (outtail run -c /etc/outtail/shop.yaml): outtail dlq list -c /etc/outtail/shop.yaml\n --pipeline PAYMENTS",
		c.complete("start it (outtail run -c FILE): outtail dlq list -c FILE\n --pipeline PAYMENTS", "orders"), "wherever they stand, and nothing but them")

	spaced := &cli{configFile: "/etc/out tail/it's.yaml"}
	require.Equal(t, `outtail dlq list -c '/etc/out tail/it'\''s.yaml' --pipeline orders`, spaced.complete("outtail dlq list -c FILE --pipeline P", "orders"))

	var b bytes.Buffer
	printHints(&b, errors.Join(c.exact(f, "orders"), silent{f}))
	require.Equal(t, "OT6003: "+want+"\n", b.String(), "what was told already is not told again")
}

// TestCommandsInTheLog: a line's hint has the file and the pipeline of whoever speaks, and everything else is as it was said.
func TestCommandsInTheLog(t *testing.T) {
	var b bytes.Buffer
	c := &cli{configFile: "shop.yaml"}
	log := slog.New(exactHandler{Handler: slog.NewTextHandler(&b, nil), complete: c.complete, pipeline: "only"})
	line := func(log *slog.Logger, args ...any) string {
		b.Reset()
		log.Warn("held up", args...)
		return b.String()
	}
	const hint, text = "outtail dlq list -c FILE --pipeline P", "what -c FILE says"
	require.Contains(t, line(log, "text", text, "hint", hint), `text="what -c FILE says" hint="outtail dlq list -c shop.yaml --pipeline only"`)
	require.Contains(t, line(log.With("pipeline", "orders").With("x", 1), "hint", hint), `pipeline=orders x=1 hint="outtail dlq list -c shop.yaml --pipeline orders"`)
	require.Contains(t, line(log.With("pipeline", "orders"), "hint", hint, "pipeline", "late"), `-c shop.yaml --pipeline late"`)
	require.Contains(t, line(log.With("pipeline", "orders").WithGroup("g"), "hint", hint), `g.hint="outtail dlq list -c shop.yaml --pipeline orders"`)
	require.Contains(t, line(log, "text", text), `text="what -c FILE says"`)
}
