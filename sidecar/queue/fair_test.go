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

// fairFlow is a flow that is held back by one gate alone.
type fairFlow struct {
	key          string
	weight       int64
	left, served int64
}

// fairness holds deliveries to invariant 4 among flows that stay blocked by one
// gate: over every interval |S_i/w_i - S_j/w_j| <= quantum + C/w_i + C/w_j.
type fairness struct {
	t       *testing.T
	flows   map[string]*fairFlow
	keys    []string
	quantum int64
	largest int64
	span    map[[2]string][2]int64 // of S_i*w_j - S_j*w_i: the least and the greatest
}

func (f *fairness) deliver(key string, cost int64) {
	fl := f.flows[key]
	fl.served += cost
	fl.left--
	for i, a := range f.keys {
		for _, b := range f.keys[i+1:] {
			x, y := f.flows[a], f.flows[b]
			s := f.span[[2]string{a, b}]
			d := x.served*y.weight - y.served*x.weight
			s[0], s[1] = min(s[0], d), max(s[1], d)
			f.span[[2]string{a, b}] = s
			require.LessOrEqual(f.t, s[1]-s[0], f.quantum*x.weight*y.weight+f.largest*(x.weight+y.weight), "%s and %s", a, b)
		}
	}
}

// backlogged reports whether all of them still have something to send.
func (f *fairness) backlogged() bool {
	for _, fl := range f.flows {
		if fl.left == 0 {
			return false
		}
	}
	return true
}

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
				f := &fairness{
					t: t, quantum: quantum, largest: 5000, flows: make(map[string]*fairFlow), span: make(map[[2]string][2]int64),
				}
				costs := make(map[store.ID]int64)
				put := func(key string) {
					fl := f.flows[key]
					cost := rnd.Int64N(f.largest) + 1
					id := r.Enqueue(key, func(m *store.Message) {
						m.Weight, m.Cost, m.ThrottleKeys, m.CircuitKey = uint32(fl.weight), uint32(cost), gate.keys, gate.circuit
					})
					costs[id] = cost
					fl.left++
				}
				for i, w := range []int64{1000, 2500, 500, 4000, 1000} {
					key := fmt.Sprint("flow-", i)
					f.flows[key] = &fairFlow{key: key, weight: w}
					f.keys = append(f.keys, key)
				}
				for range 30 {
					for _, key := range f.keys {
						put(key)
					}
				}
				r.Commit()
				// What went before all of them were blocked does not count.
				ds := r.Deliveries()
				for _, d := range ds {
					f.flows[d.Key].left--
				}
				gated, free, rounds := 0, 0, 0
				for f.backlogged() {
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
						f.deliver(d.Key, costs[d.ID])
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
