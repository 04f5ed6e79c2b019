package shard

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watchedMutex is a mutex of which another goroutine can see, without the lock and without a
// clock, whether it is held all the time: holds is odd while it is, and another number the
// next time.
type watchedMutex struct {
	sync.Mutex
	holds atomic.Uint64
}

// Lock locks m.
func (m *watchedMutex) Lock() {
	m.Mutex.Lock()
	m.holds.Add(1)
}

// TryLock locks m unless it is locked.
func (m *watchedMutex) TryLock() bool {
	ok := m.Mutex.TryLock()
	if ok {
		m.holds.Add(1)
	}
	return ok
}

// Unlock unlocks m.
func (m *watchedMutex) Unlock() {
	m.holds.Add(1)
	m.Mutex.Unlock()
}

const (
	watchInterval = 2 * time.Second
	// stuckAfter is how many looks in a row have to find one and the same hold of a lock.
	// Looks are counted, not seconds: a process that was stopped is not stuck.
	stuckAfter = 3
)

// watchdog looks at the locks that everything of a queue needs: that of its intake, and that
// of its turns.
type watchdog struct {
	held  map[watched]hold // owned by the goroutine that looks
	stuck atomic.Pointer[[]string]
}

// watched is a lock of a queue.
type watched struct {
	q      *Queue
	intake bool
}

// hold is how often in a row a lock was found in one hold.
type hold struct {
	number uint64
	looks  int
}

// Stuck says which queues are stuck, in sentences: something holds their intake or a turn for
// seconds, so that they take no messages or deliver none. That is a defect of fila.
func (s *Set) Stuck() []string {
	if list := s.dog.stuck.Load(); list != nil {
		return *list
	}
	return nil
}

// watchLocks looks at the locks of all queues until the set ends.
func (s *Set) watchLocks() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.lookAtLocks()
		case <-s.ended.Done():
			return
		}
	}
}

func (s *Set) lookAtLocks() {
	found := make(map[watched]hold)
	var stuck []string
	look := func(w watched, m *watchedMutex, what string) {
		number := m.holds.Load()
		if number%2 == 0 {
			return
		}
		h := s.dog.held[w]
		if h.number != number {
			h = hold{number: number}
		}
		h.looks++
		found[w] = h
		if h.looks >= stuckAfter {
			stuck = append(stuck, fmt.Sprintf("queue %s is stuck: %s", w.q.name, what))
		}
		if h.looks == stuckAfter {
			s.Log.Error("a queue is stuck; restart fila, and report the defect with a profile of its goroutines", "queue", w.q.name, "what", what)
		}
	}
	for _, q := range s.queues.main() {
		look(watched{q, true}, &q.intake.mu, "it takes no messages")
		look(watched{q, false}, &q.run.mu, "it delivers no messages")
	}
	s.dog.held = found
	if had := s.Stuck(); slices.Equal(had, stuck) {
		return
	} else if len(had) > 0 && len(stuck) == 0 {
		s.Log.Info("no queue is stuck any more", "were", strings.Join(had, "; "))
	}
	s.dog.stuck.Store(&stuck)
}
