package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func TestSetMovesThePositionAndLeavesATrail(t *testing.T) {
	c := newClock()
	s := open(t, Options{Dir: t.TempDir(), Version: "v2", Now: c.now})
	before := pg(100, 42)
	before.Prefix = &event.Prefix{Tx: "0/70", Rows: 3}
	save(t, s, map[string]event.Checkpoint{"orders": before})
	c.t = c.t.Add(5 * time.Second)

	to := event.Checkpoint{Position: pg(60, 0).Position}
	require.NoError(t, s.Set(t.Context(), "orders", to, By{"ada", "broker lost an hour"}))
	got, err := s.Load("orders")
	require.NoError(t, err)
	require.Equal(t, event.LSN(60), got.Position.LSN, "a person may go back")
	require.Nil(t, got.Prefix)
	require.Equal(t, uint64(42), got.Events)
	require.Equal(t, "c1", got.Sink.ClusterID)
	require.Equal(t, c.t, got.SavedAt)
	require.Equal(t, "v2", got.Version)

	past, err := s.History("orders")
	require.NoError(t, err)
	require.Equal(t, event.LSN(100), past[len(past)-1].Checkpoint.Position.LSN, "where it was can be found again")

	audits, err := s.Audits()
	require.NoError(t, err)
	require.Len(t, audits, 1)
	a := audits[0]
	require.Equal(t, ActionSet, a.Action)
	require.Equal(t, "ada", a.Operator)
	require.Equal(t, "broker lost an hour", a.Reason)
	require.Equal(t, "orders", a.Pipeline)
	require.Equal(t, c.t, a.Time)
	require.Equal(t, event.LSN(100), a.Before.Position.LSN)
	require.Equal(t, event.LSN(60), a.After.Position.LSN)

	save(t, s, map[string]event.Checkpoint{"orders": pg(61, 43)})
}

func TestSetOnAPipelineWithoutAPosition(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	require.NoError(t, s.Set(t.Context(), "orders", pg(5, 0), By{"ada", "moved from another host"}))
	require.True(t, s.RanBefore("orders"))
	audits, err := s.Audits()
	require.NoError(t, err)
	require.Nil(t, audits[0].Before)
}

func TestAnAcceptanceIsUsedUpByTheNextSave(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	save(t, s, map[string]event.Checkpoint{"orders": pg(100, 42)})
	require.NoError(t, s.Accept(t.Context(), "orders", "OT2013", By{"ada", "the slot was recreated by us"}))
	require.NoError(t, s.Accept(t.Context(), "orders", "OT5007", By{"ada", "new cluster"}))
	got, err := s.Load("orders")
	require.NoError(t, err)
	require.Equal(t, []string{"OT2013", "OT5007"}, got.Accepted)
	require.Equal(t, event.LSN(100), got.Position.LSN, "accepting moves nothing")

	next := pg(7, 1) // what was accepted may have put the source somewhere else
	next.Accepted = []string{"OT5007"}
	save(t, s, map[string]event.Checkpoint{"orders": next})
	got, err = s.Load("orders")
	require.NoError(t, err)
	require.Equal(t, []string{"OT5007"}, got.Accepted, "one is used up, the sink still has to connect")
	next.Accepted = nil
	save(t, s, map[string]event.Checkpoint{"orders": next})
	got, err = s.Load("orders")
	require.NoError(t, err)
	require.Empty(t, got.Accepted)
	requireFault(t, s.Save(t.Context(), map[string]event.Checkpoint{"orders": pg(6, 1)}), CodeBackwards, event.Internal)

	audits, err := s.Audits()
	require.NoError(t, err)
	require.Len(t, audits, 2)
	require.Equal(t, "OT2013", audits[0].Detail)
	require.Empty(t, audits[0].Before.Accepted)
	require.Equal(t, []string{"OT2013"}, audits[0].After.Accepted)
}

func TestAnAcceptanceOutlivesASet(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	save(t, s, map[string]event.Checkpoint{"orders": pg(100, 42)})
	require.NoError(t, s.Accept(t.Context(), "orders", "OT5007", By{"ada", "new cluster"}))
	require.NoError(t, s.Set(t.Context(), "orders", pg(50, 0), By{"ada", "and from further back"}))
	got, err := s.Load("orders")
	require.NoError(t, err)
	require.Equal(t, []string{"OT5007"}, got.Accepted, "both are meant for the next start")
}

func TestAStopIsKeptUntilThePipelineGoesOn(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	last := func() Stop {
		stop, err := s.LastStop("orders")
		require.NoError(t, err)
		return stop
	}
	require.Zero(t, last())
	stop := Stop{Code: "OT3028", Place: "db:3306 binlog.000002:4711", At: time.Unix(1700000000, 0).UTC()}
	require.NoError(t, s.Stopped("orders", stop))
	require.Equal(t, stop, last(), "without a position too")
	require.False(t, s.RanBefore("orders"))
	save(t, s, map[string]event.Checkpoint{"orders": pg(100, 42)})
	require.Zero(t, last(), "it went on")

	require.NoError(t, s.Stopped("orders", stop))
	require.NoError(t, s.Accept(t.Context(), "orders", "OT3028", By{"ada", "seen"}))
	save(t, s, map[string]event.Checkpoint{"stock": pg(1, 1)})
	require.NoError(t, s.Close())
	s = open(t, Options{Dir: dir})
	require.Equal(t, stop, last(), "nothing is stored of it since")
	require.NoError(t, s.Set(t.Context(), "orders", pg(50, 0), By{"ada", "from further back"}))
	require.Zero(t, last(), "a person put it elsewhere")
}

func TestAFindingCanBeAcceptedBeforeThereIsAPosition(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	require.NoError(t, s.Accept(t.Context(), "new", "OT3011", By{"ada", "renamed on purpose"}))
	got, err := s.Load("new")
	require.NoError(t, err)
	require.True(t, got.IsZero())
	require.Equal(t, []string{"OT3011"}, got.Accepted)
	require.False(t, s.RanBefore("new"))
	others, err := s.Others()
	require.NoError(t, err)
	require.Empty(t, others)
	st, err := s.Show()
	require.NoError(t, err)
	require.Empty(t, st.Pipelines)
}

func TestActsThatAreRefused(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	save(t, s, map[string]event.Checkpoint{"orders": pg(100, 42)})
	require.NoError(t, s.Accept(t.Context(), "orders", "OT2013", By{"ada", "once"}))
	ctx, by := t.Context(), By{"ada", "because"}
	for name, act := range map[string]func() error{
		"set without a reason":      func() error { return s.Set(ctx, "orders", pg(1, 1), By{"ada", " "}) },
		"set without a person":      func() error { return s.Set(ctx, "orders", pg(1, 1), By{"", "because"}) },
		"set without a position":    func() error { return s.Set(ctx, "orders", event.Checkpoint{}, by) },
		"set without a pipeline":    func() error { return s.Set(ctx, "", pg(1, 1), by) },
		"accept without a reason":   func() error { return s.Accept(ctx, "orders", "OT2014", By{"ada", ""}) },
		"accept what is no code":    func() error { return s.Accept(ctx, "orders", "yes", by) },
		"accept what is accepted":   func() error { return s.Accept(ctx, "orders", "OT2013", by) },
		"accept without a pipeline": func() error { return s.Accept(ctx, "", "OT2013", by) },
	} {
		t.Run(name, func(t *testing.T) { requireFault(t, act(), CodeRefused, event.Usage) })
	}
	audits, err := s.Audits()
	require.NoError(t, err)
	require.Len(t, audits, 1, "what was refused left no trail and changed nothing")
	got, err := s.Load("orders")
	require.NoError(t, err)
	require.Equal(t, event.LSN(100), got.Position.LSN)
}
