package admin

import (
	"cmp"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// now is the time of every test here.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()

const second = int64(time.Second)

// at returns the time that many seconds after now as text.
func at(seconds int64) string { return wire.Timestamp(now + seconds*second) }

// circuitOf returns a circuit that admits n messages, or may open again at a time.
type circuitOf struct {
	gates.Circuit
	key   string
	n, at int64
}

func (c circuitOf) Key() string              { return c.key }
func (c circuitOf) Peek(int64) (n, at int64) { return c.n, c.at }

// explained is a place where things are explained at the time now.
type explained struct {
	gateStates
	t        *testing.T
	registry *throttle.Gates
	circuits map[string]api.CircuitInfo
}

func newExplained(t *testing.T) *explained {
	x := &explained{t: t, registry: throttle.New(throttle.Start{}, now), circuits: make(map[string]api.CircuitInfo)}
	x.now = func() int64 { return now }
	x.limits = func(key string) (api.ThrottleLimits, string) {
		l := x.registry.Limits(key)
		if l == (throttle.Limits{}) {
			return api.ThrottleLimits{}, ""
		}
		return control.WireLimits(l), "operator"
	}
	x.circuit = func(key string) (api.CircuitInfo, bool) {
		i, ok := x.circuits[key]
		return i, ok
	}
	return x
}

// throttle returns the gate of a throttle key that has admitted used messages of cost 1.
func (x *explained) throttle(key string, l throttle.Limits, used int) *throttle.Gate {
	x.t.Helper()
	_, err := x.registry.SetLimits(key, l, now, nil)
	require.NoError(x.t, err)
	set, err := x.registry.Set([]string{key}, now)
	require.NoError(x.t, err)
	for range used {
		_, _, ok := set.Acquire(now, throttle.One, nil)
		require.True(x.t, ok)
	}
	g, ok := x.registry.Find(key)
	require.True(x.t, ok)
	return g
}

// id is the id of every message here.
var id = store.ID{0x01, 0x98, 15: 1}

const idText = "01980000-0000-0000-0000-000000000001"

// place is where a message is blocked.
type place func(x *explained, v *inspect.MessageView)

// atThrottle is a throttle key that has admitted used messages.
func atThrottle(by gates.BlockKind, l throttle.Limits, used int) place {
	return func(x *explained, v *inspect.MessageView) {
		v.State, v.By, v.At = inspect.StateBlocked, by, gates.Place{Throttle: x.throttle("stripe", l, used)}
	}
}

// atRate is a throttle key that lets the next message through in 10 seconds.
func atRate(x *explained, v *inspect.MessageView) {
	atThrottle(gates.ByRate, throttle.Limits{Rate: throttle.Rate{Cost: 1000, Per: 10 * second}, Burst: 2000}, 2)(x, v)
	v.Throttles = []*throttle.Gate{v.At.Throttle}
}

// atCircuit is a circuit that may open again at a time.
func atCircuit(i api.CircuitInfo, at int64) place {
	return func(x *explained, v *inspect.MessageView) {
		x.circuits["api"] = i
		c := circuitOf{key: "api", at: at}
		v.State, v.By, v.At, v.Circuit = inspect.StateBlocked, gates.ByCircuit, gates.Place{Circuit: c}, c
	}
}

// atFailures is a circuit that failures have opened for 5 minutes.
var atFailures = atCircuit(
	api.CircuitInfo{State: "open", Source: "operator", Cause: "failures", ConsecutiveFailures: 7, Threshold: 5, CooldownMs: 300_000}, now+300*second)

// atPause is a pause of the message's key.
func atPause(until int64) place {
	return func(_ *explained, v *inspect.MessageView) {
		v.State, v.By, v.At = inspect.StateBlocked, gates.ByPause, gates.Place{Paused: true, Until: until}
	}
}

// atQueuePause is a pause of the message's queue.
func atQueuePause(until int64) place {
	return func(_ *explained, v *inspect.MessageView) {
		v.State, v.By, v.At = inspect.StateBlocked, gates.ByPause, gates.Place{Paused: true, Queue: true, Until: until}
	}
}

// TestExplainMessage explains messages in each state.
func TestExplainMessage(t *testing.T) {
	for name, tc := range map[string]struct {
		queue string // orders unless set
		view  inspect.MessageView
		at    place // nil: as view says
		dead  string
		want  api.ExplainMessage // without ID, Queue, Key, Attempt and EnqueuedAt
	}{
		"no consumer": {
			view: inspect.MessageView{State: inspect.StatePending, WaitReason: inspect.WaitReason{By: gates.ByNoConsumer}},
			want: api.ExplainMessage{State: "ready", Reason: "It is ready, but no consumer is registered."},
		},
		"no consumer has room": {
			view: inspect.MessageView{State: inspect.StatePending, WaitReason: inspect.WaitReason{By: gates.ByNoCredit}},
			want: api.ExplainMessage{
				State: "ready", Reason: "It is ready and waits for a consumer with credit.",
			},
		},
		"ready": {
			view: inspect.MessageView{State: inspect.StatePending},
			want: api.ExplainMessage{State: "ready", Reason: "It is ready and waits for the turn of its key."},
		},
		"delayed": {
			view: inspect.MessageView{State: inspect.StateDelayed, ReadyAt: now + 60*second},
			want: api.ExplainMessage{
				State: "delayed", ReadyAt: at(60), Estimate: at(60), Reason: "It is delayed until " + at(60) + ".",
			},
		},
		"leased": {
			view: inspect.MessageView{State: inspect.StateLeased, Consumer: "w", LeaseUntil: now + 30*second},
			want: api.ExplainMessage{
				State: "leased", Consumer: "w", LeaseUntil: at(30), Reason: "It is leased to consumer w until " + at(30) + ".",
			},
		},
		"failing": {
			view: inspect.MessageView{State: inspect.StateFailing},
			want: api.ExplainMessage{State: "ready", Reason: "Its last attempt failed, and on_failure is deciding about a retry."},
		},
		"moving": {
			view: inspect.MessageView{State: inspect.StateMoving},
			want: api.ExplainMessage{State: "ready", Reason: "It is moving to another queue, or a job has claimed it."},
		},
		"behind its predecessors": {
			view: inspect.MessageView{State: inspect.StateOrdered, WaitReason: inspect.WaitReason{By: gates.ByOrder}, Ahead: 2},
			want: api.ExplainMessage{
				State: "blocked", Ahead: 2, BlockedBy: &api.GateState{Kind: "order", Gate: "key:acme", SetBy: "ordering of queue orders"},
				Reason: `Another message of key "acme" comes first, and the queue keeps the order of each key.`,
			},
		},
		"first at a rate": {
			at:   atRate,
			view: inspect.MessageView{First: true, Cost: 1000, BlockedSince: now - second},
			want: api.ExplainMessage{
				State: "blocked", BlockedSince: at(-1), Estimate: at(10), Gates: []api.GateState{rateGate}, BlockedBy: &rateGate,
				Reason: "It is blocked by the rate of throttle:stripe (0.1/s, burst 2, set by an operator); it may admit messages at " + at(10) + ".",
			},
		},
		"third at a rate, with half of its deliveries": {
			at:   atRate,
			view: inspect.MessageView{Ahead: 2, Cost: 1000, Share: 0.5},
			want: api.ExplainMessage{
				State: "blocked", Ahead: 2, Estimate: at(10 + 2*10*2), Gates: []api.GateState{rateGate}, BlockedBy: &rateGate,
				Reason: "2 messages of the same key and gates are ahead of it; the first of them is blocked by " +
					"the rate of throttle:stripe (0.1/s, burst 2, set by an operator); it may admit messages at " + at(10) + ".",
			},
		},
		"so far behind that nobody counts": {
			at:   atRate,
			view: inspect.MessageView{Ahead: explainWalk, Cost: 1000, Share: 1},
			want: api.ExplainMessage{
				State: "blocked", Ahead: explainWalk, Gates: []api.GateState{rateGate}, BlockedBy: &rateGate,
				Reason: "100,000 messages of the same key and gates are ahead of it; the first of them is blocked by " +
					"the rate of throttle:stripe (0.1/s, burst 2, set by an operator); it may admit messages at " + at(10) + ".",
			},
		},
		"second at a window": {
			at:   atThrottle(gates.ByWindow, throttle.Limits{Limit: 2, Window: 60 * second}, 2),
			view: inspect.MessageView{Ahead: 1, Cost: 1000, Share: 1},
			want: api.ExplainMessage{
				State: "blocked", Ahead: 1, Estimate: at(60 + 30),
				BlockedBy: &api.GateState{
					Kind: "window", Gate: "throttle:stripe", AdmitsAt: at(60), OpensAt: at(60), Limits: "2 in any 1m", SetBy: "operator",
					InUse: "2 in the window, 2 in flight",
				},
				Reason: "1 message of the same key and gates is ahead of it, blocked by " +
					"the window of throttle:stripe (2 in any 1m, set by an operator); it may admit messages at " + at(60) + ".",
			},
		},
		"at a concurrency": {
			at:   atThrottle(gates.ByInFlight, throttle.Limits{Concurrency: 1}, 1),
			view: inspect.MessageView{First: true},
			want: api.ExplainMessage{
				State: "blocked", Reason: "It is blocked by the concurrency of throttle:stripe (1 at once, set by an operator).",
				BlockedBy: &api.GateState{
					Kind: "concurrency", Gate: "throttle:stripe", Limits: "1 at once", SetBy: "operator", InUse: "1 in flight",
				},
			},
		},
		"at an open gate, since others come first": {
			at:   atThrottle(gates.ByTurn, throttle.Limits{Concurrency: 1}, 0),
			view: inspect.MessageView{First: true},
			want: api.ExplainMessage{
				State: "blocked", Estimate: at(0),
				Reason: "It is blocked by throttle:stripe (1 at once, set by an operator), where other messages have waited longer.",
				BlockedBy: &api.GateState{
					Kind: "turn", Gate: "throttle:stripe", Admits: true, Open: true, Limits: "1 at once", SetBy: "operator", InUse: "0 in flight",
				},
			},
		},
		"at a gate that another message collects": {
			at:   atThrottle(gates.ByReserved, throttle.Limits{Concurrency: 1}, 0),
			view: inspect.MessageView{First: true},
			want: api.ExplainMessage{
				State: "blocked", Estimate: at(0),
				Reason: "It is blocked by throttle:stripe (1 at once, set by an operator), which is reserved for another message.",
				BlockedBy: &api.GateState{
					Kind: "reserved", Gate: "throttle:stripe", Admits: true, Open: true, Limits: "1 at once", SetBy: "operator", InUse: "0 in flight",
				},
			},
		},
		"at an open circuit": {
			at:   atFailures,
			view: inspect.MessageView{First: true},
			want: api.ExplainMessage{
				State: "blocked", Estimate: at(300), Gates: []api.GateState{circuitGate}, BlockedBy: &circuitGate,
				Reason: "It is blocked by circuit:api, which is open after 7 failures in a row; it may admit messages at " + at(300) + ".",
			},
		},
		"at a circuit that only a hand closes": {
			at:   atCircuit(api.CircuitInfo{State: "open", Source: "file", Cause: "by hand", Threshold: 5, CooldownMs: 1500}, queue.Forever),
			view: inspect.MessageView{First: true},
			want: api.ExplainMessage{
				State: "blocked", Gates: []api.GateState{handGate}, BlockedBy: &handGate,
				Reason: "It is blocked by circuit:api, which is open by hand.",
			},
		},
		"its key is paused": {
			at:   atPause(now + 60*second),
			view: inspect.MessageView{First: true},
			want: api.ExplainMessage{
				State: "blocked", Estimate: at(60), BlockedBy: &api.GateState{Kind: "paused", Gate: "key:acme", AdmitsAt: at(60), OpensAt: at(60)},
				Reason: "It is blocked by a pause of key:acme; it may admit messages at " + at(60) + ".",
			},
		},
		"its key is paused until it is resumed": {
			at:   atPause(queue.Forever),
			view: inspect.MessageView{First: true},
			want: api.ExplainMessage{
				State: "blocked", BlockedBy: &api.GateState{Kind: "paused", Gate: "key:acme"},
				Reason: "It is blocked by a pause of key:acme.",
			},
		},
		"the queue is paused": {
			at: atQueuePause(queue.Forever),
			want: api.ExplainMessage{
				State: "blocked", BlockedBy: &api.GateState{Kind: "paused", Gate: "queue:orders"},
				Reason: "Queue orders is paused until it is resumed.",
			},
		},
		"the queue is paused for a while": {
			at: atQueuePause(now + second),
			want: api.ExplainMessage{
				State: "blocked", Estimate: at(1), BlockedBy: &api.GateState{Kind: "paused", Gate: "queue:orders", AdmitsAt: at(1), OpensAt: at(1)},
				Reason: "Queue orders is paused until " + at(1) + ".",
			},
		},
		"delayed, and its key is paused": {
			view: inspect.MessageView{
				State: inspect.StateDelayed, ReadyAt: now + 60*second,
				WaitReason: inspect.WaitReason{By: gates.ByPause, At: gates.Place{Paused: true, Until: queue.Forever}},
			},
			want: api.ExplainMessage{
				State: "delayed", ReadyAt: at(60), Estimate: at(60), BlockedBy: &api.GateState{Kind: "paused", Gate: "key:acme"},
				Reason: `Key "acme" is paused until it is resumed. It is delayed until ` + at(60) + ".",
			},
		},
		"dead": {
			queue: "orders.dlq", dead: "It was dead-lettered.",
			view: inspect.MessageView{State: inspect.StatePending},
			want: api.ExplainMessage{State: "dead", Reason: "It was dead-lettered."},
		},
		"dead, and the reason is gone": {
			queue: "orders.dlq",
			view:  inspect.MessageView{State: inspect.StateDelayed, ReadyAt: now + second},
			want: api.ExplainMessage{
				State: "dead", ReadyAt: at(1), Estimate: at(1), Reason: "It is delayed until " + at(1) + ".",
			},
		},
		"dead, with a consumer": {
			queue: "orders.dlq", dead: "It was dead-lettered.",
			view: inspect.MessageView{State: inspect.StateLeased, Consumer: "w", LeaseUntil: now + second},
			want: api.ExplainMessage{State: "leased", Consumer: "w", LeaseUntil: at(1), Reason: "It was dead-lettered."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, v := newExplained(t), tc.view
			if tc.at != nil {
				tc.at(x, &v)
			}
			v.ID, v.Key, v.Attempt, v.EnqueuedAt = id, "acme", 3, now-10*second
			want := tc.want
			want.ID, want.Key, want.Attempt, want.EnqueuedAt, want.Queue = idText, "acme", 3, at(-10), cmp.Or(tc.queue, "orders")
			require.Equal(t, want, x.message(want.Queue, &v, tc.dead))
		})
	}
}

var rateGate = api.GateState{
	Kind: "rate", Gate: "throttle:stripe", AdmitsAt: at(10), OpensAt: at(10), Limits: "0.1/s, burst 2", SetBy: "operator",
	InUse: "0 tokens, 2 in flight",
}

var circuitGate = api.GateState{
	Kind: "circuit", Gate: "circuit:api", AdmitsAt: at(300), OpensAt: at(300), Limits: "open for 5m after 5 failures in a row", SetBy: "operator",
	InUse: "open after 7 failures in a row",
}

var handGate = api.GateState{
	Kind: "circuit", Gate: "circuit:api", Limits: "open for 1.5s after 5 failures in a row", SetBy: "file", InUse: "open by hand",
}

// TestExplainAllGates: an explanation has all gates of a message, open ones included.
func TestExplainAllGates(t *testing.T) {
	x := newExplained(t)
	free := x.throttle("free", throttle.Limits{}, 0)
	full := x.throttle("full", throttle.Limits{
		Rate: throttle.PerSecond(1500), Burst: 10_500, Limit: 100, Window: 60 * second, Concurrency: 1,
	}, 1)
	x.circuits["api"] = api.CircuitInfo{State: "closed", Threshold: 5, CooldownMs: 1000}
	v := inspect.MessageView{Throttles: []*throttle.Gate{free, full}, Circuit: circuitOf{key: "api", n: queue.Forever}}
	require.Equal(t, []api.GateState{
		{Kind: "open", Gate: "throttle:free", Admits: true, Open: true, Limits: "none", InUse: "0 in flight"},
		{
			Kind: "concurrency", Gate: "throttle:full", Limits: "1.5/s, burst 10.5, 1 at once, 100 in any 1m", SetBy: "operator",
			InUse: "9.5 tokens, 1 in the window, 1 in flight",
		},
		{Kind: "circuit", Gate: "circuit:api", Admits: true, Open: true, Limits: "open for 1s after 5 failures in a row", InUse: "closed"},
	}, x.all(&v))
}

// noDisk keeps no budgets.
type noDisk struct{}

func (noDisk) KeepBooking(string, budget.Booking) {}
func (noDisk) Warn(string, int16, budget.State)   {}

// The explanation of a message whose budget is used up says whether it waits for the next period. Of one that
// becomes a dead letter, no time is named at which it would go.
func TestExplainEmptyBudgets(t *testing.T) {
	x := newExplained(t)
	x.registry.Bank(noDisk{}, nil)
	next := wire.Timestamp(time.Unix(0, now).Truncate(time.Hour).Add(time.Hour).UnixNano())
	for _, e := range []throttle.OnEmpty{throttle.Hold, throttle.Refuse, throttle.DeadLetter} {
		gate := x.throttle(e.String(), throttle.Limits{Budget: budget.Terms{Amount: 500, Period: budget.Period{Unit: budget.Hour}}, OnEmpty: e}, 0)
		dead := e == throttle.DeadLetter
		why := inspect.WaitReason{By: gates.ByBudget, At: gates.Place{Throttle: gate}, DeadLetter: dead}
		v := inspect.MessageView{ID: id, State: inspect.StateBlocked, First: true, Cost: 1000, Throttles: []*throttle.Gate{gate}, WaitReason: why}
		m := x.message("orders", &v, "")
		require.Equal(t, "budget", m.BlockedBy.Kind)
		require.Equal(t, dead, m.BlockedBy.DeadLetters)
		require.Equal(t, []api.GateState{*m.BlockedBy}, m.Gates)
		q := x.queue("orders", &inspect.StateView{
			Stats:   inspect.Stats{Pending: 3, Blocked: 3},
			Blocked: []inspect.BlockedView{{WaitReason: why, Messages: 3, Flows: 1}},
		})
		want := ", which is used up; it begins again at " + next
		if dead {
			want = ", which has too little left, so that messages become dead letters when their turn comes"
			next = ""
		}
		require.Equal(t, next, m.Estimate)
		require.Equal(t, next, m.BlockedBy.AdmitsAt)
		gateOf := "blocked by the budget of throttle:" + e.String() + " (" + m.BlockedBy.Limits + ", set by an operator)" + want + "."
		require.Equal(t, "It is "+gateOf, m.Reason)
		require.Equal(t, "3 messages are "+gateOf, q.Reason)
	}
}

// A budget of which nothing is booked yet has its gate admit, and so does a route through it. Only a message that
// waits for that very booking names it.
func TestExplainUnbookedBudgets(t *testing.T) {
	x := newExplained(t)
	x.registry.Bank(noDisk{}, nil)
	gate := x.throttle("k", throttle.Limits{Budget: budget.Terms{Amount: 5000, Period: budget.Period{Unit: budget.Hour}}}, 0)
	for unbooked, want := range map[bool]string{true: ", of which more is on its way to the disk.", false: ", which has too little left."} {
		why := inspect.WaitReason{By: gates.ByBudget, At: gates.Place{Throttle: gate}, Unbooked: unbooked}
		v := inspect.MessageView{ID: id, State: inspect.StateBlocked, First: true, Throttles: []*throttle.Gate{gate}, WaitReason: why}
		v.Routes = []inspect.RouteView{{Name: "one", WaitReason: why, Throttles: v.Throttles}}
		m := x.message("orders", &v, "")
		require.Contains(t, m.Reason, want)
		require.Equal(t, "open", m.Gates[0].Kind)
		require.Equal(t, unbooked, m.Routes[0].Admits)
		require.Equal(t, unbooked, m.Routes[0].BlockedBy == nil)
	}
}

// TestExplainQueue explains what queues wait for.
func TestExplainQueue(t *testing.T) {
	busy := inspect.Stats{Pending: 10, Blocked: 4, Delayed: 3, InFlight: 2, Consumers: 1}
	for name, tc := range map[string]struct {
		view   inspect.StateView
		paused string
		reason string
	}{
		"paused":     {inspect.StateView{Stats: busy, Paused: now + second}, at(1), "The queue is paused until " + at(1) + "."},
		"by a hand":  {inspect.StateView{Paused: queue.Forever}, "until resumed", "The queue is paused until it is resumed."},
		"empty":      {inspect.StateView{Stats: inspect.Stats{Consumers: 1}}, "", "The queue is empty."},
		"unconsumed": {inspect.StateView{Stats: inspect.Stats{Pending: 6}}, "", "6 messages are ready, but no consumer is registered."},
		"no credit": {
			inspect.StateView{Stats: inspect.Stats{Pending: 6, InFlight: 2, Consumers: 1}},
			"",
			"6 messages are ready and wait for a consumer with credit; 2 are in flight.",
		},
		"blocked, and others unconsumed": {
			inspect.StateView{Stats: inspect.Stats{Pending: 2, Blocked: 1}, Blocked: []inspect.BlockedView{{WaitReason: inspect.WaitReason{By: gates.ByOrder}, Messages: 1, Flows: 1}}},
			"",
			"1 message is blocked by the order of queue:orders. 1 message is ready, but no consumer is registered.",
		},
		"blocked": {
			inspect.StateView{Stats: busy, Credit: 1, Blocked: []inspect.BlockedView{
				{WaitReason: inspect.WaitReason{By: gates.ByPause, At: gates.Place{Paused: true, Until: queue.Forever}}, Key: "acme", Messages: 1, Flows: 1},
				{WaitReason: inspect.WaitReason{By: gates.ByOrder}, Messages: 3, Flows: 2},
			}},
			"",
			"4 messages are blocked by gates, 3 of them by the order of queue:orders.",
		},
		"one is delayed": {inspect.StateView{Stats: inspect.Stats{Delayed: 1, Consumers: 1}, Credit: 1}, "", "1 message is delayed."},
		"no credit for one": {
			inspect.StateView{Stats: inspect.Stats{Pending: 1, InFlight: 2, Consumers: 1}},
			"",
			"1 message is ready and waits for a consumer with credit; 2 are in flight.",
		},
		"delayed":   {inspect.StateView{Stats: inspect.Stats{Delayed: 3, Consumers: 1}, Credit: 1}, "", "3 messages are delayed."},
		"delivered": {inspect.StateView{Stats: inspect.Stats{Delayed: 3, InFlight: 1, Consumers: 1}, Credit: 1}, "", "Messages are being delivered."},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExplained(t).queue("orders", &tc.view)
			m := tc.view.Stats
			require.Equal(t, api.ExplainQueue{
				Queue: "orders", Pending: m.Pending, Ready: m.Pending - m.Blocked, Blocked: m.Blocked, Parked: m.Blocked, Delayed: m.Delayed, InFlight: m.InFlight,
				Consumers: m.Consumers, Credit: tc.view.Credit, Paused: tc.paused, BlockedBy: e.BlockedBy, Reason: tc.reason,
			}, e)
			require.Len(t, e.BlockedBy, len(tc.view.Blocked))
			require.NotNil(t, e.BlockedBy, "a list in JSON")
		})
	}
}

// TestExplainBlockedCounts names the gates that block the most messages, the largest first.
func TestExplainBlockedCounts(t *testing.T) {
	x := newExplained(t)
	g := x.throttle("stripe", throttle.Limits{Concurrency: 1}, 1)
	require.Equal(t, []api.BlockedCount{
		{
			GateState: api.GateState{Kind: "concurrency", Gate: "throttle:stripe", Limits: "1 at once", SetBy: "operator", InUse: "1 in flight"},
			Messages:  7, Flows: 2,
		},
		{GateState: api.GateState{Kind: "paused", Gate: "key:acme", AdmitsAt: at(1), OpensAt: at(1)}, Messages: 3, Flows: 1},
		{GateState: api.GateState{Kind: "order", Gate: "queue:orders", SetBy: "ordering of queue orders"}, Messages: 3, Flows: 3},
	}, x.counts("orders", []inspect.BlockedView{
		{WaitReason: inspect.WaitReason{By: gates.ByPause, At: gates.Place{Paused: true, Until: now + second}}, Key: "acme", Messages: 3, Flows: 1},
		{WaitReason: inspect.WaitReason{By: gates.ByInFlight, At: gates.Place{Throttle: g}}, Messages: 7, Flows: 2},
		{WaitReason: inspect.WaitReason{By: gates.ByOrder}, Messages: 3, Flows: 3},
	}))
	require.Len(t, x.counts("", make([]inspect.BlockedView, explainGates+1)), explainGates)
}

// TestExplainKey explains fairness keys in each state.
func TestExplainKey(t *testing.T) {
	for name, tc := range map[string]struct {
		view   inspect.KeyView
		reason string
	}{
		"in a paused queue": {inspect.KeyView{Known: true, Pending: 1, QueuePaused: now + second}, "The queue is paused until " + at(1) + "."},
		"paused":            {inspect.KeyView{Paused: queue.Forever}, `Key "acme" is paused until it is resumed.`},
		"unknown":           {inspect.KeyView{Overridden: true}, `Key "acme" has no messages in queue orders.`},
		"unconsumed":        {inspect.KeyView{Known: true, Pending: 2}, "2 messages are ready, but no consumer is registered."},
		"no credit":         {inspect.KeyView{Known: true, Pending: 2, Consumers: 1}, "2 messages are ready and wait for a consumer with credit."},
		"ready": {
			inspect.KeyView{Known: true, Pending: 2, Consumers: 1, Credit: 1, Active: true, Share: 0.255, Weight: 2500, Deficit: 500},
			"2 messages are ready; the key gets 26 % of the deliveries.",
		},
		"blocked": {
			inspect.KeyView{Known: true, Blocked: 3, At: []inspect.BlockedView{{WaitReason: inspect.WaitReason{By: gates.ByOrder}, Messages: 3, Flows: 1}}},
			"3 messages are blocked by the order of key:acme.",
		},
		"with consumers":    {inspect.KeyView{Known: true, InFlight: 2}, "2 messages are in flight."},
		"one is delayed":    {inspect.KeyView{Known: true, Delayed: 1}, "1 message is delayed."},
		"no credit for one": {inspect.KeyView{Known: true, Pending: 1, Consumers: 1}, "1 message is ready and waits for a consumer with credit."},
		"delayed":           {inspect.KeyView{Known: true, Delayed: 2}, "2 messages are delayed."},
	} {
		t.Run(name, func(t *testing.T) {
			v := tc.view
			e := newExplained(t).key("orders", "acme", &v)
			want := api.ExplainKey{
				Queue: "orders", Key: "acme", Pending: v.Pending + v.Blocked, Ready: v.Pending, Blocked: v.Blocked, Parked: v.Blocked, InFlight: v.InFlight, Delayed: v.Delayed,
				Weight: float64(v.Weight) / 1000, Deficit: float64(v.Deficit) / 1000, Active: v.Active, Share: v.Share,
				BlockedBy: e.BlockedBy, Reason: tc.reason,
			}
			if v.Paused != 0 {
				want.Paused = "until resumed"
			}
			require.Equal(t, want, e)
			require.Len(t, e.BlockedBy, len(v.At))
			require.NotNil(t, e.BlockedBy, "a list in JSON")
		})
	}
}

// The reply says whether a weight comes from an operator, the hook, the header or nobody.
func TestWeightsSayWhoSetThem(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		by := func(key string) string {
			var e api.ExplainKey
			h.must(api.VerbExplain, "", `{"kind":"key","queue":"orders","key":"`+key+`"}`, &e)
			return e.WeightBy
		}
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant","weight_header":"weight"}`, nil)
		h.enqueue("orders", "x", nats.Header{"tenant": {"a"}, "weight": {"3"}})
		h.enqueue("orders", "x", nats.Header{"tenant": {"b"}})
		require.Equal(t, "header", by("a"))
		require.Equal(t, "default", by("b"))
		h.must(api.VerbConfigSet, "weight:orders:b", `{"value":"5"}`, nil)
		require.Equal(t, "operator", by("b"))
		h.must(api.VerbQueueUpdate, "orders", `{"weight_header":""}`, nil)
		require.Equal(t, "message", by("a"), "nothing of the queue could say it today")
		h.must(api.VerbQueueUpdate, "orders", `{"fairness_header":"","on_enqueue":"function on_enqueue(m) return {weight = 2} end"}`, nil)
		h.enqueue("orders", "x", nil)
		require.Equal(t, "hook", by("default"))
	})
}

func (h *rig) explain(body string) (e api.ExplainMessage) {
	h.t.Helper()
	h.must(api.VerbExplain, "", body, &e)
	return e
}

// TestExplainFindsMessages in all queues, dead letters included, and reads the queues in pieces.
func TestExplainFindsMessages(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.piece = 3
		h.must(api.VerbQueueCreate, "orders", `{"circuit_header":"dest"}`, nil)
		h.must(api.VerbQueueCreate, "accounts", ``, nil)
		h.consume("orders", 1)
		dead := h.enqueue("orders", "dies", nil)
		h.ack(h.one(), "+TERM no use")
		h.consume("orders", 0)
		for range 10 {
			h.enqueue("orders", "x", nil)
		}
		h.must(api.VerbCircuitOpen, "api", ``, nil)
		last := h.enqueue("orders", "last", nats.Header{"dest": {"api"}})

		e := h.explain(`{"kind":"message","id":"` + last + `"}`)
		require.Equal(t, "orders blocked", e.Queue+" "+e.State)
		require.Equal(t, "circuit:api", e.BlockedBy.Gate)
		require.Equal(t, []api.GateState{{
			Kind: "circuit", Gate: "circuit:api", Limits: "open for 5m after 10 failures in a row", InUse: "open by hand", SetBy: "default",
		}}, e.Gates)
		require.Equal(t, e, h.explain(`{"kind":"message","id":"`+last+`","queue":"orders"}`))
		e = h.explain(`{"kind":"message","id":"` + last + `","queue":"accounts"}`)
		require.Equal(t, api.ExplainMessage{
			ID: last, State: "unknown", Reason: "No queue has this message: it was acked, or expired and was removed, or never confirmed.",
		}, e)
		for _, body := range []string{`{"kind":"message","id":"` + dead + `"}`, `{"kind":"message","id":"` + dead + `","queue":"orders"}`} {
			e = h.explain(body)
			require.Equal(t, "orders.dlq dead", e.Queue+" "+e.State)
			require.Regexp(t, `^It was dead-lettered from orders at .* after 1 attempt: term\. Last error: no use$`, e.Reason)
		}

		var k api.ExplainKey
		h.must(api.VerbExplain, "", `{"kind":"key","queue":"orders","key":"default"}`, &k)
		require.Equal(t, "1 message is blocked by circuit:api, which is open by hand. 10 messages are ready, but no consumer is registered.", k.Reason)
		var q api.ExplainQueue
		h.must(api.VerbExplain, "", `{"kind":"queue","queue":"orders"}`, &q)
		require.Equal(t, "1 message is blocked by circuit:api, which is open by hand. 10 messages are ready, but no consumer is registered.", q.Reason)
	})
}
