package throttle

import (
	"slices"

	"github.com/filaq/fila/ordered"
	"github.com/filaq/fila/throttle/budget"
)

// Bank keeps the budgets of a registry on disk. The registry calls its methods with its own mutex or
// the mutex of a gate locked, so they must neither block nor call the registry.
type Bank interface {
	// KeepBooking writes a booking, and calls [Gates.Booked] when it is on disk.
	KeepBooking(key string, b budget.Booking)
	// Warn announces that the budget of a key is used up to a part of it (thousandths).
	Warn(key string, part int16, s budget.State)
}

// Bank sets the bank, and the ledgers that the disk has. Call it before any other method. Without a
// bank no key can have a budget.
func (g *Gates) Bank(b Bank, kept map[string]budget.Record) {
	g.bank = b
	g.mu.keptLedgers = kept
}

// ledger returns the ledger of a key for these terms, or nil if they are no budget. It needs g.mu.
func (g *Gates) ledger(key string, t budget.Terms, now int64, v instant) *budget.Ledger {
	if t.Unit == budget.None || g.bank == nil {
		return nil
	}
	l, ok := g.mu.ledgers.Get(key)
	if !ok {
		if kept, ok := g.mu.keptLedgers[key]; ok && !g.sharesBudget(key) {
			l = budget.New(t, &kept)
			delete(g.mu.keptLedgers, key)
		} else if l = budget.New(t, nil); g.sharesBudget(key) {
			g.mu.sharedLedgers++
			l = budget.NewShared(t, g.mu.sharedLedgers)
			g.fleet.RequestBudget(key)
		}
		g.mu.ledgers.Put(key, l)
	}
	l.SetTerms(t, now, uint64(v))
	return l
}

func (g *Gates) sharesBudget(key string) bool { return g.fleet != nil && g.fleet.SharesBudget(key) }

// keepLedger gives a gate the ledger of its key. It needs g.mu of the registry and of the gate.
func (g *Gate) keepLedger(now int64, v instant) {
	was := g.mu.ledger
	g.mu.ledger = g.gates.ledger(g.key, g.mu.limits.Budget, now, v)
	if l := g.mu.ledger; l != nil && was == nil {
		l.Advance(now, uint64(v))
		l.Rejoin(uint64(v))
	}
	if l := g.mu.ledger; l != nil && l.Shared() {
		g.gates.fleet.RequestBudget(g.key) // the terms may be new there
	}
}

// The functions below need g.mu of the gate, and that it has a ledger.

// byBudget returns for how long (ns) the budget blocks a message of this cost: 0 if it does not,
// and forever while more of it is on its way to the disk, if that has not just failed.
func (g *Gate) byBudget(v instant, last, cost int64) uint64 {
	l := g.mu.ledger
	l.Advance(last, uint64(v))
	switch at := l.Opens(cost); at {
	case 0:
		return 0
	case budget.Never:
		return forever
	default:
		return uint64(at - last)
	}
}

// spend takes the cost of a message from the budget.
func (g *Gate) spend(cost int64) {
	g.mu.ledger.Take(cost)
	g.afterSpending()
}

// lacksBudget reports whether the budget blocks a message of this cost, and will until the period
// ends or a top-up comes.
func (g *Gate) lacksBudget(v instant, last, cost int64) bool {
	return g.mu.ledger != nil && g.byBudget(v, last, cost) != 0 && g.lacks(cost)
}

// afterSpending warns and requests a booking as the use demands.
func (g *Gate) afterSpending() {
	part := g.mu.ledger.Crossed() // a shared booking has the warning
	g.requestBooking(0)
	if part != 0 {
		g.gates.bank.Warn(g.key, part, g.mu.ledger.State())
	}
}

// requestBooking has as much booked as a message of this cost needs, or ahead of the next ones if it is 0.
func (g *Gate) requestBooking(cost int64) {
	if l := g.mu.ledger; l.Shared() {
		if l.Request(cost) {
			g.gates.fleet.RequestBudget(g.key)
		}
		return
	}
	if b, ok := g.mu.ledger.NextBooking(cost); ok {
		g.gates.bank.KeepBooking(g.key, b)
	}
}

// correctBudget adds delta to what a grant has spent.
func (g *Gate) correctBudget(u Grant, v instant, last, delta int64) {
	l := g.mu.ledger
	l.Advance(last, uint64(v))
	switch {
	case u.state == granted:
		l.Correct(uint64(u.at), delta)
	case delta > 0: // adopted: its period is not known
		l.Overrun(delta)
	}
	g.afterSpending()
}

// onLedger calls fn with the ledger of a key, and its gate if it has one that is awake. It reports
// false if the key has no budget.
func (g *Gates) onLedger(key string, now int64, fn func(l *budget.Ledger, gate *Gate, v instant, last int64)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, last := g.clock.tick(now)
	gate := g.mu.gates.all[key]
	if gate != nil {
		gate.mu.Lock()
		defer gate.mu.Unlock()
		if gate.mu.ledger == nil {
			return false
		}
		gate.mu.ledger.Advance(last, uint64(v))
		fn(gate.mu.ledger, gate, v, last)
		return true
	}
	l := g.ledger(key, g.mu.prefixes.of(key).Budget, last, v)
	if l == nil {
		return false
	}
	l.Advance(last, uint64(v))
	fn(l, nil, v, last)
	return true
}

// wakeLedger notifies the head of the waiters of a gate, if there is one, that its budget has
// changed.
func wakeLedger(gate *Gate, wake []*Wait) []*Wait {
	if gate == nil {
		return wake
	}
	return gate.mu.waiting.notifyHead(wake)
}

// Booked reports the outcome of [Bank].KeepBooking. It appends the waiters to notify to wake (see
// Wait.Pass).
func (g *Gates) Booked(key string, number uint64, ok bool, now int64, wake []*Wait) []*Wait {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, known := g.mu.ledgers.Get(key)
	if !known {
		return wake
	}
	v, last := g.clock.tick(now)
	gate := g.mu.gates.all[key]
	if gate != nil {
		gate.mu.Lock()
		defer gate.mu.Unlock()
	}
	l.Advance(last, uint64(v))
	l.Booked(number, ok, last)
	if gate != nil && gate.mu.ledger != nil { // the key may have no budget at the moment
		wake = gate.notifyIfEarlier(v, last, wake)
	}
	return wake
}

// Budget returns the budget of a key, in the present period.
func (g *Gates) Budget(key string, now int64) (s budget.State, ok bool) {
	ok = g.onLedger(key, now, func(l *budget.Ledger, _ *Gate, _ instant, _ int64) { s = l.State() })
	return s, ok
}

// TopUpBudget adds an amount (thousandths) to the present period of a key. It calls write with what
// to write, with locks held, and appends the waiters to notify to wake (see Wait.Pass). write gets the
// state before, and has to call [Gates.Booked] when the booking is on disk.
func (g *Gates) TopUpBudget(key string, amount, now int64, write func(budget.Booking, budget.State), wake []*Wait) (_ []*Wait, ok bool) {
	ok = g.onLedger(key, now, func(l *budget.Ledger, gate *Gate, _ instant, _ int64) {
		was := l.State()
		write(l.TopUp(amount), was)
		wake = wakeLedger(gate, wake)
	})
	return wake, ok
}

// ResetBudget begins the present period of a key anew, with nothing used. It is otherwise like
// TopUpBudget.
func (g *Gates) ResetBudget(key string, now int64, write func(budget.Booking, budget.State), wake []*Wait) (_ []*Wait, ok bool) {
	ok = g.onLedger(key, now, func(l *budget.Ledger, gate *Gate, v instant, last int64) {
		was := l.State()
		write(l.Reset(last, uint64(v)), was)
		wake = wakeLedger(gate, wake)
	})
	return wake, ok
}

// JoinBudget gives the ledger of a key the newest record of the fleet. It appends the waiters to
// notify to wake (see Wait.Pass).
func (g *Gates) JoinBudget(key string, p budget.Part, now int64, wake []*Wait) []*Wait {
	g.onShares(key, now, func(l *budget.Ledger, gate *Gate, v instant, last int64) {
		l.Join(p, last, uint64(v))
		if gate != nil {
			wake = gate.notifyIfEarlier(v, last, wake)
		}
	})
	return wake
}

// BudgetDemand returns what the ledger of a key needs of the record of the fleet, and the terms that
// were set here. As long as a message waits at the gate, it repeats what that message needs: a part may
// have been given back while the message waited for something else. ok is false if the key has no shared
// budget.
func (g *Gates) BudgetDemand(key string, now int64) (d budget.Demand, t budget.Terms, ok bool) {
	ok = g.onShares(key, now, func(l *budget.Ledger, gate *Gate, _ instant, last int64) {
		t = g.mu.prefixes.of(key).Budget
		if gate != nil {
			t = gate.limitsSet().Budget
			if head := gate.mu.waiting.head; head != nil && gate.pause(last) == 0 && l.Opens(head.cost) != 0 {
				l.Request(head.cost)
			}
		}
		d = l.Demand()
	})
	return d, t, ok
}

// GiveBackBudget ends the use of what a shared ledger has booked and not used, and returns what it
// needs now. With leave it is the end of its use.
func (g *Gates) GiveBackBudget(key string, leave bool, now int64) (d budget.Demand) {
	g.onShares(key, now, func(l *budget.Ledger, _ *Gate, _ instant, _ int64) {
		l.GiveBack(leave)
		d = l.Demand()
	})
	return d
}

// SharedBudgets returns the keys whose bookings a fleet keeps.
func (g *Gates) SharedBudgets() (keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, l := range g.mu.ledgers.From("") {
		if l.Shared() {
			keys = append(keys, key)
		}
	}
	return keys
}

// onShares is onLedger for a ledger whose bookings a fleet keeps.
func (g *Gates) onShares(key string, now int64, fn func(l *budget.Ledger, gate *Gate, v instant, last int64)) bool {
	ok := false
	g.onLedger(key, now, func(l *budget.Ledger, gate *Gate, v instant, last int64) {
		if ok = l.Shared(); ok {
			fn(l, gate, v, last)
		}
	})
	return ok
}

// Budgets lists the keys whose budgets were used in their present period, a page at a time; see
// [ordered.Set.Page].
func (g *Gates) Budgets(prefix, after string, offset, limit int) ordered.Page {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.ledgers.Page(prefix, after, offset, limit)
}

// LedgersToKeep returns what an orderly stop has to write of the budgets.
func (g *Gates) LedgersToKeep() map[string]budget.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	keep := make(map[string]budget.Record)
	for key, l := range g.mu.ledgers.From("") {
		gate := g.mu.gates.all[key]
		if gate != nil {
			gate.mu.Lock()
		}
		if !l.Shared() && !l.Kept() {
			keep[key] = l.Record()
		}
		if gate != nil {
			gate.mu.Unlock()
		}
	}
	return keep
}

// ForgetLedgers forgets ledgers whose period is over, and calls remove with their keys, if there are
// any, for which the disk needs nothing any more. It does so with its mutex locked: no later booking of
// these keys may be written before. The ledger of a gate that is awake stays.
func (g *Gates) ForgetLedgers(now int64, remove func(keys []string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, last := g.clock.tick(now)
	var over, shared []string
	for key, l := range g.mu.ledgers.From("") {
		switch {
		case g.mu.gates.all[key] != nil || !l.Ended(last):
		case l.Shared():
			shared = append(shared, key)
		default:
			over = append(over, key)
		}
	}
	for _, key := range slices.Concat(over, shared) {
		g.mu.ledgers.Remove(key)
	}
	for key, kept := range g.mu.keptLedgers {
		if kept.Over(last) {
			delete(g.mu.keptLedgers, key)
			over = append(over, key)
		}
	}
	if len(over) > 0 {
		remove(over)
	}
}
