package queue_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/sidecar/queue/queuetest"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// newWanted makes a queue whose leases do not end during a test.
func newWanted(t *testing.T, change func(*queue.Settings)) *rig {
	return newRig(t, func(s *queue.Settings) {
		s.VisibilityTimeoutMs, s.StarveAfterMs = 1e9, 0
		if change != nil {
			change(s)
		}
	})
}

// put enqueues n messages of a key.
func put(r *rig, n int, key string, change func(*store.Message)) {
	for range n {
		r.Accept(r.Message(key, change))
	}
	r.Run()
	r.Commit()
}

func wanted(r *rig) inspect.Wanted {
	var d inspect.Demand
	for r.M.Inspect(queue.Main).ReadDemand(&d, r.Now) { //nolint:revive // until it is complete
	}
	return d.Wanted()
}

// worked counts the messages in flight at each horizon if consumers with credit without end
// come now, and finish nothing.
func worked(r *rig) (w inspect.Wanted) {
	began := r.Now
	r.Consume(queue.Main, "endless", 1e6, 0)
	for i, d := range wire.WantedHorizons {
		h := int64(d)
		for r.Now < began+h {
			r.Pass(min(max(r.Next(), 1), time.Duration(began+h-r.Now)))
		}
		_, w[i] = r.M.Inspect(queue.Main).Pending()
	}
	return w
}

func keys(throttles ...string) func(*store.Message) {
	return func(m *store.Message) { m.ThrottleKeys = throttles }
}

func circuitKey(key string) func(*store.Message) {
	return func(m *store.Message) { m.CircuitKey = key }
}

// A gate alone: what is wanted is what consumers with endless credit get.
func TestWantedOfOneGate(t *testing.T) {
	perTenant := func(r *rig) {
		for i := range 20 {
			put(r, 1+i, fmt.Sprint("tenant-", i), keys(fmt.Sprint("tenant:", i)))
		}
	}
	for name, prepare := range map[string]func(r *rig){
		"empty":    func(*rig) {},
		"no gates": func(r *rig) { put(r, 100, "a", nil) },
		"delayed": func(r *rig) {
			put(r, 3, "a", nil)
			put(r, 5, "a", func(m *store.Message) { m.NotBefore = r.Now + int64(time.Hour) })
		},
		"concurrency": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Concurrency: 5})
			put(r, 1000, "a", keys("g"))
		},
		"concurrency of several keys": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Concurrency: 7})
			for i := range 5 {
				put(r, 3, fmt.Sprint(i), keys("g"))
			}
		},
		"concurrency in flight": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Concurrency: 5})
			put(r, 100, "a", keys("g"))
			r.Consume(queue.Main, "before", 3, 0)
		},
		"concurrency per tenant": func(r *rig) {
			for i := range 20 {
				r.Limit(fmt.Sprint("tenant:", i), throttle.Limits{Concurrency: 5})
			}
			perTenant(r)
		},
		"rate": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Rate: throttle.PerSecond(700), Burst: 3000})
			put(r, 5000, "a", keys("g"))
		},
		"rate with cost": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Rate: throttle.PerSecond(2000), Burst: 5000})
			put(r, 500, "a", func(m *store.Message) { m.ThrottleKeys, m.Cost = []string{"g"}, 3000 })
		},
		"rate with a cost above the burst": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Rate: throttle.PerSecond(2000), Burst: 3000})
			put(r, 500, "a", func(m *store.Message) { m.ThrottleKeys, m.Cost = []string{"g"}, 7000 })
		},
		"rate after use": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Rate: throttle.PerSecond(1000), Burst: 10_000})
			put(r, 500, "a", keys("g"))
			r.Consume(queue.Main, "before", 8, 0)
			r.Pass(1700 * time.Millisecond)
		},
		"rate per tenant": func(r *rig) {
			for i := range 20 {
				r.Limit(fmt.Sprint("tenant:", i), throttle.Limits{Rate: throttle.PerSecond(290), Burst: 1000})
			}
			perTenant(r)
		},
		"rate of a backlog below it": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Rate: throttle.PerSecond(1000), Burst: 1000})
			put(r, 45, "a", keys("g"))
		},
		"window": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Limit: 7, Window: int64(20 * time.Second)})
			put(r, 500, "a", keys("g"))
		},
		"window after use": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Limit: 7, Window: int64(45 * time.Second)})
			put(r, 500, "a", keys("g"))
			r.Consume(queue.Main, "before", 4, 0)
			r.Pass(20 * time.Second)
		},
		"window longer than the horizon": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Limit: 7, Window: int64(time.Hour)})
			put(r, 500, "a", keys("g"))
		},
		"all limits of a key": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Rate: throttle.PerSecond(1000), Limit: 10, Window: int64(15 * time.Second), Concurrency: 100})
			put(r, 500, "a", keys("g"))
		},
		"closed circuit": func(r *rig) { put(r, 50, "a", circuitKey("c")) },
		"circuit open for a while": func(r *rig) {
			r.Breaker(breaker.Config{HalfOpenMaxCalls: 3})
			put(r, 50, "a", circuitKey("c"))
			r.Circuits.Open("c", r.Now+int64(45*time.Second), "")
		},
		"circuit open until it is closed by hand": func(r *rig) {
			put(r, 50, "a", circuitKey("c"))
			r.Circuits.Open("c", math.MaxInt64, "")
		},
		"circuit half-open": func(r *rig) {
			r.Breaker(breaker.Config{HalfOpenMaxCalls: 3})
			put(r, 50, "a", circuitKey("c"))
			r.Circuits.Open("c", r.Now+int64(time.Second), "")
			r.Pass(2 * time.Second)
			r.Consume(queue.Main, "before", 1, 0)
		},
		"circuit paused for a while": func(r *rig) {
			put(r, 50, "a", circuitKey("c"))
			r.PauseCircuit("c", r.Now+int64(20*time.Second))
		},
		"queue paused": func(r *rig) {
			put(r, 50, "a", nil)
			r.Do(queue.Main, queue.PauseQueue{Until: queue.Forever})
		},
		"queue paused for a while": func(r *rig) {
			put(r, 50, "a", nil)
			r.Do(queue.Main, queue.PauseQueue{Until: r.Now + int64(40*time.Second)})
		},
		"key paused": func(r *rig) {
			put(r, 50, "a", nil)
			put(r, 50, "b", nil)
			r.Do(queue.Main, queue.PauseKey{Key: "a", Until: r.Now + int64(40*time.Second)})
			put(r, 50, "c", nil)
			r.Do(queue.Main, queue.PauseKey{Key: "c", Until: queue.Forever})
		},
		"key paused at a rate": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Rate: throttle.PerSecond(1000), Burst: 5000})
			put(r, 500, "a", keys("g"))
			r.Do(queue.Main, queue.PauseKey{Key: "a", Until: r.Now + int64(40*time.Second)})
		},
		"throttle paused": func(r *rig) {
			r.LimitNow("g", throttle.Limits{Rate: throttle.PerSecond(1000), Burst: 5000})
			put(r, 500, "a", keys("g"))
			r.PauseThrottle("g", r.Now+int64(40*time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWanted(t, nil)
			prepare(r)
			got := wanted(r)
			require.Equal(t, worked(r), got)
		})
	}
}

// Strict order: one message of a key at a time.
func TestWantedInOrder(t *testing.T) {
	for _, blocked := range []string{"wait", "skip"} {
		r := newWanted(t, func(s *queue.Settings) { s.Ordering, s.OnBlocked = "key", blocked })
		r.LimitNow("g", throttle.Limits{Concurrency: 3})
		for i := range 10 {
			put(r, 5, fmt.Sprint("free-", i), nil)
			put(r, 5, fmt.Sprint("gated-", i), keys("g"))
		}
		got := wanted(r)
		require.Equal(t, inspect.Wanted{13, 13, 13, 13}, got)
		require.Equal(t, worked(r), got)
		require.Equal(t, got, wanted(r), "all that can be in flight is")
	}
}

// randomLimits draws the limits of a throttle key: one, or several of them.
func randomLimits(rnd *rand.Rand) throttle.Limits {
	var l throttle.Limits
	kinds := 1 + rnd.IntN(7)
	if kinds&1 != 0 {
		l.Concurrency = 1 + rnd.Int64N(80)
	}
	if kinds&2 != 0 {
		l.Rate, l.Burst = throttle.PerSecond(50+rnd.Int64N(5000)), 10_000+rnd.Int64N(50_000)
	}
	if kinds&4 != 0 {
		l.Limit, l.Window = 1+rnd.Int64N(80), int64(time.Second)*(1+rnd.Int64N(600))
	}
	return l
}

func oneOf[V any](rnd *rand.Rand, values ...V) V { return values[rnd.IntN(len(values))] }

// randomGates makes a queue whose messages pass up to three of four throttle keys and one of two
// circuits, some of them in flight.
func randomGates(t *testing.T, rnd *rand.Rand) *rig {
	r := newWanted(t, nil)
	r.Breaker(breaker.Config{HalfOpenMaxCalls: 5})
	all := []string{"g0", "g1", "g2", "g3"}
	for _, g := range all {
		r.Limit(g, randomLimits(rnd))
	}
	for range 1 + rnd.IntN(15) {
		weight, cost, circuit := oneOf(rnd, uint32(1000), 1000, 500, 3000), oneOf(rnd, uint32(1000), 1000, 1000, 2000, 5000), oneOf(rnd, "", "", "", "c0", "c1")
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		set := slices.Clone(all[:rnd.IntN(4)])
		put(r, 1+rnd.IntN(100), fmt.Sprint("key-", rnd.IntN(10)), func(m *store.Message) {
			m.Weight, m.Cost, m.ThrottleKeys, m.CircuitKey = weight, cost, set, circuit
		})
	}
	if rnd.IntN(2) == 0 {
		r.Circuits.Open("c0", r.Now+(1+rnd.Int64N(100))*int64(time.Second), "")
	}
	if rnd.IntN(4) == 0 {
		r.Do(queue.Main, queue.PauseKey{Key: "key-0", Until: r.Now + (1+rnd.Int64N(100))*int64(time.Second)})
	}
	r.Consume(queue.Main, "before", 1+rnd.IntN(50), 0)
	r.Pass(time.Duration(rnd.IntN(5000)) * time.Millisecond)
	return r
}

// Several gates: what is wanted is within 10 % of what consumers get, or two messages, in 98 of
// 100 readings. The rest depends on which messages the schedule happens to try first, and on
// reservations.
func TestWantedOfCombinations(t *testing.T) {
	readings, apart := 0, 0
	for seed := range uint64(200) {
		r := randomGates(t, rand.New(rand.NewPCG(seed, 29)))
		got := wanted(r)
		pending, inFlight := r.M.Inspect(queue.Main).Pending()
		for i, exact := range worked(r) {
			require.LessOrEqual(t, got[i], pending+inFlight, "seed %d", seed)
			require.GreaterOrEqual(t, got[i], inFlight, "seed %d", seed)
			readings++
			if diff := math.Abs(float64(exact - got[i])); diff > max(0.1*float64(exact), 2) {
				apart++
				t.Logf("seed %d, horizon %v: wanted %d, worked on %d", seed, wire.WantedHorizons[i], got[i], exact)
				require.LessOrEqual(t, diff, 0.25*float64(exact)+2, "seed %d", seed)
			}
		}
	}
	t.Logf("%d of %d readings are more than 10 %% apart", apart, readings)
	require.LessOrEqual(t, apart, readings/50)
}

// Rising is followed at once, falling over half a minute; what is in flight, and what there is,
// bound both.
func TestWantedIsSmoothed(t *testing.T) {
	var m inspect.WantedMeter
	at := queuetest.Start
	pass := func(wanted int64, after time.Duration) {
		at += int64(after)
		m.Add(inspect.Wanted{wanted, wanted, wanted, wanted}, at)
	}
	value := func() int64 { return m.Wanted(0, 1e6, 0) }
	require.Zero(t, value(), "there is no reading")
	pass(100, 0)
	require.EqualValues(t, 100, value())
	pass(1000, 10*time.Second)
	require.EqualValues(t, 1000, value())
	pass(0, 30*time.Second)
	require.EqualValues(t, 368, value(), "1000/e")
	pass(0, -time.Hour)
	require.EqualValues(t, 368, value(), "the clock has gone back")
	pass(200, 10*time.Minute)
	require.EqualValues(t, 200, value())
	require.EqualValues(t, 300, m.Wanted(0, 0, 300), "more are in flight")
	require.EqualValues(t, 30, m.Wanted(0, 20, 10), "fewer are left")
	pass(0, 20*time.Minute)
	require.Zero(t, value())
}

// A backlog of many keys is read in pieces, so that the queue is never held up for long.
func TestWantedInPieces(t *testing.T) {
	r := newWanted(t, nil)
	const tenants = 10_000
	for i := range tenants {
		key := fmt.Sprint("tenant-", i)
		r.Limit(key, throttle.Limits{Concurrency: 1})
		for range 2 {
			r.Accept(r.Message(key, keys(key)))
		}
	}
	r.Run()
	r.Commit()
	var d inspect.Demand
	pieces := 1
	for r.M.Inspect(queue.Main).ReadDemand(&d, r.Now) {
		pieces++
	}
	require.Equal(t, 20, pieces)
	require.EqualValues(t, tenants, d.Wanted()[0])
}

// The cost of a reading of 100,000 keys with a limit of their own and one that all share: a piece
// under the lock of the queue, and the computation outside it.
func BenchmarkWanted(b *testing.B) {
	r := newRig(b, nil)
	r.LimitNow("vendor", throttle.Limits{Rate: throttle.PerSecond(50_000_000)})
	for i := range 100_000 {
		key := fmt.Sprint("tenant-", i)
		r.Limit(key, throttle.Limits{Rate: throttle.PerSecond(100), Concurrency: 1})
		r.Accept(r.Message(key, keys(key, "vendor")))
	}
	r.Run()
	r.Commit()
	q := r.M.Inspect(queue.Main)
	b.Run("piece", func(b *testing.B) {
		var d inspect.Demand
		for b.Loop() {
			if !q.ReadDemand(&d, r.Now) {
				d.Reset()
			}
		}
	})
	b.Run("compute", func(b *testing.B) {
		var d inspect.Demand
		for q.ReadDemand(&d, r.Now) { //nolint:revive // until it is complete
		}
		for b.Loop() {
			d.Wanted()
		}
	})
}
