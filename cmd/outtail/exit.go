package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/event"
)

// Exit codes. Scripts and service managers rely on them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitEnvironment = 3
	exitSafety      = 4
	exitLocked      = 5
)

// usageError is a wrong command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// silent is an error that was told already.
type silent struct{ err error }

func (e silent) Error() string { return e.err.Error() }
func (e silent) Unwrap() error { return e.err }

// codeOf maps an error to the exit code of the contract. Several errors (errors.Join): the highest.
func codeOf(err error) int {
	if err == nil || errors.Is(err, context.Canceled) && event.AsFault(err) == nil {
		return exitOK
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		code := exitOK
		for _, e := range many.Unwrap() {
			code = max(code, codeOf(e))
		}
		return code
	}
	var usage usageError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, checkpoint.ErrLocked):
		return exitLocked
	}
	f := event.AsFault(err)
	if f == nil {
		return exitFailed
	}
	switch f.Class {
	case event.Usage:
		return exitUsage
	case event.Environment:
		return exitEnvironment
	case event.Safety:
		return exitSafety
	default:
		return exitFailed
	}
}

// report tells an error on stderr, once, with its hint, and gives the exit code.
func report(stderr io.Writer, err error) int {
	var told silent
	if err != nil && !errors.As(err, &told) {
		printError(stderr, err)
	}
	return codeOf(err)
}

func printError(w io.Writer, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			printError(w, e)
		}
		return
	}
	fmt.Fprintf(w, "error: %s\n", err)
	if f := event.AsFault(err); f != nil && f.Hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", strings.ReplaceAll(f.Hint, "\n", "\n        "))
	}
}
