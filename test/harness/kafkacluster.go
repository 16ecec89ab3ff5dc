package harness

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
	"github.com/twmb/franz-go/pkg/kadm"
)

// StartKafkaCluster runs n brokers, each a controller too, that form one cluster; each is killed and started by itself. Topics
// made through any of them have a replica on each. They end with the test.
func StartKafkaCluster(t testing.TB, n int, env map[string]string) []*Kafka {
	t.Helper()
	Required(t)
	ctx := context.Background()
	nw, err := tcnetwork.New(ctx, tcnetwork.WithLabels(map[string]string{labelOwner: owner()}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = nw.Remove(ctx) })

	cluster := newClusterID()
	var voters []string
	for i := range n {
		voters = append(voters, fmt.Sprintf("%d@kafka%d:9093", i+1, i+1))
	}
	all := make([]*Kafka, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n { // together: one alone has no quorum
		wg.Go(func() {
			s := spec{kind: fmt.Sprint("kafka", i+1), image: kafkaImage(), ports: 1, memory: 1 << 30, network: nw.Name, alias: fmt.Sprint("kafka", i+1)}
			s.container = func(ports []int) ([]string, map[string]string, []int) {
				direct := strconv.Itoa(ports[0])
				e := kafkaEnv(cluster)
				maps.Copy(e, map[string]string{
					"KAFKA_NODE_ID":                        strconv.Itoa(i + 1),
					"KAFKA_LISTENERS":                      "DIRECT://:" + direct + ",WITHIN://:9094,CONTROLLER://:9093",
					"KAFKA_ADVERTISED_LISTENERS":           "DIRECT://" + net.JoinHostPort(host, direct) + ",WITHIN://" + s.alias + ":9094",
					"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "DIRECT:PLAINTEXT,WITHIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
					"KAFKA_INTER_BROKER_LISTENER_NAME":     "WITHIN",
					"KAFKA_CONTROLLER_QUORUM_VOTERS":       strings.Join(voters, ","),
					"KAFKA_HEAP_OPTS":                      "-Xms128m -Xmx384m",
				})
				maps.Copy(e, env)
				return nil, e, ports
			}
			c, ports, err := s.run(ctx)
			if errs[i] = err; err == nil {
				all[i] = &Kafka{server: server{c: c}, Port: ports[0]}
			}
		})
	}
	wg.Wait()
	var seeds []string
	for _, k := range all {
		if k != nil {
			t.Cleanup(k.terminate)
			seeds = append(seeds, net.JoinHostPort(host, strconv.Itoa(k.Port)))
		}
	}
	for i, k := range all {
		require.NoError(t, errs[i])
		k.seeds, k.ready = seeds, k.serves
	}
	require.NoError(t, all[0].await(ctx))
	return all
}

// InSync waits until every partition of a topic has n replicas in sync: no fewer and no more, since a cluster believes for some seconds that
// a broker is there which was killed.
func (k *Kafka) InSync(t testing.TB, topic string, n int) {
	t.Helper()
	adm := k.Admin(t)
	require.Eventually(t, func() bool {
		m, err := adm.Metadata(t.Context(), topic)
		if err != nil || m.Topics[topic].Err != nil {
			return false
		}
		all := true
		m.Topics.EachPartition(func(p kadm.PartitionDetail) { all = all && len(p.ISR) == n })
		return all
	}, Patience, 50*time.Millisecond)
}
