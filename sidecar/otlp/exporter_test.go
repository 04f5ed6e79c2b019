package otlp

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/filaq/fila/sidecar/otlp/otlptest"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counts are the requests that an exporter has counted.
type counts struct {
	sync.Mutex
	n map[string]int
}

func (c *counts) exported(signal string, ok bool) {
	c.Lock()
	defer c.Unlock()
	if ok {
		signal += " sent"
	}
	c.n[signal]++
}

func (c *counts) of(what string) int {
	c.Lock()
	defer c.Unlock()
	return c.n[what]
}

func options(endpoint, protocol string) (Options, *counts, *bytes.Buffer) {
	c, log := &counts{n: make(map[string]int)}, &bytes.Buffer{}
	registry := prometheus.NewRegistry()
	return Options{
		Log: slog.New(slog.NewTextHandler(log, nil)), Endpoint: endpoint, Protocol: protocol, Version: "1.2.3", Instance: "here",
		Header: http.Header{"Authorization": {"Bearer x"}}, Spans: true, Every: time.Hour, Gather: registry.Gather, Exported: c.exported,
	}, c, log
}

// stop stops an exporter without a time limit, so that it sends everything.
func stop(e *Exporter) { e.Stop(context.Background()) }

var parent = wire.TraceParent{Trace: [16]byte{1, 2, 3}, Span: [8]byte{4, 5}, Sampled: true}

func record(e *Exporter) {
	e.Record(&telemetry.Span{
		Name: "wait orders", Parent: parent, Start: 1_000_000_000, End: 3_000_000_000, Error: "boom",
		Attrs: []slog.Attr{
			slog.String("queue", "orders"), slog.Int("attempt", 2), slog.Bool("allowed", true), slog.Any("throttle_keys", []string{"a", "b"}),
			slog.Duration("delay", 1500*time.Millisecond), slog.Float64("weight", .5), slog.Uint64("seq", 7),
		},
		Events: []telemetry.SpanEvent{{Name: "held by throttle:v", At: 2_000_000_000, Attrs: []slog.Attr{slog.String("blocked_by", "rate")}}},
	})
	e.Record(&telemetry.Span{Name: "job redrive orders", Kind: telemetry.SpanServer, Start: 1, End: 2})
}

// requireRecorded requires that the spans of record have arrived.
func requireRecorded(t *testing.T, spans map[string][]*tracepb.Span) {
	t.Helper()
	require.Len(t, spans["wait orders"], 1)
	wait := spans["wait orders"][0]
	require.Equal(t, parent.Trace[:], wait.GetTraceId())
	require.Equal(t, parent.Span[:], wait.GetParentSpanId())
	require.EqualValues(t, 1_000_000_000, wait.GetStartTimeUnixNano())
	require.EqualValues(t, 3_000_000_000, wait.GetEndTimeUnixNano())
	require.Equal(t, tracepb.Status_STATUS_CODE_ERROR, wait.GetStatus().GetCode())
	require.Equal(t, "boom", wait.GetStatus().GetMessage())
	require.Equal(t, map[string]string{
		"messaging.destination.name": "orders", "fila.attempt": "2", "fila.allowed": "true", "fila.throttle_keys": "a;b;",
		"fila.delay": "1.5", "fila.weight": "0.5", "fila.seq": "7",
	}, otlptest.Attrs(wait.GetAttributes()))
	require.Len(t, wait.GetEvents(), 1)
	require.Equal(t, "held by throttle:v", wait.GetEvents()[0].GetName())
	require.EqualValues(t, 2_000_000_000, wait.GetEvents()[0].GetTimeUnixNano())
	require.Equal(t, map[string]string{"fila.blocked_by": "rate"}, otlptest.Attrs(wait.GetEvents()[0].GetAttributes()))
	require.Len(t, spans["job redrive orders"], 1)
	job := spans["job redrive orders"][0]
	require.Empty(t, job.GetParentSpanId(), "it begins a trace")
	require.Equal(t, tracepb.Span_SPAN_KIND_SERVER, job.GetKind())
	require.Equal(t, tracepb.Status_STATUS_CODE_UNSET, job.GetStatus().GetCode())
}

func TestSpansByHTTP(t *testing.T) {
	c := otlptest.New(t)
	o, sent, log := options(c.URL, HTTP)
	e, err := Start(o)
	require.NoError(t, err)
	record(e)
	stop(e)
	requireRecorded(t, c.Spans())
	require.Equal(t, "Bearer x", c.Requests()[0].Header.Get("Authorization"))
	require.Equal(t, "fila/1.2.3", c.Requests()[0].Header.Get("User-Agent"))
	require.Equal(t, map[string]string{"service.name": "fila", "service.version": "1.2.3", "service.instance.id": "here"}, c.Resource())
	require.Equal(t, 1, sent.of("traces sent"))
	require.Equal(t, 1, sent.of("metrics sent"), "the last ones")
	require.Empty(t, log.String())
}

func TestTheEnvironmentNamesTheService(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "orders-fila")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod")
	c := otlptest.New(t)
	o, _, _ := options(c.URL, HTTP)
	e, err := Start(o)
	require.NoError(t, err)
	record(e)
	stop(e)
	r := c.Resource()
	require.Equal(t, "orders-fila", r["service.name"])
	require.Equal(t, "prod", r["deployment.environment.name"])
	require.Equal(t, "1.2.3", r["service.version"])
}

// The exporter retries temporary refusals; spans refused for good are lost, with a log line.
func TestRefusals(t *testing.T) {
	c := otlptest.New(t)
	o, sent, log := options(c.URL+"/", HTTP)
	o.Every = 0
	e, err := Start(o)
	require.NoError(t, err)
	c.Refuse(otlptest.Refusal{Status: http.StatusServiceUnavailable}, otlptest.Refusal{Status: http.StatusTooManyRequests, RetryAfter: 1})
	record(e)
	stop(e)
	requireRecorded(t, c.Spans())
	require.Len(t, c.Requests(), 3)
	require.Equal(t, 1, sent.of("traces sent"))
	require.Empty(t, log.String())

	c = otlptest.New(t)
	o, sent, log = options(c.URL, HTTP)
	o.Every = 0
	e, err = Start(o)
	require.NoError(t, err)
	c.Refuse(otlptest.Refusal{Status: http.StatusUnauthorized})
	record(e)
	stop(e)
	require.Empty(t, c.Spans())
	require.Len(t, c.Requests(), 1)
	require.Equal(t, 1, sent.of("traces"))
	require.Contains(t, log.String(), "does not accept data")
	require.Contains(t, log.String(), "401")
}

// Without a collector neither Record nor Stop waits.
func TestNoCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and says nothing
	require.NoError(t, err)
	defer l.Close()
	for _, protocol := range []string{HTTP, GRPC} {
		o, _, _ := options("http://"+l.Addr().String(), protocol)
		e, err := Start(o)
		require.NoError(t, err)
		for range 3 * maxSpans {
			record(e)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		e.Stop(ctx)
	}
}

// roundTrip answers requests in place of a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Stop waits for a slow collector no longer than its context permits, and not at all for an
// unreachable one.
func TestStopIsShort(t *testing.T) {
	silent := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	away := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
	busy := func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
	}
	const lastFor = time.Second
	for _, c := range []struct {
		name      string
		collector roundTrip
		tried     time.Duration // before the end
		most      time.Duration
	}{
		{"silent", silent, 0, lastFor},
		{"silent, and tried before", silent, 7 * time.Second, lastFor},
		{"away", away, 0, 0},
		{"away, and tried before", away, 7 * time.Second, 0},
		{"busy", busy, 7 * time.Second, lastFor},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, sent, log := options("http://collector", HTTP)
				o.Every, o.transport = time.Second, c.collector
				e, err := Start(o)
				require.NoError(t, err)
				record(e)
				time.Sleep(c.tried) // of the bubble: spans and metrics are on their way
				synctest.Wait()
				record(e)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), lastFor)
				defer cancel()
				e.Stop(ctx)
				require.LessOrEqual(t, time.Since(began), c.most)
				require.Zero(t, sent.of("traces sent")+sent.of("metrics sent"))
				require.NotZero(t, sent.of("traces"), "they are counted as lost")
				require.NotZero(t, sent.of("metrics"))
				require.NotEmpty(t, log.String())
			})
		})
	}
}

// grpcCollector is a collector on an independent implementation of gRPC.
type grpcCollector struct {
	sync.Mutex
	fail    []error // of the next requests for traces
	spans   []*tracepb.ResourceSpans
	metrics []*metricspb.ResourceMetrics
	header  metadata.MD
}

func (c *grpcCollector) trace(ctx context.Context, r *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	c.Lock()
	defer c.Unlock()
	c.header, _ = metadata.FromIncomingContext(ctx)
	if len(c.fail) > 0 {
		err := c.fail[0]
		c.fail = c.fail[1:]
		return nil, err
	}
	c.spans = append(c.spans, r.GetResourceSpans()...)
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

type traceService struct {
	collectortrace.UnimplementedTraceServiceServer
	*grpcCollector
}

func (s traceService) Export(ctx context.Context, r *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	return s.trace(ctx, r)
}

type metricsService struct {
	collectormetrics.UnimplementedMetricsServiceServer
	*grpcCollector
}

func (s metricsService) Export(_ context.Context, r *collectormetrics.ExportMetricsServiceRequest) (*collectormetrics.ExportMetricsServiceResponse, error) {
	s.Lock()
	defer s.Unlock()
	s.metrics = append(s.metrics, r.GetResourceMetrics()...)
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}

func startGRPC(t *testing.T) (*grpcCollector, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c, s := &grpcCollector{}, grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(s, traceService{grpcCollector: c})
	collectormetrics.RegisterMetricsServiceServer(s, metricsService{grpcCollector: c})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-served)
	})
	return c, "http://" + l.Addr().String()
}

// An independent gRPC implementation understands the exporter's gRPC.
func TestSpansAndMetricsByGRPC(t *testing.T) {
	c, endpoint := startGRPC(t)
	o, sent, log := options(endpoint, GRPC)
	registry := prometheus.NewRegistry()
	total := prometheus.NewCounter(prometheus.CounterOpts{Name: "fila_total", Help: "All."})
	total.Add(3)
	registry.MustRegister(total)
	o.Gather = registry.Gather
	c.fail = []error{status.Error(codes.Unavailable, "later")}
	e, err := Start(o)
	require.NoError(t, err)
	record(e)
	stop(e)
	requireRecorded(t, otlptest.SpansOf(c.spans))
	require.Equal(t, []string{"Bearer x"}, c.header.Get("authorization"))
	require.Len(t, c.metrics, 1)
	m := c.metrics[0].GetScopeMetrics()[0].GetMetrics()
	require.Len(t, m, 1)
	require.Equal(t, "fila_total", m[0].GetName())
	require.InDelta(t, 3, m[0].GetSum().GetDataPoints()[0].GetAsDouble(), 0)
	require.Equal(t, 1, sent.of("traces sent"))
	require.Equal(t, 1, sent.of("metrics sent"))
	require.Empty(t, log.String())
}

func TestRefusalsByGRPC(t *testing.T) {
	c, endpoint := startGRPC(t)
	o, sent, log := options(endpoint, GRPC)
	o.Every = 0
	c.fail = []error{status.Error(codes.PermissionDenied, "not you, naïve")}
	e, err := Start(o)
	require.NoError(t, err)
	record(e)
	stop(e)
	require.Empty(t, c.spans)
	require.Equal(t, 1, sent.of("traces"))
	require.Contains(t, log.String(), "gRPC status 7: not you, naïve")
}

func TestMetricsByHTTP(t *testing.T) {
	c := otlptest.New(t)
	o, _, _ := options(c.URL+"/prefix", HTTP)
	mux := http.NewServeMux()
	mux.Handle("/prefix/", http.StripPrefix("/prefix", c))
	s := httptest.NewServer(mux)
	defer s.Close()
	o.Endpoint, o.Spans, o.Every = s.URL+"/prefix", false, time.Millisecond
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fila_enqueued_total", Help: "Messages."}, []string{"queue"})
	counter.WithLabelValues("orders").Add(5)
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fila_depth", Help: "Depth."})
	gauge.Set(-2)
	latency := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fila_latency", Help: "Latency.", Buckets: []float64{1, 2}})
	latency.Observe(.5)
	latency.Observe(.6)
	latency.(prometheus.ExemplarObserver).ObserveWithExemplar(7, prometheus.Labels{
		"trace_id": "01020300000000000000000000000000", "span_id": "0405000000000000", "other": "x",
	})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "fila_summary", Help: "Summary.", Objectives: map[float64]float64{.5: .1}})
	summary.Observe(4)
	registry.MustRegister(counter, gauge, latency, summary)
	var mu sync.Mutex
	reads, enough := 0, make(chan struct{})
	o.Gather = func() ([]*dto.MetricFamily, error) {
		mu.Lock()
		defer mu.Unlock()
		if reads++; reads == 3 {
			close(enough)
		}
		return registry.Gather()
	}
	e, err := Start(o)
	require.NoError(t, err)
	<-enough
	stop(e)
	m := c.Metrics()
	sum := m["fila_enqueued_total"].GetSum()
	require.True(t, sum.GetIsMonotonic())
	require.Equal(t, metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE, sum.GetAggregationTemporality())
	require.InDelta(t, 5, sum.GetDataPoints()[0].GetAsDouble(), 0)
	require.Equal(t, map[string]string{"queue": "orders"}, otlptest.Attrs(sum.GetDataPoints()[0].GetAttributes()))
	require.LessOrEqual(t, sum.GetDataPoints()[0].GetStartTimeUnixNano(), sum.GetDataPoints()[0].GetTimeUnixNano())
	require.NotZero(t, sum.GetDataPoints()[0].GetStartTimeUnixNano())
	require.InDelta(t, -2, m["fila_depth"].GetGauge().GetDataPoints()[0].GetAsDouble(), 0)
	h := m["fila_latency"].GetHistogram().GetDataPoints()[0]
	require.Equal(t, []float64{1, 2}, h.GetExplicitBounds())
	require.Equal(t, []uint64{2, 0, 1}, h.GetBucketCounts())
	require.EqualValues(t, 3, h.GetCount())
	require.InDelta(t, 8.1, h.GetSum(), 1e-9)
	require.Len(t, h.GetExemplars(), 1)
	require.Equal(t, parent.Trace[:], h.GetExemplars()[0].GetTraceId())
	require.Equal(t, parent.Span[:], h.GetExemplars()[0].GetSpanId())
	require.InDelta(t, 7, h.GetExemplars()[0].GetAsDouble(), 0)
	require.Equal(t, map[string]string{"other": "x"}, otlptest.Attrs(h.GetExemplars()[0].GetFilteredAttributes()))
	q := m["fila_summary"].GetSummary().GetDataPoints()[0]
	require.EqualValues(t, 1, q.GetCount())
	require.InDelta(t, 4, q.GetQuantileValues()[0].GetValue(), 0)
	require.Equal(t, "fila", c.Resource()["service.name"])
}

func TestHTTPS(t *testing.T) {
	c := &otlptest.Collector{}
	s := httptest.NewUnstartedServer(c)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	o, _, said := options(s.URL, HTTP)
	o.CA = ca
	e, err := Start(o)
	require.NoError(t, err)
	record(e)
	stop(e)
	requireRecorded(t, c.Spans())
	require.Empty(t, said.String())

	require.NoError(t, os.WriteFile(ca, []byte("nothing"), 0o600))
	_, err = Start(o)
	require.ErrorContains(t, err, "no certificate")
	o.CA = filepath.Join(t.TempDir(), "none.pem")
	_, err = Start(o)
	require.True(t, errors.Is(err, os.ErrNotExist), err)
}

// BenchmarkRecord measures what a sampled message costs its queue, without the collector.
func BenchmarkRecord(b *testing.B) {
	c := otlptest.New(b)
	o, _, _ := options(c.URL, HTTP)
	e, err := Start(o)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		e.Record(&telemetry.Span{
			Name: "wait orders", Parent: parent, Start: 1, End: 2,
			Attrs:  []slog.Attr{slog.String("queue", "orders"), slog.String("id", "7"), slog.Int("attempt", 1), slog.String("key", "acme")},
			Events: []telemetry.SpanEvent{{Name: "enqueued", At: 1, Attrs: []slog.Attr{slog.String("decided_by", "headers"), slog.Float64("weight", 1)}}},
		})
	}
	b.StopTimer()
	stop(e)
}
