package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func newTracer() (*tracetest.SpanRecorder, *sdktrace.TracerProvider) {
	r := tracetest.NewSpanRecorder()
	return r, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r))
}

// ended waits for n spans that have ended, and returns them by name.
func ended(t *testing.T, r *tracetest.SpanRecorder, n int) map[string]sdktrace.ReadOnlySpan {
	t.Helper()
	require.Eventually(t, func() bool { return len(r.Ended()) >= n }, patience, time.Millisecond)
	require.Len(t, r.Ended(), n)
	spans := make(map[string]sdktrace.ReadOnlySpan)
	for _, s := range r.Ended() {
		spans[s.Name()] = s
	}
	return spans
}

func attrsOf(s sdktrace.ReadOnlySpan) map[string]string {
	all := make(map[string]string)
	for _, kv := range s.Attributes() {
		all[string(kv.Key)] = kv.Value.String()
	}
	return all
}

// Each way to publish has a span, whose context the message carries.
func TestPublishSpans(t *testing.T) {
	r, provider := newTracer()
	f, c := setup(t, WithTracer(provider))
	got := make(chan *nats.Msg, 10)
	f.handle("fila.enqueue.orders", func(msg *nats.Msg) {
		got <- msg
		if msg.Reply == "" {
			return
		}
		f.reply(msg, wire.EnqueueReply{ID: "7", Queue: "orders"})
	})
	f.handle("fila.enqueue.full", func(msg *nats.Msg) { f.reply(msg, wire.BacklogMessages("full", 1, time.Second)) })
	caller, outer := provider.Tracer("").Start(t.Context(), "outer")
	_, err := c.Publish(caller, "orders", []byte("hello"))
	require.NoError(t, err)
	outer.End()
	s := ended(t, r, 2)["publish orders"]
	require.Equal(t, trace.SpanKindProducer, s.SpanKind())
	require.Equal(t, outer.SpanContext().SpanID(), s.Parent().SpanID())
	require.Equal(t, map[string]string{
		"messaging.system": "fila", "messaging.operation.name": "publish", "messaging.operation.type": "send", "messaging.destination.name": "orders",
		"messaging.message.body.size": "5", "messaging.message.id": "7", "fila.duplicate": "false",
	}, attrsOf(s))
	p, ok := wire.Sampled((<-got).Header)
	require.True(t, ok)
	require.Equal(t, [16]byte(s.SpanContext().TraceID()), p.Trace)
	require.Equal(t, [8]byte(s.SpanContext().SpanID()), p.Span)

	_, err = c.PublishAsync(caller, "orders", nil)
	require.NoError(t, err)
	<-c.PublishAsyncComplete()
	require.NoError(t, c.Send("orders", nil))
	require.Len(t, r.Ended(), 4)
	for range 2 {
		_, ok = wire.Sampled((<-got).Header)
		require.True(t, ok)
	}
	// A traceparent that is there stays, in whichever case it is written.
	_, err = c.Publish(t.Context(), "orders", nil, Header("TraceParent", "mine"))
	require.NoError(t, err)
	msg := <-got
	require.Equal(t, []string{"mine"}, msg.Header["TraceParent"])
	require.NotContains(t, msg.Header, "traceparent")

	_, err = c.Publish(t.Context(), "full", nil)
	require.Error(t, err)
	s = ended(t, r, 6)["publish full"]
	require.Equal(t, codes.Error, s.Status().Code)
	require.Equal(t, "10429", attrsOf(s)["error.type"])
}

const publishedUnder = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func (f *fakeFila) deliverTraced(id string) {
	msg := f.delivery("fila.deliver.w1.orders", id, 2)
	msg.Header["Traceparent"] = []string{publishedUnder}
	require.NoError(f.t, f.nc.PublishMsg(msg))
}

// The span of a handler is linked to the span of the producer, or is its child. The span of the
// answer is a child of it and ends with the confirmation.
func TestProcessSpans(t *testing.T) {
	for _, inTrace := range []bool{false, true} {
		r, provider := newTracer()
		f, c := setup(t, WithTracer(provider))
		var opts []ConsumeOption
		if inTrace {
			opts = append(opts, ProcessInTrace())
		}
		seen := make(chan trace.SpanContext, 3)
		k, _ := consume(t, c, func(ctx context.Context, m *Message) error {
			seen <- trace.SpanContextFromContext(ctx)
			if m.ID == "bad" {
				return errors.New("boom")
			}
			return nil
		}, opts...)
		f.deliverTraced("good")
		spans := ended(t, r, 2)
		process, settle := spans["process orders"], spans["settle orders"]
		require.Equal(t, process.SpanContext(), <-seen)
		require.Equal(t, trace.SpanKindConsumer, process.SpanKind())
		attrs := attrsOf(process)
		require.Equal(t, "good", attrs["messaging.message.id"])
		require.Equal(t, "w1", attrs["messaging.consumer.group.name"])
		require.Equal(t, "2", attrs["fila.attempt"])
		const producerTrace, producerSpan = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
		if inTrace {
			require.Equal(t, producerTrace, process.SpanContext().TraceID().String())
			require.Equal(t, producerSpan, process.Parent().SpanID().String())
			require.Empty(t, process.Links())
		} else {
			require.NotEqual(t, producerTrace, process.SpanContext().TraceID().String())
			require.Len(t, process.Links(), 1)
			require.Equal(t, producerSpan, process.Links()[0].SpanContext.SpanID().String())
		}
		require.Equal(t, process.SpanContext().SpanID(), settle.Parent().SpanID())
		require.Equal(t, trace.SpanKindClient, settle.SpanKind())
		require.Equal(t, "ack", attrsOf(settle)["fila.outcome"])
		require.Len(t, settle.Links(), 1)

		r.Reset()
		f.deliverTraced("bad")
		spans = ended(t, r, 2)
		require.Equal(t, codes.Error, spans["process orders"].Status().Code)
		require.Equal(t, "boom", spans["process orders"].Status().Description)
		require.Equal(t, "nack", attrsOf(spans["settle orders"])["fila.outcome"])
		require.Equal(t, codes.Unset, spans["settle orders"].Status().Code)

		r.Reset()
		f.refuseWith(wire.LeaseLost())
		f.deliverTraced("late")
		spans = ended(t, r, 2)
		require.Equal(t, codes.Error, spans["settle orders"].Status().Code)
		f.refuseWith(nil)
		require.NoError(t, stopWithin(t, k, patience))
	}
}

// The span of a handler that panics ends with the panic as its error.
func TestProcessSpanOfAPanic(t *testing.T) {
	r, provider := newTracer()
	f, c := setup(t, WithTracer(provider))
	k, _ := consume(t, c, func(context.Context, *Message) error { panic("oh") })
	f.deliverTraced("bad")
	spans := ended(t, r, 2)
	require.Equal(t, "panic: oh", spans["process orders"].Status().Description)
	require.NoError(t, stopWithin(t, k, patience))
}

// The answer of a message without a Consumer has a span, a child of the span in the context of
// the call.
func TestSettleSpansOfFetched(t *testing.T) {
	r, provider := newTracer()
	f, c := setup(t, WithTracer(provider))
	msg := f.delivery("x", "1", 1)
	msg.Header["traceparent"] = []string{publishedUnder}
	ctx, outer := provider.Tracer("").Start(t.Context(), "outer")
	require.NoError(t, c.newMessage(msg, "orders").TermSync(ctx, "bad", ""))
	s := ended(t, r, 1)["settle orders"]
	require.Equal(t, outer.SpanContext().SpanID(), s.Parent().SpanID())
	require.Equal(t, "term", attrsOf(s)["fila.outcome"])
	require.Len(t, s.Links(), 1)
	outer.End()
	r.Reset()
	require.NoError(t, c.newMessage(msg, "orders").Ack())
	s = ended(t, r, 1)["settle orders"]
	require.False(t, s.Parent().IsValid())
	require.Contains(t, s.Attributes(), attribute.String("messaging.operation.type", "settle"))
}

// Requests to the guard carry the context of their caller.
func TestTheGuardIsToldOfTheTrace(t *testing.T) {
	_, provider := newTracer()
	f, c := setup(t, WithTracer(provider))
	headers := make(chan nats.Header, 2)
	f.handle("fila.guard.>", func(msg *nats.Msg) {
		headers <- msg.Header
		f.reply(msg, api.GuardAnswer{Allowed: true, Permit: "p"})
	})
	ctx, span := provider.Tracer("").Start(t.Context(), "outer")
	defer span.End()
	require.NoError(t, c.Guard().Do(ctx, []string{"stripe"}, func(context.Context) error { return nil }))
	for range 2 {
		p, ok := wire.Sampled(<-headers)
		require.True(t, ok)
		require.Equal(t, [8]byte(span.SpanContext().SpanID()), p.Span)
	}
}
