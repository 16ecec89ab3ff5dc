package wal

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outtail/outtail/event"
)

// SQLSTATEs that are told apart (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	stateProtocolViolation    = "08P01"
	stateInvalidAuthorization = "28000"
	stateInvalidPassword      = "28P01"
	stateSyntaxError          = "42601"
	stateNoDatabase           = "3D000"
	stateNotInRepertoire      = "22021"
	stateUntranslatable       = "22P05"
	statePrivilege            = "42501"
	stateUndefinedObject      = "42704"
	stateDuplicateObject      = "42710"
	stateObjectInUse          = "55006"
	stateNotPrerequisite      = "55000"
	stateUndefinedFile        = "58P01"
	stateCannotConnectNow     = "57P03"
	stateTooManyConnections   = "53300"
	stateConfigurationLimit   = "53400"
)

// rendering is what decides how the server of a database in this encoding writes values as text. A database in SQL_ASCII does not
// know what its bytes mean: asked for UTF8 it would only end the stream at the first that are none, so they come as they are (I7).
func rendering(encoding string) map[string]string {
	if encoding != "SQL_ASCII" {
		encoding = "UTF8"
	}
	return map[string]string{
		"client_encoding":    encoding,
		"DateStyle":          "ISO, YMD",
		"TimeZone":           "UTC",
		"IntervalStyle":      "postgres",
		"extra_float_digits": "1",
		"bytea_output":       "hex",
	}
}

// purpose is what a connection is for: the catalogs, or the stream of a database in this encoding.
type purpose struct {
	replication bool
	encoding    string
}

// searchPath makes a query mean the server's own tables, whatever others are named.
const searchPath = "pg_catalog"

// config builds what pgconn connects with. Everything that PG* variables, ~/.pgpass or a service could add is given, so
// that the configuration file alone decides.
func (o *Options) config(p purpose) (*pgconn.Config, error) {
	mode := o.TLS.Mode
	if mode == "" {
		mode = "prefer"
		if o.TLS.CA != "" {
			mode = "verify-full"
		}
	}
	parts := []string{
		"host=" + dsnValue(o.Host),
		"port=" + strconv.Itoa(int(o.Port)),
		"user=" + dsnValue(o.User),
		"database=" + dsnValue(o.Database),
		"sslmode=" + mode,
		"sslrootcert=" + dsnValue(o.TLS.CA),
		"sslcert=" + dsnValue(o.TLS.Cert),
		"sslkey=" + dsnValue(o.TLS.Key),
		"passfile=" + dsnValue(os.DevNull),
		"target_session_attrs=any",
		"connect_timeout=10",
	}
	cfg, err := pgconn.ParseConfig(strings.Join(parts, " "))
	if err != nil {
		return nil, err
	}
	cfg.Password = o.Password
	// Set at startup they win over what is set for the role or the database, so that values render the same everywhere.
	cfg.RuntimeParams = map[string]string{
		"application_name":            "outtail",
		"client_min_messages":         "warning",
		"standard_conforming_strings": "on",
		"search_path":                 searchPath,
	}
	maps.Copy(cfg.RuntimeParams, rendering(p.encoding))
	if p.replication {
		cfg.RuntimeParams["replication"] = "database"
	} else {
		cfg.RuntimeParams["statement_timeout"] = "15000"
		cfg.RuntimeParams["lock_timeout"] = "5000"
	}
	dialer := &net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4},
	}
	cfg.DialFunc = dialer.DialContext
	return cfg, nil
}

// dsnValue quotes a value of a keyword/value connection string.
func dsnValue(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// connect opens one connection; errors are faults.
func (o *Options) connect(ctx context.Context, p purpose) (*pgconn.PgConn, error) {
	cfg, err := o.config(p)
	if err != nil {
		f := faultOptions("the connection cannot be configured")
		f.Err = errors.Unwrap(err)
		return nil, f
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, o.connectFault(err)
	}
	return conn, nil
}

// ConnectFault says what a start makes of an error of connecting to the server, for others that connect as it does.
func ConnectFault(o Options, err error) *event.Fault { return o.connectFault(err) }

// connectFault classifies why there is no connection. What time may mend (a server that starts, a password that is being
// rotated) is an Environment fault that is tried until start_timeout; what needs a statement is Immediate.
func (o *Options) connectFault(err error) *event.Fault {
	f := &event.Fault{Class: event.Environment, Op: opConnect, Place: o.place(), Err: cause(err)}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		f.Err = pgText(pg)
		switch pg.Code {
		case stateInvalidPassword, stateInvalidAuthorization:
			f.Code, f.Text = CodeAuth, fmt.Sprintf("the server refuses the user %s", showIdent(o.User))
			f.Hint = "correct user and password, or allow the host in pg_hba.conf (for replication and ordinary connections to the database)"
			// Roles without REPLICATION are refused with 42501 or, by some services, here.
		case statePrivilege:
			return faultReplicationPrivilege(o.place(), o.User)
		case stateProtocolViolation:
			// A server knows every parameter that we start with; a pooler refuses those that it cannot keep apart per client.
			return faultPooler(o.place(), pg.Message)
		case stateNoDatabase:
			f.Code, f.Text, f.Immediate = CodeNoDatabase, fmt.Sprintf("the database %s does not exist", showIdent(o.Database)), true
			f.Hint = "correct `database`"
		case stateTooManyConnections, stateConfigurationLimit:
			f.Code, f.Text = CodeNotReady, "the server has no connection left"
			f.Hint = "raise max_connections and max_wal_senders, or end what is not needed"
		case stateCannotConnectNow:
			f.Code, f.Text, f.Hint = CodeNotReady, "the server is starting up, shutting down or recovering", "wait, it is tried again; if it stays so, the server's log tells more"
		default:
			f.Code, f.Text, f.Hint = CodeNotReady, "the server refuses the connection", "the server's log tells more"
		}
		return f
	}
	if tlsError(err) {
		f.Code, f.Text = CodeTLS, "the TLS connection failed"
		f.Hint = "compare tls.mode, tls.ca and the server's certificate (its name must be the host's for verify-full); tls.mode: disable turns TLS off"
		return f
	}
	f.Code, f.Text = CodeUnreachable, "the server cannot be reached"
	f.Hint = fmt.Sprintf("is it running, and are host and port right? try: pg_isready -h %s -p %d", o.Host, o.Port)
	return f
}

func tlsError(err error) bool {
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	if errors.As(err, &record) || errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &host) ||
		errors.As(err, &invalid) || errors.As(err, &alert) {
		return true
	}
	// pgconn has no type for a server that answers N to the request for TLS.
	return strings.Contains(err.Error(), "server refused TLS") || strings.Contains(err.Error(), "tls: ")
}

// cause strips pgconn's own wrapping, which repeats user, host and database.
func cause(err error) error {
	if c, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		if inner := c.Unwrap(); inner != nil {
			return attempts{inner}
		}
	}
	return err
}

// attempts is what one or several attempts failed with: with TLS, and without, which mostly fail alike. Each text is told once.
type attempts struct{ error }

func (a attempts) Unwrap() error { return a.error }

func (a attempts) Error() string {
	lines := strings.Split(a.error.Error(), "\n")
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "; ")
}

// serverText is what a server said, without what may quote rows (I10).
type serverText struct {
	severity, state, message string
}

func (e *serverText) Error() string {
	return fmt.Sprintf("%s: %s (SQLSTATE %s)", e.severity, e.message, e.state)
}

func pgText(e *pgconn.PgError) error {
	message := e.Message
	if e.Code == stateNotInRepertoire || e.Code == stateUntranslatable { // it quotes bytes of the value
		message = "a character cannot be converted between the encodings of database and client; the server's log names it"
	}
	return &serverText{e.Severity, e.Code, message}
}

// queryFault classifies an error of a statement on a connection that was fine.
func (o *Options) queryFault(op string, err error) *event.Fault {
	if f := event.AsFault(err); f != nil {
		return f
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		f := faultConnectionLost(o.place(), err)
		f.Op = op
		return f
	}
	f := &event.Fault{Code: CodeQuery, Class: event.Retry, Op: op, Place: o.place(), Text: "the server refuses a statement", Hint: "the server's log tells more", Err: pgText(pg)}
	if pg.Code == statePrivilege {
		f.Code, f.Class, f.Immediate = CodePrivilege, event.Environment, true
		f.Hint = fmt.Sprintf("grant what is missing to %s, or let somebody who owns the tables do it", quoteIdent(o.User))
	}
	return f
}
