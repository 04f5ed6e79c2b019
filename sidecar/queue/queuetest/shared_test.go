package queuetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSharedSim plays simulations of filas that share circuits, of a few seeds. It takes
// seeds like TestSim.
func TestSharedSim(t *testing.T) {
	var all SharedSeen
	seeds(t, 12, func(t *testing.T, seed uint64) {
		s := NewSharedSim(t, seed)
		if *trace {
			s.Trace = func(line string) { fmt.Println(line) }
		}
		for range 3 {
			s.Play(simSteps)
			s.Drain()
		}
		all.Delivered += s.Seen.Delivered
		all.Probes += s.Seen.Probes
		all.MostProbes = max(all.MostProbes, s.Seen.MostProbes)
		all.Told += s.Seen.Told
		all.Away += s.Seen.Away
		all.Restarts += s.Seen.Restarts
	})
	t.Logf("%+v", all)
	if *oneSeed == 0 && *simTime == 0 {
		require.Equal(t, 3, all.MostProbes, "the largest budget is used up")
		for what, n := range map[string]int{"probes": all.Probes, "events": all.Told, "outages": all.Away, "restarts": all.Restarts} {
			require.Greater(t, n, 20, what)
		}
	}
}

// TestSharedSimRepeats: one seed plays the same, delivery by delivery.
func TestSharedSimRepeats(t *testing.T) {
	var histories [2]string
	for i := range histories {
		var b strings.Builder
		s := NewSharedSim(t, 7)
		s.Trace = func(line string) { fmt.Fprintln(&b, line) }
		s.Play(3 * simSteps)
		s.Drain()
		histories[i] = b.String()
	}
	require.Greater(t, strings.Count(histories[0], "\n"), 500)
	require.Equal(t, histories[0], histories[1])
}
