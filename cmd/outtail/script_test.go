package main

import (
	"errors"
	"flag"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "write what the scripts' commands print into the scripts")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"outtail": main})
}

// TestScripts are command lines and what they print; the texts are golden in the scripts (-update).
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PGPASSWORD", "of-the-test")
			e.Setenv("MYSQL_PASSWORD", "of-the-test")
			e.Setenv("MARIADB_PASSWORD", "of-the-test")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exit": exit},
	})
}

// exit runs a command and expects an exit code: exit 2 outtail run. Stdout and stderr can be looked at behind it.
func exit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE COMMAND ARGS…")
	}
	err := ts.Exec(args[1], args[2:]...)
	if got := code(err); got != args[0] {
		ts.Fatalf("exit code %s, not %s (%v)", got, args[0], err)
	}
}

// code is the exit code in what ts.Exec answers.
func code(err error) string {
	var ended *exec.ExitError
	switch {
	case err == nil:
		return "0"
	case errors.As(err, &ended):
		return strconv.Itoa(ended.ExitCode())
	}
	return err.Error()
}
