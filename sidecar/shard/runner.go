package shard

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/job"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// runner steps a machine and carries out its effects. Its goroutine steps the machine when a
// timer fires and for mail that comes while the machine is busy. But a goroutine that posts to
// an idle runner makes the step itself and publishes its deliveries: at light load, switching
// goroutines costs more than the work.
type runner struct {
	shard       *Shard
	sides       [queue.Roles]*Queue
	mail        *mailbox[queue.Input]
	dispatcher  dispatcher
	judge       judge
	dispatching bool // the machine may deliver; under the state of the set

	mu      watchedMutex // held during a step; guards what follows
	machine *queue.Queue
	effects queue.Effects
	spare   []queue.Input
	timer   *time.Timer
	armed   int64        // when timer fires
	rules   *rules.Rules // the rules that the settings of the machine are made for
	renew   bool         // the settings have changed
	ended   bool

	stopping context.Context // canceled by stop: handle what is posted, then end
	stop     context.CancelFunc
	stopped  sync.WaitGroup // all goroutines
}

func newRunner(s *Shard) *runner {
	r := &runner{
		shard: s,
		mail:  newMailbox[queue.Input](),
		timer: time.NewTimer(time.Hour),
		armed: math.MaxInt64,
	}
	r.stopping, r.stop = context.WithCancel(context.Background())
	r.timer.Stop()
	r.dispatcher.r, r.dispatcher.plain, r.dispatcher.frames.d = r, nats.Header{}, &r.dispatcher
	r.judge.r = r
	r.judge.reports = telemetry.NewFailures(s.Now, s.Event)
	return r
}

// start starts the goroutine, which makes a first step at once.
func (r *runner) start() {
	r.mail.poke()
	r.stopped.Go(r.run)
}

// end lets the machine handle its mail and waits until all goroutines have ended.
func (r *runner) end() {
	r.stop()
	r.stopped.Wait()
}

func (r *runner) run() {
	defer r.timer.Stop()
	for {
		select {
		case <-r.mail.wake:
		case <-r.timer.C:
		case <-r.stopping.Done():
			r.finish()
			r.dispatcher.end()
			return
		}
		r.mu.Lock()
		r.armed = math.MaxInt64
		r.step(r.mail.take(r.spare))
		r.mu.Unlock()
	}
}

// finish makes the last steps and refuses what arrives later.
func (r *runner) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for in := r.mail.take(r.spare); len(in) > 0; in = r.mail.take(r.spare) {
		r.step(in)
	}
	now := r.shard.Now()
	gone := r.sides[queue.Main].deleted.Load() || r.shard.leaving.Load() // release its gates
	r.machine.Finish(now, gone, &r.effects)
	r.carryOut()
	r.ended = true
	r.mail.close()
	for _, in := range r.mail.take(nil) {
		r.refuse(&in)
	}
}

// refuse answers an input that came after the end.
func (r *runner) refuse(in *queue.Input) {
	q, confirm := r.sides[in.Role], in.Confirm
	switch in.Kind {
	case queue.Enqueue:
		q.uncount(in.Message)
		confirm = in.Message.Confirm
	case queue.Judged:
		confirm = in.Verdict.Confirm
	case queue.Changed:
		switch c := in.Change.(type) {
		case queue.Register:
			confirm = c.Confirm
		case queue.Leave:
			confirm = c.Confirm
		case queue.Fetch:
			confirm.Subject = c.Inbox
		case queue.EnqueueAll:
			for _, m := range c.Messages {
				q.uncount(m)
				r.shard.refuse(m.Confirm, q.Gone())
			}
		}
	}
	r.shard.refuse(confirm, q.Gone())
}

// view calls fn between two steps. It reports false if the machine has ended.
func (r *runner) view(fn func(m *queue.Queue)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		fn(r.machine)
	}
	return !r.ended
}

// do makes a step for all mail and then for in.
func (r *runner) do(in ...queue.Input) (answer job.Answer, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return job.Answer{}, false
	}
	return r.step(append(r.mail.take(r.spare), in...)), true
}

// renewSettings passes the policy of the queue to the machine and returns when it is in force.
func (r *runner) renewSettings() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.renew = true
		r.step(r.mail.take(r.spare))
	}
}

// settings returns the settings of the machine.
func (r *runner) settings() queue.Settings {
	q := r.sides[queue.Main]
	p := q.policy.Load()
	s := queue.Settings{
		QueueSettings: p.Settings,
		Judge:         p.Has(hooks.OnFailure) || p.Settings.RetryPolicy != "" || p.Settings.RetryInitialMs > 0 || r.rules.HasErrorRules(),
	}
	if p.Settings.MaxPendingPerKey > 0 {
		counts := q.perKey.Load()
		if counts == nil {
			counts = newKeyCounts()
		}
		s.PerKey = counts
	}
	return s
}

// publishKeyCounts lets the intake count in the same counts as the machine.
func (r *runner) publishKeyCounts(s *queue.Settings) {
	counts, _ := s.PerKey.(*keyCounts)
	r.sides[queue.Main].perKey.Store(counts)
}

// tryStep makes a step for the mail, unless a step is being made.
func (r *runner) tryStep() bool {
	if !r.mu.TryLock() {
		return false
	}
	if in := r.mail.take(r.spare); len(in) > 0 {
		r.step(in)
	} else {
		r.spare = in
	}
	r.mu.Unlock()
	return true
}

// step steps the machine and carries out its effects. Its caller holds mu.
func (r *runner) step(in []queue.Input) job.Answer {
	if now := r.shard.Control.Rules(); now != r.rules || r.renew {
		r.rules, r.renew = now, false
		s := r.settings()
		in = slices.Insert(in, 0, queue.Input{Kind: queue.Changed, Change: s})
		defer r.publishKeyCounts(&s)
	}
	now := r.shard.Now()
	next := r.machine.Step(now, in, &r.effects)
	r.spare = recycle(in)
	answer := job.Answer{Claimed: r.effects.Claimed, Handled: r.effects.Handled}
	r.carryOut()
	if next < r.armed {
		// A timer that is set too early is left alone: an occasional early step costs less than
		// setting the timer for every message.
		r.armed = next
		r.timer.Reset(time.Duration(max(next-r.shard.Now(), 0)))
	}
	return answer
}

// carryOut carries out the effects of a step. It updates counters first, so that they are
// right when a client gets its answer.
func (r *runner) carryOut() {
	s, fx := r.shard, &r.effects
	if fx.Written != 0 {
		s.set.uncommitted.Add(-fx.Written)
	}
	// A message on its way to the dead letter queue counts twice for a moment rather than not
	// at all: a deletion without force checks both depths.
	r.sides[queue.Dead].count(&fx.Counters[queue.Dead])
	r.sides[queue.Main].count(&fx.Counters[queue.Main])
	for i := range fx.Ended {
		e := &fx.Ended[i]
		r.sides[e.Role].metrics.Attempt(e.Outcome, e.Took, s.set.traces.Parent(e.ID))
	}
	for _, c := range fx.Commits {
		c.Queue = r.sides[queue.Main].id
		c.Done = func(err error) { r.committed(c, err) }
		if s.abandoned.Load() {
			r.committed(c, store.ErrClosed)
			continue
		}
		s.store.Submit(&c.Batch)
	}
	r.dispatcher.publish(fx.Publish)
	r.judge.post(fx.Judge)
	for _, w := range fx.Wake {
		w.Owner.(gates.Owner).GateOpened(w.Gate())
	}
	for _, c := range fx.Circuits {
		c.Announce()
	}
	for i := range fx.Refuse {
		refusal := &fx.Refuse[i]
		r.sides[refusal.Role].refuse(refusal.Confirm, refusal.Err)
	}
	for i := range fx.Notes {
		r.note(&fx.Notes[i])
	}
	fx.Reset()
}

// count adds the counters of a step.
func (q *Queue) count(t *queue.Counters) {
	if *t == (queue.Counters{}) {
		return
	}
	if t.Messages != 0 {
		q.depth.Add(t.Messages)
	}
	if t.Bytes != 0 {
		q.bytes.Add(t.Bytes)
	}
	q.metrics.Add(*t)
}

// GateOpened posts that a gate may have opened.
func (r *runner) GateOpened(g *throttle.Gate) {
	r.mail.post(queue.Input{Kind: queue.GateOpened, Gate: g})
}

// CircuitOpened posts that a circuit may admit messages.
func (r *runner) CircuitOpened(c gates.Circuit) {
	r.mail.post(queue.Input{Kind: queue.CircuitOpened, Circuit: c})
}

// behind is how many messages of a subscription may be pending before it leaves the steps to
// the runners. One subscription has the acks of all queues.
const behind = 256

// post posts inputs that came by a subscription. The calling goroutine makes the step if the
// runner is idle. It reports false once the runner has ended.
func (r *runner) post(by *nats.Subscription, in ...queue.Input) bool {
	first, ok := r.mail.add(in...)
	return r.posted(by, first, ok)
}

// postEach is [runner.post] of n inputs.
func (r *runner) postEach(by *nats.Subscription, n int, input func(i int) queue.Input) bool {
	first, ok := r.mail.extend(func(items []queue.Input) []queue.Input {
		items = slices.Grow(items, n)
		for i := range n {
			items = append(items, input(i))
		}
		return items
	})
	return r.posted(by, first, ok)
}

func (r *runner) posted(by *nats.Subscription, first, ok bool) bool {
	if !ok {
		return false
	}
	if !first {
		return true // the goroutine that posted first makes or wakes a step
	}
	if waiting, _, err := by.Pending(); err != nil || waiting >= behind || !r.tryStep() {
		r.mail.poke()
	}
	return true
}
