package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/event"
)

// partition places a message as Java's default partitioner does (murmur2 over the key, any partition without one), unless its
// row names the partition. The client's own implementation is asked; the sink needs the answer before the client does.
func (t *topic) partition(m *event.Message) int32 {
	if m.Partition >= 0 {
		return m.Partition
	}
	if len(t.parts) == 1 {
		return 0
	}
	r := kgo.Record{Key: m.Key}
	p := t.java.Partition(&r, len(t.parts))
	if m.Key == nil && t.parts[p].flying > 0 {
		// Without a key there is no order to keep, so that a busy partition need not be waited for.
		if sticky, ok := t.java.(kgo.TopicPartitionerOnNewBatch); ok {
			sticky.OnNewBatch()
			p = t.java.Partition(&r, len(t.parts))
		}
	}
	return int32(p)
}
