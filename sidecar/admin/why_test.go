package admin

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire/api"
)

// whys has what each reply says of a queue with one waiting message, and of this message: the
// state, the gate that blocks it and its kind.
func (h *rig) whys(name, id, key string) []string {
	h.t.Helper()
	gate := func(st *api.GateState) string {
		if st == nil {
			return "nothing"
		}
		return st.Gate + " " + st.Kind
	}
	counted := func(ready, blocked int64, by []api.BlockedCount) string {
		switch {
		case blocked == 1 && ready == 0 && len(by) == 1 && by[0].Messages == 1:
			return "blocked by " + gate(&by[0].GateState)
		case blocked == 0 && ready == 1 && len(by) == 0:
			return "ready by nothing"
		}
		return fmt.Sprintf("%d ready, %d blocked by %v", ready, blocked, by)
	}
	e := h.explain(`{"kind":"message","id":"` + id + `"}`)
	var k api.ExplainKey
	h.must(api.VerbExplain, "", `{"kind":"key","queue":"`+name+`","key":"`+key+`"}`, &k)
	var q api.ExplainQueue
	h.must(api.VerbExplain, "", `{"kind":"queue","queue":"`+name+`"}`, &q)
	peeked := "not there"
	for _, m := range h.peek(name, "").Messages {
		if m.ID == id {
			peeked = m.State + " by " + gate(m.BlockedBy)
		}
	}
	s := h.summary(name)
	metric := ""
	for _, g := range h.Gauges() {
		if g.Queue == name {
			metric = fmt.Sprintf("%d of %d blocked by %v", g.Blocked, g.Pending, g.BlockedBy)
		}
	}
	return []string{
		e.State + " by " + gate(e.BlockedBy), peeked, counted(k.Ready, k.Blocked, k.BlockedBy), counted(q.Ready, q.Blocked, q.BlockedBy),
		fmt.Sprintf("%d of %d blocked", s.Blocked, s.Pending), metric,
	}
}

// TestEverybodySaysWhyItWaits: explain, peek, queue-inspect (fila top) and the gauges name the
// same cause, with and without a consumer. When the cause (a pause, a gate, no consumer) is
// removed, they name the next one.
func TestEverybodySaysWhyItWaits(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"fairness_header":"tenant","throttle_headers":["api"],"circuit_header":"dest"}`, nil)
		id := h.enqueue("orders", "x", nats.Header{"tenant": {"acme"}, "api": {"stripe"}, "dest": {"bank"}})
		says := func(by string, kinds string) []string {
			if by == "nothing" {
				return []string{"ready by nothing", "ready by nothing", "ready by nothing", "ready by nothing", "0 of 1 blocked", "0 of 1 blocked by [0 0 0 0 0 0 0 0 0 0]"}
			}
			by = "blocked by " + by
			return []string{by, by, by, by, "1 of 1 blocked", "1 of 1 blocked by " + kinds}
		}
		h.must(api.VerbThrottleSet, "stripe", `{"rate":"1/3600","burst":1}`, nil)
		h.must(api.VerbPause, "", `{"kind":"throttle","name":"stripe"}`, nil)
		h.must(api.VerbCircuitOpen, "bank", ``, nil)
		h.must(api.VerbPause, "", `{"kind":"key","queue":"orders","name":"acme"}`, nil)
		h.must(api.VerbPause, "", `{"kind":"queue","name":"orders"}`, nil)
		for _, step := range []struct {
			by, kinds  string
			verb       api.AnyVerb
			tail, body string
		}{
			{"queue:orders paused", "[0 0 0 0 0 0 0 1 0 0]", api.VerbResume, "", `{"kind":"queue","name":"orders"}`},
			{"key:acme paused", "[0 0 0 0 0 0 0 1 0 0]", api.VerbResume, "", `{"kind":"key","queue":"orders","name":"acme"}`},
			{"circuit:bank circuit", "[0 0 0 0 0 0 1 0 0 0]", api.VerbCircuitClose, "bank", ``},
			{"throttle:stripe paused", "[0 0 0 0 0 0 0 1 0 0]", api.VerbResume, "", `{"kind":"throttle","name":"stripe"}`},
		} {
			require.Equal(t, says(step.by, step.kinds), h.whys("orders", id, "acme"))
			h.must(step.verb, step.tail, step.body, nil)
			time.Sleep(time.Second)
		}
		require.Equal(t, says("nothing", ""), h.whys("orders", id, "acme"))
		require.Equal(t, "It is ready, but no consumer is registered.", h.explain(`{"kind":"message","id":"`+id+`"}`).Reason)
		h.consume("orders", 1)
		require.Equal(t, "x", string(h.one().Data))
	})
}

// TestOpenGatesAreNotBlamed: when a rate admits messages again, the ones that waited for it are
// ready, and wait for credit of the consumers.
func TestOpenGatesAreNotBlamed(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"throttle_headers":["api"]}`, nil)
		h.must(api.VerbThrottleSet, "stripe", `{"rate":"1/60","burst":1}`, nil)
		h.consume("orders", 2)
		var last string
		for range 3 {
			last = h.enqueue("orders", "x", nats.Header{"api": {"stripe"}})
		}
		h.one()
		e := h.explain(`{"kind":"message","id":"` + last + `"}`)
		require.Equal(t, "blocked", e.State)
		require.Contains(t, e.Reason, "the rate of throttle:stripe")
		h.enqueue("orders", "takes the room", nil)
		h.must(api.VerbThrottleSet, "stripe", `{"rate":"1000","burst":1000}`, nil)
		time.Sleep(time.Second)
		e = h.explain(`{"kind":"message","id":"` + last + `"}`)
		require.Equal(t, "ready", e.State)
		require.Nil(t, e.BlockedBy)
		require.Equal(t, "It is ready and waits for a consumer with credit.", e.Reason)
		var q api.ExplainQueue
		h.must(api.VerbExplain, "", `{"kind":"queue","queue":"orders"}`, &q)
		require.Zero(t, q.Parked)
		require.Equal(t, "2 messages are ready and wait for a consumer with credit; 2 are in flight.", q.Reason)
	})
}

// TestAllThatWaitAtAGateCount: throttle-show and circuit-show count all waiting messages,
// whether or not there is a consumer and a message has tried the gate.
func TestAllThatWaitAtAGateCount(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		for _, name := range []string{"orders", "bills"} {
			h.must(api.VerbQueueCreate, name, `{"throttle_headers":["api"],"circuit_header":"dest"}`, nil)
			for range 3 {
				h.enqueue(name, "x", nats.Header{"api": {"stripe"}, "dest": {"bank"}})
			}
			h.enqueue(name, "x", nats.Header{"api": {"other"}})
		}
		h.enqueue("orders", "x", nats.Header{"api": {"stripe"}, "dest": {"bank"}})
		waiting := func() (throttle api.ThrottleInfo, circuit api.CircuitInfo) {
			h.must(api.VerbThrottleShow, "stripe", "", &throttle)
			h.must(api.VerbCircuitShow, "bank", "", &circuit)
			require.Len(t, throttle.WaitingQueues, throttle.Waiting)
			require.Len(t, circuit.WaitingQueues, circuit.Waiting)
			return throttle, circuit
		}
		both := []api.WaitingQueue{{Queue: "orders", Messages: 4, Flows: 1}, {Queue: "bills", Messages: 3, Flows: 1}}
		throttle, circuit := waiting()
		require.Zero(t, throttle.WaitingMessages+circuit.WaitingMessages, "they wait for a consumer")
		require.Zero(t, throttle.Waiting+circuit.Waiting)
		h.must(api.VerbPause, "", `{"kind":"throttle","name":"stripe"}`, nil)
		throttle, circuit = waiting()
		require.EqualValues(t, 7, throttle.WaitingMessages)
		require.Equal(t, both, throttle.WaitingQueues)
		require.Zero(t, circuit.Waiting)
		h.must(api.VerbCircuitOpen, "bank", ``, nil)
		throttle, circuit = waiting()
		require.Zero(t, throttle.Waiting, "the circuit comes first")
		require.EqualValues(t, 7, circuit.WaitingMessages)
		require.Equal(t, both, circuit.WaitingQueues)
		h.must(api.VerbPause, "", `{"kind":"queue","name":"bills"}`, nil)
		_, circuit = waiting()
		require.EqualValues(t, 4, circuit.WaitingMessages)
		require.Equal(t, both[:1], circuit.WaitingQueues)
	})
}

// circuit-show names the failure that opened a circuit, judged by rules and hooks as failures are.
func TestLastFailureOfACircuit(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{"circuit_header":"dest"}`, nil)
		h.must(api.VerbConfigSet, "circuit:bank:threshold", `{"value":"1"}`, nil)
		id := h.enqueue("orders", "x", nats.Header{"dest": {"bank"}})
		h.consume("orders", 1)
		h.ack(h.one(), `-NAK {"error":"no money","code":"402"}`)
		time.Sleep(time.Second)
		var circuit api.CircuitInfo
		h.must(api.VerbCircuitShow, "bank", "", &circuit)
		require.Equal(t, "open", circuit.State)
		require.Len(t, circuit.History.Changes, 1)
		require.Equal(t, &api.CircuitFailure{At: circuit.History.Changes[0].At, ID: id, Attempt: 1, ErrorCode: "402", Error: "no money"}, circuit.LastFailure)
		require.EqualValues(t, 1, circuit.History.Failures[0].Failures)
	})
}

// Of many waiting queues, the ones with the most waiting messages are named, over all nodes.
func TestMostWaiting(t *testing.T) {
	var list []api.WaitingQueue
	for i := range int64(2 * api.MaxWaitingQueues) {
		list = append(list, api.WaitingQueue{Queue: strconv.FormatInt(i, 10), Messages: i / 2})
	}
	most := mostWaiting(list)
	require.Len(t, most, api.MaxWaitingQueues)
	require.Equal(t, []api.WaitingQueue{{Queue: "98", Messages: 49}, {Queue: "99", Messages: 49}, {Queue: "96", Messages: 48}}, most[:3])
	require.Empty(t, mostWaiting(nil))
}
