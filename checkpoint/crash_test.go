//go:build unix

package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/outtail/outtail/event"
)

// The test binary runs itself again as the process that is killed or starved; these variables say so.
const (
	childDir  = "OUTTAIL_CHECKPOINT_CHILD_DIR"
	childWhat = "OUTTAIL_CHECKPOINT_CHILD"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childWhat) {
	case "":
		os.Exit(m.Run())
	case "save":
		saveForEver(os.Getenv(childDir))
	case "keep":
		keepForEver(os.Getenv(childDir))
	case "park":
		parkForEver(os.Getenv(childDir))
	case "rewind":
		rewindForEver(os.Getenv(childDir))
	case "starve":
		starve(os.Getenv(childDir))
	}
}

func child(t *testing.T, what, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childWhat+"="+what, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// saveForEver goes on from what is stored and says "about" before and "saved" after each save, as a pipeline would send
// and then confirm. Its clock runs fast, so that history and its thinning take part.
func saveForEver(dir string) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := Open(Options{Dir: dir, Now: func() time.Time { at = at.Add(7 * time.Minute); return at }})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	cp, err := s.Load("orders")
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	fmt.Println("loaded", cp.Events)
	ctx := unlimited{}
	for n := cp.Events + 1; ; n++ {
		next := pg(event.LSN(n), n)
		next.Depends = fmt.Appendf(nil, `{"pad":%q}`, strings.Repeat("x", int(n%3000)))
		fmt.Println("about", n)
		if err := s.Save(ctx, map[string]event.Checkpoint{"orders": next, "stock": my("b.1", n, n)}); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		fmt.Println("saved", n)
	}
}

// keepForEver keeps a transaction of many pieces in two writes, drops the one before, and says so, as a source does with
// prepared transactions.
func keepForEver(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
	}
	s, err := Open(Options{Dir: dir})
	fail(err)
	p := s.Prepared("orders")
	n := uint64(0)
	fail(p.Each("h", func(k string, _ []byte) error {
		n, err = strconv.ParseUint(k[1:], 10, 64)
		return err
	}))
	fmt.Println("loaded", n)
	for n++; ; n++ {
		rows := map[string][]byte{}
		for i := range int(n % 5) {
			rows[fmt.Sprintf("r%06d.%d", n, i)] = []byte(strings.Repeat("x", 20_000*i))
		}
		fmt.Println("about", n)
		fail(p.Write(rows, nil))
		fail(p.Write(map[string][]byte{fmt.Sprintf("h%06d", n): []byte("head")}, []string{fmt.Sprintf("h%06d", n-1), fmt.Sprintf("r%06d", n-1)}))
		fmt.Println("saved", n)
	}
}

// I1: whatever the instant of a SIGKILL, the second file opens, and has the rows of the last transaction that was reported as
// kept, or of the one that was under way, complete where it has a head.
func TestKillNeverCostsWhatWasKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	for round := range 6 {
		about, saved := killed(t, child(t, "keep", dir), 1+rng.IntN(60), time.Duration(rng.IntN(3000))*time.Microsecond)
		s, err := Open(Options{Dir: dir})
		require.NoError(t, err, "round %d", round)
		p := s.Prepared("orders")
		heads, rows := parkedKeys(t, p, "h"), parkedKeys(t, p, "r")
		require.NoError(t, s.Close())
		if saved == 0 && len(heads) == 0 {
			continue
		}
		require.Len(t, heads, 1, "round %d", round)
		for head := range heads {
			n, err := strconv.ParseUint(head[1:], 10, 64)
			require.NoError(t, err)
			require.True(t, n == saved || n == about, "round %d: %d is kept, %d was reported, %d under way", round, n, saved, about)
			for i := range int(n % 5) {
				require.Len(t, rows[fmt.Sprintf("r%06d.%d", n, i)], 20_000*i)
			}
		}
	}
}

// parkForEver parks some events and moves the first of the last ones behind them, in one write, then ends the one that was moved, in
// another.
func parkForEver(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
	}
	s, err := Open(Options{Dir: dir})
	fail(err)
	d := s.DeadLetters()
	n := int64(0)
	fail(d.Each("p", -1<<63, func(e *event.Parked) error { n = max(n, e.Order/10); return nil }))
	if n > 0 { // what was under way
		fail(closed(d, n*10+7))
	}
	fmt.Println("loaded", n)
	for n++; ; n++ {
		fmt.Println("about", n)
		fail(d.Park(unlimited{}, "p", parkedAt(n)))
		fail(closed(d, n*10+7))
		fmt.Println("saved", n)
	}
}

// parkedAt is what parkForEver writes first in its n-th turn.
func parkedAt(n int64) []event.Parking {
	var all []event.Parked
	for i := range 1 + n%4 {
		all = append(all, deadLetter(n*10+i, strings.Repeat("x", int(n*7919%20_000))))
	}
	return append(parking(all...), event.Parking{From: (n - 1) * 10, Order: n*10 + 7})
}

// I1: whatever the instant of a SIGKILL, a write into the dead-letter store is there with all its entries and moves, each with its
// row, or with none.
func TestKillNeverTearsWhatIsParked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 3))
	for round := range 6 {
		about, saved := killed(t, child(t, "park", dir), 1+rng.IntN(40), time.Duration(rng.IntN(3000))*time.Microsecond)
		// The orders after n turns, and after the first write of the next.
		after := func(n int64, begun bool) (want []int64) {
			for k := int64(1); k <= n+1; k++ {
				for i := range 1 + k%4 {
					if k <= n && (i > 0 || k == n && !begun) || k == n+1 && begun {
						want = append(want, k*10+i)
					}
				}
				if k == n+1 && begun && n > 0 {
					want = append(want, k*10+7)
				}
			}
			return want
		}
		s, err := Open(Options{Dir: dir})
		require.NoError(t, err, "round %d", round)
		d := s.DeadLetters()
		require.NoError(t, d.Check())
		have := orders(t, d, -1<<63)
		n := int64(saved)
		require.Contains(t, [][]int64{after(n, false), after(n, true), after(max(n, int64(about)), false)}, have, "round %d: %d was reported, %d under way", round, saved, about)
		for _, o := range have {
			e, err := d.Get("p", o)
			require.NoError(t, err)
			require.NotNil(t, e.Row, "%d", o)
			from := o / 10
			if o%10 == 7 {
				from--
			}
			require.Len(t, e.Row[event.Payload].Bytes, int(from*7919%20_000))
		}
		require.NoError(t, s.Close())
	}
}

// killed runs a child until some lines and a moment have passed, and gives what it began and reported last.
func killed(t *testing.T, cmd *exec.Cmd, lines int, moment time.Duration) (about, saved uint64) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		require.NotEqual(t, "failed", word, line)
		n, err := strconv.ParseUint(rest, 10, 64)
		require.NoError(t, err, line)
		switch word {
		case "loaded", "saved":
			saved = n
		case "about":
			about = n
		}
		if lines--; lines == 0 {
			time.AfterFunc(moment, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		}
	}
	require.Error(t, cmd.Wait(), "killed")
	return about, saved
}

// rewindForEver goes forward to 10, back to 5, forward to 20, back to 15 and so on, as a pipeline and a person in turn.
func rewindForEver(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
	}
	s, err := Open(Options{Dir: dir})
	fail(err)
	cp, err := s.Load("orders")
	fail(err)
	fmt.Println("loaded", cp.Events)
	for n := (cp.Events+5)/10 + 1; ; n++ {
		if cp.Events%10 == 0 && cp.Events > 0 {
			n-- // the person was not heard
		} else {
			fail(s.Save(unlimited{}, map[string]event.Checkpoint{"orders": pg(event.LSN(10*n), 10*n)}))
		}
		fmt.Println("about", 10*n-5)
		fail(s.Rewind(unlimited{}, "orders", pg(event.LSN(10*n-5), 10*n-5), "", nil, By{"ada", "test"}))
		fmt.Println("saved", 10*n-5)
		cp = event.Checkpoint{}
	}
}

// Going back is one commit: whatever the instant of a SIGKILL, the position, the history and the audit tell the same.
func TestKillLeavesARewindDoneOrNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 3))
	for round := range 6 {
		about, saved := killed(t, child(t, "rewind", dir), 1+rng.IntN(40), time.Duration(rng.IntN(3000))*time.Microsecond)
		s, err := OpenReadOnly(Options{Dir: dir})
		require.NoError(t, err, "round %d", round)
		cp, err := s.Load("orders")
		require.NoError(t, err)
		audits, err := s.Audits()
		require.NoError(t, err)
		past, err := s.History("orders")
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.GreaterOrEqual(t, cp.Events+5, saved, "what was reported is there")
		require.LessOrEqual(t, cp.Events, max(saved, about)+15)
		acts := int(cp.Events / 10) // those before this one
		if cp.Events%10 == 5 {
			acts++
		} else if cp.Events > 0 {
			acts--
		}
		require.Len(t, audits, acts, "round %d at %d", round, cp.Events)
		if cp.Events%10 == 5 {
			require.Equal(t, cp.Position, audits[acts-1].After.Position)
			require.Equal(t, cp.Events+5, past[len(past)-1].Checkpoint.Events, "where it was can be found again")
		}
	}
}

// unlimited is a context for a process that is meant to be killed.
type unlimited struct{}

func (unlimited) Deadline() (time.Time, bool) { return time.Time{}, false }
func (unlimited) Done() <-chan struct{}       { return nil }
func (unlimited) Err() error                  { return nil }
func (unlimited) Value(any) any               { return nil }

// I1, I4: whatever the instant of a SIGKILL, the file opens, and holds the last save that was reported or the one that was
// under way: never an older one, never one that was not begun.
func TestKillNeverCostsASavedPosition(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	var saved, about uint64
	for round := range 8 {
		cmd := child(t, "save", dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		// Killed after a number of lines and a moment, so that slow machines get as far as fast ones.
		killAfter, moment := 1+rng.IntN(60), time.Duration(rng.IntN(3000))*time.Microsecond
		lines := 0
		in := bufio.NewReader(out)
		for {
			line, err := in.ReadString('\n')
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			require.NotEqual(t, "failed", word, line)
			n, err := strconv.ParseUint(rest, 10, 64)
			require.NoError(t, err, line)
			switch word {
			case "loaded":
				require.True(t, n == saved || n == about, "round %d: loaded %d after saved %d, about %d", round, n, saved, about)
				saved = n
			case "about":
				about = n
			case "saved":
				saved = n
			}
			if lines++; lines == killAfter {
				time.AfterFunc(moment, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
			}
		}
		require.Error(t, cmd.Wait(), "killed")

		s, err := OpenReadOnly(Options{Dir: dir})
		require.NoError(t, err, "round %d", round)
		orders, err := s.Load("orders")
		require.NoError(t, err)
		stock, err := s.Load("stock")
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.Equal(t, orders.Events, stock.Events, "all entries of a save or none")
		require.GreaterOrEqual(t, orders.Events, saved, "round %d", round)
		require.LessOrEqual(t, orders.Events, max(saved, about), "round %d", round)
		require.Equal(t, event.LSN(orders.Events), orders.Position.LSN)
	}
	require.NotZero(t, saved)
}

// starve runs into a limit on the file's size (as a full disk would), and goes on when it is lifted.
func starve(dir string) {
	ok := func(step string, err error) {
		if err != nil {
			fmt.Println(step, err)
			os.Exit(1)
		}
	}
	s, err := Open(Options{Dir: dir})
	ok("open", err)
	ok("save", s.Save(unlimited{}, map[string]event.Checkpoint{"orders": pg(1, 1)}))
	info, err := os.Stat(s.Path())
	ok("stat", err)
	var was unix.Rlimit
	ok("limit", unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	ok("limit", unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(info.Size()), Max: was.Max}))
	big := pg(2, 2)
	big.Depends = fmt.Appendf(nil, `{"pad":%q}`, strings.Repeat("x", 256<<10))
	for range 2 {
		err = s.Save(unlimited{}, map[string]event.Checkpoint{"orders": big})
		f := event.AsFault(err)
		if f == nil || f.Code != CodeDiskFull || f.Class != event.Retry {
			ok("starved", fmt.Errorf("want %s, got %w", CodeDiskFull, err))
		}
		cp, err := s.Load("orders")
		ok("load", err)
		if cp.Events != 1 {
			ok("load", fmt.Errorf("%d events", cp.Events))
		}
	}
	ok("limit", unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	ok("save again", s.Save(unlimited{}, map[string]event.Checkpoint{"orders": big}))
	ok("close", s.Close())
}

func TestAFullDiskHoldsThePositionAndPasses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := child(t, "starve", dir)
	out, err := cmd.Output()
	require.NoError(t, err, string(out))
	s := open(t, Options{Dir: dir})
	cp, err := s.Load("orders")
	require.NoError(t, err)
	require.Equal(t, uint64(2), cp.Events)
}

func TestWhyAWriteFailed(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		code  string
		class event.Class
	}{
		{"disk full", &os.PathError{Op: "write", Err: syscall.ENOSPC}, CodeDiskFull, event.Retry},
		{"limit on the file's size, as bbolt words it", errors.New("file resize error: truncate /d/outtail.db: " + syscall.EFBIG.Error()), CodeDiskFull, event.Retry},
		{"quota", syscall.EDQUOT, CodeDiskFull, event.Retry},
		{"read-only file system", &os.PathError{Op: "write", Err: syscall.EROFS}, CodeReadOnly, event.Config},
		{"rights taken away", syscall.EACCES, CodeReadOnly, event.Config},
		{"I/O error", fmt.Errorf("sync: %w", syscall.EIO), CodeIO, event.Internal},
		{"damage found while writing", fmt.Errorf("%w: page 7", errDamaged), CodeDamaged, event.Safety},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := requireFault(t, faultWrite("save position", "/d/outtail.db", c.err), c.code, c.class)
			require.ErrorIs(t, f, c.err)
		})
	}
}

func closed(d *DeadLetters, order int64) error {
	_, err := d.End(unlimited{}, "p", []event.Ending{{Order: order}})
	return err
}
