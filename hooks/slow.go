package hooks

import (
	"runtime"
	"time"
)

// A run that has used more than slowAfter goes on only with one of the slow
// places of the process, of which there are half as many as processors. So
// scripts that use up their time limit, however many queues have one, queue up
// among themselves and leave the other processors to hooks that are quick and to
// everything else. A typical hook is done after some microseconds; what each slow
// one may use before it waits is what a hundred of them may use at once.
const slowAfter = int64(50 * time.Microsecond)

var slowPlaces = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// goSlow waits for a slow place. The wait does not count as running time.
func (x *exec) goSlow() {
	select {
	case slowPlaces <- struct{}{}:
	default:
		before := x.clock()
		slowPlaces <- struct{}{}
		waited := x.clock() - before
		x.start += waited
		x.last += waited
	}
	x.slow = true
}

// leaveSlow gives the slow place back at the end of a run.
func (x *exec) leaveSlow() {
	if x.slow {
		x.slow = false
		<-slowPlaces
	}
}
