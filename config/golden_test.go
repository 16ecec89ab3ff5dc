package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

var update = flag.Bool("update", false, "write the golden files anew")

const secret = "hunter2"

var testEnvironment = environment("DB_PASSWORD", secret, "SECRET", secret)

// Each bad file has its findings beside it, as an operator sees them.
func TestBadFilesHaveTheirFindings(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			c, err := Load(file, testEnvironment)
			require.Nil(t, c)
			findings := requireFindings(t, err)
			for _, f := range findings {
				require.Positive(t, f.Line, "%s has no place", f)
				require.Positive(t, f.Col)
				require.Equal(t, file, f.File)
			}
			require.NotContains(t, err.Error(), secret)
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", findings.Error()+"\n")
		})
	}
}

// What works and may not be meant is said, and does not keep anything from running.
func TestRiskyFilesHaveTheirWarnings(t *testing.T) {
	files, err := filepath.Glob("testdata/risky/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			c, err := Load(file, testEnvironment)
			require.NoError(t, err)
			require.NotEmpty(t, c.Warnings)
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", c.Warnings.Error()+"\n")
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run the test with -update and read what it writes")
	require.Equal(t, string(want), got)
}

func requireFindings(t *testing.T, err error) Findings {
	t.Helper()
	f := event.AsFault(err)
	require.NotNil(t, f)
	require.Equal(t, event.Usage, f.Class)
	var findings Findings
	require.True(t, errors.As(err, &findings))
	require.NotEmpty(t, findings)
	for _, one := range findings {
		require.Regexp(t, `^OT10\d\d$`, one.Code)
	}
	return findings
}
