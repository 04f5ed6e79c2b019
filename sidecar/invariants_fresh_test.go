package sidecar

import (
	"fmt"

	"github.com/stretchr/testify/require"
)

// checkFresh looks whether slots, the changes that wait and the messages kept for
// delivery before they are on disk agree.
func checkFresh(t tester, l *loop) {
	t.Helper()
	unsent, young := make(map[uint64]bool), 0
	l.slots.from(0, func(seq uint64, s *slot) bool {
		if !s.unsent {
			return true
		}
		unsent[seq] = true
		require.NotNil(t, l.fresh.get(seq), "%s, message %d: not on disk, and not in memory", l.q.name, seq)
		if s.state == slotLeased {
			young++
		}
		return true
	})
	require.Equal(t, young, l.young, l.q.name)
	waiting, waited, dropped, bytes := 0, 0, 0, int64(0)
	if b := l.main; b != nil {
		last := uint64(0)
		for i := range b.Add {
			require.Greater(t, b.Add[i].Seq, last, l.q.name)
			last = b.Add[i].Seq
			if b.gone(i) {
				dropped++
				continue
			}
			require.GreaterOrEqual(t, i, b.first, l.q.name)
			bytes += int64(l.slots.get(last).size)
			waiting++
			require.True(t, unsent[b.Add[i].Seq], fmt.Sprintf("%s, message %d: waits for the store", l.q.name, b.Add[i].Seq))
			if b.confirm[i] != "" {
				waited++
			}
		}
		require.Equal(t, waited, b.waited, l.q.name)
		require.Equal(t, dropped, b.dropped, l.q.name)
		require.Equal(t, bytes, b.bytes, l.q.name)
	}
	require.Len(t, unsent, waiting, l.q.name)
	for i, in := range l.fresh.items {
		if in != nil {
			require.NotNil(t, l.slots.get(l.fresh.base+uint64(i)), "%s: kept for nothing", l.q.name)
		}
	}
}
