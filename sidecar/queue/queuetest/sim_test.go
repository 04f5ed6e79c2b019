package queuetest

import (
	"bytes"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/sidecar/queue"
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
	switch {
	case *oneSeed != 0:
		play(t, *oneSeed)
	case *simTime > 0:
		first := uint64(time.Now().UnixMilli()) % 1e9 * 1000
		n, steps := uint64(0), 0
		for end := time.Now().Add(*simTime); time.Now().Before(end) && !t.Failed(); n++ {
			steps += play(t, first+n)
		}
		t.Logf("%d seeds from %d, %d steps of machines", n, first, steps)
	default:
		for seed := uint64(1); seed <= 80 && !t.Failed(); seed++ {
			play(t, seed)
		}
	}
}

// play plays the simulation of a seed.
func play(t *testing.T, seed uint64) (steps int) {
	t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("to play it again: go test ./sidecar/queue/queuetest -run Sim -seed %d", seed)
			}
		}()
		s := NewSim(t, seed)
		if *trace {
			s.Trace = func(r *Rig, out *queue.Effects) {
				var b bytes.Buffer
				WriteEffects(&b, out)
				fmt.Printf("%s steps at %v\n%s", r.Name, time.Duration(s.Now-Start), &b)
			}
		}
		s.Play(simSteps)
		s.Drain()
		steps = s.Steps
	})
	return steps
}

// TestNamedIsWhatHoldsBack plays simulations for a while, and takes away what the
// machines name as the causes for which messages wait.
func TestNamedIsWhatHoldsBack(t *testing.T) {
	first, last := uint64(1), uint64(60)
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	named := make(map[string]int)
	for seed := first; seed <= last && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := NewSim(t, seed)
			for range 3 {
				s.Play(simSteps / 3)
				for by, n := range s.TakeCausesAway(3) {
					named[by.String()] += n
				}
			}
			s.Drain()
		})
	}
	t.Log(named)
	for _, kind := range []queue.BlockKind{
		queue.ByRate, queue.ByWindow, queue.ByInFlight, queue.ByCircuit, queue.ByPause, queue.ByOrder, queue.ByNoConsumer, queue.ByNoCredit,
	} {
		require.True(t, *oneSeed != 0 || named[kind.String()] > 0, "%s is never named", kind)
	}
}

// TestEqualInputsGiveEqualEffects plays a long history twice: all steps are at the same
// times, and say the same, byte for byte.
func TestEqualInputsGiveEqualEffects(t *testing.T) {
	for seed := uint64(1); seed <= 2; seed++ {
		var histories [2]bytes.Buffer
		for i := range histories {
			s, b := NewSim(t, seed), &histories[i]
			s.Trace = func(r *Rig, out *queue.Effects) {
				fmt.Fprintf(b, "%s steps at %d\n", r.Name, s.Now)
				WriteEffects(b, out)
			}
			s.Play(4 * simSteps)
			s.Drain()
			for _, a := range s.nodes {
				fmt.Fprintln(b, a.Tally)
			}
		}
		require.Greater(t, histories[0].Len(), 100_000)
		one, other := histories[0].Bytes(), histories[1].Bytes()
		for i := range min(len(one), len(other)) {
			if one[i] != other[i] {
				require.Equal(t, string(one[max(0, i-500):i+500]), string(other[max(0, i-500):min(i+500, len(other))]), "seed %d", seed)
			}
		}
		require.Len(t, other, len(one))
	}
}
