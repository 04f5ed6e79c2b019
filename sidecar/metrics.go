package sidecar

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// metrics is everything under /metrics: a registry of its own with counters per
// queue, histograms of the store, gauges read when they are asked for, and the
// collectors of the Go runtime and the process. Labels name queues, hooks and
// error codes, never fairness keys, consumers or anything else that producers
// choose freely. docs/metrics.md lists every name.
//
// It is safe for concurrent use.
type metrics struct {
	registry *prometheus.Registry
	counters map[string]*prometheus.CounterVec // by name; written by newMetrics only
	latency  *prometheus.HistogramVec

	commitDuration prometheus.Histogram // seconds from the begin of a group commit to its end, fsync included
	commitBatch    prometheus.Histogram // batches in one group commit

	mu struct {
		sync.Mutex
		queues map[string]*queueMetrics
		depth  func() []QueueGauges
		sync   func()
	}
}

// QueueGauges is the state of one queue at the moment of a scrape.
type QueueGauges struct {
	Queue            string
	Depth            int64             // all messages: pending, delayed and in flight
	Pending          int64             // waiting for a consumer or a gate
	Parked           [blockKinds]int64 // those of them that a gate holds back, by its kind
	Delayed          int64             // waiting for their time
	InFlight         int64             // leased
	Bytes            int64             // payloads and headers of all messages
	OldestAgeSeconds float64
	Consumers        int
	Flows            int // fairness keys with pending messages
}

// queueMetrics holds the counters of one queue, resolved once, so that counting
// costs an atomic addition and no look-up.
type queueMetrics struct {
	enqueued     prometheus.Counter
	duplicates   prometheus.Counter
	delivered    prometheus.Counter
	acked        prometheus.Counter
	nacked       prometheus.Counter
	expired      prometheus.Counter // leases
	ttlExpired   prometheus.Counter
	deadLettered prometheus.Counter
	redriven     prometheus.Counter
	takenBack    prometheus.Counter
	warnings     prometheus.Counter

	// deliveryLatency is the time from a message's enqueue, or from the moment
	// it became due, to its delivery, in seconds.
	deliveryLatency prometheus.Observer

	onEnqueue, onFailure hookMetrics

	name     string
	refusal  *prometheus.CounterVec
	failures map[string]prometheus.Counter // by severity
}

// hookMetrics holds the counters of one hook of one queue.
type hookMetrics struct{ runs, failures, bypassed prometheus.Counter }

const (
	labelQueue = "queue"
	labelHook  = "hook"
	labelCode  = "code"

	labelSeverity  = "severity"
	labelBlockedBy = "blocked_by"

	hookOnEnqueue = "on_enqueue"
	hookOnFailure = "on_failure"
)

// counterSpecs lists the counters; docs/metrics.md repeats the help texts.
var counterSpecs = []struct {
	name, help string
	labels     []string
}{
	{"fila_enqueued_total", "Messages accepted.", []string{labelQueue}},
	{"fila_duplicates_total", "Enqueues answered with the id of an earlier message with the same Nats-Msg-Id.", []string{labelQueue}},
	{"fila_delivered_total", "Deliveries published to consumers.", []string{labelQueue}},
	{"fila_acked_total", "Messages finished by an ack.", []string{labelQueue}},
	{"fila_nacked_total", "Attempts ended by a nack.", []string{labelQueue}},
	{"fila_expired_total", "Attempts ended by the end of their lease.", []string{labelQueue}},
	{"fila_ttl_expired_total", "Messages dead-lettered because their TTL had passed.", []string{labelQueue}},
	{"fila_dead_lettered_total", "Messages moved to the dead letter queue, counted at the queue that they left.", []string{labelQueue}},
	{"fila_redriven_total", "Messages moved back from the dead letter queue, counted at the queue that they returned to.", []string{labelQueue}},
	{"fila_taken_back_total", "Deliveries that nobody received; the message kept its place and its attempt.", []string{labelQueue}},
	{"fila_refused_total", "Requests refused, by err_code (docs/errors.md). The queue is empty where none was named that exists.", []string{labelQueue, labelCode}},
	{"fila_hook_runs_total", "Runs of a Lua hook, failed ones included.", []string{labelQueue, labelHook}},
	{"fila_hook_failures_total", "Runs of a Lua hook that failed; their messages went on with the defaults.", []string{labelQueue, labelHook}},
	{"fila_hook_bypassed_total", "Messages that went on with the defaults because the hook's circuit was open.", []string{labelQueue, labelHook}},
	{"fila_failures_total", "Attempts ended by a nack or an expired lease, by the severity that an error rule gives them; medium without one.", []string{labelQueue, labelSeverity}},
	{"fila_hook_warnings_total", "Fields of a hook's result that had the wrong type or were cut.", []string{labelQueue}},
}

// latencyBuckets reach from a delivery at once to a backlog of an hour.
var latencyBuckets = []float64{
	.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), counters: make(map[string]*prometheus.CounterVec, len(counterSpecs))}
	m.mu.queues = make(map[string]*queueMetrics)
	for _, spec := range counterSpecs {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: spec.name, Help: spec.help}, spec.labels)
		m.counters[spec.name] = vec
		m.registry.MustRegister(vec)
	}
	m.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "fila_delivery_latency_seconds",
		Help:    "Time from a message's enqueue, or from the moment it became due, to its delivery.",
		Buckets: latencyBuckets,
	}, []string{labelQueue})
	m.commitDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "fila_commit_duration_seconds",
		Help:    "Time of one group commit of the store, fsync included.",
		Buckets: prometheus.ExponentialBuckets(.0001, 2, 16), // 100 us to 3.3 s
	})
	m.commitBatch = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "fila_commit_batch_size",
		Help:    "Batches of changes that shared one group commit.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 15), // 1 to 16,384
	})
	m.registry.MustRegister(
		m.latency, m.commitDuration, m.commitBatch, depthCollector{m},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// handler serves the registry, after bringing up to date what is counted
// elsewhere.
func (m *metrics) handler() http.Handler {
	h := promhttp.InstrumentMetricHandler(m.registry, promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		sync := m.mu.sync
		m.mu.Unlock()
		if sync != nil {
			sync()
		}
		h.ServeHTTP(w, r)
	})
}

// setSync names a function that is called before each scrape, from any
// goroutine, to bring counters up to date.
func (m *metrics) setSync(update func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.sync = update
}

// snapshot returns the queue's own counters, without the prefix and suffix of
// their metrics' names.
func (q *queueMetrics) snapshot() map[string]int64 {
	values := make(map[string]int64, 10)
	for name, c := range map[string]prometheus.Counter{
		"enqueued": q.enqueued, "duplicates": q.duplicates, "delivered": q.delivered, "acked": q.acked,
		"nacked": q.nacked, "expired": q.expired, "ttl_expired": q.ttlExpired, "dead_lettered": q.deadLettered,
		"redriven": q.redriven, "taken_back": q.takenBack,
	} {
		var m dto.Metric
		if err := c.Write(&m); err == nil {
			values[name] = int64(m.GetCounter().GetValue())
		}
	}
	return values
}

// queue returns the counters of a queue, the same ones for every call until
// dropQueue. It takes a lock: call it once per queue and keep the result.
func (m *metrics) queue(name string) *queueMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q, ok := m.mu.queues[name]; ok {
		return q
	}
	q := m.resolve(name)
	m.mu.queues[name] = q
	return q
}

func (m *metrics) resolve(name string) *queueMetrics {
	counter := func(metric string) prometheus.Counter { return m.counters[metric].WithLabelValues(name) }
	hook := func(kind string) hookMetrics {
		return hookMetrics{
			runs:     m.counters["fila_hook_runs_total"].WithLabelValues(name, kind),
			failures: m.counters["fila_hook_failures_total"].WithLabelValues(name, kind),
			bypassed: m.counters["fila_hook_bypassed_total"].WithLabelValues(name, kind),
		}
	}
	failures := make(map[string]prometheus.Counter)
	for _, severity := range []string{severityLow, severityMedium, severityHigh, severityCritical} {
		failures[severity] = m.counters["fila_failures_total"].WithLabelValues(name, severity)
	}
	return &queueMetrics{
		enqueued:        counter("fila_enqueued_total"),
		duplicates:      counter("fila_duplicates_total"),
		delivered:       counter("fila_delivered_total"),
		acked:           counter("fila_acked_total"),
		nacked:          counter("fila_nacked_total"),
		expired:         counter("fila_expired_total"),
		ttlExpired:      counter("fila_ttl_expired_total"),
		deadLettered:    counter("fila_dead_lettered_total"),
		redriven:        counter("fila_redriven_total"),
		takenBack:       counter("fila_taken_back_total"),
		warnings:        counter("fila_hook_warnings_total"),
		deliveryLatency: m.latency.WithLabelValues(name),
		onEnqueue:       hook(hookOnEnqueue),
		onFailure:       hook(hookOnFailure),
		name:            name,
		refusal:         m.counters["fila_refused_total"],
		failures:        failures,
	}
}

// dropQueue removes a deleted queue from the metrics. Handles that are still
// held count into the void.
func (m *metrics) dropQueue(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.queues, name)
	for _, vec := range m.counters {
		vec.DeletePartialMatch(prometheus.Labels{labelQueue: name})
	}
	m.latency.DeletePartialMatch(prometheus.Labels{labelQueue: name})
}

// failure counts a failed attempt by the severity that a rule gave it, if any.
func (q *queueMetrics) failure(severity string) {
	if severity == "" {
		severity = severityMedium
	}
	q.failures[severity].Inc()
}

// refused counts a refusal of this queue by its err_code. Refusals are rare
// enough for the look-up.
func (q *queueMetrics) refused(errCode int) {
	q.refusal.WithLabelValues(q.name, strconv.Itoa(errCode)).Inc()
}

// refused counts a refusal that belongs to no queue that exists. The name that
// was asked for is not a label: whoever invents names must not fill the registry.
func (m *metrics) refused(errCode int) {
	m.counters["fila_refused_total"].WithLabelValues("", strconv.Itoa(errCode)).Inc()
}

// setDepth names the function that reads the gauges of all queues. It is called
// at each scrape, from any goroutine, and must return soon.
func (m *metrics) setDepth(read func() []QueueGauges) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.depth = read
}

// gaugeSpecs lists the gauges per queue.
var gaugeSpecs = []struct {
	desc  *prometheus.Desc
	value func(*QueueGauges) float64
}{
	gauge("fila_queue_depth", "Messages in the queue: pending, delayed and in flight.", func(g *QueueGauges) float64 { return float64(g.Depth) }),
	gauge("fila_queue_pending", "Messages waiting for a consumer or a gate.", func(g *QueueGauges) float64 { return float64(g.Pending) }),
	gauge("fila_queue_delayed", "Messages waiting for their time.", func(g *QueueGauges) float64 { return float64(g.Delayed) }),
	gauge("fila_queue_in_flight", "Messages leased to consumers.", func(g *QueueGauges) float64 { return float64(g.InFlight) }),
	gauge("fila_queue_bytes", "Bytes of payloads and headers in the queue.", func(g *QueueGauges) float64 { return float64(g.Bytes) }),
	gauge("fila_queue_oldest_age_seconds", "Age of the oldest message in the queue; 0 when it is empty.", func(g *QueueGauges) float64 { return g.OldestAgeSeconds }),
	gauge("fila_queue_consumers", "Registered consumers and waiting fetches.", func(g *QueueGauges) float64 { return float64(g.Consumers) }),
	gauge("fila_queue_flows", "Fairness keys with pending messages.", func(g *QueueGauges) float64 { return float64(g.Flows) }),
}

// parkedDesc is the gauge of what gates hold back, by the kind of gate.
var parkedDesc = prometheus.NewDesc("fila_queue_parked",
	"Messages that a gate holds back, by its kind: rate, window, concurrency, reserved, turn, circuit, paused or order.",
	[]string{labelQueue, labelBlockedBy}, nil)

func gauge(name, help string, value func(*QueueGauges) float64) (spec struct {
	desc  *prometheus.Desc
	value func(*QueueGauges) float64
},
) {
	spec.desc = prometheus.NewDesc(name, help, []string{labelQueue}, nil)
	spec.value = value
	return spec
}

// depthCollector reads the gauges when it is asked, so that nothing is counted
// twice and a scrape sees one moment of each queue.
type depthCollector struct{ m *metrics }

func (c depthCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, spec := range gaugeSpecs {
		ch <- spec.desc
	}
	ch <- parkedDesc
}

func (c depthCollector) Collect(ch chan<- prometheus.Metric) {
	c.m.mu.Lock()
	read := c.m.mu.depth
	c.m.mu.Unlock()
	if read == nil {
		return
	}
	queues := read()
	for i := range queues {
		for _, spec := range gaugeSpecs {
			ch <- prometheus.MustNewConstMetric(spec.desc, prometheus.GaugeValue, spec.value(&queues[i]), queues[i].Queue)
		}
		for kind, n := range queues[i].Parked {
			if blockKind(kind) != byNothing {
				ch <- prometheus.MustNewConstMetric(parkedDesc, prometheus.GaugeValue, float64(n), queues[i].Queue, blockKind(kind).String())
			}
		}
	}
}
