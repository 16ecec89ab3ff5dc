package wal

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/errortable"
)

var update = flag.Bool("update", false, "write the table of error codes anew; read its diff")

// Every SQLSTATE, and what is made of it where it answers a connection, a statement, the creation of a slot, or ends the stream.
func TestEverySQLStateIsClassified(t *testing.T) {
	o := Options{Host: "db", Port: 5432, User: "outtail", Database: "shop", Slot: "s", Publication: "p"}
	s := &Source{o: o}
	states := errortable.Names(t, "github.com/jackc/pgerrcode", `^\s+(\w+)\s*= "([0-9A-Z]{5})"$`)
	require.Greater(t, len(states), 250)
	slices.SortFunc(states, func(a, b []string) int { return strings.Compare(a[1]+a[0], b[1]+b[0]) })
	var b strings.Builder
	for _, m := range states {
		pg := &pgconn.PgError{Severity: "ERROR", Code: m[1], Message: "text"}
		fmt.Fprintf(&b, "%s %s: connection %s, statement %s, slot %s, stream %s\n", m[1], m[0], told(o.connectFault(fmt.Errorf("wrapped: %w", pg))),
			told(o.queryFault("ask", fmt.Errorf("wrapped: %w", pg))), told(slotFault(t.Context(), &o, pg)), told(s.serverFault("db", 1, pg, 2)))
		// What passes by itself (a server that starts or stops, lack of resources, a connection that is lost) never ends a pipeline that reads.
		if pgerrcode.IsOperatorIntervention(m[1]) || pgerrcode.IsInsufficientResources(m[1]) || pgerrcode.IsConnectionException(m[1]) || pgerrcode.IsSystemError(m[1]) && m[1] != pgerrcode.UndefinedFile {
			require.Equal(t, event.Retry, s.serverFault("db", 1, pg, 2).Class, "%v", m)
			require.False(t, o.queryFault("ask", pg).Immediate, "%v", m)
		}
	}
	errortable.Check(t, *update, b.String())
}

func TestWhatServerErrorsMean(t *testing.T) {
	o := Options{Host: "db", Port: 5432, User: "outtail", Database: "shop", Slot: "s", Publication: "p"}
	s := &Source{o: o}
	unknown := &pgconn.PgError{Severity: "ERROR", Code: "ZZ999", Message: "what nobody knows"}
	require.Equal(t, CodeNotReady+" environment", told(o.connectFault(unknown)), "a connection that is refused for an unknown reason is tried until start_timeout")
	require.Equal(t, CodeQuery+" retry", told(o.queryFault("ask", unknown)), "a statement that is refused for an unknown reason is tried again")
	require.Equal(t, CodeServerError+" retry", told(s.serverFault("db", 1, unknown, 2)), "and so is the stream: a new session compares all identities")
	require.Equal(t, CodeLogRemoved+" safety", told(s.serverFault("db", 1, &pgconn.PgError{Code: pgerrcode.UndefinedFile}, 2)), "log that is gone is never passed over (I5)")
	require.Equal(t, event.Safety, s.serverFault("db", 1, &pgconn.PgError{Code: pgerrcode.ObjectNotInPrerequisiteState}, 2).Class)
	for _, err := range []error{io.EOF, errors.New("what nobody knows")} {
		require.Equal(t, CodeUnreachable+" environment", told(o.connectFault(err)))
		require.Equal(t, event.Retry, o.queryFault("ask", err).Class)
	}
}

func told(f *event.Fault) string {
	text := f.Code + " " + f.Class.String()
	if f.Immediate {
		text += " at once"
	}
	return text
}
