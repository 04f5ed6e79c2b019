package queue_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Flows that one gate alone holds back share it as deficit round robin would, in
// whatever way it admits one message after the other, and flows that it does not
// hold back go on meanwhile.
func TestFlowsBehindOneGateKeepTheBound(t *testing.T) {
	gates := map[string]struct {
		keys    []string
		circuit string
		shut    func(r *rig)             // before anything is enqueued
		next    func(r *rig, d delivery) // lets the gate admit the next one
	}{
		"rate": {
			keys: []string{"gate"},
			shut: func(r *rig) {
				r.LimitNow("gate", throttle.Limits{Rate: throttle.PerSecond(10 * throttle.One), Burst: throttle.One})
			},
			next: func(r *rig, d delivery) { r.Finished(d); r.Pass(100 * time.Millisecond) },
		},
		"release": {
			keys: []string{"gate"},
			shut: func(r *rig) { r.LimitNow("gate", throttle.Limits{Concurrency: 1}) },
			next: func(r *rig, d delivery) { r.Finished(d) },
		},
		"window": {
			keys: []string{"gate"},
			shut: func(r *rig) { r.LimitNow("gate", throttle.Limits{Limit: 1, Window: 1e9}) },
			next: func(r *rig, d delivery) { r.Finished(d); r.Pass(time.Second) },
		},
		"probes": {
			circuit: "gate",
			shut: func(r *rig) {
				r.Breaker(breaker.Config{Threshold: 1, Cooldown: time.Second, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1e6})
				r.PauseCircuit("gate", r.Now+1e9)
				r.Enqueue("first", func(m *store.Message) { m.CircuitKey = "gate" })
				r.Pass(time.Second)
				r.Ack(r.One(), term, "")
				r.Enqueue("first", func(m *store.Message) { m.CircuitKey = "gate" })
				r.Ack(r.One(), wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: 1000 * time.Hour}, "")
				r.Pass(time.Second)
			},
			next: func(r *rig, d delivery) { r.Finished(d) },
		},
	}
	for name, gate := range gates {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				quantum := 1 + int64(seed%2)*2
				r := newRig(t, func(s *queue.Settings) { s.Quantum, s.VisibilityTimeoutMs = quantum, 1e9 })
				r.Consume(queue.Main, "w", 50, 0)
				gate.shut(r)
				c := &costs{
					t: t, quantum: quantum, large: 5000, flows: make(map[string]*costFlow),
					messages: make(map[store.ID]costMessage), span: make(map[[2]string][2]int64),
				}
				put := func(key string) {
					f, cost := c.flows[key], rnd.Int64N(c.large)+1
					id := r.Enqueue(key, func(m *store.Message) {
						m.Weight, m.Cost, m.ThrottleKeys, m.CircuitKey = uint32(f.weight), uint32(cost), gate.keys, gate.circuit
					})
					c.messages[id] = costMessage{expected: cost, real: cost}
					f.left++
				}
				for i, w := range []int64{1000, 2500, 500, 4000, 1000} {
					key := fmt.Sprint("flow-", i)
					c.flows[key] = &costFlow{weight: w}
					c.keys = append(c.keys, key)
				}
				for range 30 {
					for _, key := range c.keys {
						put(key)
					}
				}
				r.Commit()
				// Deliveries before all flows were blocked do not count.
				ds := r.Deliveries()
				for _, d := range ds {
					c.flows[d.Key].left--
				}
				gated, free, rounds := 0, 0, 0
				for c.backlogged() {
					if name != "rate" {
						require.Len(t, ds, 1, "the gate admits one at a time")
					}
					for _, d := range ds {
						gate.next(r, d)
					}
					if len(ds) == 0 {
						r.Pass(100 * time.Millisecond)
					}
					ds = nil
					r.Enqueue("free", nil)
					rounds++
					r.Commit()
					for _, d := range r.Deliveries() {
						if d.Key == "free" {
							r.Finished(d)
							free++
							continue
						}
						gated++
						c.delivered(d)
						ds = append(ds, d)
					}
				}
				require.Greater(t, gated, 30)
				require.Equal(t, rounds, free, "those without the gate do not wait")
				check(r)
			})
		}
	}
}
