package cases

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outtail/outtail/test/harness"
	"github.com/outtail/outtail/test/scene"
	"github.com/outtail/outtail/test/shop"
)

// row is an event to be.
type row struct{ aggregate, kind, payload string }

// commit writes events in one transaction and gives their ids.
func commit(t *testing.T, db shop.Database, rows ...row) (ids []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	tx, err := db.Begin(ctx)
	require.NoError(t, err)
	for _, r := range rows {
		id := scene.NewUUID()
		require.NoError(t, tx.Exec(ctx, "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES (?, 'order', ?, ?, ?)", id, r.aggregate, r.kind, r.payload))
		ids = append(ids, id)
	}
	require.NoError(t, tx.Commit(ctx))
	return ids
}

// onEach runs a test on the newest Postgres and on MySQL, beside each other.
func onEach(t *testing.T, test func(t *testing.T, db shop.Database)) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		test(t, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil))
	})
}

// partitionOf is where Java's producer puts a key.
func partitionOf(key string, partitions int) int {
	return kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(key)}, partitions)
}

// keyIn finds a key that belongs to a partition.
func keyIn(partition, partitions int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("order-", i); partitionOf(key, partitions) == partition {
			return key
		}
	}
}

// Events to one place are acknowledged at once and those to another not at all. The position stands before the first of these, within
// its transaction too, and after a crash all of them are sent.
func TestB077ThePositionWaitsForTheFirstEventThatIsNotAcked(t *testing.T) {
	t.Parallel()
	t.Run("partitions", func(t *testing.T) {
		t.Parallel()
		s := scene.New(t, &servers, shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil))
		fake, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, s.Topic))
		require.NoError(t, err)
		t.Cleanup(fake.Close)
		for i := range int32(2) {
			require.NoError(t, fake.MoveTopicPartition(s.Topic, i, i))
		}
		s.Configure("Brokers", strings.Join(fake.ListenAddrs(), ", "))
		open := make(chan struct{})
		overtaken{
			Scene: s, late: row{keyIn(0, 2), "order.changed", "{}"}, early: row{keyIn(1, 2), "order.changed", "{}"}, brokers: fake.ListenAddrs(), topics: []string{s.Topic},
			hold: func() {
				fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
					select {
					case <-open:
						fake.DropControl()
					default:
						fake.KeepControl()
						if fake.CurrentNode() == 0 { // which leads the first partition
							fake.SleepControl(func() { <-open })
						}
					}
					return nil, nil, false
				})
			},
			release: func() { close(open) },
		}.play()
	})
	t.Run("topics", func(t *testing.T) {
		t.Parallel()
		s := scene.New(t, &servers, shop.NewMySQL(t, servers.MySQL(t), "mysql", nil))
		late := s.Kafka.NewTopic(t, 1)
		s.Configure("Match", "match: { event_type: late.* }, topic: "+late+" }\n      - { ")
		overtaken{
			Scene: s, late: row{"a", "late.made", "{}"}, early: row{"b", "order.changed", "{}"}, brokers: s.Kafka.Brokers(), topics: []string{s.Topic, late},
			hold:    func() { s.Kafka.DeleteTopic(t, late) }, // with its one event
			release: func() { s.Kafka.CreateTopic(t, late, 1, nil) },
			gone:    1,
		}.play()
	})
}

// overtaken is two aggregates of which one can be held up.
type overtaken struct {
	*scene.Scene
	late, early     row
	brokers, topics []string
	hold, release   func()
	gone            int // events of the late one that are gone with what held it up
}

func (o overtaken) play() {
	t := o.T
	var late, early []string
	p := o.Start()
	late = append(late, commit(t, o.DB, o.late)...)
	early = append(early, commit(t, o.DB, o.early)...)
	stored := func(n uint64) {
		t.Helper()
		p.Until(t, fmt.Sprint(n, " events behind the position"), func() bool { return o.Stored().Events == n })
	}
	stored(2)

	o.hold()
	ids := commit(t, o.DB, o.early, o.early, o.late, o.early)
	early, late = append(early, ids[0], ids[1], ids[3]), append(late, ids[2])
	for range 20 {
		early = append(early, commit(t, o.DB, o.early)...)
	}
	late = append(late, commit(t, o.DB, o.late)...)
	p.Until(t, "the acks of all that is not held up", func() bool {
		return o.Outtail.Metric(t, "outtail_messages_acked_total") == float64(len(late)+len(early)-2)
	})
	stored(4)
	// Ten times as long as it takes to save what may be saved.
	for began := time.Now(); time.Since(began) < time.Second; {
		require.Equal(t, uint64(4), o.Stored().Events, "the position stays before the first event that is not acked")
	}
	p.Kill(t)
	at := o.Stored()
	require.Equal(t, uint64(4), at.Events)
	require.NotNil(t, at.Prefix)
	require.Equal(t, uint64(2), at.Prefix.Rows, "what is done of the transaction")

	o.release()
	p = o.Start()
	stored(uint64(len(late) + len(early)))
	o.Stop(p)
	late = late[o.gone:]
	got := map[string][]string{}
	client, err := kgo.NewClient(kgo.SeedBrokers(o.brokers...), kgo.ConsumeTopics(o.topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for len(got[o.late.aggregate])+len(got[o.early.aggregate]) < len(late)+len(early) {
		for _, r := range client.PollFetches(ctx).Records() {
			if key, id := string(r.Key), scene.Header(r, "id"); !slices.Contains(got[key], id) {
				got[key] = append(got[key], id)
			}
		}
		require.NoError(t, ctx.Err(), "only %v", got)
	}
	require.Equal(t, map[string][]string{o.late.aggregate: late, o.early.aggregate: early}, got)
}

// Kafka's own producer is the judge.
func TestB079KeysGoToThePartitionsThatJavaChooses(t *testing.T) {
	t.Parallel()
	db := shop.NewPostgres(t, servers.Postgres(t, harness.NewestPostgres()), nil)
	db.Exec(t, `ALTER TABLE outbox ADD k uuid, ALTER aggregate_id DROP NOT NULL`)
	s := scene.New(t, &servers, db)
	id := scene.NewUUID()
	keys := []string{"TT0124", "", id, "é", "21", "foobar", "order-1", "Zażółć gęślą jaźń", strings.Repeat("k", 1<<20)}
	for _, partitions := range []int32{6, 15} {
		topics := [2]string{"t." + harness.Unique(), "t." + harness.Unique()} // ours, Java's
		java := map[string]string{}
		for _, topic := range topics {
			s.Kafka.CreateTopic(t, topic, partitions, map[string]string{"max.message.bytes": "4000000"})
		}
		s.UseTopic(topics[0])
		s.Configure("Columns", "{ id: id, aggregate_type: aggregate_type, aggregate_id: aggregate_id, event_type: event_type, key: k, payload: payload }")
		p := s.Start()
		for i, key := range keys {
			java[key] = fmt.Sprint(i)
			if key == id { // of a column that is no text
				db.Exec(t, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, k) VALUES (gen_random_uuid(), 'order', 'a', 'order.changed', '`+key+`')`)
				continue
			}
			commit(t, db, row{key, "order.changed", "{}"})
		}
		s.Kafka.JavaProduce(t, topics[1], java)
		var placed [2]map[string]int32
		for i, topic := range topics {
			placed[i] = map[string]int32{}
			for _, r := range s.Kafka.Await(t, len(keys), topic) {
				require.NotNil(t, r.Key, "an empty key is a key")
				placed[i][string(r.Key)] = r.Partition
			}
		}
		require.Len(t, placed[1], len(keys))
		require.Equal(t, placed[1], placed[0])
		s.Stop(p)
	}
	// Where there is no key there is no order: the event's policy decides, and says so.
	db.Exec(t, `INSERT INTO outbox (id, aggregate_type, event_type) VALUES (gen_random_uuid(), 'order', 'order.changed')`)
	s.Stops(1, "OT6104", "fill aggregate_id, or give the route a key template")
}
