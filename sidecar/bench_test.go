package sidecar

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	x := startSite(b, b.TempDir(), configure)
	defer x.end()
	l := newLifeLine(b, x, "orders", settings)
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	l.run(b.N, header)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	require.Zero(b, l.refused.Load())
}

// lifeLine is a producer and a consumer of one queue, with at most lifeWindow unconfirmed enqueues and
// as much credit.
type lifeLine struct {
	b        *testing.B
	producer *nats.Conn
	queue    string
	inbox    string
	free     chan struct{}
	acked    chan struct{}
	refused  atomic.Int64
}

const lifeWindow = 1024

func newLifeLine(b *testing.B, x *testSite, queue, settings string) *lifeLine {
	x.must("fila.admin.queue-create."+queue, settings, nil)
	l := &lifeLine{b: b, queue: queue, inbox: nats.NewInbox(), free: make(chan struct{}, lifeWindow), acked: make(chan struct{}, 2*lifeWindow)}
	_, err := x.nc.Subscribe("fila.deliver.w."+queue, func(m *nats.Msg) {
		if m.Respond(nil) == nil {
			l.acked <- struct{}{}
		}
	})
	require.NoError(b, err)
	x.must("fila.consume."+queue, fmt.Sprintf(`{"consumer":"w","max_in_flight":%d}`, lifeWindow), nil)
	l.producer = x.connect(b)
	_, err = l.producer.Subscribe(l.inbox, func(m *nats.Msg) {
		if wire.ParseError(m.Header, m.Data) != nil {
			l.refused.Add(1)
		}
		<-l.free
	})
	require.NoError(b, err)
	return l
}

// connect connects to the embedded server without a socket.
func (x *testSite) connect(b *testing.B) *nats.Conn {
	nc, err := nats.Connect("", nats.InProcessServer(x.s.endpoints.embedded))
	require.NoError(b, err)
	b.Cleanup(nc.Close)
	return nc
}

// run sends n messages of 1 KB, and returns how long it took until all are acked and confirmed.
func (l *lifeLine) run(n int, header func() nats.Header) time.Duration {
	start := time.Now()
	var received sync.WaitGroup
	received.Go(func() {
		for range n {
			<-l.acked
		}
	})
	payload := make([]byte, 1024)
	for range n {
		l.free <- struct{}{}
		m := &nats.Msg{Subject: "fila.enqueue." + l.queue, Reply: l.inbox, Header: header(), Data: payload}
		if err := l.producer.PublishMsg(m); err != nil {
			l.b.Fatal(err)
		}
	}
	received.Wait()
	for range lifeWindow {
		l.free <- struct{}{} // the last confirmation has arrived
	}
	for range lifeWindow {
		<-l.free
	}
	return time.Since(start)
}

// watchDeliveries creates a queue with a consumer that acks at once. latency publishes n messages of 1 KB,
// 500 a second, and returns how long each took to its delivery, in order of size.
func watchDeliveries(b *testing.B, x *testSite, queue, settings string) (latency func(n int) []time.Duration) {
	x.must("fila.admin.queue-create."+queue, settings, nil)
	delivered := make(chan time.Time, 16)
	_, err := x.nc.Subscribe("fila.deliver.w."+queue, func(m *nats.Msg) {
		delivered <- time.Now()
		if err := m.Respond(nil); err != nil {
			b.Error(err)
		}
	})
	require.NoError(b, err)
	x.must("fila.consume."+queue, `{"consumer":"w"}`, nil)
	producer := x.connect(b)
	return func(n int) []time.Duration {
		all := make([]time.Duration, 0, n)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for range n {
			<-tick.C
			start := time.Now()
			require.NoError(b, producer.Publish("fila.enqueue."+queue, make([]byte, 1024)))
			all = append(all, (<-delivered).Sub(start))
		}
		slices.Sort(all)
		return all
	}
}
