package wal

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// What a pooler says to a parameter that it does not know: a server has no such answer.
func TestB143APoolerIsToldAsThat(t *testing.T) {
	o := &Options{Host: "h", Port: 6432, Database: "d"}
	f := o.connectFault(&pgconn.PgError{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: replication"})
	require.Equal(t, CodePooler, f.Code)
	require.True(t, f.Immediate)
	require.Contains(t, f.Error(), "pooler")
	require.Contains(t, f.Error(), "unsupported startup parameter: replication")
	require.Contains(t, f.Hint, "connect directly")
}
