package throttle

// Fleet connects a registry to the other processes that share limits with it. The
// registry calls its methods with its own mutex and the mutex of a gate locked, so
// they must neither block nor call the registry.
type Fleet interface {
	// Begin reports whether a gate that gets limits is shared. parts is 0 if the fleet
	// can be reached, otherwise the number of parts into which a rate is divided.
	Begin(key string) (shared bool, parts int64)
	// Request announces that Needs of a gate has changed. It is not repeated before
	// Needs has been called.
	Request(key string)
	// SharesBudget reports whether the fleet keeps the budget of a key.
	SharesBudget(key string) bool
	// RequestBudget announces that [Gates.BudgetDemand] has changed.
	RequestBudget(key string)
}

// Share sets the Fleet, which decides which gates are shared. Call it before any
// other method.
func (g *Gates) Share(f Fleet) { g.fleet = f }

// sharing is the source of the limits that a shared gate applies.
type sharing uint8

const (
	leased sharing = iota // the leases of the fleet, none at first
	owned                 // the limits, as for a gate that is not shared
	parted                // a part of the rate, and the slots and permits that there are
)

// share is the state of a shared gate. The gate's mutex guards it.
type share struct {
	by        sharing
	own       Limits   // set here; others may be in force (Gates.Adopt)
	parts     int64    // with parted, at least 1
	leases    [2]Lease // the older one first
	ends      [2]instant
	ended     []endedLease // rests of leases for ReturnLeases; the oldest first
	size      Lease        // the latest lease; the gate requests more below half of it
	changed   instant      // grants up to this time get no refund
	permits   int64
	crowded   bool // permits beyond fair end with the flights that use them
	fair      int64
	requested bool // Request was called, Needs not yet
	needs     Needs
	used      instant // of the last message; 0: none

	// uncharged is the cost of messages beyond the leases, in thousandths, that the
	// fleet has not charged yet; negative: a refund.
	uncharged int64
	room      room
	remaining remaining
}

// room is how much fits into the bucket of the fleet, as far as this process knows.
// It bounds refunds, see bucket.putBack. It is unknown before the first Level.
type room struct {
	known bool
	now   int64 // thousandths, at time at
	at    instant
	lows  lows
}

// advance brings the room up to time v.
func (r *room) advance(l Limits, v instant) {
	r.now = max(0, r.now-l.Rate.Gives(int64(v.since(r.at)))-1)
	r.at = v
}

// sharedRest is how long the registry keeps a shared gate that is not in use. The
// lease for a refused call comes after the refusal, and rejoining a fleet costs a
// refusal and a write.
const sharedRest = 60_000_000_000 // ns

// rests reports whether to keep the gate for a message that may come again.
func (s *share) rests(v instant) bool {
	return s.uncharged != 0 || s.remaining.known || s.by == leased && (s.leases[0] != (Lease{}) || len(s.ended) > 0) || s.used != 0 && !v.after(s.used+sharedRest)
}

// Lease is a number of tokens (thousandths) and of window slots that the fleet has
// leased to this process.
type Lease struct {
	Tokens, Slots int64
	// Leased identifies the slots at the lender.
	Leased int64
	// Until is when the lease ends (Unix ns).
	Until int64
	// Final says that tokens that are not used are not returned.
	Final bool
}

// endedLease is a lease to return, and when it ends or has ended.
type endedLease struct {
	Lease
	end instant
}

// maxEndedLeases bounds how many of them wait for ReturnLeases.
const maxEndedLeases = 8

// Needs is the state of a shared gate and its demand since the last call of
// [Gates.Needs].
type Needs struct {
	Limits Limits // set here
	Owned  bool   // this process applies the limits alone
	// Cost is the largest cost that was refused for tokens, or 0.
	Cost           int64
	Tokens, Slots  bool // a lease is needed
	Place          bool // a permit is needed
	Leased         bool // there are leases
	InFlight       int64
	Permits        int64
	Crowded        bool // as in Lower
	Uncharged      bool // there is something for TakeUncharged
	Remaining      bool // there is something for TakeRemaining
	Learns, Lesson bool // the limits learn; there is something for TakeLesson
	Spends         bool // there is a budget
}

// Needs returns the state and the demand of a shared gate. It repeats the demand as
// long as queues wait, including leases that have ended since: waiters are notified
// only when nothing is missing, so they do not request it again. ok is false if the key
// has no shared gate.
func (g *Gates) Needs(key string, now int64) (n Needs, ok bool) {
	ok = g.onShared(key, func(gate *Gate, s *share) {
		v, last := g.clock.tick(now)
		s.expire(v)
		if head := gate.mu.waiting.head; head != nil && gate.pause(last) == 0 {
			if gate.lacksBudget(v, last, head.cost) {
				s.needs = Needs{}
			} else {
				gate.note(max(s.needs.Cost, One))
			}
		}
		n, s.requested = s.needs, false
		if gate.mu.waiting.head == nil {
			s.needs = Needs{}
		}
		tokens, slots := s.sum()
		n.Tokens = n.Tokens && tokens < max(n.Cost, s.size.Tokens/2, 1)
		n.Slots = n.Slots && slots < max(s.size.Slots/2, 1)
		n.Place = n.Place && gate.mu.inFlight >= s.permits
		n.Limits, n.Owned, n.InFlight, n.Permits = s.own, s.by == owned, gate.mu.inFlight, s.permits
		n.Leased, n.Crowded, n.Uncharged = s.leases[0] != (Lease{}), s.crowded, s.uncharged != 0
		n.Remaining = s.remaining.known
		n.Spends = gate.mu.ledger != nil
		if a := gate.mu.learner; a != nil {
			n.Learns, n.Lesson = true, a.lesson != Lesson{}
		}
	})
	return n, ok
}

// TakeUncharged returns and clears the cost of messages beyond the leases of a gate,
// in thousandths; negative: a refund. The fleet must charge it.
func (g *Gates) TakeUncharged(key string) (uncharged int64) {
	g.onShared(key, func(_ *Gate, s *share) { uncharged, s.uncharged = s.uncharged, 0 })
	return uncharged
}

// Level reports the tokens in the fleet's bucket of a gate, in thousandths.
func (g *Gates) Level(key string, tokens, now int64) {
	g.onShared(key, func(gate *Gate, s *share) {
		if s.by != leased || gate.mu.limits.Rate == (Rate{}) {
			return
		}
		v, _ := g.clock.tick(now)
		r := &s.room
		if r.known {
			r.advance(gate.mu.limits, v)
		}
		r.lows.note(v, r.now) // 0 at first: no refund for earlier grants
		r.known, r.now, r.at = true, max(0, gate.mu.limits.burst()-tokens), v
	})
}

// Shared returns the limits that were set here for a shared gate, and whether this
// process applies them alone. ok is false if the key has no shared gate.
func (g *Gates) Shared(key string) (own Limits, alone, ok bool) {
	ok = g.onShared(key, func(_ *Gate, s *share) { own, alone = s.own, s.by == owned })
	return own, alone, ok
}

// onShared calls fn with the gate of a key, locked, and reports true, if it is shared.
func (g *Gates) onShared(key string, fn func(*Gate, *share)) bool {
	g.mu.Lock()
	gate := g.mu.gates.all[key]
	if gate == nil {
		g.mu.Unlock()
		return false
	}
	gate.mu.Lock()
	defer gate.mu.Unlock()
	g.mu.Unlock()
	if gate.mu.share == nil {
		return false
	}
	fn(gate, gate.mu.share)
	return true
}

// ReturnLeases removes and returns the leases of a gate that end within a time (ns),
// and the rest of leases that have ended. Their Until is on the clock of now.
func (g *Gates) ReturnLeases(key string, now, within int64) (rests []Lease) {
	g.onShared(key, func(_ *Gate, s *share) {
		v, _ := g.clock.tick(now)
		for s.leases[0] != (Lease{}) && int64(s.ends[0]-v) <= within {
			s.drop(v)
		}
		for _, c := range s.ended {
			c.Until = now + int64(c.end-v)
			rests = append(rests, c.Lease)
		}
		s.ended = nil
	})
	return rests
}

// Lower reduces the permits to a number, but not below the messages in flight, and
// returns how many are left. With crowded, further permits go as messages leave
// flight, and the gate calls Request each time.
func (g *Gates) Lower(key string, permits int64, crowded bool) (left int64) {
	g.onShared(key, func(gate *Gate, s *share) {
		s.permits, s.crowded, s.fair = max(gate.mu.inFlight, min(s.permits, permits)), crowded, permits
		left = s.permits
	})
	return left
}

// AddLease gives a gate a lease, and a number of permits in all. It appends the
// waiters to notify to wake (see Wait.Pass).
func (g *Gates) AddLease(key string, c Lease, permits, now int64, wake []*Wait) []*Wait {
	g.onShared(key, func(gate *Gate, s *share) {
		if s.by != leased {
			return
		}
		v, last := g.clock.tick(now)
		s.expire(v)
		s.permits = max(gate.mu.inFlight, permits)
		if paid := min(c.Tokens, s.uncharged); paid > 0 {
			c.Tokens, s.uncharged = c.Tokens-paid, s.uncharged-paid
		}
		c.Tokens = s.lowerNew(gate.mu.limits, c.Tokens, v)
		if c.Until <= last {
			s.keep(c, v-instant(last-c.Until))
		} else if c.Tokens > 0 || c.Slots > 0 {
			if s.leases[1] != (Lease{}) {
				s.drop(v)
			}
			i := 0
			if s.leases[0] != (Lease{}) {
				i = 1
			}
			s.leases[i], s.ends[i], s.size = c, v+instant(c.Until-last), c
		}
		wake = gate.notifyIfEarlier(v, last, wake)
	})
	return wake
}

// HandOver ends the time in which this process applied the limits alone. From now on
// the gate admits only with leases of the fleet. ok is false if this process did not
// apply them alone.
func (g *Gates) HandOver(key string, now int64) (state State, inFlight int64, ok bool) {
	g.onShared(key, func(gate *Gate, s *share) {
		if ok = s.by == owned; ok {
			state, _ = gate.state(now)
			gate.borrow(now, 0)
			inFlight = gate.mu.inFlight
		}
	})
	return state, inFlight, ok
}

// Borrow makes a gate depend on leases, of which it has none at first, and gives it
// permits for the messages in flight. It returns their number.
func (g *Gates) Borrow(key string, now int64) (inFlight int64) {
	g.onShared(key, func(gate *Gate, s *share) {
		uncharged := s.uncharged
		if b := gate.mu.bucket; b != nil && s.by != leased {
			v, _ := g.clock.tick(now)
			b.advance(v, gate.mu.reserved)
			uncharged = max(0, -b.tokens) // only this process knows of it
		}
		gate.borrow(now, uncharged)
		inFlight = gate.mu.inFlight
	})
	return inFlight
}

// borrow needs g.mu.
func (g *Gate) borrow(now, uncharged int64) {
	v, _ := g.gates.clock.tick(now)
	s := g.mu.share
	*s = share{own: s.own, permits: g.mu.inFlight, changed: v, needs: s.needs, used: s.used, uncharged: uncharged, remaining: s.remaining}
	g.setParts(g.mu.limits, v, v, false)
	g.request()
}

// renew replaces bucket and window by new ones for these limits. Earlier grants get
// no refund from them. It needs g.mu.
func (g *Gate) renew(l Limits, v instant) {
	g.mu.bucket, g.mu.window = nil, nil
	g.setParts(l, v, v, false)
}

// Adopt applies limits to a shared gate that another process of the fleet has set, or
// its own limits again. It appends the waiters to notify to wake (see Wait.Pass).
func (g *Gates) Adopt(key string, l Limits, now int64, wake []*Wait) []*Wait {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := g.mu.gates.all[key]
	if gate == nil {
		return wake
	}
	gate.mu.Lock()
	defer gate.mu.Unlock()
	if gate.mu.share == nil || l == gate.limitsSet() {
		return wake
	}
	v, last := g.clock.tick(now)
	gate.setLimits(l, v, false)
	gate.keepLedger(last, v)
	return gate.mu.waiting.notifyHead(wake)
}

// Own makes this process apply the limits of a gate alone, beginning with a state, or
// with the present one if state is nil. It appends the waiters to notify to wake (see
// Wait.Pass).
func (g *Gates) Own(key string, state *State, now int64, wake []*Wait) []*Wait {
	g.onShared(key, func(gate *Gate, s *share) {
		v, last := g.clock.tick(now)
		if state != nil {
			gate.renew(gate.mu.limits, v)
			gate.fill(state, v, last)
		}
		if b, uncharged := gate.mu.bucket, s.uncharged; b != nil && uncharged != 0 {
			b.advance(v, gate.mu.reserved)
			b.charge(uncharged, gate.mu.reserved)
			b.advance(v, gate.mu.reserved)
		}
		s.lowerBucket(gate, v)
		*s = share{by: owned, own: s.own, used: s.used}
		wake = gate.notifyIfEarlier(v, last, wake)
	})
	return wake
}

// Part makes a gate apply one of `parts` parts of its rate while the fleet cannot be
// reached. The bucket begins empty; the slots of leases and the permits stay. Part
// does not change a gate whose limits this process applies alone, or that has such a
// part already.
func (g *Gates) Part(key string, parts, now int64, wake []*Wait) []*Wait {
	g.onShared(key, func(gate *Gate, s *share) {
		if parts = max(1, parts); s.by == owned || s.by == parted && s.parts == parts {
			return
		}
		v, last := g.clock.tick(now)
		s.by, s.parts, s.crowded = parted, parts, false
		for i := range s.leases {
			s.leases[i].Tokens = 0
		}
		gate.mu.bucket = nil
		gate.setParts(s.part(gate.mu.limits), v, v, false)
		if b := gate.mu.bucket; b != nil {
			b.tokens = -max(0, s.uncharged)
		}
		s.lowerBucket(gate, v)
		s.uncharged, s.room, s.remaining = 0, room{}, remaining{}
		wake = gate.notifyIfEarlier(v, last, wake)
	})
	return wake
}

// part returns the limits that bucket and window apply.
func (s *share) part(l Limits) Limits {
	if s.by != parted || l.Rate == (Rate{}) {
		return l
	}
	l.Burst = max(1, l.burst()/s.parts)
	if l.Rate.Per <= maxPer/s.parts {
		l.Rate.Per *= s.parts
	} else {
		l.Rate.Cost = max(1, l.Rate.Cost/s.parts)
	}
	return l
}

// The functions below need g.mu of the gate.

// attach makes a gate with limits shared at time v if its key is shared, and undoes
// that for a gate without limits. The gate begins with permits for the messages in
// flight and nothing else.
func (g *Gate) attach(v instant) {
	f := g.gates.fleet
	if f == nil {
		return
	}
	switch has := g.mu.limits != (Limits{}); {
	case has && g.mu.share == nil:
		if shared, parts := f.Begin(g.key); shared {
			g.mu.share = &share{own: g.limitsSet(), permits: g.mu.inFlight}
			if parts > 0 {
				g.mu.share.by, g.mu.share.parts = parted, parts
				g.setParts(g.mu.share.part(g.mu.limits), v, v, false)
			}
		}
	case !has && g.mu.share != nil:
		g.mu.share = nil
		f.Request(g.key)
	}
}

// request calls Fleet.Request unless a call is pending.
func (g *Gate) request() {
	if s := g.mu.share; !s.requested {
		s.requested = true
		g.gates.fleet.Request(g.key)
	}
}

// places returns how many messages may be in flight under a concurrency limit c.
func (g *Gate) places(c int64) int64 {
	if s := g.mu.share; s != nil && s.by != owned {
		return s.permits
	}
	return c
}

// requestMissing requests what shared gates need, after one of them has blocked a
// message of this cost. The gates are locked.
func (b *Block) requestMissing(gates []*Gate, cost int64) {
	if b.Kind == ByBudget {
		b.Gate.requestBooking(cost)
	}
	if s := b.Gate.mu.share; s == nil || s.by == owned || b.Kind == ByPause || b.Kind == ByTurn || b.Kind == ByBudget && b.At != Never {
		return
	}
	for _, g := range gates {
		g.requestMissing(cost)
	}
}

// requestMissing requests what the gate needs for a message of this cost.
func (g *Gate) requestMissing(cost int64) {
	if g.mu.ledger != nil {
		g.requestBooking(cost)
		if v, last := g.gates.clock.latest(), g.gates.clock.latestTime(); g.mu.share != nil && g.lacksBudget(v, last, cost) {
			return
		}
	}
	if g.note(cost) {
		g.mu.share.used = max(g.gates.clock.latest(), 1)
		g.request()
	}
}

// note records what the gate needs for a message of this cost, and reports whether
// there is anything to request.
func (g *Gate) note(cost int64) bool {
	s := g.mu.share
	if s == nil || s.by == owned {
		return false
	}
	tokens, slots := s.sum()
	n := &s.needs
	if g.mu.bucket != nil && tokens < cost {
		n.Tokens, n.Cost = true, max(n.Cost, cost)
	}
	n.Slots = n.Slots || g.mu.window != nil && slots < 1
	c := g.mu.limits.Concurrency
	n.Place = n.Place || c != 0 && g.mu.inFlight >= s.permits
	return n.Tokens || n.Slots || n.Place
}

func (s *share) sum() (tokens, slots int64) {
	return s.leases[0].Tokens + s.leases[1].Tokens, s.leases[0].Slots + s.leases[1].Slots
}

// expire removes the leases that have ended at v.
func (s *share) expire(v instant) {
	for s.leases[0] != (Lease{}) && !s.ends[0].after(v) {
		s.drop(v)
	}
}

// drop ends the older lease. ReturnLeases returns the rest of it.
func (s *share) drop(v instant) {
	s.keep(s.leases[0], s.ends[0])
	s.leases, s.ends = [2]Lease{s.leases[1]}, [2]instant{s.ends[1]}
	s.changed = v
}

// keep stores a lease for ReturnLeases, with the time at which it ends or has ended.
func (s *share) keep(c Lease, end instant) {
	if c.Final {
		c.Tokens = 0
	}
	if c.Tokens <= 0 && c.Slots <= 0 {
		return
	}
	if len(s.ended) == maxEndedLeases {
		s.ended = s.ended[1:]
	}
	s.ended = append(s.ended, endedLease{c, end})
}

// admit returns what blocks a message of this cost at a gate whose limits this process does not
// apply alone, apart from its budget and a pause: the leases, or the bucket of a part.
func (s *share) admit(g *Gate, v instant, cost int64) (Kind, uint64) {
	if g.mu.limits.Concurrency != 0 && g.mu.inFlight >= s.permits {
		return ByInFlight, forever
	}
	return s.missing(g, v, cost)
}

func (s *share) missing(g *Gate, v instant, cost int64) (Kind, uint64) {
	s.expire(v)
	tokens, slots := s.sum()
	if b := g.mu.bucket; b != nil && s.by == parted {
		b.advance(v, g.mu.reserved)
		if wait := b.wait(cost, g.mu.reserved); wait != 0 {
			return ByRate, wait
		}
	} else if b != nil && tokens < cost {
		return ByRate, forever
	}
	if g.mu.window != nil && slots < 1 {
		return ByWindow, forever
	}
	return Open, 0
}

// take takes what admit has found, from the older lease first.
func (s *share) take(g *Gate, cost int64) {
	slots := int64(1)
	if g.mu.window == nil {
		slots = 0
	}
	if b := g.mu.bucket; b == nil || s.by == parted {
		if b != nil {
			b.take(cost, g.mu.reserved)
		}
		cost = 0
	}
	for i := range s.leases {
		c := &s.leases[i]
		t, n := min(cost, c.Tokens), min(slots, c.Slots)
		c.Tokens, c.Slots, cost, slots = c.Tokens-t, c.Slots-n, cost-t, slots-n
	}
	if s.by == parted {
		return
	}
	tokens, left := s.sum()
	if g.mu.bucket != nil && tokens < s.size.Tokens/2 {
		s.needs.Tokens = true
		g.request()
	}
	if g.mu.window != nil && left < s.size.Slots/2 {
		s.needs.Slots = true
		g.request()
	}
}

// putBack undoes a take that was made at t. It refunds to the older lease, which ends
// no later than the lease that was charged.
func (s *share) putBack(g *Gate, t instant, cost int64) {
	if b := g.mu.bucket; b != nil && s.by == parted {
		b.putBack(t, cost, g.mu.reserved)
	}
	if s.leases[0] == (Lease{}) || !t.after(s.changed) {
		return
	}
	if g.mu.bucket != nil && s.by == leased {
		s.leases[0].Tokens += cost
	}
	if g.mu.window != nil {
		s.leases[0].Slots++
	}
}

// correct charges or refunds the difference between the cost of a message and the
// cost that was taken. The leases pay first, the rest is for TakeUncharged. The gate
// has a bucket.
func (s *share) correct(g *Gate, u Grant, v instant, delta int64) {
	s.expire(v)
	if delta < 0 {
		if delta = -s.giveBack(g, u, v, -delta); delta == 0 {
			return
		}
	}
	s.uncharged = min(s.uncharged+delta, MaxBurst)
	for i := range s.leases {
		if c := &s.leases[i]; s.uncharged > 0 {
			paid := min(s.uncharged, c.Tokens)
			c.Tokens, s.uncharged = c.Tokens-paid, s.uncharged-paid
		}
	}
	if s.uncharged < 0 && s.leases[0] != (Lease{}) {
		i := 0
		if s.leases[1] != (Lease{}) {
			i = 1
		}
		s.leases[i].Tokens, s.uncharged = s.leases[i].Tokens-s.uncharged, 0
	}
	if s.uncharged != 0 {
		g.request()
	}
}

// giveBack returns how much of a cost may be refunded to the bucket of the fleet.
func (s *share) giveBack(g *Gate, u Grant, v instant, cost int64) int64 {
	if u.state != granted || !s.room.known {
		return 0
	}
	s.room.advance(g.mu.limits, v)
	back := min(cost, s.room.now, s.room.lows.since(u.at))
	if back <= 0 {
		return 0
	}
	s.room.now -= back
	s.room.lows.lower(u.at, back)
	return back
}
