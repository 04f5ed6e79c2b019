package sidecar

import (
	"bytes"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// BenchmarkBesideLargeHeaders measures the delivery latency of a queue with 500 messages a second while
// another producer sends 60 messages of 60,000 headers each to another queue, and while it sends as
// many bytes as payload. It reports the longest latency of each. A round is a burst and 1,000 messages.
func BenchmarkBesideLargeHeaders(b *testing.B) {
	x := startSite(b, b.TempDir(), nil)
	defer x.end()
	latency := watchDeliveries(b, x, "quiet", ``)
	x.must("fila.admin.queue-create.noisy", ``, nil)
	noisy := x.connect(b)
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
		return latency(1000)[999]
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
