package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outtail/outtail/event"
)

// hooks hears of connections. The client calls it from its own goroutines, so it takes no lock and only leaves word.
type hooks struct {
	c         *config
	last      atomicError   // of the last attempt to connect; nil after a success
	connects  atomic.Uint64 // successes
	loginCut  atomic.Bool   // a broker hung up instead of answering a login, as some do to refuse it
	lost      chan struct{} // a produce request was written and its answer will not come
	connected chan struct{}
}

func (h *hooks) init(c *config) {
	h.c = c
	h.lost, h.connected = make(chan struct{}, 1), make(chan struct{}, 1)
}

// errHandshakeCut marks a connection that came about and was ended before TLS was agreed, which is how Kafka answers TLS on a
// listener without it.
var errHandshakeCut = errors.New("the broker hung up during the TLS handshake")

func leaveWord(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// OnBrokerConnect is kgo.HookBrokerConnect.
func (h *hooks) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed) {
			var read *net.OpError
			switch {
			case h.loginCut.Swap(false):
				err = fmt.Errorf("%w: the broker hung up during the login: %w", kerr.SaslAuthenticationFailed, err)
			case h.c.tls != nil && errors.As(err, &read) && read.Op == "read" && !read.Timeout():
				err = fmt.Errorf("%w: %w", errHandshakeCut, err)
			}
			h.last.set(err)
			h.c.Observe.Error(event.Retry)
		}
		return
	}
	h.last.set(nil)
	h.connects.Add(1)
	leaveWord(h.connected)
}

// OnBrokerE2E is kgo.HookBrokerE2E.
func (h *hooks) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if e2e.ReadErr == nil || e2e.WriteErr != nil {
		return
	}
	switch kmsg.Key(key) {
	case kmsg.Produce:
		leaveWord(h.lost)
	case kmsg.SASLHandshake, kmsg.SASLAuthenticate:
		h.loginCut.Store(errors.Is(e2e.ReadErr, io.EOF))
	}
}

// reason prefers why no connection came about to what this led to (a deadline, a request without an answer).
func (h *hooks) reason(err error) error {
	var answer *kerr.Error
	if last := h.last.get(); last != nil && !errors.As(err, &answer) {
		return last
	}
	return err
}

// monitor watches for what no promise tells: that nothing is acknowledged, that outcomes became unknown, that the brokers are
// another cluster's.
func (s *Sink) monitor() {
	defer s.wg.Done()
	tick := time.NewTicker(s.pace.tick)
	defer tick.Stop()
	began := time.Now()
	w := watchman{acksSince: began, firstSince: began}
	w.compared = time.Now()
	connects := s.hooks.connects.Load()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.hooks.lost:
			s.countUnsure()
		case <-s.hooks.connected:
			s.kickAll()
			if n := s.hooks.connects.Load(); n != connects {
				connects, w.compared = n, time.Time{}
			}
		case now := <-tick.C:
			s.checkProgress(&w, now)
			s.refreshOne(now)
			s.compareSoon(&w, now)
		}
	}
}

// watchman is what the monitor remembers between ticks.
type watchman struct {
	acks       uint64
	first      uint64    // seq of the first entry
	acksSince  time.Time // acks has been this since
	firstSince time.Time
	compared   time.Time
}

// checkProgress tells when nothing, or not the lowest event, was acknowledged for too long, and has the topics looked at that
// this may come from: the client alone would wait for a deleted topic for ever.
func (s *Sink) checkProgress(w *watchman, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flying == 0 || s.acks != w.acks {
		w.acks, w.acksSince = s.acks, now
	}
	var first *entry
	if s.window.n > 0 {
		first = s.window.at(0)
	}
	if first == nil || first.state != flying || first.seq != w.first {
		w.firstSince = now
		if first != nil {
			w.first = first.seq
		}
	}
	stalled := now.Sub(w.acksSince) >= s.pace.stall || now.Sub(w.firstSince) >= s.pace.stall
	if !stalled || s.over {
		s.firstStalls = false
		if s.rebuilds == 0 && !s.over {
			s.lower(conditionKafka)
		}
		return
	}
	// Where all that is flying belongs to topics that are known not to answer, they have told so themselves.
	var mute bool
	for _, t := range s.topics {
		if t.flying == 0 || t.tended {
			continue
		}
		mute = true
		s.inspectSoon(t)
	}
	if mute && !s.conditions[conditionKafka] {
		s.firstStalls = now.Sub(w.acksSince) < s.pace.stall
		since := now.Sub(minTime(w.acksSince, w.firstSince)).Round(time.Second)
		s.raise(conditionKafka, s.c.connection(fmt.Sprintf("nothing was acknowledged for %s", since), s.hooks.last.get()))
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// refreshOne has a topic looked at whose last lookup is long ago: keys must go where other producers send them.
func (s *Sink) refreshOne(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.topics {
		if t.ready && t.handed && now.Sub(t.seen) >= s.pace.refresh && !t.inspecting {
			t.turn.widen(t.limit)
			s.inspectSoon(t)
			return
		}
	}
}

// inspectSoon starts an inspection unless one runs. Call it with mu held.
func (s *Sink) inspectSoon(t *topic) {
	if t.inspecting || s.closed {
		return
	}
	t.inspecting = true
	s.wg.Add(1)
	go s.inspect(t, s.client) // ends after one lookup
}

// inspect looks at a topic that was found before, and fences it where it is gone, refused, or another than it was.
func (s *Sink) inspect(t *topic, client *kgo.Client) {
	defer s.wg.Done()
	found, f := s.look(client, t.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.inspecting, t.seen = false, time.Now()
	if s.closed || s.rebuilding || client != s.client || t.tended || !t.handed {
		return
	}
	if f != nil && aboutTopic(f) || f == nil && (found.id != t.id || found.partitions != len(t.parts)) {
		s.fence(t)
		if f != nil {
			s.raise(conditionTopic+t.name, f)
		}
		s.tendTo(t)
	}
}

// countUnsure counts what was in flight when a connection died under a produce request: each event once until it is acked.
func (s *Sink) countUnsure() {
	s.mu.Lock()
	n := 0
	for i := range s.window.n {
		if e := s.window.at(i); e.state == flying && !e.unsure {
			e.unsure = true
			n++
		}
	}
	s.mu.Unlock()
	if n > 0 {
		s.c.Observe.Unknown(n)
		s.c.Observe.Error(event.Retry)
	}
}

// kickAll has the topics looked up at once that wait for brokers to come back.
func (s *Sink) kickAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.conditions[conditionLookup] {
		return
	}
	for _, t := range s.topics {
		if t.tended {
			t.kick()
		}
	}
}

// conditionAnswer is the key of the condition that brokers do not answer, or refuse us, which an idle sink would not notice before its
// next event.
const conditionAnswer = "kafka/answer"

// compareSoon starts a comparison of the cluster where one is due: more often while the brokers do not answer.
func (s *Sink) compareSoon(w *watchman, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := s.pace.cluster
	if s.conditions[conditionAnswer] {
		every = min(every, s.pace.stall)
	}
	if s.comparing || s.closed || now.Sub(w.compared) < every {
		return
	}
	w.compared, s.comparing = now, true
	s.wg.Add(1)
	go s.compareCluster(s.client) // ends after one question
}

// compareCluster asks the brokers who they are.
func (s *Sink) compareCluster(client *kgo.Client) {
	defer s.wg.Done()
	ctx, cancel := context.WithTimeout(s.ctx, s.pace.stall)
	id, err := s.askCluster(ctx, client)
	cancel()
	s.mu.Lock()
	s.comparing = false
	switch {
	case s.closed, s.over, client != s.client:
	case err == nil:
		s.lower(conditionAnswer)
	case len(s.conditions) == 0 || s.conditions[conditionAnswer]: // else it is told already
		s.raise(conditionAnswer, s.c.connection("the brokers do not answer", s.hooks.reason(err)))
	}
	s.mu.Unlock()
	if err == nil && id != "" {
		_ = s.sameCluster(&id)
	}
}
