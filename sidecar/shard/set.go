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

	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Conn publishes to NATS. Its methods may be called from any goroutine.
type Conn interface {
	Publish(subject string, data []byte) error
	PublishMsg(m *nats.Msg) error
	MaxPayload() int64
}

// Front receives messages for queues: it calls [Queue.Accept].
type Front interface {
	// Attach subscribes to the subjects of q.
	Attach(q *Queue) error
	// Flush waits until all servers know the subscriptions of attached queues.
	Flush() error
	// Detach unsubscribes from the subjects of queues. It closes the channel that it
	// returns when all messages that had arrived are accepted or refused.
	Detach(queues ...*Queue) <-chan struct{}
}

// Control is the configuration that can change while fila runs. Its methods may be called
// from any goroutine and do not block.
type Control interface {
	// Gates returns the gates of all throttle keys.
	Gates() *throttle.Gates
	// Get returns a value of the runtime configuration, for hooks.
	Get(key string) (string, bool)
	// Routes returns the routes of the configuration by choice. The map is read-only.
	Routes() map[string][]store.Route
	// Rules returns the error rules in force, the same pointer while they do not change.
	Rules() *rules.Rules
	// Weights returns the weight overrides of a queue by fairness key, in thousandths.
	Weights(queue string) map[string]uint32
	// Pauses returns until when a queue and its fairness keys are paused: Unix ns,
	// [queue.Forever] without an end, 0 if the queue is not.
	Pauses(queue string) (until int64, keys map[string]int64)
	// HoldKey stores a pause that max_failures_per_key has begun.
	HoldKey(queue, key string, until int64)
	// ScheduleByEnqueue refuses to let an enqueue replace a schedule of an owner. changes describes the
	// change; empty: there is no such schedule yet, and an owner of an earlier one is forgotten.
	ScheduleByEnqueue(queue, schedule, changes string) *wire.Error
	// ForgetPauses deletes the pauses of queues that a client has deleted, and of their keys.
	ForgetPauses(client string, queues ...string)
}

// Circuits are the circuits of the process.
type Circuits interface {
	gates.Circuits
	// Full reports whether a message with this key would create a circuit beyond limit.
	Full(key string, limit int64) bool
	// Count returns how many circuits there are.
	Count() int64
}

// Caps limit the names that producers and consumers create. Concurrent requests may exceed
// them slightly. 0 means no limit.
type Caps struct {
	ThrottleKeys int64
	Circuits     int64
	RateKeys     int64 // per queue
	DedupeIDs    int64 // per queue
	Consumers    int64 // per queue
	Fetches      int64 // waiting, per queue
	Schedules    int64 // per queue

	ConsumerFetches   int64 // waiting, per queue and consumer
	EnqueuedSchedules int64 // made by enqueues, per queue
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
	// Tracer gets spans of jobs, and of messages whose producers trace them; nil: no spans.
	Tracer telemetry.Tracer
	// Event publishes an event under the name of a queue. It does not block.
	Event func(typ, tail string, e wire.Event)
	// MaxUncommittedBytes limits the bytes of messages that wait for a commit.
	MaxUncommittedBytes int64
	Headers             wire.HeaderLimits // of messages in batches
	Caps                Caps
	// Space returns the free space on the disk of the store. nil: it is not known and there
	// is no alarm. It may be called from any goroutine.
	Space func() (s store.Space, known bool)
	// MinFreeBytes is the free space below which messages are refused. 0: never;
	// AutoMinFree: by the size of the disk.
	MinFreeBytes int64
	Hooks        policy.Defaults
	Pacing       queue.Pacing
	Killed       <-chan struct{} // closed when fila stops without waiting
	// Placement maps queues to shards. nil: there is one shard, which assigns ids itself.
	Placement Placement
	// Send sends a request to the owner of a shard, which may be this node, where
	// [Set.Receive] carries it out. It returns the answer; a refusal is a *wire.Error. nil:
	// there is one shard.
	Send func(ctx context.Context, shard int, body []byte) (answer []byte, err error)
}

// Placement maps queues to shards. Its methods may be called from any goroutine.
type Placement interface {
	// Shards returns the number of shards of all nodes.
	Shards() int
	// Where returns the shard of a queue. ok is false if the queue does not exist: then it
	// is the shard that the queue would get. Where does not block.
	Where(queue string) (number int, ok bool)
	// Place assigns a shard and ids to a queue, which it keeps until Drop.
	Place(ctx context.Context, queue string) (ids [queue.Roles]store.QueueID, number int, err error)
	// Drop forgets a deleted queue. It keeps a queue of that name with other ids.
	Drop(ctx context.Context, queue string, ids [queue.Roles]store.QueueID) error
}

// capRetryAfter is the retry hint of requests that one of the Caps refuses.
const capRetryAfter = 10 * time.Second

// Set is the shards of a node and what they share. It finds queues by name in all of them.
// Outside of a cluster there is one shard. Its methods may be called from any goroutine.
type Set struct {
	Options

	queues   registry
	traces   *telemetry.Messages // nil: there is no tracer
	refusals refusals

	uncommitted atomic.Int64 // bytes of messages that wait for a commit
	draining    atomic.Bool
	disk        alarm
	stuck       atomic.Pointer[[]string] // of checkLocks

	state struct {
		sync.Mutex          // held until all machines know of the change
		shards     []*Shard // by number
		started    bool
		serving    bool
		offline    bool
	}

	failed chan *Shard
	ended  context.Context // canceled by end
	end    context.CancelFunc
}

// NewSet returns a set without shards.
func NewSet(o Options) *Set {
	s := &Set{Options: o, traces: telemetry.NewMessages(o.Tracer), failed: make(chan *Shard, 1)}
	if s.Space == nil {
		s.Space = noSpace
	}
	s.disk.check = make(chan struct{}, 1)
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

// Shard returns the shard with a number, or nil if it is not on this node.
func (s *Set) Shard(number int) *Shard {
	for _, sh := range s.all() {
		if sh.number == number {
			return sh
		}
	}
	return nil
}

// Numbers returns the numbers of the shards that this node serves.
func (s *Set) Numbers() []int {
	var numbers []int
	for _, sh := range s.all() {
		if !sh.silent() {
			numbers = append(numbers, sh.number)
		}
	}
	return numbers
}

// served returns the queues of the shards that this node serves, by name. Its caller does
// not change the slice.
func (s *Set) served() []*Queue {
	silent := slices.DeleteFunc(s.all(), func(sh *Shard) bool { return !sh.silent() })
	if len(silent) == 0 {
		return s.queues.inOrder()
	}
	return slices.DeleteFunc(s.queues.all(), func(q *Queue) bool { return slices.Contains(silent, q.shard) })
}

// Queue returns the queue or dead letter queue with a name, or nil if it is not on this node.
func (s *Set) Queue(name string) *Queue { return s.queues.get(name) }

// Queues returns all queues and dead letter queues by name.
func (s *Set) Queues() []*Queue { return s.queues.all() }

// QueuePage returns a page of the queues that this node serves: up to limit of them, by
// name, after the name after, without the first offset ones. next is the value of after for
// the next page, empty at the end. Queues of fenced shards are left to their owners.
func (s *Set) QueuePage(after string, offset, limit int) (page []*Queue, total int, next string) {
	sorted := s.served()
	from, found := slices.BinarySearchFunc(sorted, after, func(q *Queue, name string) int { return cmp.Compare(q.name, name) })
	if found {
		from++
	}
	page = api.Page(sorted[from:], offset, limit)
	if n := len(page); n > 0 && page[n-1] != sorted[len(sorted)-1] {
		next = page[n-1].name
	}
	return page, len(sorted), next
}

// Usage returns how much of the Caps is in use; for limits per queue, the most that one
// queue uses.
func (s *Set) Usage() Caps {
	u := Caps{ThrottleKeys: s.Control.Gates().Count(), Circuits: s.Circuits.Count()}
	for _, q := range s.queues.inOrder() {
		u.RateKeys = max(u.RateKeys, q.intake.rates.used())
		u.DedupeIDs = max(u.DedupeIDs, q.intake.seen.n.Load())
		schedules, byEnqueue := q.CountSchedules()
		u.Schedules, u.EnqueuedSchedules = max(u.Schedules, schedules), max(u.EnqueuedSchedules, byEnqueue)
		q.View(func(m *queue.Queue, side queue.Role, _ int64) {
			n, _ := m.Inspect(side).Registered("")
			u.Consumers = max(u.Consumers, int64(n))
			u.Fetches = max(u.Fetches, int64(m.Inspect(side).Fetches()))
		})
	}
	return u
}

// Add adds a recovered shard. Its queues start at once if the others have. After an error
// the shard has to be removed.
func (s *Set) Add(sh *Shard) error {
	sh.admin.Lock() // so that a queue that is being created is attached once
	defer sh.admin.Unlock()
	if serving := s.include(sh); serving {
		return sh.attach()
	}
	return nil
}

// include registers and starts the queues of a shard. It reports whether they have to be
// attached as well.
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

// Remove removes a shard in order, so that another node can serve it: it stops deliveries
// and waits up to settle for leases while messages are still accepted; then it unsubscribes
// and writes everything, leases included. ctx bounds all of it; an error means that
// something may not be written.
func (s *Set) Remove(ctx context.Context, number int, settle time.Duration) error {
	sh := s.Shard(number)
	if sh == nil {
		return nil
	}
	defer context.AfterFunc(ctx, sh.releaseWaiters)() // leave waits for a queue that is being created
	if !sh.leave() {
		return nil
	}
	queues := s.queues.of(sh)
	settling, cancel := context.WithTimeout(ctx, settle)
	defer cancel()
	s.settle(settling, queues)
	select {
	case <-s.Front.Detach(bothRoles(queues)...):
	case <-ctx.Done():
	}
	s.exclude(sh)
	sh.finish(queues)
	err := sh.written(ctx, queues)
	forget(queues)
	return err
}

// Abandon removes a shard that has another owner: it writes and answers nothing any more,
// and does not wait for the store.
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
	s.Front.Detach(bothRoles(queues)...)
	s.exclude(sh)
	sh.finish(queues)
	forget(queues)
}

// exclude unregisters the queues of a shard.
func (s *Set) exclude(sh *Shard) {
	s.state.Lock()
	defer s.state.Unlock()
	s.state.shards = slices.DeleteFunc(s.state.shards, func(other *Shard) bool { return other == sh })
	s.queues.update(func(m map[string]*Queue) {
		maps.DeleteFunc(m, func(_ string, q *Queue) bool { return q.shard == sh })
	})
}

// bothRoles returns queues with their dead letter queues.
func bothRoles(queues []*Queue) []*Queue {
	var all []*Queue
	for _, q := range queues {
		all = append(all, q, q.dlq)
	}
	return all
}

// forget releases hooks and metrics of queues that go on elsewhere.
func forget(queues []*Queue) {
	for _, q := range queues {
		q.policy.Load().CloseReplaced(nil)
		q.shard.Metrics.Drop(q.name)
		q.shard.Metrics.Drop(q.dlq.name)
	}
}

// CountHooks brings the metrics of all hooks up to date.
func (s *Set) CountHooks() {
	for _, q := range s.queues.main() {
		q.policy.Load().CountHooks()
	}
}

// Start starts the queues. Nothing is delivered before [Set.Serve], because acks could not
// arrive and would be lost; nor while fila is disconnected or stopping.
func (s *Set) Start() {
	if s.checkDisk(); s.Disk() != nil {
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

// Serve subscribes all queues and then starts deliveries.
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

// SetOffline stops deliveries while there is no connection.
func (s *Set) SetOffline(offline bool) { s.changeDispatch(func() { s.state.offline = offline }) }

// Offline returns the value of the last SetOffline.
func (s *Set) Offline() bool {
	s.state.Lock()
	defer s.state.Unlock()
	return s.state.offline
}

// Drain stops deliveries and the creation of queues. It waits for queues that are being
// created.
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

// Draining reports whether Drain has been called.
func (s *Set) Draining() bool { return s.draining.Load() }

func (s *Set) changeDispatch(change func()) {
	s.state.Lock()
	defer s.state.Unlock()
	change()
	s.updateDispatch(s.queues.inOrder()...)
}

// updateDispatch tells queues whether they may deliver, if that has changed. Its caller holds
// state.
func (s *Set) updateDispatch(queues ...*Queue) {
	all := !s.state.offline && !s.draining.Load()
	for _, q := range queues {
		if on := all && q.shard.delivers(); on != q.run.dispatching { // the dead letter queue has the same runner
			q.run.dispatching = on
			q.Tell(queue.Dispatch{On: on})
		}
	}
}

// Failed receives a shard whose commit has failed, the first one if nobody receives.
func (s *Set) Failed() <-chan *Shard { return s.failed }

// Err returns the error of the first shard that has failed, or nil.
func (s *Set) Err() error {
	for _, sh := range s.all() {
		if err := sh.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Settle waits until no message is leased. Messages that still are when ctx ends stay
// leased: their consumers can ack to the next process.
func (s *Set) Settle(ctx context.Context) { s.settle(ctx, s.queues.all()) }

// settleInterval is how often settle counts the leases.
const settleInterval = 10 * time.Millisecond

func (s *Set) settle(ctx context.Context, queues []*Queue) {
	tick := time.NewTicker(settleInterval)
	defer tick.Stop()
	for {
		open := 0
		for _, q := range queues {
			if !q.IsDLQ() {
				// view is ordered after the changes of Drain.
				q.run.view(func(m *queue.Queue) { open += m.Open() })
			}
		}
		if open == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Log.Info("leases that did not end in time are kept for the next start", "leases", open)
			return
		case <-s.Killed:
			return
		}
	}
}

// End lets the queues handle their mail, hands everything to the stores, leases included,
// and returns when all goroutines of the shards have ended.
func (s *Set) End() {
	s.end()
	var ended sync.WaitGroup
	for _, sh := range s.all() {
		ended.Go(func() { sh.finish(s.queues.of(sh)) })
	}
	ended.Wait()
}

// NewClock returns a clock in Unix ns that never goes back: it adds the monotonic time to
// the wall clock at the start, so that setting the clock back does not stretch leases and
// delays.
func NewClock() func() int64 {
	start := time.Now()
	base := start.UnixNano()
	return func() int64 { return base + int64(time.Since(start)) }
}
