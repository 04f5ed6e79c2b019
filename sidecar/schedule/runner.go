package schedule

import (
	"cmp"
	"container/heap"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

const (
	// maxSchedules and maxBytes bound the schedules of a shard, which are all in memory.
	maxSchedules = 10_000
	maxBytes     = 64 << 20
	// limitRetryAfter is the hint for clients that were refused by a limit.
	limitRetryAfter = 10 * time.Second
	// retryInterval is how long a refused run waits at least.
	retryInterval = time.Second
	// clockInterval is how often the Runner reads the wall clock: an operator may set it, and
	// it goes on while the machine sleeps.
	clockInterval = 30 * time.Second
)

// Options of a [Runner]. Its functions may be called from any goroutine.
type Options struct {
	Log *slog.Logger
	// Ended ends when no more runs are to be made.
	Ended context.Context
	// Event publishes an event about a queue.
	Event func(typ, queue string, e wire.Event)
	// Silent reports whether another node may make the runs.
	Silent func() bool
	// Admit refuses a schedule of a size in bytes, or all of them for now.
	Admit func(bytes int64) *wire.Error
	// Owned refuses to let an enqueue replace a schedule of an owner by changes; empty: there is no
	// such schedule yet.
	Owned func(queue, schedule, changes string) *wire.Error
	// Await waits for the outcome of a write.
	Await func(done <-chan error) error
}

// Runner makes the runs of the schedules of a shard in one goroutine, which it starts with
// the first schedule.
type Runner struct {
	Options
	wake chan struct{}
	work sync.WaitGroup

	mu struct {
		sync.Mutex
		due     dueHeap // schedules that have a run to come
		count   int     // of all schedules
		bytes   int64
		started bool
		running bool
	}
}

// NewRunner returns a Runner that makes no runs before Start.
func NewRunner(o Options) *Runner { return &Runner{Options: o, wake: make(chan struct{}, 1)} }

// dueHeap is a heap of schedules by due.
type dueHeap []*schedule

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *dueHeap) Push(x any)        { sc := x.(*schedule); sc.index = len(*h); *h = append(*h, sc) }

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	sc := (*h)[last]
	(*h)[last], sc.index = nil, -1
	*h = (*h)[:last]
	return sc
}

// wallClock is the time of day, Unix ns. Schedules follow it when an operator sets it, unlike
// leases and delays.
func wallClock() int64 { return time.Now().UnixNano() }

// reserve counts a new schedule and its bytes, or refuses it. old is the schedule that it
// replaces, which is still counted; it may be nil.
func (r *Runner) reserve(bytes int64, old *schedule) *wire.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	count, all := r.mu.count, r.mu.bytes
	if old != nil {
		count, all = count-1, all-old.bytes
	}
	switch {
	case count >= maxSchedules:
		return wire.LimitReached("schedules of a shard", maxSchedules, limitRetryAfter)
	case all+bytes > maxBytes:
		return wire.LimitReached("bytes of the schedules of a shard", maxBytes, limitRetryAfter)
	}
	r.mu.count++
	r.mu.bytes += bytes
	return nil
}

// count adds to the number of schedules and their bytes.
func (r *Runner) count(n int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.count += n
	r.mu.bytes += bytes
}

// plan sets when a schedule is due, Unix ns; 0: it is not.
func (r *Runner) plan(sc *schedule, due int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sc.index >= 0 {
		heap.Remove(&r.mu.due, sc.index)
	}
	if due == 0 {
		return
	}
	sc.due = due
	heap.Push(&r.mu.due, sc)
	r.startWork()
	if sc.index == 0 {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Start lets runs be made.
func (r *Runner) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.started = true
	r.startWork()
}

// startWork starts the goroutine if there is something to do. Its caller holds the lock.
func (r *Runner) startWork() {
	if !r.mu.started || r.mu.running || len(r.mu.due) == 0 || r.Ended.Err() != nil {
		return
	}
	r.mu.running = true
	r.work.Go(r.makeRuns)
}

// Wait returns when no more run is being made. Options.Ended has ended.
func (r *Runner) Wait() {
	r.mu.Lock()
	r.mu.started = false
	r.mu.Unlock()
	r.work.Wait()
}

func (r *Runner) makeRuns() {
	timer := time.NewTimer(clockInterval)
	defer timer.Stop()
	for r.Ended.Err() == nil {
		sc, wait := r.takeDue()
		if sc != nil {
			sc.makeRuns()
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-r.wake:
		case <-r.Ended.Done():
		}
	}
}

// takeDue removes the schedule that is due from the heap. If none is, it returns how long to
// wait.
func (r *Runner) takeDue() (sc *schedule, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.due) == 0 {
		return nil, clockInterval
	}
	if wait = time.Duration(r.mu.due[0].due - wallClock()); wait > 0 {
		return nil, min(wait, clockInterval)
	}
	return heap.Pop(&r.mu.due).(*schedule), 0
}

// Recover adds the schedules among the entries of a store. find returns the schedules of a
// queue, nil if there is no queue of that name.
func (r *Runner) Recover(entries []store.Entry, find func(queue string) *Schedules) {
	specs, states, broken := decodeStored(entries)
	for name, sp := range specs {
		queue, _, _ := strings.Cut(name, "/")
		s := find(queue)
		if s == nil {
			continue
		}
		sc, err := newSchedule(s, sp)
		if err = cmp.Or(broken[name], err); err != nil {
			r.Log.Error("a schedule cannot be read; it does not run any more", "schedule", name, "error", err)
			continue
		}
		st, ok := states[name]
		if !ok {
			st.Last = sc.times.Begin(time.Unix(0, sc.CreatedAt)).UnixNano()
		}
		sc.state, sc.nextAt = st, sc.runAfter(st.Last)
		s.put(sc)
		r.count(1, sc.bytes)
		r.plan(sc, sc.nextRun())
	}
}
