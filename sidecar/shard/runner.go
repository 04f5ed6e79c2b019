package shard

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
)

// runner steps a machine and has happen what comes of it. It has a goroutine of its
// own, for what time brings and for what comes while it is busy. But what finds it
// idle is handled by whoever brings it, on the spot, and what that delivers goes out
// on the spot, too: at light load, changes of goroutine cost more than the work.
type runner struct {
	shard      *Shard
	sides      [queue.Roles]*Queue
	mail       *mailbox[queue.Input]
	dispatcher dispatcher
	judge      judge
	told       bool // that deliveries may go out; under the state of the set

	mu      watchedMutex // held during a turn; guards what follows
	machine *queue.Queue
	effects queue.Effects
	spare   []queue.Input
	timer   *time.Timer
	armed   int64        // when timer is due
	rules   *rules.Rules // that settings were made for
	renew   bool         // the settings have changed
	ended   bool

	stopping context.Context // ended by stop: finish what is posted, then end
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
	r.dispatcher.r, r.judge.r = r, r
	r.judge.reports = telemetry.NewFailures(s.Now, s.Event)
	return r
}

// start runs the goroutine. The first turn is made at once.
func (r *runner) start() {
	r.mail.poke()
	r.stopped.Go(r.run)
}

// end lets the machine handle what has been posted and waits until all goroutines are
// done.
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
			return
		}
		r.mu.Lock()
		r.armed = math.MaxInt64
		r.turn(r.mail.take(r.spare))
		r.mu.Unlock()
	}
}

// finish makes the last turns and refuses what comes too late.
func (r *runner) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for in := r.mail.take(r.spare); len(in) > 0; in = r.mail.take(r.spare) {
		r.turn(in)
	}
	now := r.shard.Now()
	gone := r.sides[queue.Main].deleted.Load() || r.shard.leaving.Load() // others use the gates
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
	q := r.sides[in.Role]
	reply := in.Reply
	switch in.Kind {
	case queue.Enqueue:
		q.uncount(in.Message)
		reply = in.Message.Reply
	case queue.Judged:
		reply = in.Verdict.Reply
	case queue.Changed:
		switch c := in.Change.(type) {
		case queue.Register:
			reply = c.Reply
		case queue.Leave:
			reply = c.Reply
		case queue.Fetch:
			reply = c.Inbox
		}
	}
	r.shard.replyError(reply, q.Gone())
}

// view calls fn between two turns.
func (r *runner) view(fn func(m *queue.Queue)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		fn(r.machine)
	}
	return !r.ended
}

// said is what a turn answers to whoever makes it: to a Pick, and to a Purge, Remove,
// RunNow or Reserve.
type said struct {
	picked  *queue.Claimed
	handled *queue.Handled
}

// do makes a turn for all that was posted, and for in.
func (r *runner) do(in ...queue.Input) (answer said, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return said{}, false
	}
	return r.turn(append(r.mail.take(r.spare), in...)), true
}

// renewSettings has the machine work by the policy of its queue, and returns when it
// does.
func (r *runner) renewSettings() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.renew = true
		r.turn(r.mail.take(r.spare))
	}
}

// settings are those of the machine.
func (r *runner) settings() queue.Settings {
	q := r.sides[queue.Main]
	p := q.policy.Load()
	s := queue.Settings{
		QueueSettings: p.settings,
		Judge:         p.hooks[hooks.OnFailure] != nil || p.settings.RetryPolicy != "" || p.settings.RetryInitialMs > 0 || r.rules.HasErrorRules(),
	}
	if p.settings.MaxPendingPerKey > 0 {
		counts := q.perKey.Load()
		if counts == nil {
			counts = newKeyCounts()
		}
		s.PerKey = counts
	}
	return s
}

// publishKeyCounts lets the intake count by fairness key what the machine counts so.
func (r *runner) publishKeyCounts(s *queue.Settings) {
	counts, _ := s.PerKey.(*keyCounts)
	r.sides[queue.Main].perKey.Store(counts)
}

// try makes a turn for what has been posted, unless one is being made.
func (r *runner) try() bool {
	if !r.mu.TryLock() {
		return false
	}
	if in := r.mail.take(r.spare); len(in) > 0 {
		r.turn(in)
	} else {
		r.spare = in
	}
	r.mu.Unlock()
	return true
}

// turn steps the machine and has its effects happen. mu is held.
func (r *runner) turn(in []queue.Input) said {
	if now := r.shard.Control.Rules(); now != r.rules || r.renew {
		r.rules, r.renew = now, false
		s := r.settings()
		in = slices.Insert(in, 0, queue.Input{Kind: queue.Changed, Change: s})
		defer r.publishKeyCounts(&s)
	}
	now := r.shard.Now()
	next := r.machine.Step(now, in, &r.effects)
	r.spare = recycle(in)
	answer := said{r.effects.Claimed, r.effects.Handled}
	r.carryOut()
	if next < r.armed {
		// A later time is left alone: the turn that comes too early is rarer
		// than a new time for every message.
		r.armed = next
		r.timer.Reset(time.Duration(max(next-r.shard.Now(), 0)))
	}
	return answer
}

// carryOut has the effects of a step happen. Figures come first, so that
// whoever gets an answer finds them right.
func (r *runner) carryOut() {
	s, fx := r.shard, &r.effects
	if fx.Written != 0 {
		s.set.uncommitted.Add(-fx.Written)
	}
	// A message that is dead-lettered counts twice for a moment rather than not at all:
	// whoever deletes a queue without force looks at both depths.
	r.sides[queue.Dead].count(&fx.Counters[queue.Dead])
	r.sides[queue.Main].count(&fx.Counters[queue.Main])
	for i := range fx.Ended {
		e := &fx.Ended[i]
		r.sides[e.Role].metrics.Attempt(e.Outcome, e.Took, s.set.traces.parent(e.ID))
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
		w.Owner.(queue.Owner).GateOpened(w.Gate())
	}
	for _, c := range fx.Circuits {
		c.Announce()
	}
	for i := range fx.Refuse {
		refusal := &fx.Refuse[i]
		r.sides[refusal.Role].Refuse(refusal.Reply, refusal.Err)
	}
	for i := range fx.Notes {
		r.note(&fx.Notes[i])
	}
	fx.Reset()
}

// count adds up what a step has done.
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

// GateOpened has the machine look at a gate.
func (r *runner) GateOpened(g *throttle.Gate) {
	r.mail.post(queue.Input{Kind: queue.GateOpened, Gate: g})
}

// CircuitOpened has the machine look at a circuit.
func (r *runner) CircuitOpened(c queue.Circuit) {
	r.mail.post(queue.Input{Kind: queue.CircuitOpened, Circuit: c})
}

// behind is from how many messages on a subscription leaves the turns to the runners:
// the acks of all queues come by one.
const behind = 256

// post tells the machine what came by a subscription, whose goroutine makes the turn
// if the runner is idle. It reports false once the runner has ended.
func (r *runner) post(in queue.Input, by *nats.Subscription) bool {
	first, ok := r.mail.add(in)
	if !ok {
		return false
	}
	if !first {
		return true // whoever was first has seen to it
	}
	if waiting, _, err := by.Pending(); err != nil || waiting >= behind || !r.try() {
		r.mail.poke()
	}
	return true
}
