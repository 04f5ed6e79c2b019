package sidecar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/wire"
)

// TestEverythingAtOnce runs producers, consumers, fetches and operators on one server that is restarted
// twice. In the end every confirmed enqueue is acked, nothing returns after a confirmed ack, and nothing
// is left.
func TestEverythingAtOnce(t *testing.T) {
	const producers, each, lives = 3, 100, 3
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		confirmed, acked := make(map[string]bool), make(map[string]bool)
		for life := range lives {
			x := startSite(t, dir, func(c *config.Config) { c.NATS.Embedded.MaxPayload, c.Limits.MaxUncommittedBytes = 4<<20, 1<<20 })
			if life == 0 {
				x.must("fila.admin.queue-create.orders", `{"visibility_timeout_ms":5000,"fairness_header":"tenant"}`, nil)
			}
			handle := func(m *nats.Msg) {
				id := m.Header.Get(wire.HeaderID)
				mu.Lock()
				again := acked[id]
				mu.Unlock()
				if again {
					t.Errorf("%s came back after its ack was confirmed", id)
				}
				switch n := rand.IntN(20); {
				case n < 3:
					_ = x.ack(m, `-NAK {"delay":1000000000}`)
				case n < 5:
					_ = x.ack(m, "-NAK")
				case n == 5:
					_ = x.ack(m, "+TERM")
				case n == 6: // no ack: the lease expires
				default:
					if x.ack(m, "") == nil {
						mu.Lock()
						acked[id] = true
						mu.Unlock()
					}
				}
			}
			for _, queue := range []string{"orders", "orders.dlq"} {
				for w := range 2 {
					name := fmt.Sprint("w", w)
					ch, _ := x.consumer(name, queue, fmt.Sprintf(`{"consumer":%q,"max_in_flight":7}`, name))
					go func() {
						for {
							select {
							case m := <-ch:
								handle(m)
							case <-x.ended:
								return
							}
						}
					}()
				}
			}
			var working sync.WaitGroup
			for p := range producers {
				working.Go(func() {
					for range each {
						id := x.enqueue("x", nats.Header{"tenant": {fmt.Sprint("t", p)}})
						mu.Lock()
						confirmed[id] = true
						mu.Unlock()
						if rand.IntN(10) == 0 {
							time.Sleep(100 * time.Millisecond)
						}
					}
				})
			}
			working.Go(func() {
				for i := range 20 {
					time.Sleep(50 * time.Millisecond)
					x.must("fila.admin.redrive.orders.dlq", `{"count":5}`, nil)
					x.must("fila.admin.queue-update.orders", fmt.Sprintf(`{"quantum":%d}`, i%3+1), nil)
					x.must("fila.admin.config-set.weight:orders:t1", fmt.Sprintf(`{"value":"%d"}`, i%4+1), nil)
					x.must("fila.admin.queue-create.other", ``, nil)
					x.must("fila.consume.orders", `{"consumer":"ghost","max_in_flight":3}`, nil) // a consumer that is gone
					x.must("fila.admin.queue-delete.other", `{"force":true}`, nil)
				}
			})
			working.Wait()
			if life == lives-1 {
				for range 100 {
					if n, d := x.depth("orders"), x.depth("orders.dlq"); n.Pending+n.InFlight+n.Delayed+d.Pending+d.InFlight+d.Delayed == 0 {
						break
					}
					time.Sleep(10 * time.Second)
				}
				for _, name := range []string{"orders", "orders.dlq"} {
					q := x.s.parts.shards.Queue(name)
					require.Zero(t, q.Depth(), name)
					require.Zero(t, q.Bytes(), name)
					q.View(func(m *queue.Queue, side queue.Role, now int64) {
						left := m.Inspect(side).Stats(now)
						left.Consumers = 0 // registrations stay
						require.Zero(t, left, name)
						require.Zero(t, m.Open(), name)
					})
				}
				// A message of this size is accepted only if no other waits for the disk.
				x.must("fila.admin.queue-create.other", ``, nil)
				x.must("fila.enqueue.other", strings.Repeat("x", 2<<20), nil)
			}
			x.end()
		}
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, confirmed, producers*each*lives)
		dropped := 0 // +TERM in the dead letter queue deletes
		for id := range confirmed {
			if !acked[id] {
				dropped++
			}
		}
		require.Less(t, dropped, len(confirmed)/10)
	})
}
