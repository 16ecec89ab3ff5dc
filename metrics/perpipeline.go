package metrics

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/pipeline"
)

// perPipeline holds a pipeline's series, resolved once: resolving labels costs a hash and a lock, which is too much per
// event.
type perPipeline struct {
	read, unknown, reconnects, headersSkipped     prometheus.Counter
	timesReplaced                                 prometheus.Counter
	commitToAck, sendToAck, save                  prometheus.Observer
	inflightEvents, inflightBytes, oldestUnacked  prometheus.Gauge
	lagSeconds, lagBytes, retained, retentionLeft prometheus.Gauge
	lastSave                                      prometheus.Gauge
	mu                                            sync.Mutex // guards state, serialises adding topics
	states                                        []prometheus.Gauge
	newTopic                                      func(topic string) *perTopic
	topics                                        atomic.Pointer[map[string]*perTopic] // copied to add
}

type perTopic struct{ sent, acked prometheus.Counter }

func (m *Metrics) newPipeline(name string) *perPipeline {
	c := func(metric string) prometheus.Counter { return m.counters[metric].WithLabelValues(name) }
	g := func(metric string) prometheus.Gauge { return m.gauges[metric].WithLabelValues(name) }
	h := func(metric string) prometheus.Observer { return m.histos[metric].WithLabelValues(name) }
	p := &perPipeline{
		read: c(eventsRead), unknown: c(sendUnknown), reconnects: c(reconnects), headersSkipped: c(headersSkipped),
		timesReplaced: c(timesReplaced),
		commitToAck:   h(commitToAck), sendToAck: h(sendToAck), save: h(saveSeconds),
		inflightEvents: g(inflightEvents), inflightBytes: g(inflightBytes), oldestUnacked: g(oldestUnacked),
		lagSeconds: g(lagSeconds), lagBytes: g(lagBytes), retained: g(retainedBytes), retentionLeft: g(retentionLeft),
		lastSave: g(lastSave),
		newTopic: func(topic string) *perTopic {
			return &perTopic{
				sent:  m.counters[messagesSent].WithLabelValues(name, topic),
				acked: m.counters[messagesAcked].WithLabelValues(name, topic),
			}
		},
	}
	p.topics.Store(&map[string]*perTopic{})
	// 0 would mean "purged now", which nobody knows yet.
	p.retentionLeft.Set(math.NaN())
	for _, s := range pipeline.States() {
		p.states = append(p.states, m.gauges[pipelineState].WithLabelValues(name, s.String()))
	}
	p.setState(pipeline.Starting)
	for class := event.Retry; class <= event.Internal; class++ {
		if class != event.Usage { // a sink has none
			m.counters[sendErrors].WithLabelValues(name, class.String())
		}
	}
	for _, reason := range []string{"dropped", "updated", "deleted"} {
		m.counters[eventsFiltered].WithLabelValues(name, reason)
	}
	// Nothing reports these yet, they are there all the same for dashboards and alerts.
	g(parkedEvents)
	g(parkedOldest)
	c(versionGaps)
	return p
}

func (p *perPipeline) setState(s pipeline.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, g := range p.states {
		if pipeline.State(i) == s {
			g.Set(1)
		} else {
			g.Set(0)
		}
	}
}

// topic finds a topic's series as of finds a pipeline's.
func (p *perPipeline) topic(name string) *perTopic {
	if t := (*p.topics.Load())[name]; t != nil {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.topics.Load()
	if t := old[name]; t != nil {
		return t
	}
	if len(old) >= maxTopics && name != otherTopics {
		if t := old[otherTopics]; t != nil {
			return t
		}
		name = otherTopics
	}
	next := make(map[string]*perTopic, len(old)+1)
	for k, v := range old {
		next[k] = v
	}
	t := p.newTopic(name)
	next[name] = t
	p.topics.Store(&next)
	return t
}
