package sidecar

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// What the gate machine has found, in few steps.

var nobody = wire.Ack{Kind: wire.AckNoResponders}

// With on_blocked = "skip" messages of one lane do not pass each other, although
// each gives the key up when it is parked.
func TestSkippedMessagesKeepTheOrderOfTheirLane(t *testing.T) {
	r := newRig(t, func(s *wire.QueueSettings) { s.Ordering, s.OnBlocked = "key", "skip" })
	r.limit("k", perSecond(1))
	r.consume(r.q, "w", 100, 0)
	var want []store.ID
	for range 4 {
		want = append(want, r.gated("a", "k"))
	}
	require.Equal(t, want[:1], ids(r.deliveries()))
	r.limit("k", throttle.Limits{Concurrency: 5})
	require.Empty(t, r.deliveries(), "one of the key is in flight")
	free := r.gated("a")
	require.Empty(t, r.deliveries(), "one of the key is in flight")
	r.check()
	r.limit("k", perSecond(1))
	r.ack(sent{r.q, delivery{seq: 1, attempt: 1, lease: leaseOf(r, 1)}}, wire.Ack{Kind: wire.AckDone}, "")
	d := r.one()
	require.Equal(t, want[1], d.id)
	r.done(d)
	d = r.one()
	require.Equal(t, free, d.id, "it passes those that wait for the gate")
	r.done(d)
	want = want[1:]
	for _, id := range want[1:] {
		r.check()
		r.pass(time.Second)
		d := r.one()
		require.Equal(t, id, d.id)
		r.done(d)
	}
}

func leaseOf(r *rig, seq uint64) uint64 {
	l := r.loop(r.q)
	return l.leases.items[l.slots.get(seq).ref].id
}

// A message that nobody received goes before a younger one that its gate had
// called in vain.
func TestWhatNobodyReceivedGoesBeforeWhatWasCalled(t *testing.T) {
	r := newRig(t, nil)
	r.limit("k", throttle.Limits{Rate: throttle.PerSecond(500), Burst: 3000})
	r.consume(r.q, "w1", 1, 0)
	r.consume(r.q, "w2", 1, 0)
	for range 2 {
		r.enqueue("a", func(m *store.Message) { m.ThrottleKeys, m.Cost = []string{"k"}, 2000 })
	}
	d := r.one()
	r.check()
	r.ack(d, nobody, "")
	require.Equal(t, d.id, r.one().id)
	r.check()
}

// The order in which a hook names the gates makes no difference.
func TestTheOrderOfThrottleKeysMakesNoLane(t *testing.T) {
	r := newRig(t, nil)
	r.limit("x", perSecond(1))
	r.consume(r.q, "w", 100, 0)
	want := []store.ID{r.gated("a", "x", "y"), r.gated("a", "y", "x"), r.gated("a", "x", "y", "x"), r.gated("a", "y", "x")}
	require.Len(t, r.loop(r.q).lanes.ids, 1)
	var got []store.ID
	for range want {
		got = append(got, ids(r.deliveries())...)
		r.pass(time.Second)
	}
	require.Equal(t, want, got)
}

// A message that has tried in vain after its queue left the round, for want of
// consumers, is told when the gate opens.
func TestALateTryIsNotForgotten(t *testing.T) {
	f := newFleet(t, fleetSettings(2, nil)...)
	var got []delivery
	f.went = func(_ *queue, ds []delivery) { got = append(got, ds...) }
	f.limit("k", throttle.Limits{Concurrency: 1})
	a, b := f.queues[0], f.queues[1]
	put := func(q *queue) { f.enqueue(q, "key", func(m *store.Message) { m.ThrottleKeys = []string{"k"} }) }
	last := func() delivery {
		t.Helper()
		f.commit()
		require.Len(t, got, 1)
		d := got[0]
		got = nil
		return d
	}
	ack := func(q *queue, d delivery) {
		f.post(q, event{kind: evAck, token: d.token(), ack: wire.Ack{Kind: wire.AckDone}})
	}
	f.consume(a, "w", 2, 0)
	put(a)
	put(a)
	first := last()
	f.call(a, func(l *loop) { l.leave("w", "", func(bool) []byte { return nil }) })
	ack(a, first) // the gate calls the second one, and nobody is there for it
	f.consume(b, "w", 1, 0)
	f.run()
	put(b)
	second := last()
	f.consume(a, "w", 1, 0) // now it tries, and the place is taken
	f.run()
	require.Empty(t, got)
	f.check(false)
	ack(b, second)
	last()
	f.check(false)
}

// A message without gates that nobody received and whose key is paused is counted
// by the lane that it gets then.
func TestWhatNobodyReceivedOfAPausedKey(t *testing.T) {
	r := newRig(t, nil)
	r.consume(r.q, "w", 100, 0)
	want := []store.ID{r.gated("a"), r.gated("a")}
	ds := r.deliveries()
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseKey("a", byHand) }})
	for _, d := range ds {
		r.ack(d, nobody, "")
	}
	r.consume(r.q, "w", 100, 0)
	require.Empty(t, r.deliveries())
	r.check()
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseKey("a", 0) }})
	require.Equal(t, want, ids(r.deliveries()))
	r.check()
}

// Nothing is kept from others for a message that waits for the end of a pause, or
// for a circuit.
func TestNoReservationOverPausesAndCircuits(t *testing.T) {
	shuts := map[string]func(r *rig){
		"key":   func(r *rig) { r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseKey("big", byHand) }}) },
		"queue": func(r *rig) { r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseUntil(byHand) }}) },
		"circuit": func(r *rig) { // it is seen when the gate opens
			r.core.circuits.pause("c", byHand)
			r.limit("x", throttle.Limits{Concurrency: 5})
		},
	}
	for name, shut := range shuts {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.limit("x", throttle.Limits{Concurrency: 1})
			r.limit("y", throttle.Limits{Concurrency: 1})
			r.consume(r.q, "w", 100, 0)
			x, y := r.gated("other", "x"), r.gated("other", "y")
			require.Equal(t, []store.ID{x, y}, ids(r.deliveries()))
			r.enqueue("big", func(m *store.Message) { m.ThrottleKeys, m.CircuitKey = []string{"x", "y"}, "c" })
			r.commit()
			r.pass(2 * time.Second)
			r.ack(sent{r.q, delivery{seq: 2, attempt: 1, lease: leaseOf(r, 2)}}, wire.Ack{Kind: wire.AckDone}, "")
			if r.loop(r.q).reserving == 0 { // it looks again at the gate that it waits at
				r.gated("other", "x")
				r.ack(sent{r.q, delivery{seq: 1, attempt: 1, lease: leaseOf(r, 1)}}, wire.Ack{Kind: wire.AckNack, HasDelay: true, Delay: time.Hour}, "")
			}
			require.NotZero(t, r.loop(r.q).reserving, "it collects its gates")
			shut(r)
			r.pass(time.Second)
			g, _ := r.core.gates.Find("y")
			require.Zero(t, g.Info(r.now).Held, "kept from others")
		})
	}
}

// Messages without gates keep their order over a pause of their key, too.
func TestAPauseKeepsTheOrderOfMessagesWithoutGates(t *testing.T) {
	r := newRig(t, nil)
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseKey("a", byHand) }})
	r.consume(r.q, "w", 1, 0)
	want := []store.ID{r.gated("a"), r.gated("a"), r.gated("a")}
	require.Empty(t, r.deliveries())
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseKey("a", 0) }})
	want = append(want, r.gated("a"), r.gated("a"))
	require.Equal(t, want[:1], ids(r.deliveries()))
	r.consume(r.q, "w", 10, 0)
	require.Equal(t, want[1:], ids(r.deliveries()))
	r.check()
}

// The end of a pause does not make a loop spin that must not deliver.
func TestAPauseThatEndsWhileDisconnected(t *testing.T) {
	r := newRig(t, nil)
	r.post(r.q, event{kind: evCall, call: func(l *loop) { l.pauseUntil(r.now + 1e9) }})
	r.core.offline.Store(true)
	r.pass(time.Second)
	require.Positive(t, r.loop(r.q).sleep())
}
