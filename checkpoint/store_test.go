package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/pipeline"
)

var _ pipeline.Store = (*Store)(nil)

// clock is a hand-moved clock.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time { return c.t }

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func pg(lsn event.LSN, events uint64) event.Checkpoint {
	return event.Checkpoint{
		Position: event.Position{Kind: event.Postgres, SystemID: "7301", Timeline: 1, Slot: "outtail_orders", LSN: lsn},
		Sink:     event.SinkID{Kind: "kafka", ClusterID: "c1"},
		Events:   events,
	}
}

func my(file string, pos, events uint64) event.Checkpoint {
	return event.Checkpoint{
		Position: event.Position{Kind: event.MySQL, ServerUUID: "u-1", GTID: "u-1:1-5", File: file, Pos: pos},
		Sink:     event.SinkID{Kind: "kafka", ClusterID: "c1"},
		Events:   events,
	}
}

func save(t *testing.T, s *Store, entries map[string]event.Checkpoint) {
	t.Helper()
	require.NoError(t, s.Save(t.Context(), entries))
}

func requireFault(t *testing.T, err error, code string, class event.Class) *event.Fault {
	t.Helper()
	require.Error(t, err)
	f := event.AsFault(err)
	require.NotNil(t, f, "no fault: %v", err)
	require.Equal(t, code, f.Code, f.Error())
	require.Equal(t, class, f.Class, f.Error())
	require.NotEmpty(t, f.Hint)
	require.NotEmpty(t, f.Place)
	return f
}

func TestSavedIsLoadedByTheNextProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	c := newClock()
	s := open(t, Options{Dir: dir, Version: "v1.2.3", Now: c.now})
	got, err := s.Load("orders")
	require.NoError(t, err)
	require.True(t, got.IsZero(), "nothing stored yet")

	orders := pg(0x16B3748, 10)
	orders.Prefix = &event.Prefix{Tx: "0/16B3800", Rows: 17, Selection: "h"}
	orders.Depends = []byte(`{"relid":16384}`)
	save(t, s, map[string]event.Checkpoint{"orders": orders, "stock": my("binlog.000002", 400, 7)})
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "a second close does nothing")

	s = open(t, Options{Dir: dir, Version: "v1.2.4", Now: c.now})
	got, err = s.Load("orders")
	require.NoError(t, err)
	want := orders
	want.SavedAt, want.Version = c.t, "v1.2.3"
	require.Equal(t, want, got)
	got, err = s.Load("stock")
	require.NoError(t, err)
	require.Equal(t, uint64(400), got.Position.Pos)
}

func TestNobodyElseCanReadTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	s := open(t, Options{Dir: dir})
	save(t, s, map[string]event.Checkpoint{"orders": pg(1, 0)})
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), f.Name())
	}
	require.NoError(t, s.Close())
	require.NoError(t, os.Chmod(s.Path(), 0o644))
	open(t, Options{Dir: dir})
	info, err = os.Stat(s.Path())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "closed again after a restore that opened it")
}

func TestPipelinesSaveWhileCommandsLook(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	var wg sync.WaitGroup
	for _, name := range []string{"orders", "stock", "billing"} {
		wg.Go(func() {
			for i := range uint64(10) {
				assert.NoError(t, s.Save(context.Background(), map[string]event.Checkpoint{name: pg(event.LSN(i+1), i)}))
			}
		})
	}
	wg.Go(func() {
		for range 30 {
			st, err := s.Show()
			assert.NoError(t, err)
			assert.LessOrEqual(t, len(st.Pipelines), 3)
			s.RanBefore("orders")
		}
	})
	wg.Wait()
	st, err := s.Show()
	require.NoError(t, err)
	require.Len(t, st.Pipelines, 3)
	for _, p := range st.Pipelines {
		require.Equal(t, uint64(9), p.Events)
	}
}

func TestASecondProcessIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	first := open(t, Options{Dir: dir})
	for name, again := range map[string]func(Options) (*Store, error){"run": Open, "a command that reads": OpenReadOnly} {
		t.Run(name, func(t *testing.T) {
			_, err := again(Options{Dir: dir})
			f := requireFault(t, err, CodeLocked, event.Usage)
			require.ErrorIs(t, err, ErrLocked)
			require.Equal(t, dir, f.Place)
		})
	}
	require.NoError(t, first.Close())
	open(t, Options{Dir: dir})
}

func TestAReaderDoesNotLookLikeASecondProcess(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, open(t, Options{Dir: dir}).Close())
	reader, err := OpenReadOnly(Options{Dir: dir})
	require.NoError(t, err)
	opened := make(chan error, 1)
	go func() {
		s, err := Open(Options{Dir: dir})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	require.NoError(t, reader.Close())
	require.NoError(t, <-opened)
}

func TestReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r, err := OpenReadOnly(Options{Dir: dir})
	require.NoError(t, err, "no file is no state")
	st, err := r.Show()
	require.NoError(t, err)
	require.Empty(t, st.Pipelines)
	require.NoDirExists(t, dir, "reading makes nothing")

	s := open(t, Options{Dir: dir})
	save(t, s, map[string]event.Checkpoint{"orders": pg(5, 1)})
	require.NoError(t, s.Close())
	r, err = OpenReadOnly(Options{Dir: dir})
	require.NoError(t, err)
	defer r.Close()
	cp, err := r.Load("orders")
	require.NoError(t, err)
	require.Equal(t, event.LSN(5), cp.Position.LSN)
	requireFault(t, r.Save(t.Context(), map[string]event.Checkpoint{"orders": pg(6, 1)}), CodeReadOnly, event.Config)
}

func TestADataDirThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	cases := map[string]string{"is a file": file, "lies below a file": filepath.Join(file, "data"), "cannot be made": "/proc/outtail/data"}
	for name, dir := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Open(Options{Dir: dir})
			require.True(t, requireFault(t, err, CodeUnusable, event.Environment).Immediate)
		})
	}
	t.Run("the state file is a directory", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, FileName), 0o700))
		_, err := Open(Options{Dir: dir})
		requireFault(t, err, CodeUnusable, event.Environment)
	})
}

func TestAPositionNeverGoesBack(t *testing.T) {
	other := pg(50, 10)
	other.Position.Timeline = 2
	cases := []struct {
		name         string
		stored, next event.Checkpoint
		refused      bool
	}{
		{"forward", pg(100, 10), pg(101, 11), false},
		{"the same again", pg(100, 10), pg(100, 10), false},
		{"an earlier LSN", pg(100, 10), pg(99, 10), true},
		{"fewer events", pg(100, 10), pg(101, 9), true},
		{"another timeline has its own LSNs", pg(100, 10), other, false},
		{"a later binlog file begins at its start", my("binlog.000002", 900, 10), my("binlog.000003", 4, 10), false},
		{"earlier in the same binlog file", my("binlog.000002", 900, 10), my("binlog.000002", 899, 10), true},
		{"another kind of source", my("binlog.000002", 900, 10), pg(1, 10), false},
		{"no position", pg(100, 10), event.Checkpoint{Events: 10}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			save(t, s, map[string]event.Checkpoint{"orders": c.stored})
			err := s.Save(t.Context(), map[string]event.Checkpoint{"orders": c.next, "stock": pg(1, 1)})
			got, loadErr := s.Load("orders")
			require.NoError(t, loadErr)
			if !c.refused {
				require.NoError(t, err)
				require.Equal(t, c.next.Position, got.Position)
				return
			}
			requireFault(t, err, CodeBackwards, event.Internal)
			require.Equal(t, c.stored.Position, got.Position)
			stock, loadErr := s.Load("stock")
			require.NoError(t, loadErr)
			require.True(t, stock.IsZero(), "one commit: all entries or none")
		})
	}
}

func TestSaveAfterTheContextEndedStoresNothing(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Save(ctx, map[string]event.Checkpoint{"orders": pg(1, 1)}), context.Canceled)
	got, err := s.Load("orders")
	require.NoError(t, err)
	require.True(t, got.IsZero())
}

func TestRanBefore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	require.False(t, s.RanBefore("orders"))
	save(t, s, map[string]event.Checkpoint{"orders": pg(1, 1)})
	require.True(t, s.RanBefore("orders"))
	require.False(t, s.RanBefore("stock"))
	require.NoError(t, s.Close())

	require.NoError(t, os.Remove(filepath.Join(dir, FileName)))
	s = open(t, Options{Dir: dir})
	require.True(t, s.RanBefore("orders"), "the state file is gone, the evidence is not")
	cp, err := s.Load("orders")
	require.NoError(t, err)
	require.True(t, cp.IsZero())
	require.NoError(t, s.Close())

	require.NoError(t, os.Remove(filepath.Join(dir, FileName)))
	require.NoError(t, os.Remove(filepath.Join(dir, markerName)))
	s = open(t, Options{Dir: dir})
	require.False(t, s.RanBefore("orders"), "nothing is left to tell")
}

func TestOthersAreRecordsThatTheConfigurationDoesNotName(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	save(t, s, map[string]event.Checkpoint{"old": my("b.1", 5, 1), "orders": pg(1, 1)})
	others, err := s.Others("orders", "new")
	require.NoError(t, err)
	require.Len(t, others, 1)
	require.Equal(t, "u-1", others["old"].Position.ServerUUID)
}

func TestFormats(t *testing.T) {
	setFormat := func(t *testing.T, dir, v string) {
		db, err := bbolt.Open(filepath.Join(dir, FileName), 0o600, nil)
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyFormat), []byte(v))
		}))
		require.NoError(t, db.Close())
	}
	stored := func(t *testing.T) string {
		dir := t.TempDir()
		s := open(t, Options{Dir: dir})
		save(t, s, map[string]event.Checkpoint{"orders": pg(7, 1)})
		require.NoError(t, s.Close())
		return dir
	}
	t.Run("a newer one is refused and left alone", func(t *testing.T) {
		dir := stored(t)
		setFormat(t, dir, "9")
		before, err := os.ReadFile(filepath.Join(dir, FileName))
		require.NoError(t, err)
		_, err = Open(Options{Dir: dir})
		requireFault(t, err, CodeNewerFormat, event.Safety)
		_, err = OpenReadOnly(Options{Dir: dir})
		requireFault(t, err, CodeNewerFormat, event.Safety)
		after, err := os.ReadFile(filepath.Join(dir, FileName))
		require.NoError(t, err)
		require.Equal(t, before, after)
	})
	t.Run("an older one is brought up to date, once", func(t *testing.T) {
		dir := stored(t)
		runs := 0
		steps := []func(*bbolt.Tx) error{func(tx *bbolt.Tx) error {
			runs++
			cp, err := loadCurrent(tx, "orders")
			if err != nil {
				return err
			}
			cp.Events = 99
			return putCurrent(tx, "orders", cp)
		}}
		_, err := OpenReadOnly(Options{Dir: dir, migrations: steps})
		requireFault(t, err, CodeMigration, event.Usage)
		for range 2 {
			s := open(t, Options{Dir: dir, migrations: steps})
			cp, err := s.Load("orders")
			require.NoError(t, err)
			require.Equal(t, uint64(99), cp.Events)
			require.NoError(t, s.Close())
		}
		require.Equal(t, 1, runs)
	})
	t.Run("a step that fails leaves the old format", func(t *testing.T) {
		dir := stored(t)
		_, err := Open(Options{Dir: dir, migrations: []func(*bbolt.Tx) error{func(tx *bbolt.Tx) error {
			_ = tx.DeleteBucket([]byte(bucketPipelines))
			return errors.New("no")
		}}})
		requireFault(t, err, CodeMigration, event.Safety)
		cp, err := open(t, Options{Dir: dir}).Load("orders")
		require.NoError(t, err)
		require.Equal(t, event.LSN(7), cp.Position.LSN)
	})
}
