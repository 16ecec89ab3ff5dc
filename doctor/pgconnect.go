package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// config is what outtail itself connects with, so that what stands between (a pooler) shows here too. Nothing of PG*
// variables, ~/.pgpass or services is read.
func (o *Postgres) config(replication bool) (*pgconn.Config, error) {
	mode := o.TLS.Mode
	if mode == "" {
		mode = "prefer"
		if o.TLS.CA != "" {
			mode = "verify-full"
		}
	}
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" }
	cfg, err := pgconn.ParseConfig(strings.Join([]string{
		"host=" + quote(o.Host), "port=" + strconv.Itoa(int(o.Port)), "user=" + quote(o.User), "database=" + quote(o.Database),
		"sslmode=" + mode, "sslrootcert=" + quote(o.TLS.CA), "sslcert=" + quote(o.TLS.Cert), "sslkey=" + quote(o.TLS.Key),
		"passfile=" + quote(os.DevNull), "target_session_attrs=any", "connect_timeout=10",
	}, " "))
	if err != nil {
		return nil, errors.New("tls.mode, tls.ca, tls.cert or tls.key cannot be used")
	}
	cfg.Password = o.Password
	cfg.RuntimeParams = map[string]string{
		"application_name": "outtail doctor", "client_encoding": "UTF8", "DateStyle": "ISO, YMD", "TimeZone": "UTC", "search_path": "pg_catalog",
		"client_min_messages": "warning", "standard_conforming_strings": "on",
	}
	if replication {
		cfg.RuntimeParams["replication"] = "database"
	} else {
		cfg.RuntimeParams["statement_timeout"], cfg.RuntimeParams["lock_timeout"] = "15000", "5000"
	}
	cfg.DialFunc = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	return cfg, nil
}

// pgRefusalOf says who refused; the wrapping of the library, which repeats user, host and database, is left off.
func pgRefusalOf(err error) *pgRefusal {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &pgRefusal{State: pg.Code, Text: pg.Message} // without its detail, which may quote rows
	}
	if c, ok := errors.AsType[*pgconn.ConnectError](err); ok && c.Unwrap() != nil {
		err = c.Unwrap()
	}
	lines := strings.Split(err.Error(), "\n") // of attempts with TLS and without, which mostly fail alike
	slices.Sort(lines)
	return &pgRefusal{Text: strings.Join(slices.Compact(lines), "; ")}
}

// pgUnreachable tells why there is no ordinary connection.
func pgUnreachable(o *Postgres, r *pgRefusal) Finding {
	f := Finding{Severity: Error, Code: codeReach, Why: outside(r.Fault, o.StartTimeout)}
	said := ": " + r.Text
	switch {
	case r.State == "08P01", strings.Contains(r.Text, "unsupported startup parameter"):
		f.Found = "a connection pooler answers, not Postgres" + said
		f.Repair = "name the server itself in host and port: a pooler cannot carry a replication connection"
	case r.State == "28000" && strings.Contains(r.Text, "pg_hba"):
		f.Found = "the server lets nobody in from here" + said
		f.Repair = hbaLine(o)
	case r.State == "28P01" || r.State == "28000":
		f.Found = "the server refuses the user " + o.User + said
		f.Repair = "correct user and password, or\nALTER ROLE " + pgIdent(o.User) + " WITH LOGIN PASSWORD '…';"
	case r.State == "3D000":
		f.Found = "the database " + o.Database + " does not exist"
		f.Repair = "correct database"
	case r.State == "42501":
		f.Found = "the user may not connect" + said
		f.Repair = "GRANT CONNECT ON DATABASE " + pgIdent(o.Database) + " TO " + pgIdent(o.User) + ";"
	case r.State == "53300" || r.State == "53400":
		f.Found = "the server has no connection left"
		f.Repair = "raise max_connections, or end what is not needed: SELECT pid, usename, application_name, state FROM pg_stat_activity;"
	case r.State == "57P03":
		f.Found = "the server is starting up, shutting down or recovering" + said
		f.Repair = "wait, and look again"
	case r.State != "":
		f.Found = "the server refuses the connection" + said
	case strings.Contains(r.Text, "tls") || strings.Contains(r.Text, "TLS") || strings.Contains(r.Text, "x509"):
		f.Found = "the TLS connection failed" + said
		f.Repair = "compare tls.mode and tls.ca with the server's certificate (its name must be the host's for verify-full)"
	default:
		f.Found = "the server cannot be reached" + said
		f.Repair = fmt.Sprintf("pg_isready -h %s -p %d", o.Host, o.Port)
	}
	return f
}

func hbaLine(o *Postgres) string {
	return "add to pg_hba.conf, and then SELECT pg_reload_conf();\n" +
		fmt.Sprintf("host  %s  %s  ADDRESS/32  scram-sha-256", o.Database, o.User)
}

// pgAsk asks over one connection.
type pgAsk struct {
	conn *pgconn.PgConn
}

// rows runs one statement with text parameters; SQL NULL reads as "".
func (a pgAsk) rows(ctx context.Context, sql string, args ...string) ([][]string, error) {
	params := make([][]byte, len(args))
	for i, s := range args {
		params[i] = []byte(s)
	}
	res := a.conn.ExecParams(ctx, sql, params, nil, nil, nil).Read()
	if res.Err != nil {
		return nil, res.Err
	}
	out := make([][]string, len(res.Rows))
	for i, r := range res.Rows {
		out[i] = make([]string, len(r))
		for j, v := range r {
			out[i][j] = string(v)
		}
	}
	return out, nil
}

func (a pgAsk) one(ctx context.Context, sql string, args ...string) ([]string, error) {
	rows, err := a.rows(ctx, sql, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}
