package queuetest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/throttle"
)

// TakeCausesAway holds the machines to what they say of up to so many messages that
// wait: it takes away what they name as the cause, one cause after the other, and each
// time the message goes, or what was behind that cause is named. It returns how often
// each kind was named.
func (s *Sim) TakeCausesAway(messages int) map[queue.BlockKind]int {
	s.T.Helper()
	named := make(map[queue.BlockKind]int)
	s.Run()
	if !s.exact {
		return named // the book does not know what time the gates have
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

func (s *Sim) takeCausesAway(m *message, named map[queue.BlockKind]int) {
	s.T.Helper()
	n := m.node
	if !n.dispatching {
		n.tell(queue.Main, queue.Dispatch{On: true}, func() { n.dispatching = true })
		s.Run()
	}
	var last queue.Why
	for waiting := s.waiting(); m.isReady(); {
		v := n.Find(m.side, m.id)
		require.NotNil(s.T, v, "%s", m)
		named[v.By]++
		if v.By == queue.ByCircuit && last == v.Why {
			// A circuit that probes lets some go at a time.
			require.Less(s.T, s.waiting(), waiting, "%s: it does not wait for what is named: %+v", m, v.Why)
		} else {
			require.NotEqual(s.T, last, v.Why, "%s: it does not wait for what is named: %+v\n%s%s", m, v.Why, s.gateText(m), n.short())
		}
		last, waiting = v.Why, s.waiting()
		s.takeAway(m, v.Why)
		s.Run()
	}
	s.check()
}

// takeAway ends what holds m back.
func (s *Sim) takeAway(m *message, w queue.Why) {
	n := m.node
	switch {
	case w.At.Queue:
		s.pauseQueue(n, m.side, 0)
	case w.At.Paused:
		s.pauseKey(n, m.side, m.key, 0)
	case w.At.Circuit != nil:
		require.False(s.T, s.circuit(m.circuit).admits(s.Now), "%s: its circuit is not shut", m)
		s.pauseCircuit(m.circuit, queue.Forever)
		s.pauseCircuit(m.circuit, 0)
	case w.By == queue.ByPause:
		s.pauseThrottle(w.At.Throttle.Key(), 0)
	case w.At.Throttle != nil:
		s.setLimit(w.At.Throttle.Key(), throttle.Limits{})
	case w.By == queue.ByOrder:
		set := n.Rig.Settings
		set.Ordering, set.OnBlocked = "", ""
		s.setSettings(n, set)
	case w.By == queue.ByNoConsumer:
		require.Empty(s.T, n.sides[m.side].clients, "%s", m)
		s.register(n, m.side, "w1", 1, 0)
	case w.By == queue.ByNoCredit:
		s.register(n, m.side, fmt.Sprint("more", s.arrivals), 1000, 0)
	default:
		require.Fail(s.T, "it waits for its turn alone, and nobody goes before it", "%s\n%s%s", m, s.gateText(m), n.short())
	}
}

// waiting is how many messages wait.
func (s *Sim) waiting() (n int) {
	for _, m := range s.all {
		if m.isReady() {
			n++
		}
	}
	return n
}
