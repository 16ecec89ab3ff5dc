package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// nursery starts the demo's child processes from one thread that lives as long as the demo. On Linux a child dies with
// the thread that started it (Pdeathsig), so nothing survives the demo, not even when it is killed itself.
type nursery struct {
	work chan func()
	done chan struct{}
	once sync.Once
}

// newNursery starts the thread. It ends in close.
func newNursery() *nursery {
	n := &nursery{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(n.done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, and with it what was left running
		for f := range n.work {
			f()
		}
	}()
	return n
}

// start starts a child in its own process group, so that Ctrl-C at the terminal reaches the demo alone.
func (n *nursery) start(cmd *exec.Cmd, lastWish syscall.Signal) error {
	detach(cmd, lastWish)
	started := make(chan error)
	n.work <- func() { started <- cmd.Start() }
	return <-started
}

func (n *nursery) close() {
	n.once.Do(func() { close(n.work) })
	<-n.done
}

// child is a running process. Its end is told once it has been waited for.
type child struct {
	cmd     *exec.Cmd
	started time.Time
	ended   chan struct{} // closed when the process is gone
	err     error         // of Wait, valid when ended is closed
}

// run starts cmd with its output appended to log. The goroutine that waits ends with the process.
func (n *nursery) run(cmd *exec.Cmd, log string, lastWish syscall.Signal) (*child, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = out, out
	if err := n.start(cmd, lastWish); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, started: time.Now(), ended: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop sends signals in turn until the process is gone, waiting up to the given time after each; at the end it kills
// the whole group.
func (c *child) stop(patience time.Duration, signals ...syscall.Signal) {
	for _, s := range signals {
		_ = c.cmd.Process.Signal(s) // gone already is as good
		if c.gone(patience) {
			return
		}
	}
	c.kill()
}

// kill ends the process and what it started, as a power cut would.
func (c *child) kill() {
	select {
	case <-c.ended: // its number may be somebody else's by now
	default:
		killGroup(c.pid())
		<-c.ended
	}
}

func (c *child) gone(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.ended:
		return true
	case <-timer.C:
		return false
	}
}

// outcome tells how a process ended, for people.
func (c *child) outcome() string {
	var exit *exec.ExitError
	switch {
	case c.err == nil:
		return "exit code 0"
	case errors.As(c.err, &exit) && exit.ExitCode() >= 0:
		return fmt.Sprintf("exit code %d", exit.ExitCode())
	}
	return c.err.Error()
}

// logTail yields the last lines of a file, at most 4 kB.
func logTail(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 4096
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		if _, err := f.Seek(max(0, size-most), io.SeekStart); err != nil {
			return ""
		}
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return ""
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
