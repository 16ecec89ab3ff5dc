package main

import (
	"testing"

	"github.com/stretchr/testify/require"

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
