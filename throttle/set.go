package throttle

// Set is the gates of a message, in the order of their keys. Messages with the
// same keys share one Set, so that its address tells whether two messages pass
// the same gates. Gates.Set makes them. A nil Set has no gates and admits
// everything.
//
// Locks: Acquire locks the gates of the set one after the other in the order of
// their keys and holds all of them for the check and the taking, so two of them
// never wait for each other. Everything else locks one gate at a time. Inside
// of a gate's mutex only the clock's is taken, and Gates.mu is never taken
// while a gate is locked.
type Set struct {
	gates []*Gate
	name  string // its key in Gates.sets
	refs  int    // belongs to Gates.mu
}

// Grant is the right of one message to be in flight. It is given to exactly
// one of Release and Undo, which clear it; a cleared or zero Grant is ignored.
type Grant struct {
	at    instant
	cost  uint32
	state grantState
}

type grantState uint8

const (
	returned grantState = iota // grants nothing
	granted                    // went through the gates
	adopted                    // was in flight already: has a place in flight only
)

// Active tells whether the grant has still to be given back.
func (t Grant) Active() bool { return t.state != returned }

// Gates returns the gates in the order of their keys. The slice is read-only.
func (s *Set) Gates() []*Gate {
	if s == nil {
		return nil
	}
	return s.gates
}

// Concurrent returns the keys of the gates that limit how many are in flight.
func (s *Set) Concurrent() (keys []string) {
	for _, g := range s.Gates() {
		g.mu.Lock()
		if g.mu.limits.Concurrency != 0 {
			keys = append(keys, g.key)
		}
		g.mu.Unlock()
	}
	return keys
}

// Guest is the owner of those who never wait, but ask again: while queues wait for a
// gate, it lets one guest in, and the next one only after a queue. So neither starves
// the other, however often guests ask.
var Guest any = guest{}

type guest struct{}

// Acquire lets a message of that cost (thousandths, clamped to 1..MaxCost) in
// at time now if all gates admit it: then each gives the cost (bucket), an entry
// (window) and a place in flight. Otherwise nothing is taken and the Block says
// what stands in the way.
//
// owner is the queue of the message, a comparable value, as in its Waits. At a
// gate that is open but has queues waiting, the message is let in only if its
// queue has the turn at one of the gates of the set; a nil owner takes no
// notice of turns.
//
// A [Guest] takes turns with all queues together.
//
// The work is proportional to the number of gates; nothing is allocated.
func (s *Set) Acquire(now, cost int64, owner any) (Grant, Block, bool) {
	cost = clampCost(cost)
	if s == nil || len(s.gates) == 0 {
		return Grant{cost: uint32(cost), state: granted}, Block{}, true
	}
	s.lock()
	defer s.unlock()
	v, last := s.gates[0].gates.clock.tick(now)
	if b := s.check(v, last, cost, owner); b.Kind != Open {
		b.requestMissing(s.gates, cost)
		return Grant{}, b, false
	}
	for _, g := range s.gates {
		g.take(v, cost, owner)
	}
	return Grant{at: v, cost: uint32(cost), state: granted}, Block{}, true
}

// Check says what Acquire would, and changes nothing.
func (s *Set) Check(now, cost int64, owner any) (Block, bool) {
	if s == nil || len(s.gates) == 0 {
		return Block{}, true
	}
	s.lock()
	defer s.unlock()
	v, last := s.gates[0].gates.clock.tick(now)
	b := s.check(v, last, clampCost(cost), owner)
	return b, b.Kind == Open
}

func (s *Set) lock() {
	for _, g := range s.gates {
		g.mu.Lock()
	}
}

func (s *Set) unlock() {
	for _, g := range s.gates {
		g.mu.Unlock()
	}
}

// check asks all gates, which are locked.
func (s *Set) check(v instant, last, cost int64, owner any) Block {
	var block Block
	var longest uint64
	var crowded *Gate
	turn := owner == nil
	for _, g := range s.gates {
		if kind, wait := g.admit(v, last, cost); kind != Open && wait >= longest {
			longest = wait
			block = Block{Gate: g, Kind: kind, At: later(last, wait)}
		}
		if head := g.mu.waiting.head; head != nil && !turn {
			switch {
			case head.Owner == owner:
				turn = true
			case owner == Guest && !g.mu.guest:
			case crowded == nil:
				crowded = g
			}
		}
	}
	if block.Kind == Open && crowded != nil && !turn {
		return Block{Gate: crowded, Kind: ByTurn, At: Never}
	}
	return block
}

// Adopt gives a place in flight at each gate to a message that is in flight
// already, after a restart: whatever the limits say, and without tokens or
// entries. Undo of such a Ticket is the same as Release.
func (s *Set) Adopt() Grant {
	for _, g := range s.Gates() {
		g.mu.Lock()
		g.mu.inFlight++
		g.mu.Unlock()
	}
	return Grant{cost: 1, state: adopted}
}

// Release ends the flight of a message that has been delivered: its places are
// free. It appends to wake whom to tell (see Wait.Pass).
func (s *Set) Release(t *Grant, now int64, wake []*Wait) []*Wait {
	if t.state == returned {
		return wake
	}
	*t = Grant{}
	for _, g := range s.Gates() {
		g.mu.Lock()
		g.leave()
		wake = g.notifyAfterRelease(now, wake)
		g.mu.Unlock()
	}
	return wake
}

// ReleaseCorrected is Release of a message that has cost so much more (thousandths) than was taken
// for it, or less if delta is negative. Buckets give the difference, and go into debt for
// what they do not have; what was taken too much they get back as by Undo. Windows and
// places in flight count messages: nothing of them changes.
func (s *Set) ReleaseCorrected(t *Grant, delta, now int64, wake []*Wait) []*Wait {
	u := *t
	if u.state == returned || delta == 0 {
		return s.Release(t, now, wake)
	}
	*t = Grant{}
	for _, g := range s.Gates() {
		g.mu.Lock()
		v, last := g.gates.clock.tick(now)
		g.advance(v)
		g.correct(u, v, delta)
		g.leave()
		wake = g.notifyIfEarlier(v, last, wake)
		g.mu.Unlock()
	}
	return wake
}

// correct gives or takes the difference between what a message has cost and what was
// taken for it, at the time of the last settle. A grant that was adopted does not know
// when that was: then nothing is given back. It needs g.mu.
func (g *Gate) correct(u Grant, v instant, delta int64) {
	b := g.mu.bucket
	if s := g.mu.share; s != nil && s.by == leased {
		if b != nil {
			s.correct(g, u, v, delta)
		}
		return
	}
	switch {
	case b == nil:
	case delta > 0:
		b.charge(delta, g.mu.reserved)
	case u.state == granted:
		b.putBack(u.at, -delta, g.mu.reserved)
	}
}

// Undo ends the flight of a message that nobody has received, as if it had
// never left: besides its places it gives back its entries in the windows, and
// of its tokens as many as can be without admitting more than the bound, which
// are all of them while the buckets have not been full since, and none after
// their limits were changed. It appends to wake whom to tell (see Wait.Pass).
func (s *Set) Undo(t *Grant, now int64, wake []*Wait) []*Wait {
	u := *t
	if u.state != granted {
		return s.Release(t, now, wake)
	}
	*t = Grant{}
	for _, g := range s.Gates() {
		g.mu.Lock()
		v, last := g.gates.clock.tick(now)
		g.advance(v)
		if s := g.mu.share; s != nil && s.by != owned {
			s.putBack(g, u.at, int64(u.cost))
		} else {
			g.putBack(u)
		}
		g.leave()
		wake = g.notifyIfEarlier(v, last, wake)
		g.mu.Unlock()
	}
	return wake
}

// putBack gives back what a grant has taken of bucket and window. It needs g.mu.
func (g *Gate) putBack(u Grant) {
	if b := g.mu.bucket; b != nil {
		b.putBack(u.at, int64(u.cost), g.mu.reserved)
	}
	if w := g.mu.window; w != nil {
		w.remove(u.at)
	}
}

func clampCost(cost int64) int64 { return min(max(cost, 1), MaxCost) }
