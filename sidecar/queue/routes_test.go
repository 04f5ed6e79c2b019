package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// by gives a message the routes "one", "two" and so on, each with a throttle key of its name.
func by(names ...string) func(m *store.Message) {
	return func(m *store.Message) {
		for _, name := range names {
			m.Routes = append(m.Routes, store.Route{Name: name, ThrottleKeys: []string{name}, CircuitKey: name})
		}
	}
}

// A message goes by the first of its routes that admits it, and takes from no other.
func TestAMessageGoesByTheFirstOpenRoute(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("one", throttle.Limits{Concurrency: 1})
	r.Consume(queue.Main, "w", 100, 0)
	r.Enqueue("k", by("one", "two"))
	r.Enqueue("k", by("one", "two"))
	ds := r.Deliveries()
	require.Equal(t, "one", ds[0].Route)
	require.Equal(t, "two", ds[1].Route)
	require.EqualValues(t, 1, r.InFlight("one"))
	require.EqualValues(t, 1, r.InFlight("two"))
	r.Finished(ds...)
	require.Zero(t, r.InFlight("one")+r.InFlight("two"))
	check(r)
}

// The outcome of a delivery counts for the circuit of its route alone, so that the retry goes
// by the next one.
func TestTheOutcomeCountsForTheRouteAlone(t *testing.T) {
	for _, judge := range []bool{false, true} {
		r := newRig(t, func(s *queue.Settings) { s.Judge = judge })
		r.Breaker(breaker.Config{Threshold: 1, Cooldown: time.Hour, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1})
		r.Consume(queue.Main, "w", 100, 0)
		id := r.Enqueue("k", by("one", "two"))
		for _, route := range []string{"one", "two"} {
			d := r.One()
			require.Equal(t, route, d.Route)
			r.Ack(d, wire.Ack{Kind: wire.AckNack, Error: "no"}, "")
			if r.Run(); judge {
				f := r.Judge[0]
				r.Judge = r.Judge[:0]
				r.Post(queue.Input{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: f, Outcome: breaker.Failure}})
				r.Run()
			}
			check(r)
		}
		require.Empty(t, r.Deliveries(), "both circuits are open")
		v := r.Find(queue.Main, id)
		require.Equal(t, gates.ByCircuit, v.By)
		require.Len(t, v.Routes, 2)
		for _, route := range v.Routes {
			require.Equal(t, gates.ByCircuit, route.By)
			require.Equal(t, route.Name, route.At.Circuit.Key())
		}
	}
}

// A blocked message goes by whichever of its routes opens first.
func TestABlockedMessageWaitsForAllItsRoutes(t *testing.T) {
	for _, opens := range []string{"one", "two", "three"} {
		r := newRig(t, nil)
		for _, key := range []string{"one", "two", "three"} {
			r.LimitNow(key, throttle.Limits{Concurrency: 1})
			r.Gated("holder", key)
		}
		r.Consume(queue.Main, "w", 100, 0)
		holders := r.Deliveries()
		require.Len(t, holders, 3)
		r.Enqueue("k", by("one", "two", "three"))
		require.Empty(t, r.Deliveries())
		check(r)
		r.LimitNow(opens, throttle.Limits{Concurrency: 2})
		require.Equal(t, opens, r.One().Route)
		check(r)
	}
}

// Messages that go on and on by one route do not hold up others that wait for a gate of
// another of their routes.
func TestRoutesHoldNobodyUp(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("one", throttle.Limits{Concurrency: 1})
	r.LimitNow("two", throttle.Limits{Concurrency: 1})
	r.Gated("holder", "one")
	r.Gated("holder", "two")
	r.Consume(queue.Main, "w", 2, 0)
	holders := r.Deliveries()
	for range 20 {
		r.Enqueue("many", by("one", "two"))
	}
	plain := r.Gated("plain", "two")
	r.Commit()
	require.Empty(t, r.Deliveries())
	r.LimitNow("one", throttle.Limits{}) // "many" goes by it whenever a consumer has credit
	r.LimitNow("two", throttle.Limits{Concurrency: 2})
	r.Finished(holders...)
	for served := 0; ; served++ {
		require.Less(t, served, 4, "it waits for the messages before it at gate two")
		ds := r.Deliveries()
		require.NotEmpty(t, ds)
		if ds[0].ID == plain || len(ds) > 1 && ds[1].ID == plain {
			break
		}
		r.Finished(ds...)
		check(r)
	}
}

// otherQueue is another queue that waits at a gate.
type otherQueue struct{ gates.Owner }

func (otherQueue) GateOpened(*throttle.Gate) {}

// A message that tries the gate of one route, but has no consumer, does not keep the turn of its queue at
// the gates of the others: another queue that waits there goes.
func TestARouteThatIsTriedKeepsNoTurnAtTheOthers(t *testing.T) {
	r := newRig(t, nil)
	release := make(map[string]func())
	for _, key := range []string{"one", "two"} {
		r.LimitNow(key, throttle.Limits{Concurrency: 1})
		set, err := r.Gates.Set([]string{key}, r.Now)
		require.NoError(t, err)
		grant, _, ok := set.Acquire(r.Now, throttle.One, nil)
		require.True(t, ok)
		release[key] = func() {
			for _, w := range set.Release(&grant, r.Now, nil) {
				w.Owner.(gates.Owner).GateOpened(w.Gate())
			}
			r.Run()
		}
	}
	r.Consume(queue.Main, "w", 1, 0)
	id := r.Enqueue("k", by("one", "two"))
	r.Enqueue("k", by("one", "two")) // keeps its place at gate one while the first tries gate two
	plain := r.Enqueue("plain", func(*store.Message) {})
	r.Commit()
	busy := r.One()
	require.Equal(t, plain, busy.ID)
	require.True(t, r.Find(queue.Main, id).Blocks())

	gate, ok := r.Gates.Find("one")
	require.True(t, ok)
	other := throttle.NewWait(gate, otherQueue{})
	other.Join(r.Now, throttle.One)
	release["two"]()
	release["one"]()
	n, _ := other.Turn(r.Now)
	require.EqualValues(t, 1, n)
	check(r)
	r.Finished(busy)
	require.Equal(t, "two", r.One().Route)
}

// Gates of the message itself count on each route, and its circuit on routes without one.
func TestRoutesAddToTheGatesOfTheMessage(t *testing.T) {
	r := newRig(t, nil)
	r.LimitNow("own", throttle.Limits{Concurrency: 1})
	r.PauseCircuit("own", queue.Forever)
	r.Consume(queue.Main, "w", 100, 0)
	for range 2 {
		r.Enqueue("k", func(m *store.Message) {
			m.ThrottleKeys, m.CircuitKey = []string{"own"}, "own"
			m.Routes = []store.Route{{Name: "one"}, {Name: "two", CircuitKey: "other"}}
		})
	}
	d := r.One()
	require.Equal(t, "two", d.Route, "the circuit of the message is shut")
	require.EqualValues(t, 1, r.InFlight("own"))
	require.Empty(t, r.Deliveries())
	r.Finished(d)
	require.Equal(t, "two", r.One().Route)
}

// A restart does not forget by which route a message went.
func TestARestartKeepsTheRoute(t *testing.T) {
	r := newRig(t, nil)
	r.PauseCircuit("one", queue.Forever)
	r.Consume(queue.Main, "w", 100, 0)
	id := r.Enqueue("k", by("one", "two"))
	d := r.One()
	require.Equal(t, "two", d.Route)
	r.Commit()
	r.Pass(time.Second) // the lease is written
	r.Commit()
	r.Restart(true, time.Second)
	require.EqualValues(t, 1, r.InFlight("two"))
	require.Zero(t, r.InFlight("one"))
	require.Equal(t, "two", r.Find(queue.Main, id).Route)
	r.Ack(d, nack, "")
	r.Commit()
	require.Equal(t, "two", records(r, ref(r, queue.Main, 1))[0].Route)
}

// Each attempt in the history has its route, however it ended, and nothing has one without a choice.
func TestAttemptsNameTheirRoute(t *testing.T) {
	for _, judge := range []bool{false, true} {
		r := newRig(t, func(s *queue.Settings) { s.Judge = judge })
		r.Enqueue("k", by("one", "two"))
		r.Commit()
		ended := func(route string, a wire.Ack) {
			r.Consume(queue.Main, "w", 100, 0)
			d := r.One()
			require.Equal(t, route, d.Route)
			r.Leave(queue.Main, "w")
			if a.Kind == 0 {
				r.Pass(time.Duration(d.Deadline - r.Now))
			} else {
				r.Ack(d, a, "")
			}
			r.Run()
			for _, f := range r.Judge {
				require.Equal(t, route, f.Route, "on_failure knows it")
				r.Post(queue.Input{Kind: queue.Judged, Verdict: &queue.Verdict{Failure: f}})
			}
			r.Judge = r.Judge[:0]
			r.Run()
			r.Commit()
		}
		ended("one", nack)
		r.PauseCircuit("one", queue.Forever)
		ended("two", nobody)
		ended("two", wire.Ack{})
		r.PauseCircuit("one", 0)
		ended("one", wire.Ack{Kind: wire.AckTerm})
		r.Consume(queue.Dead, "dead", 1, 0)
		r.Ack(r.One(), nack, "")
		r.Commit()
		var got []string
		for _, p := range records(r, ref(r, queue.Dead, 1)) {
			got = append(got, p.Outcome+" "+p.Route)
		}
		require.Equal(t, []string{"nack one", "no_responders two", "expired two", "term one", "nack "}, got)
	}
}

// With weights messages are shared among the routes that admit them in proportion, and a
// message that waits does not change its mind.
func TestRoutesByWeight(t *testing.T) {
	const n = 2000
	weighted := func(m *store.Message) {
		by("one", "two", "three")(m)
		for i, w := range []uint32{1000, 3000, 6000} {
			m.Routes[i].Weight = w
		}
	}
	r := newRig(t, nil)
	r.Consume(queue.Main, "w", n, 0)
	count := make(map[string]int)
	drain := func() {
		for i := range n {
			r.Enqueue(fmt.Sprint("k", i%50), weighted)
		}
		for _, d := range r.Deliveries() {
			count[d.Route]++
			r.Finished(d)
		}
	}
	drain()
	require.InDelta(t, n/10, count["one"], n/50)
	require.InDelta(t, n*3/10, count["two"], n/25)
	require.InDelta(t, n*6/10, count["three"], n/25)
	clear(count)
	r.PauseCircuit("three", queue.Forever)
	drain()
	require.InDelta(t, n/4, count["one"], n/25)
	require.InDelta(t, n*3/4, count["two"], n/25)
}

// A message of which one route has several throttle keys reserves them, so that messages that
// need one of them do not starve it.
func TestARouteReserves(t *testing.T) {
	r := newRig(t, nil)
	for _, key := range []string{"x", "y", "z"} {
		r.LimitNow(key, throttle.Limits{Concurrency: 1})
	}
	r.Consume(queue.Main, "w", 100, 0)
	for _, key := range []string{"x", "y", "z"} {
		r.Gated("h"+key, key)
	}
	ds := r.Deliveries()
	require.Len(t, ds, 3)
	id := r.Enqueue("both", func(m *store.Message) {
		m.Routes = []store.Route{{Name: "one", ThrottleKeys: []string{"z"}}, {Name: "two", ThrottleKeys: []string{"x", "y"}}}
	})
	r.Commit()
	r.PauseThrottle("z", throttle.Never)
	for range 40 { // "x" and "y" are never free together
		r.Pass(100 * time.Millisecond)
		for i := range 2 {
			d := ds[i]
			r.Gated("h"+[]string{"x", "y"}[i], []string{"x", "y"}[i])
			r.Finished(d)
			for _, next := range r.Deliveries() {
				if next.ID == id {
					require.Equal(t, "two", next.Route)
					return
				}
				ds[i] = next
			}
			check(r)
		}
	}
	require.Fail(t, "it starves")
}
