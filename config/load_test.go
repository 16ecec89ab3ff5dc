package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/outtail/outtail/event"
)

func TestFilesThatCannotBeReadAreFindingsToo(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.yaml")
	require.NoError(t, os.WriteFile(large, []byte(strings.Repeat("# a comment\n", 400_000)), 0o600))
	for path, says := range map[string]string{
		filepath.Join(dir, "none.yaml"): "there is no such file",
		dir:                             "is a folder",
		large:                           "is larger than 4 MiB",
		"load_test.go/x.yaml":           "not a directory",
	} {
		_, err := Load(path, environment())
		findings := requireFindings(t, err)
		require.Len(t, findings, 1)
		require.Equal(t, codeFile, event.AsFault(err).Code)
		require.Contains(t, findings[0].String(), path+": ")
		require.Contains(t, findings[0].Text, says)
	}
}

// pipeline is a whole file around the lines of one pipeline.
func pipeline(lines ...string) string {
	return "pipelines:\n  - name: orders\n    " + strings.Join(lines, "\n    ") + "\n"
}

const (
	anySource = `source: { postgres: { user: u, database: d, tables: [public.outbox] } }`
	anyRoutes = `routes: [{ topic: t }]`
	anySink   = `sink: { kafka: { brokers: ["b:9092"] } }`
)

func parsed(t *testing.T, text string, env Environment) *Config {
	t.Helper()
	c, err := Parse("test.yaml", []byte(text), env)
	require.NoError(t, err)
	return c
}

func TestReferencesFillValuesOfEveryType(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("from file\n"), 0o600))
	c := parsed(t, pipeline(
		`source:`,
		`  postgres:`,
		`    host: db-${env:STAGE}.${env:ZONE:-local}`,
		`    port: ${env:PORT}`,
		`    user: "${env:EMPTY}${env:EMPTY:-u}"`,
		`    password: ${file:`+file+`}`,
		`    database: ${env:STRUCTURE}`,
		`    tables: ["${env:TABLE}"]`,
		`    create: ${env:CREATE}`,
		`routes: [{ topic: "${env:STAGE}.${aggregate_type}", key: "${headers.x}" }]`,
		`sink: { kafka: { brokers: ["${env:BROKERS}", "d:4"], linger: "${env:LINGER}" } }`,
		`limits: { in_flight_bytes: "${env:BYTES}" }`,
	), environment("STAGE", "test", "PORT", "6543", "EMPTY", "", "STRUCTURE", "{ a: [b] } # ${env:PORT}", "TABLE", "public.outbox",
		"CREATE", "true", "BROKERS", "a:1, b:2,c:3", "LINGER", "5ms", "BYTES", "1MiB"))
	p := c.Pipelines[0]
	s := p.Source.Postgres
	require.Equal(t, "db-test.local", s.Host)
	require.EqualValues(t, 6543, s.Port)
	require.Equal(t, "u", s.User)
	require.Equal(t, "from file", s.Password.Reveal())
	require.Equal(t, "{ a: [b] } # ${env:PORT}", s.Database, "a value is neither structure nor a reference")
	require.True(t, s.Create)
	require.Equal(t, []string{"public.outbox"}, s.Tables)
	require.Equal(t, "test.${aggregate_type}", p.Routes[0].Topic, "templates stay")
	require.Equal(t, []string{"a:1", "b:2", "c:3", "d:4"}, p.Sink.Kafka.Brokers)
	require.Equal(t, 5*time.Millisecond, p.Sink.Kafka.Linger)
	require.Equal(t, Size(1<<20), p.Limits.InFlightBytes)
}

func TestURLsGiveWhatFieldsDoNot(t *testing.T) {
	c := parsed(t, pipeline(
		`source: { postgres: { url: "postgresql://app:p%40ss@db.example:6432/shop?sslmode=require&sslcert=c&sslkey=k", user: other, tables: [public.outbox] } }`,
		anyRoutes, anySink), environment())
	require.Equal(t, Server{
		Host: "db.example", Port: 6432, User: "other", Password: NewSecret("p@ss"), Database: "shop",
		TLS: TLS{Mode: "require", Cert: "c", Key: "k"},
	}, c.Pipelines[0].Source.Postgres.Server)

	c = parsed(t, pipeline(
		`source: { mariadb: { url: "${env:URL}", port: 3307, tables: [outbox, "other.t"] } }`,
		anyRoutes, anySink), environment("URL", "mariadb://app:secret@[::1]/shop"))
	p := c.Pipelines[0]
	require.Equal(t, event.MariaDB, p.Source.Kind)
	require.Equal(t, Server{Host: "::1", Port: 3307, User: "app", Password: NewSecret("secret"), Database: "shop", TLS: TLS{Mode: "prefer"}}, p.Source.MySQL.Server)
	require.Equal(t, []string{"outbox", "other.t"}, p.Source.MySQL.Tables)
	require.Empty(t, c.Warnings)
}

func TestTLSVerifiesWhereACAIsGiven(t *testing.T) {
	source := func(tls string) string {
		return pipeline(`source: { postgres: { user: u, database: d, tables: [public.outbox], tls: `+tls+` } }`, anyRoutes, anySink)
	}
	for tls, mode := range map[string]string{
		`{}`: "prefer", `{ ca: load.go }`: "verify-full", `{ ca: load.go, mode: verify-ca }`: "verify-ca", `{ mode: require }`: "require",
	} {
		require.Equal(t, mode, parsed(t, source(tls), environment()).Pipelines[0].Source.Postgres.TLS.Mode, tls)
	}
}

func TestNamesWithHyphensGiveValidSlots(t *testing.T) {
	c := parsed(t, "pipelines:\n  - name: orders-eu-1\n    "+anySource+"\n    "+anyRoutes+"\n    "+anySink+"\n", environment())
	require.Equal(t, "outtail_orders_eu_1", c.Pipelines[0].Source.Postgres.Slot)
	require.Equal(t, "outtail_orders_eu_1", c.Pipelines[0].Source.Postgres.Publication)
}

func TestStartRules(t *testing.T) {
	for _, c := range []struct {
		kind, start string
		want        Start
	}{
		{"mysql", `now`, Start{Mode: "now"}},
		{"mysql", `earliest`, Start{Mode: "earliest"}},
		{"mysql", `{ file: binlog.000012, pos: 4 }`, Start{Mode: "position", File: "binlog.000012", Pos: 4}},
		{
			"mysql", `{ gtid: "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:7, 3E11FA47-71CA-11E1-9E33-C80AA9429563:tag:1" }`,
			Start{Mode: "gtid", GTID: "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5:7,3E11FA47-71CA-11E1-9E33-C80AA9429563:tag:1"},
		},
		{"mariadb", `{ gtid: "0-1-5,1-2-3" }`, Start{Mode: "gtid", GTID: "0-1-5,1-2-3"}},
	} {
		text := pipeline(`source: { `+c.kind+`: { user: u, password: "${env:P}", tables: [shop.outbox], start: `+c.start+` } }`, anyRoutes, anySink)
		require.Equal(t, c.want, parsed(t, text, environment("P", "p")).Pipelines[0].Source.MySQL.Start, c.start)
	}
	require.Equal(t, Start{}, parsed(t, pipeline(anySource, anyRoutes, anySink), environment()).Pipelines[0].Source.Postgres.Start)
}

func TestColumnsAreAPresetOrAMapping(t *testing.T) {
	columns := func(text string) event.Columns {
		return parsed(t, pipeline(anySource, "columns: "+text, anyRoutes, anySink), environment()).Pipelines[0].Columns
	}
	var outtail, debezium event.Columns
	for _, r := range []event.Role{event.ID, event.AggregateType, event.AggregateID, event.EventType, event.Payload, event.Headers, event.OccurredAt} {
		outtail[r] = event.Mapping{Column: r.String()}
	}
	for r, c := range map[event.Role]string{
		event.ID: "id", event.AggregateType: "aggregatetype", event.AggregateID: "aggregateid", event.EventType: "type", event.Payload: "payload",
	} {
		debezium[r] = event.Mapping{Column: c}
	}
	require.Equal(t, outtail, columns("outtail"))
	require.Equal(t, debezium, columns("debezium"))

	var own event.Columns
	own[event.ID] = event.Mapping{Column: "eid", As: event.UUID}
	own[event.Key] = event.Mapping{Column: "biz_key", As: event.Base64}
	own[event.EventType] = event.Mapping{Constant: "it's an order", IsConst: true}
	own[event.AggregateType] = event.Mapping{IsConst: true}
	own[event.Payload] = event.Mapping{Column: "payload"}
	require.Equal(t, own, columns(
		`{ id: { column: eid, as: uuid }, key: { column: biz_key, as: base64 }, event_type: "'it''s an order'", aggregate_type: "''", payload: { column: payload } }`))
}

func TestRoutesHaveADefaultWhereTheColumnsSuggestOne(t *testing.T) {
	routes := func(columns string) []Route {
		return parsed(t, pipeline(anySource, "columns: "+columns, anySink), environment()).Pipelines[0].Routes
	}
	require.Equal(t, []Route{{Topic: "outbox.event.${aggregate_type}", Format: "raw", OnPoison: event.Park}}, routes("debezium"))
	require.Equal(t, []Route{{Topic: "${topic}", Format: "raw", OnPoison: event.Park}}, routes("{ id: i, key: k, payload: p, topic: t }"))
}

func TestSinks(t *testing.T) {
	sink := func(text string) Sink {
		return parsed(t, pipeline(anySource, anyRoutes, "sink: "+text), environment("P", "p")).Pipelines[0].Sink
	}
	require.Equal(t, Sink{Kind: SinkStdout}, sink("{ stdout: {} }"))
	require.Equal(t, Sink{Kind: SinkStdout}, sink("{ stdout: }"))
	require.Equal(t, Sink{Kind: SinkKafka, Kafka: &Kafka{
		Brokers: []string{"[::1]:9092", "k:9093"}, TLS: KafkaTLS{Enabled: true, CA: "load.go", ServerName: "k"},
		SASL:        SASL{Mechanism: "scram-sha-512", User: "u", Password: NewSecret("p")},
		Compression: "zstd", Linger: 5 * time.Millisecond, CreateTopics: &CreateTopics{Partitions: 6, Replication: 3},
		AllowTopics: []string{"orders*", "t"},
	}}, sink(`{ kafka: { brokers: ["[::1]:9092", "k:9093"], tls: { enabled: true, ca: load.go, server_name: k }, compression: zstd, linger: 5ms,
      sasl: { mechanism: scram-sha-512, user: u, password: "${env:P}" }, create_topics: { partitions: 6, replication: 3 }, allow_topics: ["orders*", t] } }`))
}

func TestOneSettingCanServeSeveralPipelines(t *testing.T) {
	c := parsed(t, `
pipelines:
  - name: a
    source: { postgres: &db { host: db, user: u, database: d, tables: [public.a] } }
    routes: &routes [{ topic: t }]
    sink: &sink { kafka: { brokers: ["b:1"] } }
  - name: b
    source: { postgres: { <<: *db, tables: [public.b] } }
    routes: *routes
    sink: *sink
`, environment())
	require.Equal(t, []string{"public.b"}, c.Pipelines[1].Source.Postgres.Tables)
	require.Equal(t, "db", c.Pipelines[1].Source.Postgres.Host)
	require.Equal(t, c.Pipelines[0].Sink, c.Pipelines[1].Sink)
}

func TestFindingsCanBeReadByProgrammes(t *testing.T) {
	_, err := Parse("f.yaml", []byte("data_dirr: x\n"+pipeline(anySource, anyRoutes, anySink)), environment())
	b, err := json.Marshal(requireFindings(t, err))
	require.NoError(t, err)
	require.JSONEq(t, `[{"code":"OT1004","file":"f.yaml","line":1,"column":1,"path":"data_dirr","text":"unknown key","hint":"did you mean \"data_dir\"?"}]`, string(b))
}

func TestSecretsShowNowhere(t *testing.T) {
	s := NewSecret(secret)
	holder := struct {
		Password Secret
		Pointer  *Secret
	}{s, &s}
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("x", "password", s, "holder", holder)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "password", s, "holder", holder)
	j, err := json.Marshal(holder)
	require.NoError(t, err)
	y, err := yaml.Marshal(holder)
	require.NoError(t, err)
	shown := []string{log.String(), string(j), string(y), s.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown = append(shown, fmt.Sprintf(verb, s), fmt.Sprintf(verb, holder))
	}
	for _, text := range shown {
		require.NotContains(t, text, secret)
		require.NotContains(t, text, fmt.Sprintf("%x", secret))
	}
	require.Contains(t, string(j), masked)
	require.Contains(t, string(y), masked)
	require.Equal(t, secret, s.Reveal())

	c := parsed(t, pipeline(`source: { postgres: { url: "postgres://u:`+secret+`@h/d", tables: [public.outbox] } }`, anyRoutes, anySink), environment())
	require.NotContains(t, fmt.Sprintf("%+v %#v", c.Pipelines[0].Source.Postgres, c.Pipelines[0].Source.Postgres), secret)
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "0B": 0, "512B": 512, "64KiB": 64 << 10, "16MiB": 16 << 20, "10GiB": 10 << 30, "1TiB": 1 << 40,
		"1kB": 1000, "1KB": 1000, "1MB": 1e6, "1.5GB": 1.5e9, "2 MiB": 2 << 20, "0.5KiB": 512,
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, says := range map[string]string{
		"": "is no size", "MiB": "is no size", "1": "has no unit", "1.5": "has no unit", "-1MiB": "below 0", "1mib": "is no size",
		"1Mi": "is no size", "0x1MiB": "is no size", "NaNMiB": "is no size", "9e30B": "too large", "InfB": "too large", "1_0B": "is no size",
	} {
		_, err := ParseSize(text)
		require.ErrorContains(t, err, says, text)
	}
	for size, want := range map[Size]string{0: "0B", 1: "1B", 1 << 20: "1MiB", 1500: "1500B", 3 << 30: "3GiB"} {
		require.Equal(t, want, size.String())
		back, err := ParseSize(want)
		require.NoError(t, err)
		require.Equal(t, size, back)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "100ms": 100 * time.Millisecond, "1m30s": 90 * time.Second, "24h": 24 * time.Hour, "7d": 168 * time.Hour} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, says := range map[string]string{"": "no duration", "10": "no unit", "-1s": "below 0", "1 day": "no duration", "-1d": "no duration", "1.5d": "no duration"} {
		_, err := ParseDuration(text)
		require.ErrorContains(t, err, says, text)
	}
}

// Whatever the file holds, it is read or refused with a place, and no secret shows.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"../configs/*.yaml", "testdata/bad/*.yaml", "testdata/risky/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f.yaml", data, testEnvironment)
		if err == nil {
			require.NotEmpty(t, c.Pipelines)
			return
		}
		for _, one := range requireFindings(t, err) {
			require.Positive(t, one.Line, one.String())
			require.Positive(t, one.Col, one.String())
			if !strings.Contains(string(data), secret) {
				require.NotContains(t, one.String(), secret)
			}
		}
	})
}

func TestMessagesNeedNoTableAndNameAnyRole(t *testing.T) {
	c := parsed(t, pipeline(
		`source: { postgres: { user: u, database: d, messages: true, heartbeat: 10s, rewind_window: 10GiB } }`,
		`routes: [{ match: { tenant: acme }, topic: "${topic}" }]`, anySink), environment())
	pg := c.Pipelines[0].Source.Postgres
	require.True(t, pg.Messages)
	require.Empty(t, pg.Tables)
	require.Equal(t, 10*time.Second, pg.Heartbeat)
	require.Equal(t, Size(10<<30), pg.RewindWindowBytes)
	require.Zero(t, pg.RewindWindow)
	c = parsed(t, pipeline(`source: { postgres: { user: u, database: d, tables: [a.b], rewind_window: 24h } }`, anyRoutes, anySink), environment())
	require.Equal(t, 24*time.Hour, c.Pipelines[0].Source.Postgres.RewindWindow)
	require.False(t, c.Pipelines[0].Source.Postgres.Messages)
}
