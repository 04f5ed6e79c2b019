package throttle

// Reservation lets one message collect its gates one by one, so that messages that
// need only some of them do not starve it. Others cannot use what it has
// collected, but it counts for the limits only when the message goes. A registry
// has one Reservation at a time. One goroutine at a time may use it.
type Reservation struct {
	gates     *Gates
	set       *Set
	cost      int64
	collected uint32 // a bit for each gate of the set
}

// Reserve starts a reservation for a message of this cost (thousandths). It
// reports false if there is one already or nothing to reserve. The caller calls
// Acquire until it returns a Grant, or else Cancel, before it closes the set.
func (g *Gates) Reserve(s *Set, cost int64) (*Reservation, bool) {
	if s == nil {
		return nil, false
	}
	r := &Reservation{gates: g, set: s, cost: clampCost(cost)}
	if !g.reserved.CompareAndSwap(nil, r) {
		return nil, false
	}
	return r, true
}

// Acquire collects the gates of the set that admit the message now. When it has
// all of them, it returns the Grant and the reservation is over. Otherwise the
// Block names what is missing. At a gate with waiters it collects only if owner
// has the turn. It appends the waiters to notify to wake (see Wait.Pass).
//
// While a gate of the set is paused, Acquire returns what it has collected and a
// Block of kind ByPause. The caller should Cancel then, so that another message
// may reserve.
func (r *Reservation) Acquire(now int64, owner any, wake []*Wait) (Grant, Block, []*Wait) {
	s := r.set
	s.lock()
	defer s.unlock()
	v, last := r.gates.clock.tick(now)
	if block := r.paused(last); block.Kind != Open {
		for i, g := range s.gates {
			wake = r.giveBack(i, g, v, last, wake)
		}
		return Grant{}, block, wake
	}
	if block := r.missing(v, last, owner, &wake); block.Kind != Open {
		block.requestMissing(s.gates, r.cost)
		return Grant{}, block, wake
	}
	for _, g := range s.gates {
		if g.takenLast() {
			g.take(v, r.cost, owner)
			wake = g.notifyIfEarlier(v, last, wake)
			continue
		}
		if b := g.mu.bucket; b != nil {
			// The message goes now, so the room counts from now on, as in a take:
			// the bucket may have refilled since the cost was reserved.
			b.lows.note(b.at, b.room(g.mu.reserved))
		}
		g.mu.reserved = 0
		g.mu.admitted++
		if g.mu.window != nil {
			g.mu.window.add(v)
		}
		wake = g.notifyIfEarlier(v, last, wake)
	}
	r.over()
	return Grant{at: v, cost: uint32(r.cost), state: granted}, Block{}, wake
}

// paused returns the Block of the pause that ends last. The gates are locked.
func (r *Reservation) paused(last int64) (block Block) {
	for _, g := range r.set.gates {
		if g.pause(last) != 0 && (block.Kind == Open || g.mu.paused > block.At) {
			block = Block{Gate: g, Kind: ByPause, At: g.mu.paused}
		}
	}
	return block
}

// missing returns what blocks the message still. Unless wake is nil, it reserves the
// gates that admit the message and returns the ones that do not any more. The gates are
// locked.
func (r *Reservation) missing(v instant, last int64, owner any, wake *[]*Wait) (block Block) {
	var longest uint64
	for i, g := range r.set.gates {
		var kind Kind
		var wait uint64
		if g.takenLast() && wake != nil { // it may have been collected before it had a budget
			*wake = r.giveBack(i, g, v, last, *wake)
		}
		if r.collected&(1<<i) != 0 {
			if kind, wait = g.ready(v); kind != Open && wake != nil {
				*wake = r.giveBack(i, g, v, last, *wake)
			}
		} else if kind, wait = g.admit(v, last, r.cost); kind == Open && wake != nil {
			if head := g.mu.waiting.head; head != nil && owner != nil && head.Owner != owner {
				kind, wait = ByTurn, forever
			} else if !g.takenLast() {
				r.collected |= 1 << i
				g.hold(r.cost)
			}
		}
		if kind != Open && wait >= longest {
			longest = wait
			block = g.block(kind, last, wait, r.cost)
		}
	}
	return block
}

// Check returns the missing gate, whether or not the owner has the turn, and changes
// nothing.
func (r *Reservation) Check(now int64) (block Block, ok bool) {
	s := r.set
	s.lock()
	defer s.unlock()
	v, last := r.gates.clock.tick(now)
	if block = r.paused(last); block.Kind == Open {
		block = r.missing(v, last, nil, nil)
	}
	return block, block.Kind == Open
}

// takenLast reports whether a reservation takes of the gate when it has everything else: leases and
// periods end. It needs g.mu.
func (g *Gate) takenLast() bool { return g.mu.share != nil || g.mu.ledger != nil }

// hold reserves cost and counts the message as in flight. It needs g.mu.
func (g *Gate) hold(cost int64) {
	if b := g.mu.bucket; b != nil {
		b.take(cost, 0)
	}
	g.mu.reserved, g.mu.guest = cost, false
	g.mu.inFlight++
}

// ready is admit for a gate that the reservation has collected. It blocks only if
// limits have been lowered since, or if a message before has cost so much more
// than was taken that the bucket is in debt. It needs g.mu.
func (g *Gate) ready(v instant) (Kind, uint64) {
	g.advance(v)
	if b := g.mu.bucket; b != nil {
		if need := min(g.mu.reserved, b.burst) - g.mu.reserved; b.tokens < need {
			return ByRate, b.until(need)
		}
	}
	if c := g.mu.limits.Concurrency; c != 0 && g.mu.inFlight > c {
		return ByInFlight, forever
	}
	if w := g.mu.window; w != nil {
		if wait := w.wait(v, 0); wait != 0 {
			return ByWindow, wait
		}
	}
	return Open, 0
}

// Cancel returns what the reservation has collected. It does nothing if the
// reservation is over. It appends the waiters to notify to wake (see Wait.Pass).
func (r *Reservation) Cancel(now int64, wake []*Wait) []*Wait {
	for i, g := range r.set.gates {
		g.mu.Lock()
		v, last := g.gates.clock.tick(now)
		wake = r.giveBack(i, g, v, last, wake)
		g.mu.Unlock()
	}
	r.over()
	return wake
}

// giveBack returns what the reservation has collected at the i-th gate, if
// anything. It needs g.mu.
func (r *Reservation) giveBack(i int, g *Gate, v instant, last int64, wake []*Wait) []*Wait {
	if r.collected&(1<<i) == 0 {
		return wake
	}
	r.collected &^= 1 << i
	g.advance(v)
	g.mu.reserved = 0
	if b := g.mu.bucket; b != nil {
		b.tokens += r.cost
		b.advance(v, 0)
	}
	g.leave()
	return g.notifyIfEarlier(v, last, wake)
}

// over lets another message reserve.
func (r *Reservation) over() {
	r.collected = 0
	r.gates.reserved.CompareAndSwap(r, nil)
}
