package hooks

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fillSlow takes every slow place until the test ends or the returned function
// is called.
func fillSlow(t *testing.T) (free func()) {
	for range cap(slowPlaces) {
		slowPlaces <- struct{}{}
	}
	free = sync.OnceFunc(func() {
		for range cap(slowPlaces) {
			<-slowPlaces
		}
	})
	t.Cleanup(free)
	return free
}

// TestWaitingForASlowPlaceIsFree waits for a place for an hour of a clock of its
// own: the run's times move along, so that none of it counts.
func TestWaitingForASlowPlaceIsFree(t *testing.T) {
	free := fillSlow(t)
	looks := 0
	x := &exec{start: 10, last: 20, clock: func() int64 {
		if looks++; looks == 1 {
			go free()
			return 20
		}
		return 20 + int64(time.Hour)
	}}
	x.goSlow()
	require.EqualValues(t, 10+int64(time.Hour), x.start)
	require.EqualValues(t, 20+int64(time.Hour), x.last)
	require.True(t, x.slow)
	x.leaveSlow()
	x.leaveSlow() // once is enough
	require.Empty(t, slowPlaces)
}

// TestRestsAreFreeAndBounded lets a slow run rest on a clock that only its rests
// move: they do not count as running time, and are over when they have taken three
// times as long as the run.
func TestRestsAreFreeAndBounded(t *testing.T) {
	now, rests := int64(1000), 0
	x := &exec{start: 10, last: 20, active: int64(7 * time.Millisecond)}
	x.clock = func() int64 { return now }
	x.sleep = func(time.Duration) { rests++; now += int64(time.Millisecond) }
	for range 100 {
		x.rest()
	}
	require.Equal(t, 21, rests)
	require.EqualValues(t, 10+21*time.Millisecond, x.start)
	require.EqualValues(t, 20+21*time.Millisecond, x.last)
	require.Equal(t, x.active, x.restedAt)
}

// TestSlowPlacesAreGivenBack runs more scripts than there are places into their
// limits of time and memory, and into an error, at once.
func TestSlowPlacesAreGivenBack(t *testing.T) {
	spin := "local x = 0 while x < 2000000 do x = x + 1 end "
	var all sync.WaitGroup
	for i, end := range []string{"while true do end", "local s = {} while true do s[#s+1] = {} end", "error('late')", "return {}"} {
		script, err := Compile(OnEnqueue, "late", "function on_enqueue(msg) "+spin+end+" end", Limits{})
		require.NoError(t, err)
		want := []Cause{CauseTimeout, CauseMemory, CauseError, ""}[i]
		for range 4 {
			all.Go(func() {
				r := NewRunner(RunnerOptions{Kind: OnEnqueue, Script: script, Limits: Limits{Timeout: 20 * time.Second, Steps: 10_000_000}})
				got := Cause("")
				if result := r.OnEnqueue(&EnqueueInput{}); result.Err != nil {
					got = result.Err.Cause
				}
				assert.Equal(t, want, got, end)
			})
		}
	}
	all.Wait()
	require.Empty(t, slowPlaces)
}

// TestQuickRunsDoNotWait holds every slow place and runs a quick hook.
func TestQuickRunsDoNotWait(t *testing.T) {
	fillSlow(t)
	r := newRunner(t, OnEnqueue, `function on_enqueue(msg) return { fairness_key = "a" } end`, RunnerOptions{Limits: Limits{Steps: 10_000}})
	result := r.OnEnqueue(&EnqueueInput{})
	require.Nil(t, result.Err)
	require.Equal(t, "a", result.Enqueue.FairnessKey)
}
