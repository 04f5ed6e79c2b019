package sidecar

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// limit gives a throttle key limits and makes the turns that follow.
func (r *rig) limit(key string, l throttle.Limits) {
	r.t.Helper()
	wakes, err := r.core.gates.SetLimits(key, l, r.now, nil)
	require.NoError(r.t, err)
	r.core.wake(wakes)
	r.run()
}

func perSecond(n int64) throttle.Limits {
	return throttle.Limits{Rate: throttle.PerSecond(n * throttle.One), Burst: throttle.One}
}

// gated enqueues a message with throttle keys and commits it.
func (r *rig) gated(key string, throttleKeys ...string) store.ID {
	r.t.Helper()
	id := r.enqueue(key, func(m *store.Message) { m.ThrottleKeys = throttleKeys })
	r.commit()
	return id
}

func (r *rig) done(ds ...sent) {
	r.t.Helper()
	for _, d := range ds {
		r.ack(d, wire.Ack{Kind: wire.AckDone}, "")
	}
	r.commit()
}

func (r *rig) check() {
	r.t.Helper()
	checkLoop(r.t, r.loops[r.q], 0, 0)
}

func TestARateHoldsOnlyItsOwnMessagesBack(t *testing.T) {
	r := newRig(t, nil)
	r.limit("slow", perSecond(1))
	r.consume(r.q, "w", 100, 0)
	var want []store.ID
	for range 4 {
		want = append(want, r.gated("a", "slow"))
	}
	free := []store.ID{r.gated("a"), r.gated("b", "unlimited"), r.gated("a")}
	r.check()
	ds := r.deliveries()
	require.ElementsMatch(t, append(free, want[0]), ids(ds), "the others do not wait, in the same flow or elsewhere")
	for i := 1; i < 4; i++ {
		r.pass(999 * time.Millisecond)
		require.Empty(t, r.deliveries())
		r.pass(time.Millisecond)
		require.Equal(t, []store.ID{want[i]}, ids(r.deliveries()))
		r.check()
	}
	require.Empty(t, r.loops[r.q].sites.byGate, "nothing waits any more")
	require.Zero(t, r.loops[r.q].parked)
}

func TestFlowsShareAGateByWeight(t *testing.T) {
	r := newRig(t, nil)
	r.limit("vendor", throttle.Limits{Rate: throttle.PerSecond(10 * throttle.One), Burst: throttle.One})
	r.consume(r.q, "w", 1000, 0)
	for range 400 {
		for key, weight := range map[string]uint32{"gold": 3000, "silver": 1000} {
			r.enqueue(key, func(m *store.Message) { m.Weight, m.ThrottleKeys = weight, []string{"vendor"} })
		}
	}
	r.commit()
	r.done(r.deliveries()...)
	got := make(map[string]int)
	for range 400 {
		r.pass(100 * time.Millisecond)
		ds := r.deliveries()
		require.Len(t, ds, 1)
		got[ds[0].key]++
		r.done(ds...)
		require.InDelta(t, 3*got["silver"], got["gold"], 4.0)
	}
	require.Equal(t, 400, got["gold"]+got["silver"])
	r.check()
}

func TestConcurrencyIsGivenBackHoweverALeaseEnds(t *testing.T) {
	ends := map[string]func(r *rig, d sent){
		"ack":           func(r *rig, d sent) { r.done(d) },
		"nack":          func(r *rig, d sent) { r.ack(d, wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Hour}, "") },
		"term":          func(r *rig, d sent) { r.ack(d, wire.Ack{Kind: wire.AckTerm}, "") },
		"expiry":        func(r *rig, _ sent) { r.pass(31 * time.Second) },
		"no responders": func(r *rig, d sent) { r.ack(d, wire.Ack{Kind: wire.AckNoResponders}, ""); r.consume(r.q, "w", 100, 0) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.limit("db", throttle.Limits{Concurrency: 1})
			r.consume(r.q, "w", 100, 0)
			r.gated("a", "db")
			r.gated("b", "db")
			first := r.one()
			require.Empty(t, r.deliveries())
			end(r, first)
			r.commit()
			require.Len(t, r.deliveries(), 1)
			g, _ := r.core.gates.Find("db")
			require.EqualValues(t, 1, g.Info(r.now).InFlight)
			r.check()
		})
	}
}

func TestAMessageWithSeveralGatesTakesAllOrNone(t *testing.T) {
	r := newRig(t, nil)
	r.limit("x", throttle.Limits{Concurrency: 1})
	r.limit("y", perSecond(1))
	r.consume(r.q, "w", 100, 0)
	r.gated("a", "y")      // takes the token
	r.gated("a", "x", "y") // waits for y, and takes no place at x
	require.Len(t, r.deliveries(), 1)
	r.gated("b", "x")
	b := r.one()
	r.pass(time.Second)
	require.Empty(t, r.deliveries(), "x is taken now")
	r.gated("c", "y")
	require.Len(t, r.deliveries(), 1, "the token of y is not held by a message that waits for x")
	r.done(b)
	r.pass(time.Second)
	require.Len(t, r.deliveries(), 1)
	r.check()
}

func TestLimitsThatChangeActOnTheBacklog(t *testing.T) {
	r := newRig(t, nil)
	r.limit("k", throttle.Limits{Rate: throttle.Rate{Cost: 1000, Per: int64(time.Hour)}, Burst: 1000})
	r.consume(r.q, "w", 100, 0)
	for range 10 {
		r.gated("a", "k")
	}
	require.Len(t, r.deliveries(), 1)
	r.limit("k", throttle.Limits{Concurrency: 5})
	require.Len(t, r.deliveries(), 4, "one is in flight already")
	r.limit("k", throttle.Limits{})
	require.Len(t, r.deliveries(), 5)
	r.check()
}

func TestOrderInALaneIsKept(t *testing.T) {
	r := newRig(t, nil)
	r.limit("k", throttle.Limits{Concurrency: 3})
	r.consume(r.q, "w", 100, 0)
	var want, got []store.ID
	for range 20 {
		want = append(want, r.gated("a", "k"))
	}
	for len(got) < len(want) {
		ds := r.deliveries()
		require.NotEmpty(t, ds)
		got = append(got, ids(ds)...)
		r.done(ds...)
		r.check()
	}
	require.Equal(t, want, got)
}

func TestWhatNobodyReceivedKeepsItsPlaceInItsLane(t *testing.T) {
	r := newRig(t, nil)
	r.limit("k", throttle.Limits{Concurrency: 3})
	r.consume(r.q, "w", 100, 0)
	var want []store.ID
	for range 6 {
		want = append(want, r.gated("a", "k"))
	}
	ds := r.deliveries()
	require.Equal(t, want[:3], ids(ds))
	r.limit("k", throttle.Limits{Concurrency: 1})
	for _, d := range ds {
		r.ack(d, wire.Ack{Kind: wire.AckNoResponders}, "")
		r.check()
	}
	r.consume(r.q, "w", 100, 0)
	var got []store.ID
	for range 6 {
		d := r.one()
		got = append(got, d.id)
		r.check()
		r.done(d)
	}
	require.Equal(t, want, got)
}

func TestParkedMessagesExpire(t *testing.T) {
	r := newRig(t, nil)
	r.limit("k", throttle.Limits{Concurrency: 1})
	r.consume(r.q, "w", 100, 0)
	r.gated("a", "k")
	d := r.one()
	for i := range 3 {
		r.enqueue("a", func(m *store.Message) {
			m.ThrottleKeys = []string{"k"}
			m.ExpiresAt = r.now + int64(i+1)*1e9
		})
	}
	last := r.gated("a", "k")
	for range 3 {
		r.pass(time.Second)
		r.commit()
		r.check()
	}
	require.EqualValues(t, 3, counter(r.q, "ttl_expired"))
	r.done(d)
	require.Equal(t, []store.ID{last}, ids(r.deliveries()))
}

func TestPauses(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 100, 0)
	pause := func(key string, until int64) {
		r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseKey(key, until) }})
	}
	pause("a", byHand)
	held := []store.ID{r.gated("a"), r.gated("a"), r.gated("a", "k")}
	require.Empty(t, r.deliveries())
	r.gated("b")
	require.Len(t, r.deliveries(), 1)
	pause("a", 0)
	require.ElementsMatch(t, held, ids(r.deliveries()))
	pause("a", r.now+1e9)
	r.gated("a")
	require.Empty(t, r.deliveries())
	r.check()
	r.pass(time.Second)
	require.Len(t, r.deliveries(), 1)

	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseUntil(r.now + 2e9) }})
	r.gated("b")
	r.pass(time.Second)
	require.Empty(t, r.deliveries())
	r.pass(time.Second)
	require.Len(t, r.deliveries(), 1)
	r.check()
}

func TestAnOpenCircuitParksItsMessages(t *testing.T) {
	r := newRig(t, nil)
	r.core.circuits.configure(circuitSettings{breaker: breaker.Config{
		Threshold: 2, Cooldown: 10 * time.Second, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1,
	}}, nil)
	r.consume(r.q, "w", 1, 0)
	var all []store.ID
	for range 6 {
		all = append(all, r.enqueue("a", func(m *store.Message) { m.CircuitKey = "stripe" }))
	}
	r.commit()
	nack := wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Minute, Error: "boom"}
	r.ack(r.one(), nack, "")
	r.ack(r.one(), nack, "")
	require.Empty(t, r.deliveries(), "two failures have opened it")
	r.check()
	other := r.gated("a")
	d := r.one()
	require.Equal(t, other, d.id)
	r.done(d)
	r.pass(9 * time.Second)
	require.Empty(t, r.deliveries())
	r.pass(time.Second)
	probe := r.one()
	require.Equal(t, all[2], probe.id)
	require.EqualValues(t, 1, probe.attempt)
	r.ack(probe, wire.Ack{Kind: wire.AckNack, RetryAfter: 0}, "")
	require.Empty(t, r.deliveries(), "one failure opens it again")
	r.pass(10 * time.Second)
	probe = r.one()
	r.done(probe)
	r.consume(r.q, "w", 10, 0)
	require.Len(t, r.deliveries(), 3, "a success has closed it")
	r.check()
}

func TestRetryAfterShutsTheCircuitForEverybody(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 1, 0)
	for i := range 3 {
		r.enqueue(fmt.Sprint("tenant-", i), func(m *store.Message) { m.CircuitKey = "api" })
	}
	r.commit()
	r.ack(r.one(), wire.Ack{Kind: wire.AckNack, RetryAfter: 5 * time.Second, HasDelay: true, Delay: time.Second}, "")
	r.consume(r.q, "w", 10, 0)
	r.pass(4999 * time.Millisecond)
	require.Empty(t, r.deliveries())
	r.pass(time.Millisecond)
	require.Len(t, r.deliveries(), 3)
	r.check()
}

func TestStrictOrderPerKey(t *testing.T) {
	for _, blocked := range []string{"wait", "skip"} {
		t.Run(blocked, func(t *testing.T) {
			r := newRig(t, func(s *wire.QueueSettings) { s.Ordering, s.OnBlocked = "key", blocked })
			r.consume(r.q, "w", 100, 0)
			a1, a2 := r.gated("a"), r.gated("a")
			b1 := r.gated("b")
			ds := r.deliveries()
			require.Equal(t, []store.ID{a1, b1}, ids(ds), "one of each key")
			r.ack(ds[0], wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: 10 * time.Second}, "")
			r.commit()
			r.check()
			if blocked == "skip" {
				d := r.one()
				require.Equal(t, a2, d.id)
				a3 := r.gated("a")
				r.pass(10 * time.Second)
				require.Empty(t, r.deliveries(), "a2 is in flight")
				r.done(d)
				d = r.one()
				require.Equal(t, a1, d.id, "the retry has kept its place")
				r.done(d)
				require.Equal(t, a3, r.one().id)
			} else {
				r.pass(9 * time.Second)
				require.Empty(t, r.deliveries(), "the key waits for its retry")
				r.pass(time.Second)
				d := r.one()
				require.Equal(t, a1, d.id)
				r.done(d)
				require.Equal(t, a2, r.one().id)
			}
			r.check()
		})
	}
}

func TestGatesOverARestart(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 2, 0)
	r.limit("db", throttle.Limits{Concurrency: 2})
	for range 4 {
		r.gated("a", "db")
	}
	first := r.deliveries()
	require.Len(t, first, 2)
	r.restart(false)
	g, ok := r.core.gates.Find("db")
	require.True(t, ok)
	require.EqualValues(t, 2, g.Info(r.now).InFlight, "what is leased is in flight")
	r.limit("db", throttle.Limits{Concurrency: 2})
	r.sent = nil
	r.pass(0)
	for i := range first {
		first[i].q = r.same(first[i].q)
	}
	r.done(first[0])
	r.check()
}
