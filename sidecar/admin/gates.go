package admin

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// thousand is the number one in thousandths, the unit of weights, costs and limits.
const thousand = 1000

// gateStates describes gates in words.
type gateStates struct {
	now func() int64 // Unix ns
	// limits returns the limits of a throttle key and their origin, "" if there are none.
	limits func(key string) (l api.ThrottleLimits, setBy string)
	// circuit returns the circuit of a key. It returns false if there is none.
	circuit func(key string) (api.CircuitInfo, bool)
}

// all returns the gates of a message.
func (g *gateStates) all(v *inspect.MessageView) []api.GateState {
	var states []api.GateState
	for _, t := range v.Throttles {
		states = append(states, g.throttleState(t, v.DeadLetter && v.At.Throttle == t))
	}
	if v.Circuit != nil {
		states = append(states, g.circuitState(v.Circuit))
	}
	known := make(map[string]bool)
	add := func(st api.GateState) {
		if !known[st.Gate] {
			known[st.Gate] = true
			states = append(states, st)
		}
	}
	for i := range v.Routes {
		r := &v.Routes[i]
		for _, t := range r.Throttles {
			add(g.throttleState(t, r.DeadLetter && r.At.Throttle == t))
		}
		if r.Circuit != nil {
			add(g.circuitState(r.Circuit))
		}
	}
	return states
}

// routes returns the routes of a message of a queue.
func (g *gateStates) routes(name string, v *inspect.MessageView) (list []api.RouteState) {
	for i := range v.Routes {
		r := &v.Routes[i]
		st := api.RouteState{Name: r.Name, Weight: float64(r.Weight) / 1000, Gates: []string{}, Admits: r.By == gates.ByNothing || r.Unbooked}
		for _, t := range r.Throttles {
			st.Gates = append(st.Gates, placeName(gates.Place{Throttle: t}))
		}
		if r.Circuit != nil {
			st.Gates = append(st.Gates, placeName(gates.Place{Circuit: r.Circuit}))
		}
		if !st.Admits {
			by := g.state(r.WaitReason, name, v.Key)
			st.BlockedBy = &by
		}
		list = append(list, st)
	}
	return list
}

// throttleState returns the state of a throttle key. With dead, messages do not wait for its budget, but
// become dead letters.
func (g *gateStates) throttleState(t *throttle.Gate, dead bool) api.GateState {
	now := g.now()
	i := t.Info(now)
	limits, setBy := g.limits(i.Key)
	text := limits.Text()
	if learned := control.WireLearned(i.Learned); learned != nil {
		text = learned.Text()
	}
	st := api.GateState{
		Kind: gates.BlockOf(i.Kind).String(), Gate: "throttle:" + wire.ShowKey(i.Key), Admits: i.Kind == throttle.Open,
		AdmitsAt: admitsAt(i.At, now), Limits: text, SetBy: setBy, InUse: useText(&i),
	}
	if dead {
		st.Kind, st.Admits, st.AdmitsAt, st.DeadLetters = gates.ByBudget.String(), false, "", true
	}
	return st.WithOldNames()
}

func (g *gateStates) circuitState(c gates.Circuit) api.GateState {
	now := g.now()
	n, at := c.Peek(now)
	st := api.GateState{Kind: gates.ByCircuit.String(), Gate: "circuit:" + wire.ShowKey(c.Key()), Admits: n > 0}
	if n <= 0 {
		st.AdmitsAt = admitsAt(at, now)
	}
	st = st.WithOldNames()
	i, ok := g.circuit(c.Key())
	if !ok {
		return st // it was dropped meanwhile with its last message
	}
	st.Limits = fmt.Sprintf("open for %s after %s in a row", wire.FormatMs(i.CooldownMs), wire.Plural(int64(i.Threshold), "failure"))
	st.InUse, st.SetBy = i.StateText(), i.Source
	return st
}

func pauseState(gate string, until int64) api.GateState {
	return api.GateState{Kind: gates.ByPause.String(), Gate: gate, AdmitsAt: admitsAt(until, 0)}.WithOldNames()
}

// state returns the gate at which messages of a key of a queue are blocked.
func (g *gateStates) state(w inspect.WaitReason, name, key string) api.GateState {
	switch at, by := w.At, w.By; {
	case at.Throttle != nil:
		st := g.throttleState(at.Throttle, w.DeadLetter)
		if st.Admits {
			st.Kind = by.String() // it has begun to admit since, or other messages go first
			st.Admits = !w.Unbooked
		}
		return st
	case at.Circuit != nil:
		return g.circuitState(at.Circuit)
	case at.Queue:
		return pauseState("queue:"+name, at.Until)
	case at.Paused:
		return pauseState("key:"+wire.ShowKey(key), at.Until)
	}
	return api.GateState{Kind: w.By.String(), Gate: "key:" + wire.ShowKey(key), SetBy: "ordering of queue " + name}
}

// admits returns when a gate may admit a message, math.MaxInt64 if that is unknown.
func admits(at gates.Place, now int64) int64 {
	switch {
	case at.Throttle != nil:
		return at.Throttle.Info(now).At
	case at.Circuit != nil:
		_, t := at.Circuit.Peek(now)
		return t
	case at.Paused:
		return at.Until
	}
	return math.MaxInt64
}

// throttleShow returns a throttle key with the messages that it blocks.
func (a *Admin) throttleShow(req api.GateKeyRequest) (api.ThrottleInfo, *wire.Error) {
	info, err := a.control.ThrottleShow(req)
	switch {
	case err != nil:
	case api.IsThrottlePrefix(info.Key):
		a.sampled(freshFor)
		a.blocked.under(&info)
	default:
		info.Waiting, info.WaitingMessages, info.WaitingQueues = a.waiting(req.Key, "")
	}
	return info, err
}

// throttleList lists throttle keys, with the messages that each blocked in the last sample for attention.
func (a *Admin) throttleList(req api.KeyListRequest) api.ThrottleList {
	list := a.control.ThrottleList(req)
	for i := range list.Throttles {
		list.Throttles[i].WaitingMessages = a.blocked.at("throttle:" + list.Throttles[i].Key)
	}
	return list
}

// circuitShow returns a circuit with the messages that it blocks.
func (a *Admin) circuitShow(req api.GateKeyRequest) (api.CircuitInfo, *wire.Error) {
	info, err := a.control.CircuitShow(req)
	if err == nil {
		info.Waiting, info.WaitingMessages, info.WaitingQueues = a.waiting("", req.Key)
	}
	return info, err
}

// circuitOpen opens a circuit by hand.
func (a *Admin) circuitOpen(by control.Actor, req api.CircuitOpenRequest) (api.CircuitInfo, *wire.Error) {
	change := req
	change.Key = ""
	return a.keepCircuit(by, req.Key, change, func() (api.CircuitInfo, *wire.Error) { return a.control.CircuitOpen(by, req) })
}

// changeCircuit returns the function of a verb that changes one circuit.
func (a *Admin) changeCircuit(change func(control.Actor, api.GateKeyRequest) (api.CircuitInfo, *wire.Error)) func(control.Actor, api.GateKeyRequest) (api.CircuitInfo, *wire.Error) {
	return func(by control.Actor, req api.GateKeyRequest) (api.CircuitInfo, *wire.Error) {
		return a.keepCircuit(by, req.Key, api.Empty{}, func() (api.CircuitInfo, *wire.Error) { return change(by, req) })
	}
}

// keepCircuit changes a circuit, and records the request if that changed its state.
func (a *Admin) keepCircuit(by control.Actor, key string, req any, change func() (api.CircuitInfo, *wire.Error)) (api.CircuitInfo, *wire.Error) {
	object := "circuit:" + key
	defer a.objects.lock(object)()
	before, ok := a.gates.circuit(key)
	if !ok {
		before.State = "closed"
	}
	after, err := change()
	if err == nil && (before.State != after.State || before.OpenUntil != after.OpenUntil ||
		before.Cause != after.Cause || before.ConsecutiveFailures != after.ConsecutiveFailures) {
		a.audit(by, object, req)
	}
	return after, err
}

// waiting counts the queues and messages that wait at a throttle key or, if that is empty, at
// a circuit, and returns the queues with the most messages. It asks the queues, because a queue
// without a consumer with credit does not join the wait list of a gate.
func (a *Admin) waiting(throttleKey, circuitKey string) (queues int, messages int64, most []api.WaitingQueue) {
	for _, q := range a.shards.Queues() {
		w := api.WaitingQueue{Queue: q.Name()}
		q.View(func(m *queue.Queue, side queue.Role, now int64) {
			w.Messages, w.Flows = m.Inspect(side).WaitingAt(throttleKey, circuitKey, now)
		})
		if w.Messages > 0 {
			messages, most = messages+w.Messages, append(most, w)
		}
	}
	return len(most), messages, mostWaiting(most)
}

// mostWaiting returns the queues with the most messages, sorted.
func mostWaiting(list []api.WaitingQueue) []api.WaitingQueue {
	slices.SortFunc(list, func(a, b api.WaitingQueue) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Queue, b.Queue))
	})
	return list[:min(len(list), api.MaxWaitingQueues)]
}

// mostWaitingKeys returns the throttle keys with the most messages, sorted.
func mostWaitingKeys(list []api.WaitingKey) []api.WaitingKey {
	slices.SortFunc(list, func(a, b api.WaitingKey) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Key, b.Key))
	})
	return list[:min(len(list), api.MaxWaitingQueues)]
}

// interval returns how many nanoseconds a throttle key needs on average for a message of that
// cost, 0 if unknown.
func interval(t *throttle.Gate, cost, now int64) float64 {
	l := t.Info(now).Limits
	var rate, window float64
	if l.Rate.Cost > 0 {
		rate = float64(cost) * float64(l.Rate.Per) / float64(l.Rate.Cost)
	}
	if l.Limit > 0 {
		window = float64(l.Window) / float64(l.Limit)
	}
	return max(rate, window)
}

// gateText describes after "blocked by" what a gate blocks with, and until when.
func gateText(st *api.GateState) string {
	text := st.Gate
	if st.Limits != "" && st.Limits != "none" && st.Kind != gates.ByCircuit.String() {
		text += " (" + st.Limits + ", " + api.SetByText(st.SetBy) + ")"
	}
	switch st.Kind {
	case gates.ByPause.String():
		text = "a pause of " + st.Gate
	case gates.ByTurn.String():
		text += ", where other messages have waited longer"
	case gates.ByReserved.String():
		text += ", which is reserved for another message"
	case gates.ByCircuit.String():
		if st.InUse != "" {
			text += ", which is " + st.InUse
		}
	case gates.ByBudget.String():
		text = "the budget of " + text
		switch {
		case st.DeadLetters:
			return text + ", which has too little left, so that messages become dead letters when their turn comes"
		case st.Admits:
			return text + ", which has too little left"
		case st.AdmitsAt == "":
			return text + ", of which more is on its way to the disk"
		}
		return text + ", which is used up; it begins again at " + st.AdmitsAt
	default:
		text = "the " + st.Kind + " of " + text
	}
	if st.AdmitsAt != "" {
		text += "; it may admit messages at " + st.AdmitsAt
	}
	return text
}

// useText says how much of its limits a gate uses.
func useText(i *throttle.Info) string {
	var parts []string
	if i.Limits.Rate != (throttle.Rate{}) {
		tokens := " tokens"
		if i.Tokens == thousand {
			tokens = " token"
		}
		parts = append(parts, thousandths(i.Tokens)+tokens)
	}
	if i.Limits.Limit > 0 {
		parts = append(parts, fmt.Sprintf("%d in the window", i.InWindow))
	}
	if s := &i.Spending; s.Amount > 0 {
		parts = append(parts, api.CostText(float64(s.Used)/thousand)+" of "+api.CostText(float64(s.Total())/thousand)+" spent")
	}
	parts = append(parts, fmt.Sprintf("%d in flight", i.InFlight))
	return strings.Join(parts, ", ")
}

func thousandths(n int64) string {
	return strconv.FormatFloat(float64(n)/thousand, 'f', -1, 64)
}

// admitsAt formats a time, empty if it has passed or only an operator ends the block.
func admitsAt(at, now int64) string {
	if at <= now || at == queue.Forever {
		return ""
	}
	return wire.Timestamp(at)
}

// untilText formats the end of a pause after "is paused".
func untilText(until int64) string {
	if until == queue.Forever {
		return " until it is resumed"
	}
	return " until " + wire.Timestamp(until)
}

// pausedText formats the end of a pause for a reply, empty if there is no pause.
func pausedText(until int64) string {
	switch until {
	case 0:
		return ""
	case queue.Forever:
		return "until resumed"
	}
	return wire.Timestamp(until)
}
