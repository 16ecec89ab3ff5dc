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
		{"GTID, the server has what we read in its log, and waits for a replica", facts{stored: mysqlAt(uuidA+":1-101", "binlog.000010", 900), server: with(on(), func(s *server) { s.owned = set(uuidA + ":101-102") })}, "", uuidA + ":1-101", "", 0, true},
		{"the same, accepted: its own numbers are given out again", facts{stored: mysqlAt(uuidA+":1-101", "binlog.000010", 900), server: on(), accepted: []string{codeHistory}}, "", uuidA + ":1-40", "binlog.000009", 4, false},
		{"GTID, a promoted replica lacks the last", facts{stored: mysqlAt(uuidA+":1-101", "other.000010", 900), server: with(on(), func(s *server) { s.uuid = uuidB })}, codeHistory, "", "", 0, false},
		{"the same, accepted", facts{stored: mysqlAt(uuidA+":1-101", "other.000010", 900), server: with(on(), func(s *server) { s.uuid = uuidB }), accepted: []string{codeHistory}}, "", uuidA + ":1-100", "", 0, false},
		{"GTID, a transaction of the same number is another one", facts{stored: mysqlAt(uuidA+":1-90", "other.000010", 900), history: refuted, server: with(on(), func(s *server) { s.uuid = uuidB })}, codeHistory, "", "", 0, false},
		{"the same, accepted: all that there is", facts{stored: mysqlAt(uuidA+":1-90", "other.000010", 900), history: refuted, server: on(), accepted: []string{codeHistory}}, "", uuidA + ":1-40", "binlog.000009", 4, false},
		{"GTID, at our place in a file of the same second is another event", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000010", 900), dep: depends{File: "binlog.000010", Stamp: 1}, stamp: 1, place: refuted, server: on()}, codeFileIdentity, "", "", 0, false},
		{"GTID, beyond 4 GiB", facts{stored: mysqlAt(uuidA+":1-90", "binlog.000010", 5<<30), dep: depends{File: "binlog.000010", Stamp: 1}, stamp: 1, place: proved, server: with(on(), func(s *server) { s.files = []binlogFile{{"binlog.000010", 6 << 30}} })}, "", uuidA + ":1-90", "", 0, true},
		{"GTID, the log has another base name now", facts{stored: mysqlAt(uuidA+":1-90", "old.000099", 900), server: on()}, "", uuidA + ":1-90", "", 0, true},
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
		{"position, at our place in a file of the same second is another event", facts{stored: mysqlAt("", "binlog.000009", 500), dep: depends{File: "binlog.000009", Stamp: 1}, stamp: 1, place: refuted, server: off()}, codeFileIdentity, "", "", 0, false},
		{"the same, accepted", facts{stored: mysqlAt("", "binlog.000009", 500), dep: depends{File: "binlog.000009", Stamp: 1}, stamp: 1, place: refuted, server: off(), accepted: []string{codeFileIdentity}}, "", "", "binlog.000009", 4, false},
		{"another server, accepted, our log under a new server_uuid", facts{stored: mysqlAt("", "binlog.000009", 500), dep: depends{File: "binlog.000009", Stamp: 1}, stamp: 1, place: proved, server: with(off(), func(s *server) { s.uuid = uuidB }), accepted: []string{codeServer}}, "", "", "binlog.000009", 500, false},
		{"another server, accepted, another log", facts{stored: mysqlAt("", "binlog.000009", 500), dep: depends{File: "binlog.000009", Stamp: 1}, stamp: 1, place: refuted, server: with(off(), func(s *server) { s.uuid = uuidB }), accepted: []string{codeServer}}, "", "", "binlog.000009", 4, false},
		{"position, the log has another base name now", facts{stored: mysqlAt("", "old.000099", 500), server: off()}, codeFile, "", "", 0, false},
		{"position, file numbers beyond six digits", facts{stored: mysqlAt("", "binlog.999999", 500), server: with(off(), func(s *server) { s.files = []binlogFile{{"binlog.999999", 500}, {"binlog.1000000", 900}} })}, "", "", "binlog.999999", 500, true},
		{"position, newer than all, by number and not by name", facts{stored: mysqlAt("", "binlog.1000000", 500), server: with(off(), func(s *server) { s.files = []binlogFile{{"binlog.999998", 500}, {"binlog.999999", 900}} })}, codeFileIdentity, "", "", 0, false},
		{"position, purged, by number and not by name", facts{stored: mysqlAt("", "binlog.999999", 500), server: with(off(), func(s *server) { s.files = []binlogFile{{"binlog.1000000", 500}} })}, codeFile, "", "", 0, false},
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

// The same for MariaDB, whose position is the last GTID of each domain.
func TestResumeOnMariaDBNeverJumpsSilently(t *testing.T) {
	pos := func(s string) mariaPos { p, err := parseMariaPos(s); require.NoError(t, err); return p }
	state := func(s string) mariaState { p, err := parseMariaState(s); require.NoError(t, err); return p }
	files := []binlogFile{{"binlog.000009", 500}, {"binlog.000010", 1000}}
	at := func(gtid string) event.Position {
		return event.Position{Kind: event.MariaDB, ServerID: 1, GTID: gtid, File: "binlog.000010", Pos: 900}
	}
	known := depends{File: "binlog.000010", Stamp: 1}
	one := func() *server {
		return &server{maria: true, id: 1, gtids: true, binlogPos: pos("0-1-100,7-1-9"), binlogState: state("0-1-100,7-1-9"), files: files}
	}
	// The replica took over behind 0-1-88.
	two := func() *server {
		return &server{maria: true, id: 2, gtids: true, binlogPos: pos("0-2-95,7-1-9"), binlogState: state("0-1-88,0-2-95,7-1-9"), files: files}
	}
	for _, c := range []struct {
		name   string
		f      facts
		code   string
		gtid   string
		file   string
		prefix bool
	}{
		{"same server, the place is proved", facts{stored: at("0-1-90,7-1-9"), dep: known, stamp: 1, place: proved, server: one()}, "", "0-1-90,7-1-9", "binlog.000010", true},
		{"same server, the file is known, the place is not", facts{stored: at("0-1-90,7-1-9"), dep: known, stamp: 1, server: one()}, "", "0-1-90,7-1-9", "binlog.000010", true},
		{"same server, the file is purged, nothing is lost", facts{stored: event.Position{Kind: event.MariaDB, ServerID: 1, GTID: "0-1-90,7-1-9", File: "binlog.000003", Pos: 900}, purged: pos("0-1-70,7-1-9"), server: one()}, "", "0-1-90,7-1-9", "", true},
		{"same server, purged before we read it", facts{stored: event.Position{Kind: event.MariaDB, ServerID: 1, GTID: "0-1-60,7-1-9", File: "binlog.000003", Pos: 900}, purged: pos("0-1-70,7-1-9"), server: one()}, codePurged, "", "", false},
		{"the same, accepted", facts{stored: event.Position{Kind: event.MariaDB, ServerID: 1, GTID: "0-1-60,7-1-9", File: "binlog.000003", Pos: 900}, purged: pos("0-1-70,7-1-9"), server: one(), accepted: []string{codePurged}}, "", "0-1-70,7-1-9", "", false},
		{"a domain that is new since", facts{stored: at("0-1-90"), server: one()}, "", "0-1-90", "", true},
		{"a domain that is new since and was purged", facts{stored: at("0-1-90"), purged: pos("0-1-70,7-1-3"), server: one()}, codePurged, "", "", false},
		{"a domain was deleted, the place is proved", facts{stored: at("0-1-90,8-1-4"), dep: known, stamp: 1, place: proved, server: one()}, "", "0-1-90", "binlog.000010", true},
		{"a domain is not known", facts{stored: at("0-1-90,8-1-4"), server: two()}, codeHistory, "", "", false},
		{"another file of the same second", facts{stored: at("0-1-90,7-1-9"), dep: known, stamp: 1, place: refuted, server: one()}, codeFileIdentity, "", "", false},
		{"the same, accepted: all that there is", facts{stored: at("0-1-90,7-1-9"), dep: known, stamp: 1, place: refuted, server: one(), accepted: []string{codeFileIdentity}}, "", "", "binlog.000009", false},
		{"the server gave numbers out that it does not know: restored", facts{stored: at("0-1-120,7-1-9"), server: one(), accepted: []string{codeHistory}}, "", "", "binlog.000009", false},
		{"another server has all of it", facts{stored: at("0-1-88,7-1-9"), server: two()}, "", "0-1-88,7-1-9", "", false},
		{"another server lacks the last, though its number is higher", facts{stored: at("0-1-90,7-1-9"), server: two()}, codeHistory, "", "", false},
		{"the same, accepted: behind the last that both have", facts{stored: at("0-1-90,7-1-9"), server: two(), accepted: []string{codeHistory}}, "", "0-1-88,7-1-9", "", false},
		{"another server, no number of ours is known", facts{stored: at("0-5-90,7-1-9"), server: two(), accepted: []string{codeHistory}}, "", "7-1-9", "", false},
		{"another server's transaction of our number is another one", facts{stored: at("0-1-88,7-1-9"), history: refuted, server: two()}, codeHistory, "", "", false},
		{"no GTID, another server", facts{stored: at(""), server: two()}, codeServer, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.f.kind = event.MariaDB
			from, keep, stop := resume(&c.f)
			if c.code != "" {
				require.NotNil(t, stop)
				require.Equal(t, c.code, stop.code)
				return
			}
			require.Nil(t, stop)
			require.Equal(t, c.gtid, from.maria.String())
			require.Equal(t, c.file, from.file)
			require.Equal(t, c.prefix, keep)
		})
	}
}

func TestWitnessIsReadBackAsItWas(t *testing.T) {
	for _, w := range []witness{
		{},
		{from: 5 << 30, sum: 0xdeadbeef, mysql: gtidEvent{sid: sid{uuid: [16]byte{1, 2}, tag: "blue"}, gno: 77, commit: 1_700_000_000_123_456}},
		{from: 157, sum: 1},
		{mysql: gtidEvent{sid: sid{uuid: [16]byte{1}}, gno: 1, commit: 9}},
	} {
		require.Equal(t, w, parseWitness(event.MySQL, w.String()), w.String())
	}
	for _, w := range []witness{
		{from: 157, sum: 1, maria: mariaGTID{0, 1, 42}, at: 1_700_000_000},
		{from: 157, sum: 1, maria: mariaGTID{7, 1, 42}, at: 1_700_000_000, before: mariaGTID{7, 2, 41}},
	} {
		require.Equal(t, w, parseWitness(event.MariaDB, w.String()), w.String())
	}
	for _, bad := range []string{"x", "1", "1:zz", "1:1 a b", "1:1 0-1-2"} {
		require.Empty(t, parseWitness(event.MariaDB, bad).gtid(), bad)
	}
}
