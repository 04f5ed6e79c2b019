package drr_test

import (
	"fmt"

	"github.com/filaq/fila/drr"
)

// The caller keeps what the flows send, here the costs in lists, and tells the
// scheduler what comes first in each.
func ExampleScheduler() {
	flows := [][]int64{
		{1000, 1000, 1000, 1000},
		{1000, 1000},
		{2000},
	}
	weights := []int64{2000, 1000, 1000}

	s := drr.New(1)
	for f, costs := range flows {
		s.Join(drr.Flow(f), weights[f], costs[0])
	}
	for {
		f, ok := s.Peek()
		if !ok {
			break
		}
		fmt.Println("flow", f, "sends", flows[f][0])
		flows[f] = flows[f][1:]
		if len(flows[f]) > 0 {
			s.Take(flows[f][0])
		} else {
			s.Take(0)
		}
	}
	// Output:
	// flow 0 sends 1000
	// flow 0 sends 1000
	// flow 1 sends 1000
	// flow 0 sends 1000
	// flow 0 sends 1000
	// flow 1 sends 1000
	// flow 2 sends 2000
}
