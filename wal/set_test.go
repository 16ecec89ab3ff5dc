package wal_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/wal"
)

func TestAPositionIsSetOnlyWhereTheServerCanServeIt(t *testing.T) {
	b := newBench(t)
	o := b.options()
	set := func(to string) (event.Checkpoint, *event.Fault) {
		cp, err := wal.CheckSet(context.Background(), o, to)
		if err == nil {
			return cp, nil
		}
		f := event.AsFault(err)
		require.NotNil(t, f, "%v", err)
		require.NotEmpty(t, f.Hint)
		return cp, f
	}
	refused := func(to string) {
		t.Helper()
		_, f := set(to)
		require.NotNil(t, f)
		require.Equal(t, wal.CodePositionRefused, f.Code)
		require.Equal(t, event.Usage, f.Class)
	}
	for _, to := range []string{"", "yesterday", "0/0", "slot", "0/1"} {
		refused(to)
	}
	// Without a slot now creates it, and what is stored is what a start accepts.
	cp, f := set("now")
	require.Nil(t, f)
	b.exec(`INSERT INTO outbox VALUES ('1', 'a')`)
	s := b.open(o, cp)
	require.Equal(t, cp.Position, s.cp.Position)
	require.Equal(t, []string{"1"}, ids(t, s, 1))
	middle := s.passed(1).Position.LSN
	refused("slot") // it is in use
	require.NoError(t, s.source.Close())

	b.exec(`INSERT INTO outbox VALUES ('2', 'a')`)
	refused("FFFF/0")
	refused((cp.Position.LSN - 1).String())
	// The slot first: to read from a later position confirms that position.
	for _, c := range []struct {
		to   string
		want []string
	}{{"slot", []string{"1", "2"}}, {middle.String(), []string{"2"}}} {
		cp, f := set(c.to)
		require.Nil(t, f, "%v", f)
		s.reopen(cp)
		require.Equal(t, c.want, ids(t, s, len(c.want)), c.to)
		require.NoError(t, s.source.Close())
	}
	cp, f = set("now")
	require.Nil(t, f)
	b.exec(`INSERT INTO outbox VALUES ('3', 'a')`)
	require.Equal(t, []string{"3"}, ids(t, b.open(o, cp), 1))
}
