package checkpoint

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

// soundFile makes a state file with a history and gives its directory and content.
func soundFile(t *testing.T) (dir string, content []byte) {
	t.Helper()
	dir = t.TempDir()
	c := newClock()
	s := open(t, Options{Dir: dir, Now: c.now})
	for i := range 40 {
		c.t = c.t.Add(time.Minute)
		cp := pg(event.LSN(1000+i), uint64(i))
		cp.Depends = fmt.Appendf(nil, `{"relid":%d}`, 16384+i%3)
		save(t, s, map[string]event.Checkpoint{"orders": cp, "stock": my("binlog.000002", uint64(i), 1)})
	}
	require.NoError(t, s.Accept(t.Context(), "stock", "OT3010", By{"ada", "test"}))
	require.NoError(t, s.Close())
	content, err := os.ReadFile(filepath.Join(dir, FileName))
	require.NoError(t, err)
	return dir, content
}

func TestADamagedFileIsASafetyStopAndIsLeftAlone(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize()
	cases := map[string]func(b []byte) []byte{
		"empty":                   func([]byte) []byte { return []byte{} },
		"one byte":                func(b []byte) []byte { return b[:1] },
		"one page":                func(b []byte) []byte { return b[:page] },
		"cut in the middle":       func(b []byte) []byte { return b[:len(b)/2] },
		"cut at the third page":   func(b []byte) []byte { return b[:3*page] },
		"zeros":                   func(b []byte) []byte { return make([]byte, len(b)) },
		"text":                    func([]byte) []byte { return []byte("position: 0/16B3748\n") },
		"both meta pages damaged": func(b []byte) []byte { b[40] ^= 1; b[page+40] ^= 1; return b },
		"all but the meta pages zeroed": func(b []byte) []byte {
			clear(b[2*page:])
			return b
		},
		"all but the meta pages ones": func(b []byte) []byte {
			for i := 2 * page; i < len(b); i++ {
				b[i] = 0xff
			}
			return b
		},
	}
	dir, sound := soundFile(t)
	path := filepath.Join(dir, FileName)
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			damaged := damage(append([]byte(nil), sound...))
			require.NoError(t, os.WriteFile(path, damaged, 0o600))
			for how, openIt := range map[string]func(Options) (*Store, error){"run": Open, "read": OpenReadOnly} {
				_, err := openIt(Options{Dir: dir})
				f := requireFault(t, err, CodeDamaged, event.Safety)
				require.Equal(t, path, f.Place, how)
			}
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, damaged, after, "never replaced")
			require.NoError(t, os.WriteFile(path, sound, 0o600))
			require.NoError(t, open(t, Options{Dir: dir}).Close(), "a refused open keeps no lock")
		})
	}
}

// Somebody cuts a file while it is open. bbolt panics with its own locks held: whoever asks after that gets the fault, and waits for nobody.
func TestAFileThatIsCutWhileItIsOpenKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(s *Store) error{
		"the positions": func(s *Store) error {
			return s.Save(t.Context(), map[string]event.Checkpoint{"orders": pg(5000, 5000)})
		},
		"what is parked": func(s *Store) error {
			return s.Prepared("orders").Write(map[string][]byte{"k": []byte("v")}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := soundFile(t)
			s := open(t, Options{Dir: dir})
			path := s.Path()
			if name == "what is parked" {
				for i := range 300 {
					require.NoError(t, s.Prepared("orders").Write(map[string][]byte{fmt.Sprint(i): make([]byte, 500)}, nil))
				}
				path = s.parkedPath()
			}
			require.NoError(t, os.Truncate(path, int64(os.Getpagesize())))
			done := make(chan struct{})
			go func() { // ends at once, or with the test's failure
				defer close(done)
				for range 3 {
					err := cut(s)
					assert.Equal(t, event.Safety, event.ClassOf(err), "%v", err)
				}
				if name == "the positions" {
					assert.Equal(t, event.Safety, event.ClassOf(s.Stopped("orders", Stop{Code: "OT4003"})))
					_, err := s.Load("orders")
					assert.Equal(t, event.Safety, event.ClassOf(err))
				}
				assert.NoError(t, s.Close())
			}()
			select {
			case <-done:
			case <-time.After(time.Minute):
				require.Fail(t, "somebody waits for ever")
			}
			_, err := os.Stat(path)
			require.NoError(t, err)
			again, err := Open(Options{Dir: dir})
			if err == nil {
				_, err = again.Prepared("orders").ID()
				require.NoError(t, again.Close())
			}
			require.Equal(t, event.Safety, event.ClassOf(err), "%v", err)
		})
	}
}

func TestAFileOfAnotherProgramIsNotOurs(t *testing.T) {
	dir := t.TempDir()
	db, err := bbolt.Open(filepath.Join(dir, FileName), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = Open(Options{Dir: dir})
	requireFault(t, err, CodeDamaged, event.Safety)
}

// One flipped bit anywhere is either noticed or changes nothing of what is loaded (it hit a free page, or a meta page
// whose twin still tells the truth of the commit before: then the position is the earlier one, never another).
func TestAFlippedBitNeverChangesAPosition(t *testing.T) {
	t.Parallel()
	dir, sound := soundFile(t)
	path := filepath.Join(dir, FileName)
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	noticed, opened := 0, 0
	for range 600 {
		b := append([]byte(nil), sound...)
		at, bit := rng.IntN(len(b)), byte(1)<<rng.IntN(8)
		b[at] ^= bit
		if err := checkPages(bytes.NewReader(b), int64(len(b))); err != nil {
			require.ErrorIs(t, err, errDamaged)
			noticed++
			continue
		}
		if opened++; opened > 25 {
			continue
		}
		require.NoError(t, os.WriteFile(path, b, 0o600))
		s, err := OpenReadOnly(Options{Dir: dir})
		if err != nil {
			requireFault(t, err, CodeDamaged, event.Safety)
			continue
		}
		orders, err := s.Load("orders")
		require.NoError(t, err)
		stock, err := s.Load("stock")
		require.NoError(t, err)
		require.Equal(t, event.LSN(1039), orders.Position.LSN, "byte %d bit %d", at, bit)
		require.Equal(t, uint64(39), stock.Position.Pos, "byte %d bit %d", at, bit)
		require.NoError(t, s.Close())
	}
	require.NotZero(t, noticed)
}

// A cycle of pages would keep bbolt busy for ever.
func TestACycleOfPagesIsNoticed(t *testing.T) {
	dir := t.TempDir()
	c := newClock()
	s := open(t, Options{Dir: dir, Now: c.now})
	for i := range 25 { // a history that needs a branch page
		c.t = c.t.Add(time.Minute)
		cp := pg(event.LSN(1000+i), uint64(i))
		cp.Sink.ClusterID = strings.Repeat("x", 900)
		save(t, s, map[string]event.Checkpoint{"orders": cp})
	}
	require.NoError(t, s.Close())
	path := filepath.Join(dir, FileName)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	meta, ok := newestMeta(bytes.NewReader(b))
	require.True(t, ok)
	looped := 0
	for id := uint64(reservedPages); id < meta.pages; id++ {
		p := b[id*meta.pageSize:]
		if order.Uint16(p[8:]) == branchPage {
			order.PutUint64(p[pageHeader+8:], id)
			looped++
		}
	}
	require.NotZero(t, looped)
	require.NoError(t, os.WriteFile(path, b, 0o600))
	_, err = Open(Options{Dir: dir})
	requireFault(t, err, CodeDamaged, event.Safety)
}

// Whatever a file holds, checking it ends without a panic and without reading beyond what is there.
func FuzzCheckPages(f *testing.F) {
	path := filepath.Join(f.TempDir(), FileName)
	require.NoError(f, createFile(path, 1))
	sound, err := os.ReadFile(path)
	require.NoError(f, err)
	f.Add(sound[:4096])
	f.Add(sound)
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := checkPages(bytes.NewReader(b), int64(len(b))); err != nil {
			require.ErrorIs(t, err, errDamaged)
		}
	})
}

func TestWhatIsNoFileIsNeitherOpenedNorChanged(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	require.NoError(t, os.Chmod(other, 0o755))
	require.NoError(t, os.Symlink(other, filepath.Join(dir, FileName)))
	_, err := Open(Options{Dir: dir})
	require.ErrorContains(t, err, "not a regular file")
	_, err = OpenReadOnly(Options{Dir: dir})
	require.ErrorContains(t, err, "not a regular file")
	info, err := os.Stat(other)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "what the link points to keeps its mode")
}

func TestADraftThatACrashLeftIsNoState(t *testing.T) {
	dir := t.TempDir()
	draft := filepath.Join(dir, FileName+".new")
	require.NoError(t, os.WriteFile(draft, []byte("half"), 0o600))
	open(t, Options{Dir: dir})
	require.NoFileExists(t, draft)
}
