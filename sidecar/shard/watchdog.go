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
	seen  uint64 // holds at the last check; used by checkLocks only, like checks
	// checks is how many checks in a row have found the same critical section.
	checks int
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

// stuckFor returns how many checks in a row, this one included, have found the same critical
// section.
func (m *watchedMutex) stuckFor() int {
	holds := m.holds.Load()
	switch {
	case holds%2 == 0:
		m.checks = 0
	case holds == m.seen:
		m.checks++
	default:
		m.checks = 1
	}
	m.seen = holds
	return m.checks
}

const (
	watchInterval = 2 * time.Second
	// stuckAfter is how many checks in a row have to find the same critical section. Checks
	// are counted instead of seconds, since a suspended process is not stuck.
	stuckAfter = 3
)

// Stuck returns a sentence for each queue that has been stuck for seconds, because a defect of
// fila keeps its intake or its runner locked.
func (s *Set) Stuck() []string {
	if list := s.stuck.Load(); list != nil {
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
	var stuck []string
	check := func(q *Queue, m *watchedMutex, what string) {
		if m.stuckFor() >= stuckAfter {
			stuck = append(stuck, fmt.Sprintf("queue %s is stuck: %s", q.name, what))
		}
		if m.checks == stuckAfter {
			s.Log.Error("a queue is stuck; restart fila, and report the defect with a profile of its goroutines", "queue", q.name, "what", what)
		}
	}
	for _, q := range s.queues.main() {
		check(q, &q.intake.mu, "it takes no messages")
		check(q, &q.run.mu, "it delivers no messages")
	}
	if had := s.Stuck(); slices.Equal(had, stuck) {
		return
	} else if len(had) > 0 && len(stuck) == 0 {
		s.Log.Info("no queue is stuck any more", "were", strings.Join(had, "; "))
	}
	s.stuck.Store(&stuck)
}
