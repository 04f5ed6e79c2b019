package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/filaq/fila/throttle/budget"
)

// mostBooked is the largest sum of parts, in thousandths. More would be far beyond every budget.
const mostBooked = 4 * budget.MaxAmount

// latestEnd is the latest end of a period (Unix ns), in the year 2255, so that there is a next one.
const latestEnd = 9e18

// Budget is the record of the budget of a throttle key. The zero Budget has no account.
//
// An account is of one period, or of the rest of it after a reset. It has what each live instance has
// booked, and what the others had booked, which counts as used: Gone and the parts together never exceed
// amount and top-ups by a booking, only by a use that an instance reports. An instance takes a part of
// the budget from the record before it uses it.
//
// Maps of a Budget are never changed: [Budget.Apply] makes new ones.
type Budget struct {
	Made    int64  // Unix ns: of the first write, which tells a record from one that was deleted
	Version uint64 // of the record: each write adds 1
	Number  uint64 // of the account, later than all before; 0: there is none
	Lost    uint64 // number of an account of a lost record that Gone includes; 0: none
	Start   int64  // Unix ns of the fleet's clock: of the period
	End     int64
	Added   int64 // thousandths, by top-ups
	Warned  int   // how many warnings there were
	Gone    int64 // thousandths: booked by instances that have ended
	Parts   map[string]Part
	Terms   Terms[budget.Terms]
}

// Part is an instance in a [Budget].
type Part struct {
	Booked int64  // thousandths
	Asks   int64  // the cost of a message for which too little is left; 0: none
	Seen   uint64 // number of its last change by hand
}

// BudgetAsk is what an instance reports and requests in one write.
type BudgetAsk struct {
	By string
	budget.Demand
	// Return gives back what is booked beyond Used, which must not be used any more. Leave does so for
	// good.
	Return, Leave bool
	// Forfeit counts the part of the instance as used, since the ledger that had booked it is gone.
	// Nothing else is done.
	Forfeit bool
	Changes []BudgetChange // by hand, which the record does not have yet
}

// BudgetChange is a change by hand.
type BudgetChange struct {
	Number uint64 // of the instance: later than all before
	TopUp  int64  // thousandths; 0: a reset
}

// BudgetEnv is the environment of the rule of a Budget.
type BudgetEnv struct {
	Now   int64 // Unix ns of the fleet's clock
	Live  func(instance string) bool
	Terms Terms[budget.Terms] // in force at the instance
}

// booked is what all instances have booked.
func (b *Budget) booked() int64 {
	sum := b.Gone
	for _, p := range b.Parts {
		sum = min(sum+p.Booked, mostBooked)
	}
	return sum
}

// end counts a part as used.
func (b *Budget) end(name string, booked int64) {
	b.Gone = min(b.Gone+booked, mostBooked)
	delete(b.Parts, name)
}

// total is what the account allows.
func (b *Budget) total() int64 { return b.Terms.Limits.Amount + b.Added }

// fair is how far ahead of its use the bookings of each instance may be: 1/64 of the amount, and less near the
// end, so that all of them can use the rest. While one of them waits for what the others may give back, it
// is 0: the others get only what they need.
func (b *Budget) fair() int64 {
	if b.short("", nil) {
		return 0
	}
	left := max(0, b.total()-b.booked())
	return min(b.ahead(), left/int64(2*max(1, len(b.Parts))))
}

// ahead is the largest fair.
func (b *Budget) ahead() int64 { return max(b.Terms.Limits.Amount/64, 1) }

// short reports whether an instance waits for more than there is left, but not for more than there may be when
// the others have given back what they do not use. The instance is not me, and live unless that is nil.
func (b *Budget) short(me string, live func(string) bool) bool {
	most := max(0, b.total()-b.booked()) + int64(len(b.Parts))*b.ahead()
	for name, p := range b.Parts {
		if p.Asks > 0 && p.Asks <= most && name != me && (live == nil || live(name)) {
			return true
		}
	}
	return false
}

// begin begins an account. Instances that have ended are forgotten.
func (b *Budget) begin(env *BudgetEnv) {
	b.Number = max(b.Number+1, uint64(env.Now))
	b.Start, b.End = b.Terms.Limits.Around(env.Now)
	b.Added, b.Warned, b.Gone = 0, 0, 0
	for name, p := range b.Parts {
		b.Parts[name] = Part{Seen: p.Seen}
	}
}

// meetTerms adopts newer terms.
func (b *Budget) meetTerms(env *BudgetEnv) (changed bool) {
	if env.Terms.Limits.Unit == budget.None {
		return false
	}
	was := b.Terms.Limits
	changed = b.Terms.meet(env.Terms)
	now := &b.Terms.Limits
	if b.Number == 0 || was == *now {
		return changed
	}
	if was.Period != now.Period { // the present period ends when a period of the new terms does
		b.Start, b.End = now.Around(max(env.Now, b.Start))
	}
	if was.WarnAt != now.WarnAt {
		b.Warned = now.Crossed(b.booked(), b.total())
	}
	return changed
}

// Apply returns the record after a request of an instance, and whether it has changed.
func (b *Budget) Apply(a BudgetAsk, env BudgetEnv) (next Budget, changed bool) {
	next = *b
	if next.Parts = maps.Clone(b.Parts); next.Parts == nil {
		next.Parts = make(map[string]Part)
	}
	for name, p := range b.Parts {
		if name != a.By && !env.Live(name) {
			next.end(name, p.Booked)
		}
	}
	changed = next.meetTerms(&env)
	over := env.Now >= next.End
	switch {
	case over && !a.Leave && (a.Cost > 0 || len(a.Changes) > 0):
		if next.Made == 0 {
			next.Made = env.Now
		}
		next.begin(&env)
		changed, over = true, false
	case next.Number == 0:
		return *b, false // the first use makes the record
	}
	me, known := next.Parts[a.By]
	if a.Forfeit && me.Booked > 0 {
		next.end(a.By, me.Booked)
		return next.written(true)
	}
	switch {
	case a.Demand.Number != next.Number: // it has used nothing of this account so far
		a.Used, a.Return, a.Short = 0, false, 0
	case next.Warned < a.Warned:
		next.Warned, changed = a.Warned, true
	}
	if a.Leave {
		if known {
			if a.Demand.Number == next.Number {
				me.Booked = a.Used
			}
			next.end(a.By, me.Booked)
		}
		return next.written(changed || known)
	}
	for _, c := range a.Changes {
		if c.Number > me.Seen {
			if c.TopUp == 0 {
				next.begin(&env)
				a.Used, a.Return, a.Short, me = 0, false, 0, Part{}
			} else {
				next.Added = min(next.Added+c.TopUp, budget.MaxAmount)
				next.Warned = next.Terms.Limits.Crossed(next.booked(), next.total())
			}
			me.Seen, changed = c.Number, true
		}
	}
	was, uses := me, !over && (known || a.Cost > 0 || a.Used > 0 || a.Short > 0)
	if !uses && len(a.Changes) == 0 {
		return next.written(changed)
	}
	if !over {
		if me.Booked = max(me.Booked, a.Used); a.Return {
			me.Booked = a.Used
		}
		me.Asks = a.Short
		next.Parts[a.By] = me
		me.Booked += next.grant(&a, me.Booked-a.Used)
	}
	next.Parts[a.By] = me
	return next.written(changed || me != was)
}

// written counts a write.
func (b *Budget) written(changed bool) (Budget, bool) {
	if changed {
		b.Version++
	}
	return *b, changed
}

// grant returns how much an instance gets in addition to what it has booked and not used.
func (b *Budget) grant(a *BudgetAsk, unused int64) int64 {
	left := max(0, b.total()-b.booked())
	fair := b.fair()
	switch {
	case a.Cost > unused && a.Cost-unused <= left:
		return min(max(a.Cost, fair)-unused, left)
	case a.Ahead && !a.Return && a.Demand.Number == b.Number && budget.RunsLow(unused, fair):
		return min(fair-unused, left)
	}
	return 0
}

// Idle reports whether a record is equal to none: its period has ended a day ago, so that no clock of the
// fleet begins it again.
func (b *Budget) Idle(now int64) bool { return now-b.End > 24*3600*1e9 }

// merge returns b with what an earlier view of the record knows in addition, after the bucket has lost its
// newest records or all of them.
func (b *Budget) merge(known *Budget) Budget {
	next := *b
	switch {
	case known.Number == b.Number:
		next.Added, next.Warned, next.Gone = max(b.Added, known.Added), max(b.Warned, known.Warned), max(b.Gone, known.Gone)
		next.Parts = maps.Clone(b.Parts)
		for name, p := range known.Parts {
			q := next.Parts[name]
			next.Parts[name] = Part{max(p.Booked, q.Booked), max(p.Asks, q.Asks), max(p.Seen, q.Seen)}
		}
	case known.Start == b.Start && known.Number < b.Number && b.Lost < known.Number: // begun anew, for the same period
		next.Gone, next.Lost = min(b.Gone+known.booked(), mostBooked), known.Number
		next.Added = min(b.Added+known.Added, budget.MaxAmount)
	case known.Number > b.Number:
		next = *known
		if b.Made != 0 {
			next.Made = b.Made
		}
		next.Version = max(b.Version, known.Version)
	}
	next.Terms.meet(known.Terms)
	return next
}

// encodedBudget is the JSON form of a [Budget].
//
//	{"v":1, "made":..., "version":7, "number":1795000000000000000, "start":..., "end":..., "gone":2000,
//	 "parts":{"a/Q7":{"booked":5000,"asks":9000,"seen":2}},
//	 "terms":{"amount":5000000,"unit":4,"zone":"Europe/Berlin","warn_at":[800,0,0,0]}, "terms_at":..., "terms_by":"a/Q7"}
type encodedBudget struct {
	V       int                    `json:"v"`
	Made    int64                  `json:"made"`
	Lost    uint64                 `json:"lost,omitempty"`
	Version uint64                 `json:"version"`
	Number  uint64                 `json:"number"`
	Start   int64                  `json:"start"`
	End     int64                  `json:"end"`
	Added   int64                  `json:"added,omitempty"`
	Warned  int                    `json:"warned,omitempty"`
	Gone    int64                  `json:"gone,omitempty"`
	Parts   map[string]encodedPart `json:"parts,omitempty"`
	Terms   budget.Terms           `json:"terms"`
	TermsAt int64                  `json:"terms_at,omitempty"`
	TermsBy string                 `json:"terms_by"`
}

type encodedPart struct {
	Booked int64  `json:"booked,omitempty"`
	Asks   int64  `json:"asks,omitempty"`
	Seen   uint64 `json:"seen,omitempty"`
}

// Encode encodes the record.
func (b *Budget) Encode() []byte {
	e := encodedBudget{
		V: Version, Made: b.Made, Lost: b.Lost, Version: b.Version, Number: b.Number, Start: b.Start, End: b.End, Added: b.Added, Warned: b.Warned, Gone: b.Gone,
		Parts: make(map[string]encodedPart, len(b.Parts)), Terms: b.Terms.Limits, TermsAt: b.Terms.At, TermsBy: b.Terms.By,
	}
	for name, p := range b.Parts {
		e.Parts[name] = encodedPart(p)
	}
	data, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and numbers
	}
	return data
}

// DecodeBudget is the inverse of Encode. It refuses invalid records, and newer versions with
// [ErrVersion]; it ignores unknown fields.
func DecodeBudget(data []byte) (Budget, error) {
	if len(data) > maxRecordBytes {
		return Budget{}, fmt.Errorf("a record of %d bytes", len(data))
	}
	var e encodedBudget
	if err := json.Unmarshal(data, &e); err != nil {
		return Budget{}, err
	}
	if e.V > Version {
		return Budget{}, fmt.Errorf("%w: %d", ErrVersion, e.V)
	}
	b := Budget{
		Made: e.Made, Lost: e.Lost, Version: e.Version, Number: e.Number, Start: e.Start, End: e.End, Added: e.Added, Warned: e.Warned, Gone: e.Gone,
		Parts: make(map[string]Part, len(e.Parts)), Terms: Terms[budget.Terms]{e.Terms, e.TermsAt, e.TermsBy},
	}
	inRange := func(n int64) bool { return n >= 0 && n <= mostBooked }
	for name, p := range e.Parts {
		if len(name) > maxInstance || !inRange(p.Booked) || !inRange(p.Asks) {
			return Budget{}, fmt.Errorf("part of %q is out of range", name)
		}
		b.Parts[name] = Part(p)
	}
	switch {
	case e.V < 1, e.Version < 1, e.Number < 1, e.Start < 0, e.Start >= e.End, e.End > latestEnd, !inRange(e.Added), !inRange(e.Gone), e.Made < 1,
		e.Warned < 0, e.Warned > budget.MaxWarnings, len(e.TermsBy) > maxInstance, e.TermsBy == "", e.Terms.Unit == budget.None:
		return Budget{}, errors.New("a field is out of its range")
	}
	if err := e.Terms.Validate(); err != nil {
		return Budget{}, err
	}
	return b, nil
}
