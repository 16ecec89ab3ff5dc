package binlog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

const (
	uuidA = "aaaaaaaa-0000-0000-0000-000000000001"
	uuidB = "bbbbbbbb-0000-0000-0000-000000000002"
)

// The table of decisions at a connect (I5). Each case says what the server is, what is stored, and what follows.
func TestResumeNeverJumpsSilently(t *testing.T) {
	set := func(s string) *gtidSet {
		g, err := parseGTIDSet(s)
		require.NoError(t, err)
		return g
	}
	mysqlAt := func(gtid, file string, pos uint64) event.Position {
		return event.Position{Kind: event.MySQL, ServerUUID: uuidA, GTID: gtid, File: file, Pos: pos}
	}
	files := []binlogFile{{"binlog.000009", 500}, {"binlog.000010", 1000}}
	on := func() *server {
		return &server{uuid: uuidA, gtids: true, executed: set(uuidA + ":1-100"), purged: set(uuidA + ":1-40"), files: files}
	}
	off := func() *server {
		return &server{uuid: uuidA, executed: set(""), purged: set(""), files: files}
	}
	with := func(s *server, change func(*server)) *server { change(s); return s }

	for _, c := range []struct {
		name   string
		f      facts
		code   string // the finding; "" go on
		gtid   string // the set that the dump begins with
		file   string // or the file
		pos    uint64
		prefix bool
	}{
		{"GTID, same server", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000010", 900), server: on()}, "", uuidA + ":1-90", "", 0, true},
		{"GTID, at a place that is proved", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000010", 900), dep: depends{File: "binlog.000010", Stamp: 1}, stamp: 1, server: on()}, "", uuidA + ":1-90", "binlog.000010", 900, true},
		{"GTID, no place in the file", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000010", 0), dep: depends{File: "binlog.000010", Stamp: 1}, stamp: 1, server: on()}, "", uuidA + ":1-90", "", 0, true},
		{"GTID, the identity of another file is stored", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000010", 900), dep: depends{File: "binlog.000009", Stamp: 1}, stamp: 1, server: on()}, "", uuidA + ":1-90", "", 0, true},
		{"GTID, our file purged since, nothing lost", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000001", 900), server: on()}, "", uuidA + ":1-90", "", 0, true},
		{"GTID, another server has all of it", facts{stored: mysqlAt(uuidA+":1-90", "other.000099", 900), server: with(on(), func(s *server) { s.uuid = uuidB })}, "", uuidA + ":1-90", "", 0, false},
		{"GTID, the server lacks what we read", facts{stored: mysqlAt(uuidA+":1-101", "binlog.000010", 900), server: on()}, codeHistory, "", "", 0, false},
		{"the same, accepted", facts{stored: mysqlAt(uuidA+":1-101", "binlog.000010", 900), server: on(), accepted: []string{codeHistory}}, "", uuidA + ":1-100", "", 0, false},
		{"GTID, purged before we read it", facts{stored: mysqlAt(uuidA+":1-30", "binlog.000001", 900), server: on()}, codePurged, "", "", 0, false},
		{"the same, accepted", facts{stored: mysqlAt(uuidA+":1-30", "binlog.000001", 900), server: on(), accepted: []string{codePurged}}, "", uuidA + ":1-40", "", 0, false},
		{"another code accepted does not help", facts{stored: mysqlAt(uuidA+":1-30", "binlog.000001", 900), server: on(), accepted: []string{codeHistory}}, codePurged, "", "", 0, false},
		{"GTID, the file is another of the same name", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000010", 900), dep: depends{File: "binlog.000010", Stamp: 1}, stamp: 2, server: on()}, codeFileIdentity, "", "", 0, false},
		{"GTID, our file is longer than the server's", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000010", 1001), server: on()}, codeFileIdentity, "", "", 0, false},
		{"GTID, our file is newer than all", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000011", 4), server: on()}, codeFileIdentity, "", "", 0, false},
		{"GTID, the stored set is damaged", facts{stored: mysqlAt("?", "binlog.000010", 900), server: on()}, codeHistory, "", "", 0, false},

		{"position, same server", facts{stored: mysqlAt("", "binlog.000009", 500), server: off()}, "", "", "binlog.000009", 500, true},
		{"position, though GTIDs are on now", facts{stored: mysqlAt("", "binlog.000009", 500), server: on()}, "", "", "binlog.000009", 500, true},
		{"a set is stored, GTIDs are off now", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000009", 500), server: off()}, "", "", "binlog.000009", 500, true},
		{"position, purged", facts{stored: mysqlAt("", "binlog.000008", 500), server: off()}, codeFile, "", "", 0, false},
		{"the same, accepted", facts{stored: mysqlAt("", "binlog.000008", 500), server: off(), accepted: []string{codeFile}}, "", "", "binlog.000009", 4, false},
		{"position, another server", facts{stored: mysqlAt("", "binlog.000009", 500), server: with(off(), func(s *server) { s.uuid = uuidB })}, codeServer, "", "", 0, false},
		{"a set is stored, another server without GTIDs", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000009", 500), server: with(off(), func(s *server) { s.uuid = uuidB })}, codeServer, "", "", 0, false},
		{"position, the file is another of the same name", facts{stored: mysqlAt("", "binlog.000009", 500), dep: depends{File: "binlog.000009", Stamp: 1}, stamp: 2, server: off()}, codeFileIdentity, "", "", 0, false},
		{"position, identity of another file stored", facts{stored: mysqlAt("", "binlog.000009", 500), dep: depends{File: "binlog.000008", Stamp: 1}, stamp: 2, server: off()}, "", "", "binlog.000009", 500, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.f.kind = event.MySQL
			from, keep, stop := resume(&c.f)
			if c.code != "" {
				require.NotNil(t, stop)
				require.Equal(t, c.code, stop.code)
				require.NotEmpty(t, stop.to)
				return
			}
			require.Nil(t, stop)
			if c.gtid != "" {
				require.NotNil(t, from.set)
				require.Equal(t, c.gtid, from.set.String())
			} else {
				require.Nil(t, from.set)
			}
			require.Equal(t, c.file, from.file)
			require.Equal(t, c.pos, from.pos)
			require.Equal(t, c.prefix, keep)
		})
	}
}

func TestFilesAreOrderedByTheirNumber(t *testing.T) {
	require.Negative(t, place{"binlog.999999", 5}.compare(place{"binlog.1000000", 4}))
	require.Positive(t, place{"binlog.000002", 5}.compare(place{"binlog.000002", 4}))
	require.Zero(t, place{"a.000002", 4}.compare(place{"a.000002", 4}))
}

func TestTableNames(t *testing.T) {
	got, err := parseTables([]string{"shop.outbox", "outbox", "`my.db`.`a``b`", `"x"."y"`}, "def")
	require.NoError(t, err)
	require.Equal(t, []table{
		{"shop.outbox", "shop", "outbox"}, {"def.outbox", "def", "outbox"}, {"`my.db`.`a``b`", "my.db", "a`b"}, {`"x"."y"`, "x", "y"},
	}, got)
	for _, bad := range []string{"", "a.b.c", "`a", ".b", "a.", "`a`b"} {
		_, err := parseTables([]string{bad}, "def")
		require.Error(t, err, bad)
	}
	_, err = parseTables([]string{"outbox"}, "")
	require.Error(t, err)
	_, err = parseTables(nil, "def")
	require.Error(t, err)
}

func TestDestinationsOfCheckpointSet(t *testing.T) {
	for to, want := range map[string]Start{
		"now":              {Mode: "now"},
		"earliest":         {Mode: "earliest"},
		uuidA + ":1-5":     {Mode: "gtid", GTID: uuidA + ":1-5"},
		"binlog.000012:4":  {Mode: "position", File: "binlog.000012", Pos: 4},
		"host:a.000001:77": {Mode: "position", File: "host:a.000001", Pos: 77},
	} {
		got, err := ParseTo(event.MySQL, to)
		require.NoError(t, err, to)
		require.Equal(t, want, got)
	}
	got, err := ParseTo(event.MariaDB, "0-1-5")
	require.NoError(t, err)
	require.Equal(t, Start{Mode: "gtid", GTID: "0-1-5"}, got)
	for _, bad := range []string{"", "yesterday", "binlog.000012", "binlog.000012:x", "a/b:4", "binlog.000001:99999999999"} {
		_, err := ParseTo(event.MySQL, bad)
		require.Error(t, err, bad)
	}
}

func TestServerIDIsStableAndApart(t *testing.T) {
	require.Equal(t, deriveServerID("/data/orders"), deriveServerID("/data/orders"))
	require.NotEqual(t, deriveServerID("/data/orders"), deriveServerID("/data/payments"))
	require.NotZero(t, deriveServerID(""))
}
