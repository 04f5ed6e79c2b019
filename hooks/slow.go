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

// A slow run also rests now and then: the Go scheduler takes a processor away from
// a goroutine only after 10 ms, and until then nobody runs what has become ready
// behind it. While the run sleeps its processor looks for such work. It rests for
// three times as long as it runs at most: a short sleep is a long one (1 ms) where
// nobody else wants the processor, and a hook that uses up its time shall be over
// soon.
const (
	restEvery = int64(50 * time.Microsecond) // of running time
	restFor   = 50 * time.Microsecond
)

var slowPlaces = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// goSlow waits for a slow place. The wait does not count as running time.
func (x *exec) goSlow() {
	select {
	case slowPlaces <- struct{}{}:
	default:
		x.notCounting(func() { slowPlaces <- struct{}{} })
	}
	x.slow = true
	x.restedAt, x.rested = x.active, 0
}

// rest gives the processor to others for a moment.
func (x *exec) rest() {
	x.restedAt = x.active
	if x.sleep != nil && x.rested < 3*x.active {
		x.rested += x.notCounting(func() { x.sleep(restFor) })
	}
}

// notCounting runs wait, moves the run's times along so that it is not running
// time, and returns how long it took (ns).
func (x *exec) notCounting(wait func()) int64 {
	before := x.clock()
	wait()
	waited := x.clock() - before
	x.start += waited
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
