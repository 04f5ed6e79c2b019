package sidecar

import (
	"slices"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// register makes or renews the registration of a consumer and answers replyTo
// when it is on disk.
func (l *loop) register(req wire.ConsumeRequest, replyTo string, answer []byte) {
	now := l.q.core.clock.Now()
	c := l.consumers.named(req.Consumer)
	joined := c.gone
	c.restored, c.away = false, false
	l.unend(c)
	l.consumers.regs++
	c.gone = false
	c.reg = l.consumers.regs
	c.subject = l.q.core.subjects.Deliver(c.name, l.q.name)
	c.limit = req.MaxInFlight
	c.expiresAt = 0
	if ttl := req.TTL(); ttl > 0 {
		l.endAt(c, now+int64(ttl))
	}
	l.consumers.settle(c)
	if b := l.main; b != nil && len(b.DeleteConsumers) > 0 {
		// Within a batch the store puts before it deletes.
		l.flush()
	}
	b := l.batch()
	b.PutConsumers = append(b.PutConsumers, store.ConsumerRecord{
		Queue: l.q.id, Name: c.name, MaxInFlight: uint32(c.limit), ExpiresAt: c.expiresAt, Reg: c.reg,
	})
	l.then(replyTo, answer)
	if joined {
		l.q.core.event(wire.EventConsumerJoined, l.q.name, wire.Event{
			Queue: l.q.name, Data: map[string]any{"consumer": c.name, "max_in_flight": c.limit},
		})
	}
}

// leave ends a registration. Its leases run on.
func (l *loop) leave(name string, replyTo string, answer func(left bool) []byte) {
	c := l.consumers.byName[name]
	left := c != nil && !c.gone
	if left {
		l.end(c)
	}
	l.then(replyTo, answer(left))
}

// then publishes an answer when this turn's changes are on disk.
func (l *loop) then(replyTo string, answer []byte) {
	if replyTo == "" {
		return
	}
	b := l.batch()
	b.replies = append(b.replies, reply{kind: replyData, subject: replyTo, data: answer})
}

// endAt lets c expire at the given time.
func (l *loop) endAt(c *consumer, at int64) {
	c.expiresAt = at
	l.byReg[c.reg] = c
	l.expiring.push(at, c.reg)
}

// unend forgets the end of c's registration, or of its fetch, if it has one.
func (l *loop) unend(c *consumer) {
	if l.byReg[c.reg] == nil {
		return
	}
	delete(l.byReg, c.reg)
	l.expiring.dropped(func(it dueItem) bool { return l.byReg[it.seq] != nil })
}

// end takes c out of service: it gets nothing more.
func (l *loop) end(c *consumer) {
	c.gone = true
	l.unend(c)
	l.consumers.settle(c)
	if !c.fetch {
		b := l.batch()
		b.DeleteConsumers = append(b.DeleteConsumers, store.ConsumerRecord{Queue: l.q.id, Name: c.name})
	}
}

// drop ends a consumer that is not there any more.
func (l *loop) drop(c *consumer, why string) {
	if c.gone {
		return
	}
	if c.fetch {
		l.endFetch(c)
		return
	}
	l.end(c)
	l.q.core.log.Info("consumer lost", "queue", l.q.name, "consumer", c.name, "reason", why)
	l.q.core.event(wire.EventConsumerLost, l.q.name, wire.Event{
		Queue: l.q.name, Data: map[string]any{"consumer": c.name, "reason": why, "in_flight": c.inFlight},
	})
}

// A consumer from before a restart needs a moment to connect again, above all if
// the NATS server was restarted, too. Until restoreGrace after the start it is
// not given up when nobody receives its deliveries, but left alone for awayFor at
// a time.
const (
	restoreGrace = int64(60e9)
	awayFor      = int64(250e6)
)

// absence is a time during which a restored consumer is left alone.
type absence struct {
	c     *consumer
	reg   uint64
	until int64
}

// unreachable is told that nobody received a delivery to c.
func (l *loop) unreachable(c *consumer, now int64) {
	if !c.restored || now >= l.graceEnds {
		l.drop(c, "no responders")
		return
	}
	if c.away {
		return
	}
	c.away = true
	l.consumers.settle(c)
	l.absent = append(l.absent, absence{c, c.reg, now + awayFor})
}

// tryAgain gives the consumers whose absence is over another chance.
func (l *loop) tryAgain(now int64) {
	n := 0
	for ; n < len(l.absent) && l.absent[n].until <= now; n++ {
		if a := l.absent[n]; a.c.reg == a.reg && a.c.away {
			a.c.away = false
			l.consumers.settle(a.c)
		}
	}
	l.absent = slices.Delete(l.absent, 0, n)
}

// onConsumerEnd ends a registration that was not renewed, or a fetch whose time
// is over.
func (l *loop) onConsumerEnd(it dueItem, _ int64) {
	c := l.byReg[it.seq]
	if c == nil {
		if l.expiring.stale > 0 {
			l.expiring.stale--
		}
		return
	}
	delete(l.byReg, it.seq)
	if c.fetch {
		l.status(c, statusExpired)
		l.endFetch(c)
		return
	}
	l.drop(c, "registration not renewed")
}

// Status headers that end a fetch which was not filled.
const (
	statusNone    = "404"
	statusExpired = "408"
)

// fetch takes a request for up to req.Batch messages to inbox.
func (l *loop) fetch(req wire.FetchRequest, inbox string) {
	l.consumers.regs++
	c := &consumer{name: inbox, subject: inbox, reg: l.consumers.regs, limit: req.Batch, fetch: true}
	if req.ExpiresMs == 0 {
		l.noWait = append(l.noWait, c)
	} else {
		l.endAt(c, l.q.core.clock.Now()+int64(req.Expires()))
	}
	l.consumers.fetches[c] = struct{}{}
	l.consumers.settle(c)
}

// endNoWait ends the fetches that wanted only what there was, when nothing more
// can be delivered now.
func (l *loop) endNoWait(more bool) {
	if more {
		return
	}
	for i, c := range l.noWait {
		l.noWait[i] = nil
		if !c.gone {
			l.status(c, statusNone)
			l.endFetch(c)
		}
	}
	l.noWait = l.noWait[:0]
}

func (l *loop) endFetch(c *consumer) {
	delete(l.consumers.fetches, c)
	l.end(c)
}

// status ends a fetch with a status behind the deliveries sent so far.
func (l *loop) status(c *consumer, status string) {
	l.send(delivery{kind: sendStatus, subject: c.subject, status: status})
}
