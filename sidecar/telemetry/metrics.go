package telemetry

import (
	"cmp"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/wire"
)

// Metrics is everything under /metrics: what is counted and read of queues, histograms
// of the store, gauges, and the collectors of the Go runtime and the process.
type Metrics struct {
	registry *prometheus.Registry // of all that is not of queues
	none     *Queue               // what belongs to no queue that exists
	guard    *Queue               // failures of the guard's calls
	others   [queue.Roles]*Queue  // queues that were not named and are deleted

	guardChecks, guardEnded, guardCapped, clientsCut *prometheus.CounterVec

	exceeded map[string]prometheus.Counter        // by limit; written by New only
	limits   [gates.BlockKinds]prometheus.Counter // of those that are gates; nil: it is none

	commitDuration prometheus.Histogram
	commitBatch    prometheus.Histogram
	guardCheck     prometheus.Histogram

	mu struct {
		sync.Mutex
		queues map[string]*Queue
		named  int                     // queues that are told by name, without their dead letter queues
		fits   func(queue string) bool // whether a queue may be named; nil: each may
		sync   func()
		gauges func() []Gauges
	}
}

const (
	labelQueue     = "queue"
	labelHook      = "hook"
	labelCode      = "code"
	labelSeverity  = "severity"
	labelReason    = "reason"
	labelBlockedBy = "blocked_by"
	labelLimit     = "limit"
	labelOutcome   = "outcome"

	limitMaxFailures       = "max_failures"
	limitMaxFailuresPerKey = "max_failures_per_key"
)

// New returns metrics in which nothing has been counted.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.guardChecks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fila_guard_checks_total", Help: "Checks of the guard, by outcome: allowed, the kind of gate that refused, or late (nobody waits for the answer any more).",
	}, []string{labelOutcome})
	m.guardEnded = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fila_guard_ended_total", Help: "Permits of the guard that ended, by outcome: ok, error, expired (without a done), or operator.",
	}, []string{labelOutcome})
	m.guardCapped = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fila_guard_capped_total", Help: "Requests to the guard refused by a limit on their number, by its key of limits: max_guard_permits, max_guard_key_permits, max_guard_caller_permits, max_throttle_keys or max_circuits.",
	}, []string{labelLimit})
	for _, limit := range []string{"max_guard_permits", "max_guard_key_permits", "max_guard_caller_permits", "max_throttle_keys", "max_circuits"} {
		m.guardCapped.WithLabelValues(limit) // from 0 on
	}
	m.clientsCut = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fila_nats_clients_cut_total", Help: "Clients that the embedded NATS server cut off, by reason: pending (nats.embedded.max_pending bytes unread), deadline (nothing read for nats.embedded.write_deadline_ms), or connections (more than nats.embedded.max_connections_per_user of one user).",
	}, []string{labelReason})
	for _, reason := range []string{"pending", "deadline", "connections"} {
		m.clientsCut.WithLabelValues(reason)
	}
	m.registry.MustRegister(m.clientsCut)
	exceeded := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fila_limits_exceeded_total", Help: "Times that a limit was exceeded, by its name: rate, window or concurrency of throttle keys (messages had to wait, or the guard refused a call), max_failures of circuits, max_failures_per_key of queues.",
	}, []string{labelLimit})
	m.exceeded = make(map[string]prometheus.Counter)
	for _, limit := range []string{"rate", "window", "concurrency", limitMaxFailures, limitMaxFailuresPerKey} {
		m.exceeded[limit] = exceeded.WithLabelValues(limit)
	}
	m.registry.MustRegister(exceeded)
	m.mu.queues = make(map[string]*Queue)
	for kind := gates.ByNothing + 1; kind < gates.BlockKinds; kind++ {
		m.limits[kind] = m.exceeded[kind.String()]
	}
	m.none = newQueue(m, "", true)
	m.guard = newQueue(m, nameOfGuard, true)
	m.others = [queue.Roles]*Queue{newQueue(m, nameOfOthers, true), newQueue(m, wire.DLQ(nameOfOthers), true)}
	m.commitDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "fila_commit_duration_seconds",
		Help:    "Time of a group commit of the store, fsync included. A cluster has fila_cluster_append_duration_seconds instead.",
		Buckets: prometheus.ExponentialBuckets(.0001, 2, 16), // 100 us to 3.3 s
	})
	m.commitBatch = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "fila_commit_batch_size",
		Help:    "Batches of changes in one group commit.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 15), // 1 to 16,384
	})
	for _, outcome := range []string{"allowed", "circuit", "rate", "window", "concurrency", "reserved", "turn", "paused", wire.GateLate} {
		m.guardChecks.WithLabelValues(outcome) // from 0 on
	}
	for _, outcome := range []string{"ok", "error", "expired", "operator"} {
		m.guardEnded.WithLabelValues(outcome)
	}
	m.guardCheck = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "fila_guard_check_duration_seconds",
		Help:    "Time to decide a check of the guard.",
		Buckets: prometheus.ExponentialBuckets(.000_001, 4, 10), // 1 us to 262 ms
	})
	m.registry.MustRegister(
		m.commitDuration, m.commitBatch, m.guardCheck, m.guardChecks, m.guardEnded, m.guardCapped,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Handler serves what Gather reads.
func (m *Metrics) Handler() http.Handler {
	return promhttp.InstrumentMetricHandler(m.registry, promhttp.HandlerFor(m, promhttp.HandlerOpts{EnableOpenMetrics: true}))
}

// Gather reads all metrics, sorted by name, after bringing up to date what is counted
// elsewhere.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	m.mu.Lock()
	update, gauges := m.mu.sync, m.mu.gauges
	m.mu.Unlock()
	if update != nil {
		update()
	}
	families, err := m.registry.Gather()
	families = append(families, m.ofQueues(gauges)...)
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return families, err
}

// SetExports begins, once, to count requests to a collector of OpenTelemetry. It returns
// what counts one, by what it is about and whether the collector has taken it.
func (m *Metrics) SetExports() (exported func(signal string, ok bool)) {
	exports := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fila_otel_exports_total", Help: "Requests to the OpenTelemetry collector, by signal (traces or metrics) and result: sent, or lost if the collector did not accept them.",
	}, []string{"signal", "result"})
	m.registry.MustRegister(exports)
	for _, signal := range []string{"traces", "metrics"} {
		for _, result := range []string{"sent", "lost"} {
			exports.WithLabelValues(signal, result) // from 0 on
		}
	}
	return func(signal string, ok bool) {
		result := "lost"
		if ok {
			result = "sent"
		}
		exports.WithLabelValues(signal, result).Inc()
	}
}

// SetSync names a function that is called before each scrape, from any
// goroutine, to bring counters up to date.
func (m *Metrics) SetSync(update func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.sync = update
}

// SetGauges names, once, the function that reads the gauges of all queues. It is
// called at each scrape, from any goroutine, and must return soon.
func (m *Metrics) SetGauges(read func() []Gauges) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.gauges = read
}

// NameQueues has queues be told by their names that fit, as many as there is room for, and
// their dead letter queues with them. It is called before there are queues.
func (m *Metrics) NameQueues(fits func(queue string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.fits = fits
}

// SetBuild says, once, which build of fila this is.
func (m *Metrics) SetBuild(version string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fila_build_info", Help: "Always 1; the labels name the build of fila.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(info)
}

// SetReady names, once, the function that says whether /readyz says yes, under the rules
// of SetGauges.
func (m *Metrics) SetReady(ready func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fila_ready", Help: "1 while /readyz answers 200, otherwise 0.",
	}, func() float64 { return boolean(ready()) }))
}

// SetNode names, once, the function that reads the state of what all queues share,
// under the rules of SetGauges.
func (m *Metrics) SetNode(read func() Node) { m.registry.MustRegister(nodeCollector(read)) }

// SetLimits names, once, the function that says how full the limits are, under the
// rules of SetGauges.
func (m *Metrics) SetLimits(read func() []Limit) { m.registry.MustRegister(limitCollector(read)) }

// SetDisk names, once, the function that says how full the disk of the store is, under
// the rules of SetGauges.
func (m *Metrics) SetDisk(read func() (free int64, low, known bool)) {
	m.registry.MustRegister(diskCollector(read))
}

// SetStuck names, once, the function that counts what is stuck of queues, under the rules of
// SetGauges.
func (m *Metrics) SetStuck(read func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fila_stuck_queues",
		Help: "Queues with a lock held for four seconds or more, a defect of fila: they take or deliver no messages, and /readyz answers 503.",
	}, func() float64 { return float64(read()) }))
}

// SetShared names, once, the function that reads the state of what filas share, under
// the rules of SetGauges.
func (m *Metrics) SetShared(read func() Shared) { m.registry.MustRegister(sharedCollector(read)) }

// Queue returns the counters of a queue, the same ones for every call until Drop.
// It takes a lock: call it once per queue and keep the result.
func (m *Metrics) Queue(name string) *Queue {
	m.mu.Lock()
	defer m.mu.Unlock()
	q, ok := m.mu.queues[name]
	if !ok {
		q = newQueue(m, name, m.names(name))
		if q.named && !wire.IsDLQ(name) {
			m.mu.named++
		}
		m.mu.queues[name] = q
	}
	return q
}

// names reports whether a new queue is told by its name, for as long as it is there. It
// needs mu.
func (m *Metrics) names(name string) bool {
	source := wire.Source(name)
	if q := m.mu.queues[source]; q != nil { // name is its dead letter queue
		return q.named
	}
	return m.mu.named < maxNamedQueues && (m.mu.fits == nil || m.mu.fits(source))
}

// Drop removes a deleted queue. Whoever still holds its [Queue] counts into the
// void.
func (m *Metrics) Drop(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q, ok := m.mu.queues[name]
	switch {
	case !ok:
		return
	case !q.named: // what is told of all that are not named does not go back
		m.others[sideOf(name)].absorb(q)
	case !wire.IsDLQ(name):
		m.mu.named--
	}
	delete(m.mu.queues, name)
}

// Refused counts a refusal that belongs to no queue that exists. The name that
// was asked for is not a label: whoever invents names must not fill the registry.
func (m *Metrics) Refused(errCode int) { m.none.Refused(errCode) }

// GuardChecked counts a call that the guard was asked for, by the kind of gate that
// refused it; "" is allowed.
func (m *Metrics) GuardChecked(gate string) {
	m.guardChecks.WithLabelValues(cmp.Or(gate, "allowed")).Inc()
	if limit := m.exceeded[gate]; limit != nil {
		limit.Inc()
	}
}

// GuardTook counts a check of the guard by the time in which it was decided (ns).
// One that is part of a trace is an exemplar.
func (m *Metrics) GuardTook(ns int64, p wire.TraceParent) {
	if !p.Sampled {
		m.guardCheck.Observe(float64(ns) / 1e9)
		return
	}
	m.guardCheck.(prometheus.ExemplarObserver).ObserveWithExemplar(float64(ns)/1e9, exemplarOf(p))
}

// GuardEnded counts n permits of the guard by how they ended.
func (m *Metrics) GuardEnded(how string, n int64) { m.guardEnded.WithLabelValues(how).Add(float64(n)) }

// GuardCapped counts a request to the guard that a key of limits refused.
func (m *Metrics) GuardCapped(limit string) { m.guardCapped.WithLabelValues(limit).Inc() }

// GuardFailed counts a failed call of the guard by its severity; "" is medium.
func (m *Metrics) GuardFailed(severity string) { m.guard.Failure(severity) }

// ClientCut counts a client that the embedded NATS server has cut off.
func (m *Metrics) ClientCut(reason string) { m.clientsCut.WithLabelValues(reason).Inc() }

// CircuitHeld counts a circuit that too many failures have opened.
func (m *Metrics) CircuitHeld() { m.exceeded[limitMaxFailures].Inc() }

// SetCircuits names, once, the function that reads how circuits stand, under the rules
// of SetGauges.
func (m *Metrics) SetCircuits(read func() Circuits) { m.registry.MustRegister(circuitCollector(read)) }

// ThrottleHeld says how often a throttle key has held something back.
type ThrottleHeld struct {
	Key       string // as people read it
	BlockedBy string
	N         int64
}

type throttleCollector func() []ThrottleHeld

func (throttleCollector) Describe(ch chan<- *prometheus.Desc) { ch <- throttleHeldDesc }

func (read throttleCollector) Collect(ch chan<- prometheus.Metric) {
	for _, h := range read() {
		ch <- prometheus.MustNewConstMetric(throttleHeldDesc, prometheus.CounterValue, float64(h.N), h.Key, h.BlockedBy)
	}
}

// SetThrottles names, once, the function that reads what throttle keys with limits of
// their own have held back, under the rules of SetGauges.
func (m *Metrics) SetThrottles(read func() []ThrottleHeld) {
	m.registry.MustRegister(throttleCollector(read))
}

// Commit counts a group commit of the store: how long it took, fsync included,
// and how many batches shared it.
func (m *Metrics) Commit(took time.Duration, batches int) {
	m.commitDuration.Observe(took.Seconds())
	m.commitBatch.Observe(float64(batches))
}
