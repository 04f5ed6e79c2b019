package budget

// Part is what the record of a fleet has of a budget, as one of its ledgers sees it.
type Part struct {
	Terms         // in force
	Number uint64 // of the account: each period and each reset begins one; 0: none has begun
	Start  int64  // Unix ns of the fleet's clock: of the period
	End    int64
	Booked int64 // thousandths, by this ledger
	Others int64 // by all others, also by ones of processes that have ended
	Added  int64
	Warned int
	Fair   int64  // how far ahead of its use this ledger's bookings may be
	Ahead  int64  // how far the fleet's clock is ahead of this host's (ns)
	Ledger uint64 // id of the ledger that Booked is of
	// Member reports whether the record has this ledger. When it has it no longer, Others has all that
	// the ledger had booked.
	Member bool
}

// Total is the most that all ledgers together may have booked, in thousandths.
func (p *Part) Total() int64 { return p.Amount + p.Added }

// Demand is what a shared ledger needs of the record.
type Demand struct {
	Ledger uint64 // its id
	Number uint64 // of the account of Used; 0: the ledger has none
	Used   int64  // thousandths, by this ledger
	Cost   int64  // of a message that waits for a part; 0: none does
	Ahead  bool   // deliveries have used most of what is booked
	Short  int64  // of the cheapest message for which the budget has too little left; 0: none
	Warned int
	Takes  uint64 // how many deliveries there were so far
	Unused int64  // booked and not used
}

// sharing is the state of a ledger whose bookings are in the record of a fleet.
type sharing struct {
	id    uint64
	part  Part
	over  bool  // the period has ended, or none has begun, and the record has no later one yet
	now   int64 // Unix ns of the fleet's clock, of the last Advance
	left  bool  // nothing is taken any more
	ahead bool  // as in Demand
	asked bool  // Request has reported true, and Demand was not called since
	want  int64
	short int64
	takes uint64
}

// NewShared returns a ledger without an account, which takes nothing before Join. id tells it from earlier
// ledgers of its key. Neither NextBooking nor Booked, TopUp, Reset, Record or Kept may be called on it.
func NewShared(t Terms, id uint64) *Ledger { return &Ledger{terms: t, shared: &sharing{id: id}} }

// Shared reports whether a fleet keeps the bookings.
func (l *Ledger) Shared() bool { return l.shared != nil }

// Join takes in the newest record of the fleet. A record with another account ends the present one:
// deliveries of this moment and before belong to it.
func (l *Ledger) Join(p Part, now int64, moment uint64) {
	s := l.shared
	if p.Ledger != s.id { // an earlier ledger has used what it had booked
		p.Others, p.Booked = p.Others+p.Booked, 0
	}
	was := s.part
	s.part = p
	switch {
	case p.Number != was.Number:
		if l.warned, l.since = p.Warned, moment; was.Number != 0 {
			l.used = 0
		}
	case was.Member && !p.Member:
		l.used = max(0, l.used-l.booked) // the record counts what was booked as used by others
		fallthrough
	case p.Added == was.Added && p.WarnAt == was.WarnAt:
		l.warned = max(l.warned, p.Warned)
	default:
		l.warned = p.Warned
	}
	if p.Number == 0 { // there is no record
		p.Terms = l.terms
	}
	l.terms, l.start, l.end, l.booked, l.added = p.Terms, p.Start, p.End, p.Booked, p.Added
	l.begun = true
	l.Advance(now, moment)
	s.ahead = s.ahead && RunsLow(l.booked-l.used, p.Fair)
	if s.over { // the next account has room for what there was none
		s.want, s.short = max(s.want, s.short), 0
		return
	}
	if s.short != 0 && l.used+s.short <= l.total() {
		s.want, s.short = max(s.want, s.short), 0
	}
	if s.want != 0 && l.used+s.want > l.total() {
		if s.short == 0 || s.want < s.short {
			s.short = s.want
		}
		s.want = 0
	}
	if l.used+s.want <= l.booked {
		s.want = 0
	}
}

// Request notes what the ledger needs of the record: for a delivery of this cost or, with cost 0, for
// the next ones. It reports whether there is something new.
func (l *Ledger) Request(cost int64) bool {
	s := l.shared
	needed := false
	switch {
	case l.trial || s.left:
	case s.over:
		needed, s.want = cost > 0, max(s.want, cost)
	case cost > 0 && l.used+cost > l.total():
		if s.short == 0 || cost < s.short {
			needed, s.short = true, cost
		}
	case cost > 0 && l.used+cost > l.booked:
		needed, s.want = true, max(s.want, cost)
	default:
		if RunsLow(l.booked-l.used, s.part.Fair) && l.booked < l.total() {
			needed, s.ahead = !s.ahead, true
		}
		needed = needed || l.used > l.booked || l.warned > s.part.Warned
	}
	if !needed || s.asked {
		return false
	}
	s.asked = true
	return true
}

// RunsLow reports whether so little is booked and not used that more is to be booked, up to `fair`.
func RunsLow(unused, fair int64) bool { return unused < fair/2 }

// Demand returns what the ledger needs.
func (l *Ledger) Demand() Demand {
	s := l.shared
	s.asked = false
	return Demand{Ledger: s.id, Number: s.part.Number, Used: l.used, Cost: s.want, Ahead: s.ahead, Short: s.short, Warned: l.warned, Takes: s.takes, Unused: max(0, l.booked-l.used)}
}

// GiveBack ends the use of what is booked and not used, before the record has it. With leave it is
// the last use of the ledger.
func (l *Ledger) GiveBack(leave bool) {
	l.booked, l.shared.ahead = min(l.booked, l.used), false
	l.shared.left = l.shared.left || leave
}
