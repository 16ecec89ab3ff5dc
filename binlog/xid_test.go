package binlog

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamesOfXATransactions(t *testing.T) {
	for _, x := range []xid{{1, "a", ""}, {0, "", ""}, {1<<63 - 1, strings.Repeat("\x00", 64), strings.Repeat("\xff", 64)}, {7, "it's", "\n"}} {
		got, ok := parseXIDText([]byte(x.String()))
		require.True(t, ok)
		require.Equal(t, x, got)
	}
	for text, want := range map[string]xid{
		"'g1'": {1, "g1", ""}, " 'g1' , 'b' , 12 ": {12, "g1", "b"}, "0x6731,x'62'": {1, "g1", "b"}, `"g"`: {1, "g", ""},
		"X'6731',X'62',3 ONE PHASE": {3, "g1", "b"},
	} {
		got, ok := parseXIDText([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "g1", "X'6", "X'6'", "'g", "'g',", "'g','b',", "'g','b',x"} {
		_, ok := parseXIDText([]byte(text))
		require.False(t, ok, text)
	}
	require.True(t, xid{1<<32 + 5, "g", ""}.same(xid{5, "g", ""}))
	require.False(t, xid{1<<32 + 5, "g", ""}.same(xid{1<<33 + 5, "g", ""}))
	require.False(t, xid{5, "g", ""}.same(xid{5, "", "g"}))
}

func TestWhatAPositionCovers(t *testing.T) {
	u := "aa000000-0000-0000-0000-000000000000"
	my := reach{set: mustSet(u + ":1-5"), server: u, file: "binlog.000002", pos: 100}
	ma := reach{maria: mariaPos{0: {0, 1, 5}}, server: "1", file: "binlog.000002", pos: 100}
	plain := reach{server: u, file: "binlog.000010", pos: 100}
	for _, c := range []struct {
		at         reach
		p          logPoint
		yes, known bool
	}{
		{my, logPoint{GTID: u + ":5"}, true, true},
		{my, logPoint{GTID: u + ":6", Server: u, File: "binlog.000001", Pos: 4}, false, true},
		{my, logPoint{Server: u, File: "binlog.000002", Pos: 100}, true, true},
		{my, logPoint{Server: u, File: "binlog.000002", Pos: 101}, false, true},
		{my, logPoint{Server: "other", File: "binlog.000001", Pos: 4}, false, false},
		{ma, logPoint{GTID: "0-2-5"}, true, true},
		{ma, logPoint{GTID: "0-1-6"}, false, true},
		{ma, logPoint{GTID: "1-1-1"}, false, true},
		{plain, logPoint{GTID: u + ":5", Server: u, File: "binlog.000009", Pos: 200}, true, true},
		{plain, logPoint{GTID: u + ":5", Server: u, File: "binlog.000011", Pos: 4}, false, true},
		{reach{set: newGTIDSet(), server: u, file: "binlog.000001"}, logPoint{Server: u, File: "binlog.000001", Pos: 4}, false, false},
	} {
		yes, known := c.at.covers(c.p)
		require.Equal(t, []bool{c.yes, c.known}, []bool{yes, known}, "%v of %+v", c.p, c.at)
	}
}
