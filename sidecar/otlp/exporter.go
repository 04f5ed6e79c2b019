package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/filaq/fila/sidecar/telemetry"
)

// Options configures an [Exporter].
type Options struct {
	Log      *slog.Logger
	Endpoint string // URL of the collector: scheme, host, port and, for HTTP, a path
	Protocol string // HTTP or GRPC
	Header   http.Header
	CA       string // PEM file with certificates; empty uses the system's
	Version  string // of fila
	Instance string // identifies this fila

	Spans bool
	// Every is the interval of metrics; 0 sends none.
	Every time.Duration
	// Gather reads the metrics. A goroutine of the exporter calls it.
	Gather func() ([]*dto.MetricFamily, error)
	// Exported counts requests to the collector by signal (traces or metrics) and by whether
	// the collector accepted them.
	Exported func(signal string, ok bool)

	transport http.RoundTripper // for tests
}

// Exporter sends spans and metrics to a collector. Its methods may be called from any
// goroutine.
type Exporter struct {
	opt      Options
	sender   *sender
	resource *resource.Resource
	provider *sdktrace.TracerProvider // nil without spans
	tracer   trace.Tracer
	began    time.Time

	stopping chan struct{}      // closed by Stop
	done     chan struct{}      // closed when the last metrics are sent; nil without metrics
	life     context.Context    // lifetime of requests
	giveUp   context.CancelFunc // ends it
}

// scope is the instrumentation scope of spans and metrics.
const scope = "github.com/filaq/fila"

// maxSpans bounds the spans that wait for the collector; further spans are dropped.
const maxSpans = 8192

// Start starts the export.
func Start(o Options) (*Exporter, error) {
	stopping := make(chan struct{})
	s, err := newSender(&o, stopping)
	if err != nil {
		return nil, err
	}
	e := &Exporter{opt: o, sender: s, stopping: stopping, began: time.Now()}
	e.life, e.giveUp = context.WithCancel(context.Background())
	// Environment variables (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) take precedence.
	e.resource, err = resource.New(context.Background(), resource.WithAttributes(
		attribute.String("service.name", "fila"), attribute.String("service.version", o.Version), attribute.String("service.instance.id", o.Instance),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if o.Spans {
		exporter, err := otlptrace.New(context.Background(), (*spanClient)(e))
		if err != nil {
			return nil, err
		}
		e.provider = sdktrace.NewTracerProvider(
			sdktrace.WithResource(e.resource), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
			sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(maxSpans)),
		)
		e.tracer = e.provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version))
	}
	if o.Every > 0 {
		e.done = make(chan struct{})
		go e.sendMetrics()
	}
	return e, nil
}

// Stop sends the remaining telemetry until ctx ends, then stops. It does not retry an
// unreachable collector.
func (e *Exporter) Stop(ctx context.Context) {
	close(e.stopping)
	defer e.giveUp()
	defer context.AfterFunc(ctx, e.giveUp)()
	if e.provider != nil { // the provider's own timeout would leave its goroutine running
		if err := e.provider.Shutdown(context.Background()); err != nil {
			e.opt.Log.Warn("spans could not be sent to the collector before the stop", "error", err)
		}
	}
	if e.done != nil {
		<-e.done
	}
	e.sender.close()
}

// Record sends a span if its trace is sampled or if the span begins a trace.
func (e *Exporter) Record(s *telemetry.Span) {
	ctx := context.Background()
	if s.Parent.Sampled {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: s.Parent.Trace, SpanID: s.Parent.Span, TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	kind := trace.SpanKindInternal
	if s.Kind == telemetry.SpanServer {
		kind = trace.SpanKindServer
	}
	_, span := e.tracer.Start(ctx, s.Name, trace.WithSpanKind(kind), trace.WithTimestamp(time.Unix(0, s.Start)), trace.WithAttributes(attributes(s.Attrs)...))
	for i := range s.Events {
		ev := &s.Events[i]
		span.AddEvent(ev.Name, trace.WithTimestamp(time.Unix(0, ev.At)), trace.WithAttributes(attributes(ev.Attrs)...))
	}
	if s.Error != "" {
		span.SetStatus(codes.Error, s.Error)
	}
	span.End(trace.WithTimestamp(time.Unix(0, s.End)))
}

// attributes returns the attributes of a span with their OpenTelemetry names.
func attributes(attrs []slog.Attr) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, len(attrs))
	for _, a := range attrs {
		key, v := attribute.Key(telemetry.AttrName(a.Key)), a.Value.Resolve()
		switch v.Kind() {
		case slog.KindInt64:
			list = append(list, key.Int64(v.Int64()))
		case slog.KindUint64:
			list = append(list, key.Int64(int64(v.Uint64())))
		case slog.KindFloat64:
			list = append(list, key.Float64(v.Float64()))
		case slog.KindBool:
			list = append(list, key.Bool(v.Bool()))
		case slog.KindDuration:
			list = append(list, key.Float64(v.Duration().Seconds()))
		default:
			if many, ok := v.Any().([]string); ok {
				list = append(list, key.StringSlice(many))
			} else {
				list = append(list, key.String(v.String()))
			}
		}
	}
	return list
}

// spanClient adapts an [Exporter] to the SDK's interface for exporters.
type spanClient Exporter

// Start does nothing: the first request connects.
func (c *spanClient) Start(context.Context) error { return nil }

// Stop does nothing: the exporter may still send metrics.
func (c *spanClient) Stop(context.Context) error { return nil }

// UploadTraces sends spans. Spans that cannot be sent are lost; export logs the error.
func (c *spanClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData has the fields of the request, and its package does not depend on gRPC.
	(*Exporter)(c).export(ctx, traces, &tracepb.TracesData{ResourceSpans: spans})
	return nil
}

// export sends a request, counts it and logs an error.
func (e *Exporter) export(ctx context.Context, what signal, request proto.Message) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	body, err := proto.Marshal(request)
	if err == nil {
		err = e.sender.send(ctx, what, body)
	}
	e.opt.Exported(what.name, err == nil)
	if err != nil {
		e.opt.Log.Warn("the OpenTelemetry collector does not accept data; the data is lost", "signal", what.name, "endpoint", e.opt.Endpoint, "error", err)
	}
}

// resourcepb returns the resource of the metrics, which identifies this fila.
func (e *Exporter) resourcepb() *resourcepb.Resource {
	r := &resourcepb.Resource{}
	for _, kv := range e.resource.Attributes() {
		r.Attributes = append(r.Attributes, textAttribute(string(kv.Key), kv.Value.String()))
	}
	return r
}
