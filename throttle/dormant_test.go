package throttle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func prefix(t require.TestingT, g *Gates, key string, l Limits, now int64) {
	_, err := g.SetPrefix(key, l, now, nil)
	require.NoError(t, err)
}

// use sends n messages through the gate of a key, a nanosecond apart, and leaves it idle.
func use(t testing.TB, g *Gates, key string, messages int, now int64) {
	t.Helper()
	for i := range int64(messages) {
		s := setAt(t, g, now+i, key)
		grant, _, ok := s.Acquire(now+i, One, nil)
		require.True(t, ok)
		s.Release(&grant, now+i, nil)
		g.Close(s, now+i)
	}
}

// heap returns the bytes of memory in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one has found out of use
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A dormant gate takes 150 bytes, with its key and its place in all lists, and 8 for each
// entry of a window, at any number of gates.
func TestMemoryOfWaitingGates(t *testing.T) {
	bucket := Limits{Rate: PerSecond(333), Burst: 10 * One}
	window := Limits{Limit: 100, Window: 24 * 3600 * sec}
	both := Limits{Rate: bucket.Rate, Burst: bucket.Burst, Limit: window.Limit, Window: window.Window}
	for name, tc := range map[string]struct {
		keys, messages int
		limits         Limits
		entries        int64
	}{
		"bucket":             {100_000, 2, bucket, 0},
		"other number":       {15_000, 2, bucket, 0},
		"window":             {20_000, 1, window, 1},
		"window of more":     {5000, 20, window, 20},
		"bucket and window":  {20_000, 3, both, 3},
		"window of a year":   {20_000, 2, Limits{Limit: 100, Window: MaxWindow}, 2},
		"window of parts":    {5000, 20, Limits{Limit: 1025, Window: 1025 * 1024}, 20},
		"all at once":        {20_000, 2, bucket, 0},
		"nothing to wait on": {20_000, 2, Limits{Concurrency: 3}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			g := newGates()
			prefix(t, g, "", tc.limits, start)
			for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(tc.keys) {
				use(t, g, fmt.Sprintf("tenant:%09d", i), tc.messages, start)
			}
			if name == "all at once" {
				var sets []*Set
				for i := range tc.keys {
					sets = append(sets, set(t, g, fmt.Sprintf("tenant:%09d", i)))
				}
				for _, s := range sets {
					g.Close(s, start)
				}
			}
			perKey := (heap() - before) / int64(tc.keys)
			t.Logf("%d bytes a key", perKey)
			require.LessOrEqual(t, perKey, 150+8*tc.entries)
			if tc.limits.Concurrency == 0 {
				require.EqualValues(t, tc.keys, g.Count())
			}
			runtime.KeepAlive(g)
		})
	}
}

// A dormant gate is listed, described and counted like an awake one, and reading it does not
// wake it.
func TestDormantGatesAreSeen(t *testing.T) {
	g := newGates()
	prefix(t, g, "t:", Limits{Rate: PerSecond(One), Burst: 5 * One, Limit: 9, Window: 100 * sec}, start)
	for i := range 4 {
		use(t, g, fmt.Sprint("t:", i), i+1, start)
	}
	at := start + sec/2
	var awake []Info
	for i := range 4 {
		info, gate, listed := g.Look(fmt.Sprint("t:", i), at)
		require.True(t, gate && listed)
		awake = append(awake, info)
	}
	snapshot := g.Snapshot(at)
	require.Equal(t, 4, g.sleepAll(at))
	for i := range 4 {
		info, gate, listed := g.Look(fmt.Sprint("t:", i), at)
		require.True(t, gate && listed)
		require.Equal(t, awake[i], info)
		require.Equal(t, Limits{Rate: PerSecond(One), Burst: 5 * One, Limit: 9, Window: 100 * sec}, g.Limits(info.Key))
	}
	require.Equal(t, []string{"t:0", "t:1", "t:2", "t:3"}, g.Page("t:", "", 0, 10).Keys)
	require.Equal(t, snapshot, g.Snapshot(at))
	require.EqualValues(t, 4, g.Count())
	require.True(t, g.Full([]string{"t:new"}, 4, at))
	require.False(t, g.Full([]string{"t:1", "t:2", "t:1"}, 4, at), "they have gates")
	require.Equal(t, 4, g.sleepAll(at), "nothing was woken")

	// Name changes only whether the key is listed.
	g.Name("t:1", true)
	g.Name("t:1", false)
	g.Name("t:2", true)
	require.EqualValues(t, 4, g.Count())
	g.sweepAll(start + 200*sec)
	require.Zero(t, g.Count())
	require.Equal(t, []string{"t:2"}, g.Page("", "", 0, 10).Keys)
	_, gate, listed := g.Look("t:2", start+200*sec)
	require.False(t, gate)
	require.True(t, listed)
}

// Traffic alone makes gates dormant and drops the ones that are like new. A key at the cap
// of Full gets in when another one has been dropped.
func TestTrafficForgetsDormantGates(t *testing.T) {
	g := newGates()
	prefix(t, g, "", Limits{Limit: 1, Window: 100 * sec}, start)
	const n = 5000
	for i := range n {
		use(t, g, fmt.Sprint(i), 1, start)
	}
	require.LessOrEqual(t, len(g.mu.gates.all), awakeIdle+1)
	require.EqualValues(t, n, g.Count())
	require.True(t, g.Full([]string{"more"}, n, start+50*sec))
	tries := 0
	for g.Full([]string{"more"}, n, start+100*sec) {
		tries++
		require.Less(t, tries, n)
	}
	for range 3 * n / sweepSteps {
		s := set(t, g, "more")
		g.Close(s, start+100*sec)
	}
	require.LessOrEqual(t, g.Count(), int64(1))
}

// Two registries do the same, and the gates of one become dormant whenever they can. Their
// results do not differ.
func TestSleepChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := start
		one, other := New(Start{}, now), New(Start{}, now)
		other.mu.awakeIdle = math.MaxInt
		keys := []string{"a", "b"}
		for _, k := range keys {
			l := drawLimits(3000).Draw(t, "limits of "+k)
			prefix(t, one, k, l, now)
			prefix(t, other, k, l, now)
		}
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			now = safeAdd(now, drawStep().Draw(t, "step"))
			one.clock.tick(now)
			other.clock.tick(now)
			of := rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 1, 2, rapid.ID).Draw(t, "set")
			a, err := one.Set(of, now)
			require.NoError(t, err)
			b, err := other.Set(of, now)
			require.NoError(t, err)
			for range rapid.IntRange(0, 200).Draw(t, "messages") {
				now = safeAdd(now, rapid.Int64Range(0, 5000).Draw(t, "later"))
				cost := drawCost().Draw(t, "cost")
				ticketA, blockA, okA := a.Acquire(now, cost, nil)
				ticketB, blockB, okB := b.Acquire(now, cost, nil)
				require.Equal(t, okB, okA)
				require.Equal(t, [2]any{blockB.Kind, blockB.At}, [2]any{blockA.Kind, blockA.At})
				if rapid.IntRange(0, 3).Draw(t, "end") == 0 {
					a.Undo(&ticketA, now, nil)
					b.Undo(&ticketB, now, nil)
				} else {
					a.Release(&ticketA, now, nil)
					b.Release(&ticketB, now, nil)
				}
			}
			one.Close(a, now)
			other.Close(b, now)
			one.sleepAll(now)
			require.Equal(t, other.Snapshot(now), one.Snapshot(now))
		}
	})
}

// A gate that wakes does not keep the text alive whose substring its key was.
func TestWokenGateHasItsKeyToItself(t *testing.T) {
	g := newGates()
	g.mu.awakeIdle = 0
	prefix(t, g, "", Limits{Limit: 1, Window: 3600 * sec}, start)
	use(t, g, "tenant", 1, start)
	require.Empty(t, g.mu.gates.all, "it is dormant")
	key := strings.Repeat("-", 1<<20) + "tenant"
	key = key[1<<20:]
	s := set(t, g, key)
	defer g.Close(s, start)
	require.NotSame(t, unsafe.StringData(key), unsafe.StringData(s.gates[0].key))
	for listed := range g.mu.gates.all {
		require.NotSame(t, unsafe.StringData(key), unsafe.StringData(listed))
	}
}
