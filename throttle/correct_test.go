package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// tokensOf returns the tokens of the only gate of a set.
func tokensOf(s *Set, now int64) int64 { return s.Gates()[0].Info(now).Tokens }

// bucketOfTen is the set of a gate whose full bucket has ten, and one more a second.
func bucketOfTen(t *testing.T) *Set {
	g := newGates()
	limit(t, g, "k", Limits{Rate: PerSecond(One), Burst: 10 * One}, start)
	return set(t, g, "k")
}

func TestSettleChargesAndGivesBack(t *testing.T) {
	s := bucketOfTen(t)
	acquire := func(now, cost int64) Grant {
		grant, block, ok := s.Acquire(now, cost, nil)
		require.True(t, ok, "%+v", block)
		return grant
	}
	more, less, same := acquire(start, 2*One), acquire(start, 5*One), acquire(start, One)
	require.Equal(t, int64(2*One), tokensOf(s, start))
	s.ReleaseCorrected(&same, 0, start, nil)
	require.Equal(t, int64(2*One), tokensOf(s, start))
	s.ReleaseCorrected(&less, -4*One, start, nil)
	require.Equal(t, int64(6*One), tokensOf(s, start))
	s.ReleaseCorrected(&more, 9*One, start, nil)
	require.Equal(t, int64(-3*One), tokensOf(s, start), "a debt")
	require.False(t, more.Active())
	require.Zero(t, s.Gates()[0].Info(start).InFlight)

	_, block, ok := s.Acquire(start, One, nil)
	require.False(t, ok)
	require.Equal(t, ByRate, block.Kind)
	require.Equal(t, start+4*sec, block.At, "the debt is paid first")
	acquire(start+4*sec, One)
}

// A surplus is refunded as far as the bucket has not been full since.
func TestCorrectionRefundsNoMoreThanTheBound(t *testing.T) {
	s := bucketOfTen(t)
	grant, _, _ := s.Acquire(start, 8*One, nil)
	_, _, ok := s.Acquire(start+20*sec, 5*One, nil) // it was full again
	require.True(t, ok)
	s.ReleaseCorrected(&grant, -7*One, start+20*sec, nil)
	require.Equal(t, int64(5*One), tokensOf(s, start+20*sec))
}

// Windows and concurrency count messages, not costs.
func TestCorrectionLeavesWindowsAlone(t *testing.T) {
	g := newGates()
	limit(t, g, "k", Limits{Limit: 3, Window: sec, Concurrency: 5}, start)
	s := set(t, g, "k")
	grant, _, _ := s.Acquire(start, One, nil)
	s.ReleaseCorrected(&grant, 100*One, start, nil)
	info := s.Gates()[0].Info(start)
	require.Equal(t, [2]int64{1, 0}, [2]int64{info.InWindow, info.InFlight})
}

// A refund notifies the head of the waiters.
func TestCorrectionNotifiesTheHead(t *testing.T) {
	s := bucketOfTen(t)
	grant, _, _ := s.Acquire(start, 10*One, nil)
	w := NewWait(s.Gates()[0], "q")
	require.Positive(t, w.Join(start, One))
	require.Equal(t, []*Wait{w}, s.ReleaseCorrected(&grant, -5*One, start, nil))
}

// A message that was in flight before a restart pays its extra cost and gets no refund,
// since the time of its Acquire is unknown.
func TestCorrectionOfAnAdoptedMessage(t *testing.T) {
	s := bucketOfTen(t)
	more, less := s.Adopt(), s.Adopt()
	s.ReleaseCorrected(&more, 4*One, start, nil)
	s.ReleaseCorrected(&less, -4*One, start, nil)
	require.Equal(t, int64(6*One), tokensOf(s, start))
}

// A debt outlives a clean stop, up to the largest burst.
func TestADebtIsKept(t *testing.T) {
	g := newGates()
	l := Limits{Rate: PerSecond(One), Burst: 10 * One}
	limit(t, g, "k", l, start)
	s := set(t, g, "k")
	for range 3 {
		grant := s.Adopt()
		s.ReleaseCorrected(&grant, MaxCost, start, nil)
	}
	states := g.Snapshot(start)
	later := New(Start{}, start)
	limit(t, later, "k", l, start)
	later.Restore(states, start)
	require.Equal(t, int64(10*One-3*MaxCost), tokensOf(set(t, later, "k"), start))
	for range 1001 {
		grant := s.Adopt()
		s.ReleaseCorrected(&grant, MaxCost, start, nil)
	}
	require.Equal(t, int64(-MaxBurst), tokensOf(s, start))
}

// Leases pay an extra cost first, then the fleet is charged. The next lease pays what has
// not been charged yet.
func TestCorrectionOfLeases(t *testing.T) {
	f := &lender{}
	g, s := shared(t, f, Limits{Rate: PerSecond(10 * One), Burst: 10 * One})
	g.AddLease("s:a", Lease{Tokens: 5 * One, Until: 150 * msec}, 0, 0, nil)
	grant := passes(t, s, 0)
	f.requests = nil
	s.ReleaseCorrected(&grant, 3*One, 0, nil)
	require.Empty(t, f.requests, "it had as much")
	require.Equal(t, int64(One), tokensOf(s, 0))
	grant = passes(t, s, 0)
	s.ReleaseCorrected(&grant, 6*One, 0, nil)
	require.Equal(t, []string{"s:a"}, f.requests)
	n, _ := g.Needs("s:a", 0)
	require.True(t, n.Uncharged)
	g.AddLease("s:a", Lease{Tokens: 2 * One, Until: 150 * msec}, 0, 0, nil)
	refuses(t, s, 0, ByRate)
	require.Equal(t, int64(4*One), g.TakeUncharged("s:a"))
	require.Zero(t, g.TakeUncharged("s:a"))
	g.AddLease("s:a", Lease{Tokens: 2 * One, Until: 150 * msec}, 0, 0, nil)
	passes(t, s, 0)
}

// A surplus is refunded to the leases or to the fleet, as far as its bucket has had room
// since.
func TestCorrectionRefundsTheFleet(t *testing.T) {
	f := &lender{}
	g, s := shared(t, f, Limits{Rate: PerSecond(10 * One), Burst: 10 * One})
	lend := func(now int64) { g.AddLease("s:a", Lease{Tokens: 5 * One, Until: now + 150*msec}, 0, now, nil) }
	acquire := func(now int64) Grant {
		grant, _, ok := s.Acquire(now, 4*One, nil)
		require.True(t, ok)
		return grant
	}
	lend(0)
	grant := acquire(0)
	s.ReleaseCorrected(&grant, -3*One, 0, nil)
	require.Equal(t, int64(One), tokensOf(s, 0), "the level of the fleet's bucket is unknown")

	g.Level("s:a", One, 200*msec)
	lend(200 * msec)
	grant = acquire(200*msec + 1)
	s.ReleaseCorrected(&grant, -3*One, 210*msec, nil)
	require.Equal(t, int64(4*One), tokensOf(s, 210*msec))
	grant = acquire(220 * msec)
	g.Level("s:a", One, 300*msec)
	s.ReleaseCorrected(&grant, -3*One, 500*msec, nil) // the lease has ended
	require.Equal(t, int64(-3*One), g.TakeUncharged("s:a"))

	lend(500 * msec)
	grant = acquire(500 * msec)
	g.Level("s:a", 9*One, 520*msec) // there was room for 1, and less after the correction
	s.ReleaseCorrected(&grant, -3*One, 560*msec, nil)
	require.Less(t, tokensOf(s, 560*msec), int64(2*One))

	lend(1000 * msec)
	grant = acquire(1000 * msec)
	g.Level("s:a", 10*One, 1010*msec)
	g.Level("s:a", One, 1020*msec) // another process has taken from a full bucket
	s.ReleaseCorrected(&grant, -3*One, 1030*msec, nil)
	require.Equal(t, int64(One), tokensOf(s, 1030*msec))
}

// A debt stays with the gate when it changes to limits of its own, to a part, and back.
func TestADebtFollowsItsGate(t *testing.T) {
	l := Limits{Rate: PerSecond(10 * One), Burst: 10 * One}
	owing := func() (*Gates, *Set) {
		g, s := shared(t, &lender{}, l)
		g.AddLease("s:a", Lease{Tokens: One, Until: 150 * msec}, 0, 0, nil)
		grant := passes(t, s, 0)
		s.ReleaseCorrected(&grant, 6*One, 0, nil)
		return g, s
	}
	g, s := owing()
	g.Own("s:a", nil, 0, nil)
	require.Equal(t, int64(4*One), tokensOf(s, 0))
	g, s = owing()
	g.Part("s:a", 2, 0, nil)
	require.Equal(t, int64(-6*One), tokensOf(s, 0))
	g.Borrow("s:a", 0)
	require.Equal(t, int64(6*One), g.TakeUncharged("s:a"))
	g, _ = owing()
	g.Part("s:a", 2, 0, nil)
	g.Borrow("s:a", second)
	require.Equal(t, int64(One), g.TakeUncharged("s:a"), "5 have been paid by its part of the rate")
	g, s = owing()
	g.Close(s, 0)
	other := setAt(t, g, 100*second, "b")
	g.Close(other, 100*second)
	require.Equal(t, int64(6*One), g.TakeUncharged("s:a"), "it is not forgotten while it owes")
}
