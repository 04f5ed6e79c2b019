package throttle

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSetsAreShared(t *testing.T) {
	g := newGates()
	a := set(t, g, "b", "a", "b")
	require.Same(t, a, set(t, g, "a", "b"))
	require.NotSame(t, a, set(t, g, "ab"))
	require.NotSame(t, a, set(t, g, "a", "", "b"))
	require.Equal(t, []string{"", "a", "ab", "b"}, g.Keys())
	require.Equal(t, "a", a.Gates()[0].Key())
	require.Len(t, a.Gates(), 2)

	keys := make([]string, 40)
	for i := range keys {
		keys[i] = fmt.Sprint(i % MaxKeys)
	}
	require.Len(t, set(t, g, keys...).Gates(), MaxKeys)
	keys[3] = "one more"
	_, err := g.Set(keys, start)
	require.ErrorIs(t, err, ErrKeys)
	long := strings.Repeat("k", 1000)
	require.Same(t, set(t, g, long), set(t, g, long))
}

func TestForgetting(t *testing.T) {
	g := newGates()
	prefix(t, g, "tenant:", Limits{Rate: PerSecond(One), Limit: 5, Window: 10 * sec}, start)
	limit(t, g, "own", Limits{Limit: 1, Window: sec}, start)
	a, b, own := set(t, g, "tenant:a"), set(t, g, "tenant:a", "free"), set(t, g, "own")
	grant, _, _ := a.Acquire(start, One, nil)
	own.Acquire(start, One, nil)
	a.Release(&grant, start, nil)
	g.Close(a, start)
	require.Equal(t, []string{"free", "own", "tenant:a"}, g.Keys())
	g.Close(b, start)
	g.sweepAll(start + 10*sec - 1)
	require.Equal(t, []string{"own", "tenant:a"}, g.Keys(), "the window is in use still")
	g.sweepAll(start + 10*sec)
	require.Equal(t, []string{"own"}, g.Keys())
	g.Close(own, start+10*sec)
	require.Equal(t, []string{"own"}, g.Keys(), "it has limits of its own")
	limit(t, g, "own", Limits{}, start+10*sec)
	g.sweepAll(start + 10*sec)
	require.Equal(t, []string{"own"}, g.Keys(), "a message is in flight")

	limit(t, g, "quiet", Limits{Limit: 1, Window: sec}, start+10*sec)
	g.sweepAll(start + 10*sec)
	limit(t, g, "quiet", Limits{}, start+10*sec)
	g.sweepAll(start + 10*sec)
	require.Equal(t, []string{"own"}, g.Keys())

	// A gate that comes back while its state lives is the same.
	a = set(t, g, "tenant:a")
	a.Acquire(start+20*sec, One, nil)
	gate := a.Gates()[0]
	g.Close(a, start+20*sec)
	require.Same(t, gate, set(t, g, "tenant:a").Gates()[0])
}

// Keys that come and go leave nothing behind, without an extra sweep.
func TestMemoryOfManyKeys(t *testing.T) {
	g := newGates()
	prefix(t, g, "", Limits{Rate: PerSecond(One)}, start)
	for i := range int64(10_000) {
		now := start + i*sec/100 // a bucket is full again after 100 of them
		s := setAt(t, g, now, fmt.Sprint(i))
		grant, _, ok := s.Acquire(now, One, nil)
		require.True(t, ok)
		s.Release(&grant, now, nil)
		g.Close(s, now)
		require.LessOrEqual(t, len(g.Keys()), 300)
	}
	require.Empty(t, g.mu.sets.all)
}

// The same with as many keys as a message can have, all of them its own.
func TestMemoryOfManyKeysAMessage(t *testing.T) {
	g := newGates()
	for i := range int64(1000) {
		keys := make([]string, MaxKeys)
		for j := range keys {
			keys[j] = fmt.Sprint(i, ".", j)
		}
		s, err := g.Set(keys, start+i)
		require.NoError(t, err)
		g.Close(s, start+i)
		require.LessOrEqual(t, len(g.Keys()), MaxKeys)
	}
}

func TestPrefixes(t *testing.T) {
	g := newGates()
	s := set(t, g, "tenant:a:x")
	rate := func(n int64) Limits { return Limits{Rate: PerSecond(n * One)} }
	put := func(key string, l Limits) { prefix(t, g, key, l, start) }
	put("tenant:", rate(1))
	put("tenant:a", rate(2))
	put("other:", rate(3))
	require.Equal(t, rate(2), g.Limits("tenant:a:x"))
	require.Equal(t, rate(2), g.Limits("tenant:a:none"))
	require.Equal(t, rate(1), g.Limits("tenant:b"))
	require.Zero(t, g.Limits("nothing"))
	limit(t, g, "tenant:a:x", rate(9), start)
	put("tenant:a", rate(4))
	require.Equal(t, rate(9), g.Limits("tenant:a:x"))
	limit(t, g, "tenant:a:x", Limits{}, start)
	require.Equal(t, rate(4), g.Limits("tenant:a:x"))
	put("tenant:a", Limits{})
	require.Equal(t, rate(1), g.Limits("tenant:a:x"))
	put("tenant:", Limits{})
	require.Zero(t, s.Gates()[0].Info(start).Limits)
	require.Equal(t, Open, s.Gates()[0].Info(start).Kind)
	_, found := g.Find("tenant:b")
	require.False(t, found)
}

func TestStartAfterCrash(t *testing.T) {
	g := New(Start{Crashed: true, WindowHold: 60 * sec}, start)
	limit(t, g, "bucket", Limits{Rate: PerSecond(One), Burst: 5 * One}, start)
	limit(t, g, "short", Limits{Limit: 2, Window: 10 * sec}, start)
	limit(t, g, "long", Limits{Limit: 2, Window: 1000 * sec}, start)
	opens := func(key string, now int64) int64 {
		block, ok := set(t, g, key).Check(now, One, nil)
		if ok {
			return 0
		}
		return (block.At - start) / sec
	}
	require.Equal(t, [3]int64{1, 10, 60}, [3]int64{opens("bucket", start), opens("short", start), opens("long", start)})
	now := start + 3*sec
	require.Equal(t, int64(3*One), set(t, g, "bucket").Gates()[0].Info(now).Tokens)
	limit(t, g, "later", Limits{Rate: PerSecond(One), Burst: 9 * One}, now)
	require.Equal(t, int64(3*One), set(t, g, "later").Gates()[0].Info(now).Tokens, "since the start")

	require.Equal(t, int64(2), set(t, g, "short").Gates()[0].Info(now).InWindow)
	limit(t, g, "short", Limits{Limit: 100, Window: 10 * sec}, now)
	require.Equal(t, int64(10), opens("short", now), "an earlier limit may have been higher than the limit at the crash")
	require.Zero(t, opens("short", start+10*sec))

	strict := New(Start{Crashed: true, WindowHold: MaxWindow}, start)
	limit(t, strict, "long", Limits{Limit: 2, Window: 1000 * sec}, start)
	block, ok := set(t, strict, "long").Check(start, One, nil)
	require.False(t, ok)
	require.Equal(t, start+1000*sec, block.At)
	// A short window forgets the long one: docs/gates.md.
	limit(t, strict, "long", Limits{Limit: 2, Window: sec}, start+sec)
	limit(t, strict, "long", Limits{Limit: 2, Window: 1000 * sec}, start+3*sec)
	_, ok = set(t, strict, "long").Check(start+3*sec, One, nil)
	require.True(t, ok)
	none := New(Start{Crashed: true}, start)
	limit(t, none, "long", Limits{Limit: 2, Window: 1000 * sec}, start)
	_, ok = set(t, none, "long").Check(start, One, nil)
	require.True(t, ok)
}

func TestRestore(t *testing.T) {
	old := newGates()
	own := Limits{Rate: PerSecond(One), Burst: 5 * One, Limit: 3, Window: 100 * sec}
	put := func(g *Gates, now int64) {
		limit(t, g, "own", own, now)
		prefix(t, g, "p:", Limits{Rate: PerSecond(One)}, now)
	}
	put(old, start)
	limit(t, old, "gone", Limits{Limit: 1, Window: sec}, start)
	limit(t, old, "unused", own, start)
	for _, k := range []string{"own", "p:x", "gone"} {
		set(t, old, k).Acquire(start, 7*One, nil)
	}
	states := old.Snapshot(start + sec)
	debt, more := int64(-One), int64(-5*One)
	require.Equal(t, []State{
		{Key: "own", At: start + sec, Tokens: &debt, Entries: []Entry{{Age: sec, Count: 1}}},
		{Key: "p:x", At: start + sec, Tokens: &more},
	}, states, "the window of gone is empty again")

	for name, tc := range map[string]struct{ pause, tokens int64 }{
		"at once":             {0, -One},
		"two seconds":         {2 * sec, One},
		"clock has gone back": {-50 * sec, -One},
		"a year":              {MaxWindow, 5 * One},
	} {
		t.Run(name, func(t *testing.T) {
			now := start + sec + tc.pause
			g := New(Start{}, now)
			put(g, now)
			g.Restore(states, now)
			info := set(t, g, "own").Gates()[0].Info(now)
			require.Equal(t, tc.tokens, info.Tokens)
			require.Equal(t, tc.pause < MaxWindow, info.InWindow == 1)
			require.NotContains(t, g.Keys(), "gone")
			if tc.pause == 0 {
				require.Equal(t, states, g.Snapshot(now))
			}
			g.sweepAll(now + 200*sec)
			require.Equal(t, []string{"own"}, g.Keys())
		})
	}
	// Values out of range are clamped.
	wild := []State{{Key: "own", At: start + MaxWindow, Tokens: new(int64), Entries: []Entry{{-5, -5}, {1 << 62, 1 << 62}, {1, 2}}}}
	*wild[0].Tokens = -1 << 62
	g := newGates()
	put(g, start)
	g.Restore(wild, start)
	info := set(t, g, "own").Gates()[0].Info(start)
	require.Equal(t, [2]int64{-MaxBurst, 3}, [2]int64{info.Tokens, info.InWindow})
}

// Overlapping sets, used from many goroutines, do not deadlock, lose no place in flight and
// stay within the limits.
func TestConcurrentUse(t *testing.T) {
	g := newGates()
	var now atomic.Int64
	now.Store(start)
	keys := []string{"a", "b", "c", "d", "e", "f"}
	var inFlight [6]atomic.Int64
	const limited = 3
	for _, k := range keys {
		limit(t, g, k, Limits{Rate: PerSecond(1_000_000 * One), Limit: 100_000, Window: sec, Concurrency: limited}, start)
	}
	var wg sync.WaitGroup
	var granted, over atomic.Int64
	for worker := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			var wake []*Wait
			for range 3000 {
				at := now.Add(r.Int64N(1000)) - r.Int64N(5000)
				var mine []string
				var index []int
				for _, i := range r.Perm(len(keys))[:1+r.IntN(len(keys))] {
					mine, index = append(mine, keys[i]), append(index, i)
				}
				s, err := g.Set(mine, at)
				if err != nil {
					panic(err)
				}
				owner := any(worker)
				if r.IntN(2) == 0 {
					owner = nil
				}
				grant, block, ok := s.Acquire(at, One, owner)
				if ok {
					granted.Add(1)
					for _, i := range index {
						if inFlight[i].Add(1) > limited {
							over.Add(1)
						}
					}
					runtime.Gosched()
					for _, i := range index {
						inFlight[i].Add(-1)
					}
					if r.IntN(2) == 0 {
						wake = s.Undo(&grant, at, wake[:0])
					} else {
						wake = s.Release(&grant, at, wake[:0])
					}
				} else {
					w := NewWait(block.Gate, owner)
					w.Join(at, One)
					w.Turn(at)
					wake = w.Pass(wake[:0])
					wake = w.Leave(wake)
				}
				switch r.IntN(40) {
				case 0:
					if res, ok := g.Reserve(s, One); ok {
						t, _, _ := res.Acquire(at, nil, nil)
						s.Release(&t, at, nil)
						res.Cancel(at, nil)
					}
				case 1:
					g.Snapshot(at)
					g.Keys()
				case 2:
					l := Limits{Rate: PerSecond((1_000_000 + r.Int64N(10)) * One), Limit: 100_000, Window: sec, Concurrency: limited}
					if _, err := g.SetLimits(mine[0], l, at, nil); err != nil {
						panic(err)
					}
				case 3:
					s.Gates()[0].Info(at)
				case 4:
					wake = g.Pause(mine[0], at+r.Int64N(5000), at, wake[:0])
				}
				g.Close(s, at)
			}
		})
	}
	wg.Wait()
	require.Zero(t, over.Load())
	require.Greater(t, granted.Load(), int64(1000))
	for _, k := range keys {
		gate, ok := g.Find(k)
		require.True(t, ok)
		info := gate.Info(now.Load())
		require.Equal(t, [3]int64{0, 0, 0}, [3]int64{info.InFlight, info.Reserved, int64(info.Waiting)})
	}
	require.Empty(t, g.mu.sets.all)
}
