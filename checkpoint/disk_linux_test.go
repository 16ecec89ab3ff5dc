package checkpoint

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/outtail/outtail/event"
)

// smallDisk mounts a file system of so many bytes.
func smallDisk(t *testing.T, size int) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system takes root")
	}
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fill takes all room that is left, and gives what frees it.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	block := bytes.Repeat([]byte("x"), 4096)
	for {
		if _, err := f.Write(block); err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			break
		}
	}
	return func() { require.NoError(t, os.Remove(path)) }
}

// B096: on a full disk whatever a pipeline or a person does says so, changes nothing, and works when there is room again.
func TestADiskThatIsReallyFull(t *testing.T) {
	dir := filepath.Join(smallDisk(t, 8<<20), "data")
	s := open(t, Options{Dir: dir})
	d := s.DeadLetters()
	save(t, s, map[string]event.Checkpoint{"p": pg(1, 1)})
	require.NoError(t, d.Park(t.Context(), "p", parking(deadLetter(0, "a"))))
	free := fill(t, filepath.Dir(dir))

	by := By{"ada", "test"}
	long := func(n event.LSN) event.Checkpoint { // a file that has no room for it has to grow
		cp := pg(n, uint64(n))
		cp.Depends = fmt.Appendf(nil, `{"pad":%q}`, strings.Repeat("x", 300<<10))
		return cp
	}
	acts := []struct {
		name string
		do   func() error
	}{
		{"save", func() error { return s.Save(t.Context(), map[string]event.Checkpoint{"p": long(2)}) }},
		{"set", func() error { return s.Set(t.Context(), "p", long(3), by) }},
		{"rewind", func() error { return s.Rewind(t.Context(), "p", long(1), "", nil, by) }},
		{"import", func() error { return s.Import(t.Context(), "p", long(4), "", by) }},
		{"park", func() error {
			return d.Park(t.Context(), "p", parking(deadLetter(1, strings.Repeat("x", 300<<10))))
		}},
	}
	for _, act := range acts {
		t.Run(act.name, func(t *testing.T) {
			f := requireFault(t, act.do(), CodeDiskFull, event.Retry)
			require.Contains(t, f.Hint, "make room")
			cp, err := s.Load("p")
			require.NoError(t, err)
			require.Equal(t, event.LSN(1), cp.Position.LSN)
		})
	}
	audits, err := s.Audits()
	require.NoError(t, err)
	require.Empty(t, audits, "nothing was done")
	require.Equal(t, []int64{0}, orders(t, d, -1<<63))
	require.NoError(t, s.Close())
	ro, err := OpenReadOnly(Options{Dir: dir})
	require.NoError(t, err, "a full disk can still be looked at")
	require.NoError(t, ro.Close())

	s = open(t, Options{Dir: dir})
	d = s.DeadLetters()
	free()
	for _, act := range acts {
		require.NoError(t, act.do(), act.name)
	}
	require.Equal(t, []int64{0, 1}, orders(t, d, -1<<63))
}

// failingDisk is a file system that takes writes and fails when they are to reach the disk: a loop device over a file for which there is no
// room, as a thinly provisioned volume is.
func failingDisk(t *testing.T) (dir string, breakIt, mend func()) {
	t.Helper()
	below := smallDisk(t, 3<<20)
	image := filepath.Join(below, "image")
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 32<<20))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", image).CombinedOutput(); err != nil {
		t.Skipf("no file system can be made here: %v %s", err, out)
	}
	dir = t.TempDir()
	mount := func() {
		t.Helper()
		if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
			t.Skipf("no loop device can be mounted here: %v %s", err, out)
		}
	}
	mount()
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	var free func()
	return dir, func() { unix.Sync(); free = fill(t, below) }, func() {
		free()
		_ = exec.Command("umount", dir).Run()
		mount()
	}
}

// An fsync that fails is told, whatever the error is that the kernel makes of it; what the disk has then is the position that was saved last, or
// the one that was under way.
func TestAnFsyncThatFails(t *testing.T) {
	dir, breakIt, mend := failingDisk(t)
	s := open(t, Options{Dir: dir})
	d := s.DeadLetters()
	n := uint64(1)
	save(t, s, map[string]event.Checkpoint{"p": pg(event.LSN(n), n)})
	require.NoError(t, d.Park(t.Context(), "p", parking(deadLetter(0, "a"))))
	breakIt()
	var err error
	saved := n
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); { // until a page is needed that was never written
		n++
		cp := pg(event.LSN(n), n)
		cp.Depends = fmt.Appendf(nil, `{"pad":%q}`, strings.Repeat("x", int(20_000*n%300_000)))
		if err = s.Save(t.Context(), map[string]event.Checkpoint{"p": cp}); err == nil {
			saved = n
		}
	}
	failed := func(err error) {
		t.Helper()
		f := event.AsFault(err)
		require.NotNil(t, f, "%v", err)
		require.Contains(t, []string{CodeIO, CodeDiskFull}, f.Code)
	}
	failed(err)
	failed(d.Park(t.Context(), "p", parking(deadLetter(1, strings.Repeat("x", 1<<20)))))
	_ = s.Close()

	mend()
	s = open(t, Options{Dir: dir})
	cp, err := s.Load("p")
	require.NoError(t, err)
	require.GreaterOrEqual(t, cp.Events, saved, "what was saved is there")
	require.LessOrEqual(t, cp.Events, n)
	require.Contains(t, orders(t, s.DeadLetters(), -1<<63), int64(0))
}
