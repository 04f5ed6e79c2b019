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

// TestARunawayIsOverInTime runs an endless loop on a clock that moves by 2 us at each
// look and by 1.1 ms at each sleep, as it does where nobody else wants the processor:
// rests do not count as running time, and the run is over within 1.5 times its limit.
func TestARunawayIsOverInTime(t *testing.T) {
	for _, limit := range []time.Duration{5, 10, 50, 100} {
		limit *= time.Millisecond
		v := newTestVM(t, `function on_enqueue(m) while true do end end`, Limits{Timeout: limit})
		now, slept := time.Duration(0), 0
		v.x.clock = func() int64 { now += 2 * time.Microsecond; return int64(now) }
		v.x.sleep = func(time.Duration) { slept++; now += 1100 * time.Microsecond }
		require.Nil(t, v.load())
		now, slept = 0, 0
		_, err := v.enqueue(&EnqueueInput{}, &warner{})
		require.Equal(t, CauseTimeout, err.Cause)
		require.True(t, err.usedUp)
		require.Greater(t, now, limit)
		require.Less(t, now, limit*3/2)
		require.Positive(t, slept, "the run rests")
	}
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
