package record

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/throttle/budget"
)

// spending is a delivery that is in flight.
type spending struct {
	estimate, actual int64
	taken            uint64
	run              string
	account          uint64
}

func (d *spending) under() int64 { return max(0, d.actual-d.estimate) }

// spendingRun is one process: a ledger, its side of the record, and a way to the bucket.
type spendingRun struct {
	name   string // of the run
	ledger *budget.Ledger
	side   *Spender
	online bool
	frozen bool             // others count it as dead
	skew   int64            // its clock is behind the server's
	last   map[uint64]int64 // underestimates in flight at its last delivery, by account
}

// lateWrite is a write whose answer was given up, and that may be done later.
type lateWrite struct {
	value []byte
	over  uint64
}

// spendingWorld is a fleet with one budget.
type spendingWorld struct {
	*rapid.T
	terms  budget.Terms
	now    int64 // of the server
	moment uint64
	value  []byte
	rev    uint64
	late   []lateWrite
	runs   []*spendingRun
	all    []*spendingRun
	flying []*spending
	exact  bool // nothing is underestimated
	spent  map[uint64]int64
	totals map[uint64]int64
	seen   struct{ deliveries, stops, returns, folded, spent int }
}

func (w *spendingWorld) record() Budget {
	if w.value == nil {
		return Budget{}
	}
	b, err := DecodeBudget(w.value)
	require.NoError(w, err)
	return b
}

func (w *spendingWorld) start() *spendingRun {
	r := &spendingRun{
		name: fmt.Sprintf("f/%d", len(w.all)), ledger: budget.NewShared(w.terms, 1), last: make(map[uint64]int64),
		skew: rapid.Int64Range(-int64(48*time.Hour), int64(48*time.Hour)).Draw(w.T, "skew"),
	}
	r.side = NewSpender(r.name)
	w.all = append(w.all, r)
	r.ledger.Advance(w.local(r), w.moment)
	w.join(r)
	return r
}

func (w *spendingWorld) local(r *spendingRun) int64 { return w.now - r.skew }

func (w *spendingWorld) join(r *spendingRun) {
	r.online, r.frozen = true, false
	r.side.Join(w.now, w.rev, w.record())
	r.ledger.Join(r.side.Part(r.skew), w.local(r), w.moment)
}

func (w *spendingWorld) learn(r *spendingRun) {
	if r.online && r.side.Learn(w.rev, w.record()) {
		r.ledger.Join(r.side.Part(r.skew), w.local(r), w.moment)
	}
}

func (w *spendingWorld) live(name string) bool {
	for _, r := range w.runs {
		if r.name == name {
			return !r.frozen
		}
	}
	return false
}

// write is a compare and swap at the bucket.
func (w *spendingWorld) write(l lateWrite) bool {
	if l.over != w.rev {
		return false
	}
	before := w.record()
	w.value, w.rev = l.value, w.rev+1
	b := w.record()
	if b.Number == before.Number {
		require.GreaterOrEqual(w, b.Version, before.Version)
		if b.Gone > before.Gone {
			w.seen.folded++
		}
	}
	w.totals[b.Number] = max(w.totals[b.Number], b.total())
	return true
}

// land does the writes that are late.
func (w *spendingWorld) land() {
	for _, l := range w.late {
		w.write(l)
	}
	w.late = nil
}

func (w *spendingWorld) env() BudgetEnv {
	return BudgetEnv{Now: w.now, Live: w.live, Terms: Terms[budget.Terms]{w.terms, 1, "f"}}
}

// swap writes what a run needs.
func (w *spendingWorld) swap(r *spendingRun, giveBack, leave bool) {
	w.swapAnswered(r, giveBack, leave, rapid.IntRange(0, 9).Draw(w.T, "answer"))
}

func (w *spendingWorld) swapAnswered(r *spendingRun, giveBack, leave bool, answer int) {
	if !r.online {
		return
	}
	r.ledger.Advance(w.local(r), w.moment)
	if giveBack || leave {
		r.ledger.GiveBack(leave)
	}
	next, over, ok := r.side.Swap(BudgetAsk{Demand: r.ledger.Demand(), Return: giveBack, Leave: leave}, w.env())
	if !ok {
		return
	}
	l := lateWrite{next.Encode(), over}
	switch answer {
	case 0: // done, and the answer is lost
		w.write(l)
		r.online = false
	case 1: // perhaps done later
		w.late = append(w.late, l)
		r.online = false
	default:
		if w.write(l) {
			w.learn(r)
		}
	}
}

func (w *spendingWorld) deliver(r *spendingRun) {
	r.ledger.Advance(w.local(r), w.moment)
	d := &spending{
		estimate: rapid.Int64Range(1, 200).Draw(w.T, "estimate"), actual: rapid.Int64Range(1, 400).Draw(w.T, "actual"),
		taken: w.moment, run: r.name, account: r.side.rec.Number,
	}
	if w.exact {
		d.actual = min(d.actual, d.estimate)
	}
	if r.ledger.Opens(d.estimate) != 0 {
		r.ledger.Request(d.estimate)
		return
	}
	require.LessOrEqual(w, r.ledger.State().Used+d.estimate, r.side.rec.total(), "as far as the run knows")
	r.ledger.Take(d.estimate)
	r.ledger.Request(0)
	w.seen.deliveries++
	w.spent[d.account] += d.estimate
	w.flying = append(w.flying, d)
	under := int64(0)
	for _, f := range w.flying {
		if f.run == r.name && f.account == d.account {
			under += f.under()
		}
	}
	r.last[d.account] = under
}

// finish ends a delivery. The deliveries of a process that has ended end at a later one.
func (w *spendingWorld) finish() {
	if len(w.flying) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.flying)-1).Draw(w.T, "which")
	d := w.flying[i]
	w.flying = append(w.flying[:i], w.flying[i+1:]...)
	var own *spendingRun
	for _, r := range w.runs {
		if r.name == d.run {
			own = r
		}
	}
	switch how := rapid.SampledFrom([]string{"ack", "nack", "undo"}).Draw(w.T, "how"); {
	case how == "ack":
		w.spent[d.account] += d.actual - d.estimate
		if own != nil {
			own.ledger.Correct(d.taken, d.actual-d.estimate)
			own.ledger.Request(0)
		} else if len(w.runs) > 0 && d.under() > 0 {
			w.runs[0].ledger.Overrun(d.under())
		}
	case how == "undo" && own != nil:
		w.spent[d.account] -= d.estimate
		own.ledger.Undo(d.taken, d.estimate)
	}
}

func (w *spendingWorld) check() {
	for account, spent := range w.spent {
		bound := w.totals[account]
		for _, r := range w.all {
			bound += r.last[account]
		}
		require.LessOrEqual(w, spent, bound, "account %d", account)
		if spent >= w.totals[account] {
			w.seen.spent++
		}
	}
}

func (w *spendingWorld) step() {
	if len(w.runs) == 0 || len(w.runs) < 4 && rapid.IntRange(0, 20).Draw(w.T, "another") == 0 {
		w.runs = append(w.runs, w.start())
	}
	i := rapid.IntRange(0, len(w.runs)-1).Draw(w.T, "run")
	r := w.runs[i]
	w.moment += uint64(rapid.IntRange(0, 1).Draw(w.T, "moment"))
	if !r.online && rapid.IntRange(0, 3).Draw(w.T, "back") == 0 {
		w.join(r)
	}
	if rapid.IntRange(0, 3).Draw(w.T, "ordinary") > 0 {
		w.deliver(r)
		if rapid.IntRange(0, 3).Draw(w.T, "at once") > 0 {
			w.swap(r, false, false)
			for range rapid.IntRange(1, 8).Draw(w.T, "deliveries") {
				w.deliver(r)
			}
		}
		if rapid.Bool().Draw(w.T, "a delivery ends") {
			w.finish()
		}
		return
	}
	switch rapid.IntRange(15, 29).Draw(w.T, "what") {
	case 15, 16:
		w.swap(r, false, false)
	case 17:
		w.seen.returns++
		w.swap(r, true, false)
	case 21: // a part is given back by a write that is late, and others want it
		w.swapAnswered(r, true, false, 1)
		w.join(r)
		for range 8 {
			w.deliver(r)
		}
		w.land()
		other := w.runs[rapid.IntRange(0, len(w.runs)-1).Draw(w.T, "other")]
		for range 8 {
			w.join(other)
			w.deliver(other)
			w.swapAnswered(other, false, false, 9)
		}
	case 18, 19, 20:
		w.learn(r)
	case 22: // another process takes over
		w.runs = append(w.runs[:i], w.runs[i+1:]...)
	case 23: // a clean stop
		w.swap(r, false, true)
		w.runs = append(w.runs[:i], w.runs[i+1:]...)
		w.seen.stops++
	case 24:
		r.frozen = !r.frozen
	case 25:
		w.now += rapid.Int64Range(0, int64(20*time.Minute)).Draw(w.T, "time")
	case 26:
		switch rapid.IntRange(0, 9).Draw(w.T, "clock") {
		case 0:
			w.now += rapid.Int64Range(-int64(50*24*time.Hour), int64(40*24*time.Hour)).Draw(w.T, "the server's clock is set")
		case 1:
			_, end := w.terms.Around(w.now)
			w.now = end - rapid.Int64Range(0, 2).Draw(w.T, "about the end")
		case 2:
			r.skew = rapid.Int64Range(-int64(48*time.Hour), int64(48*time.Hour)).Draw(w.T, "skew")
			r.ledger.Join(r.side.Part(r.skew), w.local(r), w.moment)
		}
	case 27:
		w.land()
	case 28:
		if r.online {
			topUp := rapid.Int64Range(1, 500).Draw(w.T, "top-up")
			r.side.Change(topUp)
			w.swap(r, false, false)
		}
	case 29:
		if r.online && rapid.IntRange(0, 5).Draw(w.T, "rarely") == 0 {
			r.side.Change(0)
			w.swap(r, false, false)
		}
	}
}

// In a thousand histories with kills, takeovers, frozen processes, clocks that are set, and writes that are
// lost or late, the costs of every account exceed amount and top-ups at most by what was underestimated
// of the deliveries in flight at the last delivery of each process.
func TestASharedBudgetIsExceededByUnderestimatesAlone(t *testing.T) {
	var seen [5]int
	check := func(t *rapid.T) {
		w := &spendingWorld{
			T: t, spent: make(map[uint64]int64), totals: make(map[uint64]int64), moment: 5, exact: rapid.Bool().Draw(t, "exact"),
			now: rapid.Int64Range(0, int64(20*365*24*time.Hour)).Draw(t, "now") + 1_700_000_000e9,
			terms: budget.Terms{
				Amount: rapid.Int64Range(1, 6000).Draw(t, "amount"),
				Period: budget.Period{Unit: rapid.SampledFrom([]budget.Unit{budget.Hour, budget.Day, budget.Month}).Draw(t, "unit"), Zone: "Europe/Berlin"},
			},
		}
		for range rapid.IntRange(50, 300).Draw(t, "steps") {
			w.step()
		}
		w.check()
		for i, n := range []int{w.seen.deliveries, w.seen.stops, w.seen.returns, w.seen.folded, w.seen.spent} {
			seen[i] += n
		}
	}
	for range 10 { // rapid checks 100 histories each time
		rapid.Check(t, check)
	}
	t.Logf("%d deliveries, %d clean stops, %d parts given back, %d counted as used, %d accounts used up", seen[0], seen[1], seen[2], seen[3], seen[4])
	for _, n := range seen {
		require.Positive(t, n)
	}
}

// budgetRig is a record that instances write one after the other.
type budgetRig struct {
	*testing.T
	rec   Budget
	env   BudgetEnv
	dead  map[string]bool
	terms budget.Terms
}

func newBudgetRig(t *testing.T) *budgetRig {
	r := &budgetRig{T: t, dead: make(map[string]bool)}
	r.terms = budget.Terms{Amount: 64_000, Period: budget.Period{Unit: budget.Day}, WarnAt: [budget.MaxWarnings]int16{500}}
	r.env = BudgetEnv{Now: 1_795_000_000e9, Live: func(name string) bool { return !r.dead[name] }}
	return r
}

// write writes what an instance with a use of the present account needs.
func (r *budgetRig) write(a BudgetAsk) (part int64) {
	r.Helper()
	r.env.Terms = Terms[budget.Terms]{r.terms, 1, a.By}
	a.Demand.Number = r.rec.Number
	next, _ := r.rec.Apply(a, r.env)
	back, err := DecodeBudget(next.Encode())
	require.NoError(r, err)
	require.Equal(r, next, back)
	r.rec = next
	return next.Parts[a.By].Booked
}

func TestDecodeRefusesBudgets(t *testing.T) {
	const good = `{"v":1,"made":1,"version":1,"number":1,"start":1,"end":2,"terms":{"amount":1000,"unit":2},"terms_by":"a"}`
	b, err := DecodeBudget([]byte(good))
	require.NoError(t, err)
	for old, with := range map[string]string{
		`"v":1`: `"v":0`, `"made":1`: `"made":0`, `"version":1`: `"version":0`, `"number":1`: `"number":0`, `"end":2`: `"end":1`,
		`"terms_by":"a"`: `"terms_by":""`, `"amount":1000`: `"amount":0`, `"unit":2`: `"unit":0`,
		`"start":1`: `"start":1,"gone":-1`, `"terms"`: `"warned":5,"terms"`, `"number"`: `"parts":{"a":{"booked":-1}},"number"`,
		`"start":1,"end":2`: `"start":1,"end":9200000000000000000`, `"start":1,`: `"start":-9200000000000000000,`,
	} {
		_, err := DecodeBudget([]byte(strings.Replace(good, old, with, 1)))
		require.Error(t, err, with)
	}
	_, err = DecodeBudget([]byte(`{"v":2}`))
	require.ErrorIs(t, err, ErrVersion)
	_, err = DecodeBudget(make([]byte, maxRecordBytes+1))
	require.Error(t, err)
	require.False(t, b.Idle(2))
}

// FuzzDecodeBudget: whatever the bucket contains, the rule leaves a readable record.
func FuzzDecodeBudget(f *testing.F) {
	f.Add([]byte(`{"v":1,"made":1,"version":1,"number":9,"start":1,"end":2,"added":5,"gone":7,"parts":{"a":{"booked":3,"asks":1,"seen":4}},"terms":{"amount":1000,"unit":2},"terms_by":"a"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := DecodeBudget(data)
		if err != nil {
			return
		}
		again, err := DecodeBudget(b.Encode())
		require.NoError(t, err)
		require.Equal(t, b, again)
		env := BudgetEnv{Now: 1_795_000_000e9, Live: everybody}
		for _, a := range []BudgetAsk{
			{By: "a", Demand: budget.Demand{Number: b.Number, Cost: budget.MaxAmount}},
			{By: "a", Demand: budget.Demand{Number: b.Number, Used: 2 * budget.MaxAmount, Short: 1}},
			{By: "a", Forfeit: true},
			{By: "a", Leave: true, Demand: budget.Demand{Number: b.Number}},
			{By: "b", Changes: []BudgetChange{{1, budget.MaxAmount}, {2, 0}}},
		} {
			next, _ := b.Apply(a, env)
			_, err := DecodeBudget(next.Encode())
			require.NoError(t, err, "%+v", a)
		}
	})
}

// Parts are ahead of the use by up to 1/64 of the amount, and shrink near its end, so that all can use it.
func TestPartsOfABudgetShrink(t *testing.T) {
	r := newBudgetRig(t)
	require.EqualValues(t, 1000, r.write(BudgetAsk{By: "a", Demand: budget.Demand{Cost: 1}}))
	require.EqualValues(t, 1000, r.write(BudgetAsk{By: "b", Demand: budget.Demand{Cost: 1}}))
	require.EqualValues(t, 62_500, r.write(BudgetAsk{By: "a", Demand: budget.Demand{Used: 1000, Cost: 61_500}}), "as much as a message costs")
	require.EqualValues(t, 1000+125, r.write(BudgetAsk{By: "b", Demand: budget.Demand{Used: 1000, Cost: 1}}), "a quarter of what two have left")
	require.EqualValues(t, 62_500+93, r.write(BudgetAsk{By: "a", Demand: budget.Demand{Used: 62_500, Ahead: true}}))
	require.EqualValues(t, 1125, r.write(BudgetAsk{By: "b", Demand: budget.Demand{Used: 1100, Short: 40_000}}))
	require.EqualValues(t, 70, r.rec.fair(), "nobody can give so much back")
	require.EqualValues(t, 1125, r.write(BudgetAsk{By: "b", Demand: budget.Demand{Used: 1100, Short: 400}}))
	require.EqualValues(t, 62_600, r.write(BudgetAsk{By: "a", Demand: budget.Demand{Used: 62_590, Cost: 10}}), "another one waits for more than there is left")
	require.EqualValues(t, 62_590, r.write(BudgetAsk{By: "a", Return: true, Demand: budget.Demand{Used: 62_590}}))
	require.EqualValues(t, 62_900, r.write(BudgetAsk{By: "a", Demand: budget.Demand{Used: 62_900}}), "what has cost more is in the record at once")
}

// The part of an instance counts as used when it is gone; a clean stop returns the rest. The next period
// forgets all of it.
func TestPartsOfInstancesThatEnd(t *testing.T) {
	r := newBudgetRig(t)
	r.write(BudgetAsk{By: "a", Demand: budget.Demand{Cost: 600}})
	r.write(BudgetAsk{By: "b", Demand: budget.Demand{Cost: 600}})
	r.write(BudgetAsk{By: "b", Leave: true, Demand: budget.Demand{Used: 600}})
	require.EqualValues(t, 600, r.rec.Gone)
	r.dead["a"] = true
	r.write(BudgetAsk{By: "c", Demand: budget.Demand{Cost: 1}})
	require.EqualValues(t, 1600, r.rec.Gone)
	require.Len(t, r.rec.Parts, 1)
	first := r.rec
	r.env.Now = first.End
	require.EqualValues(t, 1000, r.write(BudgetAsk{By: "c", Demand: budget.Demand{Used: 1000, Cost: 1}}))
	require.Zero(t, r.rec.Gone)
	require.Equal(t, first.End, r.rec.Start)
	r.env.Now = first.Start
	r.write(BudgetAsk{By: "c", Demand: budget.Demand{Used: 1000, Cost: 1}})
	require.Equal(t, first.End, r.rec.Start, "a period never begins again")
	require.False(t, r.rec.Idle(r.rec.End+int64(time.Hour)))
	require.True(t, r.rec.Idle(r.rec.End+int64(25*time.Hour)))
}

// Newer terms keep what is booked, also of another period. Top-ups and warnings are of the account, and each
// change by hand counts once.
func TestTermsAndChangesOfASharedBudget(t *testing.T) {
	r := newBudgetRig(t)
	r.write(BudgetAsk{By: "a", Demand: budget.Demand{Cost: 40_000}})
	r.write(BudgetAsk{By: "a", Demand: budget.Demand{Used: 40_000, Warned: 1}})
	require.Equal(t, 1, r.rec.Warned)
	topUp := BudgetAsk{By: "b", Changes: []BudgetChange{{1, 64_000}}}
	r.write(topUp)
	r.write(topUp)
	require.EqualValues(t, 64_000, r.rec.Added)
	require.Zero(t, r.rec.Warned, "half of it is not used")
	r.terms.Period.Unit, r.terms.Amount = budget.Hour, 40_000
	r.env.Terms.At = 2
	next, changed := r.rec.Apply(BudgetAsk{By: "a", Demand: budget.Demand{Number: r.rec.Number, Used: 40_000}}, BudgetEnv{Now: r.env.Now, Live: r.env.Live, Terms: Terms[budget.Terms]{r.terms, 2, "a"}})
	require.True(t, changed)
	start, end := r.terms.Around(r.env.Now)
	require.Equal(t, []int64{start, end, 40_000}, []int64{next.Start, next.End, next.booked()})
	require.Equal(t, r.rec.Number, next.Number)
	r.rec = next
	r.terms.Amount = 1 // older terms
	r.write(BudgetAsk{By: "b", Changes: []BudgetChange{{2, 0}}})
	require.EqualValues(t, 40_000, r.rec.total())
	require.Zero(t, r.rec.booked(), "a reset")
	require.Greater(t, r.rec.Number, next.Number)
}

// When the bucket has lost records, the instances add what they knew.
func TestABudgetThatTheBucketHasLost(t *testing.T) {
	r := newBudgetRig(t)
	write := func(s *Spender, rev *uint64, d budget.Demand) {
		d.Number, d.Ledger = s.rec.Number, 1
		next, over, ok := s.Swap(BudgetAsk{Demand: d}, r.env)
		require.True(t, ok)
		require.Equal(t, *rev, over)
		*rev++
		r.rec = next
		s.Learn(*rev, next)
	}
	r.env.Terms = Terms[budget.Terms]{r.terms, 1, "a"}
	a, b, rev := NewSpender("a"), NewSpender("b"), uint64(0)
	a.Join(r.env.Now, 0, Budget{})
	write(a, &rev, budget.Demand{Cost: 10_000})
	earlier := r.rec
	b.Join(r.env.Now, rev, r.rec)
	write(b, &rev, budget.Demand{Cost: 20_000})
	a.Learn(rev, r.rec)
	write(a, &rev, budget.Demand{Used: 10_000, Cost: 5000})

	for name, lost := range map[string]Budget{"the newest records": earlier, "all records": {}} {
		b, rev := *b, uint64(1)
		b.Join(r.env.Now, rev, lost)
		require.EqualValues(t, 20_000, b.Part(0).Booked, name)
		require.EqualValues(t, 10_000, b.Part(0).Others, "as far as it knew")
		write(&b, &rev, budget.Demand{Used: 20_000})
		require.EqualValues(t, 30_000, r.rec.booked())
		require.Nil(t, b.known)
	}

	r.rec = Budget{}
	begun, rev := NewSpender("c"), uint64(0) // by an instance that knew nothing
	r.env.Now++
	write(begun, &rev, budget.Demand{Cost: 1000})
	a.Join(r.env.Now, rev, r.rec)
	require.EqualValues(t, 0, a.Part(0).Booked)
	require.EqualValues(t, 35_000+1000, a.Part(0).Others)
	write(a, &rev, budget.Demand{Cost: 2000})
	b.Join(r.env.Now, rev, r.rec)
	require.EqualValues(t, 35_000+1000+2000, b.Part(0).Others, "once")
}
