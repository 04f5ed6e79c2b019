package drr

import (
	"maps"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A clone decides as the original does, and neither changes the other.
func TestClone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(rapid.Int64Range(1, 5).Draw(t, "quantum"))
		left := make(map[Flow]int)
		cost := rapid.SampledFrom([]int64{1, 1000, 1000, 3000, 500_000})
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			f := Flow(rapid.IntRange(0, 200).Draw(t, "flow"))
			if left[f] == 0 {
				left[f] = rapid.IntRange(1, 5).Draw(t, "messages")
				s.Join(f, rapid.Int64Range(100, 5000).Draw(t, "weight"), cost.Draw(t, "cost"))
				continue
			}
			f, _ = s.Peek()
			if left[f]--; left[f] == 0 {
				s.Take(0)
			} else {
				s.Take(cost.Draw(t, "next"))
			}
		}
		same := make([]Flow, 201)
		for i := range same {
			same[i] = Flow(i)
		}
		drain := func(s *Scheduler, flows []Flow) (order []Flow) {
			left := maps.Clone(left)
			for {
				n, ok := s.Peek()
				if !ok {
					return order
				}
				f := flows[n]
				order = append(order, f)
				if left[f]--; left[f] == 0 {
					s.Take(0)
				} else {
					s.Take(1000 * int64(1+len(order)%3))
				}
			}
		}
		c, flows := s.Clone(s.Active())
		require.Len(t, flows, s.Active())
		checkInvariants(t, c)
		want := drain(s.Clone(len(same)))
		checkInvariants(t, s)
		require.Equal(t, want, drain(c, flows))
		require.Equal(t, want, drain(s, same))
	})
}

// TestCloneTakesTheFlowsThatAreDueFirst: one delivery less than a copy has flows are the ones of
// the original. The turn of one flow may be over.
func TestCloneTakesTheFlowsThatAreDueFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(1)
		weight := rapid.SampledFrom([]int64{1000, 1000, 1000, 50, 5})
		for f := range Flow(rapid.IntRange(1, 300).Draw(t, "flows")) {
			s.Join(f, weight.Draw(t, "weight"), 1000)
		}
		for range rapid.IntRange(0, 100).Draw(t, "taken") {
			s.Peek()
			s.Take(1000)
		}
		most := rapid.IntRange(0, 40).Draw(t, "most")
		c, flows := s.Clone(most)
		require.Len(t, flows, min(most, s.Active()))
		checkInvariants(t, c)
		for range len(flows) - 1 {
			n, ok := c.Peek()
			require.True(t, ok)
			f, _ := s.Peek()
			require.Equal(t, f, flows[n])
			c.Take(1000)
			s.Take(1000)
		}
	})
}

// BenchmarkClone copies 10,000 of a million flows, and 1,000 of a million lanes.
func BenchmarkClone(b *testing.B) {
	s, l := New(1), Line{}
	for f := range Flow(1_000_000) {
		s.Join(f, 1000, 1000)
		l.Add(f, 1000, uint32(f), 1000)
	}
	b.Run("scheduler", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Clone(10_000)
		}
	})
	b.Run("line", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Clone(1000)
		}
	})
}

func TestCloneOfALine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line
		for lane := range uint32(rapid.IntRange(0, 60).Draw(t, "lanes")) {
			l.Add(Flow(rapid.IntRange(0, 30).Draw(t, "flow")), rapid.Int64Range(100, 5000).Draw(t, "weight"), lane, rapid.Int64Range(1, 9000).Draw(t, "cost"))
			if rapid.Bool().Draw(t, "take") {
				l.Take(rapid.Int64Range(1, 9000).Draw(t, "next"), rapid.Bool().Draw(t, "more"))
			}
		}
		drain := func(l *Line) (order []uint32) {
			for len(order) < math.MaxInt8 {
				lane, _, ok := l.Peek()
				if !ok {
					break
				}
				order = append(order, lane)
				l.Take(1000, len(order)%3 == 0)
			}
			return order
		}
		want := drain(l.Clone(l.Len()))
		require.Equal(t, want, drain(l.Clone(l.Len())))
		require.Equal(t, want, drain(&l))
	})
}

// TestCloneTakesTheLanesThatGoFirst: as many lanes as a copy has go in the order of the original.
func TestCloneTakesTheLanesThatGoFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Line
		for f := range Flow(rapid.IntRange(1, 200).Draw(t, "flows")) {
			l.Add(f, rapid.Int64Range(100, 5000).Draw(t, "weight"), uint32(f), rapid.Int64Range(1, 9000).Draw(t, "cost"))
			if rapid.IntRange(0, 4).Draw(t, "take") == 0 {
				l.Take(rapid.Int64Range(1, 9000).Draw(t, "next"), true)
			}
		}
		most := rapid.IntRange(indexAbove, 60).Draw(t, "most")
		c := l.Clone(most)
		require.Equal(t, min(most, l.Len()), c.Len())
		for c.Len() > 0 {
			lane, _, _ := c.Peek()
			want, _, _ := l.Peek()
			require.Equal(t, want, lane)
			c.Take(0, false)
			l.Take(0, false)
		}
	})
}
