package queuetest

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/throttle"
)

// TakeCausesAway checks what the machines report about up to n waiting messages. At rest each of
// them names a cause, and the cause is true: it blocks the message, and no cause before it in the
// order of inspect.WaitReason does (checkWhy, for all messages). The causes are also complete: if
// the test removes one named cause after the other, none is named again, and the message goes after
// the last. TakeCausesAway returns how often each kind was named.
func (s *Sim) TakeCausesAway(messages int) map[gates.BlockKind]int {
	s.T.Helper()
	named := make(map[gates.BlockKind]int)
	s.Run()
	if !s.exact {
		return named // the model does not know what time the gates have
	}
	for ; messages > 0; messages-- {
		var waits []*message
		for _, m := range s.all {
			if m.isReady() {
				waits = append(waits, m)
			}
		}
		if len(waits) == 0 {
			break
		}
		s.takeCausesAway(pick(s, waits), named)
	}
	return named
}

func (s *Sim) takeCausesAway(m *message, named map[gates.BlockKind]int) {
	s.T.Helper()
	n := m.node
	if !n.dispatching {
		n.tell(queue.Main, queue.Dispatch{On: true}, func() { n.dispatching = true })
		s.Run()
	}
	taken := make(map[inspect.WaitReason]int) // with how many waited then
	for s.check(); m.isReady(); s.check() {
		v := n.Find(m.side, m.id)
		require.NotNil(s.T, v, "%s", m)
		named[v.By]++
		if waiting, again := taken[v.WaitReason]; again && (v.By != gates.ByCircuit || s.waiting() >= waiting) {
			// Only a circuit that probes lets some go at a time.
			require.Fail(s.T, "it does not wait for what is named", "%s: %+v\n%s%s", m, v.WaitReason, s.gateText(m), n.short())
		}
		taken[v.WaitReason] = s.waiting()
		s.takeAway(m, v.WaitReason)
		s.Run()
	}
}

// takeAway removes the cause that blocks m.
func (s *Sim) takeAway(m *message, w inspect.WaitReason) {
	n := m.node
	switch {
	case w.At.Queue:
		s.pauseQueue(n, m.side, 0)
	case w.At.Paused:
		s.pauseKey(n, m.side, m.Key, 0)
	case w.At.Circuit != nil:
		key := w.At.Circuit.Key()
		require.False(s.T, s.circuit(key).admits(s.Now), "%s: its circuit is not shut", m)
		s.pauseCircuit(key, queue.Forever)
		s.pauseCircuit(key, 0)
	case w.By == gates.ByPause:
		s.pauseThrottle(w.At.Throttle.Key(), 0)
	case w.At.Throttle != nil:
		s.setLimit(w.At.Throttle.Key(), throttle.Limits{})
	case w.By == gates.ByOrder:
		set := n.Rig.Settings
		set.Ordering, set.OnBlocked = "", ""
		s.setSettings(n, set)
	case w.By == gates.ByNoConsumer:
		require.Empty(s.T, n.sides[m.side].clients, "%s", m)
		s.register(n, m.side, "w1", 1, 0)
	case w.By == gates.ByNoCredit:
		s.register(n, m.side, fmt.Sprint("more", s.arrivals), 1000, 0)
	default:
		require.Fail(s.T, "it waits for its turn alone, and nobody goes before it", "%s\n%s%s", m, s.gateText(m), n.short())
	}
}

// waiting counts the messages that wait.
func (s *Sim) waiting() (n int) {
	for _, m := range s.all {
		if m.isReady() {
			n++
		}
	}
	return n
}

// checkWhy compares the reason that a machine reports for m with the model: it blocks m, and no
// reason before it in the order of inspect.WaitReason does.
func (n *node) checkWhy(m *message, w inspect.WaitReason) {
	s := n.s
	fail := func(what string) {
		require.Fail(n.T, what, "%s: %+v\n%s%s", m, w, s.gateText(m), n.short())
	}
	side := n.sides[m.side]
	switch {
	case w.At.Queue != (side.paused > s.Now):
		fail("a pause of the queue")
	case w.At.Queue:
		return
	case w.At.Paused != (side.keys[m.Key] > s.Now):
		fail("a pause of the key")
	case w.At.Paused:
		return
	}
	if n.checkWhyGate(m, w, fail) {
		n.checkWhyInside(m, w, fail)
	}
}

// checkWhyGate is checkWhy for gates: the one that is named is shut, and so is one on each other
// way of m. It reports whether none is named; then one way is open.
func (n *node) checkWhyGate(m *message, w inspect.WaitReason, fail func(string)) (none bool) {
	s, shut := n.s, n.s.shutGates(m)
	gate := w.At.Throttle
	none = w.By != gates.ByCircuit && (gate == nil || w.By == gates.ByTurn)
	found, open := false, false
	for _, by := range m.ways() {
		verdict := mustBeOpen
		switch broken := by.circuit != "" && !s.circuit(by.circuit).admits(s.Now); {
		case broken && w.By == gates.ByCircuit && w.At.Circuit.Key() == by.circuit:
			found, verdict = true, mustBeShut
		case broken:
			verdict = mustBeShut
		default:
			for _, key := range by.throttles {
				if shut[key] == mustBeShut || verdict == mustBeOpen {
					verdict = shut[key]
				}
			}
			found = found || !none && gate != nil && slices.Contains(by.throttles, gate.Key()) && shut[gate.Key()] != mustBeOpen
		}
		open = open || verdict != mustBeShut
		if !none && verdict == mustBeOpen {
			fail("a way is open")
		}
	}
	switch {
	case none && !open:
		fail("a gate that is not named holds it back on each way")
	case !none && !found:
		fail("a gate that does not hold it back")
	}
	return none
}

// checkWhyInside is checkWhy for reasons inside the queue, which are neither pauses nor gates.
func (n *node) checkWhyInside(m *message, w inspect.WaitReason, fail func(string)) {
	others, busy := 0, 0
	for _, o := range n.s.all {
		if o.node == n && o.side == m.side && o.Key == m.Key && o != m && o.placed() {
			others++
			if o.place != waiting && o.here() {
				busy++
			}
		}
	}
	ordered := n.ordered() && m.side == queue.Main
	credit := 0
	for _, c := range n.sides[m.side].clients {
		credit += n.credit(m.side, c)
	}
	switch {
	case w.By == gates.ByOrder:
		if !ordered || others == 0 {
			fail("there is nothing that it comes after")
		}
	case ordered && busy > 0:
		fail("another message of the key is in flight")
	case (w.By == gates.ByNoConsumer) != (len(n.sides[m.side].clients) == 0):
		fail("consumers")
	case w.By == gates.ByNoConsumer:
	case (w.By == gates.ByNoCredit) != (credit == 0):
		fail("credit")
	case w.By == gates.ByTurn && w.At.Throttle != nil && !n.s.othersAt(w.At.Throttle.Key(), m):
		fail("nobody else waits there")
	case w.By == gates.ByNothing && credit > 0 && n.dispatching:
		fail("it waits, and no cause is named")
	}
}

// othersAt reports whether any other message that waits has the throttle key.
func (s *Sim) othersAt(key string, m *message) bool {
	return slices.ContainsFunc(s.all, func(o *message) bool {
		return o != m && o.isReady() && o.mayPass(key)
	})
}

type gateVerdict uint8

const (
	mayBeShut gateVerdict = iota // by what a reservation holds, for others than its message
	mustBeShut
	mustBeOpen
)

// shutGates reports for each throttle key of m whether it blocks m. The first message with the same
// gates tries them. Where it matters which one that is, shutGates reports nothing, since the model
// does not know.
func (s *Sim) shutGates(m *message) map[string]gateVerdict {
	least, most := int64(m.Cost), int64(m.Cost)
	for _, o := range s.all {
		if o.node == m.node && o.side == m.side && o.lane == m.lane && o.isReady() {
			least, most = min(least, int64(o.Cost)), max(most, int64(o.Cost))
		}
	}
	if m.node.ordered() {
		least = 1 // they may all wait for their predecessors
	}
	most = max(most, throttle.One) // those in line try when the gate admits as much
	verdicts := make(map[string]gateVerdict)
	for _, key := range m.keys() {
		model := s.gate(key)
		full := model.limits.Concurrency != 0 && model.inFlight >= model.limits.Concurrency
		switch {
		case full || model.paused > s.clock.last:
			verdicts[key] = mustBeShut
		case s.Held(key) > 0:
		case !s.gateAdmits(key, least):
			verdicts[key] = mustBeShut
		case s.gateAdmits(key, most):
			verdicts[key] = mustBeOpen
		}
	}
	return verdicts
}

func (s *Sim) gateAdmits(key string, cost int64) bool {
	set, err := s.Gates.Set([]string{key}, s.Now)
	require.NoError(s.T, err)
	defer s.Gates.Close(set, s.Now)
	_, ok := set.Check(s.Now, cost, nil)
	return ok
}
