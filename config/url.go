package config

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/outtail/outtail/event"
)

// schemes lists how a kind's url may begin.
var schemes = map[string][]string{
	event.Postgres: {"postgres", "postgresql"},
	event.MySQL:    {"mysql"},
	event.MariaDB:  {"mariadb", "mysql"},
}

// fromURL fills in what a url says; false where it could not be read. No part of it is ever shown: it holds a password.
func fromURL(f field, text, kind string, c *Server) bool {
	u, err := url.Parse(text)
	form := fmt.Sprintf("write %s://user@host:port/database", schemes[kind][0])
	if err != nil || u.Opaque != "" {
		f.bad(codeType, "is no url", form+"; in user and password, percent-encode what is no letter or digit")
		return false
	}
	known := false
	for _, s := range schemes[kind] {
		known = known || u.Scheme == s
	}
	if !known {
		f.bad(codeType, "is no url of "+kind, form)
		return false
	}
	if h := u.Hostname(); h != "" {
		c.Host = h
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			f.bad(codeType, "the port is not from 1 to 65535", form)
		} else {
			c.Port = uint16(n)
		}
	}
	if u.User != nil {
		c.User = u.User.Username()
		if p, ok := u.User.Password(); ok {
			c.Password = NewSecret(p)
		}
	}
	c.Database = strings.TrimPrefix(u.Path, "/")
	urlParameters(f, u, kind, c)
	return true
}

// urlParameters takes libpq's names for TLS; others would be ignored silently, so they are refused.
func urlParameters(f field, u *url.URL, kind string, c *Server) {
	into := map[string]*string{}
	known := []string{}
	if kind == event.Postgres {
		into = map[string]*string{"sslmode": &c.TLS.Mode, "sslrootcert": &c.TLS.CA, "sslcert": &c.TLS.Cert, "sslkey": &c.TLS.Key}
		known = []string{"sslmode", "sslrootcert", "sslcert", "sslkey"}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		f.bad(codeType, "the part after ? cannot be read", "")
		return
	}
	for name, values := range query {
		target, ok := into[name]
		if !ok {
			hint := "what is not server, user or database has a key of its own, such as tls"
			if len(known) > 0 {
				hint = "known are " + list(known) + "; " + hint
			}
			// Not even its name is shown: a ? in a password makes parameters of what follows.
			f.bad(codeUnknown, "there is a parameter after ? that is not known", hint)
			continue
		}
		*target = values[len(values)-1]
	}
	switch c.TLS.Mode {
	case "allow": // libpq's: plain first, TLS if refused; prefer is the closest that is not worse
		c.TLS.Mode = "prefer"
	case "", "disable", "prefer", "require", "verify-ca", "verify-full":
	default:
		f.bad(codeType, "sslmode is none of disable, prefer, require, verify-ca and verify-full", "")
		c.TLS.Mode = ""
	}
}
