package guard

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// BenchmarkGuard is a check and its done, from the request bytes to the reply bytes, at two
// keys with limits that are never reached.
func BenchmarkGuard(b *testing.B) {
	now := func() int64 { return time.Now().UnixNano() }
	gates := throttle.New(throttle.Start{}, now())
	signer, err := wire.NewSigner(make([]byte, wire.SignerKeyLen))
	require.NoError(b, err)
	g := New(Options{
		Now: now, Gates: gates,
		Circuits: circuit.New(circuit.Options{
			Log: slog.New(slog.DiscardHandler), Now: now,
			Event:  func(string, string, wire.Event) {},
			Submit: func(b *store.Batch) { b.Done(nil) },
		}),
		Rules:  func() *rules.Rules { return nil },
		Tables: func() []config.GuardTable { return nil }, ExpiredFails: func(string) bool { return false },
		Notify: func([]*throttle.Wait) {}, Keep: func([]string, int64) (func(), func() *wire.Error) { return nil, nil }, Signer: signer, Metrics: telemetry.New(),
		MaxPayload: func() int64 { return 1 << 20 }, Caps: Caps{Permits: 1e6, ThrottleKeys: 1e6, Circuits: 1e5},
	})
	defer g.Stop()
	second, err := throttle.ParseRate("1000000")
	require.NoError(b, err)
	limits := throttle.Limits{Rate: second, Burst: 1e6 * throttle.One, Concurrency: 1e6, Limit: 1e9, Window: int64(time.Second)}
	for _, key := range []string{"vendor:stripe", "tenant:acme"} {
		_, err = gates.SetLimits(key, limits, now(), nil)
		require.NoError(b, err)
	}
	const before = len(`{"allowed":true,"permit":"`)
	ask, done := []byte(`{"with":["tenant:acme"]}`), []byte(`{"permit":"`)
	b.ReportAllocs()
	for b.Loop() {
		reply := g.checkVerb("vendor:stripe", ask, api.GuardOrigin{})
		if reply.Err != nil {
			b.Fatal(reply.Err)
		}
		tell := append(done, reply.Body[before:before+wire.PermitLen]...)
		if reply := g.doneVerb("vendor:stripe", append(tell, `","outcome":"ok"}`...), api.GuardOrigin{}); reply.Err != nil {
			b.Fatal(reply.Err)
		}
	}
}
