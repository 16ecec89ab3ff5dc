package kafka

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outtail/outtail/sink/sinktest"
)

// What comes to other partitions while a request flies goes with one request behind it.
func TestPartitionsGoTogether(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(6, "orders"))
	r := setUpPaced(t, c, func(p *pace) { p.gather = time.Hour })
	send := func(seq uint64) {
		m := sinktest.Message(seq, "orders", fmt.Sprint("key-", seq), fmt.Sprintf("%06d", seq))
		m.Partition = int32(seq % 6)
		r.sendMessage(m)
	}
	flying := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.flying
	}
	send(0)
	r.flush() // the topic is known
	open := blockProduce(c)
	defer open()
	send(6)
	for seq := range uint64(24) {
		send(7 + seq)
	}
	require.Equal(t, 1, flying())
	// What fills windows is not held back for company.
	for seq := range uint64(gatherMost) {
		send(31 + seq)
	}
	require.Greater(t, flying(), gatherMost/2)
	open()
	r.flush()
	require.Equal(t, 26+gatherMost, r.ledger.Acks())
	for p, got := range byPartition(t, c, "orders") {
		require.True(t, slices.IsSorted(got), "partition %d: %v", p, got)
	}
}

// A leader that does not answer holds up its own partitions alone.
func TestAPartitionThatIsNotAnsweredHoldsUpNoOther(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "orders"))
	stuck := c.LeaderFor("orders", 0)
	if c.LeaderFor("orders", 1) == stuck {
		require.NoError(t, c.MoveTopicPartition("orders", 1, 1-stuck))
	}
	r := setUp(t, c)
	open := blockProduce(c, stuck)
	defer open()
	for seq := range uint64(10) {
		m := sinktest.Message(seq, "orders", fmt.Sprint("key-", seq), fmt.Sprintf("%06d", seq))
		m.Partition = int32(min(seq, 1)) // the first to the one that is stuck
		r.sendMessage(m)
	}
	require.NoError(t, r.ledger.Wait(r.ctx, func(l *sinktest.Ledger) bool { return l.Acks() == 9 }))
	open()
	r.flush()
}
