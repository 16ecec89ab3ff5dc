package binlog

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/test/errortable"
)

// Update is shared with the tests outside of the package.
var Update = flag.Bool("update", false, "write the table of error codes, and charsets.txt from what the server says, anew; read the diff")

// errorNames are the error codes that the client library knows, and those of MariaDB and newer servers that we decide about.
func errorNames(t *testing.T) map[uint16]string {
	names := map[uint16]string{
		1698: "ER_ACCESS_DENIED_NO_PASSWORD_ERROR", 1927: "ER_CONNECTION_KILLED", 3118: "ER_ACCOUNT_HAS_BEEN_LOCKED",
		4031: "ER_CLIENT_INTERACTION_TIMEOUT", 4151: "ER_ACCOUNT_HAS_BEEN_LOCKED of MariaDB",
	}
	for _, m := range errortable.Names(t, "github.com/go-mysql-org/go-mysql/mysql", `^\s+(ER_\w+)\s*=\s*(\d+)$`) {
		code, err := strconv.ParseUint(m[1], 10, 16)
		require.NoError(t, err)
		names[uint16(code)] = m[0]
	}
	return names
}

// Every error code, and what is made of it where it answers a login, a question, a dump, or the wish for the lock.
func TestEveryServerErrorIsClassified(t *testing.T) {
	s := &Source{o: Options{Kind: event.MySQL, Pipeline: "orders", Host: "db", Port: 3306, User: "outtail"}}
	names := errorNames(t)
	require.Greater(t, len(names), 800)
	var b strings.Builder
	for _, code := range slices.Sorted(maps.Keys(names)) {
		err := fmt.Errorf("wrapped: %w", &mysql.MyError{Code: code, State: "HY000", Message: "text"})
		goes := ""
		if serverGoes(code) {
			goes = ", ends the connection"
		}
		fmt.Fprintf(&b, "%d %s: login %s, question %s, dump %s, lock %s%s\n", code, names[code], told(s.connectFault(err)), told(s.queryFault("ask", err)),
			told(s.dumpFault(&errDump{code: code, text: "text"})), told(s.lockFault(err)), goes)
	}
	errortable.Check(t, *Update, b.String())
}

func TestWhatServerErrorsMean(t *testing.T) {
	s := &Source{o: Options{Kind: event.MySQL, Pipeline: "orders", Host: "db", Port: 3306, User: "outtail"}}
	unknown := &mysql.MyError{Code: 65000, State: "HY000", Message: "what nobody knows"}
	require.Equal(t, codeUnreachable+" environment", told(s.connectFault(unknown)), "a login that is refused for an unknown reason is tried until start_timeout")
	require.Equal(t, codeLost+" retry", told(s.queryFault("ask", unknown)), "a question that is refused for an unknown reason is asked again on a new connection")
	require.Equal(t, codeLost+" retry", told(s.dumpFault(&errDump{code: 65000, text: "what nobody knows"})), "and so is the dump")
	require.Equal(t, codeDump+" safety", told(s.dumpFault(&errDump{code: mysql.ER_MASTER_FATAL_ERROR_READING_BINLOG, text: "what nobody knows"})),
		"but a position that the server cannot serve, for whatever reason, is never passed over (I5)")
	require.Equal(t, codePrivilege+" environment at once", told(s.queryFault("ask", &mysql.MyError{Code: mysql.ER_TABLEACCESS_DENIED_ERROR})))
	require.Equal(t, codeAuth+" environment", told(s.connectFault(&mysql.MyError{Code: mysql.ER_ACCESS_DENIED_ERROR})))
	require.Equal(t, codeNoLock+" environment at once", told(s.lockFault(unknown)), "a server that answers GET_LOCK so does not have it")
	for _, code := range []uint16{mysql.ER_SERVER_SHUTDOWN, 1927, 4031, mysql.ER_QUERY_INTERRUPTED, mysql.ER_OUT_OF_RESOURCES} {
		require.Equal(t, codeLost+" retry", told(s.lockFault(&mysql.MyError{Code: code})), "one that goes down, or is short of something, says nothing about locks")
	}
	for _, err := range []error{io.EOF, errEnd, errors.New("what nobody knows")} {
		require.Equal(t, codeLost+" retry", told(s.dumpFault(err)))
	}
}

func told(err error) string {
	f := event.AsFault(err)
	text := f.Code + " " + f.Class.String()
	if f.Immediate {
		text += " at once"
	}
	return text
}
