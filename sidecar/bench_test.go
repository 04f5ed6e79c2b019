package sidecar

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// BenchmarkLife is the whole life of a message of 1 KB in one process: enqueue with confirmation,
// commit with fsync, delivery, ack, commit. One producer with at most 1,024 unconfirmed enqueues, one
// consumer with a credit of 1,024, embedded NATS without a socket.
func BenchmarkLife(b *testing.B) { benchmarkLife(b, nil, ``, noHeader) }

// BenchmarkLifeGated is BenchmarkLife with a circuit or throttle key on each message, local or shared
// through a bucket that no other fila uses.
func BenchmarkLifeGated(b *testing.B) {
	const settings = `{"circuit_header":"Circuit","throttle_headers":["Throttle"]}`
	for _, gate := range []string{"Circuit", "Throttle"} {
		for _, shared := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/shared=%t", gate, shared), func(b *testing.B) {
				benchmarkLife(b, func(cfg *config.Config) {
					cfg.NATS.Embedded.JetStream = true
					cfg.Shared.Enabled, cfg.Shared.Keys = shared, []string{"circuit:*", "throttle:*"}
					cfg.Throttles = []config.ThrottleTable{{Key: "vendor", Rate: wire.Rate("100000000")}}
				}, settings, func() nats.Header { return nats.Header{gate: {"vendor"}} })
			})
		}
	}
}

func noHeader() nats.Header { return nil }

func benchmarkLife(b *testing.B, configure func(*config.Config), settings string, header func() nats.Header) {
	const window = 1024
	x := startSite(b, b.TempDir(), configure)
	defer x.end()
	x.must("fila.admin.queue-create.orders", settings, nil)
	done := make(chan struct{})
	acked := 0
	_, err := x.nc.Subscribe("fila.deliver.w.orders", func(m *nats.Msg) {
		if m.Respond(nil) == nil {
			acked++
		}
		if acked == b.N {
			close(done)
		}
	})
	require.NoError(b, err)
	x.must("fila.consume.orders", fmt.Sprintf(`{"consumer":"w","max_in_flight":%d}`, window), nil)
	producer, err := nats.Connect("", nats.InProcessServer(x.s.endpoints.embedded))
	require.NoError(b, err)
	defer producer.Close()
	free := make(chan struct{}, window)
	inbox := nats.NewInbox()
	refused := 0
	_, err = producer.Subscribe(inbox, func(m *nats.Msg) {
		if wire.ParseError(m.Header, m.Data) != nil {
			refused++
		}
		<-free
	})
	require.NoError(b, err)
	payload := make([]byte, 1024)
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		free <- struct{}{}
		if err := producer.PublishMsg(&nats.Msg{Subject: "fila.enqueue.orders", Reply: inbox, Header: header(), Data: payload}); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	for range window {
		free <- struct{}{} // the last confirmation has arrived
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	require.Zero(b, refused)
}
