package budget

import (
	"cmp"
	"fmt"
	"math"
)

// MaxAmount is the largest amount and the largest top-up, in thousandths.
const MaxAmount = 1_000_000_000_000 * 1000

// MaxWarnings is how many warnings a budget can have.
const MaxWarnings = 4

// RetryAfter is how long (ns) after a failed write the next one is.
const RetryAfter = 1_000_000_000

// Never is the time of what time alone does not bring about.
const Never = math.MaxInt64

// Terms are the budget of a key. The zero Terms are no budget.
type Terms struct {
	Amount int64 `json:"amount"` // thousandths of cost in a period, 1..MaxAmount
	Period
	// WarnAt are the parts of the amount (thousandths, 1..1000) at whose use to warn, in rising
	// order; 0: no further one.
	WarnAt [MaxWarnings]int16 `json:"warn_at"`
}

// Validate returns what is out of range.
func (t Terms) Validate() error {
	if t.Amount == 0 && t.Unit == None {
		return nil
	}
	if t.Amount < 1 || t.Amount > MaxAmount {
		return fmt.Errorf("budget: %d thousandths: allowed is 1 to %d", t.Amount, int64(MaxAmount))
	}
	if t.Unit < Hour || t.Unit > Month {
		return fmt.Errorf("period: %d: allowed is an hour, a day, a week or a month", t.Unit)
	}
	if err := CheckZone(t.Zone); err != nil {
		return fmt.Errorf("zone: %w", err)
	}
	return nil
}

// Record is what the disk has of a ledger.
type Record struct {
	Period Period `json:"period"`
	Start  int64  `json:"start"`  // Unix ns: of the period
	End    int64  `json:"end"`    // Unix ns: of the period
	Booked int64  `json:"booked"` // thousandths: the next process counts as much as used
	Added  int64  `json:"added,omitempty"`
	Warned int    `json:"warned,omitempty"` // how many warnings there were
}

// Over reports whether the period has ended.
func (r *Record) Over(now int64) bool { return now >= r.End }

// Booking is a record on its way to the disk.
type Booking struct {
	Record
	Number uint64 // for [Ledger.Booked]
}

// Ledger is what one key has spent in the present period. Its caller calls Advance before any other
// method that decides or takes something.
type Ledger struct {
	terms   Terms
	start   int64  // Unix ns
	end     int64  // Unix ns; 0: no period has begun
	since   uint64 // deliveries of this moment and before are of an earlier period
	gap     uint64 // deliveries before the next moment may not have taken their cost
	begun   bool   // Advance was called
	used    int64  // thousandths: actual costs of finished deliveries, estimates of the others
	added   int64  // thousandths, by top-ups
	booked  int64  // thousandths, on disk for this period
	booking Booking
	writing bool // booking is on its way
	written uint64
	retry   int64 // Unix ns: no write before, since one has failed; 0: none has
	trial   bool  // a copy, which needs no disk and warns of nothing
	warned  int
	shared  *sharing // nil: the bookings are on the disk of this process
}

// New returns a ledger, which goes on as the disk has it unless kept is nil. Otherwise it has used
// nothing. If the terms may have another period than the disk, SetTerms with the same terms has to
// follow.
func New(t Terms, kept *Record) *Ledger {
	l := &Ledger{terms: t}
	if kept != nil {
		l.terms.Period = kept.Period
		l.start, l.end = kept.Start, kept.End
		l.used, l.booked, l.added, l.warned = kept.Booked, kept.Booked, kept.Added, kept.Warned
	}
	return l
}

// Terms returns the terms in force.
func (l *Ledger) Terms() Terms { return l.terms }

// SetTerms changes the terms. The use stays, also if the period changes: then the
// present one ends when a period of the new terms does.
//
// The terms of a shared ledger are the ones of the record from the first Join on.
func (l *Ledger) SetTerms(t Terms, now int64, moment uint64) {
	if l.shared != nil {
		if l.shared.part.Number == 0 {
			l.terms = t
		}
		return
	}
	was := l.terms
	l.terms = t
	if was.WarnAt != t.WarnAt {
		l.warned = 0
		l.Crossed()
	}
	if was.Period == t.Period || l.end == 0 {
		return
	}
	l.Advance(now, moment)
	l.start, l.end = t.Around(max(now, l.start))
	l.booked, l.writing = 0, false // the disk has the other period
}

// Advance begins a new period if the present one is over. moment is a time that never goes back,
// as in [Ledger.Correct].
func (l *Ledger) Advance(now int64, moment uint64) {
	if !l.begun {
		l.begun, l.since, l.gap = true, moment-1, moment-1
	}
	if l.retry = min(l.retry, now+RetryAfter); now >= l.retry {
		l.retry = 0
	}
	if s := l.shared; s != nil {
		now += s.part.Ahead
		s.now = now
		if s.over = now >= l.end; !l.trial {
			return // the record begins the next period
		}
	}
	if now < l.end {
		return
	}
	if l.shared != nil {
		l.shared.part.Others = 0
	}
	l.start, l.end = l.terms.Around(now)
	l.used, l.added, l.booked, l.warned, l.writing = 0, 0, 0, 0, false
	l.since = moment - 1
}

// total is what the period allows.
func (l *Ledger) total() int64 {
	if s := l.shared; s != nil {
		return l.terms.Amount + l.added - s.part.Others
	}
	return l.terms.Amount + l.added
}

// Opens returns when a delivery of this cost may go: 0 now, [Never] when more has been booked,
// otherwise the end of the period, or the time of the next write after one has failed.
func (l *Ledger) Opens(cost int64) int64 {
	switch s := l.shared; {
	case s != nil && !l.trial && (s.over || s.left):
		return Never
	case l.used+cost > l.total():
		if s != nil {
			return l.end - s.part.Ahead
		}
		return l.end
	case l.used+cost > l.booked && !l.trial:
		return cmp.Or(l.retry, int64(Never))
	}
	return 0
}

// Unbooked reports whether a delivery of this cost waits for nothing but a booking on the disk of this
// process, and the last one has not failed.
func (l *Ledger) Unbooked(cost int64) bool {
	return l.shared == nil && l.retry == 0 && l.used+cost <= l.total() && l.used+cost > l.booked
}

// Left is what deliveries may take before more has to be booked.
func (l *Ledger) Left() int64 {
	switch s := l.shared; {
	case l.trial:
		return max(0, l.total()-l.used)
	case s != nil && (s.over || s.left):
		return 0
	}
	return max(0, min(l.booked, l.total())-l.used)
}

// Trial returns a copy for forecasts, which needs no disk.
func (l *Ledger) Trial() *Ledger {
	c := *l
	c.trial = true
	if l.shared != nil {
		c.shared = new(*l.shared)
	}
	return &c
}

// Take takes the cost of a delivery, for which Opens has returned 0.
func (l *Ledger) Take(cost int64) {
	l.used += cost
	if l.shared != nil {
		l.shared.takes++
	}
}

// ofPeriod reports whether a delivery of this moment belongs to the period.
func (l *Ledger) ofPeriod(moment uint64) bool { return int64(moment-l.since) > 0 }

// Rejoin notes that deliveries before a moment may have gone without the ledger, since the key had no
// budget. Nothing of them is refunded.
func (l *Ledger) Rejoin(moment uint64) { l.gap = moment - 1 }

// Correct adds delta to the cost of a delivery that was taken at a moment. It does nothing if the
// delivery belongs to an earlier period.
func (l *Ledger) Correct(taken uint64, delta int64) {
	if delta < 0 && int64(taken-l.gap) <= 0 {
		return
	}
	if l.ofPeriod(taken) || l.shared != nil && taken == l.since && delta > 0 { // a Join may be at the same moment
		l.used = max(0, min(l.used+delta, 2*MaxAmount))
	}
}

// Overrun adds a cost to the present period, whenever its delivery was.
func (l *Ledger) Overrun(cost int64) { l.used = min(l.used+cost, 2*MaxAmount) }

// Undo returns the cost of a delivery that nobody received.
func (l *Ledger) Undo(taken uint64, cost int64) { l.Correct(taken, -cost) }

// step is how far a booking is ahead of the use.
func (l *Ledger) step() int64 { return max(l.terms.Amount/64, 1) }

// NextBooking returns what to write so that a delivery of this cost can go, or, with cost 0, so that the
// next ones need not wait. ok is false if there is nothing to write, or a write is under way or has just
// failed.
func (l *Ledger) NextBooking(cost int64) (b Booking, ok bool) {
	ahead := l.used + max(cost, l.step()/2)
	if l.trial || l.writing || l.retry != 0 || l.booked >= min(ahead, l.total()) || cost > 0 && l.used+cost > l.total() {
		return Booking{}, false
	}
	return l.write(min(l.used+max(cost, l.step()), max(l.total(), l.used))), true
}

// write makes a booking that replaces all earlier ones.
func (l *Ledger) write(booked int64) Booking {
	l.written++
	l.writing = true
	l.booking = Booking{Record{l.terms.Period, l.start, l.end, booked, l.added, l.warned}, l.written}
	return l.booking
}

// Booked reports the outcome of the write of a booking. Only the newest one counts.
func (l *Ledger) Booked(number uint64, ok bool, now int64) {
	if !l.writing || number != l.booking.Number {
		return
	}
	if l.writing = false; !ok {
		l.retry = now + RetryAfter
	}
	if ok && l.booking.Start == l.start {
		l.booked = l.booking.Booked
	}
}

// TopUp adds an amount to the present period and returns what to write. Top-ups together are not
// more than [MaxAmount].
func (l *Ledger) TopUp(amount int64) Booking {
	l.added = min(l.added+amount, MaxAmount)
	l.warned = l.crossed()
	booked := max(l.booked, min(l.used+l.step(), l.total()))
	if l.writing {
		booked = max(booked, l.booking.Booked)
	}
	return l.write(booked)
}

// Reset begins the period of now anew: nothing is used, and nothing added. Deliveries in flight
// count as ones of an earlier period. It returns what to write.
func (l *Ledger) Reset(now int64, moment uint64) Booking {
	l.start, l.end = l.terms.Around(now)
	l.used, l.added, l.booked, l.warned, l.since = 0, 0, 0, 0, moment
	return l.write(min(l.step(), l.total()))
}

// Crossed is how many warnings a use of a total has reached.
func (t *Terms) Crossed(used, total int64) (n int) {
	for n < MaxWarnings && t.WarnAt[n] != 0 && used*1000 >= total*int64(t.WarnAt[n]) {
		n++
	}
	return n
}

// crossed is how many warnings the use has reached.
func (l *Ledger) crossed() int {
	s := l.State()
	return l.terms.Crossed(s.Used, s.Total())
}

// Crossed returns the highest part of the amount at which to warn that the use has reached since
// the last call, in thousandths; 0: none.
func (l *Ledger) Crossed() int16 {
	if l.trial || l.warned >= MaxWarnings || l.terms.WarnAt[l.warned] == 0 {
		return 0
	}
	n := l.crossed()
	if n <= l.warned {
		return 0
	}
	l.warned = n
	return l.terms.WarnAt[n-1]
}

// Record returns what an orderly stop writes: the next process goes on with what was used.
func (l *Ledger) Record() Record {
	return Record{l.terms.Period, l.start, l.end, l.used, l.added, l.warned}
}

// Kept reports whether the disk has this state already.
func (l *Ledger) Kept() bool { return l.end == 0 || !l.writing && l.booked == l.used }

// State is what a ledger says of itself.
type State struct {
	Terms
	Start, End  int64 // Unix ns: of the period
	Used, Added int64 // thousandths
}

// Total is what the period allows, in thousandths.
func (s *State) Total() int64 { return s.Amount + s.Added }

// Left is what is left of it, in thousandths; negative: the budget is exceeded.
func (s *State) Left() int64 { return s.Total() - s.Used }

// State returns the state after the last Advance. Bookings of other ledgers of a fleet count as used.
func (l *Ledger) State() State {
	s := State{l.terms, l.start, l.end, l.used, l.added}
	if f := l.shared; f != nil {
		if s.Used += f.part.Others; f.over { // nobody has used anything since
			s.Start, s.End = l.terms.Around(f.now)
			s.Used, s.Added = 0, 0
		}
	}
	return s
}

// Ended reports whether the period has ended, or none has begun.
func (l *Ledger) Ended(now int64) bool {
	if l.shared != nil {
		now += l.shared.part.Ahead
	}
	return now >= l.end
}
