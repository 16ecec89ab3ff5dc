package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outtail/outtail/event"
)

// topic is what the sink knows of one topic. Guarded by Sink.mu.
type topic struct {
	name string

	// ready: looked up, and records may go to the client.
	ready bool
	id    [16]byte
	parts []part
	java  kgo.TopicPartitioner
	limit int    // max.message.bytes
	looks uint64 // lookups that found it
	// halted: the event haltedAt failed. What was sent before it still goes, nothing after it.
	halted   bool
	haltedAt uint64
	// handed: the present client knows the topic, with the id and limit of that time.
	handed bool

	flying int

	// broken: records were given back; nothing goes out before a rewind.
	broken bool
	// refused: the broker refused to append for want of a right; refusals counts how often in a row.
	refused  bool
	refusals int
	// probing: one record at a time until probeTo, to find the one that is to blame.
	probing bool
	probeTo uint64
	turn    turnLimit

	tended     bool // a tender runs
	inspecting bool // an inspection runs
	seen       time.Time
	kicked     chan struct{}
}

// part is one partition.
type part struct {
	flying int
	queue  []*entry // waits until nothing flies
	broken bool     // records were given back, lowest is the first of them
	lowest uint64
	// refused is how many bytes of what was given back came with the broker's word that they are too much.
	refused int
}

func newTopic(name string) *topic {
	return &topic{name: name, kicked: make(chan struct{}, 1), java: kgo.StickyKeyPartitioner(nil).ForTopic(name)}
}

// kick makes a waiting tender look at once.
func (t *topic) kick() {
	select {
	case t.kicked <- struct{}{}:
	default:
	}
}

// calm forgets a kick.
func (t *topic) calm() {
	select {
	case <-t.kicked:
	default:
	}
}

// tendTo makes sure that somebody looks the topic up until it is ready. Call it with mu held.
func (s *Sink) tendTo(t *topic) {
	if t.tended || s.rebuilding || s.closed {
		return
	}
	t.tended = true
	t.calm() // a kick was for an earlier tender
	s.wg.Add(1)
	go s.tend(t) // ends when the topic is ready, a rebuild takes over, or the sink closes
}

func (s *Sink) tend(t *topic) {
	defer s.wg.Done()
	var pause time.Duration
	for try := 0; s.sleep(pause, t.kicked); try++ {
		s.mu.Lock()
		client := s.client
		s.mu.Unlock()
		found, f := s.look(client, t.name)
		var done bool
		if pause, done = s.settle(t, client, try, found, f); done {
			return
		}
	}
}

// settle draws the conclusions of a lookup: after what pause to look again, or that nobody need look any more.
func (s *Sink) settle(t *topic, client *kgo.Client, try int, found found, f *event.Fault) (pause time.Duration, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed, s.over, s.topics[t.name] != t: // forgotten: see Discard
		return 0, true
	case s.rebuilding: // which starts the tenders that are needed then
		t.tended = false
		return 0, true
	case client != s.client:
		return 0, false
	case f != nil && aboutTopic(f):
		s.raise(conditionTopic+t.name, f)
		return s.backoff(try), false
	case f != nil:
		s.raise(conditionLookup, f)
		return s.backoff(try), false
	}
	s.lower(conditionLookup)
	switch {
	case t.handed && (t.id != found.id && t.id != [16]byte{} && found.id != [16]byte{} || t.limit != found.limit):
		// The client knows another topic of this name, or packs batches by another limit.
		why := fmt.Sprintf("topic %s was deleted and made again", t.name)
		if t.limit != found.limit {
			why = fmt.Sprintf("max.message.bytes of topic %s is %d now, and was %d", t.name, found.limit, t.limit)
		}
		s.rebuild(why, nil)
		t.tended = false
		return 0, true
	case (t.broken || found.partitions != len(t.parts)) && t.flying > 0:
		return s.pace.lookMax, false // kicked by the last promise
	case t.refused:
		t.refused = false
		t.refusals++
		t.calm() // the last promise's kick is over; nothing of the topic is flying that could give another
		return s.backoff(t.refusals - 1), false
	}
	t.looks++
	t.seen = time.Now()
	s.rewind(t)
	if t.limit != found.limit {
		t.turn = turnLimit{}
	}
	t.id, t.limit = found.id, found.limit
	if found.partitions != len(t.parts) {
		s.repartition(t, found.partitions)
		if t.handed {
			client.ForceMetadataRefresh() // the client need not notice for minutes
		}
	}
	s.limits.Store(t.name, int32(min(max(found.limit, minCap), maxCap)+lengthPrefix))
	if t.refusals == 0 {
		s.lower(conditionTopic + t.name)
	}
	t.ready, t.tended = true, false
	s.release()
	return 0, true
}

// The client takes batch caps from 512 bytes to 1 GiB and counts a length prefix of up to four bytes that brokers do not count.
// Where the prefix is shorter a batch of several records may exceed the limit by as much; it is refused, and its records go
// alone.
const (
	minCap       = 512
	maxCap       = 1<<30 - lengthPrefix
	lengthPrefix = 4
)

// conditionLookup is the key of the condition that topics cannot be looked up.
const conditionLookup = "kafka/lookup"

// aboutTopic tells the faults of one topic from those of the brokers.
func aboutTopic(f *event.Fault) bool {
	return f.Code == "OT5004" || f.Code == "OT5005" || f.Code == "OT5016"
}

// found is what a lookup found.
type found struct {
	id         [16]byte
	partitions int
	limit      int
}

// look asks the cluster for a topic, and creates it where that is wanted.
func (s *Sink) look(client *kgo.Client, name string) (found, *event.Fault) {
	ctx, cancel := context.WithTimeout(s.ctx, askTimeout)
	defer cancel()
	got, f := s.describe(ctx, client, name)
	if f == nil || f.Code != "OT5004" || s.c.CreateTopics == nil {
		return got, f
	}
	if f := s.create(ctx, client, name); f != nil {
		return found{}, f
	}
	// Brokers answer before all of them know of it.
	for range 20 {
		if got, f = s.describe(ctx, client, name); f == nil || f.Code != "OT5004" || !s.sleep(100*time.Millisecond, nil) {
			break
		}
	}
	return got, f
}

func (s *Sink) describe(ctx context.Context, client *kgo.Client, name string) (found, *event.Fault) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr(name)
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return found{}, s.c.connection("topics cannot be looked up", s.hooks.reason(err))
	}
	if f := s.sameCluster(resp.ClusterID); f != nil {
		return found{}, f
	}
	if len(resp.Topics) != 1 {
		return found{}, unreachable(s.c.Brokers, "the answer to a lookup does not name the topic", nil)
	}
	t := &resp.Topics[0]
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return found{}, s.c.lookup(name, len(resp.Brokers), err)
	}
	// Brokers from 2.3 on say what we may do, so that a missing right is known before the first record. Others say nothing.
	const write = 1 << int32(kmsg.ACLOperationWrite)
	if ops := t.AuthorizedOperations; ops != math.MinInt32 && ops != 0 && ops&write == 0 {
		return found{}, s.c.topicRefused(name, nil)
	}
	if len(t.Partitions) == 0 {
		return found{}, unreachable(s.c.Brokers, "topic "+name+" has no partitions yet", nil)
	}
	limit, f := s.askLimit(ctx, client, name)
	return found{id: t.TopicID, partitions: len(t.Partitions), limit: limit}, f
}

// askLimit reads max.message.bytes; where it may not be read, Kafka's default.
func (s *Sink) askLimit(ctx context.Context, client *kgo.Client, name string) (int, *event.Fault) {
	const key = "max.message.bytes"
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, name, []string{key}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, s.c.connection("a topic's configuration cannot be read", s.hooks.reason(err))
	}
	for i := range resp.Resources {
		res := &resp.Resources[i]
		if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
			if kerr.IsRetriable(err) {
				return 0, unreachable(s.c.Brokers, "a topic's configuration cannot be read", err)
			}
			s.c.Logger.Info("max.message.bytes may not be read; Kafka's default is assumed", "topic", name, "limit", defaultLimit, "err", err)
			return defaultLimit, nil
		}
		for j := range res.Configs {
			if c := &res.Configs[j]; c.Name == key && c.Value != nil {
				if n, err := strconv.Atoi(*c.Value); err == nil {
					return n, nil
				}
			}
		}
	}
	return defaultLimit, nil
}

func (s *Sink) create(ctx context.Context, client *kgo.Client, name string) *event.Fault {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(askTimeout.Milliseconds())
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, s.c.CreateTopics.Partitions, s.c.CreateTopics.Replication
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return s.c.connection("topics cannot be created", s.hooks.reason(err))
	}
	for i := range resp.Topics {
		err := kerr.ErrorForCode(resp.Topics[i].ErrorCode)
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			continue
		}
		return createRefused(name, err)
	}
	s.c.Logger.Info("topic created", "topic", name, "partitions", s.c.CreateTopics.Partitions, "replication", s.c.CreateTopics.Replication)
	return nil
}
