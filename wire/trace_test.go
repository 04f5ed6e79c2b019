package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	sampledParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestTraceParent(t *testing.T) {
	want := TraceParent{
		Trace: [16]byte{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c},
		Span:  [8]byte{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}, Sampled: true,
	}
	for _, name := range []string{"traceparent", "Traceparent", "TRACEPARENT", "TraceParent"} {
		got, ok := Sampled(header{"tenant": {"acme"}, name: {sampledParent}})
		require.True(t, ok, name)
		require.Equal(t, want, got, name)
		got, ok = SampledIn(EncodeHeaders(nil, header{"tenant": {"acme"}, name: {sampledParent}, "z": {"1"}}))
		require.True(t, ok, name)
		require.Equal(t, want, got, name)
	}
	got, ok := TraceParentOf(header{"TraceParent": {unsampledParent}})
	require.True(t, ok)
	require.False(t, got.Sampled)
	require.True(t, HasTraceParent(header{"TraceParent": {"nonsense"}}))
	require.False(t, HasTraceParent(header{"Traceparents": {sampledParent}}))
	// A later version may have more flags, and more behind them.
	_, ok = Sampled(header{"traceparent": {"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0f-more"}})
	require.True(t, ok)
	for what, h := range map[string]header{
		"none":              {"tenant": {"acme"}},
		"no headers":        nil,
		"not sampled":       {"traceparent": {unsampledParent}},
		"another flag":      {"traceparent": {sampledParent[:53] + "02"}},
		"empty":             {"traceparent": {""}},
		"no value":          {"traceparent": {}},
		"short":             {"traceparent": {sampledParent[:54]}},
		"longer":            {"traceparent": {sampledParent + "-x"}},
		"version ff":        {"traceparent": {"ff" + sampledParent[2:]}},
		"upper case":        {"traceparent": {"00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01"}},
		"no hex":            {"traceparent": {"00-0af7651916cd43dd8448eb211c80319x-b7ad6b7169203331-01"}},
		"no hex flags":      {"traceparent": {sampledParent[:53] + "x1"}},
		"no hex version":    {"traceparent": {"0x" + sampledParent[2:]}},
		"no dashes":         {"traceparent": {"00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01"}},
		"no trace":          {"traceparent": {"00-00000000000000000000000000000000-b7ad6b7169203331-01"}},
		"no span":           {"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"}},
		"two":               {"traceparent": {sampledParent, sampledParent}},
		"two of other case": {"TraceParent": {sampledParent}, "TRACEPARENT": {sampledParent}},
		"later and cut off": {"traceparent": {"01" + sampledParent[2:] + "x"}},
	} {
		_, ok := Sampled(h)
		require.False(t, ok, what)
		_, ok = SampledIn(EncodeHeaders(nil, h))
		require.False(t, ok, what)
	}
	broken := EncodeHeaders(nil, header{"traceparent": {sampledParent}})
	for n := range broken {
		_, ok := SampledIn(broken[:n])
		require.False(t, ok, n)
	}
}

// unsampled are typical headers of messages without a trace.
var unsampled = map[string]header{
	"flag": {"tenant": {"acme"}, "traceparent": {unsampledParent}},
	"none": {"tenant": {"acme"}, "Content-Type": {"application/json"}},
	"nil":  nil,
}

// With tracing on, an unsampled message costs no allocation here; BenchmarkUnsampled has the
// time.
func TestUnsampledAllocatesNothing(t *testing.T) {
	for what, h := range unsampled {
		b := EncodeHeaders(nil, h)
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = SampledIn(b) }), what)
	}
}

func BenchmarkUnsampled(b *testing.B) {
	for what, h := range unsampled {
		b.Run(what, func(b *testing.B) {
			headers := EncodeHeaders(nil, h)
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := SampledIn(headers); ok {
					b.Fatal(what)
				}
			}
		})
	}
}
