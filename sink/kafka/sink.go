package kafka

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outtail/outtail/event"
)

// Times that are not worth a configuration key.
const (
	// lookPause and lookPauseMax bound how slowly a topic that does not answer is looked up again.
	lookPause    = time.Second
	lookPauseMax = 30 * time.Second
	// askTimeout bounds one request of ours to the cluster, the client's retries included.
	askTimeout = 10 * time.Second
	// stallAfter is how long nothing may be acknowledged before it is told as a condition.
	stallAfter = 5 * time.Second
	// clusterEvery is how often the cluster's id is compared while nothing reconnects.
	clusterEvery = 30 * time.Second
	// refreshEvery is how often a topic in use is looked up again, for partitions that were added: Java's metadata.max.age.ms.
	refreshEvery = 5 * time.Minute
	// closeWithin bounds Close.
	closeWithin = 10 * time.Second
)

// Sink is a pipeline's Kafka. Open it before Send; Send is for one goroutine at a time.
type Sink struct {
	c *config

	// limits is read by the client when it first meets a partition, from its own goroutine and under its own locks, so it is
	// apart from mu. topic name -> int32
	limits sync.Map
	hooks  hooks
	gate   sync.RWMutex // write-locked while a turn is handed over; connections' writes pass through it

	mu      sync.Mutex
	client  *kgo.Client
	cluster string
	window  window
	topics  map[string]*topic
	blocked blockade
	bytes   int64
	waiting int // entries that are held
	flying  int // entries that are flying
	convoy  convoy
	acks    uint64
	fault   *event.Fault // the first Failed, or what ended the sink
	over    bool         // the cluster changed: nothing is sent any more
	told    bool         // and one message was failed for it
	closed  bool
	changed chan struct{} // closed and renewed when something that Send, Flush or a rebuild waits for may have come true
	watched bool          // somebody waits on changed

	comparing  bool // somebody asks which cluster this is
	rebuilding bool
	rebuilds   int // in a row, without an ack
	conditions map[string]bool
	// firstStalls: the condition is about the lowest message, so that acks of others do not clear it.
	firstStalls bool

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // monitor, tenders of topics, a rebuild: all started by the sink, all end with ctx
	pace pace
}

// pace holds the times, so that tests need not wait.
type pace struct {
	lookMin, lookMax, tick, stall, cluster, refresh, gather time.Duration

	metadata time.Duration           // the client's shortest time between metadata requests
	retry    func(int) time.Duration // the client's backoff; nil is its own, 250 ms to 5 s with jitter
}

// New checks the options, reads the TLS files and connects to nothing.
func New(o Options) (*Sink, error) {
	c, err := o.check()
	if err != nil {
		return nil, err
	}
	s := &Sink{
		c:          c,
		topics:     make(map[string]*topic),
		changed:    make(chan struct{}),
		conditions: make(map[string]bool),
		pace: pace{
			lookMin: lookPause, lookMax: lookPauseMax, tick: time.Second, stall: stallAfter, cluster: clusterEvery, refresh: refreshEvery, gather: gatherFor,
			metadata: 500 * time.Millisecond,
		},
	}
	s.hooks.init(c)
	s.convoy.late = time.AfterFunc(time.Hour, s.departLate)
	s.convoy.late.Stop() // until something gathers
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Open connects and returns the cluster's id. While no broker answers it returns a Retry fault, where TLS or SASL is refused a
// Config fault; call it again then.
func (s *Sink) Open(ctx context.Context) (event.SinkID, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s.mu.Lock()
	if s.closed || s.client != nil {
		s.mu.Unlock()
		return event.SinkID{}, closed()
	}
	s.mu.Unlock()
	client, err := s.newClient()
	if err != nil {
		return event.SinkID{}, usage("sink.kafka", "the client refuses the options", err)
	}
	cluster, err := s.askCluster(ctx, client)
	if err != nil {
		client.Close()
		f := s.c.connection("no broker answered", s.hooks.reason(err))
		s.c.Observe.Error(f.Class)
		return event.SinkID{}, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		client.Close()
		return event.SinkID{}, closed()
	}
	s.client, s.cluster = client, cluster
	s.wg.Add(1)
	go s.monitor() // ends with s.ctx; Close waits for it
	return event.SinkID{Kind: "kafka", ClusterID: cluster}, nil
}

// Flush waits until everything that was sent is acked or failed, or ctx ends. Where a message failed it waits for those before
// it and returns the fault; what comes behind may wait for it for ever.
func (s *Sink) Flush(ctx context.Context) error {
	defer s.hurry(ctx)()
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return closed()
		}
		if s.window.n == 0 {
			s.mu.Unlock()
			return nil
		}
		if s.window.at(0).state == failed {
			defer s.mu.Unlock()
			return s.fault
		}
		wait := s.watch()
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hurry ends the client's linger until it is called off. What is flushed is the answer of Flush, not of the client: the client
// does not know of what is held.
func (s *Sink) hurry(ctx context.Context) (calledOff func()) {
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if s.c.Linger == 0 || client == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with ctx or when the client has nothing left; calledOff waits for it
		defer close(done)
		_ = client.Flush(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// Close ends the client without waiting for unacked messages, within seconds. Nothing is answered after it.
func (s *Sink) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	client := s.client
	s.notify()
	s.mu.Unlock()
	s.stop()
	done := make(chan struct{})
	go func() { // ends when client and goroutines have; Close waits for it, but not for ever
		defer close(done)
		if client != nil {
			client.Close()
		}
		s.wg.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-time.After(closeWithin):
		return unreachable(s.c.Brokers, "the client did not end in time", nil)
	}
}

// watch gives a channel that is closed at the next change. Call it with mu held.
func (s *Sink) watch() <-chan struct{} {
	s.watched = true
	return s.changed
}

// notify wakes everybody who watches. Call it with mu held.
func (s *Sink) notify() {
	if s.watched {
		close(s.changed)
		s.changed, s.watched = make(chan struct{}), false
	}
}

// raise tells what keeps the sink, or a topic, from working. Call it with mu held.
func (s *Sink) raise(key string, f *event.Fault) {
	s.conditions[key] = true
	s.c.Observe.Error(f.Class)
	s.c.Conditions(key, f)
}

// lower takes a condition back where it was raised. Call it with mu held.
func (s *Sink) lower(key string) {
	if s.conditions[key] {
		delete(s.conditions, key)
		s.c.Conditions(key, nil)
	}
}

// conditionKafka is the key of the condition about brokers; topics have conditionTopic and their name.
const (
	conditionKafka = "kafka"
	conditionTopic = "kafka/topic/"
)

// sleep waits for d, a kick, or the end of the sink (false).
func (s *Sink) sleep(d time.Duration, kick <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-kick:
	case <-s.ctx.Done():
	}
	return s.ctx.Err() == nil
}

// backoff doubles from the shortest pause with every try; each is drawn between half and the whole of it, so that many connectors do
// not come back in step.
func (s *Sink) backoff(try int) time.Duration {
	d := s.pace.lookMin
	for range try {
		if d *= 2; d >= s.pace.lookMax {
			d = s.pace.lookMax
			break
		}
	}
	return d/2 + rand.N(d/2+1)
}

// atomicError keeps the last error of something.
type atomicError struct{ v atomic.Pointer[error] }

func (a *atomicError) set(err error) { a.v.Store(&err) }

func (a *atomicError) get() error {
	if p := a.v.Load(); p != nil {
		return *p
	}
	return nil
}
