package failures

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoRoomForWhatIsParked fills the disk under data_dir while events are parked: it is said, the position stands in front of what is
// not on the disk, and everything goes on by itself when there is room.
func TestNoRoomForWhatIsParked(t *testing.T) {
	c := newCell(t, openShop(t, "postgres"), steady(t), "park")
	c.outtail.DataDir = smallDisk(t, "8m")
	c.bad, c.writers = 20, 1 // one: the order of the log is known
	c.configure("Match", someRouted)
	c.start()
	c.load()
	c.process.Until(t, "some parked", func() bool { return c.outtail.Metric(t, "outtail_parked_events") > 0 })
	room := fill(t, c.outtail.DataDir)
	c.says("OT4005")
	c.process.Kill(t) // what the disk has must be right by itself
	c.kills++
	have := map[string]bool{}
	for _, d := range c.delivered() {
		have[d.ID] = true
	}
	for _, l := range c.parked() {
		have[l.ID] = true
	}
	c.pause()
	committed := c.written.Committed(t, c.db)
	for i, e := range committed[:c.passed()] {
		require.True(t, have[e.ID], "the position counts number %d, which is neither in Kafka nor parked", i)
	}

	room()
	c.start()
	c.settled()
	c.check(committed, c.parked())
	require.NotContains(t, c.process.Stderr(), "OT4011", "the file is whole")
	c.stop()
	c.configure("Match", "")
	c.start()
	c.replay()
	t.Log(c.check(committed, nil))
	c.stop()
}

// smallDisk is a file system of its own, in memory, of a size as mount takes it. Only root may make one.
func smallDisk(t *testing.T, size string) string {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Skip("cannot mount a small file system: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// fill leaves no room in a folder's file system, until what it gives is called.
func fill(t *testing.T, dir string) (room func()) {
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			block = block[:len(block)/2]
		}
	}
	return func() { require.NoError(t, os.Remove(path)) }
}
