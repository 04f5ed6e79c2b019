package backlog

import (
	"cmp"
	"maps"
	"slices"

	"github.com/filaq/fila/sidecar/queue/container"
	"github.com/filaq/fila/store"
)

// Consumer receives messages. It is a registration, which stays and whose credit
// comes back with every finished delivery, or a fetch, whose credit is spent once.
type Consumer struct {
	Name      string // of the registration; the inbox of a fetch
	Subject   string // where deliveries go
	Reg       uint64 // grows with every registration, so that a late 503 finds only its own
	Limit     int    // max_in_flight, or what is left of a fetch's batch
	InFlight  int    // unfinished deliveries
	ExpiresAt int64  // 0: never
	Form      store.DeliveryForm
	Gone      bool // left, lost or expired: receives nothing more
	Fetch     bool
	Owner     string // of a fetch: the consumer that asked, if it is known
	Restored  bool   // registered before the start of this process, and not since
	Away      bool   // restored, and not yet found again: receives nothing for a moment

	prev, next *Consumer // ring of consumers with credit; nil: not in it
}

// Credit is how many more messages c may be sent now.
func (c *Consumer) Credit() int {
	switch {
	case c.Gone, c.Away:
		return 0
	case c.Fetch:
		return max(c.Limit, 0)
	default:
		return max(c.Limit-c.InFlight, 0)
	}
}

// Consumers holds the consumers and serves those with credit in turn.
type Consumers struct {
	ByName    map[string]*Consumer
	Fetches   map[*Consumer]struct{}
	Owners    map[string]int // the fetches of each owner
	Wanted    int            // how many messages the fetches still take
	ring      *Consumer      // the next to be served
	Regs      uint64         // the last registration
	Expiring  container.Timers
	byReg     map[uint64]*Consumer // those in Expiring
	Absent    []Absence
	GraceEnds int64 // until then a restored consumer is not given up
}

// Absence is a time during which a restored consumer that did not respond is sent
// nothing.
type Absence struct {
	Consumer *Consumer
	Reg      uint64
	Until    int64
}

func newConsumers(graceEnds int64) Consumers {
	return Consumers{
		ByName: make(map[string]*Consumer), Fetches: make(map[*Consumer]struct{}), Owners: make(map[string]int),
		byReg: make(map[uint64]*Consumer), GraceEnds: graceEnds,
	}
}

// Waiting returns the fetches in the order in which they came.
func (s *Consumers) Waiting() []*Consumer {
	return slices.SortedFunc(maps.Keys(s.Fetches), func(a, b *Consumer) int { return cmp.Compare(a.Reg, b.Reg) })
}

// Named returns the consumer of that name, which it makes if need be. A lease keeps a
// consumer alive after it left, so that it finds its deliveries counted when it
// returns.
func (s *Consumers) Named(name string) *Consumer {
	c := s.ByName[name]
	if c == nil {
		c = &Consumer{Name: name, Gone: true}
		s.ByName[name] = c
	}
	return c
}

// HasCredit reports whether a consumer may be sent a message.
func (s *Consumers) HasCredit() bool { return s.ring != nil }

// Next returns the next consumer with credit, or nil.
func (s *Consumers) Next() *Consumer {
	c := s.ring
	if c != nil {
		s.ring = c.next
	}
	return c
}

// Update puts c into the ring or takes it out, as its credit says, and forgets it if it
// is gone and has nothing in flight.
func (s *Consumers) Update(c *Consumer) {
	switch in := c.next != nil; {
	case c.Credit() > 0 && !in:
		s.insert(c)
	case c.Credit() == 0 && in:
		s.remove(c)
	}
	if c.Gone && c.InFlight == 0 && !c.Fetch && s.ByName[c.Name] == c {
		delete(s.ByName, c.Name)
	}
}

// insert puts c at the end of the ring.
func (s *Consumers) insert(c *Consumer) {
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

func (s *Consumers) remove(c *Consumer) {
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

// EndAt makes c expire at a time.
func (s *Consumers) EndAt(c *Consumer, at int64) {
	c.ExpiresAt = at
	s.byReg[c.Reg] = c
	s.Expiring.Add(at, c.Reg)
}

// CancelEnd forgets when c expires.
func (s *Consumers) CancelEnd(c *Consumer) {
	if s.byReg[c.Reg] != nil {
		delete(s.byReg, c.Reg)
		s.Expiring.Dropped()
	}
}

// TakeExpired returns the consumer whose registration, or fetch, has expired.
func (s *Consumers) TakeExpired(reg uint64) *Consumer {
	c := s.byReg[reg]
	delete(s.byReg, reg)
	return c
}

// AddFetch adds a fetch.
func (s *Consumers) AddFetch(c *Consumer) {
	s.Fetches[c] = struct{}{}
	s.Wanted += c.Limit
	if c.Owner != "" {
		s.Owners[c.Owner]++
	}
	s.Update(c)
}

// RemoveFetch removes a fetch.
func (s *Consumers) RemoveFetch(c *Consumer) {
	delete(s.Fetches, c)
	s.Wanted -= c.Limit
	if n := s.Owners[c.Owner]; n > 1 {
		s.Owners[c.Owner] = n - 1
	} else {
		delete(s.Owners, c.Owner)
	}
}

// EndAbsences serves restored consumers again whose absence is over.
func (s *Consumers) EndAbsences(now int64) {
	s.Absent = slices.DeleteFunc(s.Absent, func(a Absence) bool {
		if a.Until > now {
			return false
		}
		if a.Consumer.Reg == a.Reg && a.Consumer.Away {
			a.Consumer.Away = false
			s.Update(a.Consumer)
		}
		return true
	})
}

// Registered counts the registrations in force.
func (s *Consumers) Registered() int {
	n := 0
	for _, c := range s.ByName {
		if !c.Gone {
			n++
		}
	}
	return n
}

// Credit is how many more messages the consumers take.
func (s *Consumers) Credit() int {
	n := s.Wanted
	for _, c := range s.ByName {
		n += c.Credit()
	}
	return n
}
