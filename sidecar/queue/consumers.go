package queue

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// consumer is somebody who may be given messages: a registration, which stays
// and whose credit comes back with every finished delivery, or one fetch, whose
// credit is spent once.
type consumer struct {
	name      string // of the registration; the inbox of a fetch
	subject   string // where deliveries go
	reg       uint64 // grows with every registration, so that a late 503 finds only its own
	limit     int    // max_in_flight, or what is left of a fetch's batch
	inFlight  int    // unfinished deliveries
	expiresAt int64  // 0: never
	gone      bool   // left, lost or expired: gets nothing more
	fetch     bool
	owner     string // of a fetch: the consumer that asked, if it is known
	restored  bool   // registered before the start of this process, and not since
	away      bool   // restored, and not yet found again: gets nothing for a moment

	prev, next *consumer // ring of consumers with credit; nil: not in it
}

// credit is how many more messages c may be sent now.
func (c *consumer) credit() int {
	switch {
	case c.gone, c.away:
		return 0
	case c.fetch:
		return c.limit
	default:
		return c.limit - c.inFlight
	}
}

// consumers holds the consumers of a side and hands out deliveries to those with
// credit in turn.
type consumers struct {
	byName    map[string]*consumer
	fetches   map[*consumer]struct{}
	owners    map[string]int       // the fetches of each owner
	wanted    int                  // how many messages the fetches still take
	ring      *consumer            // the next to be served
	regs      uint64               // the last registration
	expiring  container.Timers     // those with an end, by reg
	byReg     map[uint64]*consumer // those in expiring
	noWait    []*consumer          // fetches to be ended in this step
	absent    []absence            // restored consumers that nobody has heard of
	graceEnds int64                // when a restored consumer is one like any other
}

func newConsumers(graceEnds int64) consumers {
	return consumers{
		byName: make(map[string]*consumer), fetches: make(map[*consumer]struct{}), owners: make(map[string]int),
		byReg: make(map[uint64]*consumer), graceEnds: graceEnds,
	}
}

func (s *consumers) endCounts(it container.Timer) bool { return s.byReg[it.ID] != nil }

// waiting returns the fetches in the order in which they came.
func (s *consumers) waiting() []*consumer {
	return slices.SortedFunc(maps.Keys(s.fetches), func(a, b *consumer) int { return cmp.Compare(a.reg, b.reg) })
}

// named returns the consumer of that name, made if need be: a lease keeps it
// alive after it left, so that it finds its deliveries counted when it returns.
func (s *consumers) named(name string) *consumer {
	c := s.byName[name]
	if c == nil {
		c = &consumer{name: name, gone: true}
		s.byName[name] = c
	}
	return c
}

// next returns the consumer whose turn it is, or nil when nobody has credit.
func (s *consumers) next() *consumer {
	c := s.ring
	if c != nil {
		s.ring = c.next
	}
	return c
}

// update puts c into the ring or takes it out, as its credit says, and forgets
// one that is gone and has nothing in flight.
func (s *consumers) update(c *consumer) {
	switch in := c.next != nil; {
	case c.credit() > 0 && !in:
		s.insert(c)
	case c.credit() <= 0 && in:
		s.remove(c)
	}
	if c.gone && c.inFlight == 0 && !c.fetch && s.byName[c.name] == c {
		delete(s.byName, c.name)
	}
}

// insert puts c at the end of the ring: just before whose turn it is.
func (s *consumers) insert(c *consumer) {
	if s.ring == nil {
		c.prev, c.next = c, c
		s.ring = c
		return
	}
	at := s.ring
	c.prev, c.next = at.prev, at
	at.prev.next = c
	at.prev = c
}

func (s *consumers) remove(c *consumer) {
	if c.next == c {
		s.ring = nil
	} else {
		c.prev.next, c.next.prev = c.next, c.prev
		if s.ring == c {
			s.ring = c.next
		}
	}
	c.prev, c.next = nil, nil
}

// registered counts the registrations in force.
func (s *consumers) registered() int {
	n := 0
	for _, c := range s.byName {
		if !c.gone {
			n++
		}
	}
	return n
}

// Registered says how many consumers a side knows by name, those included that have
// gone and still have deliveries, and whether name is one of them.
func (m *Queue) Registered(s Role, name string) (n int, known bool) {
	c := &m.sides[s].consumers
	_, known = c.byName[name]
	return len(c.byName), known
}

func (r Register) apply(q *side) {
	c := q.consumers.named(r.Consumer)
	joined := c.gone
	c.restored, c.away = false, false
	q.unend(c)
	q.consumers.regs++
	c.gone = false
	c.reg = q.consumers.regs
	c.subject = r.Subject
	c.limit = r.MaxInFlight
	c.expiresAt = 0
	if r.TTL > 0 {
		q.endAt(c, q.m.now+r.TTL)
	}
	q.consumers.update(c)
	j := &q.m.journal
	if j.open != nil && len(j.open.DeleteConsumers) > 0 {
		q.m.flush() // within a batch the store puts before it deletes
	}
	b := j.change(q.m.now)
	b.PutConsumers = append(b.PutConsumers, store.ConsumerRecord{
		Queue: q.id, Name: c.name, MaxInFlight: uint32(c.limit), ExpiresAt: c.expiresAt, Reg: c.reg,
	})
	q.answerWith(r.Reply, r.Answer)
	if joined {
		q.note(Note{Kind: NoteJoined, Consumer: c.name, MaxInFlight: c.limit})
	}
}

func (l Leave) apply(q *side) {
	answer := l.NotThere
	if c := q.consumers.byName[l.Consumer]; c != nil && !c.gone {
		q.end(c)
		answer = l.Left
	}
	q.answerWith(l.Reply, answer)
}

// answerWith is answer with data.
func (q *side) answerWith(replyTo string, data []byte) {
	if replyTo != "" {
		q.m.journal.reply(q.m.now, Reply{Kind: ReplyData, Subject: replyTo, Data: data})
	}
}

// endAt lets c expire at the given time.
func (q *side) endAt(c *consumer, at int64) {
	c.expiresAt = at
	q.consumers.byReg[c.reg] = c
	q.consumers.expiring.Add(at, c.reg)
}

// unend forgets the end of c's registration, or of its fetch, if it has one.
func (q *side) unend(c *consumer) {
	if q.consumers.byReg[c.reg] == nil {
		return
	}
	delete(q.consumers.byReg, c.reg)
	q.consumers.expiring.Dropped()
}

// end takes c out of service: it gets nothing more.
func (q *side) end(c *consumer) {
	c.gone = true
	q.unend(c)
	q.consumers.update(c)
	if !c.fetch {
		b := q.m.journal.change(q.m.now)
		b.DeleteConsumers = append(b.DeleteConsumers, store.ConsumerRecord{Queue: q.id, Name: c.name})
	}
}

// lose ends a consumer that is not there any more.
func (q *side) lose(c *consumer, why string) {
	if c.gone {
		return
	}
	if c.fetch {
		q.endFetch(c)
		return
	}
	q.end(c)
	q.note(Note{Kind: NoteLost, Consumer: c.name, Reason: why, InFlight: c.inFlight})
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
func (q *side) unreachable(c *consumer, now int64) {
	if !c.restored || now >= q.consumers.graceEnds {
		q.lose(c, "no responders")
		return
	}
	if c.away {
		return
	}
	c.away = true
	q.consumers.update(c)
	q.consumers.absent = append(q.consumers.absent, absence{c, c.reg, now + awayFor})
}

// tryAgain gives the consumers whose absence is over another chance.
func (q *side) tryAgain(now int64) {
	q.consumers.absent = slices.DeleteFunc(q.consumers.absent, func(a absence) bool {
		if a.until > now {
			return false
		}
		if a.c.reg == a.reg && a.c.away {
			a.c.away = false
			q.consumers.update(a.c)
		}
		return true
	})
}

// onConsumerEnd ends a registration that was not renewed, or a fetch whose time
// is over.
func (q *side) onConsumerEnd(reg uint64, _ int64) {
	c := q.consumers.byReg[reg]
	delete(q.consumers.byReg, reg)
	if c.fetch {
		q.status(c, statusExpired)
		q.endFetch(c)
		return
	}
	q.lose(c, "registration not renewed")
}

// Status headers that end a fetch which was not filled.
const (
	statusNone    = "404"
	statusExpired = "408"
)

// fetchRetryAfter is when to try again a fetch that was one too many.
const fetchRetryAfter = 10 * time.Second

func (f Fetch) apply(q *side) {
	if err := q.tooMany(&f); err != nil {
		q.m.out.Refuse = append(q.m.out.Refuse, Refusal{Role: q.which, Reply: f.Inbox, Err: err})
		return
	}
	q.consumers.regs++
	c := &consumer{name: f.Inbox, subject: f.Inbox, reg: q.consumers.regs, limit: f.Batch, fetch: true, owner: f.Owner}
	if f.Expires == 0 {
		q.consumers.noWait = append(q.consumers.noWait, c)
	} else {
		q.endAt(c, q.m.now+f.Expires)
	}
	q.consumers.fetches[c] = struct{}{}
	q.consumers.wanted += c.limit
	if c.owner != "" {
		q.consumers.owners[c.owner]++
	}
	q.consumers.update(c)
}

// tooMany refuses a fetch beyond its limits, or returns nil.
func (q *side) tooMany(f *Fetch) *wire.Error {
	over := func(n int, limit int64) bool { return limit > 0 && int64(n) >= limit }
	switch l := f.Limits; {
	case f.Owner != "" && over(q.consumers.owners[f.Owner], l.MostOfOwner):
		return wire.LimitReached("waiting fetches of consumer "+f.Owner+" at queue "+q.name+" (limits.max_consumer_fetches)", l.MostOfOwner, fetchRetryAfter)
	case over(len(q.consumers.fetches), l.Most):
		return wire.LimitReached("waiting fetches of queue "+q.name+" (limits.max_fetches)", l.Most, fetchRetryAfter)
	}
	return nil
}

// Fetches is how many fetches wait at a side.
func (m *Queue) Fetches(s Role) int { return len(m.sides[s].consumers.fetches) }

// endNoWait ends the fetches that wanted only what there was, when nothing more
// can be delivered now.
func (q *side) endNoWait(more bool) {
	if more {
		return
	}
	for i, c := range q.consumers.noWait {
		q.consumers.noWait[i] = nil
		if !c.gone {
			q.status(c, statusNone)
			q.endFetch(c)
		}
	}
	q.consumers.noWait = q.consumers.noWait[:0]
}

func (q *side) endFetch(c *consumer) {
	delete(q.consumers.fetches, c)
	q.consumers.wanted -= c.limit
	if n := q.consumers.owners[c.owner]; n > 1 {
		q.consumers.owners[c.owner] = n - 1
	} else {
		delete(q.consumers.owners, c.owner)
	}
	q.end(c)
}

// status ends a fetch with a status behind the deliveries sent so far.
func (q *side) status(c *consumer, status string) {
	q.m.out.Publish = append(q.m.out.Publish, Delivery{Kind: DeliverStatus, Role: q.which, Subject: c.subject, Status: status})
}
