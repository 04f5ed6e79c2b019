package throttle

// Fleet is what a registry has to do with other processes that share limits with it. Its
// methods are called with the mutexes of the registry and of a gate held: they must not
// wait, nor call the registry.
type Fleet interface {
	// Begin is asked for a gate that gets limits: whether they are shared and, if the
	// fleet cannot be reached now, into how many parts a rate is divided; 0: it can.
	Begin(key string) (shared bool, parts int64)
	// Request says that Needs of a gate has something new. It is not repeated before Needs
	// has been called.
	Request(key string)
}

// Share has gates ask f whether they are shared. It is called before anything else.
func (g *Gates) Share(f Fleet) { g.fleet = f }

// sharing is how a shared gate goes by its limits.
type sharing uint8

const (
	leased sharing = iota // by what the fleet has lent, nothing at first
	owned                 // as one that is not shared
	parted                // by a part of the rate, and the slots and permits that there are
)

// share is what a gate has that is shared. It belongs to the gate's mutex.
type share struct {
	by        sharing
	own       Limits   // that were set here; those in force may be others' (Gates.Adopt)
	parts     int64    // with parted, at least 1
	leases    [2]Lease // the older one first
	ends      [2]instant
	ended     []endedLease // what is left of leases that could not be used up; the oldest first
	size      Lease        // of what was lent last: half of it is little
	changed   instant      // grants that are not later give nothing back
	permits   int64
	crowded   bool // permits beyond fair end with the flights that use them
	fair      int64
	requested bool // and nobody has looked since
	needs     Needs
	used      instant // a message has come last; 0: none

	// uncharged is what messages have cost beyond what was lent, in thousandths; negative: less.
	// It is on its way to the fleet.
	uncharged int64
	room      room
}

// room is how much fits into the bucket of the fleet, as far as that is known here: so
// what was taken too much can be given back without more than the bound, see
// bucket.putBack. Nobody knows anything before the first look.
type room struct {
	known bool
	now   int64 // thousandths, at time at
	at    instant
	lows  lows
}

// settle brings the room up to time v.
func (r *room) advance(l Limits, v instant) {
	r.now = max(0, r.now-l.Rate.Gives(int64(v.since(r.at)))-1)
	r.at = v
}

// sharedRest is how long a shared gate is kept that nobody uses: what a call lacks comes
// after it was refused, and to come back to a fleet costs a refusal and a write.
const sharedRest = 60_000_000_000 // ns

// rests reports whether the gate is kept for a message that may come again.
func (s *share) rests(v instant) bool {
	return s.uncharged != 0 || s.by == leased && (s.leases[0] != (Lease{}) || len(s.ended) > 0) || s.used != 0 && !v.after(s.used+sharedRest)
}

// Lease is tokens (thousandths) and slots of a window that a fleet has lent.
type Lease struct {
	Tokens, Slots int64
	// Leased is what the lender knows the slots by.
	Leased int64
	// Until is when they end (Unix ns).
	Until int64
}

// endedLease is a chunk that is to be given back, and when it ends or has ended.
type endedLease struct {
	Lease
	end instant
}

// maxEndedLeases bounds how many of them wait for ReturnLeases.
const maxEndedLeases = 8

// Needs is what a shared gate has, and what it has wanted since that was asked last.
type Needs struct {
	Limits Limits // that were set here
	Owned  bool   // by limits of its own
	// Cost of the dearest message that was refused for tokens, or 0.
	Cost          int64
	Tokens, Slots bool // a chunk is wanted
	Place         bool // a place in flight is wanted
	Leased        bool // there are leases
	InFlight      int64
	Permits       int64
	Crowded       bool // Lower has said so
	Uncharged     bool // there is something for TakeUncharged
}

// Needs returns what there is to say of a shared gate. What is wanted is said again as
// long as queues wait, with what has ended since they were refused: they are notified only
// when nothing lacks, so they do not ask for it. ok is false if the key has no gate that
// is shared.
func (g *Gates) Needs(key string, now int64) (n Needs, ok bool) {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return Needs{}, false
	}
	defer unlock()
	s := gate.mu.share
	v, last := g.clock.tick(now)
	s.expire(v)
	if gate.mu.waiting.head != nil && gate.pause(last) == 0 {
		gate.note(max(s.needs.Cost, One))
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
	return n, true
}

// TakeUncharged returns what messages of a gate have cost beyond what it was lent, in
// thousandths; negative: less. The fleet is to charge it.
func (g *Gates) TakeUncharged(key string) (uncharged int64) {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return 0
	}
	defer unlock()
	s := gate.mu.share
	uncharged, s.uncharged = s.uncharged, 0
	return uncharged
}

// Level says what is in the bucket of the fleet of a gate, in thousandths.
func (g *Gates) Level(key string, tokens, now int64) {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return
	}
	defer unlock()
	s := gate.mu.share
	if s.by != leased || gate.mu.limits.Rate == (Rate{}) {
		return
	}
	v, _ := g.clock.tick(now)
	r := &s.room
	if r.known {
		r.advance(gate.mu.limits, v)
	}
	r.lows.note(v, r.now) // 0 at first: nothing of before is given back
	r.known, r.now, r.at = true, max(0, gate.mu.limits.burst()-tokens), v
}

// Shared returns the limits that were set here of a gate that is shared, and whether it
// goes by limits of its own. ok is false if the key has no such gate.
func (g *Gates) Shared(key string) (own Limits, alone, ok bool) {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return Limits{}, false, false
	}
	defer unlock()
	return gate.mu.share.own, gate.mu.share.by == owned, true
}

// sharedGate returns the gate of a key, locked, if it is shared.
func (g *Gates) sharedGate(key string) (gate *Gate, unlock func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate = g.mu.gates.all[key]
	if gate == nil {
		return nil, nil
	}
	gate.mu.Lock()
	if gate.mu.share == nil {
		gate.mu.Unlock()
		return nil, nil
	}
	return gate, gate.mu.Unlock
}

// ReturnLeases takes the leases of a gate back that end within so many nanoseconds, and what is
// left of those that have ended. Until of each is by the clock that now is of.
func (g *Gates) ReturnLeases(key string, now, within int64) (rests []Lease) {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return nil
	}
	defer unlock()
	s := gate.mu.share
	v, _ := g.clock.tick(now)
	for s.leases[0] != (Lease{}) && int64(s.ends[0]-v) <= within {
		s.drop(v)
	}
	for _, c := range s.ended {
		c.Until = now + int64(c.end-v)
		rests = append(rests, c.Lease)
	}
	s.ended = nil
	return rests
}

// Lower takes permits back beyond a number, as far as no message uses them, and returns
// how many are left. With crowded, the others end when they are not used any more, and
// Request is called.
func (g *Gates) Lower(key string, permits int64, crowded bool) (left int64) {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return 0
	}
	defer unlock()
	s := gate.mu.share
	s.permits, s.crowded, s.fair = max(gate.mu.inFlight, min(s.permits, permits)), crowded, permits
	return s.permits
}

// AddLease gives a gate a chunk and so many permits in all. It appends to wake whom to tell
// (see Wait.Pass).
func (g *Gates) AddLease(key string, c Lease, permits, now int64, wake []*Wait) []*Wait {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return wake
	}
	defer unlock()
	s := gate.mu.share
	if s.by != leased {
		return wake
	}
	v, last := g.clock.tick(now)
	s.expire(v)
	s.permits = max(gate.mu.inFlight, permits)
	if paid := min(c.Tokens, s.uncharged); paid > 0 {
		c.Tokens, s.uncharged = c.Tokens-paid, s.uncharged-paid
	}
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
	return gate.notifyIfEarlier(v, last, wake)
}

// HandOver ends the time in which a gate went by limits of its own: nothing passes any
// more until the fleet lends it something, but for as many as are in flight. ok is false
// if the key has no such gate.
func (g *Gates) HandOver(key string, now int64) (state State, inFlight int64, ok bool) {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return State{}, 0, false
	}
	defer unlock()
	if gate.mu.share.by != owned {
		return State{}, 0, false
	}
	state, _ = gate.state(now)
	gate.borrow(now, 0)
	return state, gate.mu.inFlight, true
}

// Borrow has a gate go by what the fleet lends, nothing at first, and gives it permits
// for what is in flight. It returns how many that are.
func (g *Gates) Borrow(key string, now int64) (inFlight int64) {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return 0
	}
	defer unlock()
	uncharged := gate.mu.share.uncharged
	if b := gate.mu.bucket; b != nil && gate.mu.share.by != leased {
		v, _ := g.clock.tick(now)
		b.advance(v, gate.mu.reserved)
		uncharged = max(0, -b.tokens) // nobody else knows of it
	}
	gate.borrow(now, uncharged)
	return gate.mu.inFlight
}

// borrow needs g.mu.
func (g *Gate) borrow(now, uncharged int64) {
	v, _ := g.gates.clock.tick(now)
	s := g.mu.share
	*s = share{own: s.own, permits: g.mu.inFlight, changed: v, needs: s.needs, used: s.used, uncharged: uncharged}
	g.setParts(g.mu.limits, v, v, false)
	g.request()
}

// renew makes bucket and window as of a new gate of these limits, which earlier grants
// give nothing back to. It needs g.mu.
func (g *Gate) renew(l Limits, v instant) {
	g.mu.bucket, g.mu.window = nil, nil
	g.setParts(l, v, v, false)
}

// Adopt puts limits in force for a shared gate that were set elsewhere in the fleet, or
// are those of its own again. It appends to wake whom to tell (see Wait.Pass).
func (g *Gates) Adopt(key string, l Limits, now int64, wake []*Wait) []*Wait {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return wake
	}
	defer unlock()
	if l == gate.mu.limits {
		return wake
	}
	v, _ := g.clock.tick(now)
	gate.setLimits(l, v, false)
	return gate.mu.waiting.notifyHead(wake)
}

// Own has a gate go by limits of its own, beginning with a state; nil: with the one that
// it has. It appends to wake whom to tell (see Wait.Pass).
func (g *Gates) Own(key string, state *State, now int64, wake []*Wait) []*Wait {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return wake
	}
	defer unlock()
	v, last := g.clock.tick(now)
	if state != nil {
		gate.renew(gate.mu.limits, v)
		gate.fill(state, v, last)
	}
	if b, uncharged := gate.mu.bucket, gate.mu.share.uncharged; b != nil && uncharged != 0 {
		b.advance(v, gate.mu.reserved)
		b.charge(uncharged, gate.mu.reserved)
		b.advance(v, gate.mu.reserved)
	}
	*gate.mu.share = share{by: owned, own: gate.mu.share.own, used: gate.mu.share.used}
	return gate.notifyIfEarlier(v, last, wake)
}

// Part has a gate go by one of so many parts of its rate, since the fleet cannot be
// reached: from an empty bucket on, with the slots of a window that are lent still and
// the permits that it has. One that goes by limits of its own, or such a part, keeps them.
func (g *Gates) Part(key string, parts, now int64, wake []*Wait) []*Wait {
	gate, unlock := g.sharedGate(key)
	if gate == nil {
		return wake
	}
	defer unlock()
	s := gate.mu.share
	if parts = max(1, parts); s.by == owned || s.by == parted && s.parts == parts {
		return wake
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
	s.uncharged, s.room = 0, room{}
	return gate.notifyIfEarlier(v, last, wake)
}

// part is what of the limits bucket and window go by.
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

// What follows needs g.mu of the gate.

// attach makes a gate at time v shared that has limits, if its key is, and undoes that
// for one that has none. What is not known to be this instance's is not used: it has
// permits for what is in flight.
func (g *Gate) attach(v instant) {
	f := g.gates.fleet
	if f == nil {
		return
	}
	switch has := g.mu.limits != (Limits{}); {
	case has && g.mu.share == nil:
		if shared, parts := f.Begin(g.key); shared {
			g.mu.share = &share{own: g.mu.limits, permits: g.mu.inFlight}
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

// request tells the fleet to look at the gate, unless it has been notified.
func (g *Gate) request() {
	if s := g.mu.share; !s.requested {
		s.requested = true
		g.gates.fleet.Request(g.key)
	}
}

// places is how many may be in flight of a limit of c.
func (g *Gate) places(c int64) int64 {
	if s := g.mu.share; s != nil && s.by != owned {
		return s.permits
	}
	return c
}

// missed asks the fleet for what shared gates lack, after a message of that cost was
// refused by one of them. The gates are locked.
func (b *Block) requestMissing(gates []*Gate, cost int64) {
	if s := b.Gate.mu.share; s == nil || s.by == owned || b.Kind == ByPause || b.Kind == ByTurn {
		return
	}
	for _, g := range gates {
		g.requestMissing(cost)
	}
}

// missed asks the fleet for what the gate lacks for a message of that cost, when it can
// be asked.
func (g *Gate) requestMissing(cost int64) {
	if g.note(cost) {
		g.mu.share.used = max(g.gates.clock.latest(), 1)
		g.request()
	}
}

// note notes what the gate lacks for a message of that cost, and reports whether there
// is anything that it wants of the fleet.
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

// expire drops the leases that have ended at v.
func (s *share) expire(v instant) {
	for s.leases[0] != (Lease{}) && !s.ends[0].after(v) {
		s.drop(v)
	}
}

// drop ends the older chunk. What is left of it is for ReturnLeases.
func (s *share) drop(v instant) {
	s.keep(s.leases[0], s.ends[0])
	s.leases, s.ends = [2]Lease{s.leases[1]}, [2]instant{s.ends[1]}
	s.changed = v
}

// keep has a chunk be given back that ends at a time, or has ended.
func (s *share) keep(c Lease, end instant) {
	if c.Tokens <= 0 && c.Slots <= 0 {
		return
	}
	if len(s.ended) == maxEndedLeases {
		s.ended = s.ended[1:]
	}
	s.ended = append(s.ended, endedLease{c, end})
}

// admit is Gate.admit for a gate that is not owned.
func (s *share) admit(g *Gate, v instant, last, cost int64) (Kind, uint64) {
	kind, wait := s.missing(g, v, cost)
	if g.mu.limits.Concurrency != 0 && g.mu.inFlight >= s.permits {
		kind, wait = ByInFlight, forever
	}
	if d := g.pause(last); d != 0 && d >= wait {
		kind, wait = ByPause, d
	}
	return kind, wait
}

// lacks says what of the leases, or of the bucket of a part, holds a message of that cost
// back.
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

// take takes what admit has found: of the older chunk first.
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

// putBack undoes a take that was made at t. What the older chunk gets ends no later than
// what it was taken from.
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

// correct charges what has been lent, and what it does not cover the fleet, with the
// difference between what a message has cost and what was taken for it; or gives back
// what was taken too much. The gate has a bucket.
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

// giveBack is how much of a cost that a message took too much can be given back.
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
