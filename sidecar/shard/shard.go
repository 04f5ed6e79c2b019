package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
)

// Conn publishes. Its methods may be called from any goroutine.
type Conn interface {
	Publish(subject string, data []byte) error
	PublishMsg(m *nats.Msg) error
	MaxPayload() int64
}

// Front is where messages for queues come in: it calls [Queue.Accept].
type Front interface {
	// Attach lets messages for q come in.
	Attach(q *Queue) error
	// Flush waits until what has been attached can be reached by everybody.
	Flush() error
	// Detach lets no more messages for queues come in. What it returns is closed when
	// all that had arrived have been accepted or refused.
	Detach(queues ...*Queue) <-chan struct{}
}

// Control is what can change while fila runs. Its methods may be called from any
// goroutine and do not block.
type Control interface {
	// Gates are those of all throttle keys.
	Gates() *throttle.Gates
	// Get returns a value of the runtime configuration, for hooks.
	Get(key string) (string, bool)
	// Rules are those in force; the same pointer while they do not change.
	Rules() *rules.Rules
	// Weights returns the weight overrides of a queue by fairness key, in thousandths.
	Weights(queue string) map[string]uint32
	// Pauses returns until when a queue and its fairness keys are paused: Unix ns,
	// [queue.Forever] until they are resumed, 0: the queue is not.
	Pauses(queue string) (until int64, keys map[string]int64)
	// HoldKey keeps a pause that max_failures_per_key has begun.
	HoldKey(queue, key string, until int64)
	// ForgetPauses ends the pauses of queues that are deleted, and of their keys.
	ForgetPauses(queues ...string)
}

// Circuits are those of the process.
type Circuits interface {
	queue.Circuits
	// Full reports whether a message with that key would bring a circuit more than
	// limit.
	Full(key string, limit int64) bool
	// Count is how many circuits there are.
	Count() int64
}

// Caps bound what producers and consumers name, about: what comes at the same moment
// may pass them by a few. 0 is no limit.
type Caps struct {
	ThrottleKeys int64
	Circuits     int64
	RateKeys     int64 // of a queue
	DedupeIDs    int64 // of a queue
	Consumers    int64 // of a queue
}

// Usage is how full the Caps are now; those of a queue: what the queue has of it that
// has the most.
func (s *Shard) Usage() Caps {
	u := Caps{ThrottleKeys: s.Control.Gates().Count(), Circuits: s.Circuits.Count()}
	for _, q := range s.queues.all() {
		u.RateKeys = max(u.RateKeys, q.intake.rates.used())
		u.DedupeIDs = max(u.DedupeIDs, q.intake.seen.n.Load())
		q.View(func(m *queue.Queue, side queue.Side, _ int64) {
			n, _ := m.Registered(side, "")
			u.Consumers = max(u.Consumers, int64(n))
		})
	}
	return u
}

// capRetryAfter is when to try again what was refused by one of the Caps.
const capRetryAfter = 10 * time.Second

// Options of a [Shard].
type Options struct {
	Log      *slog.Logger
	Now      func() int64 // Unix ns; see NewClock
	Store    store.Store
	Conn     Conn
	Front    Front
	Control  Control
	Circuits Circuits
	Metrics  *telemetry.Metrics
	Subjects wire.Subjects
	Signer   *wire.Signer
	// Event publishes news under the name of a queue. It does not block.
	Event func(typ, tail string, e wire.Event)
	// MaxUncommittedBytes is how many bytes of messages may wait for the disk.
	MaxUncommittedBytes int64
	Caps                Caps
	// Space tells the room on the disk of the store; nil: it cannot be told, and the
	// alarm is off. It may be called from any goroutine.
	Space func() (s store.Space, known bool)
	// MinFreeBytes is how much of it has to stay free for messages to be taken;
	// 0: anything, or AutoMinFree.
	MinFreeBytes int64
	Hooks        HookDefaults
	Pacing       queue.Pacing
	Killed       <-chan struct{} // closed: nobody is waited for any more
}

// Shard is a store and the queues in it. Its methods may be called from any
// goroutine.
type Shard struct {
	Options

	queues   registry
	refusals refusals

	uncommitted atomic.Int64 // bytes of messages that wait for the disk
	draining    atomic.Bool
	disk        alarm

	admin     sync.Mutex    // held while queues are made and deleted
	nextQueue store.QueueID // under admin

	dispatch struct {
		sync.Mutex // held until all machines have been told
		serving    bool
		offline    bool
	}

	failure atomic.Pointer[error]
	failed  chan struct{}   // closed when failure is set
	ended   context.Context // ended by end
	end     context.CancelFunc
}

// New returns a shard without queues; see [Shard.Recover].
func New(o Options) *Shard {
	s := &Shard{Options: o, failed: make(chan struct{})}
	if s.Space == nil {
		s.Space = noSpace
	}
	s.disk.look = make(chan struct{}, 1)
	s.ended, s.end = context.WithCancel(context.Background())
	s.queues.byName.Store(&map[string]*Queue{})
	return s
}

// Start lets the queues work. Nothing is delivered before [Shard.Serve].
func (s *Shard) Start() {
	go func() {
		select {
		case <-s.Store.Failed():
			s.fail(s.Store.Err())
		case <-s.ended.Done():
		}
	}()
	if s.lookAtDisk(); s.Disk() != nil {
		go s.watchDisk()
	}
	for _, q := range s.queues.main() {
		s.tellKept(q)
		s.tellKept(q.dlq)
		q.run.start()
	}
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

// Queue finds a queue, or a dead letter queue, by its name; nil: there is none.
func (s *Shard) Queue(name string) *Queue { return s.queues.get(name) }

// Queues returns all queues, dead letter queues among them, by name.
func (s *Shard) Queues() []*Queue { return s.queues.all() }

// QueuePage returns a page of them: those after the name next of the page before,
// which is empty at the end.
func (s *Shard) QueuePage(after string, offset, limit int) (page []*Queue, total int, next string) {
	return s.queues.page(after, offset, limit)
}

// Deliveries go out from Serve on, unless fila is disconnected or stopping: before,
// nobody would hear the acks, and then they would be lost.

// Serve lets deliveries go out: acks can be heard now.
func (s *Shard) Serve() { s.changeDispatch(func() { s.dispatch.serving = true }) }

// SetOffline keeps deliveries back while there is no connection.
func (s *Shard) SetOffline(offline bool) { s.changeDispatch(func() { s.dispatch.offline = offline }) }

// Offline reports what SetOffline was told.
func (s *Shard) Offline() bool {
	s.dispatch.Lock()
	defer s.dispatch.Unlock()
	return s.dispatch.offline
}

// Drain begins the end: no queue is made any more, and nothing is delivered. A queue
// that is just being made exists when it returns.
func (s *Shard) Drain() {
	s.admin.Lock()
	s.draining.Store(true)
	s.admin.Unlock()
	s.changeDispatch(func() {})
}

// Draining reports whether Drain was called.
func (s *Shard) Draining() bool { return s.draining.Load() }

func (s *Shard) changeDispatch(change func()) {
	s.dispatch.Lock()
	defer s.dispatch.Unlock()
	change()
	s.tellDispatch(s.queues.main()...)
}

// tellDispatch tells queues whether deliveries may go out. Its caller holds dispatch.
func (s *Shard) tellDispatch(queues ...*Queue) {
	on := s.dispatch.serving && !s.dispatch.offline && !s.draining.Load() && s.failure.Load() == nil
	for _, q := range queues {
		q.Tell(queue.Dispatch{On: on})
	}
}

// Failed is closed when a commit has failed: memory and disk may disagree, and only
// opening the store again tells what is true. Nothing more is taken, confirmed or
// delivered; who still waits for an answer gets it from End.
func (s *Shard) Failed() <-chan struct{} { return s.failed }

// Err says what the failure means, what broke and what to do; nil: none.
func (s *Shard) Err() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	if err := s.Store.Err(); err != nil {
		return storeFailed(err)
	}
	return nil
}

func (s *Shard) fail(err error) {
	err = storeFailed(err)
	if s.failure.CompareAndSwap(nil, &err) { // the first cause is the one that counts
		close(s.failed)
		s.changeDispatch(func() {})
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

// settleInterval is how often Settle looks whether leases have settled.
const settleInterval = 10 * time.Millisecond

// Settle waits until no message is with a consumer. Those that still are when ctx
// ends stay leased: their consumers can ack to the next process.
func (s *Shard) Settle(ctx context.Context) {
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	for {
		open := 0
		for _, q := range s.queues.main() {
			// After what Drain has told it.
			q.run.view(func(m *queue.Queue) { open += m.Open() })
		}
		if open == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Log.Info("leases that did not settle in time are kept for the next start", "leases", open)
			return
		case <-s.Killed:
			return
		}
	}
}

// End lets the queues handle what has come and hands everything to the store, leases
// included. It returns when all goroutines of the shard are done.
func (s *Shard) End() {
	s.end()
	var ended sync.WaitGroup
	for _, q := range s.queues.main() {
		ended.Go(q.run.end)
	}
	ended.Wait()
}

// registry finds queues by name. Reading takes no lock: every change makes a
// new map.
type registry struct {
	change sync.Mutex
	byName atomic.Pointer[map[string]*Queue] // never nil
	sorted atomic.Pointer[[]*Queue]          // the same by name; nil: not sorted since the last change
}

func (r *registry) get(name string) *Queue { return (*r.byName.Load())[name] }

// all returns the queues by name.
func (r *registry) all() []*Queue { return slices.Clone(r.inOrder()) }

// inOrder is all for those who do not change what it returns.
func (r *registry) inOrder() []*Queue {
	if sorted := r.sorted.Load(); sorted != nil {
		return *sorted
	}
	r.change.Lock()
	defer r.change.Unlock()
	sorted := slices.SortedFunc(maps.Values(*r.byName.Load()), func(a, b *Queue) int { return cmp.Compare(a.name, b.name) })
	r.sorted.Store(&sorted)
	return sorted
}

// page returns up to limit queues by name, those after the name after but for the
// first offset ones.
func (r *registry) page(after string, offset, limit int) (page []*Queue, total int, next string) {
	sorted := r.inOrder()
	from, found := slices.BinarySearchFunc(sorted, after, func(q *Queue, name string) int { return cmp.Compare(q.name, name) })
	if found {
		from++
	}
	page = wire.Page(sorted[from:], offset, limit)
	if n := len(page); n > 0 && page[n-1] != sorted[len(sorted)-1] {
		next = page[n-1].name
	}
	return page, len(sorted), next
}

// main returns the queues that are no dead letter queues, by name.
func (r *registry) main() []*Queue { return slices.DeleteFunc(r.all(), (*Queue).IsDLQ) }

func (r *registry) update(fn func(m map[string]*Queue)) {
	r.change.Lock()
	defer r.change.Unlock()
	m := maps.Clone(*r.byName.Load())
	fn(m)
	r.byName.Store(&m)
	r.sorted.Store(nil)
}

// NewClock returns the time as Unix nanoseconds. Within one process it never goes
// back: it is the wall clock at the start plus the monotonic time since then, so that
// an operator who sets the clock back cannot stretch leases or delays.
func NewClock() func() int64 {
	start := time.Now()
	base := start.UnixNano()
	return func() int64 { return base + int64(time.Since(start)) }
}

// firstLease is where a queue begins to count its leases.
func firstLease() uint64 { return rand.Uint64() }
