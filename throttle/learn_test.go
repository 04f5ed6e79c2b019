package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/throttle/adapt"
)

func learning(concurrency int64) Limits {
	return Limits{Concurrency: concurrency, Adapt: adapt.Settings{Min: 2 * One, Backoff: 500, Grow: One, GrowPerS: 1000 * One}}
}

// fill takes everything that a set admits.
func fill(s *Set, now int64) (grants []Grant) {
	for {
		g, _, ok := s.Acquire(now, One, nil)
		if !ok {
			return grants
		}
		grants = append(grants, g)
	}
}

func overload(s *Set, delivered, now int64) {
	s.Overloaded(Overload{Delivered: delivered, Cause: "429 of message m"}, now)
}

func learnedOf(t *testing.T, g *Gates, key string, now int64) *Learned {
	gate, ok := g.Find(key)
	require.True(t, ok)
	return gate.Info(now).Learned
}

// One generation of overloads is one cut, and messages in flight beyond the level go on.
func TestAGateIsCutOncePerGeneration(t *testing.T) {
	g, now := newGates(), start
	limit(t, g, "k", learning(16), now)
	s := set(t, g, "k")
	require.True(t, s.Learns())
	grants := fill(s, now)
	require.Len(t, grants, 16)
	for i := range grants {
		now += sec / 100
		overload(s, start, now)
		s.Release(&grants[i], now, nil)
		if i < 8 {
			_, why, ok := s.Acquire(now, One, nil)
			require.False(t, ok)
			require.Equal(t, ByInFlight, why.Kind)
		}
	}
	l := learnedOf(t, g, "k", now)
	require.EqualValues(t, 1, l.Cuts)
	require.EqualValues(t, 8*One, l.Level)
	require.Equal(t, []Step{{From: 16 * One, To: 8 * One, Began: start + sec/100, At: start + sec/100, Cause: "429 of message m"}}, l.Steps)
	require.Len(t, fill(s, now), 8)
}

// Successes count only while the gate holds messages back.
func TestAGateGrowsOnlyWhileItIsUsed(t *testing.T) {
	g, now := newGates(), start
	limit(t, g, "k", learning(40), now)
	s := set(t, g, "k")
	overload(s, now, now)
	level := func() int64 { return learnedOf(t, g, "k", now).Level }
	require.EqualValues(t, 20*One, level())
	for range 1000 { // one at a time
		grant, _, ok := s.Acquire(now, One, nil)
		require.True(t, ok)
		now += sec / 10
		s.Succeeded(&grant, 0, now, nil)
		s.Release(&grant, now, nil)
	}
	require.EqualValues(t, 20*One, level())
	grants := fill(s, now)
	for range 200 {
		now += sec / 100
		s.Succeeded(&grants[0], 0, now, nil)
		s.Release(&grants[0], now, nil)
		grants = append(grants[1:], fill(s, now)...)
	}
	require.Greater(t, level(), int64(30*One))
	require.EqualValues(t, len(grants), level()/One)
	require.Len(t, learnedOf(t, g, "k", now).Steps, 2, "growth between two cuts is one step")
}

// A learned rate grows by what successes have cost, as their acks say, and not by their estimates,
// which are 1 here.
func TestARateGrowsByActualCosts(t *testing.T) {
	grown := func(messages int, actual int64) int64 {
		g, now := newGates(), start
		limit(t, g, "k", Limits{Rate: PerSecond(1000 * One), Burst: One, Adapt: adapt.Settings{Min: One, Backoff: 500, GrowPerS: 1000 * One}}, now)
		s := set(t, g, "k")
		overload(s, now, now)
		for range messages {
			now += 20 * sec // pays the debt of the message before
			grant, _, ok := s.Acquire(now, One, nil)
			require.True(t, ok)
			s.Succeeded(&grant, actual-One, now, nil)
			s.ReleaseCorrected(&grant, actual-One, now, nil)
		}
		l := learnedOf(t, g, "k", now)
		return l.Level - l.Steps[0].To
	}
	require.InEpsilon(t, grown(100, One), grown(20, 5*One), 0.05)
	require.InEpsilon(t, grown(50, One), grown(100, One/2), 0.05)
	require.Positive(t, grown(100, 1), "almost nothing")
}

// Growth wakes the queue that waits: a success opens the gate for more than one message.
func TestGrowthAdmitsMore(t *testing.T) {
	g, now := newGates(), start
	limit(t, g, "k", learning(40), now)
	s := set(t, g, "k")
	overload(s, now, now)
	grants := fill(s, now)
	w := NewWait(s.Gates()[0], "queue")
	require.Equal(t, int64(Never), w.Join(now, One))
	for i := range grants {
		now += sec / 100
		wake := s.Succeeded(&grants[i], 0, now, nil)
		wake = s.Release(&grants[i], now, wake)
		if n, _ := w.Turn(now); n > 1 {
			return
		}
		require.NotEmpty(t, wake)
		fill(s, now)
	}
	t.Fatal("no growth admitted more")
}

func TestALearnedRateIsARate(t *testing.T) {
	g, now := newGates(), start
	limit(t, g, "k", Limits{Rate: PerSecond(100 * One), Burst: One, Adapt: adapt.Settings{Min: One, Backoff: 500}}, now)
	s := set(t, g, "k")
	overload(s, now, now)
	n := 0
	for range 1000 {
		now += sec / 1000
		if grant, _, ok := s.Acquire(now, One, nil); ok {
			n++
			s.Release(&grant, now, nil)
		}
	}
	require.InDelta(t, 50, n, 1)
	require.Equal(t, PerSecond(50*One), s.Gates()[0].Info(now).Limits.Rate)
}

// With both, the rate follows the level of the concurrency.
func TestARateFollowsTheConcurrency(t *testing.T) {
	g, now := newGates(), start
	l := learning(10)
	l.Rate = PerSecond(20 * One)
	limit(t, g, "k", l, now)
	s := set(t, g, "k")
	overload(s, now, now)
	in := s.Gates()[0].Info(now).Limits
	require.EqualValues(t, 5, in.Concurrency)
	require.Equal(t, PerSecond(10*One), in.Rate)
	require.Equal(t, 20*int64(One), in.Burst, "the burst stays")
	require.Equal(t, l, g.Limits("k"), "the limits that were set")
}

// A level that is fixed neither falls nor grows, and is the base of what is learned later.
func TestALevelIsFixedByHand(t *testing.T) {
	g, now := newGates(), start
	l := learning(40)
	l.Level = 12 * One
	limit(t, g, "k", l, now)
	s := set(t, g, "k")
	require.Len(t, fill(s, now), 12)
	overload(s, now, now+1)
	require.EqualValues(t, 12*One, learnedOf(t, g, "k", now).Level)
	require.True(t, learnedOf(t, g, "k", now).Fixed)
	l.Level = 0
	limit(t, g, "k", l, now)
	require.EqualValues(t, 12*One, learnedOf(t, g, "k", now).Level)
	overload(s, now, now+1)
	require.EqualValues(t, 6*One, learnedOf(t, g, "k", now).Level)
	limit(t, g, "k", Limits{Concurrency: 40}, now)
	require.False(t, s.Learns())
	require.Len(t, fill(s, now), 28, "it learns no more")
}

// A gate begins at the start of its settings, and grows from there to its ceiling.
func TestAGateBeginsAtItsStart(t *testing.T) {
	g, now := newGates(), start
	for key, want := range map[string]int64{"low": 5 * One, "below the floor": 2 * One, "above the ceiling": 40 * One} {
		l := learning(40)
		l.Adapt.Start = map[string]int64{"low": 5 * One, "below the floor": One, "above the ceiling": 50 * One}[key]
		limit(t, g, key, l, now)
		require.Equal(t, want, learnedOf(t, g, key, now).Level, key)
	}
	s := set(t, g, "low")
	grants := fill(s, now)
	require.Len(t, grants, 5)
	for range 200 {
		now += sec / 10
		for i := range grants {
			s.Succeeded(&grants[i], 0, now, nil)
			s.Release(&grants[i], now, nil)
		}
		grants = fill(s, now)
	}
	require.Len(t, grants, 40)
	require.Zero(t, learnedOf(t, g, "low", now).Cuts)
	overload(s, now, now+1)
	require.EqualValues(t, 20*One, learnedOf(t, g, "low", now+1).Level)
}

func TestExpiredLeasesCountIfAsked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		g, now := newGates(), start
		l := learning(10)
		l.Adapt.Expired = asked
		limit(t, g, "k", l, now)
		s := set(t, g, "k")
		s.Overloaded(Overload{Delivered: now, Expired: true, Cause: "lease expired"}, now)
		require.Equal(t, asked, learnedOf(t, g, "k", now).Cuts == 1)
	}
}

// A change of the ceiling keeps what was learned below it.
func TestALevelOutlivesAChangeOfLimits(t *testing.T) {
	g, now := newGates(), start
	limit(t, g, "k", learning(16), now)
	s := set(t, g, "k")
	overload(s, now, now)
	for ceiling, want := range map[int64]int64{100: 8, 4: 4} {
		limit(t, g, "k", learning(ceiling), now)
		require.Equal(t, want*int64(One), learnedOf(t, g, "k", now).Level)
		limit(t, g, "k", learning(16), now)
		s.Gates()[0].mu.learner.level.Set(8, now, &s.Gates()[0].mu.learner.bounds)
	}
}

// A restart goes on from the levels of the process before, and a key of a prefix keeps its level
// for an hour without use.
func TestLevelsAreKept(t *testing.T) {
	g, now := newGates(), start
	_, err := g.SetPrefix("tenant:", learning(16), now, nil)
	require.NoError(t, err)
	limit(t, g, "k", learning(16), now)
	for _, key := range []string{"k", "tenant:a"} {
		s := set(t, g, key)
		overload(s, now, now)
		g.Close(s, now)
	}
	set(t, g, "tenant:b")
	require.Len(t, g.Levels(), 2)

	next := newGates()
	next.RestoreLevels(g.Levels())
	_, err = next.SetPrefix("tenant:", learning(16), now, nil)
	require.NoError(t, err)
	limit(t, next, "k", learning(16), now)
	require.Equal(t, g.Levels(), next.Levels(), "before any message has come")
	for _, key := range []string{"k", "tenant:a"} {
		require.Len(t, fill(set(t, next, key), now), 8)
	}

	now += learnedRest - 1
	g.Visits()
	setAt(t, g, now, "tenant:c")
	require.Len(t, g.Levels(), 2)
	for range 10 {
		now += sec
		setAt(t, g, now, "tenant:c")
	}
	require.Len(t, g.Levels(), 1, "only the key with limits of its own")
}

// Whatever happens, a gate has at most as many messages in flight as it admitted by its level.
func TestALearningGateByChance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, now := New(Start{}, start), start
		ceiling := rapid.Int64Range(1, 50).Draw(t, "ceiling")
		_, err := g.SetLimits("k", learning(ceiling), now, nil)
		require.NoError(t, err)
		s, err := g.Set([]string{"k"}, now)
		require.NoError(t, err)
		var grants []Grant
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += rapid.Int64Range(0, sec/10).Draw(t, "gone")
			level := s.Gates()[0].Info(now).Learned.Level / One
			require.LessOrEqual(t, level, ceiling)
			require.GreaterOrEqual(t, level, min(2, ceiling))
			switch grant, why, ok := s.Acquire(now, One, nil); {
			case ok:
				grants = append(grants, grant)
				require.LessOrEqual(t, int64(len(grants)), level)
			default:
				require.Equal(t, ByInFlight, why.Kind)
				require.GreaterOrEqual(t, int64(len(grants)), level)
			}
			for len(grants) > 0 && rapid.Bool().Draw(t, "ends") {
				if rapid.IntRange(0, 9).Draw(t, "refused") == 0 {
					s.Overloaded(Overload{Delivered: now - rapid.Int64Range(0, sec).Draw(t, "took")}, now)
				} else {
					s.Succeeded(&grants[0], 0, now, nil)
				}
				s.Release(&grants[0], now, nil)
				grants = grants[1:]
			}
		}
	})
}
