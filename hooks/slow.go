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

// A slow run also rests: the Go scheduler takes a processor away from a goroutine
// only after 10 ms, and until then nothing runs that has become ready behind it.
// After each restEvery of running time the run yields its processor, and as often
// as its budget allows it sleeps instead, so that the processor also looks at the
// network. A sleep of restFor takes up to sleepTakes where nobody else wants the
// processor. All rests together take at most two fifths of the running time: a
// run that uses up its limit is over after less than 1.5 times its limit, unless
// the machine is overloaded.
const (
	restEvery  = int64(50 * time.Microsecond) // of running time
	restFor    = 50 * time.Microsecond
	sleepTakes = int64(1100 * time.Microsecond)
)

var slowPlaces = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// goSlow waits for a slow place. The wait counts neither as running time nor as
// wall time.
func (x *exec) goSlow() {
	select {
	case slowPlaces <- struct{}{}:
	default:
		x.start += x.notRunning(func() { slowPlaces <- struct{}{} })
	}
	x.slow = true
	x.restedAt, x.rested = x.active, 0
}

// rest gives the processor to others for a moment, if the budget allows it.
func (x *exec) rest() {
	x.restedAt = x.active
	if x.sleep == nil {
		return
	}
	switch budget := x.active*2/5 - x.rested; {
	case budget >= sleepTakes:
		x.rested += x.notRunning(func() { x.sleep(restFor) })
	case budget > 0:
		x.rested += x.notRunning(runtime.Gosched)
	}
}

// notRunning runs wait, which does not count as running time, and returns how
// long it took (ns).
func (x *exec) notRunning(wait func()) int64 {
	before := x.clock()
	wait()
	waited := x.clock() - before
	x.last += waited
	return waited
}

// leaveSlow gives the slow place back at the end of a run.
func (x *exec) leaveSlow() {
	if x.slow {
		x.slow = false
		<-slowPlaces
	}
}
