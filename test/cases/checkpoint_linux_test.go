package cases

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// TestB096ADiskThatIsFull: what has to be kept waits in front of the position, loudly, and goes on by itself when there is room; what was
// on its way is not lost.
func TestB096ADiskThatIsFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system takes root")
	}
	t.Parallel()
	for kind, db := range map[string]func(t *testing.T) shop.Database{
		"postgres": func(t *testing.T) shop.Database {
			return shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
		},
		"mysql": func(t *testing.T) shop.Database { return shop.NewMySQL(t, servers.MySQL(t), "mysql", nil) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := scene.New(t, &servers, db(t))
			s.Configure("Poison", "park", "NoRoute", "park", "Match", "match: { event_type: order.* }, ")
			require.NoError(t, os.MkdirAll(s.Outtail.DataDir, 0o700))
			if err := unix.Mount("tmpfs", s.Outtail.DataDir, "tmpfs", 0, "size=2m"); err != nil {
				t.Skipf("no file system can be mounted here: %v", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(s.Outtail.DataDir, unix.MNT_DETACH) })
			p := s.Start()
			s.Insert(2)
			s.Arrived(p)
			ballast := filepath.Join(s.Outtail.DataDir, "ballast")
			fill := func() {
				f, err := os.Create(ballast)
				require.NoError(t, err)
				for err == nil {
					_, err = f.Write(bytes.Repeat([]byte("x"), 4096))
				}
				require.ErrorIs(t, err, unix.ENOSPC)
				require.NoError(t, f.Close())
			}
			parked := func(n float64) {
				p.Until(t, fmt.Sprint(n, " parked"), func() bool { return s.Outtail.Metric(t, "outtail_parked_events") == n })
			}
			fill()
			s.InsertUnseen(1, "payment.made") // no route: it has to be parked
			s.Says(p, "OT4005")
			require.NoError(t, os.Remove(ballast))
			parked(1)
			p.WaitReady(t)
			// The same in the middle of it, and a crash.
			fill()
			s.InsertUnseen(300, "order.changed") // of the same aggregate
			s.Says(p, "OT4005")
			p.Kill(t)
			require.NoError(t, os.Remove(ballast))
			p = s.Start()
			parked(301)
			s.Stop(p)
		})
	}
}
