package queue_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/queuetest"
)

var simSeed = flag.Uint64("seed", 0, "play the simulation of this seed alone")

// TestSimChecksInvariants plays simulations (package queuetest) and looks into the machines
// after each action: everything that they keep of their messages agrees, and in the end
// nothing is kept.
func TestSimChecksInvariants(t *testing.T) {
	first, last := uint64(1000), uint64(1020)
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed+1
	}
	for seed := first; seed < last && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := queuetest.NewSim(t, seed)
			s.Inspect = func(m *queue.Queue, loose bool) { queue.Check(t, m, s.Now, loose) }
			s.Play(300)
			s.Drain()
			for _, r := range s.Rigs {
				queue.CheckEmpty(t, r.M)
			}
		})
	}
}
