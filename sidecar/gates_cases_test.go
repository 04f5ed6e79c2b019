package sidecar

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

func TestSkipPassesEveryBlockedMessage(t *testing.T) {
	r := newRig(t, func(s *wire.QueueSettings) { s.Ordering, s.OnBlocked = "key", "skip" })
	r.limit("x", throttle.Limits{Concurrency: 1})
	r.consume(r.q, "w", 100, 0)
	r.gated("other", "x")
	require.Len(t, r.deliveries(), 1) // x is taken
	r.gated("a", "x")
	r.gated("a", "x")
	free := r.gated("a")
	require.Equal(t, []store.ID{free}, ids(r.deliveries()), "both messages that wait for x are passed")
	r.check()
}

func TestAWeightThatChangesActsOnWhatIsParked(t *testing.T) {
	for _, how := range []string{"enqueue", "override"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, nil)
			r.limit("vendor", throttle.Limits{Rate: throttle.PerSecond(10 * throttle.One), Burst: throttle.One})
			r.consume(r.q, "w", 1000, 0)
			for range 400 {
				for _, key := range []string{"gold", "silver"} {
					r.enqueue(key, func(m *store.Message) { m.Weight, m.ThrottleKeys = 1000, []string{"vendor"} })
				}
			}
			r.commit()
			r.done(r.deliveries()...)
			switch how {
			case "enqueue":
				r.enqueue("gold", func(m *store.Message) { m.Weight, m.ThrottleKeys = 3000, []string{"vendor"} })
				r.commit()
			case "override":
				r.post(r.q, event{kind: evCall, call: func(l *loop) { l.overrideWeight("gold", 3000) }})
			}
			got := make(map[string]int)
			for range 200 {
				r.pass(100 * time.Millisecond)
				for _, d := range r.deliveries() {
					got[d.key]++
					r.done(d)
				}
			}
			require.InDelta(t, 3*got["silver"], got["gold"], 8, "%v", got)
		})
	}
}

func TestAReservationIsNotHeldByWhatCannotGo(t *testing.T) {
	for name, shut := range map[string]func(r *rig){
		"queue paused": func(r *rig) { r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseUntil(byHand) }}) },
		"key paused":   func(r *rig) { r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseKey("both", byHand) }}) },
		"circuit open": func(r *rig) { r.core.circuits.pause("c", byHand); r.run() },
		"gate paused":  func(r *rig) { r.core.wake(r.core.gates.Pause("y", throttle.Never, r.now, nil)); r.run() },
		"offline":      func(r *rig) { r.core.offline.Store(true); r.q.mail.poke(); r.run() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.limit("x", throttle.Limits{Concurrency: 1})
			r.limit("y", throttle.Limits{Concurrency: 1})
			r.consume(r.q, "w", 100, 0)
			r.gated("hx", "x")
			r.gated("hy", "y")
			ds := r.deliveries()
			require.Len(t, ds, 2)
			x, y := ds[0], ds[1]
			if x.key != "hx" {
				x, y = y, x
			}
			r.enqueue("both", func(m *store.Message) { m.ThrottleKeys, m.CircuitKey = []string{"x", "y"}, "c" })
			r.commit()
			r.pass(2 * time.Second) // it has waited for long enough
			r.gated("hx", "x")
			r.done(y) // "both" tries, and reserves y
			r.pass(0)
			gy, _ := r.core.gates.Find("y")
			gx, _ := r.core.gates.Find("x")
			t.Log("held x", gx.Info(r.now).Held, "y", gy.Info(r.now).Held, "reserving", r.loops[r.q].reserving)
			require.NotZero(t, r.loops[r.q].reserving, "the scenario: it has a reservation")
			shut(r)
			r.done(x)
			for range 5 {
				r.pass(time.Second)
			}
			held := gx.Info(r.now).Held + gy.Info(r.now).Held
			require.Zero(t, held, "gates are kept from everybody else by a message that cannot go")
			require.Zero(t, r.loops[r.q].reserving)
		})
	}
}

func TestASafetyHoldDoesNotEndAnOperatorsPauseSooner(t *testing.T) {
	r := newRig(t, func(s *wire.QueueSettings) {
		s.MaxFailuresPerKey, s.FailureWindowMs, s.FailureHoldMs = 1, 60_000, 1000
	})
	r.consume(r.q, "w", 100, 0)
	for range 3 {
		r.gated("a")
	}
	ds := r.deliveries()
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseKey("a", byHand) }})
	for _, d := range ds {
		r.ack(d, wire.Ack{Kind: wire.AckNack}, "")
	}
	r.commit()
	r.pass(2 * time.Second)
	require.Empty(t, r.deliveries(), "the operator's pause has no end")
}

func TestAnExpensiveHeadThatGoesMakesWay(t *testing.T) {
	r := newRig(t, nil)
	r.limit("k", throttle.Limits{Rate: throttle.PerSecond(throttle.One), Burst: 100 * throttle.One})
	r.consume(r.q, "w", 1000, 0)
	for range 100 {
		r.gated("fill", "k")
	}
	r.done(r.deliveries()...)
	r.enqueue("a", func(m *store.Message) { // a hundred tokens, but gives up after 10 s
		m.ThrottleKeys, m.Cost, m.ExpiresAt = []string{"k"}, 100_000, r.now+10e9
	})
	r.commit()
	r.gated("a", "k") // the same lane
	r.pass(2 * time.Second)
	require.Empty(t, r.deliveries())
	r.pass(8 * time.Second) // the first one expires; ten tokens are there
	r.commit()
	require.Len(t, r.deliveries(), 1, "the gate is open and nothing is in front")
	r.check()
}

func TestATakenBackMessageOfAPausedKey(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 100, 0)
	r.gated("a")
	d := r.one()
	r.ack(d, wire.Ack{Kind: wire.AckNoResponders}, "")
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseKey("a", byHand) }})
	r.consume(r.q, "w", 100, 0)
	r.check()
}

func TestRedriveOfAKeyThatWasPaused(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 100, 0)
	for range 3 {
		r.gated("a")
	}
	for _, d := range r.deliveries() {
		r.ack(d, wire.Ack{Kind: wire.AckTerm}, "")
	}
	r.commit()
	r.post(r.dlq, event{kind: evCall, call: func(l *loop) { l.pauseKey("a", byHand) }})
	r.consume(r.dlq, "d", 100, 0)
	require.Empty(t, r.deliveries())
	r.post(r.dlq, event{kind: evCall, call: func(l *loop) { l.leave("d", "", func(bool) []byte { return nil }) }})
	r.post(r.dlq, event{kind: evCall, call: func(l *loop) { l.pauseKey("a", 0) }})
	var items []redriveItem
	r.post(r.dlq, event{kind: evCall, call: func(l *loop) { items, _ = l.pick(0, r.dlq.seq.Load(), 100) }})
	t.Log("picked", len(items))
	r.post(r.dlq, event{kind: evCall, call: func(l *loop) { l.redriven(items, nil) }})
	r.consume(r.dlq, "d", 100, 0)
	require.Len(t, r.deliveries(), 3-len(items), "what was not moved can be delivered")
	require.Len(t, items, 3, "all are moved")
}

func TestARefusedProbeIsToldAgain(t *testing.T) {
	r := newRig(t, nil)
	r.core.circuits.configure(circuitSettings{breaker: breaker.Config{
		Threshold: 1, Cooldown: time.Second, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 1,
	}}, nil)
	ci := r.core.circuits.use("c")
	told := 0
	r.core.circuits.wake = func(*queue, *circuit) { told++ }
	p, _ := ci.allow(r.now)
	ci.done(&p, r.now, breaker.Failure)
	ci.wait(r.q) // shut until +1 s
	_, at := ci.admits(r.now)
	r.now = at
	n, _ := ci.admits(r.now) // r.q looks: 1
	require.EqualValues(t, 1, n)
	other, ok := ci.allow(r.now) // another queue is faster
	require.True(t, ok)
	_, ok = ci.allow(r.now) // r.q tries
	require.False(t, ok)
	// r.q now waits to be told, without another admits (block.at is Never).
	told = 0
	ci.done(&other, r.now, breaker.Neutral)
	first := told
	// again: it was told, looks (1), and is too late again
	n, _ = ci.admits(r.now)
	require.EqualValues(t, 1, n)
	other, _ = ci.allow(r.now)
	_, ok = ci.allow(r.now)
	require.False(t, ok)
	told = 0
	ci.done(&other, r.now, breaker.Success)
	require.Equal(t, []int{1, 1}, []int{first, told})
}
