// Package metrics holds every Prometheus name of outtail (names.go) and counts what pipelines report: Metrics is a
// pipeline.Observer. Labels are bounded: pipelines, topics (up to a limit), classes, states and reasons, never ids or
// anything of a payload (I10).
package metrics

import (
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/pipeline"
)

// maxTopics is how many topics of a pipeline get a label of their own; a template can make any number of them.
const maxTopics = 1000

const otherTopics = "(other)"

// Options of the metrics.
type Options struct {
	// Version of outtail, for outtail_build_info.
	Version string
	// Pipelines of the configuration; their series exist from the start.
	Pipelines []string
}

// Metrics counts. All methods may be called from any goroutine.
type Metrics struct {
	registry *prometheus.Registry
	gauges   map[string]*prometheus.GaugeVec
	counters map[string]*prometheus.CounterVec
	histos   map[string]*prometheus.HistogramVec

	mu        sync.Mutex                              // serialises adding to the maps below
	pipelines atomic.Pointer[map[string]*perPipeline] // copied to add
}

var _ pipeline.Observer = (*Metrics)(nil)

// New makes the collectors and a registry of their own, with those of the Go runtime and the process.
func New(o Options) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		gauges:   map[string]*prometheus.GaugeVec{},
		counters: map[string]*prometheus.CounterVec{},
		histos:   map[string]*prometheus.HistogramVec{},
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, row := range Table() {
		labels := row.labels()
		switch row.Type {
		case gauge:
			v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: row.Name, Help: row.Tells}, labels)
			m.gauges[row.Name] = v
			m.registry.MustRegister(v)
		case counter:
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: row.Name, Help: row.Tells}, labels)
			m.counters[row.Name] = v
			m.registry.MustRegister(v)
		case histogram:
			v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: row.Name, Help: row.Tells, Buckets: row.Buckets}, labels)
			m.histos[row.Name] = v
			m.registry.MustRegister(v)
		}
	}
	m.gauges[buildInfo].WithLabelValues(o.Version).Set(1)
	m.pipelines.Store(&map[string]*perPipeline{})
	for _, name := range o.Pipelines {
		m.of(name)
	}
	return m
}

// labels of a metric with pipeline in front, as all but the build have it.
func (r Metric) labels() []string {
	if r.Name == buildInfo {
		return r.Labels
	}
	return append([]string{"pipeline"}, r.Labels...)
}

// Registry is where everything is registered.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Handler serves the exposition.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// of finds a pipeline's series: one load and one look-up, no lock. A name that is new is added.
func (m *Metrics) of(name string) *perPipeline {
	if p := (*m.pipelines.Load())[name]; p != nil {
		return p
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.pipelines.Load()
	if p := old[name]; p != nil {
		return p
	}
	p := m.newPipeline(name)
	next := make(map[string]*perPipeline, len(old)+1)
	for k, v := range old {
		next[k] = v
	}
	next[name] = p
	m.pipelines.Store(&next)
	return p
}

// State says which state the pipeline is in now.
func (m *Metrics) State(pipeline string, s pipeline.State) { m.of(pipeline).setState(s) }

// Read counts events that were read.
func (m *Metrics) Read(pipeline string, events int) { m.of(pipeline).read.Add(float64(events)) }

// Filtered counts events that a rule dropped.
func (m *Metrics) Filtered(pipeline, reason string, events int) {
	m.counters[eventsFiltered].WithLabelValues(pipeline, reason).Add(float64(events))
}

// HeadersSkipped counts headers of rows that were left out of their messages.
func (m *Metrics) HeadersSkipped(pipeline string, headers int) {
	m.of(pipeline).headersSkipped.Add(float64(headers))
}

// TimestampsReplaced counts records whose timestamp is the commit time instead of the row's own.
func (m *Metrics) TimestampsReplaced(pipeline string, events int) {
	m.of(pipeline).timesReplaced.Add(float64(events))
}

// Sent counts messages handed to the client.
func (m *Metrics) Sent(pipeline, topic string, events int) {
	m.of(pipeline).topic(topic).sent.Add(float64(events))
}

// Acked counts acknowledged messages.
func (m *Metrics) Acked(pipeline, topic string, events int) {
	m.of(pipeline).topic(topic).acked.Add(float64(events))
}

// SendError counts an error of the sink.
func (m *Metrics) SendError(pipeline string, c event.Class) {
	m.counters[sendErrors].WithLabelValues(pipeline, c.String()).Inc()
}

// SendUnknown counts messages whose outcome is not known.
func (m *Metrics) SendUnknown(pipeline string, events int) {
	m.of(pipeline).unknown.Add(float64(events))
}

// Parked counts events that were put into the dead-letter store.
func (m *Metrics) Parked(pipeline, reason string, events int) {
	m.counters[eventsParked].WithLabelValues(pipeline, reason).Add(float64(events))
}

// DeadLetters says how many events wait in the store, and since when the oldest does.
func (m *Metrics) DeadLetters(pipeline string, open int, oldest time.Duration) {
	m.gauges[parkedEvents].WithLabelValues(pipeline).Set(float64(open))
	m.gauges[parkedOldest].WithLabelValues(pipeline).Set(max(0, oldest.Seconds()))
}

// Replayed counts events that were sent again from the store.
func (m *Metrics) Replayed(pipeline, result string, events int) {
	m.counters[replayEvents].WithLabelValues(pipeline, result).Add(float64(events))
}

// Latency takes the times of one acknowledged message. Clocks of two machines can make the first one negative: then 0.
func (m *Metrics) Latency(pipeline string, commitToAck, sendToAck time.Duration) {
	p := m.of(pipeline)
	p.commitToAck.Observe(max(0, commitToAck.Seconds()))
	p.sendToAck.Observe(max(0, sendToAck.Seconds()))
}

// InFlight says what is in flight now.
func (m *Metrics) InFlight(pipeline string, events int, bytes int64) {
	p := m.of(pipeline)
	p.inflightEvents.Set(float64(events))
	p.inflightBytes.Set(float64(bytes))
}

// OldestUnacked says how old the oldest unacknowledged event is.
func (m *Metrics) OldestUnacked(pipeline string, age time.Duration) {
	m.of(pipeline).oldestUnacked.Set(max(0, age.Seconds()))
}

// Saved says that a position was stored.
func (m *Metrics) Saved(pipeline string, took time.Duration, at time.Time) {
	p := m.of(pipeline)
	p.save.Observe(took.Seconds())
	p.lastSave.Set(float64(at.UnixMilli()) / 1000)
}

// Lag says how far the source is behind; what is negative is not known.
func (m *Metrics) Lag(pipeline string, seconds float64, l pipeline.Lag) {
	p := m.of(pipeline)
	p.lagSeconds.Set(known(seconds))
	p.lagBytes.Set(known(float64(l.Bytes)))
	p.retained.Set(known(float64(l.RetainedBytes)))
	p.retentionLeft.Set(known(l.RetentionLeft.Seconds()))
}

// known turns "unknown" into NaN: no comparison in an alert is true for it, and no graph shows it as 0.
func known(v float64) float64 {
	if v < 0 {
		return math.NaN()
	}
	return v
}

// Reconnect counts a session that was opened again.
func (m *Metrics) Reconnect(pipeline string) { m.of(pipeline).reconnects.Inc() }
