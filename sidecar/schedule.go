package sidecar

import (
	"math"
	"sync"
	"time"
)

// schedule ends overrides and pauses at their time. Its methods may be called
// from any goroutine, with the locks of overrides and pauses held.
type schedule struct {
	clock clock
	// end is called without a lock for each key whose time has come. It looks
	// itself whether that is still so.
	end     func(key string, now int64)
	running sync.WaitGroup // the timer, from being set until its function has returned

	mu struct {
		sync.Mutex
		heap    dueHeap
		ids     map[string]uint64
		items   map[uint64]scheduled
		last    uint64
		timer   *time.Timer
		at      int64 // when timer fires; 0: it is not set
		stopped bool
	}
}

type scheduled struct {
	key string
	at  int64
}

// init makes a zero schedule ready.
func (sc *schedule) init(c clock, end func(key string, now int64)) {
	sc.clock, sc.end = c, end
	sc.mu.ids = make(map[string]uint64)
	sc.mu.items = make(map[uint64]scheduled)
}

// set has key end at time at instead of when it was to end before; with 0 and
// math.MaxInt64 it does not end by itself.
func (sc *schedule) set(key string, at int64) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.mu.ids == nil {
		return // a queue on its own, in a test
	}
	if id, ok := sc.mu.ids[key]; ok {
		delete(sc.mu.ids, key)
		delete(sc.mu.items, id)
		sc.mu.heap.dropped(func(it dueItem) bool { return sc.mu.items[it.seq].at != 0 })
	}
	if at == 0 || at == math.MaxInt64 {
		return
	}
	sc.mu.last++
	sc.mu.ids[key] = sc.mu.last
	sc.mu.items[sc.mu.last] = scheduled{key, at}
	sc.mu.heap.push(at, sc.mu.last)
	sc.arm()
}

// run ends what is due.
func (sc *schedule) run() {
	for {
		now := sc.clock.Now()
		key, ok := sc.due(now)
		if !ok {
			return
		}
		sc.end(key, now)
	}
}

// due takes the next key whose time has come, or sets the timer.
func (sc *schedule) due(now int64) (string, bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for {
		next, ok := sc.mu.heap.next()
		if !ok || next.at > now {
			sc.arm()
			return "", false
		}
		sc.mu.heap.pop()
		it, live := sc.mu.items[next.seq]
		if !live {
			sc.mu.heap.stale--
			continue
		}
		delete(sc.mu.items, next.seq)
		delete(sc.mu.ids, it.key)
		return it.key, true
	}
}

// arm sets the timer to the next time, with mu held. A clock that a test sets has
// no timer: the test calls run.
func (sc *schedule) arm() {
	next, ok := sc.mu.heap.next()
	if !ok || sc.mu.stopped || sc.clock.test != nil || sc.mu.at != 0 && sc.mu.at <= next.at {
		return
	}
	sc.disarm()
	sc.mu.at = next.at
	sc.running.Add(1)
	sc.mu.timer = time.AfterFunc(time.Duration(max(0, next.at-sc.clock.Now())), func() {
		defer sc.running.Done()
		sc.mu.Lock()
		if sc.mu.at == next.at {
			sc.mu.at = 0
		}
		stopped := sc.mu.stopped
		sc.mu.Unlock()
		if !stopped {
			sc.run()
		}
	})
}

// disarm needs mu.
func (sc *schedule) disarm() {
	if sc.mu.timer != nil && sc.mu.timer.Stop() {
		sc.running.Done()
	}
	sc.mu.timer, sc.mu.at = nil, 0
}

// stop ends the schedule and waits for what it is doing.
func (sc *schedule) stop() {
	sc.mu.Lock()
	sc.mu.stopped = true
	sc.disarm()
	sc.mu.Unlock()
	sc.running.Wait()
}
