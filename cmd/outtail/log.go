package main

import (
	"context"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// forPeople says whether the log is read by people: text on a terminal and JSON elsewhere, unless the configuration says
// which.
func forPeople(w *os.File, format string) bool {
	return format == "text" || format == "auto" && term.IsTerminal(int(w.Fd()))
}

func newLogger(w *os.File, level slog.Level, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if forPeople(w, format) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// exactHandler completes the commands in hints (cli.complete), so that they can be copied from the log: who makes a hint knows neither
// the configuration's file nor always the pipeline.
type exactHandler struct {
	slog.Handler
	complete func(text, pipeline string) string
	pipeline string // of the logger's With, else the only one, else P
}

// Handle implements slog.Handler.
func (h exactHandler) Handle(ctx context.Context, r slog.Record) error {
	pipeline, hints := h.pipeline, false
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "pipeline":
			pipeline = a.Value.String()
		case "hint":
			hints = true
		}
		return true
	})
	if !hints {
		return h.Handler.Handle(ctx, r)
	}
	whole := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "hint" {
			a = slog.String(a.Key, h.complete(a.Value.String(), pipeline))
		}
		whole.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, whole)
}

// WithAttrs implements slog.Handler.
func (h exactHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key == "pipeline" {
			h.pipeline = a.Value.String()
		}
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h exactHandler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
