package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
)

// Outtail is one configuration of the binary with its data_dir. The process is started, ended and started again on it.
type Outtail struct {
	Binary  string
	Config  string // path of the configuration file
	DataDir string
	Admin   string // host:port of the admin listener, free when it was chosen
	// Env is added to the environment of every command.
	Env []string

	dir  string
	runs int
}

// NewOuttail writes a configuration, a text/template in which {{.DataDir}} and {{.Admin}} stand for what the harness chose
// and all else comes from vars, e.g. "data_dir: {{.DataDir}}\nadmin: { listen: {{.Admin}} }\n…".
func NewOuttail(t testing.TB, binary, config string, vars map[string]any) *Outtail {
	t.Helper()
	port, err := FreePort()
	require.NoError(t, err)
	dir := t.TempDir()
	o := &Outtail{
		Binary: binary, dir: dir, Config: filepath.Join(dir, "outtail.yaml"), DataDir: filepath.Join(dir, "data"),
		Admin: host + ":" + strconv.Itoa(port),
	}
	o.Rewrite(t, config, vars)
	return o
}

// Rewrite replaces the configuration, for the next start.
func (o *Outtail) Rewrite(t testing.TB, config string, vars map[string]any) {
	t.Helper()
	all := map[string]any{"DataDir": o.DataDir, "Admin": o.Admin}
	for k, v := range vars {
		all[k] = v
	}
	tpl, err := template.New("config").Option("missingkey=error").Parse(config)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, tpl.Execute(&b, all))
	require.NoError(t, os.WriteFile(o.Config, b.Bytes(), 0o600))
}

// Result is how a command ended.
type Result struct {
	Code           int // exit code; -1 where a signal ended it
	Signal         syscall.Signal
	Stdout, Stderr string
}

// Process is a running `outtail`.
type Process struct {
	o              *Outtail
	cmd            *exec.Cmd
	stdout, stderr string // files
	done           chan struct{}
	err            error // of Wait, valid once done is closed
	sampled, peak  int64 // bytes: from /proc; by the kernel's accounts, once it has ended
}

// Start runs `outtail run -c CONFIG` with more arguments. The process is killed with the test if it still runs.
func (o *Outtail) Start(t testing.TB, args ...string) *Process {
	t.Helper()
	return o.start(t, append([]string{"run", "-c", o.Config}, args...))
}

// Launch starts any command of outtail, and does not wait for it.
func (o *Outtail) Launch(t testing.TB, args ...string) *Process { t.Helper(); return o.start(t, args) }

// Run runs a command of outtail to its end, e.g. Run(t, "checkpoint", "show", "-c", o.Config, "--json").
func (o *Outtail) Run(t testing.TB, args ...string) Result {
	t.Helper()
	return o.start(t, args).Wait(t)
}

// CheckpointJSON decodes `outtail checkpoint show --json`, asking the running process or reading the file.
func (o *Outtail) CheckpointJSON(t testing.TB, into any) {
	t.Helper()
	r := o.Run(t, "checkpoint", "show", "-c", o.Config, "--json")
	require.Zero(t, r.Code, r.Stderr)
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), into), r.Stdout)
}

// StartCommand runs another program in a folder, watched and ended as outtail is.
func StartCommand(t testing.TB, dir, binary string, args ...string) *Process {
	t.Helper()
	return (&Outtail{Binary: binary, dir: dir}).start(t, args)
}

func (o *Outtail) start(t testing.TB, args []string) *Process {
	t.Helper()
	o.runs++
	p := &Process{o: o, done: make(chan struct{})}
	// Files, not pipes: a process that is killed leaves all that it wrote, and nobody has to read along.
	p.stdout, p.stderr = filepath.Join(o.dir, fmt.Sprintf("%d.out", o.runs)), filepath.Join(o.dir, fmt.Sprintf("%d.err", o.runs))
	out, err := os.Create(p.stdout)
	require.NoError(t, err)
	defer out.Close()
	errs, err := os.Create(p.stderr)
	require.NoError(t, err)
	defer errs.Close()
	p.cmd = exec.Command(o.Binary, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = o.dir, out, errs
	p.cmd.Env = append(append(os.Environ(), "NO_COLOR=1"), o.Env...)
	p.cmd.SysProcAttr = diesWithUs()
	started := make(chan error)
	// Owned by the process: ends when it does. The kernel ties "dies with its parent" to the thread that started it.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			p.peak = peakRSS(p.cmd.ProcessState)
			close(p.done)
		}
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() && !p.cmd.ProcessState.Success() {
			t.Logf("%s %s (%v), the end of its stderr:\n%s", o.Binary, strings.Join(args, " "), p.cmd.ProcessState, tail(p.Stderr(), 6000))
		}
	})
	return p
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stdout is what was written so far.
func (p *Process) Stdout() string { b, _ := os.ReadFile(p.stdout); return string(b) }

// Stderr is what was written so far.
func (p *Process) Stderr() string { b, _ := os.ReadFile(p.stderr); return string(b) }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process still runs.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill(t testing.TB) Result { t.Helper(); return p.end(t, syscall.SIGKILL) }

// Terminate asks the process to stop (SIGTERM) and waits for it.
func (p *Process) Terminate(t testing.TB) Result { t.Helper(); return p.end(t, syscall.SIGTERM) }

func (p *Process) end(t testing.TB, s syscall.Signal) Result {
	t.Helper()
	p.sample()
	if err := p.cmd.Process.Signal(s); err != nil {
		require.ErrorIs(t, err, os.ErrProcessDone)
	}
	return p.Wait(t)
}

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// Freeze stops the process and waits until it stands still: until the thread that the kernel chose has taken the signal, which on a loaded
// machine takes a while, its other threads go on. SIGCONT ends it.
func (p *Process) Freeze(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGSTOP)
	require.Eventually(t, func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		require.NoError(t, err)
		for _, name := range tasks {
			b, err := os.ReadFile(name)
			if err != nil {
				continue // a thread that has ended
			}
			if i := bytes.LastIndexByte(b, ')'); i >= 0 && !bytes.HasPrefix(b[i+1:], []byte(" T")) {
				return false
			}
		}
		return true // or a system without /proc
	}, Patience, 5*time.Millisecond)
}

// Wait waits for the end of the process; one that outlasts Patience fails the test.
func (p *Process) Wait(t testing.TB) Result {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // goroutines, on stderr
		select {
		case <-p.done:
		case <-time.After(10 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		require.Failf(t, "the process did not end", "%v within %v; stderr:\n%s", p.cmd.Args, Patience, tail(p.Stderr(), 8000))
	}
	r := Result{Code: p.cmd.ProcessState.ExitCode(), Stdout: p.Stdout(), Stderr: p.Stderr()}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Signal = ws.Signal()
	}
	return r
}

// PeakRSS is the most memory in bytes that the process has had resident; of one that has ended, as it was when Kill or
// Terminate ended it, else as the kernel accounted it (which counts this test binary's own memory at the fork, so it is
// an upper bound).
func (p *Process) PeakRSS(t testing.TB) int64 {
	t.Helper()
	p.sample()
	if p.sampled > 0 {
		return p.sampled
	}
	require.False(t, p.Running(), "no VmHWM in /proc")
	return p.peak
}

// RSS is how much memory in bytes the process has resident now.
func (p *Process) RSS(t testing.TB) int64 {
	t.Helper()
	return p.status("VmRSS:")
}

// CPUSeconds is the user and system time of the process so far (proc(5), fields 14 and 15 of stat, in ticks of 10 ms).
func (p *Process) CPUSeconds(t testing.TB) float64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	require.NoError(t, err)
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	user, err := strconv.ParseFloat(fields[11], 64)
	require.NoError(t, err)
	system, err := strconv.ParseFloat(fields[12], 64)
	require.NoError(t, err)
	return (user + system) / 100
}

func (p *Process) sample() { p.sampled = max(p.sampled, p.status("VmHWM:")) }

// status is a line of /proc/PID/status, in bytes.
func (p *Process) status(name string) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

// Get asks the admin listener, e.g. Get(t, "/readyz"); the status is 0 while nobody listens.
func (o *Outtail) Get(t testing.TB, path string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Admin+path, nil)
	require.NoError(t, err)
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}

// WaitReady waits until /readyz answers 200; a process that ends meanwhile fails the test at once.
func (p *Process) WaitReady(t testing.TB) { t.Helper(); p.WaitStatus(t, "/readyz", http.StatusOK) }

// WaitStatus waits until a path of the admin listener answers with a status.
func (p *Process) WaitStatus(t testing.TB, path string, status int) (body string) {
	t.Helper()
	var got int
	p.Until(t, fmt.Sprintf("%s to answer %d", path, status), func() bool {
		got, body = p.o.Get(t, path)
		return got == status
	})
	return body
}

// Until polls a condition while the process runs. A process that ends, or Patience that does, fails the test.
func (p *Process) Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	began := time.Now()
	deadline := began.Add(Patience)
	for !ok() {
		if !p.Running() && !ok() {
			require.Failf(t, "the process ended", "while waiting for %s: %v\n%s", what, p.cmd.ProcessState, tail(p.Stderr(), 6000))
		}
		require.Truef(t, time.Now().Before(deadline), "no progress: waited %v for %s\n%s", Patience, what, tail(p.Stderr(), 6000))
		// Asking starts a process or a session as often as not: what has taken long is asked less often.
		time.Sleep(min(max(time.Since(began)/10, 20*time.Millisecond), 100*time.Millisecond))
	}
}

// Metric adds up the series of /metrics with this name whose labels contain all of the given ones (`state="streaming"`).
// It is 0 where there is none.
func (o *Outtail) Metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	status, body := o.Get(t, "/metrics")
	require.Equal(t, http.StatusOK, status, body)
	return sumSeries(body, name, labels...)
}

func sumSeries(body, name string, labels ...string) float64 {
	var sum float64
series:
	for line := range strings.Lines(body) {
		series, value, ok := cutLast(strings.TrimSpace(line), " ")
		head, set, _ := strings.Cut(series, "{")
		if !ok || head != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(","+strings.TrimSuffix(set, "}")+",", ","+l+",") {
				continue series
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err == nil {
			sum += v
		}
	}
	return sum
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
