package shard

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watchedMutex lets another goroutine find out, without the lock or a clock, whether one and
// the same critical section is still running: holds changes with each Lock and Unlock and is
// odd while the mutex is locked.
type watchedMutex struct {
	sync.Mutex
	holds atomic.Uint64
}

func (m *watchedMutex) Lock() {
	m.Mutex.Lock()
	m.holds.Add(1)
}

func (m *watchedMutex) TryLock() bool {
	ok := m.Mutex.TryLock()
	if ok {
		m.holds.Add(1)
	}
	return ok
}

func (m *watchedMutex) Unlock() {
	m.holds.Add(1)
	m.Mutex.Unlock()
}

const (
	watchInterval = 2 * time.Second
	// stuckAfter is how many checks in a row have to find the same critical section. Checks
	// are counted instead of seconds, since a suspended process is not stuck.
	stuckAfter = 3
)

// watchdog watches the locks that all work of a queue needs: of its intake and its runner.
type watchdog struct {
	held  map[watched]hold // used by watchLocks only
	stuck atomic.Pointer[[]string]
}

// watched is a lock of a queue.
type watched struct {
	q      *Queue
	intake bool
}

// hold is how many checks in a row have found the same critical section.
type hold struct {
	number uint64
	checks int
}

// Stuck returns a sentence for each queue that has been stuck for seconds, because a defect of
// fila keeps its intake or its runner locked.
func (s *Set) Stuck() []string {
	if list := s.dog.stuck.Load(); list != nil {
		return *list
	}
	return nil
}

// watchLocks checks the locks of all queues until the set ends.
func (s *Set) watchLocks() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.checkLocks()
		case <-s.ended.Done():
			return
		}
	}
}

func (s *Set) checkLocks() {
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
		h.checks++
		found[w] = h
		if h.checks >= stuckAfter {
			stuck = append(stuck, fmt.Sprintf("queue %s is stuck: %s", w.q.name, what))
		}
		if h.checks == stuckAfter {
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
