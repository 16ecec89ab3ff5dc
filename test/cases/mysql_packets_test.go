package cases

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// The protocol cuts what is longer than 16 MiB into packets: events of every length around the cut, and of several packets, arrive
// whole, and one above limits.row is named instead of sent.
func TestB123EventsAroundThePacketsLengthArriveWhole(t *testing.T) {
	t.Parallel()
	for _, maria := range []bool{false, true} {
		kind := map[bool]string{false: "mysql", true: "mariadb"}[maria]
		t.Run(kind, func(t *testing.T) {
			server := harness.StartMySQL(t, harness.MySQLOptions{MariaDB: maria, Flags: []string{"--max-allowed-packet=1G"}})
			db := shop.NewMySQL(t, server, kind, nil)
			db.Exec(t, "ALTER TABLE outbox MODIFY payload LONGTEXT")
			s := scene.New(t, &servers, db)
			topic := s.Topic + "-large"
			s.Kafka.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "80000000"})
			s.UseTopic(topic)
			s.Configure("Topic", topic, "Pipeline", "    limits: { row: 48MiB }\n", "Sink", ", compression: gzip")
			in := s.Kafka.Client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond),
				kgo.FetchMaxBytes(100<<20), kgo.FetchMaxPartitionBytes(100<<20), kgo.BrokerMaxReadBytes(200<<20))
			p := s.Start()
			sizes := []int{16777190, 16777215, 16777216, 32<<20 - 1}
			insert := func(size int) {
				db.Exec(t, fmt.Sprintf("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', 'order', 'order-1', 'order.changed', REPEAT('%c', %d))",
					scene.NewUUID(), 'a'+size%26, size))
			}
			for _, size := range sizes {
				insert(size)
			}
			n := 0
			arrive := func() {
				p.Until(t, "all of them in the topic", func() bool {
					for _, r := range in.PollRecords(t.Context(), 1).Records() {
						require.Equal(t, strings.Repeat(string(rune('a'+sizes[n]%26)), sizes[n]) == string(r.Value), true, "value %d of %d bytes", n, len(r.Value))
						n++
					}
					return n == len(sizes)
				})
			}
			arrive()
			insert(60 << 20)
			r := p.Wait(t)
			require.Equal(t, 1, r.Code, r.Stderr)
			require.Contains(t, r.Stderr, "limits.row")
			require.NotContains(t, r.Stderr, strings.Repeat(string(rune('a'+(60<<20)%26)), 20))

			// What is in the log is served, though the server would no longer take it.
			server.Exec(t, "", "SET GLOBAL max_allowed_packet = 1048576")
			sizes = append(sizes, 60<<20)
			s.Configure("Pipeline", "    limits: { row: 64MiB }\n")
			p = s.Start()
			arrive()
			s.Stop(p)
		})
	}
}
