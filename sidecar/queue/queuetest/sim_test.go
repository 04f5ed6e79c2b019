package queuetest

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
)

var (
	oneSeed = flag.Uint64("seed", 0, "play the simulation of this seed alone")
	simTime = flag.Duration("sim.time", 0, "play simulations of fresh seeds for so long")
	trace   = flag.Bool("sim.trace", false, "print what the machines say")
)

const simSteps = 300

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSim plays simulations of a few seeds. With -seed it plays one, with -sim.time
// fresh ones.
func TestSim(t *testing.T) {
	t.Parallel()
	var all SimSeen
	overSeeds(t, 20, func(s *Sim) {
		if *trace {
			s.Trace = func(r *Rig, out *queue.Effects) {
				var b bytes.Buffer
				WriteEffects(&b, out)
				fmt.Printf("%s steps at %v\n%s", r.Name, time.Duration(s.Now-Start), &b)
			}
		}
		s.Play(simSteps)
		s.Drain()
		all.add(s.Seen)
	})
	t.Logf("%+v", all)
	if *oneSeed == 0 && *simTime == 0 {
		for what, n := range map[string]int{
			"cuts": all.Cuts, "growth": all.Grown, "more in flight than a level": all.Crowded,
			"budgets used up": all.UsedUp, "top-ups": all.TopUps, "resets": all.Resets,
		} {
			require.Positive(t, n, what)
		}
	}
}

// TestNamedIsWhatHoldsBack plays simulations for a while, and takes away what the
// machines name as the causes for which messages wait. It takes seeds like TestSim.
func TestNamedIsWhatHoldsBack(t *testing.T) {
	t.Parallel()
	named := make(map[string]int)
	overSeeds(t, 15, func(s *Sim) {
		for range 3 {
			s.Play(simSteps / 3)
			for by, n := range s.TakeCausesAway(3) {
				named[by.String()] += n
			}
		}
		s.Drain()
	})
	t.Log(named)
	for _, kind := range []gates.BlockKind{
		gates.ByRate, gates.ByWindow, gates.ByInFlight, gates.ByBudget, gates.ByCircuit, gates.ByPause, gates.ByOrder, gates.ByNoConsumer, gates.ByNoCredit,
	} {
		require.True(t, *oneSeed != 0 || *simTime > 0 || named[kind.String()] > 0, "%s is never named", kind)
	}
}

// overSeeds plays simulations of the seeds that the flags ask for; the first few, if
// they ask for none. It stops at one that fails, and says which that is.
func overSeeds(t *testing.T, few uint64, play func(s *Sim)) {
	steps := 0
	seeds(t, few, func(t *testing.T, seed uint64) {
		s := NewSim(t, seed)
		play(s)
		steps += s.Steps
	})
	t.Logf("%d steps of machines", steps)
}

// seeds is overSeeds for any simulation.
func seeds(t *testing.T, few uint64, play func(t *testing.T, seed uint64)) {
	first, end := uint64(1), time.Now().Add(*simTime)
	switch {
	case *oneSeed != 0:
		first, few = *oneSeed, 1
	case *simTime > 0:
		first, few = uint64(time.Now().UnixMilli())%1e9*1000, math.MaxUint64
	}
	n := uint64(0)
	for ; n < few && !t.Failed() && (n == 0 || *simTime == 0 || time.Now().Before(end)); n++ {
		seed := first + n
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("to play it again: go test ./sidecar/queue/queuetest -run '^%s$' -seed %d", strings.Split(t.Name(), "/")[0], seed)
				}
			}()
			play(t, seed)
		})
	}
	t.Logf("%d seeds from %d", n, first)
}

// TestEqualInputsGiveEqualEffects plays a long history twice: all steps are at the same
// times, and say the same, byte for byte.
func TestEqualInputsGiveEqualEffects(t *testing.T) {
	var histories [2]bytes.Buffer
	for i := range histories {
		s, b := NewSim(t, 1), &histories[i]
		s.Trace = func(r *Rig, out *queue.Effects) {
			fmt.Fprintf(b, "%s steps at %d\n", r.Name, s.Now)
			WriteEffects(b, out)
		}
		s.Play(4 * simSteps)
		s.Drain()
		for _, a := range s.nodes {
			fmt.Fprintln(b, a.Counters)
		}
	}
	require.Greater(t, histories[0].Len(), 100_000)
	one, other := histories[0].Bytes(), histories[1].Bytes()
	for i := range min(len(one), len(other)) {
		if one[i] != other[i] {
			require.Equal(t, string(one[max(0, i-500):i+500]), string(other[max(0, i-500):min(i+500, len(other))]))
		}
	}
	require.Len(t, other, len(one))
}
