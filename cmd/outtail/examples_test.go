package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Every command has an example in its help, and each example is a command line that the command takes: its flags are there, have values
// that can be read, and none that is required is missing.
func TestExamplesInHelpAreCommandLines(t *testing.T) {
	newTree := func() *cobra.Command { return newRoot(&cli{stdout: os.Stdout, stderr: os.Stderr}) }
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" && !sub.Hidden {
				visit(sub)
			}
		}
		if cmd.HasSubCommands() && cmd.Example == "" {
			return // its commands have them
		}
		require.NotEmpty(t, cmd.Example, cmd.CommandPath())
		about := 0
		for line := range strings.Lines(regexp.MustCompile(`\\\n *`).ReplaceAllString(cmd.Example, "")) {
			args := words(t, line)
			for len(args) > 0 && strings.Contains(args[0], "=") { // NAME=value in front of it
				args = args[1:]
			}
			require.NotEmpty(t, args, line)
			require.Equal(t, "outtail", args[0], line)
			found, rest, err := newTree().Find(args[1:])
			require.NoError(t, err, line)
			require.NoError(t, found.ParseFlags(rest), line)
			require.NoError(t, found.ValidateArgs(found.Flags().Args()), line)
			require.NoError(t, found.ValidateRequiredFlags(), line)
			require.NoError(t, found.ValidateFlagGroups(), line)
			if found.CommandPath() == cmd.CommandPath() || strings.HasPrefix(found.CommandPath(), cmd.CommandPath()+" ") {
				about++
			}
		}
		require.Positive(t, about, "%s: an example of this very command", cmd.CommandPath())
	}
	visit(newTree())
}

// words cuts a line as a shell would, as far as examples need it: quotes, and the end of the command at a pipe, a redirection, or the
// explanation that stands behind it.
func words(t *testing.T, line string) (all []string) {
	t.Helper()
	line = strings.TrimSpace(line)
	var word strings.Builder
	quote, inside := rune(0), false
	end := func() {
		if inside {
			all = append(all, word.String())
		}
		word.Reset()
		inside = false
	}
	spaces := 0
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, inside = r, true
		case r == ' ':
			end()
			if spaces++; spaces > 3 {
				return all
			}
			continue
		case r == '|' || r == '>':
			end()
			return all
		default:
			word.WriteRune(r)
			inside = true
		}
		spaces = 0
	}
	require.Zero(t, quote, "an open quote: %s", line)
	end()
	return all
}
