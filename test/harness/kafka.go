package harness

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// KafkaOptions shapes a broker.
type KafkaOptions struct {
	// Env are KAFKA_* variables over the defaults: one combined node, topics are not created by themselves.
	Env map[string]string
	// Proxied puts a Proxy before a second listener: see Kafka.Proxy.
	Proxied bool
	// Secured has the listener behind the proxy ask for SCRAM-SHA-256, and an authorizer that refuses what no ACL allows; see
	// Kafka.NewUser. The harness itself goes straight, and may do everything.
	Secured bool
	// Direct puts no port forwarder between the broker and its clients; Linux only.
	Direct bool
}

// Kafka is a running broker: a cluster of its own, or one of StartKafkaCluster's.
type Kafka struct {
	server
	Port int
	// seeds are the brokers that clients start from, where there are several.
	seeds []string
	// Proxy, where asked for, stands before a listener that advertises the proxy's address: clients that start from
	// Proxy.Addr() reach the broker through it alone, while the harness itself goes straight.
	Proxy *Proxy
	// Behind is where that listener itself is, host:port. Who starts from there is told the proxy's address all the same.
	Behind string
}

// StartKafka runs a broker of the test's own; it ends with the test.
func StartKafka(t testing.TB, opts KafkaOptions) *Kafka {
	t.Helper()
	Required(t)
	k, err := runKafka(context.Background(), opts)
	require.NoError(t, err)
	t.Cleanup(k.close)
	return k
}

func runKafka(ctx context.Context, opts KafkaOptions) (*Kafka, error) {
	// A broker tells its clients where it is, so it listens inside on the same numbers as outside.
	var proxyPort int
	cluster := newClusterID()
	s := spec{kind: "kafka", image: kafkaImage(), ports: 4, memory: 2 << 30, direct: opts.Direct}
	s.container = func(ports []int) ([]string, map[string]string, []int) {
		direct, behind := strconv.Itoa(ports[0]), strconv.Itoa(ports[1])
		proxyPort = ports[2]
		on, controller := "", "9093"
		if opts.Direct {
			on, controller = host, strconv.Itoa(ports[3])
		}
		env := kafkaEnv(cluster)
		maps.Copy(env, map[string]string{
			"KAFKA_NODE_ID":   "1",
			"KAFKA_LISTENERS": "DIRECT://" + on + ":" + direct + ",BEHIND://" + on + ":" + behind + ",CONTROLLER://" + on + ":" + controller,
			"KAFKA_ADVERTISED_LISTENERS": "DIRECT://" + net.JoinHostPort(host, direct) +
				",BEHIND://" + net.JoinHostPort(host, strconv.Itoa(proxyPort)),
			"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "DIRECT:PLAINTEXT,BEHIND:PLAINTEXT,CONTROLLER:PLAINTEXT",
			"KAFKA_INTER_BROKER_LISTENER_NAME":     "DIRECT",
			"KAFKA_CONTROLLER_QUORUM_VOTERS":       "1@localhost:" + controller,
		})
		if opts.Secured {
			maps.Copy(env, secured)
		}
		maps.Copy(env, opts.Env)
		return nil, env, ports[:2]
	}
	c, ports, err := s.run(ctx)
	if err != nil {
		return nil, err
	}
	k := &Kafka{server: server{c: c}, Port: ports[0], Behind: net.JoinHostPort(host, strconv.Itoa(ports[1]))}
	k.ready = k.serves
	if err := k.await(ctx); err != nil {
		k.terminate()
		return nil, err
	}
	if opts.Proxied || opts.Secured {
		k.Proxy, err = newProxy(net.JoinHostPort(host, strconv.Itoa(proxyPort)), k.Behind)
		if err != nil {
			k.terminate()
			return nil, err
		}
	}
	return k, nil
}

func kafkaImage() string { return image("OUTTAIL_KAFKA_IMAGE", "apache/kafka:4.1.1") }

func newClusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] = 0x11 // not a leading "-"
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// kafkaEnv is what all brokers of the harness have in common.
func kafkaEnv(cluster string) map[string]string {
	return map[string]string{
		"CLUSTER_ID":                                     cluster,
		"KAFKA_PROCESS_ROLES":                            "broker,controller",
		"KAFKA_CONTROLLER_LISTENER_NAMES":                "CONTROLLER",
		"KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR":         "1",
		"KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
		"KAFKA_TRANSACTION_STATE_LOG_MIN_ISR":            "1",
		"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS":         "0",
		"KAFKA_AUTO_CREATE_TOPICS_ENABLE":                "false",
		"KAFKA_HEAP_OPTS":                                "-Xms256m -Xmx512m",
		// A broker lives for minutes here: half of its processor time would go into optimising code that is then hardly run, and into
		// a collector for large heaps.
		"KAFKA_JVM_PERFORMANCE_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
		// A killed broker is let in again when the session of its former life has ended: 9 s by default.
		"KAFKA_BROKER_SESSION_TIMEOUT_MS":    "4000",
		"KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "1000",
	}
}

// serves says nil when clients are served and every partition has a leader: a broker that still waits to be let in answers, but
// leads nothing.
func (k *Kafka) serves(ctx context.Context) error {
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(k.Brokers()...))
	if err != nil {
		return err
	}
	defer adm.Close()
	m, err := adm.Metadata(ctx)
	if err == nil && len(m.Brokers) < max(1, len(k.seeds)) {
		err = errors.New("a broker is not registered yet")
	}
	if err == nil {
		m.Topics.EachPartition(func(p kadm.PartitionDetail) {
			if p.Leader < 0 {
				err = errors.New("a partition has no leader yet")
			}
		})
	}
	return err
}

func (k *Kafka) close() {
	if k.Proxy != nil {
		k.Proxy.close()
	}
	k.terminate()
}

// Brokers are the seed brokers, not through the proxy.
func (k *Kafka) Brokers() []string {
	if k.seeds != nil {
		return k.seeds
	}
	return []string{net.JoinHostPort(host, strconv.Itoa(k.Port))}
}

// Client gives a franz-go client that goes straight to the broker; it is closed with the test.
func (k *Kafka) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.Brokers()...)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

// Admin gives an admin client; it is closed with the test.
func (k *Kafka) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	return kadm.NewClient(k.Client(t))
}

// NewTopic makes a topic of the test's own.
func (k *Kafka) NewTopic(t testing.TB, partitions int32) string {
	t.Helper()
	name := "t." + Unique()
	k.CreateTopic(t, name, partitions, nil)
	return name
}

// CreateTopic makes a topic, on every broker of the cluster, with settings such as max.message.bytes.
func (k *Kafka) CreateTopic(t testing.TB, name string, partitions int32, config map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	settings := map[string]*string{}
	for key, v := range config {
		settings[key] = &v
	}
	_, err := k.Admin(t).CreateTopic(ctx, partitions, int16(max(1, len(k.seeds))), settings, name)
	require.NoError(t, err)
}

// AlterTopic changes a setting of a topic.
func (k *Kafka) AlterTopic(t testing.TB, name, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	res, err := k.Admin(t).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, name)
	require.NoError(t, err)
	for _, r := range res {
		require.NoError(t, r.Err)
	}
}

// DeleteTopic removes a topic, and waits until its leader takes no more records of it: that they are acknowledged, and then gone with the
// topic, is nobody's fault.
func (k *Kafka) DeleteTopic(t testing.TB, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cl := k.Client(t)
	adm := kadm.NewClient(cl)
	before, err := adm.Metadata(ctx, name)
	require.NoError(t, err)
	res, err := adm.DeleteTopics(ctx, name)
	require.NoError(t, err)
	require.NoError(t, res.Error())
	before.Topics.EachPartition(func(p kadm.PartitionDetail) {
		ask := kmsg.NewPtrListOffsetsRequest()
		ask.ReplicaID = -1
		ask.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: name, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Partition: p.Partition, CurrentLeaderEpoch: -1, Timestamp: -1}}}}
		for {
			// Straight to the leader: the client itself would say what it knows of the topic.
			answer, err := cl.Broker(int(p.Leader)).RetriableRequest(ctx, ask)
			require.NoError(t, err)
			if answer.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode != 0 {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// offsets gives the first and the next offset of each partition. A broker that just started, or leads nothing yet, is
// asked again.
func (k *Kafka) offsets(t testing.TB, topics []string) (starts, ends kadm.ListedOffsets) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.RetryTimeout(5*time.Second))
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ask := func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if ends, err = adm.ListEndOffsets(ctx, topics...); err == nil {
			err = ends.Error()
		}
		if err == nil {
			starts, err = adm.ListStartOffsets(ctx, topics...)
		}
		if err == nil {
			err = starts.Error()
		}
		return err
	}
	for deadline := time.Now().Add(Patience); ; time.Sleep(100 * time.Millisecond) {
		if err = ask(); err == nil {
			return starts, ends
		}
		if time.Now().After(deadline) {
			require.NoError(t, err, "ask for the offsets of %v", topics)
		}
	}
}

// Count is how many records the topics hold, by their offsets.
func (k *Kafka) Count(t testing.TB, topics ...string) int64 {
	t.Helper()
	var n int64
	starts, ends := k.offsets(t, topics)
	ends.Each(func(e kadm.ListedOffset) {
		s, _ := starts.Lookup(e.Topic, e.Partition)
		n += e.Offset - s.Offset
	})
	return n
}

// Consume gives all records of the topics from their start to fn, in offset order per partition, waiting for more, until
// fn returns false. It fails the test when nothing new comes for Patience.
func (k *Kafka) Consume(t testing.TB, fn func(*kgo.Record) bool, topics ...string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers()...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	require.NoError(t, err)
	defer cl.Close()
	for seen := 0; ; {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		fetches := cl.PollFetches(ctx)
		err := ctx.Err()
		cancel()
		require.NoErrorf(t, err, "consume %v: nothing new after %d records", topics, seen)
		for it := fetches.RecordIter(); !it.Done(); {
			seen++
			if !fn(it.Next()) {
				return
			}
		}
	}
}

// Records gives what the topics hold now, from their start to their present end.
func (k *Kafka) Records(t testing.TB, topics ...string) []*kgo.Record {
	t.Helper()
	starts, ends := k.offsets(t, topics)
	want := map[string]map[int32]int64{}
	ends.Each(func(e kadm.ListedOffset) {
		if s, _ := starts.Lookup(e.Topic, e.Partition); e.Offset > s.Offset {
			if want[e.Topic] == nil {
				want[e.Topic] = map[int32]int64{}
			}
			want[e.Topic][e.Partition] = e.Offset
		}
	})
	left := 0
	for _, p := range want {
		left += len(p)
	}
	if left == 0 {
		return nil
	}
	var all []*kgo.Record
	k.Consume(t, func(r *kgo.Record) bool {
		end, ok := want[r.Topic][r.Partition]
		if ok && r.Offset < end {
			all = append(all, r)
		}
		if ok && r.Offset == end-1 {
			left--
		}
		return left > 0
	}, topics...)
	return all
}

// Await waits until the topics hold at least n records, and gives them.
func (k *Kafka) Await(t testing.TB, n int, topics ...string) []*kgo.Record {
	t.Helper()
	var all []*kgo.Record
	if n > 0 {
		k.Consume(t, func(r *kgo.Record) bool {
			all = append(all, r)
			return len(all) < n
		}, topics...)
	}
	return all
}
