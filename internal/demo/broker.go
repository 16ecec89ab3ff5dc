package demo

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// partitions of the topic: several, so that the order under test is the order per key.
const partitions = 6

// broker speaks the Kafka protocol on a loopback port. It lives in the demo's process, so it survives outtail's deaths.
type broker struct {
	cluster *kfake.Cluster
	address string
}

// startBroker listens and creates the topic. A partition keeps a bounded log, so that a run of hours fits in memory.
func startBroker() (*broker, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("outtail-demo"))
	if err != nil {
		return nil, brokerFault(err)
	}
	keep, segment := strconv.Itoa(16<<20), strconv.Itoa(4<<20)
	err = cluster.CreateTopic(topic, partitions, map[string]string{"retention.bytes": keep, "segment.bytes": segment})
	if err != nil {
		cluster.Close()
		return nil, brokerFault(err)
	}
	return &broker{cluster: cluster, address: cluster.ListenAddrs()[0]}, nil
}

// ends yields each partition's end offset.
func (b *broker) ends() map[int32]int64 {
	ends := map[int32]int64{}
	for _, p := range b.cluster.PartitionInfos(topic) {
		ends[p.Partition] = p.HighWatermark
	}
	return ends
}

func (b *broker) close() { b.cluster.Close() }

// consumer reads the topic from its beginning and tells the checker. It keeps no offsets: it lives as long as the broker.
type consumer struct {
	client  *kgo.Client
	checker *Checker
}

func newConsumer(b *broker, checker *Checker) (*consumer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.address), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return nil, consumerFault(err)
	}
	return &consumer{client: client, checker: checker}, nil
}

// run reads until ctx ends. The partitions read so far are reported to passed after each fetch.
func (c *consumer) run(ctx context.Context, passed func(partition int32, next int64)) error {
	for {
		fetches := c.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return consumerFault(err)
		}
		now := time.Now()
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			d, err := readDelivery(r, now)
			if err != nil && failed == nil {
				failed = consumerFault(err)
			}
			if err == nil {
				c.checker.Arrived(d)
			}
		})
		if failed != nil {
			return failed
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if n := len(p.Records); n > 0 {
				passed(p.Partition, p.Records[n-1].Offset+1)
			}
		})
	}
}

func (c *consumer) close() { c.client.Close() }

// order is the payload of an event, as the shop writes it.
type order struct {
	Customer string `json:"customer"`
	// Number counts the customer's committed orders from 1.
	Number uint64 `json:"number"`
	// PlacedAt is when the service asked for the commit, in microseconds since 1970.
	PlacedAt int64  `json:"placed_at_us"`
	Total    string `json:"total"`
	Items    []item `json:"items"`
}

type item struct {
	SKU      string `json:"sku"`
	Name     string `json:"name"`
	Quantity int    `json:"quantity"`
	Price    string `json:"price"`
}

// readDelivery understands a record of format raw: key, header id, payload.
func readDelivery(r *kgo.Record, now time.Time) (Delivery, error) {
	d := Delivery{Aggregate: string(r.Key), Read: now, Digest: digest(string(r.Key), r.Value)}
	var o order
	if err := json.Unmarshal(r.Value, &o); err != nil {
		return d, errors.New("a value is not the JSON that the shop wrote")
	}
	for _, h := range r.Headers {
		if h.Key == "id" {
			id, err := parseEventID(string(h.Value))
			if err != nil {
				return d, err
			}
			d.ID = id
			d.Number, d.Committed = o.Number, time.UnixMicro(o.PlacedAt)
			return d, nil
		}
	}
	return d, errors.New("a record has no header id")
}

// digest stands for what must be equal on every delivery besides the id (I8): key and value.
func digest(key string, value []byte) uint64 {
	h := fnv.New64a()
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(key)))
	h.Write(size[:]) // so that no byte can change sides
	h.Write([]byte(key))
	h.Write(value)
	return h.Sum64()
}

func parseEventID(text string) (EventID, error) {
	var id EventID
	n, err := hex.Decode(id[:], []byte(strings.ReplaceAll(text, "-", "")))
	if err != nil || n != len(id) {
		return id, errors.New("an event id is not a UUID")
	}
	return id, nil
}
