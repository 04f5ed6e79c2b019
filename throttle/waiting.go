package throttle

// waiting is the list of the queues that wait for a gate: a ring of Waits in the
// order of service. The head has the turn. The gate's mutex guards it.
//
// Only the head is notified. It is notified once, and again only after it has
// called Turn, Pass or Leave: a thousand releases in a row make one notification.
type waiting struct {
	head     *Wait // in the ring, or nil
	n        int
	notified bool // the head has been notified of its turn and has not acted yet
}

// Wait is the place of one queue in the wait list of one gate. The gate must
// belong to a Set that is not closed while the Wait is joined. Its methods are safe
// for concurrent use.
type Wait struct {
	// Owner is the queue, as given to NewWait: a comparable value, the same in
	// all Waits of the queue.
	Owner any

	gate       *Gate
	cost       int64 // of the message that the gate has blocked; its mutex guards it
	prev, next *Wait // in the ring; nil: not joined
}

// NewWait returns a Wait of owner for gate g that has not joined yet.
func NewWait(g *Gate, owner any) *Wait { return &Wait{Owner: owner, gate: g} }

// Gate returns the gate that the queue waits for.
func (w *Wait) Gate() *Gate { return w.gate }

// Join appends the queue to the wait list, unless it is in it already, after the
// gate has blocked a message of this cost (thousandths). at is when to try again:
// now if the gate has opened meanwhile, later if it opens by time, and Never if
// the gate will notify the queue.
func (w *Wait) Join(now, cost int64) (at int64) {
	g := w.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.mu.waiting
	if w.next == nil {
		r.push(w)
	}
	w.cost = clampCost(cost)
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

// Turn returns how many messages of cost 1 this queue should try now: its share of
// the number that the gate admits, at least one if it admits any. If n is 0, at is
// when to try again, or Never if the gate will notify the queue.
//
// After its share the queue calls Pass, and then Turn again until n is 0. If the
// gate blocks a message that costs more than 1, the queue keeps the turn and tries
// again at the time in the Block.
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
	if kind, wait := g.admitAny(v, last); kind != Open {
		if kind != ByPause {
			g.requestMissing(One)
		}
		return 0, later(last, wait)
	}
	return max(1, g.admits()/int64(r.n)), now
}

// admits returns how many messages of cost 1 an open gate admits now. It needs
// g.mu.
func (g *Gate) admits() int64 {
	n, s := int64(MaxConcurrency), g.mu.share
	leases := s != nil && s.by != owned // it has them in the place of bucket and window
	var tokens, slots int64
	if leases {
		tokens, slots = s.sum()
	}
	if b := g.mu.bucket; b != nil {
		if !leases || s.by == parted {
			tokens = b.tokens
		}
		n = min(n, max(1, tokens/One))
	}
	if w := g.mu.window; w != nil {
		if !leases {
			slots = w.limit - w.total - g.reservedEntries()
		}
		n = min(n, slots)
	}
	if l := g.mu.ledger; l != nil {
		n = min(n, max(1, l.Left()/One))
	}
	if c := g.mu.limits.Concurrency; c != 0 {
		n = min(n, g.places(c)-g.mu.inFlight)
	}
	return n
}

// Pass ends the turn of a queue that goes on waiting: the queue moves to the end of
// the list. Like every method with a parameter wake it appends the Waits that have
// the turn now. The caller must notify the Owner of each, which answers with Turn.
// Pass never appends w itself.
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

// Leave removes the queue from the list, since none of its messages waits for the
// gate any more or it cannot deliver. A queue that has the turn and does not use it
// must leave: it would hold up the others.
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

// notifyHead appends the head to wake unless it has been notified already.
func (r *waiting) notifyHead(wake []*Wait) []*Wait {
	if r.head == nil || r.notified {
		return wake
	}
	r.notified = true
	return append(wake, r.head)
}

// notifyAfterRelease notifies the head after a message has left flight, if that may
// have opened the gate or made its opening a matter of time. It needs g.mu.
func (g *Gate) notifyAfterRelease(now int64, wake []*Wait) []*Wait {
	limit := g.mu.limits.Concurrency
	if limit != 0 {
		limit = g.places(limit)
	}
	if g.mu.waiting.head == nil || limit == 0 || g.mu.inFlight >= limit {
		return wake
	}
	v, last := g.gates.clock.tick(now)
	switch kind, wait := g.admitAny(v, last); {
	case kind == ByPause && wait == forever:
		return wake // Gates.Pause tells it
	case kind != Open && g.mu.inFlight < limit-1:
		return wake // the head looked when time alone shut the gate
	}
	return g.mu.waiting.notifyHead(wake)
}

// notifyIfEarlier notifies the head after tokens or window entries were returned:
// the gate opens now, or at another time than the head knows. It needs g.mu.
func (g *Gate) notifyIfEarlier(v instant, last int64, wake []*Wait) []*Wait {
	if g.mu.waiting.head == nil {
		return wake
	}
	if _, wait := g.admitAny(v, last); wait == forever {
		return wake
	}
	return g.mu.waiting.notifyHead(wake)
}
