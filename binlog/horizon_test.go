package binlog

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func TestWhichOfTwoPositionsComesFirst(t *testing.T) {
	const a, b = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
	const unknown = 9
	for name, c := range map[string]struct {
		kind string
		x, y event.Position
		want int
	}{
		"GTIDs":                     {event.MySQL, event.Position{GTID: a + ":1-7"}, event.Position{GTID: a + ":1-8"}, -1},
		"GTIDs of another server":   {event.MySQL, event.Position{GTID: a + ":1-7", ServerUUID: a}, event.Position{GTID: a + ":1-8", ServerUUID: b}, -1},
		"GTIDs before files":        {event.MySQL, event.Position{GTID: a + ":1-7", File: "b.2", Pos: 4}, event.Position{GTID: a + ":1-8", File: "b.1", Pos: 4}, -1},
		"two histories":             {event.MySQL, event.Position{GTID: a + ":1-7"}, event.Position{GTID: a + ":1-6," + b + ":1"}, unknown},
		"the same GTIDs":            {event.MySQL, event.Position{GTID: a + ":1-7"}, event.Position{GTID: a + ":1-7"}, 0},
		"the same GTIDs, by file":   {event.MySQL, event.Position{GTID: a + ":1-7", File: "b.1", Pos: 4}, event.Position{GTID: a + ":1-7", File: "b.1", Pos: 8}, -1},
		"files":                     {event.MySQL, event.Position{File: "b.999999", Pos: 80}, event.Position{File: "b.1000000", Pos: 4}, -1},
		"files of two servers":      {event.MySQL, event.Position{ServerUUID: a, File: "b.1", Pos: 80}, event.Position{ServerUUID: b, File: "b.2", Pos: 4}, unknown},
		"a file and GTIDs":          {event.MySQL, event.Position{File: "b.2", Pos: 4}, event.Position{GTID: a + ":1-7", File: "b.1", Pos: 80}, 1},
		"domains":                   {event.MariaDB, event.Position{GTID: "0-1-7"}, event.Position{GTID: "0-1-7,1-1-3"}, -1},
		"domains that disagree":     {event.MariaDB, event.Position{GTID: "0-1-8"}, event.Position{GTID: "0-1-7,1-1-3"}, unknown},
		"what nobody understands":   {event.MariaDB, event.Position{GTID: "x"}, event.Position{GTID: "0-1-7"}, unknown},
		"nothing in common to both": {event.MySQL, event.Position{GTID: a + ":1-7"}, event.Position{File: "b.1", Pos: 4}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			c.x.Kind, c.y.Kind = c.kind, c.kind
			for _, way := range []int{1, -1} {
				got, err := Compare(c.x, c.y)
				if c.want == unknown {
					require.Error(t, err)
				} else {
					require.NoError(t, err)
					require.Equal(t, way*c.want, got)
				}
				c.x, c.y = c.y, c.x
			}
		})
	}
	_, err := Compare(event.Position{Kind: event.MySQL}, event.Position{Kind: event.MariaDB})
	require.Error(t, err)
}

// What goes back with a position is of then; the secret by which we know our own sessions, and which file keeps rows, are of now.
func TestWhatGoesBackWithAPosition(t *testing.T) {
	past := encodeDepends(depends{
		File: "b.1", Stamp: 7, Token: "old", Tables: map[string]definition{"s.t": {{Name: "id"}}},
		XA: &xaMark{Store: "lost", Tables: []string{"s.t"}, Before: []string{"X'01'"}},
	})
	now := encodeDepends(depends{File: "b.2", Token: "secret", XA: &xaMark{Store: "here", Tables: []string{"s.t", "s.u"}}})
	d := parseDepends(Rewound(past, now))
	require.Equal(t, "b.1", d.File)
	require.EqualValues(t, 7, d.Stamp)
	require.Contains(t, d.Tables, "s.t")
	require.Equal(t, "secret", d.Token)
	require.Equal(t, "here", d.XA.Store)
	require.True(t, d.XA.Anew, "what was decided since is swept: the mark of then knows too little")
	require.Equal(t, []string{"s.t"}, d.XA.Tables)
	require.Nil(t, parseDepends(Rewound(nil, nil)).XA)

	require.NotContains(t, string(Portable(now, false)), "secret")
	require.Empty(t, parseDepends(Portable(now, false)).XA.Store)
	require.Equal(t, "here", parseDepends(Portable(now, true)).XA.Store)
	require.Equal(t, json.RawMessage(nil), Portable(nil, true))
}
