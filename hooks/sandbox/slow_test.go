package sandbox

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fillSlow takes every slow slot until the test ends or calls free.
func fillSlow(t *testing.T) (free func()) {
	for range cap(slowSlots) {
		slowSlots <- struct{}{}
	}
	free = sync.OnceFunc(func() {
		for range cap(slowSlots) {
			<-slowSlots
		}
	})
	t.Cleanup(free)
	return free
}

// TestWaitingForASlowSlotIsFree waits for a slot for an hour of its own clock. The
// times of the run move along, so that the wait does not count.
func TestWaitingForASlowSlotIsFree(t *testing.T) {
	free := fillSlow(t)
	reads := 0
	x := &exec{start: 10, last: 20, clock: func() int64 {
		if reads++; reads == 1 {
			go free()
			return 20
		}
		return 20 + int64(time.Hour)
	}}
	x.enterSlow()
	require.EqualValues(t, 10+int64(time.Hour), x.start)
	require.EqualValues(t, 20+int64(time.Hour), x.last)
	require.True(t, x.slow)
	x.leaveSlow()
	x.leaveSlow() // once is enough
	require.Empty(t, slowSlots)
}

// TestARunawayIsOverInTime runs an endless loop on a clock that moves by 2 us at each
// check and by 1.1 ms at each sleep, as on an idle machine. Rests do not count as
// running time, and the run ends within 1.5 times its limit.
func TestARunawayIsOverInTime(t *testing.T) {
	for _, limit := range []time.Duration{5, 10, 50, 100} {
		limit *= time.Millisecond
		v := newHook(t, onEnqueue, `function on_enqueue(m) while true do end end`, Limits{Timeout: limit})
		now, slept := time.Duration(0), 0
		v.x.clock = func() int64 { now += 2 * time.Microsecond; return int64(now) }
		v.x.sleep = func(time.Duration) { slept++; now += 1100 * time.Microsecond }
		require.Nil(t, v.load())
		now, slept = 0, 0
		err := v.run(&message{}).Err
		require.Equal(t, CauseTimeout, err.Cause)
		require.True(t, err.UsedUp)
		require.Greater(t, now, limit)
		require.Less(t, now, limit*3/2)
		require.Positive(t, slept, "the run rests")
	}
}

// TestSlowSlotsAreFreed runs more scripts than there are slots at once, into their
// limits of time and memory, into an error and to their end.
func TestSlowSlotsAreFreed(t *testing.T) {
	spin := "local x = 0 while x < 100000 do x = x + 1 end "
	var all sync.WaitGroup
	for i, end := range []string{"while true do end", "local s = {} while true do s[#s+1] = {} end", "error('late')", "return {}"} {
		script, err := compileHook("late", "function on_enqueue(msg) "+spin+end+" end", Limits{})
		require.NoError(t, err)
		want := []Cause{CauseTimeout, CauseMemory, CauseError, ""}[i]
		for range 4 {
			all.Go(func() {
				h := hook{New(script, onEnqueue, Limits{Timeout: 20 * time.Second, Steps: 1_000_000}, Env{})}
				got := Cause("")
				if err := h.run(&message{}).Err; err != nil {
					got = err.Cause
				}
				assert.Equal(t, want, got, end)
			})
		}
	}
	all.Wait()
	require.Empty(t, slowSlots)
}

// TestQuickRunsDoNotWait takes every slow slot and runs a quick hook.
func TestQuickRunsDoNotWait(t *testing.T) {
	fillSlow(t)
	res := newHook(t, onEnqueue, `function on_enqueue(msg) return { r = "a" } end`, Limits{Steps: 10_000}).run(&message{})
	require.Nil(t, res.Err)
	require.Equal(t, "a", res.field("r"))
}
