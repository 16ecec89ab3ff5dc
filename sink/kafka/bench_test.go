package kafka

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/sink/sinktest"
)

// window is a pipeline's part: it lets at most so many be unacked.
type flow chan struct{}

func (f flow) Acked(uint64)         { <-f }
func (f flow) Failed(uint64, error) { panic("failed") }
func (f flow) Reopened(uint64)      { f <- struct{}{} }

func benchMessages() []*event.Message {
	all := make([]*event.Message, 1<<14)
	value := make([]byte, 450)
	for i := range value {
		value[i] = byte('a' + i%17)
	}
	for i := range all {
		all[i] = sinktest.Message(0, "orders", fmt.Sprint("key-", i%200), string(value))
		all[i].Headers = []event.Header{{Name: "id", Value: []byte("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")}, {Name: "event_type", Value: []byte("order.created")}}
	}
	return all
}

// BenchmarkSend and BenchmarkBareClient differ by what the sink costs. The fake broker's share is in both.
func BenchmarkSend(b *testing.B) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, "orders"), kfake.BlackholeProduce())
	require.NoError(b, err)
	defer c.Close()
	f := make(flow, 4096)
	s, err := New(Options{Brokers: c.ListenAddrs(), Acks: f, Compression: "lz4"})
	require.NoError(b, err)
	defer s.Close()
	ctx := context.Background()
	_, err = s.Open(ctx)
	require.NoError(b, err)
	all := benchMessages()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		m := all[i&(len(all)-1)]
		m.Seq = uint64(i)
		f <- struct{}{}
		if err := s.Send(ctx, m); err != nil {
			b.Fatal(err)
		}
	}
	require.NoError(b, s.Flush(ctx))
}

func BenchmarkBareClient(b *testing.B) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, "orders"), kfake.BlackholeProduce())
	require.NoError(b, err)
	defer c.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.DisableClientMetrics())
	require.NoError(b, err)
	defer cl.Close()
	f := make(flow, 4096)
	all := benchMessages()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		m := all[i&(len(all)-1)]
		f <- struct{}{}
		r := &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Headers: []kgo.RecordHeader{{Key: "id", Value: m.Headers[0].Value}, {Key: "event_type", Value: m.Headers[1].Value}}}
		cl.Produce(context.Background(), r, func(*kgo.Record, error) { <-f })
	}
	require.NoError(b, cl.Flush(context.Background()))
}
