package demo

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outtail/outtail/event"
)

// slow is how long these tests wait for a loaded machine before they call it a failure.
const slow = 90 * time.Second

func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outtail")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755))
	return path
}

func TestAChildIsKilledWithAllThatItStarted(t *testing.T) {
	defer goleak.VerifyNone(t)
	n := newNursery()
	defer n.close()
	log := filepath.Join(t.TempDir(), "log")
	alive, held, err := os.Pipe()
	require.NoError(t, err)
	defer alive.Close()
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo up; wait")
	cmd.ExtraFiles = []*os.File{held}
	c, err := n.run(cmd, log, syscall.SIGKILL)
	require.NoError(t, err)
	require.NoError(t, held.Close())
	require.Eventually(t, func() bool { return logTail(log, 1) == "up" }, slow, 5*time.Millisecond)
	c.kill()
	require.Equal(t, "signal: killed", c.outcome())
	require.NoError(t, alive.SetReadDeadline(time.Now().Add(slow)))
	_, err = alive.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "whoever held the pipe is gone")
	c.kill() // again is nothing
}

func TestStoppingGoesFromPoliteToFirm(t *testing.T) {
	n := newNursery()
	defer n.close()
	start := func(body string) *child {
		log := filepath.Join(t.TempDir(), "log")
		c, err := n.run(exec.Command(script(t, body)), log, syscall.SIGKILL)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return strings.Contains(logTail(log, 1), "up") }, slow, 5*time.Millisecond)
		return c
	}
	polite := start("trap 'exit 0' TERM\necho up\nwhile :; do sleep 0.01; done")
	polite.stop(slow, syscall.SIGTERM)
	require.Equal(t, "exit code 0", polite.outcome())

	deaf := start("trap '' TERM INT\necho up\nwhile :; do sleep 0.01; done")
	deaf.stop(50*time.Millisecond, syscall.SIGINT, syscall.SIGTERM)
	require.Equal(t, "signal: killed", deaf.outcome())
}

func connectorOf(t *testing.T, body string) *connector {
	t.Helper()
	n := newNursery()
	t.Cleanup(n.close)
	c, err := newConnector(n, script(t, body), t.TempDir(), &postgres{port: 5432, password: "hunter2"}, &broker{address: "127.0.0.1:9092"})
	require.NoError(t, err)
	return c
}

func TestAnOuttailThatCannotStartShowsTheEndOfItsLog(t *testing.T) {
	c := connectorOf(t, "echo OT2001 the reason; exit 3")
	require.NoError(t, c.start())
	err := c.awaitReady(t.Context())
	fault := event.AsFault(err)
	require.NotNil(t, fault)
	require.Equal(t, CodeNotReady, fault.Code)
	require.Contains(t, fault.Text, "exit code 3")
	require.Contains(t, fault.Text, "OT2001 the reason")
}

func TestWaitingForReadinessEndsWithTheContext(t *testing.T) {
	c := connectorOf(t, "while :; do sleep 0.01; done")
	require.NoError(t, c.start())
	defer c.kill()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrInterrupted)
	require.ErrorIs(t, c.awaitReady(ctx), ErrInterrupted)
}

func TestTheSecretIsInTheEnvironmentAlone(t *testing.T) {
	t.Setenv("PGHOST", "somewhere.else")
	c := connectorOf(t, `echo "$PGPASSWORD,$PGHOST,$*"`)
	require.NoError(t, c.start())
	require.True(t, c.life.gone(slow))
	require.Equal(t, "hunter2,,run -c "+c.config, c.tail())
	text, err := os.ReadFile(c.config)
	require.NoError(t, err)
	require.NotContains(t, string(text), "hunter2")
	info, err := os.Stat(c.config)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestTheFirstInterruptAsksForAVerdictTheSecondEndsAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	signals := make(chan os.Signal)
	i := followInterrupts(t.Context(), signals)
	defer i.close()
	ctx, arrived := i.onTheWayUp()
	defer arrived()
	require.False(t, isClosed(i.first))
	require.NoError(t, ctx.Err())

	signals <- os.Interrupt
	<-i.first
	<-ctx.Done() // nothing to judge on the way up
	require.ErrorIs(t, context.Cause(ctx), ErrInterrupted)
	require.NoError(t, i.now.Err(), "the verdict is waited for")

	signals <- syscall.SIGTERM
	<-i.now.Done()
	signals <- os.Interrupt // more change nothing
}

func TestLogTailIsShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.Empty(t, logTail(path, 3))
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("a line\n", 10_000)+"the last\n"), 0o600))
	require.Equal(t, "a line\na line\nthe last", logTail(path, 3))
	require.LessOrEqual(t, len(logTail(path, 100_000)), 4096)
}

func TestAFolderThatPostgresCannotEnterIsNamed(t *testing.T) {
	private := filepath.Join(t.TempDir(), "private")
	require.NoError(t, os.Mkdir(private, 0o700))
	inside := filepath.Join(private, "inside")
	require.NoError(t, os.Mkdir(inside, 0o711))
	require.False(t, reachableByAll(inside))
	require.True(t, reachableByAll("/"))
	if unprivileged() == nil {
		t.Skip("the rest concerns root alone")
	}
	n := newNursery()
	defer n.close()
	_, err := startPostgres(t.Context(), n, binaries{bin: "/"}, inside)
	fault := event.AsFault(err)
	require.Equal(t, CodePostgres, fault.Code)
	require.Equal(t, inside, fault.Place)
	require.Contains(t, fault.Hint, "TMPDIR")
}
