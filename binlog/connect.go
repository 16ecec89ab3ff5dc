package binlog

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outtail/outtail/event"
)

const (
	// dialTimeout bounds connecting and logging in, queryTimeout one metadata query.
	dialTimeout  = 15 * time.Second
	queryTimeout = 30 * time.Second
)

// conn is a connection for questions. The dump takes one over for reading.
type conn struct {
	*client.Conn
	raw *rawConn // below TLS
}

// rawConn is the TCP connection with a buffer: TLS asks for each record of 16 KiB by itself, and what lies here already tells
// whether another one can be read without waiting, so that a batch is not cut at each record.
type rawConn struct {
	net.Conn
	in *bufio.Reader
	// open: the login goes over the network without TLS. tail is the end of what was read of it.
	open bool
	tail []byte
}

// errClear keeps the password from whoever asks for it: the client library would tell it.
var errClear = errors.New("the server asks for the password in clear text, over a connection without TLS")

func (r *rawConn) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	if r.open {
		const plugin = "mysql_clear_password"
		r.tail = append(r.tail, b[:n]...)
		if bytes.Contains(r.tail, []byte(plugin)) {
			return 0, errClear
		}
		r.tail = r.tail[max(0, len(r.tail)-len(plugin)):]
	}
	return n, err
}

// record reports whether a whole TLS record is at hand.
func (r *rawConn) record() bool {
	n := r.in.Buffered()
	if n < 5 {
		return false
	}
	head, err := r.in.Peek(5)
	return err == nil && n >= 5+(int(head[3])<<8|int(head[4]))
}

// connect logs in. The connection dies with ctx only until it is made.
func (s *Source) connect(parent context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(parent, dialTimeout)
	defer cancel()
	cfg, optional, err := s.tlsConfig()
	if err != nil {
		return nil, &event.Fault{Code: codeTLS, Class: event.Usage, Op: "connect to " + s.o.Kind, Place: s.place(), Text: "the TLS files cannot be used",
			Hint: "check tls.ca, tls.cert and tls.key", Err: err}
	}
	c, err := s.login(ctx, cfg)
	if err != nil && optional && strings.Contains(err.Error(), "does not support TLS") {
		c, err = s.login(ctx, nil)
	}
	if err != nil {
		if parent.Err() != nil && !errors.Is(parent.Err(), context.DeadlineExceeded) {
			return nil, parent.Err()
		}
		return nil, s.connectFault(err)
	}
	return c, nil
}

// Connect logs in as a session would, for questions of others. The connection is the caller's to close; no deadline is set on it.
func Connect(ctx context.Context, o Options) (_ *client.Conn, encrypted bool, err error) {
	s, err := New(o)
	if err != nil {
		return nil, false, err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, false, err
	}
	_, encrypted = c.Conn.Conn.Conn.(*tls.Conn)
	return c.Conn, encrypted, nil
}

func (s *Source) login(ctx context.Context, cfg *tls.Config) (*conn, error) {
	var raw *rawConn
	stop := func() bool { return true }
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}}
		nc, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		raw = &rawConn{Conn: nc, in: bufio.NewReaderSize(nc, 128<<10), open: cfg == nil && network == "tcp"}
		if until, ok := ctx.Deadline(); ok {
			_ = nc.SetDeadline(until)
		}
		// A peer that accepts and says nothing must not keep a process that was told to stop.
		stop = context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
		return raw, nil
	}
	network, address := "tcp", net.JoinHostPort(s.o.Host, strconv.Itoa(s.o.Port))
	if strings.HasPrefix(s.o.Host, "/") {
		network, address = "unix", s.o.Host
	}
	c, err := client.ConnectWithDialer(ctx, network, address, s.o.User, s.o.Password, "", dial, func(c *client.Conn) error {
		if cfg != nil {
			c.SetTLSConfig(cfg)
		}
		c.SetAttributes(map[string]string{"program_name": "outtail", "pipeline": s.o.Pipeline})
		return c.SetCharset("utf8mb4")
	})
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		if raw != nil {
			_ = raw.Close()
		}
		return nil, err
	}
	_ = raw.SetDeadline(time.Time{})
	raw.open, raw.tail = false, nil
	return &conn{Conn: c, raw: raw}, nil
}

// reader gives the connection's dump.
func (c *conn) reader(timeout time.Duration, limit int) *wireReader {
	w := newWireReader(c.Conn.Conn.Conn, timeout, limit)
	if _, encrypted := w.conn.(*tls.Conn); encrypted {
		w.more = c.raw.record
	}
	return w
}

// query asks with a deadline; the caller's own string, never a value from outside.
func (c *conn) query(ctx context.Context, q string) (*mysql.Result, error) {
	until := time.Now().Add(queryTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	_ = c.raw.SetDeadline(until)
	stop := context.AfterFunc(ctx, func() { _ = c.raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r, err := c.Execute(q)
	if ctx.Err() != nil && err != nil {
		return nil, ctx.Err()
	}
	return r, err
}

// close ends the connection without a word: a goodbye could block.
func (c *conn) close() {
	if c == nil {
		return
	}
	_ = c.raw.SetDeadline(time.Now())
	_ = c.raw.Close()
}

func (s *Source) tlsConfig() (cfg *tls.Config, optional bool, err error) {
	mode := s.o.TLS.Mode
	if mode == "" {
		mode = "prefer"
		if s.o.TLS.CA != "" {
			mode = "verify-full"
		}
	}
	if mode == "disable" {
		return nil, false, nil
	}
	cfg = &tls.Config{ServerName: s.o.Host, MinVersion: tls.VersionTLS12}
	if s.o.TLS.CA != "" {
		pem, err := os.ReadFile(s.o.TLS.CA)
		if err != nil {
			return nil, false, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, false, fmt.Errorf("%s holds no certificate", s.o.TLS.CA)
		}
	}
	if s.o.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.o.TLS.Cert, s.o.TLS.Key)
		if err != nil {
			return nil, false, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	switch mode {
	case "verify-full":
	case "verify-ca":
		roots := cfg.RootCAs
		cfg.InsecureSkipVerify = true // the name is not checked; the chain is, below
		cfg.VerifyConnection = func(state tls.ConnectionState) error {
			opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, c := range state.PeerCertificates[1:] {
				opts.Intermediates.AddCert(c)
			}
			_, err := state.PeerCertificates[0].Verify(opts)
			return err
		}
	case "prefer", "require":
		cfg.InsecureSkipVerify = true // these modes encrypt and do not verify, as in libpq
	default:
		return nil, false, fmt.Errorf("tls.mode %q is not disable, prefer, require, verify-ca or verify-full", mode)
	}
	return cfg, mode == "prefer", nil
}

// connectFault classifies a failed login.
func (s *Source) connectFault(err error) *event.Fault {
	f := &event.Fault{Code: codeUnreachable, Class: event.Environment, Op: "connect to " + s.o.Kind, Place: s.place(),
		Text: "the server cannot be reached", Hint: "check host and port, and that the server runs and listens there", Err: cause(err)}
	var me *mysql.MyError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var verify *tls.CertificateVerificationError
	switch {
	// Our own refusal, which the client does not always wrap.
	case strings.Contains(err.Error(), errClear.Error()):
		f.Code, f.Text, f.Err = codeTLS, errClear.Error(), nil
		f.Hint = "tls: { mode: verify-full, ca: … }; or give user " + s.o.User + " a way to log in that does not send the password"
	// The server answered. Why is in its words: too many connections, a blocked host, a server that starts; tried until start_timeout.
	case errors.As(err, &me):
		f.Text = "the server refused the connection"
		f.Hint = "the server says why"
		switch me.Code {
		// User or password are wrong, or being rotated; the account is locked or its password has expired.
		case mysql.ER_ACCESS_DENIED_ERROR, mysql.ER_DBACCESS_DENIED_ERROR, 1698, mysql.ER_MUST_CHANGE_PASSWORD_LOGIN, 3118, 4151:
			f.Code, f.Text = codeAuth, "the server refused user "+s.o.User
			f.Hint = fmt.Sprintf("check user and password; on the server: ALTER USER '%s'@'%%' IDENTIFIED BY '…';", s.o.User)
		}
	// One side speaks TLS and the other does not, or a certificate does not fit. The client has no type for a server without TLS.
	case errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &record), errors.As(err, &alert), errors.As(err, &verify),
		strings.Contains(err.Error(), "does not support TLS"), strings.Contains(err.Error(), "tls: "):
		f.Code, f.Text = codeTLS, "TLS failed"
		switch {
		case strings.Contains(err.Error(), "does not support TLS"):
			f.Text = "the server offers no TLS"
			f.Hint = "give the server a certificate (ssl_cert, ssl_key); or, on a network that is trusted, tls.mode: disable"
		case errors.As(err, &host):
			f.Hint = "connect by a name that the server's certificate has, or check everything but the name with tls.mode: verify-ca"
		case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
			f.Hint = "renew the server's certificate and load it: ALTER INSTANCE RELOAD TLS; (MariaDB: FLUSH SSL;)"
		case errors.As(err, &unknown):
			f.Hint = "set tls.ca to the certificate of the authority that signed the server's: SHOW VARIABLES LIKE 'ssl_ca'"
		default:
			f.Hint = "check tls.mode, tls.ca, tls.cert and tls.key; the server's certificates: SHOW VARIABLES LIKE 'ssl%'"
		}
	// A way to log in that the client cannot do: an error without a type.
	case strings.Contains(err.Error(), "auth plugin"):
		f.Code, f.Text = codeAuth, "user "+s.o.User+" logs in by a way that outtail does not know"
		how := "WITH caching_sha2_password BY '…';"
		if s.o.Kind == event.MariaDB {
			how = "VIA ed25519 USING PASSWORD('…');   (INSTALL SONAME 'auth_ed25519', or mysql_native_password)"
		}
		f.Hint = fmt.Sprintf("on the server: ALTER USER '%s'@'%%' IDENTIFIED %s", s.o.User, how)
	// An exchange that broke, the same.
	case strings.Contains(err.Error(), "auth"):
		f.Code, f.Text = codeAuth, "authentication failed"
		f.Hint = "check user and password"
	}
	return f
}

// cause strips the stack that the client library wraps around errors.
func cause(err error) error {
	type causer interface{ Cause() error }
	for {
		c, ok := err.(causer)
		if !ok || c.Cause() == nil || c.Cause() == err { //nolint:errorlint // whether it is its own cause, not whether it wraps it
			break
		}
		err = c.Cause()
	}
	return errors.New(err.Error())
}

// queryFault classifies a failed question.
func (s *Source) queryFault(op string, err error) *event.Fault {
	if f := event.AsFault(err); f != nil {
		return f
	}
	f := &event.Fault{Code: codeLost, Class: event.Retry, Op: op, Place: s.place(), Text: "the server did not answer",
		Hint: "the connection is made anew", Err: cause(err)}
	var me *mysql.MyError
	if errors.As(err, &me) {
		switch me.Code {
		// A privilege is missing, and waiting does not bring it.
		case mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR, mysql.ER_ACCESS_DENIED_ERROR, mysql.ER_TABLEACCESS_DENIED_ERROR, mysql.ER_DBACCESS_DENIED_ERROR,
			mysql.ER_COLUMNACCESS_DENIED_ERROR:
			return s.privilegeFault(op, me.Message)
		}
		f.Text = "the server refused" // whatever it is, a new connection asks again and compares all identities
	}
	return f
}

func (s *Source) privilegeFault(op, text string) *event.Fault {
	return &event.Fault{Code: codePrivilege, Class: event.Environment, Immediate: true, Op: op, Place: s.place(), Text: "user " + s.o.User + " lacks a privilege: " + text,
		Hint: s.grants()}
}

// grants is the SQL that gives the user what it needs.
func (s *Source) grants() string {
	var b strings.Builder
	client := "REPLICATION CLIENT"
	if s.o.Kind == event.MariaDB {
		client = "BINLOG MONITOR"
	}
	fmt.Fprintf(&b, "GRANT REPLICATION SLAVE, %s ON *.* TO '%s'@'%%';", client, s.o.User)
	for i := range s.tables {
		t := &s.tables[i]
		fmt.Fprintf(&b, "\nGRANT SELECT ON %s.%s TO '%s'@'%%';", backtick(t.schema), backtick(t.table), s.o.User)
	}
	return b.String()
}

func backtick(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// quote makes an SQL string literal; the session's sql_mode has no NO_BACKSLASH_ESCAPES to care about, as both escapes are
// written so that either reading gives the same text.
func quote(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", "''") + "'"
}
