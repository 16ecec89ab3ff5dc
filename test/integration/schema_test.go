package integration

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

var printedVouch = regexp.MustCompile(`outtail schema accept -c (\S+) --pipeline orders --table (\S+) --at (\S+) --columns '([^']+)' --reason R`)

// TestColumnsThatNobodyStored: a table that was changed while outtail was down, and then in a way that does not say what it did, was
// something in between that nobody but a person knows. The printed command says it, and the values are then under their names.
func TestColumnsThatNobodyStored(t *testing.T) {
	server := servers.MySQL(t)
	db := shop.NewMySQL(t, server, "mysql", nil)
	s := scene.New(t, &servers, db)
	s.Prove()
	require.Equal(t, "MINIMAL", server.Scalar(t, "", "SELECT @@global.binlog_row_metadata"))
	server.Exec(t, db.DB, "ALTER TABLE outbox ADD COLUMN moved VARCHAR(255) DEFAULT 'wrong' AFTER aggregate_id")
	var name, between string
	require.NoError(t, server.DB.QueryRow("SHOW CREATE TABLE "+db.DB+".outbox").Scan(&name, &between))
	s.Insert(2)
	server.Exec(t, db.DB, "ALTER TABLE outbox DROP COLUMN moved; RENAME TABLE outbox TO away, away TO outbox")
	s.Insert(1)

	warned := of(doctor(s, 1), "OT8056")
	require.Len(t, warned, 1)
	require.Contains(t, warned[0].Found, db.DB+".outbox was changed 3 times since the stored position, first at ")
	require.Contains(t, warned[0].Found, "is not understood")
	require.Regexp(t, printedVouch, warned[0].Repair)
	require.Contains(t, warned[0].Repair, "SET PERSIST binlog_row_metadata = 'FULL';")
	stderr := s.Stops(4, "OT3029", "Before the last change that was seen they were: id char(36) character set ", "In the server's catalogue they are now: id char(36) ")
	m := printedVouch.FindStringSubmatch(stderr)
	require.NotNil(t, m, stderr)
	require.Equal(t, s.Outtail.Config, m[1])
	vouch := func(columns string) (code int, stderr string) {
		r := s.Outtail.Run(t, "schema", "accept", "-c", s.Outtail.Config, "--pipeline", "orders", "--table", m[2], "--at", m[3], "--columns", columns, "--reason", "migration 17")
		return r.Code, r.Stderr
	}
	code, says := vouch("id nothing")
	require.Equal(t, 2, code, says)
	require.Contains(t, says, "OT3014")
	s.Stops(4, "OT3029")

	code, says = vouch("id char(36), payload json")
	require.Equal(t, 2, code, says)
	require.Contains(t, says, "no column aggregate_type")
	code, says = vouch(strings.Replace(m[4], "moved varchar(255) character set", "moved varchar(254) character set", 1))
	require.Equal(t, 2, code, says)
	require.Contains(t, says, "they do not fit the rows at")
	s.Stops(4, "OT3029")
	require.Contains(t, m[4], "aggregate_id varchar(255) character set utf8mb4, moved varchar(255) character set utf8mb4, event_type")

	code, says = vouch(between[strings.IndexByte(between, '(')+1 : strings.LastIndexByte(between, ')')])
	require.Equal(t, 0, code, says)
	s.Prove()
	for _, r := range s.Seen {
		require.Equal(t, "order.changed", scene.Header(r, "event_type"))
		require.JSONEq(t, `{"id": "`+scene.Header(r, "id")+`"}`, string(r.Value))
	}

	server.Exec(t, db.DB, "ALTER TABLE outbox ADD COLUMN a INT; ALTER TABLE outbox ADD COLUMN b INT FIRST")
	s.Insert(1)
	require.True(t, slices.ContainsFunc(doctor(s, 0), func(d diagnosis) bool {
		return d.Code == "OT8056" && d.Severity == "ok" && strings.Contains(d.Found, "was changed 2 times")
	}))
	s.Prove()
	server.Exec(t, db.DB, "SET SESSION sql_log_bin = 0; ALTER TABLE outbox DROP COLUMN b")
	warned = of(doctor(s, 1), "OT8056")
	require.Len(t, warned, 1)
	require.Contains(t, warned[0].Found, "the log does not show what changed them")
	require.Contains(t, warned[0].Repair, "--columns 'id char(36)")
	server.Exec(t, db.DB, "SET SESSION sql_log_bin = 0; ALTER TABLE outbox ADD COLUMN b INT FIRST")
	require.Empty(t, of(doctor(s, 0), "OT8056"))
}
