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
	label      string // beside the queue; empty: none
}

// maxNamedQueues is how many queues are told by their names. It bounds what a scrape costs,
// and the series that Prometheus keeps.
const maxNamedQueues = 2000

// nameOfOthers stands for all queues that are not named, of which the sums are told. No
// queue can be called so.
const nameOfOthers = "(others)"

// nameOfGuard stands for the guard where failures are counted by queue. No queue can be
// called so.
const nameOfGuard = "(guard)"

func sideOf(name string) queue.Role {
	if wire.IsDLQ(name) {
		return queue.Dead
	}
	return queue.Main
}

// scrape puts together what is told of queues. It makes the families itself: a registry
// has an object for each series, moved or not, and a scrape makes several more of each.
//
// A series is told from the moment on when it is not zero, at its first scrape for gauges,
// and then for good, zero or not. Only the depth is told of each queue that is no dead
// letter queue, so that one sees that there is the queue.
type scrape struct {
	families map[string]*dto.MetricFamily
	pairs    map[[2]string]*dto.LabelPair // second labels
}

// subject is whose series are told.
type subject struct {
	label   *dto.LabelPair
	created *timestamppb.Timestamp
	traced  *Queue // whose exemplars are told; nil: none are
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

// counters tells what has been counted.
func (m *Metrics) counters(s *scrape) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sums [queue.Roles]figures
	for side, q := range m.others {
		q.addTo(&sums[side])
	}
	tell := func(q *Queue) {
		var f figures
		q.addTo(&f)
		s.figures(q.subject(), &f)
	}
	tell(m.none)
	tell(m.guard)
	for _, name := range slices.Sorted(maps.Keys(m.mu.queues)) {
		if q := m.mu.queues[name]; q.named {
			tell(q)
		} else {
			q.addTo(&sums[sideOf(name)])
		}
	}
	for side, q := range m.others {
		s.figures(q.subject(), &sums[side])
	}
}

// gauges tells how queues stand. What the sums of all others count goes on when one of those
// is deleted, from what its last scrape told.
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
		case m.mu.queues[g.Queue] == g.Counters: // it was not deleted meanwhile
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

// figures tells what has been counted of a queue.
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

// gauges tells how a queue stands.
func (s *scrape) gauges(g *Gauges) {
	told := uint64(0)
	if sideOf(g.Queue) == queue.Main {
		told = 1 << depthGauge
	}
	set := func(bit int, v float64) {
		if v != 0 {
			told |= 1 << bit
		}
	}
	for i := range gaugeSpecs {
		set(i, gaugeSpecs[i].value(g))
	}
	for kind, n := range g.BlockedBy {
		set(parkedBit+kind, float64(n))
	}
	for _, h := range g.Hooks {
		set(hookBit+slices.Index(hookKinds, h.Hook), stateValues[h.State])
	}
	told |= g.Counters.told.Or(told)

	of := g.Counters.subject()
	tell := func(spec *spec, bit int, value string, v float64) {
		if told&(1<<bit) != 0 {
			s.number(spec, of, value, v)
		}
	}
	for i := range gaugeSpecs {
		tell(&gaugeSpecs[i].spec, i, "", gaugeSpecs[i].value(g))
	}
	for kind := gates.ByNothing + 1; kind < gates.BlockKinds; kind++ {
		tell(&parkedSpec, parkedBit+int(kind), kind.String(), float64(g.BlockedBy[kind]))
		if v := g.Totals.Blocked[kind]; v != 0 {
			s.number(&blockedSpec, of, kind.String(), v)
		}
	}
	for _, h := range g.Hooks {
		if v, ok := stateValues[h.State]; ok {
			tell(&hookCircuitSpec, hookBit+slices.Index(hookKinds, h.Hook), h.Hook, v)
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

// number tells a counter or a gauge. What belongs to it is allocated in one piece.
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

// histogram tells one; count has one more than bounds, for what lies beyond.
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
			continue // the one beyond all bounds needs not be said
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
