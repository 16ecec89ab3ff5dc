package kafka

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/sink/sinktest"
)

// ends counts the records of topics.
func ends(ctx context.Context, t *testing.T, cl *kgo.Client, topics []string) int64 {
	t.Helper()
	adm := kadm.NewClient(cl)
	listed, err := adm.ListEndOffsets(ctx, topics...)
	require.NoError(t, err)
	require.NoError(t, listed.Error())
	var n int64
	listed.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, func(t *testing.T, acks sinktest.Acks, maxBytes int64) sinktest.Subject {
		c := cluster(t, kfake.SeedTopics(3, "orders", "payments"))
		s, err := New(Options{Brokers: c.ListenAddrs(), Acks: acks, MaxBufferedBytes: maxBytes, Compression: "snappy"})
		require.NoError(t, err)
		quick(s)
		return sinktest.Subject{
			Sink:   s,
			Topics: [2]string{"orders", "payments"},
			Arrived: func(t *testing.T) []sinktest.Arrived {
				return arrived(consume(t, c.ListenAddrs(), "orders", "payments"))
			},
			Block: func(*testing.T) func() { return blockProduce(c) },
		}
	})
}

// blockProduce keeps all produce requests, or those to these brokers, waiting until it is told otherwise.
func blockProduce(c *kfake.Cluster, nodes ...int32) (unblock func()) {
	open := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-open:
			c.DropControl()
		default:
			if len(nodes) > 0 && !slices.Contains(nodes, c.CurrentNode()) {
				c.KeepControl()
				return nil, nil, false
			}
			c.SleepControl(func() { <-open })
		}
		return nil, nil, false
	})
	var once sync.Once
	return func() { once.Do(func() { close(open) }) }
}

func arrived(records []*kgo.Record) []sinktest.Arrived {
	var all []sinktest.Arrived
	for _, r := range records {
		a := sinktest.Arrived{Topic: r.Topic, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			a.Headers = append(a.Headers, event.Header{Name: h.Key, Value: h.Value})
		}
		all = append(all, a)
	}
	return all
}
