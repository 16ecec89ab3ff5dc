package kafka

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/sink/sinktest"
)

func TestAnAnswerThatCameTooLateCostsNoDuplicate(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} { // kfake appends all the same
		t.Run(err.Message, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(1, "orders"))
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: err, Count: 3})
			r := setUp(t, c)
			for i := range 50 {
				r.send(uint64(i), "orders", "a")
			}
			r.flush()
			require.Equal(t, 3, h.Hits())
			require.Empty(t, r.ledger.Failures())
			require.Equal(t, numbers(0, 49), r.values("orders"))
		})
	}
}

// What the broker holds against the producer is nobody's fault: not the record's, and not the policy's.
func TestAProducerThatTheBrokerDoesNotKnowAnyMoreStartsAgain(t *testing.T) {
	for _, err := range []*kerr.Error{
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidProducerIDMapping,
	} {
		t.Run(err.Message, func(t *testing.T) {
			c := cluster(t, kfake.SeedTopics(2, "orders"))
			r := setUp(t, c)
			h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: err, Count: 3})
			for i := range 200 {
				r.send(uint64(i), "orders", fmt.Sprint("key-", i%2))
				if i%40 == 39 {
					r.flush()
				}
			}
			r.flush()
			require.Equal(t, 3, h.Hits())
			require.Empty(t, r.ledger.Failures())
			require.Equal(t, 200, r.ledger.Acks())
			got := r.values("orders")
			require.Equal(t, numbers(0, 199), slices.Compact(slices.Sorted(slices.Values(got))))
			r.calmed()
		})
	}
}

// One request carries batches of several partitions, and one of them is refused.
func TestOneRefusedBatchOfSeveralKeepsNobodyElse(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(3, "orders"))
	bad := "000031"
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: kerr.InvalidRecord, Count: -1, When: func(req kmsg.Request) bool {
		return strings.Contains(string(rawRecords(req)), bad)
	}})
	r := setUp(t, c, func(o *Options) { o.Compression = "none" })
	for i := range 90 {
		m := sinktest.Message(uint64(i), "orders", fmt.Sprint("key-", i%3), fmt.Sprintf("%06d", i))
		m.Partition = int32(i % 3)
		r.sendMessage(m)
	}
	seq, f := r.failure()
	require.EqualValues(t, 31, seq)
	require.ErrorIs(t, f, kerr.InvalidRecord)
	r.Discard([]uint64{31})
	r.flush()
	require.Equal(t, 89, r.ledger.Acks())
	for p, got := range byPartition(t, c, "orders") {
		require.True(t, slices.IsSorted(slices.Compact(got)), "partition %d: %v", p, got)
	}
}

func byPartition(t *testing.T, c *kfake.Cluster, topic string) map[int32][]string {
	t.Helper()
	all := map[int32][]string{}
	for _, rec := range consume(t, c.ListenAddrs(), topic) {
		all[rec.Partition] = append(all[rec.Partition], string(rec.Value))
	}
	return all
}

func TestAnIdleSinkTellsThatItsLoginIsRefused(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "outtail", "o"))
	r := setUpPaced(t, c, func(p *pace) { p.cluster = 5 * time.Millisecond }, func(o *Options) { o.SASL = SASL{"plain", "outtail", "o"} })
	r.send(1, "orders", "a")
	r.flush()
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	var mended atomic.Bool
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) { // of each connection that is logged in
		if mended.Load() {
			c.DropControl()
			return nil, nil, false
		}
		c.KeepControl()
		return nil, fmt.Errorf("cut"), true
	})
	require.Equal(t, event.Config, r.code("OT5003").Class)
	mended.Store(true)
	refused.Remove()
	r.calmed()
	r.send(2, "orders", "a")
	r.flush()
}

func TestAnIdleSinkTellsThatNobodyAnswers(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	r := setUpPaced(t, c, func(p *pace) { p.cluster = 5 * time.Millisecond })
	r.send(1, "orders", "a")
	r.flush()
	c.Close()
	require.Equal(t, event.Retry, r.code("OT5001").Class)
}

func TestALimitThatMayNotBeReadIsLearnt(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "orders"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: -1, When: func(req kmsg.Request) bool {
		return len(rawRecords(req)) > 5000
	}})
	r := setUp(t, c, func(o *Options) { o.Compression = "none" })
	for i := range uint64(6000) {
		m := sinktest.Message(i, "orders", fmt.Sprint(i%10), fmt.Sprintf("%06d", i))
		if i == 1500 {
			m.Value = []byte(strings.Repeat("x", 6000))
		}
		r.sendMessage(m)
		if i == 1500 {
			seq, f := r.failure()
			require.EqualValues(t, 1500, seq)
			require.Equal(t, "OT5010", f.Code)
			r.Discard([]uint64{1500})
		}
		if i%600 == 0 {
			r.flush() // the next ones gather into a turn of their own
		}
	}
	r.flush()
	require.Equal(t, 5999, r.ledger.Acks())
	inOrder(t, slices.DeleteFunc(r.values("orders"), func(v string) bool { return v > "001500" }))
	require.LessOrEqual(t, h.Hits(), 4, "what was refused for its size is not tried in the same size for ever")
}

// What is taken back of a topic that is not there, and was mistyped, leaves no trace: later messages of its aggregate go, and nobody is told
// for ever that it is missing.
func TestAMissingTopicIsForgottenWithWhatWaitedForIt(t *testing.T) {
	r := setUp(t, cluster(t, kfake.SeedTopics(1, "orders")))
	r.send(1, "typo", "a")
	r.code("OT5004")
	m := sinktest.Message(2, "orders", "a", "2")
	m.Aggregate = sinktest.Message(1, "typo", "a", "1").Aggregate
	r.sendMessage(m)
	require.Equal(t, []uint64{1}, r.Discard([]uint64{1}))
	r.flush()
	r.calmed()
	require.Equal(t, []string{"2"}, r.values("orders"))
	require.NoError(t, r.broker.CreateTopic("typo", 1, nil))
	r.send(3, "typo", "a")
	r.flush()
	require.Len(t, r.values("typo"), 1)
}
