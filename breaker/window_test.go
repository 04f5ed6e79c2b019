package breaker

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestFailureWindow compares the ring with a list of all failures.
func TestFailureWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w FailureWindow
		limit, window := int64(0), int64(1)
		var times []int64
		now := int64(1000)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				now += rapid.Int64Range(0, 30).Draw(t, "later")
				times = append(times, now)
				n := int64(0)
				for _, at := range times {
					if at > now-window {
						n++
					}
				}
				over := limit > 0 && n > limit
				require.Equal(t, over, w.Add(now))
				if over || limit == 0 {
					times = nil
				}
			},
			"set": func(t *rapid.T) {
				old := window
				if rapid.Bool().Draw(t, "other window") {
					window = rapid.Int64Range(1, 200).Draw(t, "window")
				}
				if before := limit; rapid.Bool().Draw(t, "other limit") {
					limit = rapid.Int64Range(0, 40).Draw(t, "limit")
					if before == 0 {
						times = nil
					}
				}
				w.Set(limit, window, now)
				if window < old || int64(len(times)) > limit {
					times = kept(times, limit, now-window)
				}
				// A longer window does not bring back forgotten failures.
				times = times[max(len(times)-w.n, 0):]
			},
			"clear": func(*rapid.T) {
				w.Clear()
				times = nil
			},
			"count": func(t *rapid.T) {
				require.Len(t, kept(times, math.MaxInt64, now-window), w.Count(now))
			},
		})
	})
}

// kept returns the last limit times of those after oldest.
func kept(times []int64, limit, oldest int64) []int64 {
	for len(times) > 0 && (times[0] <= oldest || int64(len(times)) > limit) {
		times = times[1:]
	}
	return times
}

func TestFailureWindowWhenTheClockIsSetBack(t *testing.T) {
	var w FailureWindow
	w.Set(2, 100, 0)
	require.False(t, w.Add(10_000))
	require.False(t, w.Add(9_950), "within the window it stands still")
	require.True(t, w.Add(9_960))
	require.False(t, w.Add(10_000))
	require.False(t, w.Add(10_000))
	require.False(t, w.Add(500), "long ago: it begins anew")
	require.False(t, w.Add(550))
	require.True(t, w.Add(599))
}
