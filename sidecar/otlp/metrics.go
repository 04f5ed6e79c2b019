package otlp

import (
	"context"
	"encoding/hex"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// sendMetrics sends all metrics at intervals, and once more at the end.
func (e *Exporter) sendMetrics() {
	defer close(e.done)
	every := time.NewTicker(e.opt.Every)
	defer every.Stop()
	for last := false; !last; {
		select {
		case <-every.C:
		case <-e.stopping:
			last = true
		}
		families, err := e.opt.Gather()
		if err != nil { // the families that could be read are valid
			e.opt.Log.Warn("some metrics cannot be read", "error", err)
		}
		e.export(context.Background(), metrics, e.request(families, time.Now()))
	}
}

// request returns the message that carries metrics. MetricsData has the same fields as the
// request of the metrics service, whose package depends on gRPC.
func (e *Exporter) request(families []*dto.MetricFamily, now time.Time) *metricspb.MetricsData {
	m := translator{began: uint64(e.began.UnixNano()), now: uint64(now.UnixNano())}
	all := make([]*metricspb.Metric, 0, len(families))
	for _, f := range families {
		if one := m.metric(f); one != nil {
			all = append(all, one)
		}
	}
	return &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: e.resourcepb(),
		ScopeMetrics: []*metricspb.ScopeMetrics{{
			Scope: &commonpb.InstrumentationScope{Name: scope, Version: e.opt.Version}, Metrics: all,
		}},
	}}}
}

// translator converts Prometheus metrics to OpenTelemetry metrics. Names and labels stay
// unchanged.
type translator struct{ began, now uint64 } // Unix ns

// metric returns nil for kinds of metrics that fila does not have.
func (t *translator) metric(f *dto.MetricFamily) *metricspb.Metric {
	m := &metricspb.Metric{Name: f.GetName(), Description: f.GetHelp()}
	const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		sum := &metricspb.Sum{AggregationTemporality: cumulative, IsMonotonic: true}
		for _, one := range f.GetMetric() {
			c := one.GetCounter()
			sum.DataPoints = append(sum.DataPoints, t.number(one, c.GetValue(), t.since(c.GetCreatedTimestamp())))
		}
		m.Data = &metricspb.Metric_Sum{Sum: sum}
	case dto.MetricType_GAUGE:
		gauge := &metricspb.Gauge{}
		for _, one := range f.GetMetric() {
			gauge.DataPoints = append(gauge.DataPoints, t.number(one, one.GetGauge().GetValue(), 0))
		}
		m.Data = &metricspb.Metric_Gauge{Gauge: gauge}
	case dto.MetricType_HISTOGRAM:
		h := &metricspb.Histogram{AggregationTemporality: cumulative}
		for _, one := range f.GetMetric() {
			h.DataPoints = append(h.DataPoints, t.histogram(one))
		}
		m.Data = &metricspb.Metric_Histogram{Histogram: h}
	case dto.MetricType_SUMMARY:
		s := &metricspb.Summary{}
		for _, one := range f.GetMetric() {
			s.DataPoints = append(s.DataPoints, t.summary(one))
		}
		m.Data = &metricspb.Metric_Summary{Summary: s}
	default:
		return nil
	}
	return m
}

// since returns the start time of a cumulative value.
func (t *translator) since(created *timestamppb.Timestamp) uint64 {
	if created == nil {
		return t.began
	}
	return uint64(created.AsTime().UnixNano())
}

func (t *translator) number(m *dto.Metric, value float64, since uint64) *metricspb.NumberDataPoint {
	return &metricspb.NumberDataPoint{
		Attributes: labels(m.GetLabel()), StartTimeUnixNano: since, TimeUnixNano: t.now,
		Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: value},
	}
}

// histogram converts cumulative Prometheus buckets to separate OpenTelemetry buckets.
func (t *translator) histogram(m *dto.Metric) *metricspb.HistogramDataPoint {
	h := m.GetHistogram()
	sum := h.GetSampleSum()
	p := &metricspb.HistogramDataPoint{
		Attributes: labels(m.GetLabel()), StartTimeUnixNano: t.since(h.GetCreatedTimestamp()), TimeUnixNano: t.now,
		Count: h.GetSampleCount(), Sum: &sum,
	}
	below := uint64(0)
	for _, b := range h.GetBucket() {
		if x := exemplar(b.GetExemplar()); x != nil {
			p.Exemplars = append(p.Exemplars, x)
		}
		if math.IsInf(b.GetUpperBound(), 1) {
			continue
		}
		p.ExplicitBounds = append(p.ExplicitBounds, b.GetUpperBound())
		p.BucketCounts = append(p.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	p.BucketCounts = append(p.BucketCounts, h.GetSampleCount()-below)
	return p
}

func (t *translator) summary(m *dto.Metric) *metricspb.SummaryDataPoint {
	s := m.GetSummary()
	p := &metricspb.SummaryDataPoint{
		Attributes: labels(m.GetLabel()), StartTimeUnixNano: t.since(s.GetCreatedTimestamp()), TimeUnixNano: t.now,
		Count: s.GetSampleCount(), Sum: s.GetSampleSum(),
	}
	for _, q := range s.GetQuantile() {
		p.QuantileValues = append(p.QuantileValues, &metricspb.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
	}
	return p
}

// exemplar moves the ids of the trace to their fields and keeps the other labels as attributes.
func exemplar(x *dto.Exemplar) *metricspb.Exemplar {
	if x == nil {
		return nil
	}
	e := &metricspb.Exemplar{
		TimeUnixNano: uint64(x.GetTimestamp().AsTime().UnixNano()), Value: &metricspb.Exemplar_AsDouble{AsDouble: x.GetValue()},
	}
	for _, l := range x.GetLabel() {
		id, err := hex.DecodeString(l.GetValue())
		switch {
		case l.GetName() == "trace_id" && err == nil:
			e.TraceId = id
		case l.GetName() == "span_id" && err == nil:
			e.SpanId = id
		default:
			e.FilteredAttributes = append(e.FilteredAttributes, textAttribute(l.GetName(), l.GetValue()))
		}
	}
	return e
}

func labels(pairs []*dto.LabelPair) []*commonpb.KeyValue {
	list := make([]*commonpb.KeyValue, 0, len(pairs))
	for _, l := range pairs {
		list = append(list, textAttribute(l.GetName(), l.GetValue()))
	}
	return list
}

func textAttribute(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}
