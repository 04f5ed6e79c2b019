package shard

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/schedule"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Queue is the face of one side of a machine: of a queue, or of its dead letter
// queue. Its methods may be called from any goroutine, except Accept.
type Queue struct {
	shard  *Shard
	run    *runner // shared by both sides
	side   queue.Role
	id     store.QueueID
	name   string
	dlq    *Queue // nil in a dead letter queue
	source *Queue // nil in all others

	policy  atomic.Pointer[policy]
	metrics *telemetry.Queue
	detail  atomic.Pointer[knownDetail] // nil: not asked for yet
	depth   atomic.Int64                // messages accepted and not finished
	bytes   atomic.Int64                // their headers and payloads
	perKey  atomic.Pointer[keyCounts]   // unfinished messages by fairness key; nil: not limited

	// admin serialises what operators do to this queue and its dead letters: update,
	// delete and redrive.
	admin   sync.Mutex
	deleted atomic.Bool

	*schedule.Schedules // a dead letter queue has none, but may be asked
	intake              intake

	// Of a dead letter queue.
	groups   deadletter.Index
	redrives deadletter.Redrives
}

// Shard is the number of the shard that the queue is in.
func (q *Queue) Shard() int { return q.shard.number }

// Name is the name of the queue.
func (q *Queue) Name() string { return q.name }

// ID is the id of the queue in the store.
func (q *Queue) ID() store.QueueID { return q.id }

// Store is where the messages of the queue are.
func (q *Queue) Store() store.Store { return q.shard.store }

// IsDLQ tells a dead letter queue from others.
func (q *Queue) IsDLQ() bool { return q.source != nil }

// DLQ is the dead letter queue of this one; nil if it is one.
func (q *Queue) DLQ() *Queue { return q.dlq }

// Source is the queue that this dead letter queue belongs to; nil if it is none.
func (q *Queue) Source() *Queue { return q.source }

// Settings are those of the queue.
func (q *Queue) Settings() wire.QueueSettings { return q.policy.Load().settings }

// Depth counts the messages that have been accepted and are not finished.
func (q *Queue) Depth() int64 { return q.depth.Load() }

// Bytes is the sum of the headers and payloads of these messages.
func (q *Queue) Bytes() int64 { return q.bytes.Load() }

// Metrics are the counters of the queue.
func (q *Queue) Metrics() *telemetry.Queue { return q.metrics }

// knownDetail is what was counted of a queue at a time, and when its machine had made its last
// step then (Unix ns).
type knownDetail struct {
	stepped, at int64
	detail      wire.QueueDetail
}

// countedAfter is how long after a step all is counted that comes of it, such as how long
// messages waited that are delivered.
const countedAfter = 5 * int64(time.Second)

// Detail returns what has been counted, for lists of queues. stepped and now are from
// [Queue.View]. Nothing is counted without a step: of a queue that has made none for a while
// it is what it was. Nobody changes Waits.
func (q *Queue) Detail(stepped, now int64) wire.QueueDetail {
	if c := q.detail.Load(); c != nil && c.stepped == stepped && c.at > stepped+countedAfter {
		return c.detail
	}
	c := &knownDetail{stepped, now, q.metrics.Detail()}
	q.detail.Store(c)
	return c.detail
}

// Gone is the answer of a queue that has ended.
func (q *Queue) Gone() *wire.Error {
	switch {
	case q.deleted.Load():
		return wire.QueueNotFound(q.name)
	case q.shard.Placement != nil && !q.shard.set.Draining():
		return wire.NoOwner(q.name)
	}
	return wire.Draining()
}

// View lets fn look at the machine between two steps. fn changes nothing and keeps
// nothing of it. View reports false when the queue has ended.
func (q *Queue) View(fn func(m *queue.Queue, side queue.Role, now int64)) bool {
	return q.run.view(func(m *queue.Queue) { fn(m, q.side, q.shard.Now()) })
}

// RoomFor refuses the registration of a consumer more than there may be.
func (q *Queue) RoomFor(consumer string) *wire.Error {
	limit, full := q.shard.Caps.Consumers, false
	if limit <= 0 {
		return nil
	}
	q.View(func(m *queue.Queue, side queue.Role, _ int64) {
		n, known := m.Registered(side, consumer)
		full = !known && int64(n) >= limit
	})
	if full {
		return wire.LimitReached("consumers of queue "+q.name+" (limits.max_consumers)", limit, capRetryAfter)
	}
	return nil
}

// FetchLimits bound how many fetches of the queue wait.
func (q *Queue) FetchLimits() queue.FetchLimits {
	return queue.FetchLimits{Most: q.shard.Caps.Fetches, MostOfOwner: q.shard.Caps.ConsumerFetches}
}

// Tell has a change take effect some time, in the order of the calls. It never
// blocks, and reports false when the queue has ended.
func (q *Queue) Tell(c queue.Change) bool { return q.run.mail.post(q.changed(c)) }

func (q *Queue) changed(c queue.Change) queue.Input {
	return queue.Input{Kind: queue.Changed, Role: q.side, Change: c}
}

// Accept takes a message that a producer has sent, or says why it does not. reply
// subjects have been checked. It is called by one goroutine at a time, that of the
// subscription m.Sub.
func (q *Queue) Accept(m *nats.Msg) *wire.Error {
	if q.IsDLQ() {
		return wire.NotForDLQ("enqueue", q.name)
	}
	return q.intake.accept(q, m)
}

// Ack takes what came on a reply subject, by a subscription, for a delivery with that
// token. Refusals that the queue itself makes go to reply.
func (q *Queue) Ack(token wire.Token, ack wire.Ack, reply string, by *nats.Subscription) *wire.Error {
	if !q.run.post(queue.Input{Kind: queue.Acked, Role: q.side, Token: token, Ack: ack, Reply: reply}, by) {
		return q.Gone()
	}
	return nil
}

// Refuse counts what a client sent and fila does not take, and answers it. Who asked
// for no answer, or must not get one, is told by an event.
func (q *Queue) Refuse(reply string, e *wire.Error) {
	q.metrics.Refused(e.ErrCode)
	switch {
	case q.shard.silent():
		return
	case reply == "":
		q.shard.set.refusals.event(q.shard.set, q.name, e)
		return
	}
	q.shard.replyError(reply, e)
}

// Groups returns the largest groups of dead letters of q, a dead letter queue, up to limit.
func (q *Queue) Groups(limit int) (wire.DeadGroups, *wire.Error) {
	return q.groups.List(q, &q.redrives, limit, q.shard.Now(), q.shard.Log)
}

// Hooks describes the hooks of the queue, on_enqueue first, and then those that do
// not load.
func (q *Queue) Hooks() []wire.HookInfo { return q.policy.Load().describe() }

// ResetHooks closes the circuit of a hook, or of both if hook is empty. It reports
// whether there is such a hook.
func (q *Queue) ResetHooks(hook string) bool {
	found := false
	p := q.policy.Load()
	for _, kind := range hookKinds {
		if g := p.hooks[kind]; g != nil && (hook == "" || hook == string(kind)) {
			g.hook.Reset()
			found = true
		}
	}
	return found
}
