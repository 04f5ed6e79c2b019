// Package otlptest is an OpenTelemetry collector for tests. It stores what it receives by OTLP.
package otlptest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector stores what it receives. Its methods may be called from any goroutine.
type Collector struct {
	URL string

	mu struct {
		sync.Mutex
		refusals []Refusal // answers to the next requests
		requests []*http.Request
		spans    []*tracepb.ResourceSpans
		metrics  []*metricspb.ResourceMetrics
	}
}

// Refusal is an error answer to a request.
type Refusal struct {
	Status     int
	RetryAfter int // seconds
}

// New starts a collector that stops at the end of the test.
func New(t testing.TB) *Collector {
	c := &Collector{}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// Refuse makes the collector refuse the next requests.
func (c *Collector) Refuse(refusals ...Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.refusals = append(c.mu.refusals, refusals...)
}

// ServeHTTP stores a request.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.requests = append(c.mu.requests, r)
	if len(c.mu.refusals) > 0 {
		first := c.mu.refusals[0]
		c.mu.refusals = c.mu.refusals[1:]
		if first.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(first.RetryAfter))
		}
		http.Error(w, "no", first.Status)
		return
	}
	if r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "not OTLP", http.StatusUnsupportedMediaType)
		return
	}
	switch r.URL.Path {
	case "/v1/traces":
		var data tracepb.TracesData
		err = proto.Unmarshal(body, &data)
		c.mu.spans = append(c.mu.spans, data.GetResourceSpans()...)
	case "/v1/metrics":
		var data metricspb.MetricsData
		err = proto.Unmarshal(body, &data)
		c.mu.metrics = append(c.mu.metrics, data.GetResourceMetrics()...)
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// Requests returns all requests so far.
func (c *Collector) Requests() []*http.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*http.Request(nil), c.mu.requests...)
}

// Spans returns the names of all spans so far.
func (c *Collector) Spans() map[string][]*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return SpansOf(c.mu.spans)
}

// SpansOf returns all spans so far by name.
func SpansOf(all []*tracepb.ResourceSpans) map[string][]*tracepb.Span {
	spans := make(map[string][]*tracepb.Span)
	for _, rs := range all {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				spans[s.GetName()] = append(spans[s.GetName()], s)
			}
		}
	}
	return spans
}

// Metrics returns the latest metrics by name.
func (c *Collector) Metrics() map[string]*metricspb.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	metrics := make(map[string]*metricspb.Metric)
	for _, rm := range c.mu.metrics {
		for _, sm := range rm.GetScopeMetrics() {
			for _, m := range sm.GetMetrics() {
				metrics[m.GetName()] = m
			}
		}
	}
	return metrics
}

// Resource returns the attributes of the resource of the latest metrics and spans.
func (c *Collector) Resource() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]string)
	for _, rm := range c.mu.metrics {
		add(all, rm.GetResource().GetAttributes())
	}
	for _, rs := range c.mu.spans {
		add(all, rs.GetResource().GetAttributes())
	}
	return all
}

// Attrs returns attributes as text.
func Attrs(list []*commonpb.KeyValue) map[string]string {
	all := make(map[string]string)
	add(all, list)
	return all
}

func add(all map[string]string, list []*commonpb.KeyValue) {
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			all[kv.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *commonpb.AnyValue_DoubleValue:
			all[kv.GetKey()] = strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
		case *commonpb.AnyValue_BoolValue:
			all[kv.GetKey()] = strconv.FormatBool(v.BoolValue)
		case *commonpb.AnyValue_ArrayValue:
			for _, one := range v.ArrayValue.GetValues() {
				all[kv.GetKey()] += one.GetStringValue() + ";"
			}
		}
	}
}

// Hex returns the id of a trace or span as in a traceparent.
func Hex(id []byte) string { return hex.EncodeToString(id) }
