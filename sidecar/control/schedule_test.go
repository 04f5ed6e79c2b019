package control

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A scheduled end comes at its time, once, between begin and stop.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := now()
		var mu sync.Mutex
		var ended []string
		var sc schedule
		sc.now = now
		sc.end = func(key string, at int64) {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, fmt.Sprint(key, " ", time.Duration(at-begin)))
			if key == "again" {
				sc.set("once more", at+int64(time.Hour))
			}
		}
		after := func(d time.Duration) int64 { return begin + int64(d) }
		sc.set("before", after(time.Second))
		sc.begin()
		sc.set("year", after(365*24*time.Hour))
		sc.set("again", after(time.Minute))
		sc.set("moved", after(time.Second))
		sc.set("first", after(time.Second))
		sc.set("past", begin-1)
		sc.set("gone", after(5))
		sc.set("hand", after(5))
		sc.set("gone", 0)
		sc.set("hand", math.MaxInt64)
		sc.set("moved", after(2*time.Second))
		for i := range 1000 { // what is replaced is forgotten
			sc.set("k", after(time.Hour+time.Duration(i)))
		}
		sc.mu.Lock()
		require.Len(t, sc.mu.timers, 6)
		sc.mu.Unlock()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"past 0s", "first 1s", "moved 2s", "again 1m0s", "k 1h0m0.000000999s", "once more 1h1m0s"}, ended)
		sc.stop()
		sc.set("late", now())
		time.Sleep(366 * 24 * time.Hour)
		synctest.Wait()
		require.Len(t, ended, 6)
		sc.stop()
	})
}
