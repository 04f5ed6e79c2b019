package record

import (
	"bytes"

	"github.com/filaq/fila/throttle/budget"
)

// Spender is one instance's side of a [Budget]: the newest record that it has seen, and what is on the
// way to it. Its use is in a [budget.Ledger]. It is not safe for concurrent use. Use
// [NewSpender].
type Spender struct {
	me      string
	rec     Budget
	rev     uint64
	known   *Budget // of a record that the bucket has lost, until the record has it
	number  uint64  // of the last change by hand
	changes []BudgetChange
	ledger  uint64 // id of the ledger that has used the part

	// A write over this revision has lowered the part of an account, and may still be done.
	lowered struct {
		over, number uint64
		to           int64
	}
}

// NewSpender returns the Spender of an instance that has seen no record.
func NewSpender(me string) *Spender { return &Spender{me: me} }

// Learn takes in the record at a revision, the zero Budget if there is none. It ignores older records.
func (s *Spender) Learn(rev uint64, rec Budget) (ok bool) {
	if rev <= s.rev {
		return false
	}
	s.set(rev, rec)
	return true
}

// Join starts again with the existing record, at time now of the fleet's clock. If it is older than the one
// that is known here, the bucket has lost a newer one, and the next write adds what that one had.
func (s *Spender) Join(now int64, rev uint64, rec Budget) {
	lost := s.rec.Made != 0 && (rec.Made != s.rec.Made || rec.Version < s.rec.Version)
	if lost && now < s.rec.End && s.known == nil {
		known := s.rec
		s.known = &known
	}
	if rev < s.lowered.over { // of another bucket
		s.lowered.number = 0
	}
	s.set(rev, rec)
}

func (s *Spender) set(rev uint64, rec Budget) {
	s.rec, s.rev = rec, rev
	if s.known != nil {
		if merged := rec.merge(s.known); bytes.Equal(merged.Encode(), rec.Encode()) {
			s.known = nil
		} else {
			s.rec = merged
		}
	}
	for len(s.changes) > 0 && s.changes[0].Number <= rec.Parts[s.me].Seen {
		s.changes = s.changes[1:]
	}
}

// Change adds a change by hand to the next write: a top-up, or with amount 0 a reset. It is in the record
// when Pending reports false for its number.
func (s *Spender) Change(topUp int64) (number uint64) {
	s.number++
	s.changes = append(s.changes, BudgetChange{s.number, topUp})
	return s.number
}

// Pending reports whether a change is not in the record yet.
func (s *Spender) Pending(number uint64) bool {
	return len(s.changes) > 0 && s.changes[0].Number <= number
}

// Forget forgets the changes by hand. They may still be done.
func (s *Spender) Forget() { s.changes = nil }

// Part returns the record as the ledger sees it. ahead is how far the fleet's clock is ahead of this host's
// (ns).
func (s *Spender) Part(ahead int64) budget.Part {
	b := &s.rec
	me, member := b.Parts[s.me]
	p := budget.Part{
		Terms: b.Terms.Limits, Number: b.Number, Start: b.Start, End: b.End, Booked: me.Booked, Others: b.booked() - me.Booked,
		Added: b.Added, Warned: b.Warned, Fair: b.fair(), Member: member, Ahead: ahead, Ledger: s.ledger,
	}
	if s.doubtful() {
		p.Booked = min(p.Booked, s.lowered.to)
	}
	return p
}

// Record returns the newest known record and its revision.
func (s *Spender) Record() (Budget, uint64) { return s.rec, s.rev }

// Used reports whether the record has this instance.
func (s *Spender) Used() bool {
	_, ok := s.rec.Parts[s.me]
	return ok
}

// Hungry reports whether another instance waits for what this one may give back.
func (s *Spender) Hungry(live func(string) bool) bool { return s.rec.short(s.me, live) }

// Swap returns the record to write over a revision, if it has changed. The caller reports success by
// Learn; another Swap without it means that the write was refused, or that its fate is not known.
func (s *Spender) Swap(a BudgetAsk, env BudgetEnv) (next Budget, over uint64, ok bool) {
	a.By, a.Changes = s.me, s.changes
	if a.Forfeit = a.Ledger != s.ledger && s.rec.Parts[s.me].Booked > 0; !a.Forfeit {
		s.ledger = a.Ledger
	}
	next, ok = s.rec.Apply(a, env)
	ok = ok || s.rec.Number != 0 && (s.known != nil || s.doubtful() && a.Cost > 0)
	if ok && (a.Return || a.Leave) && a.Demand.Number == s.rec.Number {
		s.lowered.over, s.lowered.number, s.lowered.to = s.rev, s.rec.Number, a.Used
	}
	return next, s.rev, ok
}

// doubtful reports whether a write that lowers the part may still be done.
func (s *Spender) doubtful() bool { return s.lowered.number == s.rec.Number && s.rev <= s.lowered.over }
