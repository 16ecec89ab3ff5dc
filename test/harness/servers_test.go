package harness

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

var servers Pool

func TestMain(m *testing.M) {
	if part := os.Getenv("OUTTAIL_HARNESS_PART"); part != "" {
		os.Exit(play(part))
	}
	os.Exit(servers.Run(m))
}

func TestMySQLKeepsDataAndPortOverAKill(t *testing.T) {
	m := StartMySQL(t, MySQLOptions{Flags: []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}})
	db := m.NewDatabase(t)
	require.Equal(t, "OFF", m.Scalar(t, "", "SELECT @@gtid_mode"), "flags override the defaults")
	require.Equal(t, "ROW", m.Scalar(t, "", "SELECT @@binlog_format"))
	m.Exec(t, db, "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (7)")

	m.Kill(t)
	require.Error(t, m.DB.PingContext(context.Background()))
	m.Start(t)
	require.Equal(t, "7", m.Scalar(t, db, "SELECT a FROM t"))

	user, password := m.NewUser(t, db)
	var grants int
	require.NoError(t, m.Open(t, user, password, db).QueryRow("SELECT COUNT(*) FROM t").Scan(&grants))
	m.Restart(t)
	require.Equal(t, "7", m.Scalar(t, db, "SELECT a FROM t"))
}

func TestPostgresKeepsDataAndPortOverAKill(t *testing.T) {
	for _, version := range PostgresVersions() {
		t.Run(version, func(t *testing.T) {
			p := StartPostgres(t, version, PostgresOptions{Settings: map[string]string{"wal_sender_timeout": "7s"}})
			db := p.NewDatabase(t)
			require.Equal(t, "logical", p.Scalar(t, db, "current_setting('wal_level')"))
			require.Equal(t, "7s", p.Scalar(t, db, "current_setting('wal_sender_timeout')"))
			require.Contains(t, p.Scalar(t, db, "version()"), "PostgreSQL "+version)
			p.Exec(t, db, "CREATE TABLE t (a int)", "INSERT INTO t VALUES (7)",
				"SELECT pg_create_logical_replication_slot('s"+Unique()+"', 'pgoutput')")
			p.Kill(t)
			p.Start(t)
			require.Equal(t, "7", p.Scalar(t, db, "SELECT a FROM t"))
			user, password := p.NewUser(t, db)
			require.NotEmpty(t, p.URL(user, password, db))
		})
	}
}

func TestKafkaKeepsRecordsOverAKillAndAnswersThroughItsProxy(t *testing.T) {
	k := StartKafka(t, KafkaOptions{Proxied: true})
	topic := k.NewTopic(t, 3)
	require.Empty(t, k.Records(t, topic))

	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	through, err := kgo.NewClient(kgo.SeedBrokers(k.Proxy.Addr()), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer through.Close()
	require.NoError(t, through.ProduceSync(ctx, &kgo.Record{Key: []byte("a"), Value: []byte("1")}).FirstErr())
	require.Positive(t, k.Proxy.Accepted())

	k.Kill(t)
	began := time.Now()
	k.Start(t)
	t.Logf("serving again after %v", time.Since(began))
	require.NoError(t, through.ProduceSync(ctx, &kgo.Record{Key: []byte("a"), Value: []byte("2")}).FirstErr())
	require.EqualValues(t, 2, k.Count(t, topic))
	got := k.Records(t, topic)
	require.Len(t, got, 2)
	require.Equal(t, "2", string(got[1].Value))

	k.Pause(t)
	short, stop := context.WithTimeout(ctx, 1)
	require.Error(t, through.Ping(short))
	stop()
	k.Unpause(t)
	require.NoError(t, through.Ping(ctx))
	require.Len(t, k.Await(t, 1, topic), 1)
}

func TestMariaDBKeepsDataOverAKill(t *testing.T) {
	m := StartMySQL(t, MySQLOptions{MariaDB: true})
	db := m.NewDatabase(t)
	require.Contains(t, m.Scalar(t, "", "SELECT VERSION()"), "MariaDB")
	m.Exec(t, db, "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (7)")
	m.Kill(t)
	m.Start(t)
	require.Equal(t, "7", m.Scalar(t, db, "SELECT a FROM t"))
	m.NewUser(t, db)
}
