package throttle

// Set is the gates of a message, in the order of their keys. Messages with the
// same keys share one Set, so two messages pass the same gates if and only if
// their Sets are the same pointer. Gates.Set makes them. A nil Set has no gates
// and admits everything.
type Set struct {
	gates []*Gate
	name  string // its key in Gates.sets
	refs  int    // guarded by Gates.mu
}

// Grant is the right of one message to be in flight. The caller returns it with
// exactly one of Release and Undo, which clear it. They ignore a zero Grant.
type Grant struct {
	at    instant
	cost  uint32
	state grantState
}

type grantState uint8

const (
	returned grantState = iota // grants nothing
	granted                    // passed the gates
	adopted                    // was in flight at the start: counts for concurrency only
)

// Active reports whether the grant has not been returned yet.
func (t Grant) Active() bool { return t.state != returned }

// Cost is the cost in thousandths that the gates took.
func (t Grant) Cost() int64 { return int64(t.cost) }

// Gates returns the gates in the order of their keys. The slice is read-only.
func (s *Set) Gates() []*Gate {
	if s == nil {
		return nil
	}
	return s.gates
}

// Concurrent returns the keys of the gates that have a concurrency limit.
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

// Guest is the owner of callers that never join a wait list but try again later.
// While queues wait for a gate, the gate admits one guest, and the next one only
// after it has admitted a queue. So neither starves the other, however often
// guests try.
var Guest any = guest{}

type guest struct{}

// Acquire admits a message of this cost (thousandths, clamped to 1..MaxCost) at
// time now if all gates admit it. Each gate then takes the cost from its bucket,
// adds an entry to its window and counts the message as in flight. Otherwise
// Acquire takes nothing and returns the Block.
//
// owner is the queue of the message, a comparable value, as in its Waits. A gate
// that is open but has waiters admits the message only if its queue is the head
// of the waiters at one of the gates of the set. A nil owner ignores waiters. A
// [Guest] alternates with all queues together.
//
// Acquire takes time proportional to the number of gates and allocates nothing.
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

// Check returns what Acquire would return, and changes nothing.
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

// check asks all gates. The caller has locked them.
func (s *Set) check(v instant, last, cost int64, owner any) Block {
	var block Block
	var longest uint64
	var crowded *Gate
	turn := owner == nil
	for _, g := range s.gates {
		if kind, wait := g.admit(v, last, cost); kind != Open && wait >= longest {
			longest = wait
			block = g.block(kind, last, wait, cost)
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

// Adopt counts a message as in flight that was in flight before a restart,
// whatever the limits are. It takes no tokens and adds no window entries. Undo of
// such a Grant is the same as Release.
func (s *Set) Adopt() Grant {
	for _, g := range s.Gates() {
		g.mu.Lock()
		g.mu.inFlight++
		g.mu.Unlock()
	}
	return Grant{cost: 1, state: adopted}
}

// Release ends the flight of a message that has been delivered. It appends the
// waiters to notify to wake (see Wait.Pass).
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

// ReleaseCorrected is Release for a message that has cost delta thousandths more
// than Acquire took, or less if delta is negative. Buckets pay the difference, if
// need be by debt, or get the surplus back as in Undo. Windows and concurrency
// count messages, not costs, so they do not change.
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
		if g.mu.ledger != nil {
			g.correctBudget(u, v, last, delta)
		}
		g.correct(u, v, delta)
		g.leave()
		wake = g.notifyIfEarlier(v, last, wake)
		g.mu.Unlock()
	}
	return wake
}

// correct charges or refunds delta at the time of the last advance. It refunds
// nothing for an adopted grant, whose time is not known. It needs g.mu.
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

// Undo ends the flight of a message that no consumer has received. It removes
// the window entries of the message, and refunds as many tokens as the bound on
// the bucket allows: all of them if the bucket has not been full since, none
// after a change of its limits. It appends the waiters to notify to wake (see
// Wait.Pass).
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
		if l := g.mu.ledger; l != nil {
			l.Advance(last, uint64(v))
			l.Undo(uint64(u.at), int64(u.cost))
		}
		g.leave()
		wake = g.notifyIfEarlier(v, last, wake)
		g.mu.Unlock()
	}
	return wake
}

// putBack returns what a grant has taken from bucket and window. It needs g.mu.
func (g *Gate) putBack(u Grant) {
	if b := g.mu.bucket; b != nil {
		b.putBack(u.at, int64(u.cost), g.mu.reserved)
	}
	if w := g.mu.window; w != nil {
		w.remove(u.at)
	}
}

func clampCost(cost int64) int64 { return min(max(cost, 1), MaxCost) }
