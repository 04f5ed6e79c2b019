package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/job"
	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/schedule"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Shard is a store and the queues in it. Its methods may be called from any goroutine.
type Shard struct {
	*Options // of the set
	// Owns reports whether no other node can own the shard yet. It is called before each
	// delivery and answer; the shard is fenced while it returns false. nil means that no
	// other node ever owns the shard. It is set before [Set.Add].
	Owns func() bool
	// Full reports whether the log of the store has no room for new messages, which are
	// refused then, so that room is left for acks. nil: there is always room. It is set
	// before [Set.Add].
	Full func() bool
	// Plain reports whether the store leaves histories out, because some node of the
	// cluster does not know them. nil: it does not. It is set before [Set.Add].
	Plain    func() bool
	set      *Set
	number   int
	store    store.Store
	subjects wire.Subjects // with the number of the shard in reply subjects

	admin     sync.Mutex    // held while queues are made and deleted
	nextQueue store.QueueID // under admin

	recovered  []*Queue // without dead letter queues; empty once the set has them
	policies   policy.Options
	jobs       *job.Jobs
	schedules  *schedule.Runner
	failure    atomic.Pointer[error]
	attached   bool            // acks can arrive; under the state of the set
	fenced     atomic.Bool     // written under the state of the set
	leaving    atomic.Bool     // no queue is created or deleted any more; written under admin
	rechecking atomic.Bool     // recheckOwner is under way
	abandoned  atomic.Bool     // nothing is written any more; then fenced and leaving are set, too
	losing     sync.Once       // closes lost
	lost       chan struct{}   // closed when nobody waits for the store any more
	ended      context.Context // canceled by end
	end        context.CancelFunc
}

// New returns a shard without queues, which may be filled by [Shard.Recover] and is added to
// the set by [Set.Add]. number is part of its reply subjects.
func (s *Set) New(number int, st store.Store) *Shard {
	sh := &Shard{Options: &s.Options, set: s, number: number, store: st, subjects: s.Subjects.OfShard(number), lost: make(chan struct{})}
	sh.ended, sh.end = context.WithCancel(context.Background())
	sh.policies = policy.Options{
		Defaults: s.Hooks, Log: s.Log, Now: s.Now, Metrics: s.Metrics, Get: s.Control.Get, Routes: s.Control.Routes, OnChange: sh.hookCircuitChanged,
	}
	sh.schedules = sh.newScheduleRunner()
	sh.jobs = sh.newJobs()
	return sh
}

func (s *Shard) hookCircuitChanged(ch hooks.CircuitChange) {
	s.event(wire.EventHookCircuitChanged, ch.Queue, wire.Event{Queue: ch.Queue, Data: map[string]any{
		"hook": ch.Hook, "old": ch.Old.String(), "new": ch.New.String(),
		"consecutive_failures": ch.ConsecutiveFailures, "at": wire.Timestamp(ch.At),
	}})
}

// Number returns the number of the shard.
func (s *Shard) Number() int { return s.number }

// start starts the queues, jobs and schedules of the shard.
func (s *Shard) start() {
	go func() {
		select {
		case <-s.store.Failed():
			s.fail(s.store.Err())
		case <-s.ended.Done():
		}
	}()
	for _, q := range s.set.queues.of(s) {
		s.applyControl(q)
		s.applyControl(q.dlq)
		q.run.start()
	}
	s.jobs.Start()
	s.schedules.Start()
}

// applyControl passes pauses and weights that Control has stored to a queue.
func (s *Shard) applyControl(q *Queue) {
	until, keys := s.Control.Pauses(q.name)
	if until != 0 {
		q.Tell(queue.PauseQueue{Until: until})
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		q.Tell(queue.PauseKey{Key: key, Until: keys[key]})
	}
	s.applyWeights(q)
}

func (s *Shard) applyWeights(q *Queue) {
	weights := s.Control.Weights(q.name)
	for _, key := range slices.Sorted(maps.Keys(weights)) {
		q.Tell(queue.Weigh{Key: key, Weight: weights[key]})
	}
}

// Fence stops or resumes deliveries and answers, refusals included, of a shard that may have
// another owner. A shard whose store reports [store.ErrFenced] fences itself for good.
func (s *Shard) Fence(on bool) {
	s.set.state.Lock()
	defer s.set.state.Unlock()
	s.fenced.Store(on || s.abandoned.Load() || errors.Is(s.Err(), store.ErrFenced))
	s.updateDispatch()
}

// attach subscribes the queues of the shard, and starts deliveries when acks can arrive.
func (s *Shard) attach() error {
	for _, q := range s.set.queues.of(s) {
		for _, side := range q.run.sides {
			if err := s.Front.Attach(side); err != nil {
				return err
			}
		}
	}
	if err := s.Front.Flush(); err != nil {
		return err
	}
	s.set.state.Lock()
	defer s.set.state.Unlock()
	s.attached = true
	s.updateDispatch()
	return nil
}

// delivers reports whether the state of the shard allows deliveries. Its caller holds the
// state of the set.
func (s *Shard) delivers() bool {
	return s.attached && s.failure.Load() == nil && !s.fenced.Load() && s.owns()
}

func (s *Shard) owns() bool { return s.Owns == nil || s.Owns() }

// silent reports whether the shard is fenced or may have another owner.
func (s *Shard) silent() bool {
	if s.fenced.Load() {
		return true
	}
	if s.owns() {
		return false
	}
	if !s.rechecking.Swap(true) {
		s.recheckOwner()
	}
	return true
}

// recheckInterval is how often a shard without an owner here rechecks Owns.
const recheckInterval = 100 * time.Millisecond

// recheckOwner stops deliveries until the node owns the shard again.
func (s *Shard) recheckOwner() {
	s.set.state.Lock()
	defer s.set.state.Unlock()
	s.updateDispatch()
	if s.owns() || s.ended.Err() != nil {
		s.rechecking.Store(false)
		return
	}
	time.AfterFunc(recheckInterval, s.recheckOwner)
}

func (s *Shard) updateDispatch() { s.set.updateDispatch(s.set.queues.of(s)...) }

// Err returns why the store has failed, in words for an operator; nil: it has not. After a
// failed commit, memory and disk may differ until the store is opened again: the shard
// accepts, confirms and delivers nothing more, and clients that wait for an answer get it
// when the shard ends.
func (s *Shard) Err() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	if err := s.store.Err(); err != nil {
		return storeFailed(err)
	}
	return nil
}

// failed reports whether a commit has failed.
func (s *Shard) failed() bool {
	if s.failure.Load() != nil {
		return true
	}
	err := s.store.Err()
	if err != nil {
		s.fail(err)
	}
	return err != nil
}

func (s *Shard) fail(err error) {
	if errors.Is(err, store.ErrFenced) {
		s.fenced.Store(true) // before anyone learns that a commit has failed
	}
	err = storeFailed(err)
	if s.failure.CompareAndSwap(nil, &err) { // the first cause counts
		select {
		case s.set.failed <- s:
		default:
		}
		s.Fence(s.fenced.Load())
	}
}

// storeFailed adds what the failure of the store means and what the operator can do.
func storeFailed(err error) error {
	remedy := "look at the disk and the kernel's log, then start fila again"
	switch {
	case errors.Is(err, syscall.ENOSPC):
		remedy = "make room on that disk, then start fila again"
	case errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		remedy = "raise the quota or the limit on file sizes, then start fila again"
	case errors.Is(err, store.ErrFenced):
		remedy = "its new owner goes on"
	}
	return fmt.Errorf("the store failed, nothing more is confirmed or delivered: %w (%s; docs/operations.md says more)", err, remedy)
}

// finish lets the queues handle their mail, hands everything to the store, leases included,
// and returns when all goroutines have ended.
func (s *Shard) finish(queues []*Queue) {
	s.end()
	s.jobs.Stop()
	s.schedules.Wait()
	var ended sync.WaitGroup
	for _, q := range queues {
		ended.Go(q.run.end)
	}
	ended.Wait()
}

// written waits until everything that queues have handed to the store is on disk.
func (s *Shard) written(ctx context.Context, queues []*Queue) error {
	done := make(chan error, len(queues))
	for _, q := range queues { // the store finishes batches of one queue in order
		s.store.Submit(&store.Batch{Queue: q.id, Done: func(err error) { done <- err }})
	}
	var failed error
	for range queues {
		select {
		case err := <-done:
			failed = cmp.Or(failed, err)
		case <-ctx.Done():
			return cmp.Or(failed, ctx.Err())
		}
	}
	return failed
}

// leave stops deliveries and the creation and deletion of queues. It reports false if it
// has been called before.
func (s *Shard) leave() bool {
	s.admin.Lock()
	defer s.admin.Unlock()
	if s.leaving.Swap(true) {
		return false
	}
	s.set.state.Lock()
	defer s.set.state.Unlock()
	s.attached = false
	s.updateDispatch()
	return true
}

// abandon stops all writes and answers.
func (s *Shard) abandon() {
	s.set.state.Lock()
	defer s.set.state.Unlock()
	s.fenced.Store(true)
	s.abandoned.Store(true)
	s.releaseWaiters()
}

// releaseWaiters releases everyone who waits for the store.
func (s *Shard) releaseWaiters() { s.losing.Do(func() { close(s.lost) }) }

// firstLease returns the number at which a queue starts to count its leases.
func firstLease() uint64 { return rand.Uint64() }
