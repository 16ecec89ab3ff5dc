package main

import (
	"log/slog"
	"os"

	"golang.org/x/term"
)

// newLogger writes text on a terminal and JSON elsewhere, unless the configuration says which.
func newLogger(w *os.File, level slog.Level, format string) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	text := format == "text" || format == "auto" && term.IsTerminal(int(w.Fd()))
	if text {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}
