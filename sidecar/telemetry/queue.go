package telemetry

import (
	"encoding/hex"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// counter is a counter whose only label is the queue. It is an index into counterSpecs and
// counted.
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
	queueCounters // the number of counters
)

// counterSpecs lists the counters. Counters whose only label is the queue come first, in the
// order of [counter]. docs/metrics.md repeats the help texts.
var counterSpecs = []spec{
	{"fila_enqueued_total", "Messages accepted.", dto.MetricType_COUNTER, ""},
	{"fila_duplicates_total", "Enqueues that got the id of an earlier message with the same Nats-Msg-Id.", dto.MetricType_COUNTER, ""},
	{"fila_delivered_total", "Deliveries published to consumers.", dto.MetricType_COUNTER, ""},
	{"fila_acked_total", "Messages finished by an ack.", dto.MetricType_COUNTER, ""},
	{"fila_nacked_total", "Attempts that ended with a nack.", dto.MetricType_COUNTER, ""},
	{"fila_expired_total", "Attempts whose lease expired.", dto.MetricType_COUNTER, ""},
	{"fila_ttl_expired_total", "Messages dead-lettered because their TTL had passed.", dto.MetricType_COUNTER, ""},
	{"fila_redriven_total", "Messages moved back from the dead letter queue, counted at the queue they returned to.", dto.MetricType_COUNTER, ""},
	{"fila_taken_back_total", "Deliveries without a subscriber; the message kept its place and its attempt.", dto.MetricType_COUNTER, ""},
	{"fila_removed_total", "Messages that an operator purged or deleted; dead letters count at the dead letter queue.", dto.MetricType_COUNTER, ""},
	{"fila_hook_warnings_total", "Fields of results of Lua hooks that took their defaults or were cut, since they were invalid.", dto.MetricType_COUNTER, ""},
	{"fila_schedule_runs_total", "Messages that schedules enqueued.", dto.MetricType_COUNTER, ""},
	{"fila_schedule_missed_total", "Missed runs of schedules that fila did not make up for.", dto.MetricType_COUNTER, ""},
	{"fila_dead_lettered_total", "Messages moved to the dead letter queue, counted at the queue they left, by reason as in Fila-Dead-Reason.", dto.MetricType_COUNTER, labelReason},
	{"fila_failures_total", "Failed attempts, by the severity of the matching error rule; medium without one. The queue (guard) has failed calls of the guard.", dto.MetricType_COUNTER, labelSeverity},
	{"fila_held_total", "Times that a gate began to block messages, by its kind: circuit, rate, window, concurrency, reserved, turn, paused or budget. Messages with the same fairness key and gates count as one.", dto.MetricType_COUNTER, labelBlockedBy},
	{"fila_hook_runs_total", "Runs of a Lua hook, failed ones included.", dto.MetricType_COUNTER, labelHook},
	{"fila_hook_failures_total", "Failed runs of a Lua hook; their messages continued with the defaults.", dto.MetricType_COUNTER, labelHook},
	{"fila_hook_bypassed_total", "Messages that bypassed a Lua hook because its circuit was open; they continued with the defaults.", dto.MetricType_COUNTER, labelHook},
	{"fila_refused_total", "Refused requests, by err_code (docs/errors.md). The label queue is empty if the request named no existing queue.", dto.MetricType_COUNTER, labelCode},
}

// Indexes into counterSpecs of counters with a second label.
const (
	deadSpec = int(queueCounters) + iota
	failuresSpec
	heldSpec
	hookRunsSpec
	hookFailuresSpec
	hookBypassedSpec
	refusedSpec
)

// latencySpec is the histogram of deliveries. The protocol reports the same buckets.
var (
	latencySpec    = spec{"fila_delivery_latency_seconds", "Time from the enqueue of a message to its delivery. It starts again when a delay ends, and when a redrive, a move or dead-lettering brings the message to a queue.", dto.MetricType_HISTOGRAM, ""}
	latencyBuckets = api.WaitBounds
)

// otherReason counts dead letters with any reason that is not in wire.Reasons.
const otherReason = "other"

var (
	reasons   = append(wire.Reasons(), otherReason)
	hookKinds = []string{"on_enqueue", "on_failure"}
)

// series is a counter of one queue: a metric with a value of its second label.
type series struct {
	spec  int // index into counterSpecs
	value string
}

// counted lists the series of a queue whose labels are known beforehand, which are all except
// refusals. The other variables are the positions where the metrics with two labels begin.
var counted, deadAt, failuresAt, heldAt, hooksAt = func() (all []series, dead, failures, held, hooks int) {
	for i := range int(queueCounters) {
		all = append(all, series{i, ""})
	}
	add := func(spec int, values ...string) (at int) {
		at = len(all)
		for _, v := range values {
			all = append(all, series{spec, v})
		}
		return at
	}
	dead = add(deadSpec, reasons...)
	failures = add(failuresSpec, rules.Severities...)
	var kinds []string
	for kind := gates.ByNothing + 1; kind < gates.ByOrder; kind++ {
		kinds = append(kinds, kind.String())
	}
	held = add(heldSpec, kinds...)
	hooks = add(hookRunsSpec, hookKinds...)
	add(hookFailuresSpec, hookKinds...)
	add(hookBypassedSpec, hookKinds...)
	return all, dead, failures, held, hooks
}()

// terminatedAt is the position of dead letters that consumers ended.
var terminatedAt = deadAt + slices.Index(reasons, wire.ReasonTerm)

// Queue holds the counters of one queue. Series that were never counted cost next to nothing.
type Queue struct {
	metrics  *Metrics
	name     string
	named    bool // exported by name
	created  *timestamppb.Timestamp
	counts   []atomic.Int64     // indexes as in counted
	exported atomic.Uint64      // gauges exported so far; see gaugeSpecs for the bits
	hooks    [2]Hook            // indexes as in hookKinds
	totals   inspect.Cumulative // totals at the last scrape if not named; guarded by Metrics.mu

	mu struct {
		sync.Mutex
		refused map[int]int64 // by err_code; nil if empty
		latency histogram
		traced  map[tracedIn]*dto.Exemplar // the last exemplar of each bucket; nil if empty
	}
}

// histogram counts by latencyBuckets. The zero value is empty.
type histogram struct {
	count []uint64 // the last element counts values above all bounds
	sum   float64
}

func (h *histogram) add(o *histogram) {
	if o.count == nil {
		return
	}
	if h.count == nil {
		h.count = make([]uint64, len(latencyBuckets)+1)
	}
	for i, n := range o.count {
		h.count[i] += n
	}
	h.sum += o.sum
}

// tracedIn is the place of an exemplar: a bucket of deliveries or of attempts with one outcome.
type tracedIn struct {
	outcome inspect.Outcome // ofDelivery for deliveries
	bucket  int
}

const ofDelivery = inspect.Outcomes

func newQueue(m *Metrics, name string, named bool) *Queue {
	q := &Queue{metrics: m, name: name, named: named, created: timestamppb.Now(), counts: make([]atomic.Int64, len(counted))}
	for i := range q.hooks {
		q.hooks[i] = Hook{q, hooksAt + i}
	}
	return q
}

// figures are the counters of one queue or the sums over several.
type figures struct {
	counts  []int64
	refused map[int]int64
	latency histogram
}

// addTo adds the counters of the queue to f.
func (q *Queue) addTo(f *figures) {
	if f.counts == nil {
		f.counts = make([]int64, len(counted))
	}
	for i := range q.counts {
		f.counts[i] += q.counts[i].Load()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if f.refused == nil && len(q.mu.refused) > 0 {
		f.refused = make(map[int]int64)
	}
	for code, n := range q.mu.refused {
		f.refused[code] += n
	}
	f.latency.add(&q.mu.latency)
}

// absorb adds the counters of another queue. The caller holds Metrics.mu.
func (q *Queue) absorb(o *Queue) {
	addTotals(&q.totals, &o.totals)
	var f figures
	o.addTo(&f)
	for i, n := range f.counts {
		q.counts[i].Add(n)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.refused == nil {
		q.mu.refused = make(map[int]int64)
	}
	for code, n := range f.refused {
		q.mu.refused[code] += n
	}
	q.mu.latency.add(&f.latency)
}

// Add adds the counters of one step of the queue.
func (q *Queue) Add(t queue.Counters) {
	for i, n := range [queueCounters]int64{
		delivered: t.Delivered, acked: t.Acked, nacked: t.Nacked, expired: t.Expired,
		ttlExpired: t.TTLExpired, redriven: t.Redriven, takenBack: t.TakenBack, removed: t.Removed,
	} {
		if n != 0 {
			q.counts[i].Add(n)
		}
	}
	if t.Failed != 0 {
		q.failures(rules.Medium).Add(t.Failed)
	}
	for kind, n := range t.Blocked {
		if n == 0 {
			continue
		}
		q.counts[heldAt+kind-int(gates.ByNothing)-1].Add(n)
		if limit := q.metrics.limits[kind]; limit != nil {
			limit.Add(float64(n))
		}
	}
}

// Scheduled counts a run of a schedule.
func (q *Queue) Scheduled() { q.counts[scheduleRuns].Add(1) }

// Missed counts omitted runs of a schedule.
func (q *Queue) Missed(n int) { q.counts[scheduleMissed].Add(int64(n)) }

// KeyHeld counts a fairness key that was paused after too many failures.
func (q *Queue) KeyHeld() { q.metrics.exceeded[limitMaxFailuresPerKey].Inc() }

// Enqueued counts an accepted message.
func (q *Queue) Enqueued() { q.counts[enqueued].Add(1) }

// Duplicate counts an enqueue that got the id of an earlier message.
func (q *Queue) Duplicate() { q.counts[duplicates].Add(1) }

// Latency records the time from a message's enqueue, or from when it became due, to its
// delivery. A sampled trace becomes an exemplar.
func (q *Queue) Latency(seconds float64, p wire.TraceParent) {
	bucket := sort.SearchFloat64s(latencyBuckets, seconds)
	q.mu.Lock()
	defer q.mu.Unlock()
	h := &q.mu.latency
	if h.count == nil {
		h.count = make([]uint64, len(latencyBuckets)+1)
	}
	h.count[bucket]++
	h.sum += seconds
	q.trace(tracedIn{ofDelivery, bucket}, seconds, p)
}

// Attempt makes a finished attempt an exemplar if its trace is sampled. The state machine has
// already counted the attempt.
func (q *Queue) Attempt(o inspect.Outcome, took int64, p wire.TraceParent) {
	if !p.Sampled {
		return
	}
	at := tracedIn{outcome: o}
	for at.bucket < len(inspect.AttemptBounds) && took > inspect.AttemptBounds[at.bucket] {
		at.bucket++
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.trace(at, float64(took)/1e9, p)
}

// trace keeps the exemplar of a sampled trace. The caller holds mu.
func (q *Queue) trace(at tracedIn, value float64, p wire.TraceParent) {
	if !p.Sampled {
		return
	}
	if q.mu.traced == nil {
		q.mu.traced = make(map[tracedIn]*dto.Exemplar)
	}
	x := &dto.Exemplar{Value: new(value), Timestamp: timestamppb.Now()}
	labels := exemplarOf(p)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		x.Label = append(x.Label, pair(name, labels[name]))
	}
	q.mu.traced[at] = x
}

// exemplarOf returns the labels of an exemplar.
func exemplarOf(p wire.TraceParent) prometheus.Labels {
	return prometheus.Labels{"trace_id": hex.EncodeToString(p.Trace[:]), "span_id": hex.EncodeToString(p.Span[:])}
}

// exemplars returns the exemplars of deliveries, or of attempts with one outcome, by bucket.
func (q *Queue) exemplars(o inspect.Outcome) (all map[int]*dto.Exemplar) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for at, x := range q.mu.traced {
		if at.outcome == o {
			if all == nil {
				all = make(map[int]*dto.Exemplar)
			}
			all[at.bucket] = x
		}
	}
	return all
}

// failures returns the counter of one severity; "" is medium.
func (q *Queue) failures(severity string) *atomic.Int64 {
	if severity == "" {
		severity = rules.Medium
	}
	return &q.counts[failuresAt+slices.Index(rules.Severities, severity)]
}

// Failure counts a failed attempt by the severity that an error rule set; "" is medium.
func (q *Queue) Failure(severity string) { q.failures(severity).Add(1) }

// DeadLettered counts a message moved to the dead letter queue, by a reason of package wire.
func (q *Queue) DeadLettered(reason string) {
	i := slices.Index(reasons, reason)
	if i < 0 {
		i = len(reasons) - 1 // otherReason
	}
	q.counts[deadAt+i].Add(1)
}

// Refused counts a refused request of this queue by its err_code.
func (q *Queue) Refused(errCode int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.refused == nil {
		q.mu.refused = make(map[int]int64)
	}
	q.mu.refused[errCode]++
}

// sum returns the sum of some series.
func (q *Queue) sum(at, n int) (sum int64) {
	for i := range n {
		sum += q.counts[at+i].Load()
	}
	return sum
}

// Snapshot returns the counters of messages, by metric name without prefix and suffix.
func (q *Queue) Snapshot() map[string]int64 {
	values := make(map[string]int64, hookWarnings+1)
	add := func(s *spec, n int64) { values[strings.TrimSuffix(strings.TrimPrefix(s.name, "fila_"), "_total")] = n }
	for i := range int(hookWarnings) {
		add(&counterSpecs[i], q.counts[i].Load())
	}
	add(&counterSpecs[deadSpec], q.sum(deadAt, len(reasons)))
	values["terminated"] = q.counts[terminatedAt].Load()
	return values
}

// Detail returns the counters for lists of queues.
func (q *Queue) Detail() api.QueueDetail {
	d := api.QueueDetail{
		Enqueued: q.counts[enqueued].Load(), Delivered: q.counts[delivered].Load(), Acked: q.counts[acked].Load(),
		Failed: q.sum(failuresAt, len(rules.Severities)), Expired: q.counts[expired].Load(),
		Terminated: q.counts[terminatedAt].Load(), DeadLettered: q.sum(deadAt, len(reasons)),
		Waits: make([]int64, len(latencyBuckets)+1),
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, n := range q.mu.latency.count {
		d.Waits[i] = int64(n)
	}
	for _, n := range q.mu.refused {
		d.Refused += n
	}
	return d
}

// MostRefused returns the error number of most refusals, 0 if there are none.
func (q *Queue) MostRefused() (code int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := int64(0)
	for c, n := range q.mu.refused {
		if n > most || n == most && c < code {
			code, most = c, n
		}
	}
	return code
}

// Hook returns the counters of one of the queue's hooks, on_enqueue or on_failure.
func (q *Queue) Hook(kind string) *Hook { return &q.hooks[slices.Index(hookKinds, kind)] }

// Hook holds the counters of one hook of one queue.
type Hook struct {
	queue *Queue
	at    int // index of its first series; the others follow at distances of len(hookKinds)
}

// Add counts runs of the hook (including failures), failed runs, messages that met its open
// circuit, and corrected fields of results.
func (h *Hook) Add(runs, failures, bypassed, warnings int64) {
	for i, n := range [...]int64{runs, failures, bypassed} {
		h.queue.counts[h.at+i*len(hookKinds)].Add(n)
	}
	h.queue.counts[hookWarnings].Add(warnings)
}
