package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outtail/outtail/sink/sinktest"
)

// TestNothingIsLostOrReorderedWhateverTheBrokersDo sends numbered events of some keys while the cluster does its worst, and
// then looks at every partition: each key's events are there, in order, re-runs contiguous, and the answers were legal.
func TestNothingIsLostOrReorderedWhateverTheBrokersDo(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 7))
			c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "orders", "payments"))
			r := setUp(t, c)
			wreck := newWreck(c, rnd)
			const keys, each = 5, 80
			next := [keys]int{}
			for i := range uint64(keys * each) {
				k := rnd.IntN(keys)
				for next[k] == each {
					k = (k + 1) % keys
				}
				// A key has one topic, so that its order can be seen.
				topic := [2]string{"orders", "payments"}[k%2]
				r.sendMessage(sinktest.Message(i, topic, fmt.Sprint("key-", k), fmt.Sprintf("%06d", next[k])))
				next[k]++
				if rnd.IntN(20) == 0 {
					wreck.something()
				}
				if rnd.IntN(8) == 0 {
					time.Sleep(time.Duration(rnd.IntN(2000)) * time.Microsecond) // lets requests go out in between; nothing depends on it
				}
			}
			wreck.over()
			r.flush()
			require.Equal(t, keys*each, r.ledger.Acks())
			require.Empty(t, r.ledger.Failures())
			require.Empty(t, r.ledger.Illegal())

			byKey := map[string][]string{}
			for _, rec := range consume(t, c.ListenAddrs(), "orders", "payments") {
				byKey[string(rec.Key)] = append(byKey[string(rec.Key)], string(rec.Value))
			}
			require.Len(t, byKey, keys)
			for key, values := range byKey {
				inOrder(t, values)
				require.Equal(t, numbers(0, each-1), slices.Compact(slices.Sorted(slices.Values(values))), key)
			}
		})
	}
}

// wreck does things to a cluster.
type wreck struct {
	c      *kfake.Cluster
	rnd    *rand.Rand
	faults []*kfake.FaultHandle
	ended  atomic.Bool
	ids    map[string][16]byte
}

func newWreck(c *kfake.Cluster, rnd *rand.Rand) *wreck {
	return &wreck{c: c, rnd: rnd, ids: map[string][16]byte{"orders": c.TopicInfo("orders").TopicID, "payments": c.TopicInfo("payments").TopicID}}
}

// largest is the length of the longest batch for a topic.
func largest(req kmsg.Request, id [16]byte) int {
	n := 0
	for _, topic := range req.(*kmsg.ProduceRequest).Topics {
		if topic.TopicID == id {
			for _, p := range topic.Partitions {
				n = max(n, len(p.Records))
			}
		}
	}
	return n
}

func (w *wreck) something() {
	topic := [2]string{"orders", "payments"}[w.rnd.IntN(2)]
	produce := func(err *kerr.Error) {
		w.faults = append(w.faults, w.c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: err, Count: 1 + w.rnd.IntN(3)}))
	}
	switch w.rnd.IntN(9) {
	case 0:
		produce(kerr.NotLeaderForPartition)
	case 1:
		produce(kerr.NotEnoughReplicasAfterAppend)
	case 2:
		produce(kerr.RequestTimedOut)
	case 3:
		produce(kerr.TopicAuthorizationFailed)
	case 4:
		produce(kerr.UnknownServerError)
	case 5: // in answer to a batch that holds several; alone they are taken
		w.faults = append(w.faults, w.c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.InvalidRecord, Count: 1,
			When: func(req kmsg.Request) bool { return largest(req, w.ids[topic]) > 200 }}))
	case 6: // the connection dies before, or instead of, the answer
		w.c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			if w.ended.Load() {
				w.c.DropControl()
				return nil, nil, false
			}
			return nil, errors.New("cut"), true
		})
	case 7:
		w.c.ShufflePartitionLeaders()
	case 8:
		w.faults = append(w.faults, w.c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.UnknownTopicOrPartition, Count: 1}))
	}
}

func (w *wreck) over() {
	w.ended.Store(true)
	for _, f := range w.faults {
		f.Remove()
	}
}
