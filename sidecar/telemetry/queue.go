package telemetry

import (
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

// counter is a counter that has no label but the queue: an index into
// counterSpecs and into Queue.counters.
type counter int

const (
	enqueued counter = iota
	duplicates
	delivered
	acked
	nacked
	expired
	ttlExpired
	redriven
	takenBack
	removed
	hookWarnings
	scheduleRuns
	scheduleMissed
	queueCounters // the number of them
)

// Queue holds the counters of one queue.
type Queue struct {
	name     string
	counters [queueCounters]prometheus.Counter
	failures map[string]prometheus.Counter        // by severity; written by newQueue only
	dead     map[string]prometheus.Counter        // by reason; written by newQueue only
	held     [queue.BlockKinds]prometheus.Counter // those of gates
	limits   [queue.BlockKinds]prometheus.Counter // of all queues; nil: not a limit
	keyHeld  prometheus.Counter                   // of all queues
	latency  prometheus.Observer
	refused  *prometheus.CounterVec
	hooks    map[string]*Hook // by kind; written by newQueue only

	// The attempt of each outcome and bucket that was traced last.
	traced struct {
		sync.Mutex
		last map[tracedAttempt]prometheus.Exemplar // nil: none was
	}
}

// tracedAttempt is where an exemplar of an attempt belongs.
type tracedAttempt struct {
	outcome queue.Outcome
	bucket  int
}

func newQueue(m *Metrics, name string) *Queue {
	q := &Queue{
		name:     name,
		failures: make(map[string]prometheus.Counter),
		dead:     make(map[string]prometheus.Counter),
		latency:  m.latency.WithLabelValues(name),
		refused:  m.counters[nameRefused],
		hooks:    make(map[string]*Hook),
	}
	for i := range q.counters {
		q.counters[i] = m.counters[counterSpecs[i].name].WithLabelValues(name)
	}
	for _, severity := range rules.Severities {
		q.failures[severity] = m.counters[nameFailures].WithLabelValues(name, severity)
	}
	for _, reason := range reasons {
		q.dead[reason] = m.counters[nameDead].WithLabelValues(name, reason)
	}
	for kind := queue.ByNothing + 1; kind < queue.ByOrder; kind++ {
		q.held[kind] = m.counters[nameHeld].WithLabelValues(name, kind.String())
		q.limits[kind] = m.exceeded[kind.String()]
	}
	q.keyHeld = m.exceeded[limitMaxFailuresPerKey]
	for _, kind := range []string{"on_enqueue", "on_failure"} {
		h := &Hook{warnings: q.counters[hookWarnings]}
		for i, metric := range hookNames {
			h.counters[i] = m.counters[metric].WithLabelValues(name, kind)
		}
		q.hooks[kind] = h
	}
	return q
}

// Add counts what a step of the queue has done.
func (q *Queue) Add(t queue.Tally) {
	for i, n := range [queueCounters]int64{
		delivered: t.Delivered, acked: t.Acked, nacked: t.Nacked, expired: t.Expired,
		ttlExpired: t.TTLExpired, redriven: t.Redriven, takenBack: t.TakenBack, removed: t.Removed,
	} {
		if n != 0 {
			q.counters[i].Add(float64(n))
		}
	}
	if t.Failed != 0 {
		q.failures[rules.Medium].Add(float64(t.Failed))
	}
	for kind, n := range t.Held {
		if n == 0 {
			continue
		}
		q.held[kind].Add(float64(n))
		if limit := q.limits[kind]; limit != nil {
			limit.Add(float64(n))
		}
	}
}

// Scheduled counts a run of a schedule.
func (q *Queue) Scheduled() { q.counters[scheduleRuns].Inc() }

// Missed counts runs of a schedule that are left out.
func (q *Queue) Missed(n int) { q.counters[scheduleMissed].Add(float64(n)) }

// KeyHeld counts a fairness key that has had too many failures.
func (q *Queue) KeyHeld() { q.keyHeld.Inc() }

// Enqueued counts a message that was accepted.
func (q *Queue) Enqueued() { q.counters[enqueued].Inc() }

// Duplicate counts an enqueue that was answered with the id of an earlier message.
func (q *Queue) Duplicate() { q.counters[duplicates].Inc() }

// Latency counts a delivery by the time since the message's enqueue, or since it
// became due. One that is part of a trace is an exemplar.
func (q *Queue) Latency(seconds float64, p wire.TraceParent) {
	if !p.Sampled {
		q.latency.Observe(seconds)
		return
	}
	q.latency.(prometheus.ExemplarObserver).ObserveWithExemplar(seconds, exemplarOf(p))
}

// exemplarOf is what an exemplar says of a trace.
func exemplarOf(p wire.TraceParent) prometheus.Labels {
	return prometheus.Labels{"trace_id": hex.EncodeToString(p.Trace[:]), "span_id": hex.EncodeToString(p.Span[:])}
}

// Attempt takes an attempt that has ended as an exemplar, if it is part of a trace. The
// machine has counted it.
func (q *Queue) Attempt(o queue.Outcome, took int64, p wire.TraceParent) {
	if !p.Sampled {
		return
	}
	at := tracedAttempt{outcome: o}
	for at.bucket < len(queue.AttemptBounds) && took > queue.AttemptBounds[at.bucket] {
		at.bucket++
	}
	q.traced.Lock()
	defer q.traced.Unlock()
	if q.traced.last == nil {
		q.traced.last = make(map[tracedAttempt]prometheus.Exemplar)
	}
	q.traced.last[at] = prometheus.Exemplar{Value: float64(took) / 1e9, Labels: exemplarOf(p), Timestamp: time.Now()}
}

// exemplars are those of attempts that ended in one way.
func (q *Queue) exemplars(o queue.Outcome) (all []prometheus.Exemplar) {
	if q == nil {
		return nil
	}
	q.traced.Lock()
	defer q.traced.Unlock()
	for at, x := range q.traced.last {
		if at.outcome == o {
			all = append(all, x)
		}
	}
	return all
}

// Failure counts a failed attempt by the severity that a rule gave it; "" is
// medium.
func (q *Queue) Failure(severity string) {
	if severity == "" {
		severity = rules.Medium
	}
	q.failures[severity].Inc()
}

// otherReason is that of a dead letter for a reason that is not one of those.
const otherReason = "other"

var reasons = append(wire.Reasons(), otherReason)

// DeadLettered counts a message that has become a dead letter, by one of the reasons of
// package wire.
func (q *Queue) DeadLettered(reason string) {
	if q.dead[reason] == nil {
		reason = otherReason
	}
	q.dead[reason].Inc()
}

// Refused counts a refusal of this queue by its err_code. Refusals are rare
// enough for the look-up.
func (q *Queue) Refused(errCode int) {
	q.refused.WithLabelValues(q.name, strconv.Itoa(errCode)).Inc()
}

// Snapshot returns what has been counted of messages, without the prefix and
// suffix of the metrics' names.
func (q *Queue) Snapshot() map[string]int64 {
	values := make(map[string]int64, hookWarnings)
	add := func(metric string, c prometheus.Counter) {
		var m dto.Metric
		if err := c.Write(&m); err == nil {
			values[strings.TrimSuffix(strings.TrimPrefix(metric, "fila_"), "_total")] += int64(m.GetCounter().GetValue())
		}
	}
	for i, c := range q.counters[:hookWarnings] {
		add(counterSpecs[i].name, c)
	}
	for _, c := range q.dead {
		add(nameDead, c)
	}
	return values
}

// Detail returns what has been counted, for lists of queues.
func (q *Queue) Detail() wire.QueueDetail {
	var m dto.Metric
	read := func(c prometheus.Counter) int64 {
		if c.Write(&m) != nil {
			return 0
		}
		return int64(m.GetCounter().GetValue())
	}
	d := wire.QueueDetail{
		Enqueued: read(q.counters[enqueued]), Delivered: read(q.counters[delivered]), Acked: read(q.counters[acked]),
		Waits: make([]int64, len(latencyBuckets)+1),
	}
	for _, c := range q.failures {
		d.Failed += read(c)
	}
	for _, c := range q.dead {
		d.DeadLettered += read(c)
	}
	if h, ok := q.latency.(prometheus.Histogram); ok && h.Write(&m) == nil {
		var below int64
		for i, b := range m.GetHistogram().GetBucket() {
			d.Waits[i] = int64(b.GetCumulativeCount()) - below
			below = int64(b.GetCumulativeCount())
		}
		d.Waits[len(latencyBuckets)] = int64(m.GetHistogram().GetSampleCount()) - below
	}
	return d
}

// Hook returns the counters of one of the queue's hooks, on_enqueue or
// on_failure.
func (q *Queue) Hook(kind string) *Hook { return q.hooks[kind] }

// hookNames are the metrics of hooks, in the order of Hook.counters.
var hookNames = [...]string{"fila_hook_runs_total", "fila_hook_failures_total", "fila_hook_bypassed_total"}

// Hook holds the counters of one hook of one queue.
type Hook struct {
	counters [len(hookNames)]prometheus.Counter
	warnings prometheus.Counter // of all hooks of the queue
}

// Add counts runs of the hook, failed ones included; failures among them;
// messages that met its open circuit; and fields of results that it corrected.
func (h *Hook) Add(runs, failures, bypassed, warnings int64) {
	for i, n := range [...]int64{runs, failures, bypassed} {
		h.counters[i].Add(float64(n))
	}
	h.warnings.Add(float64(warnings))
}
