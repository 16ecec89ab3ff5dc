package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

// debezium is Debezium on Kafka Connect, standalone, tuned for throughput and with acks=all: no polls of half a second, large batches, lz4 as
// outtail has it, payloads passed on as text.
type debezium struct {
	s    *source
	home string // the jars, and the state of MySQL's connector before the backlog was written
	dir  string // of the next run
}

// newDebezium gets the jars; nil, and a line that says so, where Java or Maven are missing.
func newDebezium(t *testing.T, s *source) arm {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Logf("Debezium is left out: there is no %s on this machine", tool)
			return nil
		}
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	home := filepath.Join(cache, "outtail-bench")
	for pom, into := range map[string]string{"kafka": "kafka", s.kind: filepath.Join("plugins", s.kind)} {
		into = filepath.Join(home, into)
		if _, err := os.Stat(into); err == nil {
			continue
		}
		t.Logf("fetching the jars of %s into %s", pom, into)
		out, err := exec.Command("mvn", "-q", "-B", "-f", filepath.Join("debezium", pom+".xml"), "dependency:copy-dependencies",
			"-DincludeScope=runtime", "-DoutputDirectory="+into+".new").CombinedOutput()
		if err != nil {
			t.Logf("Debezium is left out: its jars cannot be had: %s", out)
			return nil
		}
		if pom != "kafka" {
			// What Connect itself brings must not be in a plugin's folder as well.
			for _, p := range []string{"connect-api-*", "kafka-clients-*", "slf4j-api-*", "lz4-*", "snappy-*", "zstd-*", "jakarta.ws*"} {
				doubles, _ := filepath.Glob(filepath.Join(into+".new", p))
				for _, d := range doubles {
					require.NoError(t, os.Remove(d))
				}
			}
		}
		require.NoError(t, os.Rename(into+".new", into))
	}
	d := &debezium{s: s, home: home}
	if s.kind == "mysql" {
		d.mark(t)
	}
	return d
}

func (d *debezium) name() string { return "Debezium" }

// mark lets MySQL's connector see one row, so that its files name the place from which the backlog begins.
func (d *debezium) mark(t *testing.T) {
	seeds := d.s.kafka.NewTopic(t, 1)
	d.prepare(t, seeds)
	p := d.start(t)
	p.Until(t, "Debezium streams", func() bool { return strings.Contains(p.Stdout(), "Keepalive thread is running") })
	d.s.my.Exec(t, d.s.db, "INSERT INTO outbox VALUES (UUID(), 'order', 'seed', 'seeded', '{}')")
	p.Until(t, "the seed arrives", func() bool { return d.s.kafka.Count(t, seeds) == 1 })
	p.Terminate(t)
	d.s.state = filepath.Join(d.dir, "state")
}

func (d *debezium) prepare(t testing.TB, topics ...string) {
	d.dir = t.TempDir()
	state := filepath.Join(d.dir, "state")
	if d.s.state != "" {
		require.NoError(t, os.CopyFS(state, os.DirFS(d.s.state)))
	} else {
		require.NoError(t, os.Mkdir(state, 0o755))
	}
	port, err := harness.FreePort()
	require.NoError(t, err)
	worker := []string{
		"bootstrap.servers=" + strings.Join(d.s.kafka.Brokers(), ","),
		"key.converter=org.apache.kafka.connect.storage.StringConverter", "value.converter=org.apache.kafka.connect.storage.StringConverter",
		"offset.storage.file.filename=" + filepath.Join(state, "offsets.dat"),
		"plugin.path=" + filepath.Join(d.home, "plugins"), "plugin.discovery=service_load",
		"listeners=http://127.0.0.1:" + strconv.Itoa(port), "connector.client.config.override.policy=All",
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "worker.properties"), []byte(strings.Join(worker, "\n")), 0o644))
	c := map[string]string{
		"snapshot.mode": "no_data", "tombstones.on.delete": "false", "tasks.max": "1", "topic.prefix": "bench", "errors.tolerance": "none",
		"transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.table.expand.json.payload": "false", "transforms.outbox.route.topic.replacement": topics[0],
		"poll.interval.ms": "10", "max.batch.size": "8192", "max.queue.size": "32768", "extended.headers.enabled": "false",
		"producer.override.acks": "all", "producer.override.enable.idempotence": "true", "producer.override.max.in.flight.requests.per.connection": "5",
		"producer.override.linger.ms": "5", "producer.override.batch.size": "1048576", "producer.override.compression.type": "lz4",
		"database.hostname": "127.0.0.1", "database.password": harness.RootPassword,
	}
	if d.s.kind == "postgres" {
		for k, v := range map[string]string{
			"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.port": strconv.Itoa(d.s.pg.Port), "database.user": "postgres",
			"database.dbname": d.s.db, "plugin.name": "pgoutput", "publication.name": "bench", "publication.autocreate.mode": "disabled",
			"slot.name": d.s.slot(t, "bench"), "slot.drop.on.stop": "false", "table.include.list": "public.outbox", "database.sslmode": "disable",
		} {
			c[k] = v
		}
	} else {
		for k, v := range map[string]string{
			"connector.class": "io.debezium.connector.mysql.MySqlConnector", "database.port": strconv.Itoa(d.s.my.Port), "database.user": "root",
			"database.server.id": "5400", "database.include.list": d.s.db, "table.include.list": d.s.db + ".outbox", "include.schema.changes": "false",
			"schema.history.internal":               "io.debezium.storage.file.history.FileSchemaHistory",
			"schema.history.internal.file.filename": filepath.Join(state, "history.dat"),
			"database.ssl.mode":                     "disabled", "driver.allowPublicKeyRetrieval": "true",
		} {
			c[k] = v
		}
	}
	b, err := json.Marshal(map[string]any{"name": "bench", "config": c})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "connector.json"), b, 0o600))
}

// start runs the JVM with the flags of Kafka's own start script.
func (d *debezium) start(t testing.TB) *harness.Process {
	log, err := filepath.Abs("debezium/log4j2.xml")
	require.NoError(t, err)
	java, err := exec.LookPath("java")
	require.NoError(t, err)
	return harness.StartCommand(t, d.dir, java, "-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
		"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "-Dlog4j2.configurationFile="+log, "-cp", filepath.Join(d.home, "kafka", "*"),
		"org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties", "connector.json")
}
