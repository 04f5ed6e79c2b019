package throttle

import "github.com/filaq/fila/throttle/budget"

// OnEmpty is what becomes of a message that costs more than is left of a budget.
type OnEmpty uint8

// The values of OnEmpty.
const (
	OnEmptyUnset OnEmpty = iota // hold
	Hold                        // it waits for the next period
	DeadLetter                  // it becomes a dead letter when its turn comes
	Refuse                      // it is refused when it is enqueued; one that is stored waits
)

var onEmpty = [...]string{"", "hold", "dead_letter", "refuse"}

// String returns the name: "hold", "dead_letter" or "refuse"; empty for OnEmptyUnset.
func (e OnEmpty) String() string {
	if int(e) >= len(onEmpty) {
		return "unknown"
	}
	return onEmpty[e]
}

// ParseOnEmpty returns the OnEmpty of a name; the empty name is OnEmptyUnset.
func ParseOnEmpty(name string) (OnEmpty, bool) {
	for e, n := range onEmpty {
		if n == name {
			return OnEmpty(e), true
		}
	}
	return 0, false
}

// noteOnEmpty notes that limits have an OnEmpty that has to be asked for.
func (g *Gates) noteOnEmpty(l Limits) {
	if l.OnEmpty > Hold {
		g.onEmpty.Store(true)
	}
}

// lacks reports whether less is left of the budget than a message costs, by the state of the last
// Advance. It needs g.mu.
func (g *Gate) lacks(cost int64) bool {
	if g.mu.ledger == nil {
		return false
	}
	s := g.mu.ledger.State()
	return s.Left() < cost
}

// block returns the Block of a message of this cost that the gate does not admit. It needs g.mu.
func (g *Gate) block(kind Kind, last int64, wait uint64, cost int64) Block {
	b := Block{Gate: g, Kind: kind, At: later(last, wait)}
	if kind == ByBudget {
		b.DeadLetter, b.Unbooked = g.mu.limits.OnEmpty == DeadLetter && g.lacks(cost), g.mu.ledger.Unbooked(cost)
	}
	return b
}

// DeadLetters reports whether all messages that wait for the gate become dead letters, since nothing is
// left of its budget: they need not wait for their turn.
func (g *Gate) DeadLetters(now int64) bool {
	if !g.gates.onEmpty.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	v, last := g.gates.clock.tick(now)
	kind, wait := g.admitAny(v, last)
	return g.block(kind, last, wait, 1).DeadLetter
}

// Refuses reports whether a message with these keys and this cost (thousandths) is refused, because less is
// left of the budget of one of the keys, which says [Refuse]. It returns that key and
// when its next period begins (Unix ns). If several do, it is the key whose period ends last.
func (g *Gates) Refuses(keys []string, cost, now int64) (key string, until int64, refused bool) {
	if !g.onEmpty.Load() {
		return "", 0, false
	}
	cost = clampCost(cost)
	for _, k := range keys {
		g.onLedger(k, now, func(l *budget.Ledger, gate *Gate, _ instant, _ int64) {
			limits := g.mu.prefixes.of(k)
			if gate != nil {
				limits = gate.mu.limits
			}
			if s := l.State(); limits.OnEmpty == Refuse && s.Left() < cost && s.End > until {
				key, until, refused = k, s.End, true
			}
		})
	}
	return key, until, refused
}
