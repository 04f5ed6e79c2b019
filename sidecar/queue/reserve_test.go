package queue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// leaseOf returns the delivery under which a message of a side is leased now.
func leaseOf(ds []delivery, seq uint64) delivery {
	for _, d := range ds {
		if d.Token.Seq == seq {
			return d
		}
	}
	return delivery{}
}

// Nothing is kept from others for a message that waits for the end of a pause, for a circuit
// or for credit.
func TestReservationIsCancelled(t *testing.T) {
	for name, tc := range map[string]struct {
		shut   func(r *rig)
		atOnce bool // what it has collected is given back at once, not after a while
	}{
		"queue paused": {func(r *rig) { r.Do(queue.Main, queue.PauseQueue{Until: queue.Forever}) }, true},
		"key paused":   {func(r *rig) { r.Do(queue.Main, queue.PauseKey{Key: "both", Until: queue.Forever}) }, true},
		"circuit open, seen when the gate opens": {func(r *rig) {
			r.PauseCircuit("c", queue.Forever)
			r.LimitNow("x", throttle.Limits{Concurrency: 5})
		}, true},
		"circuit open": {func(r *rig) { r.PauseCircuit("c", queue.Forever); r.Run() }, false},
		"gate paused":  {func(r *rig) { r.PauseThrottle("y", throttle.Never); r.Run() }, false},
		"offline":      {func(r *rig) { r.Do(queue.Main, queue.Dispatch{}) }, true},
		"no credit":    {func(r *rig) { r.Leave(queue.Main, "w") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.LimitNow("x", throttle.Limits{Concurrency: 1})
			r.LimitNow("y", throttle.Limits{Concurrency: 1})
			r.Consume(queue.Main, "w", 100, 0)
			r.Gated("hx", "x")
			r.Gated("hy", "y")
			ds := r.Deliveries()
			require.Len(t, ds, 2)
			x, y := leaseOf(ds, 1), leaseOf(ds, 2)
			r.Enqueue("both", func(m *store.Message) { m.ThrottleKeys, m.CircuitKey = []string{"x", "y"}, "c" })
			r.Commit()
			r.Pass(2 * time.Second) // it has waited for long enough
			r.Gated("hx", "x")
			r.Finished(y) // "both" tries, and reserves y
			r.Pass(0)
			require.NotZero(t, r.Held("y"), "the scenario: it has a reservation")
			tc.shut(r)
			if tc.atOnce {
				r.Pass(time.Second)
				require.Zero(t, r.Held("y"), "kept from others")
			}
			r.Finished(x)
			for range 5 {
				r.Pass(time.Second)
			}
			require.Zero(t, r.Held("x")+r.Held("y"), "gates are kept from everybody else by a message that cannot go")
		})
	}
}

// A limit is lowered below what a reservation and others have.
func TestALimitLoweredUnderAReservation(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("x", throttle.Limits{Concurrency: 1})
	r.LimitNow("y", throttle.Limits{Concurrency: 2})
	r.Consume(queue.Main, "w", 100, 0)
	r.Gated("hx", "x")
	x := r.One()
	r.Gated("hy", "y")
	y1 := r.One()
	r.Gated("hy", "y")
	y2 := r.One()
	r.Gated("both", "x", "y")
	r.Pass(2 * time.Second)
	r.Finished(y1) // both reserves y
	require.NotZero(t, r.Held("y"))
	r.LimitNow("y", throttle.Limits{Concurrency: 1})
	r.Finished(x)
	require.Empty(t, r.Deliveries(), "y2 is in flight")
	r.Finished(y2)
	r.Pass(5 * time.Second)
	require.Len(t, r.Deliveries(), 1, "both gates are open")
}

// A message with several gates that open in turn is not starved by those with one.
func TestAReservationEndsStarving(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("x", throttle.Limits{Concurrency: 1})
	r.LimitNow("y", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 100, 0)
	for range 40 {
		r.Gated("x", "x")
		r.Gated("y", "y")
	}
	both := r.Gated("both", "x", "y")
	ds := r.Deliveries()
	for i := 0; ; i++ {
		require.Less(t, i, 40, "it never goes")
		r.Pass(100 * time.Millisecond)
		r.Finished(ds[0]) // x and y are never free at the same time
		ds = append(ds[1:], r.Deliveries()...)
		if len(ds) > 0 && ds[len(ds)-1].ID == both {
			break
		}
		check(r)
	}
}

// A message that collects its gates waits for those that it has not got.
func TestWhyWhileAMessageCollectsItsGates(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("x", throttle.Limits{Concurrency: 1})
	r.LimitNow("y", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 100, 0)
	r.Gated("hx", "x")
	r.Gated("hy", "y")
	y := leaseOf(r.Deliveries(), 2)
	both := r.Gated("both", "x", "y")
	r.Pass(2 * time.Second)
	r.Finished(y)
	require.NotZero(t, r.Held("y"), "it has y")
	v := r.Find(queue.Main, both)
	require.Equal(t, gates.ByInFlight, v.By)
	require.Equal(t, "x", v.At.Throttle.Key())
	r.LimitNow("x", throttle.Limits{})
	require.Equal(t, both, r.One().ID)
}

// A reservation is for the message that is next. If another one with another cost comes back and is
// next, it is not reported to wait for what the first one needs.
func TestAReservationEndsWhenAnotherMessageIsNext(t *testing.T) {
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", 100, 0)
	gated := func(key string, cost uint32, keys ...string) store.ID {
		id := r.Enqueue(key, func(m *store.Message) { m.Cost, m.ThrottleKeys = cost, keys })
		r.Commit()
		return id
	}
	cheap := gated("both", 500, "x", "y")
	back := r.One()
	r.LimitNow("x", throttle.Limits{Rate: throttle.Rate{Cost: 1000, Per: 1000e9}, Burst: 1000})
	r.LimitNow("y", throttle.Limits{Concurrency: 2})
	gated("hx", 300, "x")
	r.One()
	gated("hy", 1000, "y")
	y := r.One()
	gated("both", 1000, "x", "y")
	require.Empty(t, r.Deliveries())
	r.Pass(2 * time.Second)
	r.Finished(y)
	require.NotZero(t, r.Held("y"), "the dear one has y, and waits for x")
	r.Leave(queue.Main, "w")
	r.Ack(back, nobody, "")
	require.Zero(t, r.Held("y"))
	require.Equal(t, gates.ByNoConsumer, r.Find(queue.Main, cheap).By)
	r.Consume(queue.Main, "w", 100, 0)
	require.Equal(t, cheap, r.One().ID)
}

// So does a cheap one, which stays in the wait list until the gate has a whole 1.
func TestWhyWhileACheapMessageCollectsItsGates(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("x", throttle.Limits{Rate: throttle.PerSecond(1000), Burst: 1000})
	r.LimitNow("y", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 100, 0)
	r.Gated("hx", "x")
	r.Gated("hy", "y")
	y := leaseOf(r.Deliveries(), 2)
	both := r.Enqueue("both", func(m *store.Message) { m.Cost, m.ThrottleKeys = 100, []string{"x", "y"} })
	r.Pass(3 * time.Second / 2)
	r.Gated("hx", "x")
	r.One()
	r.Finished(y)
	require.NotZero(t, r.Held("y"), "it has y")
	r.Pass(time.Second / 2)
	v := r.Find(queue.Main, both)
	require.Equal(t, gates.ByRate, v.By)
	require.Equal(t, "x", v.At.Throttle.Key())
	r.Pass(time.Second / 2)
	require.Equal(t, both, r.One().ID)
}

// A reservation ends if the rest of its gates does not come: here a message has y, and waits for x, whose message
// never ends.
func TestAReservationEndsWhenTheRestDoesNotCome(t *testing.T) {
	for name, y := range map[string]throttle.Limits{
		"concurrency":                {Concurrency: 1},
		"nearly the burst of a rate": {Concurrency: 2, Rate: throttle.PerSecond(1000), Burst: 1100},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.LimitNow("x", throttle.Limits{Concurrency: 1})
			r.LimitNow("y", y)
			r.Consume(queue.Main, "w", 100, 0)
			r.Gated("hx", "x")
			r.One()
			var ys []delivery
			for range y.Concurrency {
				r.Gated("hy", "y")
				r.Pass(time.Second)
				ys = append(ys, r.One())
			}
			r.Gated("both", "x", "y")
			r.Pass(2 * time.Second)
			for _, d := range ys {
				r.Finished(d)
			}
			require.NotZero(t, r.Held("y"), "the scenario: it has a reservation")
			alone := r.Gated("alone", "y")
			require.Empty(t, r.Deliveries())
			for range 5 {
				r.Pass(time.Second)
			}
			require.Equal(t, alone, r.One().ID, "y admits others")
			check(r)
		})
	}
}

// Whatever messages with one to three keys come and end: while a message of gate x never ends, every
// message without x goes, although others collect their gates for it.
func TestNobodyStarvesBehindAGateThatIsFull(t *testing.T) {
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, func(s *queue.Settings) { s.VisibilityTimeoutMs = 1e9 })
		r.LimitNow("x", throttle.Limits{Concurrency: 1})
		r.LimitNow("y", throttle.Limits{Concurrency: 1 + rnd.Int64N(2)})
		r.LimitNow("z", throttle.Limits{Concurrency: 2, Rate: throttle.PerSecond(1000), Burst: 1100})
		r.Consume(queue.Main, "w", 100, 0)
		r.Gated("hx", "x")
		r.One()
		waiting := make(map[store.ID]bool) // without x
		var inFlight []delivery
		take := func() {
			for _, d := range r.Deliveries() {
				require.True(t, waiting[d.ID], "x is full")
				delete(waiting, d.ID)
				inFlight = append(inFlight, d)
			}
		}
		for range 60 {
			keys := []string{"x", "y", "z"}
			rnd.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			keys = keys[:1+rnd.IntN(3)]
			id := r.Gated(fmt.Sprint(rnd.IntN(4)), keys...)
			if !slices.Contains(keys, "x") {
				waiting[id] = true
			}
			r.Pass(time.Duration(rnd.IntN(400)) * time.Millisecond)
			take()
			if len(inFlight) > 0 && rnd.IntN(2) == 0 {
				r.Finished(inFlight[0])
				inFlight = inFlight[1:]
			}
		}
		for range 200 {
			take()
			r.Finished(inFlight...)
			inFlight = nil
			r.Pass(time.Second)
		}
		require.Empty(t, waiting, "seed %d: messages that do not need x wait for ever", seed)
		check(r)
	}
}
