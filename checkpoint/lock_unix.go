//go:build unix

package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockName is a file of its own: the state file is locked by bbolt too, but only once it exists and is sound, and
// readers take that lock for a moment, which must not look like a second process.
const lockName = "outtail.lock"

// lockDir takes the data directory for this process. The kernel gives it back when the process ends, however it ends.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, faultUnusable("lock data_dir", path, err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		holder, _ := io.ReadAll(io.LimitReader(f, 200))
		_ = f.Close()
		return nil, faultLocked(dir, strings.TrimSpace(string(holder)))
	case err != nil:
		_ = f.Close()
		return nil, faultUnusable("lock data_dir", path, err)
	}
	// Who holds it is for people only, so a full disk does not matter here.
	host, _ := os.Hostname()
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(fmt.Sprintf("process %d on %s\n", os.Getpid(), host)), 0)
	}
	return f, nil
}

// abandon closes a file whose memory map cannot be undone. The map keeps the lock alive beyond the file's close, so the
// lock is given back by hand.
func abandon(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close()
}

// lockShared keeps writers out of a file until it is closed; false: one is in.
func lockShared(f *os.File) (bool, error) {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
