package throttle

// waiting is the round of the queues that wait for a gate: a ring of Waits in
// the order in which they are served. The head has the turn. It belongs to the
// gate's mutex.
//
// One queue at a time is woken. It is notified once, and again only after it has
// looked (Turn) or gone (Pass, Leave): a thousand releases in a row make one
// message to it.
type waiting struct {
	head     *Wait // in the ring, or nil
	n        int
	notified bool // the head knows that the turn is its, and has not acted on it
}

// Wait is the place of one queue among those that wait for one gate. The gate
// must belong to a Set that is not closed while the Wait is joined. The methods
// are safe for concurrent use.
type Wait struct {
	// Owner is the queue, as given to NewWait: a comparable value, the same in
	// all of its Waits.
	Owner any

	gate       *Gate
	prev, next *Wait // in the ring; nil: not joined
}

// NewWait makes a place for owner at gate g; it is not joined yet.
func NewWait(g *Gate, owner any) *Wait { return &Wait{Owner: owner, gate: g} }

// Gate is the gate that is waited for.
func (w *Wait) Gate() *Gate { return w.gate }

// Join joins the end of the round, unless the queue is in it already, after a
// message of that cost (thousandths) was blocked by the gate. at says when to
// try it: now if the gate has opened meanwhile, later if it opens by time, and
// Never if this queue will be notified.
func (w *Wait) Join(now, cost int64) (at int64) {
	g := w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.mu.waiting
	if w.next == nil {
		r.push(w)
	}
	if r.head != w {
		return Never
	}
	v, last := g.gates.clock.tick(now)
	kind, wait := g.admit(v, last, clampCost(cost))
	if kind == Open {
		return now
	}
	if kind != ByPause {
		g.requestMissing(clampCost(cost))
	}
	return later(last, wait)
}

// Turn tells how many messages of cost 1 this queue should try now: its share
// of what the gate admits, at least one if it admits any. If that is 0, at is
// when to look again, or Never: the queue will be notified.
//
// After it has tried its share the queue calls Pass, and Turn again, until that
// is 0. If the gate blocks a message that costs more than 1, the queue keeps the
// turn and tries again at the time that the Block says.
func (w *Wait) Turn(now int64) (n, at int64) {
	g := w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.mu.waiting
	if r.head != w {
		return 0, Never
	}
	r.notified = false
	v, last := g.gates.clock.tick(now)
	if kind, wait := g.admit(v, last, One); kind != Open {
		if kind != ByPause {
			g.requestMissing(One)
		}
		return 0, later(last, wait)
	}
	return max(1, g.admits()/int64(r.n)), now
}

// admits is how many messages of cost 1 may go now, for a gate that is open.
// It needs g.mu.
func (g *Gate) admits() int64 {
	n := int64(MaxConcurrency)
	if s := g.mu.share; s != nil && s.by != owned {
		tokens, slots := s.sum()
		if b := g.mu.bucket; b != nil && s.by == parted {
			tokens = b.tokens
		}
		if g.mu.bucket != nil {
			n = min(n, max(1, tokens/One))
		}
		if g.mu.window != nil {
			n = min(n, slots)
		}
		if g.mu.limits.Concurrency != 0 {
			n = min(n, s.permits-g.mu.inFlight)
		}
		return n
	}
	if b := g.mu.bucket; b != nil {
		n = min(n, max(1, b.tokens/One))
	}
	if w := g.mu.window; w != nil {
		n = min(n, w.limit-w.total-g.reservedEntries())
	}
	if c := g.mu.limits.Concurrency; c != 0 {
		n = min(n, c-g.mu.inFlight)
	}
	return n
}

// Pass ends the turn of a queue that waits on: it goes to the end of the round.
// Like every method that takes wake it appends whom the caller must tell that
// the turn is theirs (each by a message to its Owner, who answers with Turn);
// never w itself.
func (w *Wait) Pass(wake []*Wait) []*Wait {
	g := w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.mu.waiting
	if r.head != w {
		return wake
	}
	r.notified = false
	if r.n == 1 {
		return wake
	}
	r.head = w.next
	return r.notifyHead(wake)
}

// Leave takes the queue out of the round: nothing of it waits for the gate any
// more, or it cannot deliver. A queue that has the turn and does not use it
// must leave, or it would hold the others up.
func (w *Wait) Leave(wake []*Wait) []*Wait {
	g := w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.mu.waiting
	switch {
	case w.next == nil:
		return wake
	case r.n == 1:
		*r = waiting{}
	default:
		w.prev.next, w.next.prev = w.next, w.prev
		r.n--
		if r.head == w {
			r.head, r.notified = w.next, false
			wake = r.notifyHead(wake)
		}
	}
	w.prev, w.next = nil, nil
	return wake
}

func (r *waiting) push(w *Wait) {
	r.n++
	if r.head == nil {
		w.prev, w.next = w, w
		r.head, r.notified = w, false
		return
	}
	w.prev, w.next = r.head.prev, r.head
	w.prev.next, w.next.prev = w, w
}

func (r *waiting) notifyHead(wake []*Wait) []*Wait {
	if r.head == nil || r.notified {
		return wake
	}
	r.notified = true
	return append(wake, r.head)
}

// freed tells the head after a place in flight has been given back, if that may
// have opened the gate, or made its opening a matter of time. It needs g.mu.
func (g *Gate) notifyAfterRelease(now int64, wake []*Wait) []*Wait {
	limit := g.mu.limits.Concurrency
	if limit != 0 {
		limit = g.places(limit)
	}
	if g.mu.waiting.head == nil || limit == 0 || g.mu.inFlight >= limit {
		return wake
	}
	v, last := g.gates.clock.tick(now)
	switch kind, wait := g.admit(v, last, One); {
	case kind == ByPause && wait == forever:
		return wake // Gates.Pause tells it
	case kind != Open && g.mu.inFlight < limit-1:
		return wake // the head looked when time alone shut the gate
	}
	return g.mu.waiting.notifyHead(wake)
}

// eased tells the head after something else than a place in flight was given
// back: the gate opens now, or at another time than the head knows. It needs
// g.mu.
func (g *Gate) notifyIfEarlier(v instant, last int64, wake []*Wait) []*Wait {
	if g.mu.waiting.head == nil {
		return wake
	}
	if _, wait := g.admit(v, last, One); wait == forever {
		return wake
	}
	return g.mu.waiting.notifyHead(wake)
}
