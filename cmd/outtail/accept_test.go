package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/checkpoint"
	"github.com/outtail/outtail/config"
	"github.com/outtail/outtail/event"
)

func TestOnlyFindingsThatAcceptingMendsAreAccepted(t *testing.T) {
	of := func(kind string) config.Pipeline {
		p := config.Pipeline{Name: "orders"}
		p.Source.Kind = kind
		return p
	}
	for _, c := range []struct {
		kind, code string
		ok         bool
	}{
		{event.MySQL, "OT3021", true},
		{event.MariaDB, "OT3028", true},
		{event.Postgres, "OT2034", true},
		{event.Postgres, "OT6003", true},
		{event.MySQL, "OT0003", true},
		{event.MySQL, "OT3029", false},    // the columns stay unknown
		{event.MySQL, "OT3025", false},    // the server cannot serve the place
		{event.MySQL, "OT2034", false},    // of Postgres
		{event.Postgres, "OT3021", false}, // of MySQL
		{event.Postgres, "OT2032", false}, // a slot that is lost stays lost
		{event.MySQL, "OT3001", false},    // no safety finding
		{event.MySQL, "OT9999", false},    // none at all
	} {
		err := helps(of(c.kind), c.code)
		if c.ok {
			require.NoError(t, err, "%s %s", c.kind, c.code)
			continue
		}
		f := event.AsFault(err)
		require.NotNil(t, f, "%s %s", c.kind, c.code)
		require.Equal(t, event.Usage, f.Class)
		require.Contains(t, f.Hint, "OT6003")
		require.NotContains(t, f.Hint, c.code)
	}
}

// TestAClusterThatChangedWhileItRanIsAcceptedAtOnce: a start would tell the same finding under another code.
func TestAClusterThatChangedWhileItRanIsAcceptedAtOnce(t *testing.T) {
	store, err := checkpoint.Open(checkpoint.Options{Dir: t.TempDir(), Version: version})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Stopped("orders", checkpoint.Stop{Code: "OT5012", Place: "green", At: time.Now()}))
	for _, typed := range []string{"OT5012", "OT6003"} {
		code := atStart(typed)
		require.Equal(t, "OT6003", code)
		require.NoError(t, helps(config.Pipeline{Source: config.Source{Kind: event.Postgres}}, code))
		require.NoError(t, seen(store, "orders", code))
	}
	require.Error(t, seen(store, "orders", "OT2034"))
}

// The audit shows where a pipeline stood when its finding was accepted.
func TestTheAuditOfAnAcceptanceHasThePosition(t *testing.T) {
	a := checkpoint.Audit{Action: checkpoint.ActionAccept, Detail: "OT6003"}
	require.Equal(t, "OT6003", about(a))
	a.After = &event.Checkpoint{}
	require.Equal(t, "OT6003", about(a), "nothing was stored")
	a.After = &event.Checkpoint{Position: event.Position{Kind: event.Postgres, LSN: 0x16B3748}}
	require.Equal(t, "OT6003: accepted at 0/16B3748", about(a))
}
