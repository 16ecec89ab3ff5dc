package wal

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTablesAreReadAsSQLWould(t *testing.T) {
	for _, c := range []struct {
		in, schema, table string
		wrong             string
	}{
		{in: "public.outbox", schema: "public", table: "outbox"},
		{in: "Public.OutBox", schema: "public", table: "outbox"},
		{in: `"Public"."Out.Box"`, schema: "Public", table: "Out.Box"},
		{in: `a."say ""hi"""`, schema: "a", table: `say "hi"`},
		{in: "_a$1.ü", schema: "_a$1", table: "ü"},
		{in: "outbox", wrong: "schema.table"},
		{in: "a.b.c", wrong: "left over"},
		{in: "", wrong: "missing"},
		{in: "a.", wrong: "missing"},
		{in: "1a.b", wrong: "double quotes"},
		{in: "a.b-c", wrong: "left over"},
		{in: `a."b`, wrong: "not closed"},
		{in: `a.""`, wrong: "empty"},
		{in: "a." + strings.Repeat("x", 64), wrong: "63"},
		{in: "a.\"b\x00c\"", wrong: "zero byte"},
	} {
		n, err := parseTable(c.in)
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong, c.in)
			continue
		}
		require.NoError(t, err, c.in)
		require.Equal(t, name{c.schema, c.table}, n, c.in)
	}
}

func TestEveryNameSurvivesItsQuoting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ident := rapid.StringMatching(`[a-zA-Z0-9_"' .$üÄ-]{1,20}`)
		n := name{ident.Draw(t, "schema"), ident.Draw(t, "table")}
		for _, s := range []string{n.sql(), n.String()} {
			back, err := parseTable(s)
			require.NoError(t, err, s)
			require.Equal(t, n, back)
		}
	})
}

func TestOptionsAreRefusedBeforeAnythingConnects(t *testing.T) {
	good := func() Options {
		return Options{Slot: "s", Publication: "p", Tables: []string{"public.outbox"}, Start: "now"}
	}
	for name, change := range map[string]func(*Options){
		"slot with capitals": func(o *Options) { o.Slot = "Slot" },
		"no slot":            func(o *Options) { o.Slot = "" },
		"no publication":     func(o *Options) { o.Publication = "" },
		"no table":           func(o *Options) { o.Tables = nil },
		"a table twice":      func(o *Options) { o.Tables = []string{"public.outbox", "PUBLIC.outbox"} },
		"a bad table":        func(o *Options) { o.Tables = []string{"outbox"} },
		"start":              func(o *Options) { o.Start = "yesterday" },
		"tls mode":           func(o *Options) { o.TLS.Mode = "maybe" },
	} {
		t.Run(name, func(t *testing.T) {
			o := good()
			change(&o)
			_, err := New(o)
			f := faultOf(t, err)
			require.Equal(t, CodeOptions, f.Code)
		})
	}
	_, err := New(good())
	require.NoError(t, err)
}

func TestTheEnvironmentDoesNotReachTheConnection(t *testing.T) {
	t.Setenv("PGHOST", "elsewhere")
	t.Setenv("PGPASSWORD", "secret")
	t.Setenv("PGSSLMODE", "verify-full")
	t.Setenv("PGOPTIONS", "-c bytea_output=escape")
	t.Setenv("PGAPPNAME", "other")
	o := Options{Host: `a'\b`, Port: 1, User: "u s", Password: `p'\ w`, Database: "d", TLS: TLS{Mode: "disable"}}
	c, err := o.config(purpose{replication: true})
	require.NoError(t, err)
	require.Equal(t, `a'\b`, c.Host)
	require.Equal(t, "u s", c.User)
	require.Equal(t, `p'\ w`, c.Password)
	require.Nil(t, c.TLSConfig)
	require.Empty(t, c.Fallbacks)
	require.Equal(t, "outtail", c.RuntimeParams["application_name"])
	require.Equal(t, "database", c.RuntimeParams["replication"])
	require.NotContains(t, c.RuntimeParams, "options")
	o.Password = ""
	c, err = o.config(purpose{})
	require.NoError(t, err)
	require.Empty(t, c.Password)
	require.NotContains(t, c.RuntimeParams, "replication")
}

func TestTextComesAsUTF8UnlessTheDatabaseDoesNotKnowWhatItIs(t *testing.T) {
	o := Options{Host: "h", Port: 1, User: "u", Database: "d"}
	for encoding, want := range map[string]string{"": "UTF8", "UTF8": "UTF8", "LATIN1": "UTF8", "SQL_ASCII": "SQL_ASCII"} {
		c, err := o.config(purpose{replication: true, encoding: encoding})
		require.NoError(t, err)
		require.Equal(t, want, c.RuntimeParams["client_encoding"], encoding)
	}
}

// What a server says about a character that it cannot convert has the character's bytes in it (I10).
func TestBytesOfAValueAreNotTold(t *testing.T) {
	for _, state := range []string{"22021", "22P05"} {
		text := pgText(&pgconn.PgError{Severity: "ERROR", Code: state, Message: `character with byte sequence 0xa9 0xa1 in encoding "EUC_JP" has no equivalent`}).Error()
		require.NotContains(t, text, "0xa9")
		require.Contains(t, text, state)
	}
}

func TestTLSModes(t *testing.T) {
	for mode, c := range map[string]struct{ tls, insecure, fallback bool }{
		"":            {tls: true, insecure: true, fallback: true},
		"prefer":      {tls: true, insecure: true, fallback: true},
		"require":     {tls: true, insecure: true},
		"verify-full": {tls: true},
		"disable":     {},
	} {
		o := Options{Host: "h", Port: 1, User: "u", Database: "d", TLS: TLS{Mode: mode}}
		cfg, err := o.config(purpose{})
		require.NoError(t, err, mode)
		require.Equal(t, c.tls, cfg.TLSConfig != nil, mode)
		require.Equal(t, c.fallback, len(cfg.Fallbacks) > 0, mode)
		if c.tls {
			require.Equal(t, c.insecure, cfg.TLSConfig.InsecureSkipVerify, mode)
		}
	}
}
