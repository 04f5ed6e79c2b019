package sidecar

import (
	"bytes"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// BenchmarkBesideLargeHeaders measures the delivery latency of a queue with 500 messages a second while
// another producer sends 60 messages of 60,000 headers each to another queue, and while it sends as
// many bytes as payload. It reports the longest latency of each. A round is a burst and 1,000 messages.
func BenchmarkBesideLargeHeaders(b *testing.B) {
	x := startSite(b, b.TempDir(), nil)
	defer x.end()
	x.must("fila.admin.queue-create.quiet", ``, nil)
	x.must("fila.admin.queue-create.noisy", ``, nil)
	delivered := make(chan time.Time, 16)
	_, err := x.nc.Subscribe("fila.deliver.w.quiet", func(m *nats.Msg) {
		delivered <- time.Now()
		if err := m.Respond(nil); err != nil {
			b.Error(err)
		}
	})
	require.NoError(b, err)
	x.must("fila.consume.quiet", `{"consumer":"w"}`, nil)
	connect := func() *nats.Conn {
		nc, err := nats.Connect("", nats.InProcessServer(x.s.endpoints.embedded))
		require.NoError(b, err)
		b.Cleanup(nc.Close)
		return nc
	}
	quiet, noisy := connect(), connect()
	headers := nats.Header{}
	for i := range 60_000 {
		headers["h"+strconv.Itoa(i)] = []string{""}
	}
	const size = 590_000 // about the size of these headers
	large := &nats.Msg{Subject: "fila.enqueue.noisy", Header: headers}
	plain := &nats.Msg{Subject: "fila.enqueue.noisy", Data: bytes.Repeat([]byte{'x'}, size)}

	longest := func(burst *nats.Msg) time.Duration {
		var load sync.WaitGroup
		load.Go(func() {
			for range 60 {
				if err := noisy.PublishMsg(burst); err != nil {
					b.Error(err)
				}
			}
			if err := noisy.Flush(); err != nil {
				b.Error(err)
			}
		})
		defer load.Wait()
		all := make([]time.Duration, 0, 1000)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for range cap(all) {
			<-tick.C
			start := time.Now()
			require.NoError(b, quiet.Publish("fila.enqueue.quiet", make([]byte, 1024)))
			all = append(all, (<-delivered).Sub(start))
		}
		return slices.Max(all)
	}
	for range b.N {
		var beside, payload []time.Duration
		for range 3 {
			payload = append(payload, longest(plain))
			beside = append(beside, longest(large))
		}
		b.ReportMetric(float64(median(payload).Microseconds()), "max-payload-µs")
		b.ReportMetric(float64(median(beside).Microseconds()), "max-headers-µs")
	}
}
