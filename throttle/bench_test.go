package throttle

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// wide has limits of all three kinds that are never reached.
var wide = Limits{Rate: PerSecond(MaxRate * One), Burst: MaxBurst, Limit: MaxLimit, Window: sec, Concurrency: MaxConcurrency}

func benchSet(b *testing.B, l Limits, n int) (*Gates, *Set) {
	b.Helper()
	g := newGates()
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("key-%02d", i))
		limit(b, g, keys[i], l, start)
	}
	return g, set(b, g, keys...)
}

func BenchmarkAcquireRelease(b *testing.B) {
	kinds := []struct {
		name string
		l    Limits
	}{
		{"none", Limits{}},
		{"rate", Limits{Rate: wide.Rate, Burst: wide.Burst}},
		{"concurrency", Limits{Concurrency: MaxConcurrency}},
		{"all", wide},
	}
	for _, kind := range kinds {
		for _, n := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("%s/gates=%d", kind.name, n), func(b *testing.B) {
				_, s := benchSet(b, kind.l, n)
				b.ReportAllocs()
				now := start
				for b.Loop() {
					now += 1000
					t, _, ok := s.Acquire(now, One, nil)
					if !ok {
						b.Fatal("shut")
					}
					s.Release(&t, now, nil)
				}
			})
		}
	}
}

// BenchmarkBlocked is an Acquire that fails.
func BenchmarkBlocked(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("gates=%d", n), func(b *testing.B) {
			_, s := benchSet(b, Limits{Rate: Rate{1, MaxWindow}, Limit: 1, Window: MaxWindow}, n)
			s.Acquire(start, One, nil)
			b.ReportAllocs()
			now := start
			for b.Loop() {
				now++
				if _, _, ok := s.Acquire(now, One, nil); ok {
					b.Fatal("open")
				}
			}
		})
	}
}

func BenchmarkUndo(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("gates=%d", n), func(b *testing.B) {
			_, s := benchSet(b, wide, n)
			b.ReportAllocs()
			now := start
			for b.Loop() {
				now += 1000
				t, _, _ := s.Acquire(now, One, nil)
				s.Undo(&t, now, nil)
			}
		})
	}
}

// BenchmarkKeys cycles through many keys with one message each.
func BenchmarkKeys(b *testing.B) {
	const n = 1000
	g := newGates()
	sets := make([]*Set, n)
	for i := range sets {
		k := fmt.Sprintf("tenant:%d", i)
		limit(b, g, k, wide, start)
		sets[i] = set(b, g, k)
	}
	b.ReportAllocs()
	now, i := start, 0
	for b.Loop() {
		now += 1000
		s := sets[i]
		if i++; i == n {
			i = 0
		}
		t, _, _ := s.Acquire(now, One, nil)
		s.Release(&t, now, nil)
	}
}

// BenchmarkWindow has full windows that admit an entry for each one that leaves.
func BenchmarkWindow(b *testing.B) {
	for _, n := range []int64{10, 1024, 1_000_000} {
		b.Run(fmt.Sprintf("limit=%d", n), func(b *testing.B) {
			_, s := benchSet(b, Limits{Limit: n, Window: 1000 * n}, 1)
			b.ReportAllocs()
			now := start
			for range 2 * n {
				now += 1000
				t, _, _ := s.Acquire(now, One, nil)
				s.Release(&t, now, nil)
			}
			for b.Loop() {
				now += 1000
				t, _, _ := s.Acquire(now, One, nil)
				s.Release(&t, now, nil)
			}
		})
	}
}

// BenchmarkSet is Gates.Set and Close: the set exists, or is made and dropped each
// time.
func BenchmarkSet(b *testing.B) {
	keys := []string{"tenant:1", "provider:stripe", "region:eu"}
	for _, known := range []bool{true, false} {
		b.Run(fmt.Sprintf("known=%v", known), func(b *testing.B) {
			g := newGates()
			if known {
				set(b, g, keys...)
			}
			b.ReportAllocs()
			for b.Loop() {
				s, _ := g.Set(keys, start)
				g.Close(s, start)
			}
		})
	}
}

func BenchmarkTurn(b *testing.B) {
	g, s := benchSet(b, wide, 1)
	_ = g
	waits := make([]*Wait, 100)
	for i := range waits {
		waits[i] = NewWait(s.Gates()[0], i)
		waits[i].Join(start, One)
	}
	b.ReportAllocs()
	var wake []*Wait
	next := waits[0]
	for b.Loop() {
		next.Turn(start)
		wake = next.Pass(wake[:0])
		next = wake[0]
	}
}

// BenchmarkParallel has every core at one set of four gates.
func BenchmarkParallel(b *testing.B) {
	_, s := benchSet(b, wide, 4)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		now := start
		for pb.Next() {
			now += 1000
			t, _, _ := s.Acquire(now, One, nil)
			s.Release(&t, now, nil)
		}
	})
}

// The calls for every message allocate nothing.
func TestNoAllocation(t *testing.T) {
	g := newGates()
	keys := []string{"a", "b", "c"}
	for _, k := range keys {
		limit(t, g, k, Limits{Rate: PerSecond(1000 * One), Limit: 100, Window: sec, Concurrency: 2}, start)
	}
	s := set(t, g, keys...)
	busy, now := s.Adopt(), start
	wait := NewWait(s.Gates()[0], "queue")
	wake := make([]*Wait, 0, MaxKeys)
	once := func() {
		now += sec / 50
		known, _ := g.Set(keys, now)
		a, _, _ := known.Acquire(now, One, nil)
		_, block, ok := known.Acquire(now, One, nil)
		if ok || block.Kind != ByInFlight {
			panic("two are in flight")
		}
		wait.Join(now, One)
		wake = known.Undo(&a, now, wake[:0])
		a, _, _ = known.Acquire(now, One, "queue")
		wait.Turn(now)
		wake = wait.Pass(wake[:0])
		wake = wait.Leave(wake[:0])
		wake = known.Release(&a, now, wake[:0])
		g.Close(known, now)
	}
	for range 1000 {
		once()
	}
	require.Zero(t, testing.AllocsPerRun(100, once))
	s.Release(&busy, now, nil)
}
