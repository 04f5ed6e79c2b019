package throttle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle/budget"
)

// bank is a disk that a test writes to when it wants.
type bank struct {
	disk    map[string]budget.Record
	pending map[string]budget.Booking
	writes  int
	warned  []int16
}

func (b *bank) KeepBooking(key string, k budget.Booking)  { b.pending[key] = k; b.writes++ }
func (b *bank) Warn(_ string, part int16, _ budget.State) { b.warned = append(b.warned, part) }
func newBank() *bank {
	return &bank{disk: make(map[string]budget.Record), pending: make(map[string]budget.Booking)}
}

func (b *bank) later(key string) func(budget.Booking, budget.State) {
	return func(k budget.Booking, _ budget.State) { b.KeepBooking(key, k) }
}

// write writes everything, and returns who has to be woken.
func (b *bank) write(g *Gates, now int64) (wake []*Wait) {
	for key, k := range b.pending {
		b.disk[key] = k.Record
		delete(b.pending, key)
		wake = g.Booked(key, k.Number, true, now, wake)
	}
	return wake
}

var daily = Limits{Budget: budget.Terms{Amount: 10 * One, Period: budget.Period{Unit: budget.Day, Zone: "Europe/Berlin"}, WarnAt: [budget.MaxWarnings]int16{800}}}

const (
	noon     = int64(1_795_000_000e9) // 18 November 2026, about noon
	midnight = int64(1_795_042_800e9) // in Berlin
)

func newBudgets(t *testing.T, b *bank, now int64) *Gates {
	t.Helper()
	g := New(Start{}, now)
	kept := make(map[string]budget.Record)
	for key, r := range b.disk {
		kept[key] = r
	}
	g.Bank(b, kept)
	_, err := g.SetPrefix("tenant:", daily, now, nil)
	require.NoError(t, err)
	return g
}

func openSet(t *testing.T, g *Gates, now int64, keys ...string) *Set {
	t.Helper()
	s, err := g.Set(keys, now)
	require.NoError(t, err)
	t.Cleanup(func() { g.Close(s, now) })
	return s
}

// acquire admits a message once what it needs is on disk.
func (b *bank) acquire(t *testing.T, g *Gates, s *Set, now, cost int64) Grant {
	t.Helper()
	grant, block, ok := s.Acquire(now, cost, nil)
	if !ok {
		require.Equal(t, ByBudget, block.Kind)
		require.EqualValues(t, Never, block.At, "it waits for the disk")
		b.write(g, now)
		grant, block, ok = s.Acquire(now, cost, nil)
	}
	require.True(t, ok, block.Kind)
	return grant
}

// A gate that a reservation has collected before it got a budget counts the message once.
func TestAReservedGateGetsABudget(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	limit := func(key string, l Limits) {
		_, err := g.SetLimits(key, l, noon, nil)
		require.NoError(t, err)
	}
	limit("collected", Limits{Concurrency: 5})
	limit("missing", Limits{Concurrency: 1})
	s, busy := openSet(t, g, noon, "collected", "missing"), openSet(t, g, noon, "missing")
	other, _, ok := busy.Acquire(noon, One, nil)
	require.True(t, ok)
	r, ok := g.Reserve(s, One)
	require.True(t, ok)
	_, block, _ := r.Acquire(noon, nil, nil)
	require.Equal(t, ByInFlight, block.Kind)
	limit("collected", Limits{Concurrency: 5, Budget: daily.Budget})
	busy.Release(&other, noon, nil)
	_, block, _ = r.Acquire(noon, nil, nil)
	require.Equal(t, ByBudget, block.Kind, "it waits for the disk")
	b.write(g, noon)
	grant, _, _ := r.Acquire(noon, nil, nil)
	require.True(t, grant.Active())
	info := s.Gates()[0].Info(noon)
	require.EqualValues(t, 1, info.InFlight)
	require.EqualValues(t, One, info.Spending.Used)
	s.Release(&grant, noon, nil)
	info = s.Gates()[0].Info(noon)
	require.Zero(t, info.InFlight+info.Reserved)
}

// A message that went while its key had no budget returns nothing to it.
func TestNoRefundOfWhatWasNotTaken(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	s := openSet(t, g, noon, "k")
	at := noon
	limit := func(l Limits) {
		at++
		_, err := g.SetLimits("k", l, at, nil)
		require.NoError(t, err)
	}
	limit(daily)
	b.acquire(t, g, s, at, 4*One)
	b.write(g, at)
	limit(Limits{Concurrency: 9})
	var without [2]Grant
	for i := range without {
		without[i], _, _ = s.Acquire(at, 2*One, nil)
		require.True(t, without[i].Active())
	}
	limit(daily)
	s.Undo(&without[0], at, nil)
	s.ReleaseCorrected(&without[1], -One, at, nil)
	require.Equal(t, 4*int64(One), must(g.Budget("k", at)).Used)
	grant := b.acquire(t, g, s, at, One)
	s.Undo(&grant, at, nil)
	require.Equal(t, 4*int64(One), must(g.Budget("k", at)).Used)
}

// A budget that is removed while a booking is on its way, and set again, admits messages.
func TestBookingOfARemovedBudget(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	s := openSet(t, g, noon, "k")
	for _, l := range []Limits{daily, {Concurrency: 1}} {
		_, err := g.SetLimits("k", l, noon, nil)
		require.NoError(t, err)
		s.Acquire(noon, One, nil)
	}
	require.NotEmpty(t, b.pending)
	b.write(g, noon)
	_, err := g.SetLimits("k", daily, noon, nil)
	require.NoError(t, err)
	grant := b.acquire(t, g, s, noon, 5*One)
	require.True(t, grant.Active())
}

func TestBudgetHolds(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	s, other := openSet(t, g, noon, "tenant:a"), openSet(t, g, noon, "tenant:b")
	var first Grant
	for i := range 10 {
		grant := b.acquire(t, g, s, noon, One)
		if i == 0 {
			first = grant
		}
		b.write(g, noon)
	}
	require.Equal(t, []int16{800}, b.warned)
	w := NewWait(s.Gates()[0], "queue")
	_, block, ok := s.Acquire(noon, One, "queue")
	require.False(t, ok)
	require.Equal(t, Block{Gate: s.Gates()[0], Kind: ByBudget, At: midnight}, block)
	require.Equal(t, midnight, w.Join(noon, One))
	b.acquire(t, g, other, noon, One) // each key has its own

	require.Equal(t, []*Wait{w}, s.ReleaseCorrected(&first, -One/2, noon, nil))
	n, _ := w.Turn(noon)
	require.Positive(t, n, "half a message is left")
	_, block, _ = s.Acquire(noon, One, "queue")
	require.Equal(t, midnight, block.At)
	wake, ok := g.TopUpBudget("tenant:a", One, noon, b.later("tenant:a"), nil)
	require.True(t, ok)
	require.Equal(t, []*Wait{w}, wake)
	w.Turn(noon)
	b.write(g, noon)
	for try := range 2 {
		n, _ = w.Turn(noon)
		require.Positive(t, n)
		_, block, ok = s.Acquire(noon, One, "queue")
		require.Equal(t, try > 0, ok)
		if !ok {
			require.EqualValues(t, Never, block.At, "it is booked first")
			require.Equal(t, []*Wait{w}, b.write(g, noon), "the disk wakes")
		}
	}
	state, ok := g.Budget("tenant:a", noon)
	require.True(t, ok)
	require.Equal(t, budget.State{Terms: daily.Budget, Start: midnight - int64(24*time.Hour), End: midnight, Used: 10*One + One/2, Added: One}, state)
	b.acquire(t, g, s, midnight, One)
	require.Equal(t, int64(One), must(g.Budget("tenant:a", midnight)).Used, "a new day")
	w.Leave(nil)
}

func must(s budget.State, _ bool) budget.State { return s }

// The use of a budget outlives the gate of its key, a crash and a stop.
func TestBudgetIsKept(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	s, err := g.Set([]string{"tenant:a"}, noon)
	require.NoError(t, err)
	grant := b.acquire(t, g, s, noon, 4*One)
	s.Release(&grant, noon, nil)
	g.Close(s, noon)
	for range 3 {
		g.Full([]string{"x"}, 0, noon) // drops idle gates
	}
	_, awake := g.Find("tenant:a")
	require.False(t, awake)
	require.Equal(t, 4*int64(One), must(g.Budget("tenant:a", noon)).Used)

	b.write(g, noon)
	crashed := newBudgets(t, b, noon)
	used := must(crashed.Budget("tenant:a", noon)).Used
	require.True(t, used >= 4*One && used <= 4*One+One/4, "what was booked ahead is lost: %d", used)
	for key, r := range g.LedgersToKeep() {
		b.disk[key] = r
	}
	stopped := newBudgets(t, b, noon)
	require.Equal(t, 4*int64(One), must(stopped.Budget("tenant:a", noon)).Used)
	stopped.ForgetLedgers(noon, func(keys []string) { require.Fail(t, "the period goes on", "%v", keys) })
	var over []string
	stopped.ForgetLedgers(midnight, func(keys []string) { over = keys })
	require.Equal(t, []string{"tenant:a"}, over)
}

// A gate that nobody has used admits, although nothing of its budget is booked: the first message has that done.
func TestAnUnusedBudgetAdmits(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	s := openSet(t, g, noon, "tenant:a")
	i := s.Gates()[0].Info(noon)
	require.Equal(t, Open, i.Kind)
	require.EqualValues(t, noon, i.At)
	_, block, ok := s.Acquire(noon, One, nil)
	require.False(t, ok)
	require.Equal(t, ByBudget, block.Kind)
	require.True(t, block.Unbooked)
	i = s.Gates()[0].Info(noon)
	require.True(t, i.Kind == Open && i.Unbooked, "the disk is about to have it")
	_, block, _ = s.Acquire(noon, 11*One, nil)
	require.False(t, block.Unbooked, "there is not so much")
	b.write(g, noon)
	b.acquire(t, g, s, noon, 9*One+One/2)
	i = s.Gates()[0].Info(noon)
	require.Equal(t, ByBudget, i.Kind, "half a message is left")
	require.EqualValues(t, midnight, i.At)
}

// A queue whose messages cost less than 1 gets the last part of the budget, too.
func TestBudgetOfSmallCosts(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	s := openSet(t, g, noon, "tenant:a")
	b.acquire(t, g, s, noon, 9*One+One/2)
	w := NewWait(s.Gates()[0], "queue")
	w.Join(noon, One)
	b.write(g, noon)
	n, _ := w.Turn(noon)
	require.Positive(t, n)
	b.acquire(t, g, s, noon, One/2)
	n, _ = w.Turn(noon)
	require.Zero(t, n)
	w.Leave(nil)
}

// A message that collects its gates one by one spends its budget when it goes.
func TestBudgetInAReservation(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	_, err := g.SetLimits("v", Limits{Concurrency: 1}, noon, nil)
	require.NoError(t, err)
	s, v := openSet(t, g, noon, "tenant:a", "v"), openSet(t, g, noon, "v")
	held, _, ok := v.Acquire(noon, One, nil)
	require.True(t, ok)
	r, ok := g.Reserve(s, 2*One)
	require.True(t, ok)
	_, _, _ = r.Acquire(noon, nil, nil)
	require.Zero(t, must(g.Budget("tenant:a", noon)).Used)
	v.Release(&held, noon, nil)
	_, block, _ := r.Acquire(noon, nil, nil)
	require.Equal(t, ByBudget, block.Kind)
	b.write(g, noon)
	grant, _, _ := r.Acquire(noon, nil, nil)
	require.True(t, grant.Active())
	require.Equal(t, 2*int64(One), must(g.Budget("tenant:a", noon)).Used)
	s.Undo(&grant, noon, nil)
	require.Zero(t, must(g.Budget("tenant:a", noon)).Used)
}

// After a failed write there is another one, not at once. A queue that waits learns when.
func TestBudgetAfterAFailedWrite(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	s := openSet(t, g, noon, "tenant:a")
	_, block, ok := s.Acquire(noon, One, nil)
	require.False(t, ok)
	require.Equal(t, ByBudget, block.Kind)
	w := NewWait(s.Gates()[0], "queue")
	require.Equal(t, int64(Never), w.Join(noon, One))
	wake := g.Booked("tenant:a", b.pending["tenant:a"].Number, false, noon, nil)
	require.Equal(t, []*Wait{w}, wake)
	delete(b.pending, "tenant:a")
	n, at := w.Turn(noon)
	require.Zero(t, n)
	require.Equal(t, noon+budget.RetryAfter, at)
	require.Empty(t, b.pending, "the disk is left alone for a while")
	n, at = w.Turn(at)
	require.Zero(t, n)
	require.Equal(t, int64(Never), at)
	require.Len(t, b.pending, 1)
	b.write(g, noon+budget.RetryAfter)
	n, _ = w.Turn(noon + budget.RetryAfter)
	require.Positive(t, n)
	w.Leave(nil)
}

// Large budgets cost few writes.
func TestBudgetWrites(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	large := daily
	large.Budget.Amount = 1_000_000 * One
	_, err := g.SetLimits("k", large, noon, nil)
	require.NoError(t, err)
	s := openSet(t, g, noon, "k")
	for range 100_000 {
		grant := b.acquire(t, g, s, noon, 10*One)
		s.Release(&grant, noon, nil)
		b.write(g, noon)
	}
	require.LessOrEqual(t, b.writes, 150)
	_, _, ok := s.Acquire(noon, 1, nil)
	require.False(t, ok)
}

// A forecast knows the end of the period, and spends nothing.
func TestBudgetInAForecast(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	s := openSet(t, g, noon, "tenant:a")
	b.acquire(t, g, s, noon, 8*One)
	gate := s.Gates()[0]
	require.Equal(t, Capacity{Messages: Unlimited, Cost: 2 * One}, gate.Capacity(noon, noon, midnight-1))
	require.Equal(t, Capacity{Messages: Unlimited, Cost: 12 * One}, gate.Capacity(noon, noon, midnight))
	trial := gate.Trial(noon)
	for range 2 {
		kind, _ := trial.Admits(noon, One)
		require.Equal(t, Open, kind)
		trial.Take(noon, One)
	}
	kind, at := trial.Admits(noon, One)
	require.Equal(t, ByBudget, kind)
	require.Equal(t, midnight, at)
	require.Equal(t, int64(10), trial.Room(midnight))
	require.Equal(t, 8*int64(One), must(g.Budget("tenant:a", noon)).Used)
}

// The use counts on under other limits, and without a budget nothing is counted.
func TestBudgetChanges(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	s := openSet(t, g, noon, "tenant:a")
	b.acquire(t, g, s, noon, 9*One)
	set := func(l Limits) {
		t.Helper()
		_, err := g.SetLimits("tenant:a", l, noon, nil)
		require.NoError(t, err)
	}
	set(Limits{Concurrency: 5})
	_, ok := g.Budget("tenant:a", noon)
	require.False(t, ok)
	_, _, ok = s.Acquire(noon, 5*One, nil)
	require.True(t, ok)
	more := daily
	more.Budget.Amount = 20 * One
	set(more)
	require.Equal(t, 9*int64(One), must(g.Budget("tenant:a", noon)).Used)
	_, ok = g.ResetBudget("tenant:a", noon, b.later("tenant:a"), nil)
	require.True(t, ok)
	require.Zero(t, must(g.Budget("tenant:a", noon)).Used)
	b.write(g, noon)
	b.acquire(t, g, s, noon, 20*One)
	for _, bad := range []budget.Terms{{Amount: -1}, {Amount: 1}, {Period: daily.Budget.Period}, {Amount: 1, Period: budget.Period{Unit: budget.Day, Zone: "x"}}} {
		_, err := g.SetLimits("tenant:a", Limits{Budget: bad}, noon, nil)
		require.ErrorIs(t, err, ErrLimits)
	}
}

// A key refuses while less is left of its budget than a message costs: also one that has no gate any more, and
// until the last period of several keys ends.
func TestRefuses(t *testing.T) {
	b := newBank()
	g := newBudgets(t, b, noon)
	_, _, refused := g.Refuses([]string{"tenant:a"}, 11*One, noon)
	require.False(t, refused, "nothing says that it refuses")
	refuses := daily
	refuses.OnEmpty = Refuse
	_, err := g.SetPrefix("tenant:", refuses, noon, nil)
	require.NoError(t, err)
	monthly := refuses
	monthly.Budget.Unit = budget.Month
	_, err = g.SetLimits("tenant:month", monthly, noon, nil)
	require.NoError(t, err)
	s, err := g.Set([]string{"tenant:a"}, noon)
	require.NoError(t, err)
	grant := b.acquire(t, g, s, noon, 9*One)
	_, _, refused = g.Refuses([]string{"other", "tenant:a", "tenant:month"}, One, noon)
	require.False(t, refused)
	for range 2 {
		key, until, refused := g.Refuses([]string{"other", "tenant:a", "tenant:month"}, One+1, noon)
		require.True(t, refused)
		require.Equal(t, "tenant:a", key)
		require.Equal(t, midnight, until)
		if grant.Active() {
			s.Release(&grant, noon, nil)
			g.Close(s, noon)
			for range 10 { // until the gate is dropped
				other, err := g.Set([]string{"other"}, noon)
				require.NoError(t, err)
				g.Close(other, noon)
			}
			_, ok := g.Find("tenant:a")
			require.False(t, ok)
		}
	}
	key, until, _ := g.Refuses([]string{"tenant:month", "tenant:a"}, 11*One, noon)
	require.Equal(t, "tenant:month", key)
	require.Greater(t, until, midnight)
	_, _, refused = g.Refuses([]string{"tenant:a"}, 10*One, midnight)
	require.False(t, refused, "a new period")
}
