package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTurns(t *testing.T) {
	g := newGates()
	limit(t, g, "k", Limits{Concurrency: 2}, start)
	s := set(t, g, "k")
	gate := s.Gates()[0]
	a, b, c := NewWait(gate, "a"), NewWait(gate, "b"), NewWait(gate, "c")
	t1, _, _ := s.Acquire(start, One, "a")
	t2, _, _ := s.Acquire(start, One, "a")
	for _, w := range []*Wait{a, b, c, a} {
		require.False(t, goes(s, start, One, w.Owner))
		require.Equal(t, int64(Never), w.Join(start, One))
	}
	require.Equal(t, 3, gate.Info(start).Waiting)
	require.Equal(t, []*Wait{a}, s.Release(&t1, start, nil))
	require.Empty(t, s.Release(&t2, start, nil), "a knows already")

	_, block, ok := s.Acquire(start, One, "b")
	require.False(t, ok)
	require.Equal(t, Block{Gate: gate, Kind: ByTurn, At: Never}, block)
	_, block, _ = s.Acquire(start, One, "new")
	require.Equal(t, ByTurn, block.Kind)
	require.Equal(t, [2]int64{0, Never}, turn(b, start))
	require.Equal(t, [2]int64{1, start}, turn(a, start), "two places, three queues")
	t1, _, ok = s.Acquire(start, One, "a")
	require.True(t, ok)
	require.Equal(t, []*Wait{b}, a.Pass(nil))
	require.Empty(t, a.Pass(nil), "the turn is b's")
	require.Equal(t, int64(1), turn(b, start)[0])
	require.Equal(t, []*Wait{c}, b.Leave(nil), "b has no use for it")
	require.Empty(t, b.Leave(nil))
	t2, _, ok = s.Acquire(start, One, "c")
	require.True(t, ok)
	require.Equal(t, [2]int64{0, Never}, turn(c, start))
	require.Equal(t, []*Wait{c}, s.Release(&t1, start, nil))
	require.Equal(t, int64(Never), b.Join(start, One))
	require.Equal(t, []*Wait{a}, c.Pass(nil))
	require.Empty(t, c.Leave(nil))
	require.Equal(t, []*Wait{b}, a.Leave(nil))
	require.Empty(t, b.Leave(nil))
	require.Equal(t, 0, gate.Info(start).Waiting)
	require.True(t, goes(s, start, One, "new"))
	s.Release(&t2, start, nil)
	require.Equal(t, start, b.Join(start, One), "it has opened since")
}

func TestTurnsByTime(t *testing.T) {
	g := newGates()
	limit(t, g, "k", Limits{Rate: PerSecond(4 * One)}, start)
	s := set(t, g, "k")
	gate := s.Gates()[0]
	a, b := NewWait(gate, 1), NewWait(gate, 2)
	flight, _, _ := s.Acquire(start, 4*One, 1)
	require.Equal(t, start+sec/2, a.Join(start, 2*One), "the time of the message, not of cost 1")
	require.Equal(t, int64(Never), b.Join(start, One))
	require.Equal(t, [2]int64{0, start + sec/4}, turn(a, start))
	require.Equal(t, int64(2), turn(a, start+sec)[0], "half of what there is")
	require.Equal(t, []*Wait{b}, a.Pass(nil), "who sets its own timer or goes")

	// A release changes nothing at a gate without a concurrency limit.
	require.Equal(t, int64(2), turn(b, start+sec)[0])
	require.Empty(t, s.Release(&flight, start+sec, nil))
	// A refund and a new limit change the time.
	flight, _, ok := s.Acquire(start+sec, 4*One, 2)
	require.True(t, ok)
	require.Equal(t, []*Wait{b}, s.Undo(&flight, start+sec, nil))
	require.Equal(t, int64(2), turn(b, start+sec)[0])
	require.Equal(t, []*Wait{b}, limit(t, g, "k", Limits{Rate: PerSecond(One)}, start+sec))
	require.Empty(t, limit(t, g, "k", Limits{Rate: PerSecond(One)}, start+sec), "no change")
}

func TestReleaseAboveALoweredLimitTellsNobody(t *testing.T) {
	g := newGates()
	s := set(t, g, "k")
	a, b, c := s.Adopt(), s.Adopt(), s.Adopt()
	limit(t, g, "k", Limits{Concurrency: 1}, start)
	w := NewWait(s.Gates()[0], 1)
	w.Join(start, One)
	require.Empty(t, s.Release(&a, start, nil))
	require.Empty(t, s.Release(&b, start, nil))
	require.Equal(t, []*Wait{w}, s.Release(&c, start, nil))
}

// A queue with the turn at one gate of a set passes the waiters at the others: otherwise two
// queues could send each other to the end of two lists for ever.
func TestTurnAtOneOfTheGates(t *testing.T) {
	g := newGates()
	s := set(t, g, "g1", "g2")
	a, b := NewWait(s.Gates()[0], "a"), NewWait(s.Gates()[1], "b")
	a.Join(start, One)
	b.Join(start, One)
	for _, owner := range []any{"a", "b", nil} {
		require.True(t, goes(s, start, One, owner), owner)
	}
	_, block, ok := s.Acquire(start, One, "c")
	require.False(t, ok)
	require.Equal(t, "g1", block.Gate.Key())
}

// Waiting queues get equal shares of a bucket.
func TestSharesOfQueues(t *testing.T) {
	g := newGates()
	limit(t, g, "k", Limits{Rate: PerSecond(10 * One), Burst: One}, start)
	s := set(t, g, "k")
	served := make([]int, 3)
	waits := make([]*Wait, 3)
	var next *Wait
	at := start
	for q := range waits {
		waits[q] = NewWait(s.Gates()[0], q)
		if q == 0 {
			next, at = waits[0], waits[0].Join(start, One)
		} else {
			waits[q].Join(start, One)
		}
	}
	for range 1000 {
		n, when := next.Turn(at)
		if n == 0 {
			require.NotEqual(t, int64(Never), when)
			at = when
			continue
		}
		require.True(t, goes(s, at, One, next.Owner))
		served[next.Owner.(int)]++
		wake := next.Pass(nil)
		require.Len(t, wake, 1)
		next = wake[0]
	}
	require.InDelta(t, served[0], served[1], 1)
	require.InDelta(t, served[0], served[2], 1)
	require.Equal(t, int64(served[0]+served[1]+served[2]), (at-start)/(sec/10), "none of the rate is lost")
}

func TestReservation(t *testing.T) {
	g := newGates()
	limit(t, g, "a", Limits{Limit: 1, Window: sec}, start)
	limit(t, g, "b", Limits{Rate: PerSecond(2 * One)}, start)
	limit(t, g, "c", Limits{Concurrency: 1}, start)
	all, a, b, c := set(t, g, "a", "b", "c"), set(t, g, "a"), set(t, g, "b"), set(t, g, "c")
	inFlight, _, _ := c.Acquire(start, One, nil)
	b.Acquire(start, One, nil)

	r, ok := g.Reserve(all, 2*One)
	require.True(t, ok)
	_, ok = g.Reserve(all, One)
	require.False(t, ok, "one at a time")
	_, ok = g.Reserve(nil, One)
	require.False(t, ok)
	grant, block, wake := r.Acquire(start, nil, nil)
	require.False(t, grant.Active())
	require.Empty(t, wake)
	require.Equal(t, Block{Gate: c.Gates()[0], Kind: ByInFlight, At: Never}, block)
	// The entry of a stays reserved however long b takes to fill.
	for _, now := range []int64{start, start + 5*sec} {
		block, _ = a.Check(now, One, nil)
		require.Equal(t, Block{Gate: a.Gates()[0], Kind: ByReserved, At: Never}, block)
	}
	_, _, _ = r.Acquire(start+5*sec, nil, nil)
	block, _ = b.Check(start+9*sec, One, nil)
	require.Equal(t, ByReserved, block.Kind, "a full bucket, all of it held")
	wb, wa := NewWait(b.Gates()[0], 1), NewWait(a.Gates()[0], 1)
	require.Equal(t, int64(Never), wb.Join(start+9*sec, One))
	require.Equal(t, int64(Never), wa.Join(start+9*sec, One))
	c.Release(&inFlight, start+9*sec, nil)
	grant, _, wake = r.Acquire(start+9*sec, nil, nil)
	require.True(t, grant.Active())
	require.ElementsMatch(t, []*Wait{wa, wb}, wake, "they open by time from now on")
	require.Equal(t, start+10*sec, turn(wa, start+9*sec)[1], "the entry counts from when the message went")
	require.Equal(t, start+9*sec+sec/2, turn(wb, start+9*sec)[1])
	require.Empty(t, r.Cancel(start+9*sec, nil), "it is over")
	all.Undo(&grant, start+9*sec, nil)
	wa.Leave(nil)
	wb.Leave(nil)

	before := []Info{all.gates[0].Info(start + 9*sec), all.gates[1].Info(start + 9*sec), all.gates[2].Info(start + 9*sec)}
	limit(t, g, "d", Limits{Concurrency: 1}, start+9*sec)
	d := set(t, g, "d")
	d.Acquire(start+9*sec, One, nil)
	four := set(t, g, "a", "b", "c", "d")
	r, ok = g.Reserve(four, 2*One)
	require.True(t, ok)
	r.Acquire(start+9*sec, nil, nil)
	require.Equal(t, int64(2*One), all.gates[1].Info(start+9*sec).Reserved)
	r.Cancel(start+9*sec, nil)
	for i, want := range before {
		require.Equal(t, want, all.gates[i].Info(start+9*sec))
	}

	// Limits that were lowered meanwhile count for a reservation too.
	r, ok = g.Reserve(four, One)
	require.True(t, ok)
	r.Acquire(start+9*sec, nil, nil)
	limit(t, g, "a", Limits{Concurrency: 1}, start+9*sec)
	extra := a.Adopt()
	limit(t, g, "d", Limits{}, start+9*sec)
	grant, block, _ = r.Acquire(start+9*sec, nil, nil)
	require.False(t, grant.Active())
	require.Equal(t, [2]any{"a", ByInFlight}, [2]any{block.Gate.Key(), block.Kind})
	a.Release(&extra, start+9*sec, nil)
	grant, _, _ = r.Acquire(start+9*sec, nil, nil)
	require.True(t, grant.Active())
}

// A reserved entry does not go when the limit was lowered below it.
func TestReservationAndALowerWindow(t *testing.T) {
	g := newGates()
	limit(t, g, "a", Limits{Limit: 2, Window: sec}, start)
	limit(t, g, "b", Limits{Concurrency: 1}, start)
	both, a, b := set(t, g, "a", "b"), set(t, g, "a"), set(t, g, "b")
	a.Acquire(start, One, nil)
	busy := b.Adopt()
	r, _ := g.Reserve(both, One)
	r.Acquire(start, nil, nil)
	limit(t, g, "a", Limits{Limit: 1, Window: sec}, start)
	b.Release(&busy, start, nil)
	grant, block, _ := r.Acquire(start, nil, nil)
	require.False(t, grant.Active())
	require.Equal(t, Block{Gate: a.Gates()[0], Kind: ByWindow, At: start + sec}, block)
	grant, _, _ = r.Acquire(start+sec, nil, nil)
	require.True(t, grant.Active())
}

// A reservation collects a gate only in turn.
func TestReservationWaitsForItsTurn(t *testing.T) {
	g := newGates()
	s := set(t, g, "a", "b")
	NewWait(s.Gates()[1], 1).Join(start, One)
	r, _ := g.Reserve(s, One)
	grant, block, _ := r.Acquire(start, 2, nil)
	require.False(t, grant.Active())
	require.Equal(t, Block{Gate: s.Gates()[1], Kind: ByTurn, At: Never}, block)
	grant, _, _ = r.Acquire(start, 1, nil)
	require.True(t, grant.Active())
}
