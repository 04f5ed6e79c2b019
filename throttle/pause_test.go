package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPause(t *testing.T) {
	g := newGates()
	limit(t, g, "k", Limits{Rate: PerSecond(One), Concurrency: 2}, start)
	s, free := set(t, g, "k", "free"), set(t, g, "free")
	k := s.Gates()[1]
	before, _, ok := s.Acquire(start, One, nil)
	require.True(t, ok)

	require.Empty(t, g.Pause("k", start+5*sec, start, nil))
	_, block, ok := s.Acquire(start, One, nil)
	require.False(t, ok)
	require.Equal(t, Block{Gate: k, Kind: ByPause, At: start + 5*sec}, block, "the bucket is full before")
	block, ok = s.Check(start+5*sec-1, One, nil)
	require.False(t, ok)
	require.Equal(t, ByPause, block.Kind)
	info := k.Info(start + 2*sec)
	require.Equal(t, [4]int64{1, One, start + 5*sec, start + 5*sec}, [4]int64{info.InFlight, info.Tokens, info.PausedUntil, info.At})
	require.Equal(t, "paused", info.Kind.String())
	require.True(t, goes(free, start, One, nil), "another key")
	s.Release(&before, start+2*sec, nil)
	require.Zero(t, k.Info(start+2*sec).InFlight, "what is in flight is not touched")

	require.True(t, goes(s, start+5*sec, One, nil), "it ends by itself")
	require.Zero(t, k.Info(start+5*sec).PausedUntil)

	// The later of two calls counts; a later obstacle is named instead.
	now := start + 5*sec
	g.Pause("k", now+sec/2, now, nil)
	g.Pause("k", Never, now, nil)
	block, _ = s.Check(now, One, nil)
	require.Equal(t, Block{Gate: k, Kind: ByPause, At: Never}, block)
	g.Pause("k", now+sec/2, now, nil)
	block, _ = s.Check(now, One, nil)
	require.Equal(t, Block{Gate: k, Kind: ByRate, At: now + sec}, block)
	for _, resume := range []int64{0, now, now - 1, -1} {
		g.Pause("k", Never, now, nil)
		require.Equal(t, int64(Never), k.Info(now).PausedUntil)
		g.Pause("k", resume, now, nil)
		require.Zero(t, k.Info(now).PausedUntil)
	}
}

// A key without limits and sets stays paused, and its gate is dropped after the pause.
func TestPauseOfAnUnknownKey(t *testing.T) {
	g := newGates()
	g.Pause("none", 0, start, nil)
	require.Empty(t, g.Keys(), "nothing to resume")
	g.Pause("a", Never, start, nil)
	g.Pause("b", start+10*sec, start, nil)
	for range 3 {
		s := set(t, g, "a", "b")
		block, ok := s.Check(start, One, nil)
		require.False(t, ok)
		require.Equal(t, Block{Gate: s.Gates()[0], Kind: ByPause, At: Never}, block)
		g.Close(s, start)
		g.sweepAll(start)
	}
	require.Empty(t, g.Snapshot(start))
	limit(t, g, "a", Limits{Limit: 1, Window: sec}, start)
	limit(t, g, "a", Limits{}, start)
	g.sweepAll(start + 10*sec)
	require.Equal(t, []string{"a"}, g.Keys())
	g.Pause("a", 0, start+10*sec, nil)
	g.sweepAll(start + 10*sec)
	require.Empty(t, g.Keys())
}

// The queue at the head is notified when the gate opens sooner than it knows, once.
func TestPauseAndTurns(t *testing.T) {
	g := newGates()
	s := set(t, g, "k")
	a, b := NewWait(s.Gates()[0], "a"), NewWait(s.Gates()[0], "b")
	require.Empty(t, g.Pause("k", start+5*sec, start, nil))
	require.Equal(t, start+5*sec, a.Join(start, One))
	require.Equal(t, int64(Never), b.Join(start, One))
	require.Empty(t, g.Pause("k", start+9*sec, start, nil), "it looks too early, which is no harm")
	require.Equal(t, [2]int64{0, start + 9*sec}, turn(a, start+5*sec))
	require.Equal(t, []*Wait{a}, g.Pause("k", start+6*sec, start+5*sec, nil))
	require.Empty(t, g.Pause("k", 0, start+5*sec, nil), "it was notified, and has not looked yet")
	require.Equal(t, [2]int64{MaxConcurrency / 2, start + 5*sec}, turn(a, start+5*sec))
	require.Empty(t, g.Pause("k", 0, start+5*sec, nil), "it is not paused")

	require.Empty(t, g.Pause("k", Never, start+6*sec, nil))
	require.Equal(t, [2]int64{0, Never}, turn(a, start+6*sec))
	require.Equal(t, []*Wait{b}, a.Leave(nil))
	require.Equal(t, [2]int64{0, Never}, turn(b, start+6*sec))
	require.Equal(t, []*Wait{b}, g.Pause("k", 0, start+7*sec, nil))
	require.True(t, goes(s, start+7*sec, One, "b"))
}

// A release at a gate that only a resume opens notifies no queue.
func TestNobodyIsWokenByAReleaseAtAPausedGate(t *testing.T) {
	g := newGates()
	limit(t, g, "k", Limits{Rate: PerSecond(One), Burst: 5 * One, Concurrency: 1}, start)
	s := set(t, g, "k")
	w := NewWait(s.Gates()[0], 1)
	first, _, _ := s.Acquire(start, One, nil)
	require.Equal(t, int64(Never), w.Join(start, One))
	g.Pause("k", Never, start, nil)
	require.Equal(t, ByPause, s.Gates()[0].Info(start).Kind, "a release does not help")
	require.Empty(t, s.Release(&first, start, nil))
	extra := s.Adopt()
	require.Empty(t, s.Undo(&extra, start, nil))
	require.Equal(t, []*Wait{w}, g.Pause("k", start, start, nil))
	require.Equal(t, int64(1), turn(w, start)[0])

	// The head is notified of the end of a pause that ends by itself.
	first, _, _ = s.Acquire(start, One, 1)
	require.Equal(t, [2]int64{0, Never}, turn(w, start))
	g.Pause("k", start+3*sec, start, nil)
	require.Equal(t, []*Wait{w}, s.Release(&first, start+sec, nil))
	require.Equal(t, [2]int64{0, start + 3*sec}, turn(w, start+sec))
}

// The end of a pause is a time of the clock, even if that is set back. A pause that is over
// does not return.
func TestPauseAndTheClock(t *testing.T) {
	g := newGates()
	s := set(t, g, "k")
	k := s.Gates()[0]
	g.Pause("k", start+100*sec, start, nil)
	now := start - 1000*sec
	block, _ := s.Check(now, One, nil)
	require.Equal(t, Block{Gate: k, Kind: ByPause, At: start + 100*sec}, block)
	require.False(t, open(s, start+100*sec-1, One))
	require.True(t, open(s, start+MaxWindow, One))
	require.True(t, open(s, start, One))
	// A caller that is late does not make it longer.
	g.Pause("k", start+sec, start, nil)
	require.True(t, open(s, start+sec, One))
	require.True(t, open(s, start, One))
}

// A reservation holds nothing while it waits for the end of a pause.
func TestReservationAndPause(t *testing.T) {
	g := newGates()
	limit(t, g, "a", Limits{Rate: PerSecond(One), Burst: 2 * One}, start)
	limit(t, g, "b", Limits{Concurrency: 1}, start)
	both, a, b := set(t, g, "a", "b"), set(t, g, "a"), set(t, g, "b")
	w := NewWait(a.Gates()[0], 1)
	b.Adopt()
	r, _ := g.Reserve(both, 2*One)
	grant, block, _ := r.Acquire(start, nil, nil)
	require.False(t, grant.Active())
	require.Equal(t, ByInFlight, block.Kind)
	require.Equal(t, int64(Never), w.Join(start, One))
	require.Equal(t, ByReserved, a.Gates()[0].Info(start).Kind)

	g.Pause("b", start+5*sec, start, nil)
	grant, block, wake := r.Acquire(start, nil, nil)
	require.False(t, grant.Active())
	require.Equal(t, Block{Gate: b.Gates()[0], Kind: ByPause, At: start + 5*sec}, block)
	require.Equal(t, []*Wait{w}, wake)
	w.Leave(nil)
	info := a.Gates()[0].Info(start)
	require.Equal(t, [4]int64{0, 0, 2 * One, int64(Open)}, [4]int64{info.Reserved, info.InFlight, info.Tokens, int64(info.Kind)})
	require.Empty(t, r.Cancel(start, nil), "nothing is held")
	_, ok := g.Reserve(both, One)
	require.True(t, ok)

	// A gate that it has collected already is paused.
	g = newGates()
	both, a, b = set(t, g, "a", "b"), set(t, g, "a"), set(t, g, "b")
	limit(t, g, "a", Limits{Limit: 1, Window: sec}, start)
	limit(t, g, "b", Limits{Concurrency: 1}, start)
	busy := b.Adopt()
	r, _ = g.Reserve(both, One)
	r.Acquire(start, nil, nil)
	g.Pause("a", Never, start, nil)
	b.Release(&busy, start, nil)
	grant, block, _ = r.Acquire(start, nil, nil)
	require.False(t, grant.Active())
	require.Equal(t, Block{Gate: a.Gates()[0], Kind: ByPause, At: Never}, block)
	require.Zero(t, a.Gates()[0].Info(start).Reserved)
	g.Pause("a", 0, start, nil)
	grant, _, _ = r.Acquire(start, nil, nil)
	require.True(t, grant.Active(), "it goes on if it was not cancelled")
	require.Equal(t, int64(1), a.Gates()[0].Info(start).InWindow)
}
