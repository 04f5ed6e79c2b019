package shard

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	// Attach lets messages for q come in, and all else that concerns it alone.
	Attach(q *Queue) error
	// Flush waits until what has been attached can be reached by everybody.
	Flush() error
	// Detach lets no more of that come in. What it returns is closed when all that had
	// arrived has been taken or refused.
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
	Fetches      int64 // that wait, of a queue
	Schedules    int64 // of a queue

	ConsumerFetches   int64 // that wait, of one consumer of a queue
	EnqueuedSchedules int64 // of a queue, made by enqueues
}

// Options of a [Set].
type Options struct {
	Log      *slog.Logger
	Now      func() int64 // Unix ns; see NewClock
	Conn     Conn
	Front    Front
	Control  Control
	Circuits Circuits
	Metrics  *telemetry.Metrics
	Subjects wire.Subjects
	Signer   *wire.Signer
	// Tracer takes spans of messages whose producers trace them, and of jobs; nil: there
	// are none.
	Tracer telemetry.Tracer
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
	// Placement says which shard a queue belongs to; nil: there is one shard, and it
	// hands out ids itself.
	Placement Placement
	// Send has whoever serves a shard carry out a request by [Set.Receive], which may be
	// this set, and returns the answer. A refusal is a *wire.Error. nil: there is one shard.
	Send func(ctx context.Context, shard int, body []byte) (answer []byte, err error)
}

// Placement says which of several shards queues belong to. Its methods may be called
// from any goroutine.
type Placement interface {
	// Shards is how many shards there are, at all nodes together.
	Shards() int
	// Where returns the shard that a queue has been given or, where ok is false, would
	// be. It does not block.
	Where(queue string) (number int, ok bool)
	// Place gives a queue a shard and ids, which stay the same until Drop.
	Place(ctx context.Context, queue string) (ids [queue.Roles]store.QueueID, number int, err error)
	// Drop forgets a queue that is no more. One of that name with other ids stays.
	Drop(ctx context.Context, queue string, ids [queue.Roles]store.QueueID) error
}

// capRetryAfter is when to try again what was refused by one of the Caps.
const capRetryAfter = 10 * time.Second

// Set is the shards of a node, and what they share: queues are found by name in all of
// them. A node without a cluster has one shard from its start to its end. Its methods
// may be called from any goroutine.
type Set struct {
	Options

	queues   registry
	traces   *traces // nil: there is no tracer
	refusals refusals

	uncommitted atomic.Int64 // bytes of messages that wait for the disk
	draining    atomic.Bool
	disk        alarm
	dog         watchdog

	state struct {
		sync.Mutex          // held until all machines have been told
		shards     []*Shard // by number
		started    bool
		serving    bool
		offline    bool
	}

	failed chan *Shard
	ended  context.Context // ended by end
	end    context.CancelFunc
}

// NewSet returns a set without shards.
func NewSet(o Options) *Set {
	s := &Set{Options: o, traces: newTraces(o.Tracer), failed: make(chan *Shard, 1)}
	if s.Space == nil {
		s.Space = noSpace
	}
	s.disk.look = make(chan struct{}, 1)
	s.ended, s.end = context.WithCancel(context.Background())
	s.queues.byName.Store(&map[string]*Queue{})
	return s
}

// all returns the shards by number.
func (s *Set) all() []*Shard {
	s.state.Lock()
	defer s.state.Unlock()
	return slices.Clone(s.state.shards)
}

// Shard finds a shard by its number; nil: it is not here.
func (s *Set) Shard(number int) *Shard {
	for _, sh := range s.all() {
		if sh.number == number {
			return sh
		}
	}
	return nil
}

// Numbers are those of the shards that this node serves.
func (s *Set) Numbers() []int {
	var numbers []int
	for _, sh := range s.all() {
		if !sh.silent() {
			numbers = append(numbers, sh.number)
		}
	}
	return numbers
}

// served returns the queues of these shards by name. Its caller does not change them.
func (s *Set) served() []*Queue {
	silent := slices.DeleteFunc(s.all(), func(sh *Shard) bool { return !sh.silent() })
	if len(silent) == 0 {
		return s.queues.inOrder()
	}
	return slices.DeleteFunc(s.queues.all(), func(q *Queue) bool { return slices.Contains(silent, q.shard) })
}

// Queue finds a queue, or a dead letter queue, by its name; nil: there is none here.
func (s *Set) Queue(name string) *Queue { return s.queues.get(name) }

// Queues returns all queues, dead letter queues among them, by name.
func (s *Set) Queues() []*Queue { return s.queues.all() }

// QueuePage returns a page of those that this node serves: up to limit of them by name,
// those after the name next of the page before, which is empty at the end, but for the
// first offset ones. A fenced shard may have another owner, who lists its queues.
func (s *Set) QueuePage(after string, offset, limit int) (page []*Queue, total int, next string) {
	sorted := s.served()
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

// Usage is how full the Caps are now; those of a queue: what the queue has of it that
// has the most.
func (s *Set) Usage() Caps {
	u := Caps{ThrottleKeys: s.Control.Gates().Count(), Circuits: s.Circuits.Count()}
	for _, q := range s.queues.inOrder() {
		u.RateKeys = max(u.RateKeys, q.intake.rates.used())
		u.DedupeIDs = max(u.DedupeIDs, q.intake.seen.n.Load())
		schedules, byEnqueue := q.CountSchedules()
		u.Schedules, u.EnqueuedSchedules = max(u.Schedules, schedules), max(u.EnqueuedSchedules, byEnqueue)
		q.View(func(m *queue.Queue, side queue.Role, _ int64) {
			n, _ := m.Registered(side, "")
			u.Consumers = max(u.Consumers, int64(n))
			u.Fetches = max(u.Fetches, int64(m.Fetches(side)))
		})
	}
	return u
}

// Add takes a shard in that has been recovered. Its queues do at once what those of the
// others do. After an error it has to be removed.
func (s *Set) Add(sh *Shard) error {
	sh.admin.Lock() // a queue that is made meanwhile is attached once
	defer sh.admin.Unlock()
	if serving := s.include(sh); serving {
		return sh.attach()
	}
	return nil
}

// include has the queues of a shard be found, and work if those of others do. It reports
// whether they have to be attached, too.
func (s *Set) include(sh *Shard) (serving bool) {
	s.state.Lock()
	defer s.state.Unlock()
	s.state.shards = append(s.state.shards, sh)
	slices.SortFunc(s.state.shards, func(a, b *Shard) int { return a.number - b.number })
	s.queues.update(func(m map[string]*Queue) {
		for _, q := range sh.recovered {
			m[q.name], m[q.dlq.name] = q, q.dlq
		}
	})
	sh.recovered = nil
	if s.state.started {
		sh.start()
	}
	return s.state.serving
}

// Remove takes a shard out in order, so that another node goes on with it. Deliveries
// stop, and leases settle for so long; meanwhile messages are taken. Then nothing more
// comes in, and everything is written, leases included. It all ends with ctx; the error
// says that something may not have been written.
func (s *Set) Remove(ctx context.Context, number int, settle time.Duration) error {
	sh := s.Shard(number)
	if sh == nil {
		return nil
	}
	defer context.AfterFunc(ctx, sh.letGo)() // leave waits for a queue that is being made
	if !sh.leave() {
		return nil
	}
	queues := s.queues.of(sh)
	settling, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	s.settle(settling, queues)
	select {
	case <-s.Front.Detach(bothSides(queues)...):
	case <-ctx.Done():
	}
	s.exclude(sh)
	sh.finish(queues)
	err := sh.written(ctx, queues)
	forget(queues)
	return err
}

// Abandon takes a shard out that has another owner: it writes nothing and answers nobody
// any more. It does not wait for its store.
func (s *Set) Abandon(number int) {
	sh := s.Shard(number)
	if sh == nil {
		return
	}
	sh.abandon()
	if !sh.leave() {
		return
	}
	queues := s.queues.of(sh)
	s.Front.Detach(bothSides(queues)...)
	s.exclude(sh)
	sh.finish(queues)
	forget(queues)
}

// exclude has the queues of a shard not be found any more.
func (s *Set) exclude(sh *Shard) {
	s.state.Lock()
	defer s.state.Unlock()
	s.state.shards = slices.DeleteFunc(s.state.shards, func(other *Shard) bool { return other == sh })
	s.queues.update(func(m map[string]*Queue) {
		maps.DeleteFunc(m, func(_ string, q *Queue) bool { return q.shard == sh })
	})
}

// bothSides are queues with their dead letter queues.
func bothSides(queues []*Queue) []*Queue {
	var all []*Queue
	for _, q := range queues {
		all = append(all, q, q.dlq)
	}
	return all
}

// forget closes what queues have that end here, and are not deleted.
func forget(queues []*Queue) {
	for _, q := range queues {
		q.policy.Load().closeReplaced(nil)
		q.shard.Metrics.Drop(q.name)
		q.shard.Metrics.Drop(q.dlq.name)
	}
}

// Start lets the queues work. Nothing is delivered before [Set.Serve].
func (s *Set) Start() {
	if s.lookAtDisk(); s.Disk() != nil {
		go s.watchDisk()
	}
	go s.watchLocks()
	s.state.Lock()
	defer s.state.Unlock()
	s.state.started = true
	for _, sh := range s.state.shards {
		sh.start()
	}
}

// Deliveries go out from Serve on, unless fila is disconnected or stopping: before,
// nobody would hear the acks, and then they would be lost.

// Serve lets messages come in, and then deliveries go out.
func (s *Set) Serve() error {
	s.state.Lock()
	s.state.serving = true
	shards := slices.Clone(s.state.shards)
	s.state.Unlock()
	for _, sh := range shards {
		if err := sh.attach(); err != nil {
			return err
		}
	}
	return nil
}

// SetOffline keeps deliveries back while there is no connection.
func (s *Set) SetOffline(offline bool) { s.changeDispatch(func() { s.state.offline = offline }) }

// Offline reports what SetOffline was told.
func (s *Set) Offline() bool {
	s.state.Lock()
	defer s.state.Unlock()
	return s.state.offline
}

// Drain begins the end: no queue is made any more, and nothing is delivered. A queue
// that is just being made exists when it returns.
func (s *Set) Drain() {
	shards := s.all()
	for _, sh := range shards {
		sh.admin.Lock()
	}
	s.draining.Store(true)
	for _, sh := range shards {
		sh.admin.Unlock()
	}
	s.changeDispatch(func() {})
}

// Draining reports whether Drain was called.
func (s *Set) Draining() bool { return s.draining.Load() }

func (s *Set) changeDispatch(change func()) {
	s.state.Lock()
	defer s.state.Unlock()
	change()
	s.tellDispatch(s.queues.inOrder()...)
}

// tellDispatch tells queues whether deliveries may go out, if that is news. Its caller
// holds state.
func (s *Set) tellDispatch(queues ...*Queue) {
	all := !s.state.offline && !s.draining.Load()
	for _, q := range queues {
		if on := all && q.shard.delivers(); on != q.run.told { // a dead letter queue has the same runner
			q.run.told = on
			q.Tell(queue.Dispatch{On: on})
		}
	}
}

// Failed gets a shard when a commit of it has failed: the first one if nobody listens.
func (s *Set) Failed() <-chan *Shard { return s.failed }

// Err is that of the first shard that has failed; nil: none has.
func (s *Set) Err() error {
	for _, sh := range s.all() {
		if err := sh.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Settle waits until no message is with a consumer. Those that still are when ctx
// ends stay leased: their consumers can ack to the next process.
func (s *Set) Settle(ctx context.Context) { s.settle(ctx, s.queues.all()) }

// settleInterval is how often settle looks whether leases have settled.
const settleInterval = 10 * time.Millisecond

func (s *Set) settle(ctx context.Context, queues []*Queue) {
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	for {
		open := 0
		for _, q := range queues {
			if !q.IsDLQ() {
				// After what Drain has told it.
				q.run.view(func(m *queue.Queue) { open += m.Open() })
			}
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

// End lets the queues handle what has come and hands everything to the stores, leases
// included. It returns when all goroutines of the shards are done.
func (s *Set) End() {
	s.end()
	var ended sync.WaitGroup
	for _, sh := range s.all() {
		ended.Go(func() { sh.finish(s.queues.of(sh)) })
	}
	ended.Wait()
}

// NewClock returns the time as Unix nanoseconds. Within one process it never goes
// back: it is the wall clock at the start plus the monotonic time since then, so that
// an operator who sets the clock back cannot stretch leases or delays.
func NewClock() func() int64 {
	start := time.Now()
	base := start.UnixNano()
	return func() int64 { return base + int64(time.Since(start)) }
}
