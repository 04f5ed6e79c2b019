package queuetest

import (
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/budget"
)

// spendModel models the use of a budget in the present hour, the period of all budgets here. It is not
// used once the clock has been set back: a period begins when the key is used.
type spendModel struct {
	hour   int64
	spent  []*passage
	added  int64
	atTake int64 // use at the last delivery: crashes do not forget it
	lost   int64 // what crashes have forgotten: underestimates of messages in flight
	loose  bool  // the key may count more as used: its process or its limits have changed
}

func (m *spendModel) used() (sum int64) {
	for _, p := range m.spent {
		if !p.undone {
			sum += p.cost
		}
	}
	return sum
}

const hour = int64(3600e9)

// begin begins the hour of a time anew.
func (m *spendModel) begin(last int64) { *m = spendModel{hour: last / hour, loose: m.loose} }

// spend models a delivery. The costs that are known exceed the budget only by what
// crashes have forgotten. It reports whether less is left than a message of cost 1.
func (g *gateModel) spend(t T, what string, p *passage, last int64) (usedUp bool) {
	m := &g.budget
	if last/hour > m.hour {
		m.begin(last)
	}
	m.spent = append(m.spent, p)
	m.atTake = m.used()
	most := g.limits.Budget.Amount + m.added + m.lost
	if m.atTake > most {
		require.Fail(t, "budget", "%s: %d are used, %d are allowed", what, m.atTake, most)
	}
	return most-m.atTake < throttle.One
}

func (m *spendModel) crash() {
	m.lost += max(0, m.used()-m.atTake)
}

// spend is what happens to budgets only.
func (s *Sim) spend() {
	if s.spends {
		oneOf(s.rnd, budgetActions).do(s)
	}
}

var budgetActions = []action[*Sim]{
	{4, (*Sim).topUp},
	{2, (*Sim).nextHour},
}

// topUp adds to the budget of a throttle key, or begins its period anew.
func (s *Sim) topUp() {
	key := throttleKey(s.rnd.IntN(throttleKeys))
	m, write := &s.gate(key).budget, func(b budget.Booking, _ budget.State) { s.KeepBooking(key, b) }
	var wakes []*throttle.Wait
	if s.chance(6) {
		var ok bool
		if wakes, ok = s.Gates.ResetBudget(key, s.Now, write, nil); ok {
			m.begin(s.clock.last)
			m.loose = true // deliveries of this very moment count as earlier ones
			s.Seen.Resets++
		}
	} else {
		amount, ok := 1+s.rnd.Int64N(2000), false
		if s.clock.last/hour > m.hour {
			m.begin(s.clock.last)
		}
		if wakes, ok = s.Gates.TopUpBudget(key, amount, s.Now, write, nil); ok {
			m.added += amount
			s.Seen.TopUps++
		}
	}
	wake(wakes)
}

// nextHour lets the time of all budgets go by.
func (s *Sim) nextHour() { s.goOn(hour - s.Now%hour + pick(s, []int64{0, 0, 1, 1e9})) }

// spendSome draws a budget.
func (s *Sim) spendSome(l *throttle.Limits) {
	l.Budget = budget.Terms{Amount: pick(s, []int64{1000, 4000, 10_000}), Period: budget.Period{Unit: budget.Hour}}
	if s.chance(2) {
		l.Budget.WarnAt[0] = 500
	}
}
