package sidecar

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// BenchmarkLife is the whole life of a message of 1 KB in one process: enqueue
// with confirmation, commit with fsync, delivery, ack, commit. One producer with
// 1,024 unconfirmed enqueues at most, one consumer with a credit of 1,024, NATS
// embedded and reached without a socket.
func BenchmarkLife(b *testing.B) {
	const window = 1024
	x := startSite(b, b.TempDir(), nil)
	defer x.end()
	x.must("fila.admin.queue-create.orders", ``, nil)
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
	producer, err := nats.Connect("", nats.InProcessServer(x.s.embedded))
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
		if err := producer.PublishRequest("fila.enqueue.orders", inbox, payload); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	for range window {
		free <- struct{}{} // the last confirmation has come
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	require.Zero(b, refused)
}

// instantStore commits at once and keeps nothing.
type instantStore struct{ store.Store }

func (instantStore) Submit(b *store.Batch) {
	if b.Done != nil {
		b.Done(nil)
	}
}

// BenchmarkLoop is a loop alone: enqueue, commit, deliver, ack, in turns of 100
// messages, with flows of different sizes behind.
func BenchmarkLoop(b *testing.B) {
	for _, backlog := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			const turn = 100
			r := newRig(b, nil)
			r.core.store = instantStore{r.st}
			r.run()
			l := r.loop(r.q)
			var keys [1000]string
			for i := range keys {
				keys[i] = fmt.Sprint("tenant-", i)
			}
			n := 0
			post := func() {
				in := &incoming{size: 10, msg: store.Message{
					Ref: store.Ref{Queue: r.q.id}, EnqueuedAt: r.now, Weight: 1000, Cost: 1000, Key: keys[n%len(keys)],
				}}
				n++
				r.q.depth.Add(1)
				r.q.bytes.Add(in.size)
				r.core.uncommitted.Add(in.size)
				r.q.mail.post(event{kind: evEnqueue, incoming: in})
			}
			var events []event
			spin := func() {
				for {
					events = r.q.mail.take(events)
					if len(events) == 0 {
						return
					}
					l.turn(events)
					events = recycle(events)
				}
			}
			for range backlog {
				post()
			}
			spin()
			// Its credit is one turn: the backlog stays.
			r.q.tell(func(l *loop) { l.register(wire.ConsumeRequest{Consumer: "w", MaxInFlight: turn}, "", nil) })
			spin()
			var out []delivery
			b.ReportAllocs()
			b.ResetTimer()
			for range (b.N + turn - 1) / turn {
				for range turn {
					post()
				}
				spin()
				out = r.q.out.take(out)
				for i := range out {
					r.q.mail.post(event{kind: evAck, token: out[i].token(), ack: wire.Ack{Kind: wire.AckDone}})
				}
				out = recycle(out)
				r.now += 1e6
				spin()
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
			// What the last turn delivered is leased, the rest is pending.
			require.EqualValues(b, r.q.depth.Load(), l.sched.Len()+l.leases.live)
		})
	}
}
