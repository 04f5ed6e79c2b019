package client

import (
	"bytes"
	"context"
	"strconv"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/filaq/fila/wire"
)

// WithTracer makes OpenTelemetry spans by the semantic conventions for messaging:
//
//   - "publish QUEUE" for each message, until it is confirmed. The header traceparent carries
//     its context, unless the message has one already.
//   - "process QUEUE" for each handler of a [Consumer], with a link to the span of the
//     publish; [ProcessInTrace] makes that the parent. It is in the handler's context.
//   - "settle QUEUE" for an ack, nack or term, until fila confirms or refuses it or, without a
//     confirmation, until it is sent.
//
// Requests to the guard carry the context of their caller.
func WithTracer(p trace.TracerProvider) Option {
	return func(o *options) { o.tracer = p.Tracer("github.com/filaq/fila/client") }
}

// ProcessInTrace makes the span of the publish the parent of the span of the handler, so that
// both are in one trace. It needs [WithTracer].
func ProcessInTrace() ConsumeOption { return func(o *consumeOptions) { o.inTrace = true } }

// injectTrace sets the headers with the context of a trace.
func injectTrace(ctx context.Context, h nats.Header) {
	fields := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, fields)
	for name, value := range fields {
		h[name] = []string{value}
	}
}

func messageAttrs(name, kind, queue string, more ...attribute.KeyValue) trace.SpanStartEventOption {
	return trace.WithAttributes(append([]attribute.KeyValue{
		attribute.String("messaging.system", "fila"), attribute.String("messaging.operation.name", name),
		attribute.String("messaging.operation.type", kind), attribute.String("messaging.destination.name", queue),
	}, more...)...)
}

// publishing begins the span of a message and sets its traceparent. It returns nil if there
// is no tracer.
func (c *Client) publishing(ctx context.Context, queue string, msg *nats.Msg) trace.Span {
	if c.tracer == nil {
		return nil
	}
	ctx, span := c.tracer.Start(ctx, "publish "+queue, trace.WithSpanKind(trace.SpanKindProducer),
		messageAttrs("publish", "send", queue, attribute.Int("messaging.message.body.size", len(msg.Data))))
	if !wire.HasTraceParent(msg.Header) {
		injectTrace(ctx, msg.Header)
	}
	return span
}

// published ends the span of a message, if it has one.
func published(span trace.Span, r Receipt, err error) {
	if span != nil && r.ID != "" {
		span.SetAttributes(attribute.String("messaging.message.id", r.ID), attribute.Bool("fila.duplicate", r.Duplicate))
	}
	endSpan(span, err)
}

// endSpan ends a span, if there is one.
func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		kind := "_OTHER"
		if code := refusalIn(err).ErrCode; code != 0 {
			kind = strconv.Itoa(code)
		}
		span.SetAttributes(attribute.String("error.type", kind))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// producer returns the context of the message's publish, if it has one.
func (m *Message) producer() (trace.SpanContext, bool) {
	p, ok := wire.TraceParentOf(m.Header)
	if !ok {
		return trace.SpanContext{}, false
	}
	var flags trace.TraceFlags
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: p.Trace, SpanID: p.Span, TraceFlags: flags.WithSampled(p.Sampled), Remote: true,
	}), true
}

func (m *Message) attrs(name, kind string, more ...attribute.KeyValue) trace.SpanStartEventOption {
	return messageAttrs(name, kind, m.Queue, append([]attribute.KeyValue{
		attribute.String("messaging.message.id", m.ID), attribute.String("fila.key", m.Key), attribute.Int("fila.attempt", m.Attempt),
	}, more...)...)
}

// processing begins the span of a handler and returns the handler's context.
func (k *Consumer) processing(ctx context.Context, m *Message) (context.Context, trace.Span) {
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		m.attrs("process", "process", attribute.String("messaging.consumer.group.name", k.o.name), attribute.Int("messaging.message.body.size", len(m.Data))),
	}
	switch producer, ok := m.producer(); {
	case ok && k.o.inTrace:
		ctx = trace.ContextWithRemoteSpanContext(ctx, producer)
	case ok:
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: producer}))
	}
	ctx, span := k.c.tracer.Start(ctx, "process "+m.Queue, opts...)
	m.process = span.SpanContext()
	return ctx, span
}

// settling begins the span of an answer, a child of the handler's span or else of the span in
// ctx. It returns nil if there is no tracer.
func (m *Message) settling(ctx context.Context, payload []byte) trace.Span {
	if m.c.tracer == nil {
		return nil
	}
	if m.process.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, m.process)
	}
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient), m.attrs("settle", "settle", attribute.String("fila.outcome", outcomeOf(payload))),
	}
	if producer, ok := m.producer(); ok {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: producer}))
	}
	_, span := m.c.tracer.Start(ctx, "settle "+m.Queue, opts...)
	return span
}

// outcomeOf returns ack, nack or term.
func outcomeOf(payload []byte) string {
	switch {
	case bytes.HasPrefix(payload, []byte("-NAK")):
		return "nack"
	case bytes.HasPrefix(payload, []byte("+TERM")):
		return "term"
	}
	return "ack"
}
