package throttle

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lender is a fleet that shares keys with a prefix, and records requests.
type lender struct {
	parts    int64
	requests []string
	budgets  []string // of RequestBudget
}

func (f *lender) Begin(key string) (bool, int64) { return strings.HasPrefix(key, "s:"), f.parts }
func (f *lender) Request(key string)             { f.requests = append(f.requests, key) }
func (f *lender) SharesBudget(key string) bool   { return strings.HasPrefix(key, "s:") }
func (f *lender) RequestBudget(key string)       { f.budgets = append(f.budgets, key) }

const msec = 1_000_000

// shared returns a registry with the shared key s:a with limits, and its set.
func shared(t *testing.T, f *lender, l Limits) (*Gates, *Set) {
	t.Helper()
	g := New(Start{}, 0)
	g.Share(f)
	prefix(t, g, "", l, 0)
	s := set(t, g, "s:a")
	return g, s
}

func passes(t *testing.T, s *Set, now int64) Grant {
	t.Helper()
	grant, b, ok := s.Acquire(now, One, nil)
	require.True(t, ok, "blocked by %s", b.Kind)
	return grant
}

func refuses(t *testing.T, s *Set, now int64, kind Kind) {
	t.Helper()
	_, b, ok := s.Acquire(now, One, nil)
	require.False(t, ok)
	require.Equal(t, kind, b.Kind)
	require.Equal(t, int64(Never), b.At, "nothing but the fleet opens it")
}

var everyLimit = Limits{Rate: PerSecond(10 * One), Burst: 10 * One, Limit: 8, Window: second, Concurrency: 6}

func TestSharedGateIsShutUntilTold(t *testing.T) {
	f := &lender{}
	g, s := shared(t, f, everyLimit)
	refuses(t, s, 0, ByInFlight)
	refuses(t, s, 0, ByInFlight)
	require.Equal(t, []string{"s:a"}, f.requests, "once until Needs")
	n, ok := g.Needs("s:a", 0)
	require.True(t, ok)
	require.Equal(t, Needs{Limits: everyLimit, Cost: One, Tokens: true, Slots: true, Place: true}, n)
	n, _ = g.Needs("s:a", 0)
	require.Equal(t, Needs{Limits: everyLimit}, n, "no queue waits")

	other := set(t, g, "b")
	passes(t, other, 0)
	_, ok = g.Needs("b", 0)
	require.False(t, ok, "it is not shared")
	require.Len(t, f.requests, 1)
}

// A waiting queue was refused by one of several limits, and its leases of the others end
// before the missing one arrives.
func TestNeedsOfWhatHasEnded(t *testing.T) {
	all := Lease{Tokens: One, Slots: 1}
	for name, lacks := range map[string]Lease{"tokens": {Slots: 1}, "slots": {Tokens: One}} {
		t.Run(name, func(t *testing.T) {
			for _, givenUp := range []bool{true, false} {
				g, s := shared(t, &lender{}, Limits{Rate: PerSecond(10 * One), Limit: 8, Window: second})
				w := NewWait(s.Gates()[0], "q")
				first := Lease{Tokens: all.Tokens - lacks.Tokens, Slots: all.Slots - lacks.Slots, Until: 100 * msec}
				g.AddLease("s:a", first, 0, 0, nil)
				_, _, ok := s.Acquire(0, One, nil)
				require.False(t, ok)
				require.Equal(t, int64(Never), w.Join(0, One))
				n, _ := g.Needs("s:a", 0)
				require.Equal(t, [2]bool{lacks.Tokens > 0, lacks.Slots > 0}, [2]bool{n.Tokens, n.Slots})
				now := int64(100 * msec)
				if givenUp {
					now = 60 * msec
					require.Len(t, g.ReturnLeases("s:a", now, 50*msec), 1)
				}
				lacks.Until = 200 * msec
				require.Empty(t, g.AddLease("s:a", lacks, 0, now, nil), "there is nothing to do yet")
				n, _ = g.Needs("s:a", now)
				require.Equal(t, [2]bool{first.Tokens > 0, first.Slots > 0}, [2]bool{n.Tokens, n.Slots}, "what has ended is wanted again")
				first.Until = 200 * msec
				require.Equal(t, []*Wait{w}, g.AddLease("s:a", first, 0, now, nil))
			}
		})
	}
}

// The lease for a refused guest arrives after it has gone, and serves the next one. In the
// end the gate is dropped.
func TestSharedGateRests(t *testing.T) {
	f := &lender{}
	g, s := shared(t, f, Limits{Concurrency: 6})
	refuses(t, s, 0, ByInFlight)
	g.Close(s, 0)
	n, ok := g.Needs("s:a", 0)
	require.True(t, ok && n.Place)
	g.AddLease("s:a", Lease{}, 1, msec, nil)
	s = setAt(t, g, 200*msec, "s:a")
	grant := passes(t, s, 200*msec)
	s.Release(&grant, 300*msec, nil)
	g.Close(s, 300*msec)
	_, ok = g.Needs("s:a", 30*second)
	require.True(t, ok)
	f.requests = nil
	other := setAt(t, g, 61*second, "b")
	g.Close(other, 61*second)
	_, ok = g.Needs("s:a", 61*second)
	require.False(t, ok)
	require.Equal(t, []string{"s:a"}, f.requests, "the fleet is notified that it is used no more")
}

func TestSharedGateAdmitsLeases(t *testing.T) {
	for name, tc := range map[string]struct {
		limits  Limits
		lease   Lease
		permits int64
		kind    Kind
	}{
		"tokens":  {Limits{Rate: PerSecond(10 * One)}, Lease{Tokens: 2 * One}, 0, ByRate},
		"slots":   {Limits{Limit: 8, Window: second}, Lease{Slots: 2}, 0, ByWindow},
		"permits": {Limits{Concurrency: 6}, Lease{}, 2, ByInFlight},
		"all":     {everyLimit, Lease{Tokens: 9 * One, Slots: 2}, 9, ByWindow},
	} {
		t.Run(name, func(t *testing.T) {
			g, s := shared(t, &lender{}, tc.limits)
			w := NewWait(s.Gates()[0], "q")
			require.Equal(t, int64(Never), w.Join(0, One))
			tc.lease.Until = 100 * msec
			require.Equal(t, []*Wait{w}, g.AddLease("s:a", tc.lease, tc.permits, 0, nil), "the waiter is notified")
			n, _ := w.Turn(0)
			require.Equal(t, int64(2), n)
			w.Leave(nil)
			passes(t, s, 50*msec)
			grant := passes(t, s, 50*msec)
			refuses(t, s, 50*msec, tc.kind)
			s.Undo(&grant, 60*msec, nil)
			grant = passes(t, s, 99*msec)
			refuses(t, s, 99*msec, tc.kind)
			s.Undo(&grant, 100*msec, nil)
			if tc.kind == ByInFlight {
				passes(t, s, 100*msec) // permits do not end
				return
			}
			if tc.limits.Rate != (Rate{}) {
				tc.kind = ByRate
			}
			refuses(t, s, 100*msec, tc.kind)
		})
	}
}

// Leases that ended before they were used up, arrived after their end, or made room for a
// third one are returned.
func TestEndedLeases(t *testing.T) {
	f := &lender{}
	g, s := shared(t, f, Limits{Rate: PerSecond(10 * One)})
	g.AddLease("s:a", Lease{Tokens: 3 * One, Leased: 1, Until: 100 * msec}, 0, 0, nil)
	passes(t, s, 10*msec)
	refuses(t, s, 100*msec, ByRate)
	g.AddLease("s:a", Lease{Tokens: One, Slots: 2, Leased: 2, Until: 90 * msec}, 0, 110*msec, nil)
	refuses(t, s, 110*msec, ByRate)
	for leased := range 3 {
		g.AddLease("s:a", Lease{Tokens: One, Leased: int64(3 + leased), Until: 200 * msec}, 0, 120*msec, nil)
	}
	require.Equal(t, []Lease{
		{Tokens: 2 * One, Leased: 1, Until: 100 * msec},
		{Tokens: One, Slots: 2, Leased: 2, Until: 90 * msec},
		{Tokens: One, Leased: 3, Until: 200 * msec},
	}, g.ReturnLeases("s:a", 120*msec, 50*msec))
	require.Empty(t, g.ReturnLeases("s:a", 120*msec, 50*msec))
	passes(t, s, 120*msec)
	passes(t, s, 120*msec)
	for range 2 * maxEndedLeases {
		g.AddLease("s:a", Lease{Tokens: One, Until: 90 * msec}, 0, 130*msec, nil)
	}
	require.Len(t, g.ReturnLeases("s:a", 130*msec, 50*msec), maxEndedLeases)
}

func TestChunksOfTwoTimes(t *testing.T) {
	f := &lender{}
	g, s := shared(t, f, Limits{Rate: PerSecond(10 * One)})
	g.AddLease("s:a", Lease{Tokens: 2 * One, Until: 100 * msec}, 0, 0, nil)
	passes(t, s, 10*msec)
	require.Empty(t, f.requests)
	passes(t, s, 10*msec)
	require.Equal(t, []string{"s:a"}, f.requests, "less than half is left")
	n, _ := g.Needs("s:a", 10*msec)
	require.True(t, n.Tokens)
	require.Zero(t, n.Cost, "no queue waits for it")

	g.AddLease("s:a", Lease{Tokens: 2 * One, Leased: 1, Until: 100 * msec}, 0, 20*msec, nil)
	g.AddLease("s:a", Lease{Tokens: 2 * One, Leased: 2, Until: 150 * msec}, 0, 20*msec, nil)
	passes(t, s, 60*msec)
	require.Equal(t, []Lease{{Tokens: One, Leased: 1, Until: 100 * msec}}, g.ReturnLeases("s:a", 60*msec, 50*msec), "the older one is used first")
	passes(t, s, 99*msec)
	passes(t, s, 99*msec)
	refuses(t, s, 99*msec, ByRate)
	require.Empty(t, g.AddLease("s:a", Lease{Tokens: One, Until: 99 * msec}, 0, 99*msec, nil))
	refuses(t, s, 99*msec, ByRate) // it came too late
}

// An undo does not extend the life of tokens to a later lease.
func TestUndoGivesNothingToAnotherLease(t *testing.T) {
	g, s := shared(t, &lender{}, Limits{Rate: PerSecond(10 * One)})
	g.AddLease("s:a", Lease{Tokens: One, Until: 100 * msec}, 0, 0, nil)
	grant := passes(t, s, 10*msec)
	g.AddLease("s:a", Lease{Tokens: One, Until: 200 * msec}, 0, 100*msec, nil)
	s.Undo(&grant, 110*msec, nil)
	passes(t, s, 110*msec)
	refuses(t, s, 110*msec, ByRate)
}

func TestOwnedGateHandsOver(t *testing.T) {
	g, s := shared(t, &lender{}, everyLimit)
	state := State{Entries: []Entry{{Age: 500 * msec, Count: 2}}}
	five := int64(5 * One)
	state.Tokens = &five
	g.Own("s:a", &state, 0, nil)
	passes(t, s, 0)
	left, inFlight, ok := g.HandOver("s:a", 100*msec)
	require.True(t, ok)
	require.Equal(t, int64(1), inFlight)
	require.Equal(t, int64(5*One), *left.Tokens, "one was used, one has come")
	require.Equal(t, []Entry{{Age: 600 * msec, Count: 2}, {Age: 100 * msec, Count: 1}}, left.Entries)
	refuses(t, s, 100*msec, ByInFlight)
	_, _, ok = g.HandOver("s:a", 100*msec)
	require.False(t, ok)
	require.Equal(t, int64(1), g.Lower("s:a", 0, false), "a permit that is used stays")
}

func TestPermitsAreLowered(t *testing.T) {
	f := &lender{}
	g, s := shared(t, f, Limits{Concurrency: 6})
	g.AddLease("s:a", Lease{}, 4, 0, nil)
	one, two := passes(t, s, 0), passes(t, s, 0)
	require.Equal(t, int64(2), g.Lower("s:a", 1, true))
	refuses(t, s, 0, ByInFlight)
	g.Needs("s:a", 0)
	f.requests = nil
	s.Release(&one, 0, nil)
	require.Equal(t, []string{"s:a"}, f.requests)
	n, _ := g.Needs("s:a", 0)
	require.Equal(t, []any{int64(1), true}, []any{n.Permits, n.Crowded}, "it has ended with the flight")
	require.Equal(t, int64(1), g.Lower("s:a", 1, false))
	s.Release(&two, 0, nil)
	passes(t, s, 0)
	refuses(t, s, 0, ByInFlight)
}

func TestPartsOfRates(t *testing.T) {
	for _, of := range []int64{1, 2, 3, 5} {
		tokens := 0
		for range of {
			g, s := shared(t, &lender{}, Limits{Rate: PerSecond(30 * One), Burst: 30 * One})
			g.Part("s:a", of, 0, nil)
			for {
				grant, block, ok := s.Acquire(second, One, nil)
				if !ok {
					require.Equal(t, ByRate, block.Kind)
					require.LessOrEqual(t, block.At, second+second/30*of+of, "time brings the next one")
					break
				}
				s.Release(&grant, second, nil)
				tokens++
			}
		}
		require.Equal(t, 30, tokens, "rates of %d, after a second", of)
	}
}

// Another part begins with an empty bucket; the same part goes on.
func TestOtherPart(t *testing.T) {
	g, s := shared(t, &lender{}, Limits{Rate: PerSecond(4 * One), Burst: 4 * One})
	for range 2 {
		g.Part("s:a", 2, 0, nil)
	}
	g.Part("s:a", 2, second, nil)
	passes(t, s, second)
	g.Part("s:a", 4, second, nil)
	_, block, ok := s.Acquire(second, One, nil)
	require.False(t, ok)
	require.Equal(t, int64(2*second), block.At, "a quarter of 4 in a second")
}

// A part has the leased slots and permits and no others, since the fleet counts them.
func TestPartHasLeasedSlotsAndPermits(t *testing.T) {
	g, s := shared(t, &lender{}, Limits{Limit: 10, Window: second, Concurrency: 6})
	g.AddLease("s:a", Lease{Slots: 3, Until: 100 * msec}, 2, 0, nil)
	one := passes(t, s, 10*msec)
	g.Part("s:a", 2, 10*msec, nil)
	two := passes(t, s, 10*msec)
	refuses(t, s, 10*msec, ByInFlight)
	s.Undo(&two, 10*msec, nil)
	two = passes(t, s, 10*msec)
	s.Release(&one, 50*msec, nil)
	one = passes(t, s, 50*msec)
	s.Release(&two, 50*msec, nil)
	refuses(t, s, 50*msec, ByWindow)
	s.Release(&one, 50*msec, nil)
	refuses(t, s, 2*second, ByWindow)
	require.Equal(t, int64(0), g.Borrow("s:a", 2*second))
	n, _ := g.Needs("s:a", 2*second)
	require.True(t, n.Slots, "needs from the time without a fleet are requested now")
}

func TestGateThatBeginsWithoutItsFleet(t *testing.T) {
	_, s := shared(t, &lender{parts: 2}, Limits{Concurrency: 4})
	refuses(t, s, 0, ByInFlight)
	_, s = shared(t, &lender{parts: 2}, Limits{Limit: 4, Window: second})
	refuses(t, s, 0, ByWindow)
	_, s = shared(t, &lender{parts: 2}, Limits{Rate: PerSecond(4 * One), Burst: 4 * One})
	passes(t, s, 0)
	passes(t, s, 0)
	_, block, ok := s.Acquire(0, One, nil)
	require.False(t, ok)
	require.Equal(t, int64(second/2), block.At, "a half of 4 in a second")
}

// Limits that another process has set are in force until this one sets its own.
func TestLimitsThatWereSetElsewhere(t *testing.T) {
	g, s := shared(t, &lender{}, Limits{Concurrency: 4})
	g.Own("s:a", nil, 0, nil)
	w := NewWait(s.Gates()[0], "q")
	one := passes(t, s, 0)
	require.Empty(t, g.Adopt("s:a", Limits{Concurrency: 1}, 0, nil))
	require.Equal(t, Limits{Concurrency: 1}, g.Limits("s:a"))
	_, block, ok := s.Acquire(0, One, nil)
	require.False(t, ok)
	require.Equal(t, ByInFlight, block.Kind)
	require.Equal(t, int64(Never), w.Join(0, One))
	prefix(t, g, "", Limits{Concurrency: 4}, 0)
	require.Equal(t, Limits{Concurrency: 1}, g.Limits("s:a"), "nothing was changed here")
	require.Equal(t, []*Wait{w}, g.Adopt("s:a", Limits{Concurrency: 2}, 0, nil), "it may go now")
	own, alone, ok := g.Shared("s:a")
	require.Equal(t, []any{Limits{Concurrency: 4}, true, true}, []any{own, alone, ok})
	w.Leave(nil)
	passes(t, s, 0)
	prefix(t, g, "", Limits{Concurrency: 3}, 0)
	require.Equal(t, Limits{Concurrency: 3}, g.Limits("s:a"))
	s.Release(&one, 0, nil)
}

func TestSharedGateIsForgotten(t *testing.T) {
	f := &lender{}
	g, s := shared(t, f, Limits{Rate: PerSecond(One)})
	g.Own("s:a", nil, 0, nil)
	grant := passes(t, s, 0)
	s.Release(&grant, 0, nil)
	g.Close(s, 0)
	require.Empty(t, f.requests)
	require.Equal(t, int64(1), g.Count(), "its bucket is not full")
	other := setAt(t, g, 61*second, "b")
	g.Close(other, 61*second)
	require.Equal(t, []string{"s:a"}, f.requests)
	_, ok := g.Needs("s:a", 61*second)
	require.False(t, ok)
}

func TestSharedGateLosesItsLimits(t *testing.T) {
	f := &lender{}
	g, s := shared(t, f, Limits{Concurrency: 1})
	refuses(t, s, 0, ByInFlight)
	f.requests = nil
	prefix(t, g, "", Limits{}, 0)
	passes(t, s, 0)
	require.Contains(t, f.requests, "s:a")
	_, ok := g.Needs("s:a", 0)
	require.False(t, ok)
	prefix(t, g, "", Limits{Concurrency: 1}, 0)
	refuses(t, s, 0, ByInFlight) // the one that is in flight has its permit
	n, _ := g.Needs("s:a", 0)
	require.Equal(t, int64(1), n.Permits)
}

func TestReservationAtASharedGateHoldsNothingOfIt(t *testing.T) {
	g, s := shared(t, &lender{}, Limits{Rate: PerSecond(10 * One)})
	g.AddLease("s:a", Lease{Tokens: 2 * One, Until: 100 * msec}, 0, 0, nil)
	limit(t, g, "b", Limits{Concurrency: 1}, 0)
	b := set(t, g, "b")
	busy := passes(t, b, 0)
	both := set(t, g, "s:a", "b")
	r, ok := g.Reserve(both, One)
	require.True(t, ok)
	grant, block, _ := r.Acquire(0, nil, nil)
	require.False(t, grant.Active())
	require.Equal(t, ByInFlight, block.Kind)
	passes(t, s, 10*msec)
	passes(t, s, 10*msec)
	b.Release(&busy, 10*msec, nil)
	grant, block, _ = r.Acquire(10*msec, nil, nil)
	require.False(t, grant.Active())
	require.Equal(t, ByRate, block.Kind)
	g.AddLease("s:a", Lease{Tokens: One, Until: 200 * msec}, 0, 50*msec, nil)
	grant, _, _ = r.Acquire(60*msec, nil, nil)
	require.True(t, grant.Active())
	refuses(t, s, 60*msec, ByRate)
}
