package control

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outtail/outtail/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortDir is a directory whose name leaves room for a socket, whatever the temporary directory is.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ot")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func serve(t *testing.T, dir string, handles map[string]Handle) *Server {
	t.Helper()
	s, err := Serve(ServerOptions{Dir: dir, Version: "v9", Handles: handles})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

var echo = map[string]Handle{"echo": func(_ context.Context, r json.RawMessage) (any, error) { return r, nil }}

func requireCode(t *testing.T, err error, code string) *event.Fault {
	t.Helper()
	f := event.AsFault(err)
	require.NotNil(t, f, "no fault: %v", err)
	require.Equal(t, code, f.Code, f.Error())
	require.NotEmpty(t, f.Hint)
	return f
}

func TestAskTheRunningProcess(t *testing.T) {
	dir := shortDir(t)
	serve(t, dir, echo)
	info, err := os.Stat(filepath.Join(dir, SocketName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "nothing but the socket")

	type say struct{ Text string }
	var got say
	require.NoError(t, Ask(t.Context(), dir, "echo", say{"hello"}, &got))
	require.Equal(t, "hello", got.Text)
	require.NoError(t, Ask(t.Context(), dir, "echo", nil, nil))
}

func TestNobodyListens(t *testing.T) {
	t.Run("no socket", func(t *testing.T) {
		err := Ask(t.Context(), shortDir(t), "echo", nil, nil)
		require.ErrorIs(t, err, ErrNotRunning)
	})
	t.Run("no data_dir", func(t *testing.T) {
		require.ErrorIs(t, Ask(t.Context(), filepath.Join(shortDir(t), "none"), "echo", nil, nil), ErrNotRunning)
	})
	t.Run("a killed process left its socket, and the next one replaces it", func(t *testing.T) {
		dir := shortDir(t)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, SocketName)})
		require.NoError(t, err)
		l.SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
		require.NoError(t, os.Mkdir(filepath.Join(dir, SocketName+".new"), 0o700))
		err = Ask(t.Context(), dir, "echo", nil, nil)
		require.ErrorIs(t, err, ErrNotRunning)
		requireCode(t, err, CodeNotRunning)
		serve(t, dir, echo)
		require.NoError(t, Ask(t.Context(), dir, "echo", nil, nil))
	})
	t.Run("a clean stop removes it", func(t *testing.T) {
		dir := shortDir(t)
		s := serve(t, dir, echo)
		require.NoError(t, s.Close(t.Context()))
		require.NoFileExists(t, filepath.Join(dir, SocketName))
		require.ErrorIs(t, Ask(t.Context(), dir, "echo", nil, nil), ErrNotRunning)
	})
}

func TestAFaultArrivesAsItWas(t *testing.T) {
	dir := shortDir(t)
	for c := event.Retry; c <= event.Internal; c++ {
		want := &event.Fault{Code: "OT2013", Class: c, Op: "o", Place: "p", Text: "t", Hint: "h", Immediate: true, Standby: true, Err: errors.New("cause")}
		s := serve(t, dir, map[string]Handle{"fail": func(context.Context, json.RawMessage) (any, error) { return nil, want }})
		require.Equal(t, want, Ask(t.Context(), dir, "fail", nil, nil))
		require.NoError(t, s.Close(t.Context()))
	}
}

func TestRequestsThatFail(t *testing.T) {
	dir := shortDir(t)
	serve(t, dir, map[string]Handle{
		"error":  func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("boom") },
		"panic":  func(context.Context, json.RawMessage) (any, error) { panic("boom") },
		"weird":  func(context.Context, json.RawMessage) (any, error) { return make(chan int), nil },
		"number": func(context.Context, json.RawMessage) (any, error) { return 7, nil },
	})
	for name, code := range map[string]string{"error": CodeFailed, "panic": CodeFailed, "weird": CodeFailed, "nonsense": CodeUnknown, "../x": CodeUnknown} {
		t.Run(name, func(t *testing.T) { requireCode(t, Ask(t.Context(), dir, name, nil, nil), code) })
	}
	t.Run("an answer of another shape", func(t *testing.T) {
		var s struct{ X string }
		requireCode(t, Ask(t.Context(), dir, "number", nil, &s), CodeFailed)
	})
	require.Contains(t, requireCode(t, Ask(t.Context(), dir, "nonsense", nil, nil), CodeUnknown).Text, "v9")
}

// A process that is stopped (SIGSTOP) still has its socket: the kernel accepts for it, and nothing comes.
func TestAProcessThatDoesNotAnswer(t *testing.T) {
	dir := shortDir(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, SocketName)})
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	requireCode(t, Ask(ctx, dir, "echo", nil, nil), CodeNoAnswer)
	t.Run("a person who gives up is told nothing more", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, Ask(ctx, dir, "echo", nil, nil), context.Canceled)
	})
}

// A process that is killed while it is asked hangs up.
func TestAProcessThatEndsWhileItIsAsked(t *testing.T) {
	dir := shortDir(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, SocketName)})
	require.NoError(t, err)
	defer l.Close()
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	f := requireCode(t, Ask(t.Context(), dir, "echo", nil, nil), CodeNoAnswer)
	require.Contains(t, f.Text, "ended before it answered")
}

func TestALongPathIsReachedAllTheSame(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("this system does not show descriptors as files")
	}
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := serve(t, dir, echo)
	require.NoError(t, Ask(t.Context(), dir, "echo", nil, nil))
	require.FileExists(t, filepath.Join(dir, SocketName))
	require.NoError(t, s.Close(t.Context()))
	require.NoFileExists(t, filepath.Join(dir, SocketName))
	require.ErrorIs(t, Ask(t.Context(), dir, "echo", nil, nil), ErrNotRunning)
}

func TestALongPathNearTheWorkingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	require.NoError(t, os.Mkdir(dir, 0o700))
	t.Chdir(dir)
	path, release, err := reachable(dir, SocketName)
	require.NoError(t, err)
	defer release()
	require.Equal(t, SocketName, path)
}

func TestADataDirWithoutRoomForASocket(t *testing.T) {
	file := filepath.Join(shortDir(t), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Serve(ServerOptions{Dir: file})
	require.True(t, requireCode(t, err, CodeListen).Immediate)
}

func TestCloseWaitsForTheRequestUnderWay(t *testing.T) {
	dir := shortDir(t)
	began, finish := make(chan struct{}), make(chan struct{})
	s := serve(t, dir, map[string]Handle{"slow": func(context.Context, json.RawMessage) (any, error) {
		close(began)
		<-finish
		return "done", nil
	}})
	var got string
	asked := make(chan error, 1)
	go func() { asked <- Ask(context.Background(), dir, "slow", nil, &got) }()
	<-began
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	close(finish)
	require.NoError(t, <-asked)
	require.Equal(t, "done", got)
	require.NoError(t, <-closed)
}

func TestWhatIsRefusedWhileAPipelineRuns(t *testing.T) {
	f := Runs("set position", "orders")
	require.Equal(t, CodeRuns, f.Code)
	require.Contains(t, f.Error(), "pipeline orders runs: stop it first")
}

// Who may not use the socket learns that, and not that a process is silent.
func TestAskAsAnotherUser(t *testing.T) {
	refused := &url.Error{Op: "Post", URL: "http://outtail/", Err: &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}}
	f := requireCode(t, noAnswer("/var/lib/outtail/outtail.sock", refused), CodeDenied)
	require.Contains(t, f.Error(), "/var/lib/outtail/outtail.sock")
	require.Contains(t, f.Text, "permission denied")
	require.Contains(t, f.Hint, "sudo -u ")
	requireCode(t, noAnswer("/var/lib/outtail/outtail.sock", os.ErrDeadlineExceeded), CodeNoAnswer)
}
