package cases

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// The second on a data_dir ends at once, names the folder and who holds it, and does not disturb the first. Nor does it wait for a
// first one that is frozen.
func TestB092TheSecondProcessOnADataDirEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := scene.New(t, &servers, shop.NewPostgres(t, servers.Postgres(t, harness.OldestPostgres()), nil))
	p := s.Start()
	second := func(t *testing.T) {
		for _, args := range [][]string{
			{"run", "-c", s.Outtail.Config},
			{"checkpoint", "set", "-c", s.Outtail.Config, "--pipeline", "orders", "--to", "now", "--reason", "test"},
			{"checkpoint", "accept", "-c", s.Outtail.Config, "--pipeline", "orders", "--code", "OT2034", "--reason", "test"},
		} {
			began := time.Now()
			r := s.Outtail.Run(t, args...)
			require.Less(t, time.Since(began), 5*time.Second, "%v", args)
			require.Equal(t, 5, r.Code, "%v: %s", args, r.Stderr)
			require.Contains(t, r.Stderr, "OT4001")
			require.Contains(t, r.Stderr, s.Outtail.DataDir)
			require.Contains(t, r.Stderr, strconv.Itoa(p.PID()), "who holds it")
			require.Contains(t, r.Stderr, "hint")
		}
	}
	t.Run("beside a running one", second)
	t.Run("beside a frozen one", func(t *testing.T) {
		p.Freeze(t)
		defer p.Signal(t, syscall.SIGCONT)
		second(t)
		// What only asks gives up on it, and says on whom.
		r := s.Outtail.Run(t, "checkpoint", "show", "-c", s.Outtail.Config)
		require.NotZero(t, r.Code)
		require.Contains(t, r.Stderr, filepath.Join(s.Outtail.DataDir, "outtail.sock"))
	})
	s.Insert(2)
	s.Arrived(p)
	s.Stop(p)
}

// A state file that cannot be trusted is left as it is, nothing is begun anew behind it, and a person is told the ways out.
func TestB093ADamagedStateFileStopsAndIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	for kind, db := range map[string]shop.Database{
		"postgres": shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil),
		"mysql":    shop.NewMySQL(t, servers.MySQL(t), "mysql", nil),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := scene.New(t, &servers, db)
			s.Prove()
			at := s.Stored().Source
			s.Insert(1)
			path := filepath.Join(s.Outtail.DataDir, "outtail.db")
			good, err := os.ReadFile(path)
			require.NoError(t, err)
			page := os.Getpagesize()
			for name, damage := range map[string]func([]byte) []byte{
				"cut to a half":     func(b []byte) []byte { return b[:len(b)/2] },
				"cut within a page": func(b []byte) []byte { return b[:len(b)/2+100] },
				"one page left":     func(b []byte) []byte { return b[:page] },
				"ones behind the fourth page": func(b []byte) []byte {
					for i := 4 * page; i < len(b); i++ {
						b[i] = 0xff
					}
					return b
				},
				// What a power cut leaves where the length was written and the pages were not.
				"zeros behind the meta pages": func(b []byte) []byte { clear(b[2*page:]); return b },
				"overwritten":                 func(b []byte) []byte { return append(make([]byte, 9000), b[9000:]...) },
				"no bbolt":                    func([]byte) []byte { return []byte(strings.Repeat("not a state file\n", 1000)) },
			} {
				bad := damage(append([]byte(nil), good...))
				require.NoError(t, os.WriteFile(path, bad, 0o600))
				stderr := s.Stops(4, "OT4003", path, "hint", "checkpoint set", "checkpoint export")
				require.NotContains(t, stderr, "goroutine ", "%s: an error, and no panic", name)
				now, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, harness.Digest(bad), harness.Digest(now), "%s: the file is as it was", name)
			}
			// What the hint says: move it away, and say where to go on.
			require.NoError(t, os.Rename(path, path+".damaged"))
			to := "slot"
			if at.Kind == "mysql" {
				s.Stops(4, "ran before") // nothing on the server remembers, but data_dir does
				to = at.GTID
			}
			r := s.Set(to)
			require.Equal(t, 0, r.Code, r.Stderr)
			s.Prove()

			// Cut by somebody else while it is open: an end that is told, in time, and no fresh start behind it.
			p := s.Start()
			require.NoError(t, os.Truncate(path, int64(page)))
			s.Insert(1)
			r = p.Wait(t)
			require.Equal(t, 4, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, "OT4003")
			require.NotContains(t, r.Stderr, "goroutine ")
			s.Stops(4, "OT4003")
		})
	}
}
