package kafka

import (
	"context"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/plugin/kslog"

	"github.com/outtail/outtail/event"
)

// newClient makes a producer; it connects to nothing yet.
func (s *Sink) newClient() (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(s.c.Brokers...),
		kgo.Dialer(s.dial),
		kgo.ClientID(s.c.ClientID),
		kgo.WithLogger(kslog.New(calm(s.c.Logger))),
		kgo.WithHooks(&s.hooks),
		kgo.DisableClientMetrics(),

		// I1: what the broker answers for is on all in-sync replicas, once. These are the client's defaults, and too
		// important to inherit silently.
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordRetries(math.MaxInt64),
		kgo.UnknownTopicRetries(-1),
		kgo.RecordDeliveryTimeout(0),
		// Data loss that the broker admits (a sequence it cannot know) is retried under a new epoch: it repeats at worst,
		// while stopping would give everything back without knowing more.
		kgo.ProducerOnDataLossDetected(func(topic string, partition int32) {
			s.c.Observe.Error(event.Retry)
			s.c.Logger.Warn("the broker lost track of what was produced; sending on under a new epoch", "topic", topic, "partition", partition)
		}),

		kgo.RecordPartitioner(kgo.ManualPartitioner()),    // chosen in topic.partition
		kgo.ProducerBatchCompression(kgo.NoCompression()), // what is left where there is no compressor
		kgo.WithCompressor(s.c.compress),
		kgo.ProducerLinger(s.c.Linger),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if n, ok := s.limits.Load(topic); ok {
				return n.(int32)
			}
			return defaultLimit
		}),
		// The sink bounds bytes, the pipeline events; the client must not block under the sink's lock.
		kgo.MaxBufferedRecords(math.MaxInt32),
		// A moved leader or a new topic is found within this time.
		kgo.MetadataMinAge(s.pace.metadata),
		// Requests of ours are repeated by those who need them; what is slow here is only a late word about the cause.
		kgo.RetryTimeout(askTimeout),
		kgo.RequestRetries(2),
		// A broker that hangs up at once may only be restarting. Without this the client gives records back for it.
		kgo.AlwaysRetryEOF(),
	}
	if s.pace.retry != nil {
		opts = append(opts, kgo.RetryBackoffFn(s.pace.retry))
	}
	if s.c.sasl != nil {
		opts = append(opts, kgo.SASL(s.c.sasl))
	}
	return kgo.NewClient(opts...)
}

// askCluster gives the cluster's id, "" where brokers have none.
func (s *Sink) askCluster(ctx context.Context, client *kgo.Client) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, client)
	if err != nil || resp.ClusterID == nil {
		return "", err
	}
	return *resp.ClusterID, nil
}

// sameCluster ends the sink where the brokers are another cluster's than at Open (I5).
func (s *Sink) sameCluster(id *string) *event.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == nil || s.cluster == "" || *id == s.cluster {
		return nil
	}
	f := otherCluster(s.cluster, *id)
	if s.over || s.closed {
		return f
	}
	s.over = true
	s.raise(conditionKafka, f)
	if s.window.n == 0 {
		s.fault = f
		return f
	}
	e := s.window.at(0)
	if e.state == held {
		s.waiting--
	}
	s.foreign(e, f)
	return f
}

// foreign fails one message, the lowest, for the cluster's sake; others wait for the end. Call it with mu held.
func (s *Sink) foreign(e *entry, f *event.Fault) {
	if !s.told && e.state != failed {
		s.fail(e, f)
	}
	s.told = true
}

// rebuild lets a new client take over as soon as nothing is flying. It waits for that as long as it takes: the old client goes
// on retrying, and what a broker may still append for it must not come after what the new one sends (I3). f, where not nil, is
// told meanwhile; why is for the log. Call it with mu held.
func (s *Sink) rebuild(why string, f *event.Fault) {
	if f != nil {
		s.raise(conditionKafka, f)
	}
	if s.rebuilding || s.closed {
		return
	}
	s.rebuilding = true
	for _, t := range s.topics {
		s.fence(t)
	}
	var pause time.Duration
	if s.rebuilds > 0 {
		pause = s.backoff(s.rebuilds - 1)
	}
	s.rebuilds++
	s.wg.Add(1)
	go s.renew(s.client, pause, why) // ends when the new client has taken over, or the sink closes
}

func (s *Sink) renew(old *kgo.Client, pause time.Duration, why string) {
	defer s.wg.Done()
	for {
		s.mu.Lock()
		idle, wait := s.flying == 0, s.watch()
		s.mu.Unlock()
		if idle {
			break
		}
		// The client gives records of a recreated topic back once its metadata show it.
		old.ForceMetadataRefresh()
		if !s.sleep(s.pace.tick, wait) {
			return
		}
	}
	if !s.sleep(pause, nil) {
		return
	}
	client, err := s.newClient()
	if err != nil { // the same options as before
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fault = usage("sink.kafka", "the client refuses the options", err)
		s.raise(conditionKafka, s.fault)
		return
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		client.Close()
		return
	}
	for _, t := range s.topics {
		s.rewind(t)
		t.handed = false
	}
	s.client, s.rebuilding = client, false
	// What the lookups of the old client told is over. Topics for which something is held are looked up again, and say so again;
	// for the others nobody looks before their next event, and nobody would take it back.
	s.lower(conditionLookup)
	for i := range s.window.n {
		if e := s.window.at(i); e.state == held && e.t != nil {
			s.tendTo(e.t)
		}
	}
	for name, t := range s.topics {
		if !t.tended {
			s.lower(conditionTopic + name)
		}
	}
	s.notify()
	s.mu.Unlock()
	s.c.Logger.Info("the producer started again", "why", why)
	old.Close()
}

// interruption tells what made the client give up.
func (c *config) interruption(err error) *event.Fault {
	if f := c.connection("", err); f.Class == event.Config {
		return f
	}
	return interrupted(c.Brokers, err)
}
