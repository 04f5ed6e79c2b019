package drr

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

var benchFlows = []int{10, 1000, 100_000, 1_000_000}

// BenchmarkTake serves flows that have always something to send: the scheduler alone,
// without a list of items.
func BenchmarkTake(b *testing.B) {
	for _, n := range benchFlows {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			s := New(1)
			for _, f := range rand.Perm(n) {
				s.Join(Flow(f), one, one)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				s.Peek()
				s.Take(one)
			}
		})
	}
}

// benchSteady takes an item and pushes one to the same flow: the set of flows
// stays.
func benchSteady(b *testing.B, s *items, weight, cost int64) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		it, _ := s.Next()
		s.Push(it.Flow, weight, it.Value, cost)
	}
}

func BenchmarkUniform(b *testing.B) {
	for _, n := range benchFlows {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			s := newItems(1)
			for _, f := range rand.Perm(n) {
				fill(s, Flow(f), one, one, 2)
			}
			benchSteady(b, s, one, one)
		})
	}
}

// BenchmarkSkewed pushes to flows drawn from a Zipf distribution, so that most
// of them join and leave all the time.
func BenchmarkSkewed(b *testing.B) {
	for _, n := range benchFlows {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			s := newItems(1)
			perm := rand.Perm(n)
			zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 10, uint64(n-1))
			draws := make([]Flow, 1<<20)
			for i := range draws {
				draws[i] = Flow(perm[zipf.Uint64()])
				s.Push(draws[i], one, 0, one)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				s.Push(draws[i&(len(draws)-1)], one, 0, one)
				s.Next()
			}
			b.ReportMetric(float64(s.Active()), "active")
		})
	}
}

// BenchmarkDear has items that need k turns each, in all flows: a ring that is
// walked would take k steps per flow and item.
func BenchmarkDear(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		for _, k := range []int64{1, 10, 1000, 100_000, 1_000_000_000} {
			b.Run(fmt.Sprintf("flows=%d/k=%d", n, k), func(b *testing.B) {
				s := newItems(1)
				for f := range Flow(n) {
					fill(s, f, 1, k, 2)
				}
				benchSteady(b, s, 1, k)
			})
		}
	}
}

// BenchmarkDearMixed gives each item a random k from 1 to the limit, so that
// filed flows come back out of order.
func BenchmarkDearMixed(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		for _, k := range []int64{10, 1000, 1_000_000} {
			b.Run(fmt.Sprintf("flows=%d/k<=%d", n, k), func(b *testing.B) {
				s := newItems(1)
				costs := make([]int64, 4096)
				for i := range costs {
					costs[i] = 1 + rand.Int64N(k)
				}
				for f := range Flow(n) {
					s.Push(f, 1, 0, costs[f%4096])
					s.Push(f, 1, 0, costs[f*7%4096])
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					it, _ := s.Next()
					s.Push(it.Flow, 1, 0, costs[i&4095])
				}
			})
		}
	}
}

// BenchmarkJoinInOnePlace lets a burst of new flows join between two others,
// where labels run out again and again.
func BenchmarkJoinInOnePlace(b *testing.B) {
	const burst = 100_000
	b.ReportAllocs()
	for i := 0; i < b.N; i += burst {
		b.StopTimer()
		s := newItems(1)
		fill(s, burst, one, one, 9)
		fill(s, burst+1, one, one, 9)
		s.Next()
		s.Next()
		s.Next()
		b.StartTimer()
		for f := range Flow(burst) {
			s.Push(f, one, 0, one)
		}
	}
}

// BenchmarkHeldBack takes the due item out without a charge, and puts it back.
func BenchmarkHeldBack(b *testing.B) {
	const n = 100_000
	s := newItems(1)
	for f := range Flow(n) {
		fill(s, f, one, one, 2)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		it, h, _ := s.Peek()
		s.Remove(h)
		s.EndTurn()
		s.PushFront(it.Flow, one, it.Value, it.Cost)
	}
}

func BenchmarkSetWeightOfFiledFlow(b *testing.B) {
	const n = 100_000
	s := newItems(1)
	for f := range Flow(n) {
		fill(s, f, one, 500*one, 1)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		s.SetWeight(Flow(i%n), int64(1+i/n%7)*one)
	}
}

// BenchmarkJoin makes flows active in an empty scheduler: memory included.
func BenchmarkJoin(b *testing.B) {
	b.ReportAllocs()
	s := New(1)
	for i := range b.N {
		s.Join(Flow(i), one, one)
	}
}

// BenchmarkLineTake takes a message; the lane waits on with the next one.
func BenchmarkLineTake(b *testing.B) {
	for _, n := range []int{1, 10, 100, 10_000, 100_000} {
		for _, lanes := range []int{1, 4} {
			b.Run(fmt.Sprintf("flows=%d/lanes=%d", n, lanes), func(b *testing.B) {
				var l Line
				for i := range uint32(n * lanes) {
					l.Add(Flow(i)%Flow(n), int64(1+i%5)*one, i, int64(1+i%7)*one)
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					l.Take(int64(1+i%7)*one, true)
				}
			})
		}
	}
}

// BenchmarkLineJoin has a lane leave and another one join each time.
func BenchmarkLineJoin(b *testing.B) {
	for _, n := range []int{1, 10, 100, 100_000} {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			var l Line
			for i := range uint32(n) {
				l.Add(Flow(i), one, i, one)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				lane, f, _ := l.Peek()
				l.Take(0, false)
				l.Add(f, one, lane, one)
			}
		})
	}
}

// BenchmarkLineFill makes lines of one flow.
func BenchmarkLineFill(b *testing.B) {
	b.ReportAllocs()
	lines := make([]Line, 0, 1<<16)
	for i := range b.N {
		if len(lines) == cap(lines) {
			lines = lines[:0]
		}
		lines = append(lines, Line{})
		lines[len(lines)-1].Add(Flow(i), one, uint32(i), one)
	}
}
