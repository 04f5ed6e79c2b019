package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle/adapt"
)

// Feedback lowers a bucket and never raises it; nothing remaining shuts the gate until the reset.
func TestFeedbackLowersTheBucket(t *testing.T) {
	g, now := newGates(), start
	limit(t, g, "k", Limits{Rate: PerSecond(10 * One), Burst: 100 * One, Adapt: adapt.Settings{Min: One, Backoff: 500}}, now)
	limit(t, g, "fixed", Limits{Rate: PerSecond(10 * One), Burst: 100 * One}, now)
	s := set(t, g, "k", "fixed")
	tokens := func() int64 { return s.Gates()[1].Info(now).Tokens }
	s.Feedback(Feedback{Remaining: 30 * One}, now)
	require.EqualValues(t, 30*One, tokens())
	require.EqualValues(t, 100*One, s.Gates()[0].Info(now).Tokens, "a key that does not learn")
	s.Feedback(Feedback{Remaining: 50 * One}, now)
	require.EqualValues(t, 30*One, tokens())
	s.Feedback(Feedback{Reset: 2 * sec}, now)
	_, why, ok := s.Acquire(now, One, nil)
	require.False(t, ok)
	require.InDelta(t, now+2*sec, why.At, 1e6)
	now += 5 * sec
	s.Feedback(Feedback{Remaining: 1000 * One}, now)
	require.EqualValues(t, 31*One, tokens())
}

// leasing returns a shared gate of a rate of 10 that learns, with leases of 6 and 4 from time 0 on.
func leasing(t *testing.T) (*lender, *Gates, *Set) {
	f := &lender{}
	g, s := shared(t, f, Limits{Rate: PerSecond(10 * One), Burst: 50 * One, Adapt: adapt.Settings{Min: One, Backoff: 500}})
	for _, n := range []int64{6, 4} {
		g.AddLease("s:a", Lease{Tokens: n * One, Until: 150 * msec}, 0, 0, nil)
	}
	_, _ = g.Needs("s:a", 0)
	f.requests = nil
	return f, g, s
}

// At a gate that leases, feedback lowers leases and the bucket of the fleet together, and the leases at once.
func TestFeedbackLowersLeases(t *testing.T) {
	for name, tc := range map[string]struct {
		feedback     Feedback
		leases, rest int64
	}{
		"more than the leases": {Feedback{Remaining: 30 * One}, 10 * One, 20 * One},
		"less":                 {Feedback{Remaining: 7 * One}, 7 * One, 0},
		"nothing":              {Feedback{}, 0, 0},
		"nothing for 3 s":      {Feedback{Reset: 3 * sec}, 0, -29 * One},
	} {
		t.Run(name, func(t *testing.T) {
			f, g, s := leasing(t)
			s.Feedback(tc.feedback, 0)
			require.Equal(t, tc.leases, tokensOf(s, 0))
			require.Equal(t, []string{"s:a"}, f.requests)
			s.Feedback(Feedback{Remaining: 45 * One}, 0) // raises nothing
			n, _ := g.Needs("s:a", 0)
			require.True(t, n.Remaining)
			rest, ok := g.TakeRemaining("s:a", 100*msec)
			require.True(t, ok)
			require.Equal(t, tc.rest+One, rest, "what the rate brings in 100 ms")
			_, ok = g.TakeRemaining("s:a", 100*msec)
			require.False(t, ok)
		})
	}
}

// A lease that was taken from the fleet before it knew of the feedback is lowered when it comes.
func TestFeedbackLowersALeaseOnItsWay(t *testing.T) {
	_, g, s := leasing(t)
	s.Feedback(Feedback{Remaining: 12 * One}, 0)
	g.AddLease("s:a", Lease{Tokens: 5 * One, Until: 150 * msec}, 0, 0, nil) // ends the lease of 6
	require.EqualValues(t, 6*One, tokensOf(s, 0))
	rest, _ := g.TakeRemaining("s:a", 0)
	require.Zero(t, rest)
}

// Feedback that the fleet does not know lowers the bucket that the gate uses then.
func TestFeedbackWithoutTheFleet(t *testing.T) {
	for name, begin := range map[string]func(*Gates){
		"alone": func(g *Gates) { g.Own("s:a", nil, 0, nil) },
		"part":  func(g *Gates) { g.Part("s:a", 2, 0, nil) },
	} {
		_, g, s := leasing(t)
		s.Feedback(Feedback{Reset: 3 * sec}, 0)
		begin(g)
		require.EqualValues(t, -29*One, tokensOf(s, 0), name)
		_, ok := g.TakeRemaining("s:a", 0)
		require.False(t, ok, name)
	}
}

// When another process has lowered the bucket of the fleet, nothing of earlier leases goes back; if
// nothing remains, they are not used either.
func TestLeasesFromBeforeFeedback(t *testing.T) {
	for _, none := range []bool{false, true} {
		_, g, s := leasing(t)
		g.AddLease("s:a", Lease{Tokens: 3 * One, Until: 150 * msec}, 0, 0, nil) // ends the lease of 6
		require.EqualValues(t, 7*One, tokensOf(s, 0))
		g.FinishLeases("s:a", none)
		want := int64(7 * One)
		if none {
			want = 0
		}
		require.Equal(t, want, tokensOf(s, 0))
		g.AddLease("s:a", Lease{Tokens: One, Until: 150 * msec}, 0, 0, nil)
		sum := int64(0)
		for _, c := range g.ReturnLeases("s:a", 0, 150*msec) {
			sum += c.Tokens
		}
		require.EqualValues(t, One, sum, "of the lease from after it")
	}
}
