package sidecar

// consumer is somebody who may be given messages: a registration, which stays
// and whose credit comes back with every finished delivery, or one fetch, whose
// credit is spent once. The loop owns it.
type consumer struct {
	name      string // of the registration; the inbox of a fetch
	subject   string // where deliveries go
	reg       uint64 // grows with every registration, so that a late 503 finds only its own
	limit     int    // max_in_flight, or what is left of a fetch's batch
	inFlight  int    // unfinished deliveries
	expiresAt int64  // 0: never
	gone      bool   // left, lost or expired: gets nothing more
	fetch     bool
	restored  bool // registered before the start of this process, and not since
	away      bool // restored, and not yet found again: gets nothing for a moment

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

// consumerSet holds the consumers of a queue and hands out deliveries to those
// with credit in turn.
type consumerSet struct {
	byName  map[string]*consumer
	fetches map[*consumer]struct{}
	ring    *consumer // the next to be served
	regs    uint64
}

func newConsumerSet() consumerSet {
	return consumerSet{byName: make(map[string]*consumer), fetches: make(map[*consumer]struct{})}
}

// named returns the consumer of that name, made if need be: a lease keeps it
// alive after it left, so that it finds its deliveries counted when it returns.
func (s *consumerSet) named(name string) *consumer {
	c := s.byName[name]
	if c == nil {
		c = &consumer{name: name, gone: true}
		s.byName[name] = c
	}
	return c
}

// next returns the consumer whose turn it is, or nil when nobody has credit.
func (s *consumerSet) next() *consumer {
	c := s.ring
	if c != nil {
		s.ring = c.next
	}
	return c
}

// settle puts c into the ring or takes it out, as its credit says, and forgets
// one that is gone and has nothing in flight.
func (s *consumerSet) settle(c *consumer) {
	switch in := c.next != nil; {
	case c.credit() > 0 && !in:
		s.insert(c)
	case c.credit() <= 0 && in:
		s.take(c)
	}
	if c.gone && c.inFlight == 0 && !c.fetch && s.byName[c.name] == c {
		delete(s.byName, c.name)
	}
}

// insert puts c at the end of the ring: just before whose turn it is.
func (s *consumerSet) insert(c *consumer) {
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

func (s *consumerSet) take(c *consumer) {
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
func (s *consumerSet) registered() int {
	n := 0
	for _, c := range s.byName {
		if !c.gone {
			n++
		}
	}
	return n
}
