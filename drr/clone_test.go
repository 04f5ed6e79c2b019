package drr

import (
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
		drain := func(s *Scheduler) (order []Flow) {
			left := func() map[Flow]int {
				c := make(map[Flow]int)
				for f, n := range left {
					c[f] = n
				}
				return c
			}()
			for {
				f, ok := s.Peek()
				if !ok {
					return order
				}
				order = append(order, f)
				if left[f]--; left[f] == 0 {
					s.Take(0)
				} else {
					s.Take(1000 * int64(1+len(order)%3))
				}
			}
		}
		c := s.Clone()
		want := drain(s.Clone())
		checkInvariants(t, s)
		require.Equal(t, want, drain(c))
		require.Equal(t, want, drain(s))
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
		want := drain(l.Clone())
		require.Equal(t, want, drain(l.Clone()))
		require.Equal(t, want, drain(&l))
	})
}
