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

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/schedule"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Shard is a store and the queues in it. Its methods may be called from any
// goroutine.
type Shard struct {
	*Options // of the set
	// Owns reports whether nobody else can own the shard yet; nil: nobody ever does. It is
	// asked before each delivery and answer, and set before [Set.Add]. Where it is false
	// the shard is fenced.
	Owns func() bool
	// Full reports whether the log of the store has no room for new messages; nil: it has
	// none. They are refused then, so that there is room for what finishes messages. It
	// is set before [Set.Add].
	Full func() bool
	// Plain reports whether the store leaves histories out, since a node is there that
	// does not know them; nil: it does not. It is set before [Set.Add].
	Plain    func() bool
	set      *Set
	number   int
	store    store.Store
	subjects wire.Subjects // whose reply subjects name the shard

	admin     sync.Mutex    // held while queues are made and deleted
	nextQueue store.QueueID // under admin

	recovered []*Queue // no dead letter queues; until it is in the set
	jobs      jobs
	schedules *schedule.Runner
	inbound   inbound
	failure   atomic.Pointer[error]
	attached  bool            // under the state of the set: acks can be heard
	fenced    atomic.Bool     // written under the state of the set
	leaving   atomic.Bool     // written under admin: no queue is made or deleted any more
	looking   atomic.Bool     // lookAgain is under way
	abandoned atomic.Bool     // nothing is written any more; fenced and leaving as well
	losing    sync.Once       // closes lost
	lost      chan struct{}   // closed when nobody waits for the store any more
	ended     context.Context // ended by end
	end       context.CancelFunc
}

// New returns a shard of the set without queues, see [Shard.Recover], which [Set.Add]
// takes in. Its number is in reply subjects.
func (s *Set) New(number int, st store.Store) *Shard {
	sh := &Shard{Options: &s.Options, set: s, number: number, store: st, subjects: s.Subjects.OfShard(number), lost: make(chan struct{})}
	sh.ended, sh.end = context.WithCancel(context.Background())
	sh.schedules = sh.newScheduleRunner()
	return sh
}

// Number is that of the shard.
func (s *Shard) Number() int { return s.number }

// start lets the queues of the shard work.
func (s *Shard) start() {
	go func() {
		select {
		case <-s.store.Failed():
			s.fail(s.store.Err())
		case <-s.ended.Done():
		}
	}()
	for _, q := range s.set.queues.of(s) {
		s.tellKept(q)
		s.tellKept(q.dlq)
		q.run.start()
	}
	s.startJobs()
	s.schedules.Start()
}

// tellKept tells a queue what control keeps about it.
func (s *Shard) tellKept(q *Queue) {
	until, keys := s.Control.Pauses(q.name)
	if until != 0 {
		q.Tell(queue.PauseQueue{Until: until})
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		q.Tell(queue.PauseKey{Key: key, Until: keys[key]})
	}
	s.tellWeights(q)
}

func (s *Shard) tellWeights(q *Queue) {
	weights := s.Control.Weights(q.name)
	for _, key := range slices.Sorted(maps.Keys(weights)) {
		q.Tell(queue.Weigh{Key: key, Weight: weights[key]})
	}
}

// Fence silences a shard that may have another owner: it neither delivers nor answers
// anything, refusals included. A shard whose store says [store.ErrFenced] fences itself,
// for good.
func (s *Shard) Fence(on bool) {
	s.set.state.Lock()
	defer s.set.state.Unlock()
	s.fenced.Store(on || s.abandoned.Load() || errors.Is(s.Err(), store.ErrFenced))
	s.tellDispatch()
}

// attach lets messages for the queues of the shard come in, and then deliveries go out.
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
	s.tellDispatch()
	return nil
}

// delivers reports whether deliveries may go out, as far as it is about the shard. Its
// caller holds the state of the set.
func (s *Shard) delivers() bool {
	return s.attached && s.failure.Load() == nil && !s.fenced.Load() && s.owns()
}

func (s *Shard) owns() bool { return s.Owns == nil || s.Owns() }

// silent reports whether the shard is fenced.
func (s *Shard) silent() bool {
	if s.fenced.Load() {
		return true
	}
	if s.owns() {
		return false
	}
	if !s.looking.Swap(true) {
		s.lookAgain()
	}
	return true
}

// lookInterval is how often a shard that owns nothing asks whether it does.
const lookInterval = 100 * time.Millisecond

// lookAgain holds deliveries back until the shard owns its queues.
func (s *Shard) lookAgain() {
	s.set.state.Lock()
	defer s.set.state.Unlock()
	s.tellDispatch()
	if s.owns() || s.ended.Err() != nil {
		s.looking.Store(false)
		return
	}
	time.AfterFunc(lookInterval, s.lookAgain)
}

func (s *Shard) tellDispatch() { s.set.tellDispatch(s.set.queues.of(s)...) }

// Err is nil until a commit has failed: memory and disk may disagree then, and only
// opening the store again tells what is true. Nothing more is taken, confirmed or
// delivered; who still waits for an answer gets it at the end. It says what that means,
// what broke and what to do.
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
		s.fenced.Store(true) // before anybody is told that a commit has failed
	}
	err = storeFailed(err)
	if s.failure.CompareAndSwap(nil, &err) { // the first cause is the one that counts
		select {
		case s.set.failed <- s:
		default:
		}
		s.Fence(s.fenced.Load())
	}
}

// storeFailed is the last word on a store that failed.
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

// finish lets queues of the shard handle what has come and hands everything to the
// store, leases included. It returns when their goroutines are done.
func (s *Shard) finish(queues []*Queue) {
	s.end()
	s.endJobs()
	s.schedules.Wait()
	var ended sync.WaitGroup
	for _, q := range queues {
		ended.Go(q.run.end)
	}
	ended.Wait()
}

// written waits until what queues have handed to the store is on disk.
func (s *Shard) written(ctx context.Context, queues []*Queue) error {
	done := make(chan error, len(queues))
	for _, q := range queues { // batches of one queue are done in order
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

// leave has no more queues made or deleted, and nothing delivered. It reports false if
// that has begun before.
func (s *Shard) leave() bool {
	s.admin.Lock()
	defer s.admin.Unlock()
	if s.leaving.Swap(true) {
		return false
	}
	s.set.state.Lock()
	defer s.set.state.Unlock()
	s.attached = false
	s.tellDispatch()
	return true
}

// abandon ends all writing and all answers.
func (s *Shard) abandon() {
	s.set.state.Lock()
	defer s.set.state.Unlock()
	s.fenced.Store(true)
	s.abandoned.Store(true)
	s.letGo()
}

// letGo has those who make, change or delete a queue not wait for the store any more.
func (s *Shard) letGo() { s.losing.Do(func() { close(s.lost) }) }

// firstLease is where a queue begins to count its leases.
func firstLease() uint64 { return rand.Uint64() }
