package sidecar

import (
	"math"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// driver gives a queue's loop its turns. The loop has a goroutine of its own, for
// what time brings and for what comes while it is busy. But a message that finds it
// idle is handled by whoever brings it, on the spot, and what that delivers goes out
// on the spot, too: at light load, changes of goroutine cost more than the work.
type driver struct {
	q *queue

	mu    sync.Mutex // held during a turn
	loop  *loop
	timer *time.Timer
	armed int64 // when timer is due
	spare []event
}

// How many deliveries of a turn, and bytes of messages, are published by whoever
// made the turn. More are left to the dispatcher, so that the loop goes on meanwhile,
// and that no queue waits for the connection on behalf of another one.
const (
	publishAtOnce      = 16
	publishBytesAtOnce = 16 << 10 // half of what the NATS client buffers
)

func newDriver(q *queue, l *loop) *driver {
	return &driver{q: q, loop: l, timer: time.NewTimer(time.Hour), armed: math.MaxInt64}
}

// run is the loop's goroutine.
func (d *driver) run() {
	defer d.timer.Stop()
	for {
		select {
		case <-d.q.mail.wake:
		case <-d.timer.C:
		case <-d.q.stop:
			d.mu.Lock()
			d.loop.finish()
			d.mu.Unlock()
			return
		}
		d.mu.Lock()
		d.armed = math.MaxInt64
		d.turn(d.q.mail.take(d.spare))
		d.mu.Unlock()
	}
}

// try makes a turn for what has been posted, unless one is being made.
func (d *driver) try() bool {
	if !d.mu.TryLock() {
		return false
	}
	if events := d.q.mail.take(d.spare); len(events) > 0 {
		d.turn(events)
	} else {
		d.spare = events
	}
	d.mu.Unlock()
	return true
}

func (d *driver) turn(events []event) {
	d.loop.turn(events)
	d.spare = recycle(events)
	d.loop.handOut()
	now := d.q.core.clock.Now()
	if next := d.loop.next(now); next < d.armed {
		// A later time is left alone: the turn that comes too early is rarer
		// than a new time for every message.
		d.armed = next
		d.timer.Reset(time.Duration(max(next-now, 0)))
	}
}

// behind is from how many messages on a subscription leaves the turns to the loops:
// the acks of all queues come by one.
const behind = 256

// post tells the loop what came by a subscription, whose goroutine makes the turn
// if the loop is idle. It reports false once the loop has ended.
func (q *queue) post(e event, by *nats.Subscription) bool {
	first, ok := q.mail.add(e)
	if !ok {
		return false
	}
	if !first {
		return true // whoever was first has seen to it
	}
	if waiting, _, err := by.Pending(); err != nil || waiting >= behind || !q.driver.try() {
		q.mail.poke()
	}
	return true
}

// outgoing is what a turn delivers.
type outgoing struct {
	n     int
	bytes int64 // of messages
	reads bool  // one of them has to be read from the store
}

// handOut publishes what the turn delivers, or has the dispatcher do it.
func (l *loop) handOut() {
	o := l.outgoing
	l.outgoing = outgoing{}
	if o.n > 0 && (o.n > publishAtOnce || o.bytes > publishBytesAtOnce || o.reads || !l.q.publishNow(o.n)) {
		l.q.out.poke()
	}
}

// publishNow publishes n deliveries, all of which are in memory, unless the
// dispatcher has others in front of them.
func (q *queue) publishNow(n int) bool {
	if !q.dispatcher.mu.TryLock() {
		return false
	}
	defer q.dispatcher.mu.Unlock()
	work, ok := q.out.takeOnly(n, q.dispatcher.spare)
	if ok {
		q.dispatcher.send(work)
		q.dispatcher.spare = recycle(work)
	}
	return ok
}

// send has a delivery go out behind those before it.
func (l *loop) send(d delivery) {
	l.q.out.add(d)
	o := &l.outgoing
	o.n++
	switch {
	case d.kind != sendMessage:
	case d.fresh != nil:
		o.bytes += d.fresh.size
	default:
		o.reads = true
	}
}
