package sidecar

import (
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// queue is the face of a queue that every goroutine may use. What decides about
// its messages is in loop, which only driver touches.
type queue struct {
	core *core
	id   store.QueueID
	name string
	// dlq takes the dead letters of this queue; nil in a dead letter queue,
	// whose source is the queue that it belongs to.
	dlq    *queue
	source *queue

	policy  atomic.Pointer[policy]
	metrics *queueMetrics

	seq   atomic.Uint64 // the last sequence given out
	depth atomic.Int64  // messages accepted and not finished
	bytes atomic.Int64  // their headers and payloads

	perKey atomic.Pointer[keyCounts] // messages by fairness key, if they are limited

	// open counts leases and undecided failures: what a shutdown waits for.
	open atomic.Int64

	driver     *driver // nil until start
	dispatcher dispatcher
	mail       *mailbox[event]
	out        *mailbox[delivery]
	failures   *mailbox[failureJob]

	stop     chan struct{} // closed: finish what is posted, then end
	stopOnce sync.Once
	stopped  sync.WaitGroup // loop, dispatcher, failer

	// admin serialises what operators do to this queue and its DLQ: update,
	// delete and the chunks of a redrive.
	admin   sync.Mutex
	deleted atomic.Bool

	sub    *nats.Subscription // enqueue subject
	intake intake
}

// policy is a queue's settings with what is made of them. It is replaced as a
// whole.
type policy struct {
	settings  wire.QueueSettings
	onEnqueue *guard
	onFailure *guard
	broken    []wire.HookInfo // hooks of the store that do not load
}

func newQueue(c *core, rec store.QueueRecord, p *policy) *queue {
	q := &queue{
		core:     c,
		id:       rec.ID,
		name:     rec.Name,
		metrics:  c.metrics.queue(rec.Name),
		mail:     newMailbox[event](),
		out:      newMailbox[delivery](),
		failures: newMailbox[failureJob](),
		stop:     make(chan struct{}),
	}
	q.dispatcher.q = q
	q.policy.Store(p)
	q.intake = newIntake(q)
	return q
}

// start runs the queue's goroutines on what recovery put into l.
func (q *queue) start(l *loop) {
	q.driver = newDriver(q, l)
	q.stopped.Go(func() {
		q.driver.run()
		// Only the loop has posted to these.
		q.out.close()
		q.failures.close()
	})
	q.stopped.Go(q.dispatch)
	q.stopped.Go(q.decideFailures)
}

// end lets the loop handle what has been posted and waits until the queue's
// goroutines are done.
func (q *queue) end() {
	q.stopOnce.Do(func() { close(q.stop) })
	q.stopped.Wait()
}

// stopping reports whether the queue has been told to end.
func (q *queue) stopping() bool {
	select {
	case <-q.stop:
		return true
	default:
		return false
	}
}

// call runs fn in the loop and waits for it. It reports false when the loop has
// ended.
func (q *queue) call(fn func(l *loop)) bool {
	done := make(chan struct{})
	if !q.mail.post(event{kind: evCall, call: func(l *loop) { fn(l); close(done) }}) {
		return false
	}
	<-done
	return true
}

// tell runs fn in the loop some time.
func (q *queue) tell(fn func(l *loop)) bool {
	return q.mail.post(event{kind: evCall, call: fn})
}

func (q *queue) nextSeq() uint64 { return q.seq.Add(1) }

// isDLQ tells a dead letter queue from others.
func (q *queue) isDLQ() bool { return q.source != nil }

// visibility is the visibility timeout in nanoseconds.
func (q *queue) visibility() int64 {
	return q.policy.Load().settings.VisibilityTimeoutMs * int64(1e6)
}
