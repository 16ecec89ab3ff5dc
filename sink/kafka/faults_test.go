package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/sink/sinktest"
)

// inOrder demands of numbered values that each is followed by the next one or by one that came before, and that the highest
// is the last: a re-run is contiguous (I3).
func inOrder(t *testing.T, values []string) {
	t.Helper()
	highest, previous := -1, -1
	for i, v := range values {
		n, err := strconv.Atoi(v)
		require.NoError(t, err)
		if i > 0 {
			require.LessOrEqual(t, n, previous+1, "a gap: %v", values)
		}
		highest, previous = max(highest, n), n
	}
	require.Equal(t, highest, previous, "a re-run stops early: %v", values)
}

func numbers(from, to int) []string {
	var all []string
	for i := from; i <= to; i++ {
		all = append(all, fmt.Sprintf("%06d", i))
	}
	return all
}

func TestAMissingTopicIsHeldAndOthersGoOn(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "here"))
	r := setUp(t, c)

	r.send(1, "gone", "a")
	r.send(2, "gone", "b")
	r.send(3, "here", "c")
	r.send(4, "here", "a") // its aggregate waits
	r.send(5, "here", "c")
	r.send(6, "here", "a")

	f := r.code("OT5004")
	require.Equal(t, event.Config, f.Class)
	require.Contains(t, f.Hint, "--bootstrap-server "+strings.Join(c.ListenAddrs(), ",")+" --create --topic gone --partitions 6 --replication-factor 1;", "it has one broker")
	require.NoError(t, r.ledger.Wait(r.ctx, func(l *sinktest.Ledger) bool { return l.IsAcked(3) && l.IsAcked(5) }))
	require.Equal(t, []string{"000003", "000005"}, r.values("here"))
	require.Equal(t, 2, r.ledger.Acks())

	require.NoError(t, c.CreateTopic("gone", 1, nil))
	r.flush()
	require.Equal(t, 6, r.ledger.Acks())
	r.calmed()
	require.Equal(t, []string{"000001", "000002"}, r.values("gone"))
	require.Equal(t, []string{"000003", "000005", "000004", "000006"}, r.values("here"))
	require.Zero(t, r.ledger.Reopens(), "nothing of it had been handed to the client")
}

func TestAnEventWaitsBehindAHeldOneOfItsTopicAndKey(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "here"))
	r := setUp(t, c)
	r.send(1, "gone", "a")
	across := sinktest.Message(2, "here", "shared", "000002")
	across.Aggregate = "a"
	r.sendMessage(across)
	behind := sinktest.Message(3, "here", "shared", "000003")
	behind.Aggregate = "b"
	r.sendMessage(behind)
	r.send(4, "here", "free")

	require.NoError(t, r.ledger.Wait(r.ctx, func(l *sinktest.Ledger) bool { return l.IsAcked(4) }))
	require.Equal(t, 1, r.ledger.Acks())
	require.NoError(t, c.CreateTopic("gone", 1, nil))
	r.flush()
	require.Equal(t, []string{"000004", "000002", "000003"}, r.values("here"))
}

func TestMissingTopicsAreCreatedWhereThatIsAsked(t *testing.T) {
	c := cluster(t)
	r := setUp(t, c, func(o *Options) { o.CreateTopics = &CreateTopics{Partitions: 3, Replication: 1} })
	r.send(1, "new", "a")
	r.flush()
	require.NotNil(t, c.PartitionInfo("new", 2))
	require.Nil(t, c.PartitionInfo("new", 3))
	require.Equal(t, []string{"000001"}, r.values("new"))

	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "never", Err: kerr.InvalidReplicationFactor, Count: -1})
	r.send(2, "never", "b")
	require.ErrorIs(t, r.code("OT5016"), kerr.InvalidReplicationFactor)
	refused.Remove()
	r.flush()
	r.calmed()
}

func TestATopicThatRefusesIsHeldUntilTheACLIsThere(t *testing.T) {
	for name, key := range map[string]kmsg.Key{"to describe": kmsg.Metadata, "to append": kmsg.Produce} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(1, "orders", "open"))
			refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Topic: "orders", Err: kerr.TopicAuthorizationFailed, Count: -1})
			r := setUp(t, c)
			for i := range 20 {
				r.send(uint64(i), "orders", fmt.Sprint(i%3))
			}
			r.send(20, "open", "x")
			f := r.code("OT5005")
			require.Equal(t, event.Config, f.Class)
			require.ErrorIs(t, f, kerr.TopicAuthorizationFailed)
			require.NoError(t, r.ledger.Wait(r.ctx, func(l *sinktest.Ledger) bool { return l.IsAcked(20) }))
			require.Equal(t, 1, r.ledger.Acks())
			refused.Remove()
			r.flush()
			r.calmed()
			require.Equal(t, numbers(0, 19), r.values("orders"))
		})
	}
}

// A codec that the brokers do not take is a mistake of the configuration, not of each event: nothing is given to its poison policy.
func TestATopicThatDoesNotTakeTheCodecHoldsItsEvents(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders", "open"))
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.UnsupportedCompressionType, Count: -1})
	r := setUp(t, c)
	for i := range 20 {
		r.send(uint64(i), "orders", fmt.Sprint(i%3))
	}
	r.send(20, "open", "x")
	require.Equal(t, event.Config, r.code("OT5018").Class)
	require.NoError(t, r.ledger.Wait(r.ctx, func(l *sinktest.Ledger) bool { return l.IsAcked(20) }))
	refused.Remove()
	r.flush()
	r.calmed()
	require.Equal(t, numbers(0, 19), r.values("orders"))
}

func TestATopicThatRefusesIsNotTriedHotly(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	r := setUp(t, c)
	r.mu.Lock()
	r.pace.lookMin, r.pace.lookMax = time.Hour, time.Hour
	r.mu.Unlock()
	for i := range uint64(20) {
		r.send(i, "orders", "a")
	}
	r.code("OT5005")
	topic := func() (refusals, kicks int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.topics["orders"].refusals, len(r.topics["orders"].kicked)
	}
	require.Eventually(t, func() bool { n, _ := topic(); return n == 1 }, patience, time.Millisecond)
	_, kicks := topic()
	require.Zero(t, kicks, "nothing shortens the pause")
	require.Equal(t, 1, refused.Hits())
}

func TestAMissingRightToAppendIsKnownBeforeTheFirstRecord(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"), kfake.EnableACLs(), kfake.EnableSASL(), kfake.Superuser("PLAIN", "root", "r"),
		kfake.User("PLAIN", "outtail", "o", kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: "orders", Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: kmsg.ACLOperationDescribe, Allow: true,
		}))
	produced := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
	r := setUp(t, c, func(o *Options) { o.SASL = SASL{"plain", "outtail", "o"} })
	r.send(1, "orders", "a")
	require.Contains(t, r.code("OT5005").Hint, "--producer --topic orders")
	require.Zero(t, produced.Hits(), "nothing was handed to the client")

	root, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableClientMetrics(), kgo.SASL(plain.Auth{User: "root", Pass: "r"}.AsMechanism()))
	require.NoError(t, err)
	defer root.Close()
	grant := kadm.NewACLs().Topics("orders").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite).Allow("User:outtail")
	granted, err := kadm.NewClient(root).CreateACLs(r.ctx, grant)
	require.NoError(t, err)
	require.NoError(t, granted[0].Err)
	r.flush()
	r.calmed()
	require.Positive(t, produced.Hits())
}

func TestADeletedAndRecreatedTopicGetsEverythingUnackedInOrder(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(2, "orders"), kfake.SeedTopics(1, "other"))
	r := setUp(t, c)
	for i := range 10 {
		r.send(uint64(i), "orders", "a")
	}
	r.flush()
	require.NoError(t, c.DeleteTopic("orders"))
	for i := 10; i < 30; i++ {
		r.send(uint64(i), "orders", "a")
	}
	r.send(30, "other", "b")
	require.NoError(t, r.ledger.Wait(r.ctx, func(l *sinktest.Ledger) bool { return l.IsAcked(30) }))
	r.code("OT5004")
	require.NoError(t, c.CreateTopic("orders", 3, nil))
	r.flush()
	r.calmed()
	require.Equal(t, 31, r.ledger.Acks())
	got := r.values("orders")
	inOrder(t, got)
	require.Equal(t, numbers(10, 29), slices.Compact(slices.Sorted(slices.Values(got))))
	r.send(31, "orders", "a")
	r.flush()
}

func TestARecordThatCannotFitFailsBeforeItIsSent(t *testing.T) {
	c := cluster(t)
	require.NoError(t, c.CreateTopic("small", 1, map[string]string{"max.message.bytes": "2000"}))
	r := setUp(t, c, func(o *Options) { o.Compression = "none" })
	m := sinktest.Message(5, "small", "a", "")
	m.Place = "postgres/slot/0/1#0"
	m.Headers = []event.Header{{Name: "id", Value: []byte("x")}}
	m.Value = []byte(strings.Repeat("s", 1000))
	m.Value = []byte(strings.Repeat("s", 1000+2000-batchSize(m)))
	require.Equal(t, 2000, batchSize(m))
	r.sendMessage(m)
	r.flush()
	require.True(t, r.ledger.IsAcked(5), "exactly the limit fits")

	r.send(6, "small", "b")
	over := *m
	over.Seq, over.ID, over.Value = 7, "id-7", append([]byte("s"), m.Value...)
	r.sendMessage(&over)
	r.send(8, "small", "c")
	seq, f := r.failure()
	require.EqualValues(t, 7, seq)
	require.Equal(t, "OT5009", f.Code)
	require.Equal(t, event.Record, f.Class)
	for _, part := range []string{"id-7", "small", "2001", "2000", "postgres/slot/0/1#0"} {
		require.Contains(t, f.Error(), part)
	}
	require.NotContains(t, f.Error(), "sss")
	require.ErrorIs(t, r.Flush(r.ctx), f, "the rest waits behind it")
	require.False(t, r.ledger.IsAcked(8))
	require.Equal(t, 2, r.ledger.Acks())
}

func TestALimitThatWasRaisedIsNoticed(t *testing.T) {
	c := cluster(t)
	require.NoError(t, c.CreateTopic("orders", 1, map[string]string{"max.message.bytes": "2000"}))
	r := setUp(t, c, func(o *Options) { o.Compression = "none" })
	r.send(1, "orders", "a")
	r.flush()
	alter(t, c, "orders", "max.message.bytes", "200000")
	m := sinktest.Message(2, "orders", "a", strings.Repeat("2", 100_000))
	r.sendMessage(m)
	r.send(3, "orders", "a")
	r.flush()
	require.Empty(t, r.ledger.Failures())
	require.Equal(t, []string{"000001", string(m.Value), "000003"}, r.values("orders"))
}

func TestTheCulpritIsFoundAmongRecordsThatFailTogether(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.MessageTooLarge} {
		t.Run(err.Message, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(1, "orders"))
			bad := "000013"
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: -1, When: func(req kmsg.Request) bool {
				return strings.Contains(string(rawRecords(req)), bad)
			}})
			r := setUp(t, c, func(o *Options) { o.Compression = "none"; o.Linger = 1 })
			for i := range 30 {
				r.send(uint64(i), "orders", fmt.Sprint("key-", i%4))
			}
			seq, f := r.failure()
			require.EqualValues(t, 13, seq)
			require.Equal(t, "OT5010", f.Code)
			require.Contains(t, f.Error(), "id-13")
			require.ErrorIs(t, f, err)
			require.ErrorIs(t, r.Flush(r.ctx), f)
			prefix, _ := r.ledger.Prefix()
			require.EqualValues(t, 12, prefix)
			require.Equal(t, 13, r.ledger.Acks(), "what comes after it must not be acked")
		})
	}
}

func TestABatchThatIsTooLargeTogetherIsNobodysFault(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: -1, When: func(req kmsg.Request) bool {
		return len(rawRecords(req)) > 150
	}})
	r := setUp(t, c, func(o *Options) { o.Compression = "none" })
	for i := range 40 {
		r.send(uint64(i), "orders", "a")
	}
	r.flush()
	require.Empty(t, r.ledger.Failures())
	got := r.values("orders")
	inOrder(t, got)
	require.Equal(t, numbers(0, 39), slices.Compact(slices.Sorted(slices.Values(got))))
}

func TestTransientErrorsAreTheClientsOwnBusiness(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(err.Message, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(1, "orders"))
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: err, Count: 2})
			r := setUp(t, c)
			for i := range 10 {
				r.send(uint64(i), "orders", "a")
			}
			r.flush()
			require.Equal(t, 2, h.Hits())
			require.Equal(t, numbers(0, 9), r.values("orders"), "sent again without a duplicate")
		})
	}
}

func TestAConnectionThatDiesUnderAProduceRequestIsCountedAndSentAgain(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, fmt.Errorf("cut"), true
	})
	r := setUp(t, c)
	r.send(1, "orders", "a")
	r.flush()
	require.Equal(t, []string{"000001"}, r.values("orders"))
	r.told.wait(r.ctx, t, "an unknown outcome", func() bool { return r.told.unknown >= 1 })
}

func TestADeadProducerStartsAgain(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	r := setUp(t, c)
	for i := range 10 {
		r.send(uint64(i), "orders", "a")
	}
	require.Equal(t, event.Config, r.code("OT5013").Class)
	refused.Remove()
	r.flush()
	r.calmed()
	require.Equal(t, numbers(0, 9), r.values("orders"))
}

func TestSilenceOfTheBrokersIsTold(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	r := setUp(t, c)
	r.send(0, "orders", "a")
	r.flush()
	unblock := blockProduce(c)
	r.send(1, "orders", "a")
	require.Equal(t, event.Retry, r.code("OT5001").Class)
	unblock()
	r.flush()
	r.calmed()
}

func TestAnotherClusterBehindTheSameAddressEndsThePipeline(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"), kfake.ClusterID("blue"))
	r := setUp(t, c)
	r.send(1, "orders", "a")
	r.flush()
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		resp.ClusterID = kmsg.StringPtr("green")
		return resp, nil, true
	})
	r.send(2, "payments", "b")
	seq, f := r.failure()
	require.EqualValues(t, 2, seq)
	require.Equal(t, "OT5012", f.Code)
	require.Equal(t, event.Safety, f.Class)
	require.Contains(t, f.Error(), "blue")
	require.Contains(t, f.Error(), "green")
	require.Contains(t, f.Hint, "\n  outtail checkpoint accept -c FILE --pipeline P --code OT6003 --reason R ", "the way out, to be copied")
}

func TestEventsThatKafkaCannotTakeFailForTheirOwnSake(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*event.Message)
		code   string
	}{
		"a topic's name with a slash":       {func(m *event.Message) { m.Topic = "a/b" }, "OT5007"},
		"no topic":                          {func(m *event.Message) { m.Topic = "" }, "OT5007"},
		"a topic of Kafka's own":            {func(m *event.Message) { m.Topic = "__consumer_offsets" }, "OT5006"},
		"a header's name that is not UTF-8": {func(m *event.Message) { m.Headers = []event.Header{{Name: "\xff"}} }, "OT5008"},
		"a partition that does not exist":   {func(m *event.Message) { m.Partition = 7 }, "OT5011"},
	} {
		t.Run(name, func(t *testing.T) {
			r := setUp(t, cluster(t, kfake.SeedTopics(1, "orders")))
			m := sinktest.Message(3, "orders", "a", "secret")
			c.change(m)
			r.sendMessage(m)
			seq, f := r.failure()
			require.EqualValues(t, 3, seq)
			require.Equal(t, c.code, f.Code)
			require.Equal(t, event.Record, f.Class)
			require.Contains(t, f.Error(), "id-3")
			require.NotContains(t, f.Error(), "secret")
		})
	}
}

func TestWhatCameBeforeAFailedEventStillGoesOut(t *testing.T) {
	c := cluster(t)
	r := setUp(t, c)
	r.send(1, "orders", "a") // held: the topic is missing
	r.send(2, "orders", "b")
	bad := sinktest.Message(3, "orders", "c", "")
	bad.Headers = []event.Header{{Name: "\xff"}}
	r.sendMessage(bad)
	r.send(4, "orders", "d")
	seq, f := r.failure()
	require.EqualValues(t, 3, seq)
	require.NoError(t, c.CreateTopic("orders", 1, nil))
	require.ErrorIs(t, r.Flush(r.ctx), f)
	require.Equal(t, numbers(1, 2), r.values("orders"))
	require.Equal(t, 2, r.ledger.Acks())
}

func TestOnlyAllowedTopicsAreSentTo(t *testing.T) {
	r := setUp(t, cluster(t, kfake.SeedTopics(1, "orders.created", "payments")), func(o *Options) { o.AllowTopics = []string{"orders.*"} })
	r.send(1, "orders.created", "a")
	r.flush()
	r.send(2, "payments", "b")
	seq, f := r.failure()
	require.EqualValues(t, 2, seq)
	require.Equal(t, "OT5006", f.Code)
}

func TestARowMayNameThePartition(t *testing.T) {
	r := setUp(t, cluster(t, kfake.SeedTopics(4, "orders")))
	for i := range uint64(12) {
		m := sinktest.Message(i, "orders", "same key", fmt.Sprint(i%4))
		m.Partition = int32(i % 4)
		r.sendMessage(m)
	}
	r.flush()
	for _, rec := range consume(t, r.broker.ListenAddrs(), "orders") {
		require.Equal(t, fmt.Sprint(rec.Partition), string(rec.Value))
	}
}

func TestKeysAreHashedAsJavaDoes(t *testing.T) {
	// Partitions of org.apache.kafka.common.utils.Utils.toPositive(murmur2(key)) % 100; the hashes are UtilsTest's.
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		p := newTopic("t")
		p.parts = make([]part, 100)
		m := sinktest.Message(1, "t", key, "")
		require.Equal(t, hash&0x7fffffff%100, p.partition(m), key)
	}
}

func TestAPartitionTakesTurnsWithItself(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(2, "orders"))
	r := setUp(t, c)
	r.send(0, "orders", "a")
	r.flush()
	unblock := blockProduce(c)
	to := func(seq uint64, partition int32) {
		m := sinktest.Message(seq, "orders", "", fmt.Sprintf("%06d", seq))
		m.Partition = partition
		r.sendMessage(m)
	}
	to(1, 0)
	to(2, 0)
	to(3, 1)
	to(4, 0)
	look := func() (flying, waiting, elsewhere int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		parts := r.topics["orders"].parts
		return parts[0].flying, len(parts[0].queue), parts[1].flying
	}
	require.Eventually(t, func() bool { _, _, elsewhere := look(); return elsewhere == 1 }, patience, time.Millisecond, "other partitions do not wait for this one")
	flying, waiting, _ := look()
	require.Equal(t, 1, flying, "what the client has of a partition must be answered before it gets more")
	require.Equal(t, 2, waiting)
	unblock()
	r.flush()
	require.Equal(t, 5, r.ledger.Acks())
	var first []string
	for _, rec := range consume(t, c.ListenAddrs(), "orders") {
		if v := string(rec.Value); rec.Partition == 0 && v != "000000" {
			first = append(first, v)
		}
	}
	require.Equal(t, []string{"000001", "000002", "000004"}, first)
}

func TestAddedPartitionsAreUsedAsJavaWould(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	r := setUp(t, c)
	r.mu.Lock()
	r.pace.refresh = time.Millisecond
	r.mu.Unlock()
	r.send(0, "orders", "21")
	r.flush()
	adm := kadm.NewClient(admin(t, c))
	_, err := adm.UpdatePartitions(r.ctx, 2, "orders")
	require.NoError(t, err)
	// "foobar" hashes to an even number, "21" to one as well, "abc" to an odd one.
	for seq := uint64(1); c.PartitionInfo("orders", 1).HighWatermark == 0; seq++ {
		require.NoError(t, r.ctx.Err(), "the new partition is never used")
		r.send(seq, "orders", "abc")
		r.flush()
	}
	for _, rec := range consume(t, c.ListenAddrs(), "orders") {
		require.True(t, rec.Partition == 0 || string(rec.Key) == "abc")
	}
}

func TestAcksThatCameTooEarlyAreTakenBack(t *testing.T) {
	// 1 is flying, 2 was refused before it was in the client, 3 and 4 were acked; 4 is another partition's.
	l := sinktest.NewLedger()
	s, err := New(Options{Brokers: []string{"unused:9092"}, Acks: l})
	require.NoError(t, err)
	defer s.Close()
	topic := newTopic("orders")
	topic.parts = make([]part, 2)
	for i, st := range []state{flying, held, acked, acked} {
		e := s.entry(sinktest.Message(uint64(i+1), "orders", "a", ""))
		e.t, e.state, e.part = topic, st, int32(i/3)
		s.window.push(e)
		l.Sent(e.seq)
		if st == acked {
			l.Acked(e.seq)
		}
	}
	topic.broken = true
	topic.parts[0] = part{broken: true, lowest: 2}
	s.mu.Lock()
	s.rewind(topic)
	s.mu.Unlock()
	require.Equal(t, 1, l.Reopens())
	require.False(t, l.IsAcked(3))
	require.True(t, l.IsAcked(4))
	require.False(t, topic.broken || topic.parts[0].broken)
	require.Empty(t, l.Illegal())
}

// rawRecords gives the batches of a produce request as they came.
func rawRecords(req kmsg.Request) []byte {
	var all []byte
	for _, topic := range req.(*kmsg.ProduceRequest).Topics {
		for _, p := range topic.Partitions {
			all = append(all, p.Records...)
		}
	}
	return all
}

// admin is a client for requests beside the sink's.
func admin(t *testing.T, c *kfake.Cluster) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableClientMetrics())
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

func alter(t *testing.T, c *kfake.Cluster, topic, key, value string) {
	t.Helper()
	cl := admin(t, c)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	conf := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	conf.Name, conf.Value, conf.Op = key, kmsg.StringPtr(value), kmsg.IncrementalAlterConfigOpSet
	res.Configs = append(res.Configs, conf)
	req.Resources = append(req.Resources, res)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := req.RequestWith(ctx, cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.Resources[0].ErrorCode))
}

// What a topic takes can be asked without sending, and is asked anew each time: somebody may have changed it just now.
func TestWhetherAMessageFitsItsTopic(t *testing.T) {
	c := cluster(t)
	require.NoError(t, c.CreateTopic("small", 2, map[string]string{"max.message.bytes": "2000"}))
	r := setUp(t, c, func(o *Options) { o.AllowTopics = []string{"small", "gone"} })
	m := sinktest.Message(1, "small", "a", strings.Repeat("x", 3000))
	f := event.AsFault(r.Fits(r.ctx, m))
	require.NotNil(t, f)
	require.Equal(t, "OT5009", f.Code)
	require.Equal(t, event.Record, f.Class)
	alter(t, c, "small", "max.message.bytes", "200000")
	require.NoError(t, r.Fits(r.ctx, m))
	m.Partition = 2
	require.Equal(t, "OT5011", event.AsFault(r.Fits(r.ctx, m)).Code)
	require.NoError(t, r.Fits(r.ctx, sinktest.Message(1, "gone", "a", strings.Repeat("x", 3<<20))), "its topic is not there yet: what is sent waits")
	require.Equal(t, "OT5006", event.AsFault(r.Fits(r.ctx, sinktest.Message(1, "forbidden", "a", ""))).Code)
	require.Equal(t, "OT5007", event.AsFault(r.Fits(r.ctx, sinktest.Message(1, "no/topic", "a", ""))).Code)
	require.Empty(t, r.told.now) // before brokers are gone, of which the monitor tells
	c.Close()
	ctx, cancel := context.WithTimeout(r.ctx, 50*time.Millisecond)
	defer cancel()
	m.Partition = -1
	require.NoError(t, r.Fits(ctx, m), "nobody answers")
	require.Zero(t, r.ledger.Acks())
}
