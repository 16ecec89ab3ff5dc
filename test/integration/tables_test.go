package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/test/harness"
)

// TestMappedTables: the example configurations as they are, on the tables that they are for. Tables of polling relays can be
// tailed unchanged; every mapped role arrives where the contract says, and nothing of the relay's columns does.
func TestMappedTables(t *testing.T) {
	kafka := servers.Kafka(t)
	pg, my := servers.Postgres(t, harness.NewestPostgres()), servers.MySQL(t)
	pgDB := pg.NewDatabase(t)
	my.Exec(t, "", "CREATE DATABASE shop CHARACTER SET utf8mb4")
	t.Cleanup(func() { my.Exec(t, "", "DROP DATABASE shop") })
	topic := func(name string) string {
		name += "." + harness.Unique()
		kafka.CreateTopic(t, name, 3, nil)
		return name
	}
	payments, movements := topic("payment"), topic("inventory")
	kafka.CreateTopic(t, "orders", 3, nil) // the example names it
	t.Cleanup(func() { kafka.DeleteTopic(t, "orders") })
	root := harness.ModuleRoot(t)
	sql := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, "configs", "tables", name+".sql"))
		require.NoError(t, err)
		return string(b)
	}
	onMySQL := func(t *testing.T, statement string) { my.Exec(t, "shop", "SET time_zone = '+00:00'; "+statement) }
	onPostgres := func(t *testing.T, statement string) { pg.Exec(t, pgDB, statement) }

	type header struct{ key, value string }
	for _, c := range []struct {
		name   string
		exec   func(t *testing.T, statement string)
		table  string
		insert string
		update string // what a relay would do afterwards: no event

		topic   string
		key     string
		value   string
		headers []header // source: its prefix
	}{
		{
			name: "biz_key", exec: onMySQL, table: "outbox_event",
			insert: "INSERT INTO outbox_event (event_id, biz_key, topic, payload, created_at) VALUES ('ev-1', 'pay-7', '" + payments + "', '{\"b\": 2, \"a\": 1.50}', '2026-03-01 10:20:30.456')",
			update: "UPDATE outbox_event SET status = 1, retry_count = 1",
			topic:  payments, key: "pay-7", value: `{"a": 1.5, "b": 2}`,
			headers: []header{{"id", "ev-1"}, {"aggregate_id", "pay-7"}, {"occurred_at", "2026-03-01T10:20:30.456000Z"}, {"source", "mysql/"}},
		},
		{
			name: "versioned", exec: onMySQL, table: "t_outbox_event",
			insert: "INSERT INTO t_outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, event_version, destination, message_key, payload, headers, status, retry_count, created_at, updated_at) " +
				"VALUES ('ev-2', 'stock', 'sku-9', 42, 'stock.reserved', 3, '" + movements + "', 'warehouse-1', 'any text, no JSON ✓', '{\"tenant\": \"t1\", \"id\": \"not the id\", \"n\": 5}', 'NEW', 0, '2026-03-01 10:20:30', '2026-03-01 10:20:30')",
			update: "UPDATE t_outbox_event SET status = 'SENT', sent_at = NOW()",
			topic:  movements, key: "warehouse-1", value: "any text, no JSON ✓",
			headers: []header{
				{"id", "ev-2"}, {"event_type", "stock.reserved"}, {"aggregate_type", "stock"}, {"aggregate_id", "sku-9"}, {"aggregate_version", "42"}, {"event_version", "3"},
				{"occurred_at", "2026-03-01T10:20:30.000000Z"}, {"source", "mysql/"}, {"tenant", "t1"}, {"n", "5"},
			},
		},
		{
			name: "polled_order", exec: onPostgres, table: "public.t_outbox_event",
			insert: `INSERT INTO t_outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, headers, status, created_at)
				VALUES ('ev-3', 'order', 'o-1', 'order.created', '{"eventId": "ev-3", "n": 1.0}', '{"traceparent": "00-1"}', 'NEW', '2026-03-01 10:20:30.123456')`,
			update: "UPDATE t_outbox_event SET status = 'SENT', retry_count = 1",
			topic:  "orders", key: "o-1", value: `{"n": 1.0, "eventId": "ev-3"}`,
			headers: []header{
				{"id", "ev-3"}, {"event_type", "order.created"}, {"aggregate_type", "order"}, {"aggregate_id", "o-1"},
				{"occurred_at", "2026-03-01T10:20:30.123456Z"}, {"source", "postgres/outtail_orders/"}, {"traceparent", "00-1"},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.exec(t, sql(c.name))
			text, err := os.ReadFile(filepath.Join(root, "configs", c.name+".yaml"))
			require.NoError(t, err)
			// The file as it is, but for where it keeps its state and listens.
			config := strings.Replace(string(text), "data_dir: ./data", "data_dir: {{.DataDir}}\nadmin: { listen: {{.Admin}} }", 1)
			require.Contains(t, config, "{{.Admin}}")
			o := harness.NewOuttail(t, servers.Binary(t), config, nil)
			if strings.HasPrefix(c.table, "public.") {
				user, password := pg.NewUser(t, pgDB)
				c.exec(t, "CREATE PUBLICATION outtail_orders FOR TABLE "+c.table+" WITH (publish = 'insert')")
				c.exec(t, "SELECT pg_create_logical_replication_slot('outtail_orders', 'pgoutput')")
				o.Env = []string{"PGHOST=" + pg.Host, "PGPORT=" + strconv.Itoa(pg.Port), "PGUSER=" + user, "PGPASSWORD=" + password, "PGDATABASE=" + pgDB}
			} else {
				user, password := my.NewUser(t, "shop")
				o.Env = []string{"MYSQL_HOST=" + my.Host, "MYSQL_PORT=" + strconv.Itoa(my.Port), "MYSQL_USER=" + user, "MYSQL_PASSWORD=" + password}
			}
			o.Env = append(o.Env, "KAFKA_BROKERS="+kafka.Brokers()[0])
			p := o.Start(t)
			p.WaitReady(t)
			c.exec(t, c.insert)
			c.exec(t, c.update)
			r := kafka.Await(t, 1, c.topic)[0]
			require.Equal(t, 0, p.Terminate(t).Code)
			require.Len(t, kafka.Records(t, c.topic), 1, "what a relay does to its rows is no event")

			require.Equal(t, c.key, string(r.Key))
			require.Equal(t, c.value, string(r.Value), "as the server prints it")
			var got []header
			for _, h := range r.Headers {
				got = append(got, header{h.Key, string(h.Value)})
			}
			for i, h := range got {
				if h.key == "source" {
					require.True(t, i < len(c.headers) && strings.HasPrefix(h.value, c.headers[i].value), "%v", got)
					got[i].value = c.headers[i].value
				}
			}
			require.Equal(t, c.headers, got)
			require.Equal(t, c.headers[slices.IndexFunc(c.headers, func(h header) bool { return h.key == "occurred_at" })].value[:19], r.Timestamp.UTC().Format("2006-01-02T15:04:05"))
		})
	}
}
