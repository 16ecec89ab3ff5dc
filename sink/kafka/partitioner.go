package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partitioner places records as Java's default partitioner does (murmur2 over the key, sticky without one), except those
// whose row names a partition.
type partitioner struct{ java kgo.Partitioner }

func newPartitioner() kgo.Partitioner { return partitioner{kgo.StickyKeyPartitioner(nil)} }

type explicitKey struct{}

// explicit marks a record whose Partition was asked for. The record's own field cannot tell: the client writes its choice
// into it and may ask again afterwards.
var explicit = context.WithValue(context.Background(), explicitKey{}, true)

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	java := p.java.ForTopic(topic)
	onNewBatch, _ := java.(kgo.TopicPartitionerOnNewBatch)
	return &topicPartitioner{java, onNewBatch}
}

type topicPartitioner struct {
	java       kgo.TopicPartitioner
	onNewBatch kgo.TopicPartitionerOnNewBatch
}

// RequiresConsistency is true where order depends on the choice: the same place whether or not the leader is up.
func (p *topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Context == explicit || p.java.RequiresConsistency(r)
}

// Partition gives an index that the client refuses where the partition does not exist (yet).
func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Context == explicit {
		return int(r.Partition)
	}
	return p.java.Partition(r, n)
}

func (p *topicPartitioner) OnNewBatch() {
	if p.onNewBatch != nil {
		p.onNewBatch.OnNewBatch()
	}
}
