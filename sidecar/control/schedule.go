package control

import (
	"math"
	"sync"
	"time"
)

// schedule ends overrides and pauses at their time and triggers lowerCalls, between begin
// and stop. Its methods are safe for concurrent use, and may be called with the locks of
// overrides, pauses and calls held.
type schedule struct {
	now func() int64 // Unix ns; as fast as the timers
	// end is called without a lock for each key whose time has come. It checks
	// whether that is still so.
	end     func(key string, now int64)
	running sync.WaitGroup // timers, from being set until their function has returned

	mu struct {
		sync.Mutex
		timers map[string]*time.Timer // nil before begin and after stop
	}
}

func (sc *schedule) begin() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.mu.timers = make(map[string]*time.Timer)
}

// set schedules the end of a key at a time and replaces its earlier time. With 0 or
// math.MaxInt64 it does not end by itself.
func (sc *schedule) set(key string, at int64) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.drop(key)
	if at == 0 || at == math.MaxInt64 || sc.mu.timers == nil {
		return
	}
	sc.running.Add(1)
	sc.mu.timers[key] = time.AfterFunc(time.Duration(at-sc.now()), func() {
		defer sc.running.Done()
		sc.end(key, sc.now())
	})
}

// drop needs mu.
func (sc *schedule) drop(key string) {
	if t := sc.mu.timers[key]; t != nil && t.Stop() {
		sc.running.Done()
	}
	delete(sc.mu.timers, key)
}

// stop ends the schedule and waits for calls of end.
func (sc *schedule) stop() {
	sc.mu.Lock()
	for key := range sc.mu.timers {
		sc.drop(key)
	}
	sc.mu.timers = nil
	sc.mu.Unlock()
	sc.running.Wait()
}
