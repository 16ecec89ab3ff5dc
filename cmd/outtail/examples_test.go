package main

import (
	"os"
	"path/filepath"
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

// What README and docs print as a command is one: a line of a code block as a whole, and wherever else outtail is followed by the name of
// a command, the flags behind it.
func TestCommandsInDocsAreCommandLines(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../../configs/*.yaml")
	require.NoError(t, err)
	files = append(files, append(more, "../../README.md", "../../docs/design/decisions.md", "../../configs/systemd/outtail.service")...)
	lines, mentions := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		block := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "```") {
				block = !block
			}
			if command := commandLine.FindString(line); command != "" && (block || strings.HasPrefix(line, "    ")) {
				lines++
				command = columnGap.ReplaceAllString(strings.TrimLeft(command, " $./"), " -")
				args := words(t, strings.NewReplacer("[", "", "]", "", " # ", "    # ").Replace(command))
				found, rest, err := newTestRoot().Find(args[1:])
				require.NoError(t, err, "%s: %s", file, line)
				require.NoError(t, found.ParseFlags(rest), "%s: %s", file, line)
				require.NoError(t, found.ValidateArgs(found.Flags().Args()), "%s: %s", file, line)
				require.NoError(t, found.ValidateRequiredFlags(), "%s: %s", file, line)
				require.NoError(t, found.ValidateFlagGroups(), "%s: %s", file, line)
			}
			for _, at := range mention.FindAllStringIndex(line, -1) {
				mentions += mentioned(t, file, line[at[0]:])
			}
		}
	}
	require.Greater(t, lines, 20)
	require.Greater(t, mentions, 60)
}

var (
	commandLine = regexp.MustCompile(`^ *(\$ )?(\./)?outtail [a-z].*`)
	columnGap   = regexp.MustCompile(` {2,}-`)
	mention     = regexp.MustCompile(`\bouttail [a-z]+`)
)

func newTestRoot() *cobra.Command { return newRoot(&cli{stdout: os.Stdout, stderr: os.Stderr}) }

// mentioned looks at the flags behind a command's name, as far as they go: 1 where it is one.
func mentioned(t *testing.T, file, text string) int {
	cmd := newTestRoot()
	rest := strings.Fields(text)[1:]
	for len(rest) > 0 {
		sub, _, err := cmd.Find(rest[:1])
		if err != nil || sub == cmd {
			break
		}
		cmd, rest = sub, rest[1:]
	}
	if !cmd.HasParent() {
		return 0 // the product's name, and prose
	}
	for len(rest) > 0 {
		word := strings.Trim(rest[0], "`[](),.:;|")
		if word == "outtail" {
			return 1 // another one
		}
		name, _, _ := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(name, "--"):
			require.NotNil(t, cmd.Flag(name[2:]), "%s: %s has no %s: %s", file, cmd.CommandPath(), name, text)
		case len(name) == 2 && name[0] == '-':
			require.NotNil(t, cmd.Flags().ShorthandLookup(name[1:]), "%s: %s has no %s: %s", file, cmd.CommandPath(), name, text)
		}
		if strings.ContainsAny(rest[0], "`;|") && !strings.HasPrefix(rest[0], "`") {
			return 1 // the end of the command
		}
		rest = rest[1:]
	}
	return 1
}
