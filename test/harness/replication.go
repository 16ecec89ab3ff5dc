package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// MariaDB reports whether the server is one.
func (m *MySQL) MariaDB() bool { return m.maria }

// ReplicateFrom makes the server a replica of another one, by GTID, and waits until it has all that the other one has. What it
// was a replica of before is forgotten.
func (m *MySQL) ReplicateFrom(t testing.TB, source *MySQL) {
	t.Helper()
	m.Promote(t)
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	ip, err := source.c.ContainerIP(ctx)
	require.NoError(t, err)
	q := "CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=3306, SOURCE_USER='root', SOURCE_PASSWORD='%s', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1; START REPLICA"
	if m.maria {
		// What it wrote itself it has.
		m.Exec(t, "", "SET GLOBAL gtid_slave_pos = @@global.gtid_binlog_pos")
		q = "CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=3306, MASTER_USER='root', MASTER_PASSWORD='%s', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1; START SLAVE"
	}
	m.Exec(t, "", fmt.Sprintf(q, ip, RootPassword))
	m.CatchUp(t, source)
}

// ReplicateByPosition makes a MySQL a replica of another one, from where that one's log ends, by file and position.
func (m *MySQL) ReplicateByPosition(t testing.TB, source *MySQL) {
	t.Helper()
	m.Promote(t)
	ip, err := source.c.ContainerIP(t.Context())
	require.NoError(t, err)
	var file, pos, rest string
	require.NoError(t, source.DB.QueryRow("SHOW BINARY LOG STATUS").Scan(&file, &pos, &rest, &rest, &rest))
	m.Exec(t, "", fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=3306, SOURCE_USER='root', SOURCE_PASSWORD='%s', SOURCE_AUTO_POSITION=0, SOURCE_LOG_FILE='%s', SOURCE_LOG_POS=%s, GET_SOURCE_PUBLIC_KEY=1; START REPLICA",
		ip, RootPassword, file, pos))
}

// CatchUp waits until the replica has all that its source has now.
func (m *MySQL) CatchUp(t testing.TB, source *MySQL) {
	t.Helper()
	has := func() bool {
		return m.Scalar(t, "", "SELECT GTID_SUBSET(?, @@global.gtid_executed)", source.Scalar(t, "", "SELECT @@global.gtid_executed")) == "1"
	}
	if m.maria {
		at := source.Scalar(t, "", "SELECT @@global.gtid_current_pos")
		has = func() bool { return m.Scalar(t, "", "SELECT MASTER_GTID_WAIT(?, 1)", at) == "0" }
	}
	require.Eventually(t, has, Patience, 50*time.Millisecond, "the replica does not catch up")
}

// Promote ends being a replica.
func (m *MySQL) Promote(t testing.TB) {
	t.Helper()
	if m.maria {
		m.Exec(t, "", "STOP SLAVE; RESET SLAVE ALL")
		return
	}
	m.Exec(t, "", "STOP REPLICA; RESET REPLICA ALL")
}

// Reset empties the server's binary logs and forgets its GTIDs; the next file gets this number where it is not 0.
func (m *MySQL) Reset(t testing.TB, number int) {
	t.Helper()
	q := "RESET BINARY LOGS AND GTIDS"
	if m.maria {
		q = "RESET MASTER"
	}
	if number > 0 {
		q += fmt.Sprintf(" TO %d", number)
	}
	m.Exec(t, "", q)
}

// Binlogs lists the server's binary logs, oldest first.
func (m *MySQL) Binlogs(t testing.TB) (names []string) {
	t.Helper()
	rows, err := m.DB.Query("SHOW BINARY LOGS")
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		row := make([]any, len(columns))
		for i := range row {
			row[i] = new(string)
		}
		require.NoError(t, rows.Scan(row...))
		names = append(names, *row[0].(*string))
	}
	require.NoError(t, rows.Err())
	return names
}

// PurgeBinlogs leaves only the newest binary log. One that a session still reads stays, so it is tried until none does.
func (m *MySQL) PurgeBinlogs(t testing.TB) {
	t.Helper()
	names := m.Binlogs(t)
	newest := names[len(names)-1]
	require.Eventually(t, func() bool {
		m.Exec(t, "", "PURGE BINARY LOGS TO '"+newest+"'")
		return m.Binlogs(t)[0] == newest
	}, Patience, 100*time.Millisecond, "the binary logs are not purged")
}

// Remove deletes a file of the server's.
func (m *MySQL) Remove(t testing.TB, path string) {
	t.Helper()
	code, _, err := m.c.Exec(t.Context(), []string{"rm", path})
	require.NoError(t, err)
	require.Zero(t, code, "rm %s", path)
}
