package control

import (
	"cmp"
	"container/heap"
	"math"
	"sync"
	"time"
)

// schedule ends overrides and pauses at their time. Its methods may be called from
// any goroutine, with the locks of overrides and pauses held.
type schedule struct {
	now func() int64 // Unix ns
	// end is called without a lock for each key whose time has come. It looks itself
	// whether that is still so.
	end     func(key string, now int64)
	running sync.WaitGroup // the timer, from being set until its function has returned

	mu struct {
		sync.Mutex
		ends    ends
		byKey   map[string]*ending
		timer   *time.Timer
		at      int64 // when timer fires; 0: it is not set
		stopped bool
	}
}

// ending is a key that ends at a time.
type ending struct {
	key   string
	at    int64
	index int // in the heap
}

// ends is a heap of endings, the earliest first.
type ends []*ending

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].key, e[j].key)) < 0
}

func (e ends) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

// Push and Pop are for package heap.
func (e *ends) Push(x any) {
	it := x.(*ending)
	it.index = len(*e)
	*e = append(*e, it)
}

func (e *ends) Pop() any {
	last := len(*e) - 1
	it := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return it
}

// set has key end at time at instead of when it was to end before; with 0 and
// math.MaxInt64 it does not end by itself.
func (sc *schedule) set(key string, at int64) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if it := sc.mu.byKey[key]; it != nil {
		heap.Remove(&sc.mu.ends, it.index)
		delete(sc.mu.byKey, key)
	}
	if at == 0 || at == math.MaxInt64 {
		return
	}
	if sc.mu.byKey == nil {
		sc.mu.byKey = make(map[string]*ending)
	}
	it := &ending{key: key, at: at}
	sc.mu.byKey[key] = it
	heap.Push(&sc.mu.ends, it)
	sc.arm()
}

// run ends what is due.
func (sc *schedule) run() {
	for {
		now := sc.now()
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
	if len(sc.mu.ends) == 0 || sc.mu.ends[0].at > now {
		sc.arm()
		return "", false
	}
	it := heap.Pop(&sc.mu.ends).(*ending)
	delete(sc.mu.byKey, it.key)
	return it.key, true
}

// arm sets the timer to the next time, with mu held.
func (sc *schedule) arm() {
	if len(sc.mu.ends) == 0 || sc.mu.stopped {
		return
	}
	at := sc.mu.ends[0].at
	if sc.mu.at != 0 && sc.mu.at <= at {
		return
	}
	sc.disarm()
	sc.mu.at = at
	sc.running.Add(1)
	sc.mu.timer = time.AfterFunc(time.Duration(max(0, at-sc.now())), func() {
		defer sc.running.Done()
		sc.mu.Lock()
		if sc.mu.at == at {
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
