package main

import (
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
