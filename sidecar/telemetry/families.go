package telemetry

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/wire"
)

// spec describes a metric of queues.
type spec struct {
	name, help string
	kind       dto.MetricType
	label      string // in addition to the queue; empty for none
}

// maxNamedQueues is how many queues are exported by name. It bounds the cost of a scrape and
// the number of series in Prometheus.
const maxNamedQueues = 2000

// nameOfOthers labels the sums over all queues that are not exported by name. It is not a valid
// queue name.
const nameOfOthers = "(others)"

// nameOfGuard labels the guard where failures are counted by queue. It is not a valid queue
// name.
const nameOfGuard = "(guard)"

func sideOf(name string) queue.Role {
	if wire.IsDLQ(name) {
		return queue.Dead
	}
	return queue.Main
}

// scrape builds the metric families of queues. It does so without a registry, which would keep
// an object for each series, used or not, and make several more of each at a scrape.
//
// A series is exported from the first time that it is not zero (for gauges, at a scrape), and
// then for good. Only the depth is exported from the start, for each queue except dead letter
// queues, so that every queue is visible.
type scrape struct {
	families map[string]*dto.MetricFamily
	pairs    map[[2]string]*dto.LabelPair // pairs of second labels, shared by series
}

// subject is the owner of exported series.
type subject struct {
	label   *dto.LabelPair
	created *timestamppb.Timestamp
	traced  *Queue // source of exemplars; nil for none
}

func (q *Queue) subject() *subject { return &subject{pair(labelQueue, q.name), q.created, q} }

func pair(name, value string) *dto.LabelPair {
	return &dto.LabelPair{Name: new(name), Value: new(value)}
}

// ofQueues reads the metrics of all queues; gauges may be nil.
func (m *Metrics) ofQueues(gauges func() []Gauges) []*dto.MetricFamily {
	s := &scrape{families: make(map[string]*dto.MetricFamily), pairs: make(map[[2]string]*dto.LabelPair)}
	m.counters(s)
	if gauges != nil {
		m.gauges(s, gauges())
	}
	return slices.Collect(maps.Values(s.families))
}

// counters exports the counters.
func (m *Metrics) counters(s *scrape) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sums [queue.Roles]figures
	for side, q := range m.others {
		q.addTo(&sums[side])
	}
	export := func(q *Queue) {
		var f figures
		q.addTo(&f)
		s.figures(q.subject(), &f)
	}
	export(m.none)
	export(m.guard)
	for _, name := range slices.Sorted(maps.Keys(m.mu.queues)) {
		if q := m.mu.queues[name]; q.named {
			export(q)
		} else {
			q.addTo(&sums[sideOf(name)])
		}
	}
	for side, q := range m.others {
		s.figures(q.subject(), &sums[side])
	}
}

// gauges exports the gauges. The cumulative sums over the other queues keep the last totals of
// deleted ones.
func (m *Metrics) gauges(s *scrape, all []Gauges) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sums [queue.Roles]Gauges
	others := false
	for side, q := range m.others {
		sums[side] = Gauges{Queue: q.name, Counters: q, Totals: q.totals}
		others = others || q.totals != inspect.Cumulative{}
	}
	for i := range all {
		g := &all[i]
		switch {
		case g.Counters.named:
			s.gauges(g)
		case m.mu.queues[g.Queue] == g.Counters: // not deleted since g was read
			others = true
			sums[sideOf(g.Queue)].add(g)
			g.Counters.totals = g.Totals
		}
	}
	if others {
		for side := range sums {
			s.gauges(&sums[side])
		}
	}
}

// figures exports the counters of a queue.
func (s *scrape) figures(of *subject, f *figures) {
	for i, n := range f.counts {
		if n != 0 {
			s.number(&counterSpecs[counted[i].spec], of, counted[i].value, float64(n))
		}
	}
	for _, code := range slices.Sorted(maps.Keys(f.refused)) {
		s.number(&counterSpecs[refusedSpec], of, strconv.Itoa(code), float64(f.refused[code]))
	}
	if f.latency.count != nil {
		s.histogram(&latencySpec, of, "", latencyBuckets, f.latency.count, f.latency.sum, of.traced.exemplars(ofDelivery))
	}
}

// gauges exports the gauges of a queue.
func (s *scrape) gauges(g *Gauges) {
	exported := uint64(0)
	if sideOf(g.Queue) == queue.Main {
		exported = 1 << depthGauge
	}
	set := func(bit int, v float64) {
		if v != 0 {
			exported |= 1 << bit
		}
	}
	for i := range gaugeSpecs {
		set(i, gaugeSpecs[i].value(g))
	}
	for kind, n := range g.BlockedBy {
		set(blockedBit+kind, float64(n))
	}
	for _, h := range g.Hooks {
		set(hookBit+slices.Index(hookKinds, h.Hook), stateValues[h.State])
	}
	exported |= g.Counters.exported.Or(exported)

	of := g.Counters.subject()
	export := func(spec *spec, bit int, value string, v float64) {
		if exported&(1<<bit) != 0 {
			s.number(spec, of, value, v)
		}
	}
	for i := range gaugeSpecs {
		export(&gaugeSpecs[i].spec, i, "", gaugeSpecs[i].value(g))
	}
	for kind := gates.ByNothing + 1; kind < gates.BlockKinds; kind++ {
		export(&blockedNowSpec, blockedBit+int(kind), kind.String(), float64(g.BlockedBy[kind]))
		export(&parkedSpec, blockedBit+int(kind), kind.String(), float64(g.BlockedBy[kind]))
		if v := g.Totals.Blocked[kind]; v != 0 {
			s.number(&blockedSpec, of, kind.String(), v)
		}
	}
	for _, h := range g.Hooks {
		if v, ok := stateValues[h.State]; ok {
			export(&hookCircuitSpec, hookBit+slices.Index(hookKinds, h.Hook), h.Hook, v)
		}
	}
	for o := range inspect.Outcomes {
		if a := &g.Totals.Attempts[o]; *a != (inspect.Attempts{}) {
			s.histogram(&attemptSpec, of, o.String(), attemptBounds, a.Count[:], a.Took, of.traced.exemplars(o))
		}
	}
	if g.Schedules > 0 {
		s.number(&schedulesSpec, of, "", float64(g.Schedules))
	}
	if g.NextRun != 0 {
		s.number(&nextRunSpec, of, "", float64(g.NextRun)/1e9)
	}
}

// number exports a counter or a gauge, with one allocation for all its parts.
func (s *scrape) number(spec *spec, of *subject, value string, v float64) {
	if spec.kind == dto.MetricType_GAUGE {
		x := &struct {
			metric dto.Metric
			gauge  dto.Gauge
			value  float64
			labels [2]*dto.LabelPair
		}{value: v}
		x.gauge.Value = &x.value
		x.metric.Gauge = &x.gauge
		s.add(spec, of, value, &x.metric, x.labels[:0])
		return
	}
	x := &struct {
		metric  dto.Metric
		counter dto.Counter
		value   float64
		labels  [2]*dto.LabelPair
	}{value: v}
	x.counter.Value, x.counter.CreatedTimestamp = &x.value, of.created
	x.metric.Counter = &x.counter
	s.add(spec, of, value, &x.metric, x.labels[:0])
}

// histogram exports a histogram; count has one more element than bounds, for values above all
// bounds.
func (s *scrape) histogram(spec *spec, of *subject, value string, bounds []float64, count []uint64, sum float64, exemplars map[int]*dto.Exemplar) {
	buckets := make([]struct {
		bucket dto.Bucket
		count  uint64
	}, len(count))
	h := &dto.Histogram{SampleSum: &sum, Bucket: make([]*dto.Bucket, 0, len(count)), CreatedTimestamp: of.created}
	below := uint64(0)
	for i, n := range count {
		below += n
		b := &buckets[i]
		b.count = below
		b.bucket.CumulativeCount, b.bucket.Exemplar = &b.count, exemplars[i]
		switch {
		case i < len(bounds):
			b.bucket.UpperBound = &bounds[i]
		case exemplars[i] != nil:
			b.bucket.UpperBound = &infinite
		default:
			continue // the bucket above all bounds is implied
		}
		h.Bucket = append(h.Bucket, &b.bucket)
	}
	h.SampleCount = &below
	s.add(spec, of, value, &dto.Metric{Histogram: h}, nil)
}

var infinite = math.Inf(1)

// add adds a series to its family. The labels of a series are sorted by name.
func (s *scrape) add(spec *spec, of *subject, value string, m *dto.Metric, labels []*dto.LabelPair) {
	labels = append(labels, of.label)
	if spec.label != "" {
		at := [2]string{spec.label, value}
		second := s.pairs[at]
		if second == nil {
			second = pair(spec.label, value)
			s.pairs[at] = second
		}
		labels = append(labels, second)
		slices.SortFunc(labels, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	}
	m.Label = labels
	f := s.families[spec.name]
	if f == nil {
		f = &dto.MetricFamily{Name: &spec.name, Help: &spec.help, Type: &spec.kind}
		s.families[spec.name] = f
	}
	f.Metric = append(f.Metric, m)
}
