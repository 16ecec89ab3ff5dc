package checkpoint

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/outtail/outtail/event"
)

func dependsCount(t *testing.T, s *Store, pipeline string) (n int) {
	t.Helper()
	require.NoError(t, s.view(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketPipelines)).Bucket([]byte(pipeline)).Bucket([]byte(bucketDepends)).
			ForEach(func([]byte, []byte) error { n++; return nil })
	}))
	return n
}

func TestHistoryGrowsOncePerMinute(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	s := open(t, Options{Dir: dir, Now: c.now})
	start := c.t
	for i := range 100 { // 100 s
		save(t, s, map[string]event.Checkpoint{"orders": pg(event.LSN(i+1), uint64(i))})
		c.t = c.t.Add(time.Second)
	}
	past, err := s.History("orders")
	require.NoError(t, err)
	require.Len(t, past, 2)
	require.Equal(t, start, past[0].At)
	require.Equal(t, event.LSN(1), past[0].Checkpoint.Position.LSN)
	require.Equal(t, start.Add(time.Minute), past[1].At)
	require.NoError(t, s.Close())

	s = open(t, Options{Dir: dir, Now: c.now}) // 40 s after the last record
	save(t, s, map[string]event.Checkpoint{"orders": pg(1000, 1000)})
	past, err = s.History("orders")
	require.NoError(t, err)
	require.Len(t, past, 2, "a restart does not reset the minute")
	none, err := s.History("nobody")
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestHistoryKeepsWhatEachPositionDependedOn(t *testing.T) {
	c := newClock()
	s := open(t, Options{Dir: t.TempDir(), Now: c.now})
	for i := range 6 {
		cp := pg(event.LSN(i+1), uint64(i))
		cp.Depends = fmt.Appendf(nil, `{"layout":%d}`, i/3)
		save(t, s, map[string]event.Checkpoint{"orders": cp})
		c.t = c.t.Add(time.Minute)
	}
	past, err := s.History("orders")
	require.NoError(t, err)
	require.Len(t, past, 6)
	for i, p := range past {
		require.JSONEq(t, fmt.Sprintf(`{"layout":%d}`, i/3), string(p.Checkpoint.Depends))
	}
	require.Equal(t, 2, dependsCount(t, s, "orders"), "stored once, however many positions share it")

	c.t = c.t.Add(4 * 366 * 24 * time.Hour)
	cp := pg(100, 100)
	cp.Depends = []byte(`{"layout":7}`)
	save(t, s, map[string]event.Checkpoint{"orders": cp})
	past, err = s.History("orders")
	require.NoError(t, err)
	require.Len(t, past, 1)
	require.Equal(t, 1, dependsCount(t, s, "orders"), "gone with the last position that needed it")
}

// A clock that is put forward by a mistake, and back, costs no history.
func TestAClockThatJumpsCostsNoHistory(t *testing.T) {
	c := newClock()
	s := open(t, Options{Dir: t.TempDir(), Now: c.now})
	passed := time.Duration(0)
	s.passed = func() time.Duration { return passed }
	lsn := 0
	minutes := func(n int) {
		for range n {
			lsn++
			save(t, s, map[string]event.Checkpoint{"orders": pg(event.LSN(lsn), uint64(lsn))})
			c.t, passed = c.t.Add(time.Minute), passed+time.Minute
		}
	}
	minutes(30)
	c.t = c.t.Add(10 * 365 * 24 * time.Hour)
	minutes(3)
	c.t = c.t.Add(-10 * 365 * 24 * time.Hour)
	minutes(10)
	past, err := s.History("orders")
	require.NoError(t, err)
	require.Len(t, past, 43)
}
