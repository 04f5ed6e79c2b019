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
	"github.com/filaq/fila/wire/api"
)

// Metrics holds everything under /metrics: counters and gauges of queues, histograms of the
// store, and the collectors of the Go runtime and the process.
type Metrics struct {
	registry *prometheus.Registry // metrics that do not belong to queues
	none     *Queue               // requests that name no existing queue
	guard    *Queue               // failed calls of the guard
	others   [queue.Roles]*Queue  // deleted queues that were not exported by name

	guardChecks, guardEnded, guardCapped, clientsCut *prometheus.CounterVec

	exceeded map[string]prometheus.Counter        // by limit; written only by New
	limits   [gates.BlockKinds]prometheus.Counter // the entries of exceeded that are gates; nil for other kinds

	commitDuration prometheus.Histogram
	commitBatch    prometheus.Histogram
	guardCheck     prometheus.Histogram

	mu struct {
		sync.Mutex
		queues map[string]*Queue
		named  int                     // queues exported by name, not counting their dead letter queues
		fits   func(queue string) bool // whether a queue may be exported by name; nil allows all
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

// New returns metrics in which all counters are 0.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.guardChecks = m.counterVec("guard_checks_total", "Checks of the guard, by outcome: allowed, the kind of gate that refused, or late (the caller has stopped waiting).",
		labelOutcome, "allowed", "circuit", "rate", "window", "concurrency", "reserved", "turn", "paused", "budget", api.GateLate)
	m.guardEnded = m.counterVec("guard_ended_total", "Permits of the guard that ended, by outcome: ok, error, expired (without a done), or operator.",
		labelOutcome, "ok", "error", "expired", "operator")
	m.guardCapped = m.counterVec("guard_capped_total", "Requests that the guard refused because a limit on their number was reached, by key of [limits]: max_guard_permits, max_guard_key_permits, max_guard_caller_permits, max_throttle_keys or max_circuits.",
		labelLimit, "max_guard_permits", "max_guard_key_permits", "max_guard_caller_permits", "max_throttle_keys", "max_circuits")
	m.clientsCut = m.counterVec("nats_clients_cut_total", "Clients that the embedded NATS server disconnected, by reason: pending (nats.embedded.max_pending bytes unread), deadline (nothing read for nats.embedded.write_deadline_ms), or connections (more than nats.embedded.max_connections_per_user of one user).",
		labelReason, "pending", "deadline", "connections")
	exceeded := m.counterVec("limits_exceeded_total", "Times that a limit was exceeded, by its name: rate, window or concurrency of throttle keys (messages had to wait, or the guard refused a call), max_failures of circuits, max_failures_per_key of queues.", labelLimit)
	m.exceeded = make(map[string]prometheus.Counter)
	for _, limit := range []string{"rate", "window", "concurrency", limitMaxFailures, limitMaxFailuresPerKey} {
		m.exceeded[limit] = exceeded.WithLabelValues(limit)
	}
	m.mu.queues = make(map[string]*Queue)
	for kind := gates.ByNothing + 1; kind < gates.BlockKinds; kind++ {
		m.limits[kind] = m.exceeded[kind.String()]
	}
	m.none = newQueue(m, "", true)
	m.guard = newQueue(m, nameOfGuard, true)
	m.others = [queue.Roles]*Queue{newQueue(m, nameOfOthers, true), newQueue(m, wire.DLQ(nameOfOthers), true)}
	m.commitDuration = m.histogram("commit_duration_seconds", "Time of a group commit of the store, fsync included. A cluster has fila_cluster_append_duration_seconds instead.",
		.0001, 2, 16) // 100 us to 3.3 s
	m.commitBatch = m.histogram("commit_batch_size", "Batches of changes in a group commit.", 1, 2, 15)                 // 1 to 16,384
	m.guardCheck = m.histogram("guard_check_duration_seconds", "Time to decide a check of the guard.", .000_001, 4, 10) // 1 us to 262 ms
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// counterVec registers a counter with one label, and exports 0 for these values of it before the
// first event.
func (m *Metrics) counterVec(name, help, label string, values ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fila_" + name, Help: help}, []string{label})
	for _, value := range values {
		vec.WithLabelValues(value)
	}
	m.registry.MustRegister(vec)
	return vec
}

// histogram registers a histogram of n buckets, each factor times as wide as the one before.
func (m *Metrics) histogram(name, help string, first, factor float64, n int) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fila_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(first, factor, n)})
	m.registry.MustRegister(h)
	return h
}

// Handler serves the result of Gather.
func (m *Metrics) Handler() http.Handler {
	return promhttp.InstrumentMetricHandler(m.registry, promhttp.HandlerFor(m, promhttp.HandlerOpts{EnableOpenMetrics: true}))
}

// Gather updates the counters that other packages keep, then reads all metrics, sorted by name.
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

// SetExports starts to count requests to an OpenTelemetry collector. The returned function
// counts one request by signal and by whether the collector accepted it. Call it once.
func (m *Metrics) SetExports() (exported func(signal string, ok bool)) {
	exports := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fila_otel_exports_total", Help: "Requests to the OpenTelemetry collector, by signal (traces or metrics) and result: sent, or lost if the collector did not accept them.",
	}, []string{"signal", "result"})
	m.registry.MustRegister(exports)
	for _, signal := range []string{"traces", "metrics"} {
		for _, result := range []string{"sent", "lost"} {
			exports.WithLabelValues(signal, result) // exports 0 before the first request
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

// SetSync sets a function that updates counters before each scrape. Any goroutine may call it.
func (m *Metrics) SetSync(update func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.sync = update
}

// SetGauges sets the function that reads the gauges of all queues. Each scrape calls it, from
// any goroutine, so it must return quickly. Call SetGauges once.
func (m *Metrics) SetGauges(read func() []Gauges) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.gauges = read
}

// NameQueues exports queues by name if fits allows it, up to maxNamedQueues, together with
// their dead letter queues. Call it before any queue exists.
func (m *Metrics) NameQueues(fits func(queue string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.fits = fits
}

// SetBuild sets the build information. Call it once.
func (m *Metrics) SetBuild(version string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fila_build_info", Help: "Always 1; the labels name the build of fila.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	})
	info.Set(1)
	m.registry.MustRegister(info)
}

// Queue returns the counters of a queue, the same object until Drop. It takes a lock: call it
// once per queue and keep the result.
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

// names reports whether a new queue is exported by name, which holds until it is deleted. The
// caller holds mu.
func (m *Metrics) names(name string) bool {
	source := wire.Source(name)
	if q := m.mu.queues[source]; q != nil { // name is the dead letter queue of source
		return q.named
	}
	return m.mu.named < maxNamedQueues && (m.mu.fits == nil || m.mu.fits(source))
}

// Drop removes a deleted queue. Later counts in its [Queue] are lost.
func (m *Metrics) Drop(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q, ok := m.mu.queues[name]
	switch {
	case !ok:
		return
	case !q.named: // keeps the sums of the other queues from decreasing
		m.others[sideOf(name)].absorb(q)
	case !wire.IsDLQ(name):
		m.mu.named--
	}
	delete(m.mu.queues, name)
}

// Refused counts a refused request that names no existing queue. The name is not a label, so
// that clients cannot fill the registry with invented names.
func (m *Metrics) Refused(errCode int) { m.none.Refused(errCode) }

// GuardChecked counts a check of the guard by the kind of gate that refused the call; "" means
// allowed.
func (m *Metrics) GuardChecked(gate string) {
	m.guardChecks.WithLabelValues(cmp.Or(gate, "allowed")).Inc()
	if limit := m.exceeded[gate]; limit != nil {
		limit.Inc()
	}
}

// GuardTook records the time (ns) that a check of the guard took. A sampled trace becomes an
// exemplar.
func (m *Metrics) GuardTook(ns int64, p wire.TraceParent) {
	if !p.Sampled {
		m.guardCheck.Observe(float64(ns) / 1e9)
		return
	}
	m.guardCheck.(prometheus.ExemplarObserver).ObserveWithExemplar(float64(ns)/1e9, exemplarOf(p))
}

// GuardEnded counts n permits of the guard by how they ended.
func (m *Metrics) GuardEnded(how string, n int64) { m.guardEnded.WithLabelValues(how).Add(float64(n)) }

// GuardCapped counts a guard request refused because it exceeds a limit on keys.
func (m *Metrics) GuardCapped(limit string) { m.guardCapped.WithLabelValues(limit).Inc() }

// GuardFailed counts a failed call of the guard by its severity; "" is medium.
func (m *Metrics) GuardFailed(severity string) { m.guard.Failure(severity) }

// ClientCut counts a client that the embedded NATS server disconnected.
func (m *Metrics) ClientCut(reason string) { m.clientsCut.WithLabelValues(reason).Inc() }

// CircuitHeld counts a circuit that opened after too many failures.
func (m *Metrics) CircuitHeld() { m.exceeded[limitMaxFailures].Inc() }

// Commit records a group commit of the store: its duration including fsync, and the number of
// batches in it.
func (m *Metrics) Commit(took time.Duration, batches int) {
	m.commitDuration.Observe(took.Seconds())
	m.commitBatch.Observe(float64(batches))
}
