package binlog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func TestATransactionLiesBeforeAPositionOrNot(t *testing.T) {
	const a, b = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
	for _, c := range []struct {
		kind, tx string
		at       event.Position
		covered  bool
	}{
		{event.MySQL, a + ":7", event.Position{GTID: a + ":1-7", File: "binlog.000001", Pos: 4}, true},
		{event.MySQL, a + ":8", event.Position{GTID: a + ":1-7," + b + ":1-9"}, false},
		{event.MySQL, b + ":1", event.Position{GTID: a + ":1-7"}, false},
		{event.MySQL, a + ":blue:2", event.Position{GTID: a + ":1-7:blue:1-2"}, true},
		{event.MySQL, a + ":blue:3", event.Position{GTID: a + ":1-7:blue:1-2"}, false},
		{event.MySQL, a + ":7", event.Position{File: "binlog.000001", Pos: 4}, true}, // GTIDs were switched off: nobody can tell
		{event.MySQL, "binlog.000002:150", event.Position{File: "binlog.000002", Pos: 150}, false},
		{event.MySQL, "binlog.000002:150", event.Position{File: "binlog.000002", Pos: 151}, true},
		{event.MySQL, "binlog.1000000:150", event.Position{File: "binlog.999999", Pos: 900}, false},
		{event.MySQL, "binlog.000001:150", event.Position{GTID: a + ":1-7", File: "binlog.000002", Pos: 4}, true},
		{event.MariaDB, "0-1-7", event.Position{GTID: "0-1-7"}, true},
		{event.MariaDB, "0-2-8", event.Position{GTID: "0-1-7"}, false},
		{event.MariaDB, "1-1-1", event.Position{GTID: "0-1-7"}, false},
		{event.MariaDB, "mysql-bin.000003:9", event.Position{GTID: "0-1-7", File: "mysql-bin.000002", Pos: 99}, false},
		{event.MariaDB, "nonsense", event.Position{GTID: "0-1-7", File: "mysql-bin.000002", Pos: 99}, true},
	} {
		c.at.Kind = c.kind
		require.Equal(t, c.covered, Covers(c.at, c.tx), "%s at %s", c.tx, c.at)
	}
}
