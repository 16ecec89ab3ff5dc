package doctor

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
)

func TestJudgeKafka(t *testing.T) {
	healthy := func() *kafkaFacts {
		return &kafkaFacts{ClusterID: "c", Stored: "c", Brokers: 3, Topics: []kafkaTopic{{Name: "orders", Partitions: 6, Replicas: 3, InSync: 3, MaxMessage: 20 << 20, MinInSync: 2}}}
	}
	one := func(e expectation) []expectation { return []expectation{e} }
	for _, c := range []struct {
		name  string
		given func(*Kafka, *kafkaFacts, *kafkaTopic)
		want  []expectation
	}{
		{"healthy", func(*Kafka, *kafkaFacts, *kafkaTopic) {}, nil},
		{"another cluster", func(_ *Kafka, f *kafkaFacts, _ *kafkaTopic) { f.Stored = "d" }, one(expectation{Error, codeCluster, "cluster is c", "--code OT6003"})},
		{"a topic of the row", func(o *Kafka, _ *kafkaFacts, _ *kafkaTopic) { o.Templates = []string{"${topic}"} }, one(expectation{Note, codeTopic, "${topic} depends on the row", ""})},
		{"no topic", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.Err = kerr.UnknownTopicOrPartition }, one(expectation{Error, codeTopic, "does not exist", "kafka-topics.sh --bootstrap-server b:9092 --create --topic orders --partitions 6 --replication-factor 3"})},
		{"no topic, behind a login", func(o *Kafka, _ *kafkaFacts, t *kafkaTopic) {
			o.SASL.Mechanism, t.Err = "plain", kerr.UnknownTopicOrPartition
		}, one(expectation{Error, codeTopic, "does not exist", "kafka-topics.sh --bootstrap-server b:9092 --command-config CLIENT.properties --create"})},
		{"no topic yet", func(o *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.Err, o.Creates = kerr.UnknownTopicOrPartition, true }, nil},
		{"no access", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.Err = kerr.TopicAuthorizationFailed }, one(expectation{Error, codeTopic, "may not write", "kafka-acls.sh"})},
		{"no write", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.ReadOnly = true }, one(expectation{Error, codeTopic, "may not write", "--operation Write"})},
		{"no leader", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.Leaderless = 1 }, one(expectation{Error, codeTopic, "1 of 6 partitions", "--unavailable-partitions"})},
		{"no DescribeConfigs", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) {
			t.ConfigErr, t.MaxMessage, t.MinInSync = kerr.TopicAuthorizationFailed, -1, -1
		}, one(expectation{Note, codeDescribe, "settings of orders", "--operation DescribeConfigs"})},
		{"small messages", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.MaxMessage = 1 << 20 }, one(expectation{Note, codeRecord, "1 MiB, limits.row is 16 MiB", "max.message.bytes=16842752"})},
		{"more in sync than there are", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.MinInSync = 4 }, one(expectation{Error, codeReplicas, "is 4", "min.insync.replicas=2"})},
		{"too few in sync", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.InSync = 1 }, one(expectation{Error, codeReplicas, "1 are in sync", "brokers back"})},
		{"one of three in sync is missing", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.InSync = 2 }, one(expectation{Warning, codeReplicas, "2 of 3", "--under-replicated-partitions"})},
		{"one replica", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.Replicas, t.InSync, t.MinInSync = 1, 1, 1 }, one(expectation{Warning, codeReplicas, "one replica", "kafka-reassign-partitions.sh"})},
		{"one replica of one broker", func(_ *Kafka, f *kafkaFacts, t *kafkaTopic) {
			f.Brokers, t.Replicas, t.InSync, t.MinInSync = 1, 1, 1, 1
		}, one(expectation{Note, codeReplicas, "one broker", ""})},
		{"one acknowledges alone", func(_ *Kafka, _ *kafkaFacts, t *kafkaTopic) { t.MinInSync = 1 }, one(expectation{Note, codeReplicas, "is 1", "min.insync.replicas=2"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, f := Kafka{Brokers: []string{"b:9092"}, RowLimit: 16 << 20}, healthy()
			c.given(&o, f, &f.Topics[0])
			expect(t, judgeKafka(&o, f), c.want...)
		})
	}
}

// TestCheckKafka asks a broker's protocol for real.
func TestCheckKafka(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("cluster"), kfake.SeedTopics(3, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	o := Kafka{Brokers: cluster.ListenAddrs(), Topics: []string{"orders", "missing"}, RowLimit: 1000, ClusterID: func(context.Context) string { return "cluster" }}
	p := CheckKafka(t.Context(), o)
	expect(t, p.Findings, expectation{Error, codeTopic, "missing does not exist", "--topic missing"}, expectation{Note, codeReplicas, "one replica", ""})
	o.Topics = nil
	p = CheckKafka(t.Context(), o)
	expect(t, p.Findings)
}
