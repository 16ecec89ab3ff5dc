package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

// expectation is one finding: its severity, its check, a piece of what was found, and a piece of what repairs it.
type expectation struct {
	severity Severity
	code     string
	found    string
	repair   string
}

// expect requires exactly these findings above ok, in any order.
func expect(t *testing.T, l list, want ...expectation) {
	t.Helper()
	var rest list
	for _, f := range l {
		require.NotEmpty(t, f.Code)
		require.NotEmpty(t, f.Found)
		require.False(t, f.Severity == OK && (f.Why != "" || f.Repair != ""), "what is fine needs no repair: %+v", f)
		require.False(t, f.Severity > OK && f.Why == "", "a finding says why it matters: %+v", f)
		if f.Severity > OK {
			rest = append(rest, f)
		}
	}
	for _, w := range want {
		at := -1
		for i, f := range rest {
			if f.Severity == w.severity && f.Code == w.code && strings.Contains(f.Found, w.found) && strings.Contains(f.Repair, w.repair) {
				at = i
			}
		}
		require.GreaterOrEqual(t, at, 0, "no finding is %+v in %+v", w, rest)
		rest = append(rest[:at], rest[at+1:]...)
	}
	require.Empty(t, rest, "nothing else")
}

func columns(pairs map[event.Role]string) (c event.Columns) {
	for r, name := range pairs {
		c[r] = event.Mapping{Column: name}
	}
	return c
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		text, schema, quotes string
		fold                 bool
		want                 sqlName
		wrong                bool
	}{
		{text: "public.Outbox", quotes: `"`, fold: true, want: sqlName{"public", "outbox"}},
		{text: `"Shop"."out.box"`, quotes: `"`, fold: true, want: sqlName{"Shop", "out.box"}},
		{text: `"a""b".c`, quotes: `"`, fold: true, want: sqlName{`a"b`, "c"}},
		{text: "outbox", quotes: `"`, fold: true, wrong: true},
		{text: "Outbox", schema: "shop", quotes: "`\"", want: sqlName{"shop", "Outbox"}},
		{text: "`a``b`.c", quotes: "`\"", want: sqlName{"a`b", "c"}},
		{text: "`a.b", quotes: "`\"", wrong: true},
		{text: "a.b.c", quotes: "`\"", wrong: true},
		{text: "a.", quotes: "`\"", wrong: true},
		{text: "`a`b", quotes: "`\"", wrong: true},
	} {
		got, err := parseName(c.text, c.schema, c.quotes, c.fold)
		require.Equal(t, c.wrong, err != nil, "%s: %v", c.text, err)
		require.Equal(t, c.want, got, c.text)
	}
	require.Equal(t, `"a""b"."c"`, sqlName{`a"b`, "c"}.pg())
	require.Equal(t, "`a``b`.`c`", sqlName{"a`b", "c"}.my())
}

func TestStored(t *testing.T) {
	at := event.Checkpoint{Position: event.Position{Kind: event.Postgres, LSN: 1}}
	for _, c := range []struct {
		name  string
		cp    event.Checkpoint
		err   error
		known bool
		want  []expectation
	}{
		{name: "nothing is stored"},
		{name: "of this kind", cp: at, known: true},
		{name: "of another kind", cp: event.Checkpoint{Position: event.Position{Kind: event.MySQL}}, want: []expectation{{Error, codeStored, "of mysql", "another pipeline name"}}},
		{name: "it cannot be read", err: errors.New("locked"), want: []expectation{{Warning, codeStored, "locked", ""}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l list
			require.Equal(t, c.known, l.stored(c.cp, c.err, event.Postgres))
			expect(t, l, c.want...)
		})
	}
}

func TestWorstOfAPart(t *testing.T) {
	r := Report{Pipelines: []Pipeline{
		{Parts: []Part{{Part: "source", Findings: list{{Severity: Note}, {Severity: OK}}}, {Part: "sink", Findings: list{{Severity: Error}}}}},
		{Parts: []Part{{Part: "source", Findings: list{{Severity: Warning}}}}},
	}}
	require.Equal(t, Warning, r.Worst("source"))
	require.Equal(t, Error, r.Worst(""))
	require.Equal(t, OK, Report{}.Worst(""))
}

func TestPrint(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("word ", 40))
	r := Report{Pipelines: []Pipeline{{Name: "orders", Parts: []Part{{Part: "source", Kind: "mysql", Place: "db:3306", Findings: list{
		{Severity: OK, Code: "OT8040", Found: "the server writes a binary log"},
		{Severity: Warning, Code: "OT8043", Found: long, Why: "why", Repair: "SET PERSIST a = '" + long + "';\nand more"},
	}}}}}}
	var b strings.Builder
	require.NoError(t, r.Print(&b, false))
	out := b.String()
	require.NotContains(t, out, "\x1b")
	require.Contains(t, out, "orders\n\n  source: mysql db:3306\n    ok       OT8040  the server writes a binary log\n    warning  OT8043  word")
	require.Contains(t, out, strings.Repeat(" ", indent)+"why\n")
	require.Contains(t, out, "SET PERSIST a = '"+long+"';\n", "what is to be copied is never broken")
	require.True(t, strings.HasSuffix(out, "\n1 ok, 1 warning\n"), out)
	for line := range strings.Lines(out) {
		require.True(t, len(line) <= width+1 || strings.Contains(line, "SET PERSIST"), line)
	}
	b.Reset()
	require.NoError(t, r.Print(&b, true))
	require.Contains(t, b.String(), "\x1b[33mwarning\x1b[0m")
}

// TestNobodyIsThere: what cannot be reached is one finding, quickly, and it names no secret.
func TestNobodyIsThere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range []Part{
		CheckPostgres(ctx, Postgres{Host: "127.0.0.1", Port: 1, User: "u", Password: "s3cret", Database: "d", TLS: TLS{Mode: "disable"}}),
		CheckMySQL(ctx, MySQL{Kind: event.MySQL, Host: "127.0.0.1", Port: 1, User: "u", Connect: func(context.Context) (*client.Conn, bool, error) {
			return nil, false, &event.Fault{Code: "OT3003", Class: event.Environment, Text: "TLS failed", Hint: "check tls.ca", Err: errors.New("unknown authority")}
		}}),
		CheckKafka(ctx, Kafka{Brokers: []string{"127.0.0.1:1"}, SASL: SASL{"plain", "u", "s3cret"}}),
		CheckKafka(ctx, Kafka{Brokers: []string{"127.0.0.1:1"}, TLS: KafkaTLS{Enabled: true, CA: "/no/such/file"}}),
	} {
		require.Len(t, p.Findings, 1, p.Kind)
		f := p.Findings[0]
		require.Equal(t, Error, f.Severity)
		require.Contains(t, []string{codeReach, codeBrokers}, f.Code)
		require.NotEmpty(t, f.Repair)
		require.NotContains(t, f.Found+f.Why+f.Repair, "s3cret")
	}
}
