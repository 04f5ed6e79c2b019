package shard

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/finder"
	"github.com/filaq/fila/sidecar/policy"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/schedule"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Queue is a queue or a dead letter queue: one role of a machine. Its methods may be called
// from any goroutine, except Accept.
type Queue struct {
	shard  *Shard
	run    *runner // shared with the other role
	side   queue.Role
	id     store.QueueID
	name   string
	dlq    *Queue // nil in a dead letter queue
	source *Queue // the queue of this dead letter queue; nil in others

	policy  atomic.Pointer[policy.Policy]
	metrics *telemetry.Queue
	detail  atomic.Pointer[knownDetail] // nil: not computed yet
	depth   atomic.Int64                // messages that are accepted and not finished
	bytes   atomic.Int64                // headers and payloads of these messages
	perKey  atomic.Pointer[keyCounts]   // unfinished messages by fairness key; nil: not limited

	// admin serialises updates, deletions and jobs of this queue and its dead letter queue.
	admin   sync.Mutex
	deleted atomic.Bool

	*schedule.Schedules // none in a dead letter queue
	intake              intake
	rates               deadletter.Rates // messages that become dead letters; none in a dead letter queue
	departures          departures

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

// Store returns the store with the messages of the queue.
func (q *Queue) Store() store.Store { return q.shard.store }

// IsDLQ reports whether q is a dead letter queue.
func (q *Queue) IsDLQ() bool { return q.source != nil }

// DLQ returns the dead letter queue of q, or nil if q is one.
func (q *Queue) DLQ() *Queue { return q.dlq }

// Source returns the queue that this dead letter queue belongs to, or nil if q is none.
func (q *Queue) Source() *Queue { return q.source }

// Settings returns the settings of the queue.
func (q *Queue) Settings() wire.QueueSettings { return q.policy.Load().Settings }

// Depth returns how many messages are accepted and not finished.
func (q *Queue) Depth() int64 { return q.depth.Load() }

// Bytes returns the size of the headers and payloads of these messages.
func (q *Queue) Bytes() int64 { return q.bytes.Load() }

// Metrics returns the metrics of the queue.
func (q *Queue) Metrics() *telemetry.Queue { return q.metrics }

// knownDetail is a detail that was computed at a time, after a step of the machine at
// another time (Unix ns).
type knownDetail struct {
	stepped, at int64
	detail      api.QueueDetail
}

// countedAfter is how long after a step all that follows from it is counted, such as the
// latency of its deliveries.
const countedAfter = 5 * int64(time.Second)

// Detail returns the counters of the queue for lists of queues. stepped and now are from
// [Queue.View]. Counters change only after steps, so the detail of an idle queue is computed
// once. Callers do not change Waits.
func (q *Queue) Detail(stepped, now int64) api.QueueDetail {
	if c := q.detail.Load(); c != nil && c.stepped == stepped && c.at > stepped+countedAfter {
		return c.detail
	}
	c := &knownDetail{stepped, now, q.metrics.Detail()}
	q.detail.Store(c)
	return c.detail
}

// Gone returns the error for requests to a queue that has ended.
func (q *Queue) Gone() *wire.Error {
	switch {
	case q.deleted.Load():
		return wire.QueueNotFound(q.name)
	case q.shard.Placement != nil && !q.shard.set.Draining():
		return wire.NoOwner(q.name)
	}
	return wire.Draining()
}

// View calls fn between two steps of the machine. fn changes nothing and keeps no reference.
// View reports false if the queue has ended.
func (q *Queue) View(fn func(m *queue.Queue, side queue.Role, now int64)) bool {
	return q.run.view(func(m *queue.Queue) { fn(m, q.side, q.shard.Now()) })
}

// Finder returns a Finder for a checked filter, see [finder.New].
func (q *Queue) Finder(f api.Filter, last uint64) (*finder.Finder, *wire.Error) {
	return finder.New(q, f, last, q.shard.Log)
}

// RoomFor refuses to register a consumer beyond the limit.
func (q *Queue) RoomFor(consumer string) *wire.Error {
	limit, full := q.shard.Caps.Consumers, false
	if limit <= 0 {
		return nil
	}
	q.View(func(m *queue.Queue, side queue.Role, _ int64) {
		n, known := m.Inspect(side).Registered(consumer)
		full = !known && int64(n) >= limit
	})
	if full {
		return wire.LimitReached("consumers of queue "+q.name+" (limits.max_consumers)", limit, capRetryAfter)
	}
	return nil
}

// FetchLimits returns how many fetches of the queue may wait.
func (q *Queue) FetchLimits() queue.FetchLimits {
	return queue.FetchLimits{Most: q.shard.Caps.Fetches, MostOfOwner: q.shard.Caps.ConsumerFetches}
}

// Tell posts a change to the machine. Changes take effect in the order of the calls. Tell
// does not block and reports false if the queue has ended.
func (q *Queue) Tell(c queue.Change) bool { return q.run.mail.post(q.changed(c)) }

func (q *Queue) changed(c queue.Change) queue.Input {
	return queue.Input{Kind: queue.Changed, Role: q.side, Change: c}
}

// Accept accepts a message of a producer or refuses it. Its reply subject has been checked.
// Accept is called by one goroutine at a time, the goroutine of the subscription m.Sub.
func (q *Queue) Accept(m *nats.Msg) *wire.Error {
	if q.IsDLQ() {
		return wire.NotForDLQ("enqueue", q.name)
	}
	return q.intake.accept(q, m)
}

// Ack handles the ack of a delivery, which came by a subscription. The queue's own refusals
// go to reply.
func (q *Queue) Ack(token wire.Token, ack wire.Ack, reply string, by *nats.Subscription) *wire.Error {
	if !q.run.post(by, queue.Input{Kind: queue.Acked, Role: q.side, Token: token, Ack: ack, Confirm: queue.Confirmation{Subject: reply}}) {
		return q.Gone()
	}
	return nil
}

// Refuse counts and answers a request that fila refuses. Without a reply subject it
// publishes an event instead.
func (q *Queue) Refuse(reply string, e *wire.Error) { q.refuse(queue.Confirmation{Subject: reply}, e) }

func (q *Queue) refuse(c queue.Confirmation, e *wire.Error) {
	q.metrics.Refused(e.ErrCode)
	switch {
	case q.shard.silent():
	case c.Awaited():
		q.shard.refuse(c, e)
	default:
		q.shard.set.refusals.event(q.shard.set, q.name, e)
	}
}

// Departures returns the consumers that have left q since a time (Unix ns) and are not back, the last
// one first.
func (q *Queue) Departures(since int64) []api.Departure { return q.departures.since(since) }

// DeadRates adds to reply how many messages of q became dead letters in its minutes.
func (q *Queue) DeadRates(reply *api.DeadRates, now int64) { q.rates.AddTo(reply, now) }

// Groups returns the largest groups of dead letters of q, a dead letter queue, up to limit.
func (q *Queue) Groups(limit int) (api.DeadGroups, *wire.Error) {
	return q.groups.List(q, &q.redrives, limit, q.shard.Now(), q.shard.Log)
}

// CameBack is how many of the messages that were redriven from q, a dead letter queue, between two times
// (Unix ns) are dead letters again.
func (q *Queue) CameBack(since, until int64) (int64, *wire.Error) {
	return q.groups.CameBack(q, since, until, q.shard.Log)
}

// Hooks describes the hooks of the queue, on_enqueue first, then those that failed to load.
func (q *Queue) Hooks() []api.HookInfo { return q.policy.Load().Describe() }

// ResetHooks closes the breaker of a hook, or of both if hook is empty. It reports whether
// there is such a hook.
func (q *Queue) ResetHooks(hook string) bool { return q.policy.Load().Reset(hook) }
