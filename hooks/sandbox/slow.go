package sandbox

import (
	"runtime"
	"time"
)

// A run that has used more than slowAfter needs one of the slow slots of the
// process to continue. There are half as many as processors. So scripts that use
// up their time limit wait for each other, however many queues have one, and leave
// the other processors to quick hooks and everything else. A typical hook takes a
// few microseconds. slowAfter is small because a hundred slow runs may use it at
// once.
const slowAfter = int64(50 * time.Microsecond)

// A slow run also rests: the Go scheduler preempts a goroutine only after 10 ms,
// and goroutines that become ready on its processor wait until then. After each
// restEvery of running time the run yields its processor. As often as its budget
// allows it sleeps instead, so that the processor also polls the network. A sleep of
// restFor takes up to sleepTakes on an idle machine. All rests together take at
// most two fifths of the running time, so a run that uses up its limit ends after
// less than 1.5 times its limit, unless the machine is overloaded.
const (
	restEvery  = int64(50 * time.Microsecond) // of running time
	restFor    = 50 * time.Microsecond
	sleepTakes = int64(1100 * time.Microsecond)
)

var slowSlots = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// enterSlow waits for a slow slot. The wait counts neither as running time nor as
// wall time.
func (x *exec) enterSlow() {
	select {
	case slowSlots <- struct{}{}:
	default:
		x.start += x.notRunning(func() { slowSlots <- struct{}{} })
	}
	x.slow = true
	x.restedAt, x.rested = x.active, 0
}

// rest yields the processor for a moment, if the budget allows it.
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

// notRunning runs wait, which does not count as running time, and returns its
// duration in ns.
func (x *exec) notRunning(wait func()) int64 {
	before := x.clock()
	wait()
	waited := x.clock() - before
	x.last += waited
	return waited
}

// leaveSlow frees the slow slot at the end of a run.
func (x *exec) leaveSlow() {
	if x.slow {
		x.slow = false
		<-slowSlots
	}
}
