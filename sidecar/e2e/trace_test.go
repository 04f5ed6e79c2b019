package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	goclient "github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/otlp/otlptest"
)

// TestATraceFromPythonToGo: a producer in Python begins a trace, fila adds the wait of the message, and
// a consumer in Go continues it: one trace.
func TestATraceFromPythonToGo(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	collector := otlptest.New(t)
	p := startFila(t, options{tail: fmt.Sprintf("[otel]\nendpoint = %q\nmetrics_interval_ms = 500\n[[queue]]\nname = \"orders\"\n", collector.URL)})
	nc, err := nats.Connect(p.URL)
	require.NoError(t, err)
	defer nc.Close()
	recorder := tracetest.NewSpanRecorder()
	c, err := goclient.New(nc, goclient.WithTracer(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))))
	require.NoError(t, err)
	got := make(chan *goclient.Message, 1)
	k, err := c.Consume(t.Context(), "orders", func(_ context.Context, m *goclient.Message) error {
		got <- m
		return nil
	}, goclient.ProcessInTrace())
	require.NoError(t, err)

	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	at, err := url.Parse(p.URL)
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), python, "testdata/trace_producer.py", at.Hostname(), at.Port(), "orders", "00-"+trace+"-"+span+"-01").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), `"queue":"orders"`)
	m := <-got
	require.Equal(t, "from Python", string(m.Data))
	require.Equal(t, []string{"00-" + trace + "-" + span + "-01"}, m.Header["Traceparent"], "untouched")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, k.Stop(ctx))
	// A stop waits a second at most for the collector, which may be too short on a loaded
	// machine.
	eventually(t, func() bool {
		return len(collector.Spans()["wait orders"]) == 1 && collector.Metrics()["fila_enqueued_total"] != nil
	})
	p.Stop(t)

	spans := collector.Spans()["wait orders"]
	require.Len(t, spans, 1)
	require.Equal(t, trace, otlptest.Hex(spans[0].GetTraceId()))
	require.Equal(t, span, otlptest.Hex(spans[0].GetParentSpanId()))
	require.Equal(t, m.ID, otlptest.Attrs(spans[0].GetAttributes())["messaging.message.id"])
	require.NotEmpty(t, collector.Metrics()["fila_enqueued_total"])
	names := make(map[string]string) // of the consumer's spans, to the id of their parent
	for _, s := range recorder.Ended() {
		require.Equal(t, trace, s.SpanContext().TraceID().String())
		names[s.Name()] = s.Parent().SpanID().String()
		if s.Name() == "process orders" {
			names["process"] = s.SpanContext().SpanID().String()
		}
	}
	require.Equal(t, span, names["process orders"])
	require.Equal(t, names["process"], names["settle orders"])
}
