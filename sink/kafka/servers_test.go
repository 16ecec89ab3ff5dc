package kafka

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/sink/sinktest"
	"github.com/outtail/outtail/test/harness"
)

// These tests run against a real broker; without one they are skipped. They come one after another, so that those which hurt
// the broker may do it to the shared one.

// real opens a sink on a real broker, with pauses that are shorter than in earnest.
func real(t *testing.T, k *harness.Kafka, change ...func(*Options)) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, ledger: sinktest.NewLedger(), told: newTold()}
	o := Options{Brokers: k.Brokers(), Acks: r.ledger, Conditions: r.told.condition, Compression: "lz4"}
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	require.NoError(t, err)
	s.pace.lookMin, s.pace.lookMax, s.pace.tick, s.pace.stall = 50*time.Millisecond, time.Second, 100*time.Millisecond, 2*time.Second
	r.Sink = s
	id, err := s.Open(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, id.ClusterID)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.Empty(t, r.ledger.Illegal())
	})
	return r
}

func TestConformanceOfARealBroker(t *testing.T) {
	k := servers.Kafka(t)
	sinktest.Run(t, func(t *testing.T, acks sinktest.Acks, maxBytes int64) sinktest.Subject {
		topics := [2]string{k.NewTopic(t, 3), k.NewTopic(t, 3)}
		s, err := New(Options{Brokers: k.Brokers(), Acks: acks, MaxBufferedBytes: maxBytes, Compression: "zstd"})
		require.NoError(t, err)
		return sinktest.Subject{
			Sink: s, Topics: topics,
			Arrived: func(t *testing.T) []sinktest.Arrived { return arrived(k.Records(t, topics[:]...)) },
			Block: func(t *testing.T) func() {
				k.Pause(t)
				return sync.OnceFunc(func() { k.Unpause(t) })
			},
		}
	})
}

func TestARealTopicIsMissingThenThereThenRecreated(t *testing.T) {
	k := servers.Kafka(t)
	topic := "t." + harness.Unique()
	other := k.NewTopic(t, 1)
	r := real(t, k)
	for i := range uint64(50) {
		r.send(i, topic, "a")
	}
	r.send(50, other, "b")
	require.Contains(t, r.code("OT5004").Hint, topic)
	require.NoError(t, r.ledger.Wait(r.ctx, func(l *sinktest.Ledger) bool { return l.IsAcked(50) }))
	k.CreateTopic(t, topic, 2, nil)
	r.flush()
	require.Equal(t, numbers(0, 49), texts(k.Records(t, topic)))

	k.DeleteTopic(t, topic)
	for i := uint64(51); i < 100; i++ {
		r.send(i, topic, "a")
	}
	r.code("OT5004")
	k.CreateTopic(t, topic, 1, nil)
	r.flush()
	r.calmed()
	got := texts(k.Records(t, topic))
	inOrder(t, got)
	require.Equal(t, numbers(51, 99), slices.Compact(slices.Sorted(slices.Values(got))))
}

// A topic is deleted while records are on their way to it. What was acknowledged before is gone with it; what was not is in the new
// one, all of it and in order.
func TestARealTopicIsDeletedUnderLoadAndMadeAgain(t *testing.T) {
	k := servers.Kafka(t)
	topic := k.NewTopic(t, 1)
	r := real(t, k)
	seq := uint64(0)
	burst := func(n int) {
		for range n {
			r.send(seq, topic, "a")
			seq++
		}
	}
	burst(500)
	deleted := make(chan struct{})
	go func() { // ends with the deletion
		defer close(deleted)
		k.DeleteTopic(t, topic)
	}()
	for gone := false; !gone; {
		burst(50)
		select {
		case <-deleted:
			gone = true
		default:
		}
	}
	burst(500)
	r.code("OT5004")
	acked := r.ledger.Acks() // nothing is acknowledged while there is no topic
	k.CreateTopic(t, topic, 1, nil)
	r.flush()
	require.Empty(t, r.ledger.Failures())
	got := texts(k.Records(t, topic))
	inOrder(t, got)
	distinct := slices.Compact(slices.Sorted(slices.Values(got)))
	first, err := strconv.Atoi(distinct[0])
	require.NoError(t, err)
	require.LessOrEqual(t, first, acked, "what was not acknowledged before is there")
	require.Equal(t, numbers(first, int(seq)-1), distinct)
}

func TestARealBrokersLimitIsTheSinksLimit(t *testing.T) {
	k := servers.Kafka(t)
	topic := "t." + harness.Unique()
	k.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "5000"})
	r := real(t, k, func(o *Options) { o.Compression = "none" })
	m := sinktest.Message(1, topic, "a", strings.Repeat("x", 3000))
	m.Value = []byte(strings.Repeat("x", 3000+5000-batchSize(m)))
	require.Equal(t, 5000, batchSize(m))
	r.sendMessage(m)
	for i := uint64(2); i < 200; i++ {
		r.send(i, topic, "a")
	}
	r.flush()
	require.Empty(t, r.ledger.Failures())
	over := *m
	over.Seq, over.Value = 200, append([]byte("x"), m.Value...)
	r.sendMessage(&over)
	seq, f := r.failure()
	require.EqualValues(t, 200, seq)
	require.Equal(t, "OT5009", f.Code)
}

func TestARealTopicsRulesFindTheCulprit(t *testing.T) {
	k := servers.Kafka(t)
	topic := "t." + harness.Unique()
	k.CreateTopic(t, topic, 1, map[string]string{"cleanup.policy": "compact"}) // refuses records without a key
	r := real(t, k)
	for i := range uint64(100) {
		m := sinktest.Message(i, topic, "a", fmt.Sprintf("%06d", i))
		if i == 70 {
			m.Key = nil
		}
		r.sendMessage(m)
	}
	seq, f := r.failure()
	require.EqualValues(t, 70, seq)
	require.Equal(t, "OT5010", f.Code)
	require.ErrorIs(t, r.Flush(r.ctx), f)
	require.Equal(t, 70, r.ledger.Acks())
}

func TestABrokerThatDiesAndFreezesLosesNothing(t *testing.T) {
	k := servers.Kafka(t)
	topic := k.NewTopic(t, 3)
	r := real(t, k)
	const keys, each = 6, 2_000
	seq := uint64(0)
	for n := range each {
		for key := range keys {
			r.sendMessage(sinktest.Message(seq, topic, fmt.Sprint(key), fmt.Sprintf("%06d", n)))
			seq++
		}
		switch n {
		case each / 4:
			k.Pause(t)
		case each/4 + 100:
			k.Unpause(t)
		case each / 2:
			k.Kill(t)
		case each/2 + 100:
			k.Start(t)
		}
	}
	r.flush()
	require.Equal(t, keys*each, r.ledger.Acks())
	byKey := map[string][]string{}
	for _, rec := range k.Records(t, topic) {
		byKey[string(rec.Key)] = append(byKey[string(rec.Key)], string(rec.Value))
	}
	require.Len(t, byKey, keys)
	for _, values := range byKey {
		inOrder(t, values)
		require.Equal(t, numbers(0, each-1), slices.Compact(slices.Sorted(slices.Values(values))))
	}
}

func texts(records []*kgo.Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, string(r.Value))
	}
	return all
}
