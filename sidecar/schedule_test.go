package sidecar

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSchedule ends what is due in the order of the times, once.
func TestSchedule(t *testing.T) {
	now := rigStart
	var ended []string
	var sc schedule
	sc.set("before init", now)
	sc.init(clock{test: func() int64 { return now }}, func(key string, at int64) {
		require.Equal(t, now, at)
		ended = append(ended, key)
	})
	for _, s := range []struct {
		key string
		at  int64
	}{
		{"c", 30}, {"a", 10}, {"b", 20}, {"a", 25}, {"gone", 5}, {"hand", 5}, {"gone", 0}, {"hand", math.MaxInt64}, {"now", 0},
	} {
		at := s.at
		if at != 0 && at != math.MaxInt64 {
			at += rigStart
		}
		sc.set(s.key, at)
	}
	for _, step := range []struct {
		at   int64
		want []string
	}{{0, nil}, {19, nil}, {20, []string{"b"}}, {24, nil}, {100, []string{"a", "c"}}, {1000, nil}} {
		now, ended = rigStart+step.at, nil
		sc.run()
		require.Equal(t, step.want, ended, "at %d", step.at)
	}
	for i := range 10_000 { // what is replaced is forgotten
		sc.set("k", rigStart+int64(i)+1_000_000)
	}
	require.Less(t, len(sc.mu.heap.items), 3000)
	require.Len(t, sc.mu.items, 1)
	now, ended = rigStart+2_000_000, nil
	sc.run()
	require.Equal(t, []string{"k"}, ended)
}

// TestScheduleTimer runs on a real clock: each at its time, earlier ones that
// come later first, and none after stop.
func TestScheduleTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		begin := c.Now()
		var mu sync.Mutex
		var ended []string
		var sc schedule
		sc.init(c, func(key string, now int64) {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, fmt.Sprint(key, " ", time.Duration(now-begin)))
			if key == "again" {
				sc.set("once more", now+int64(time.Hour))
			}
		})
		sc.set("year", begin+int64(365*24*time.Hour))
		sc.set("again", begin+int64(time.Minute))
		sc.set("first", begin+int64(time.Second))
		sc.set("past", begin-1)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"past 0s", "first 1s", "again 1m0s", "once more 1h1m0s"}, ended)
		sc.stop()
		sc.set("late", c.Now())
		time.Sleep(366 * 24 * time.Hour)
		require.Len(t, ended, 4)
		sc.stop()
	})
}
