package queue

import (
	"time"

	"github.com/filaq/fila/sidecar/queue/backlog"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

func (r Register) apply(q *side) {
	c := q.Consumers.Named(r.Consumer)
	joined := c.Gone
	c.Restored, c.Away = false, false
	q.Consumers.CancelEnd(c)
	q.Consumers.Regs++
	c.Gone, c.Reg, c.Subject, c.Limit, c.ExpiresAt, c.Form = false, q.Consumers.Regs, r.Subject, r.MaxInFlight, 0, r.Form
	if r.TTL > 0 {
		q.Consumers.EndAt(c, q.m.now+r.TTL)
	}
	q.Consumers.Update(c)
	j := &q.m.journal
	if j.open != nil && len(j.open.DeleteConsumers) > 0 {
		q.m.flush() // within a batch the store puts before it deletes
	}
	b := j.change(q.m.now)
	b.PutConsumers = append(b.PutConsumers, store.ConsumerRecord{
		Queue: q.id, Name: c.Name, MaxInFlight: uint32(c.Limit), ExpiresAt: c.ExpiresAt, Reg: c.Reg, Form: c.Form,
	})
	q.answerWith(r.Confirm, r.Answer)
	if joined {
		q.note(Note{Kind: NoteJoined, Consumer: c.Name, MaxInFlight: c.Limit})
	}
}

func (l Leave) apply(q *side) {
	answer := l.NotThere
	if c := q.Consumers.ByName[l.Consumer]; c != nil && !c.Gone {
		q.endConsumer(c)
		q.note(Note{Kind: NoteLeft, Consumer: c.Name, InFlight: c.InFlight})
		answer = l.Left
	}
	q.answerWith(l.Confirm, answer)
}

// endConsumer takes c out of service: it receives nothing more.
func (q *side) endConsumer(c *backlog.Consumer) {
	c.Gone = true
	q.Consumers.CancelEnd(c)
	q.Consumers.Update(c)
	if !c.Fetch {
		b := q.m.journal.change(q.m.now)
		b.DeleteConsumers = append(b.DeleteConsumers, store.ConsumerRecord{Queue: q.id, Name: c.Name})
	}
}

// lose ends a consumer that is no longer there.
func (q *side) lose(c *backlog.Consumer, why string) {
	if c.Gone {
		return
	}
	if c.Fetch {
		q.endFetch(c)
		return
	}
	q.endConsumer(c)
	q.note(Note{Kind: NoteLost, Consumer: c.Name, Reason: why, InFlight: c.InFlight})
}

// A consumer from before a restart needs a moment to connect again, above all if the
// NATS server was restarted, too. Until restoreGrace after the start it is not lost when
// nobody receives its deliveries, but receives nothing for awayFor.
const (
	restoreGrace = int64(60e9)
	awayFor      = int64(250e6)
)

// unreachable handles that nobody received a delivery to c.
func (q *side) unreachable(c *backlog.Consumer, now int64) {
	if !c.Restored || now >= q.Consumers.GraceEnds {
		q.lose(c, "no responders")
		return
	}
	if c.Away {
		return
	}
	c.Away = true
	q.Consumers.Update(c)
	q.Consumers.Absent = append(q.Consumers.Absent, backlog.Absence{Consumer: c, Reg: c.Reg, Until: now + awayFor})
}

// onConsumerEnd ends a registration that was not renewed, or a fetch that has expired.
func (q *side) onConsumerEnd(reg uint64, _ int64) {
	c := q.Consumers.TakeExpired(reg)
	if c.Fetch {
		q.publishStatus(c, statusExpired)
		q.endFetch(c)
		return
	}
	q.lose(c, "registration not renewed")
}

// Status headers that end a fetch that was not filled.
const (
	statusNone    = "404"
	statusExpired = "408"
)

// fetchRetryAfter is when to retry a fetch that was refused.
const fetchRetryAfter = 10 * time.Second

func (f Fetch) apply(q *side) {
	if err := q.tooManyFetches(&f); err != nil {
		q.m.out.Refuse = append(q.m.out.Refuse, Refusal{Role: q.role, Confirm: Confirmation{Subject: f.Inbox}, Err: err})
		return
	}
	q.Consumers.Regs++
	c := &backlog.Consumer{Name: f.Inbox, Subject: f.Inbox, Reg: q.Consumers.Regs, Limit: f.Batch, Fetch: true, Owner: f.Owner, Form: f.Form}
	if f.Expires == 0 {
		q.noWait = append(q.noWait, c)
	} else {
		q.Consumers.EndAt(c, q.m.now+f.Expires)
	}
	q.Consumers.AddFetch(c)
}

// tooManyFetches refuses a fetch beyond its limits, or returns nil.
func (q *side) tooManyFetches(f *Fetch) *wire.Error {
	over := func(n int, limit int64) bool { return limit > 0 && int64(n) >= limit }
	switch l := f.Limits; {
	case f.Owner != "" && over(q.Consumers.Owners[f.Owner], l.MostOfOwner):
		return wire.LimitReached("waiting fetches of consumer "+f.Owner+" at queue "+q.name+" (limits.max_consumer_fetches)", l.MostOfOwner, fetchRetryAfter)
	case over(len(q.Consumers.Fetches), l.Most):
		return wire.LimitReached("waiting fetches of queue "+q.name+" (limits.max_fetches)", l.Most, fetchRetryAfter)
	}
	return nil
}

// endNoWait ends the fetches that do not wait, unless more can be delivered now.
func (q *side) endNoWait(more bool) {
	if more {
		return
	}
	for _, c := range q.noWait {
		if !c.Gone {
			q.publishStatus(c, statusNone)
			q.endFetch(c)
		}
	}
	clear(q.noWait)
	q.noWait = q.noWait[:0]
}

func (q *side) endFetch(c *backlog.Consumer) {
	q.Consumers.RemoveFetch(c)
	q.endConsumer(c)
}
