package limit_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/fleet/fleettest"
	"github.com/filaq/fila/throttle"
)

// The bucket stalls at each moment after the start of an instance, while hosts' clocks differ.
// Requests and updates come late, so the instance estimates the fleet's clock wrong. A stall
// of 6 s would end sessions and divide rates into parts, with other bounds.
func TestLimitsHoldOverStalls(t *testing.T) {
	for length, kinds := range map[time.Duration]map[string]throttle.Limits{
		300 * time.Millisecond:  {"window": window},
		1800 * time.Millisecond: {"window": window, "rate": rate, "concurrency": places},
		6 * time.Second:         {"window": window},
	} {
		for kind, l := range kinds {
			step := 900 * time.Millisecond
			if kind == "window" && length == 1800*time.Millisecond {
				step /= 3
			}
			for begin := time.Duration(0); begin <= 4500*time.Millisecond; begin += step {
				t.Run(fmt.Sprint(kind, " ", length, " after ", begin), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { stallAfterStart(t, l, begin, length) })
				})
			}
		}
	}
}

// stallAfterStart stalls the bucket after the third instance has started.
func stallAfterStart(t *testing.T, l throttle.Limits, begin, length time.Duration) {
	b := fleettest.New()
	b.Skew = time.Hour
	r := newTrail(l)
	const takes = 10 * time.Millisecond
	a := start(t, slow{b.Of(), 4 * time.Millisecond}, l, 5*time.Second)
	c := start(t, slow{b.Of(), 4 * time.Millisecond}, l, -5*time.Second)
	during(t, 1100*time.Millisecond, r, takes, a, c)
	go func() {
		time.Sleep(begin)
		b.Stall(true)
		time.Sleep(length)
		b.Stall(false)
	}()
	d := start(t, slow{b.Of(), 4 * time.Millisecond}, l, time.Second)
	defer stop(a, c, d)
	during(t, begin+length+8*time.Second, r, takes, a, c, d)
	before := r.sum()
	during(t, 4*time.Second, r, takes, a, c, d)
	r.check(t)
	require.GreaterOrEqual(t, r.sum()-before, 140, "when the stall is over the limit is used as before")
}

var (
	flagSeeds = flag.Int("fila.seeds", 10, "how many histories TestWindowHoldsByChance tries")
	flagSeed  = flag.Uint64("fila.seed", 1, "the first of them; 0 takes a new one")
)

// The bucket stalls, instances start, stop, die and are cut off for less than the dead time,
// answers are lost, and hosts' clocks differ, all at random. No window exceeds its limit.
func TestWindowHoldsByChance(t *testing.T) {
	first := *flagSeed
	if first == 0 {
		first = rand.Uint64N(1 << 40)
	}
	t.Logf("-fila.seed=%d -fila.seeds=%d", first, *flagSeeds)
	went := 0
	for seed := first; seed < first+uint64(*flagSeeds); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { went += windowByChance(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
	t.Logf("%d messages", went)
}

// windowByChance runs about a minute of faults and returns the number of messages.
func windowByChance(t *testing.T, r *rand.Rand) int {
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	b := fleettest.New()
	b.Skew = upTo(2*time.Hour) - time.Hour
	went := newTrail(window)
	ctx, cancel := context.WithCancel(t.Context())
	var wants sync.WaitGroup
	type user struct {
		*instance
		leave func()
	}
	begin := func() user {
		i := start(t, slow{b.Of(), 1 + upTo(20*time.Millisecond)}, window, upTo(time.Hour)-30*time.Minute)
		ctx, leave := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() { i.want(ctx, went, 0) })
		wants.Go(done.Wait)
		return user{i, func() { leave(); done.Wait() }}
	}
	all := []user{begin(), begin(), begin()}
	for range 25 {
		u := &all[r.IntN(len(all))]
		switch r.IntN(8) {
		case 0, 1, 2:
			b.Stall(true)
			time.Sleep(upTo(3 * time.Second))
			b.Stall(false)
		case 3:
			u.end.Cut(true)
			time.Sleep(upTo(4 * time.Second))
			u.end.Cut(false)
		case 4:
			u.end.Mute(true)
			time.Sleep(upTo(time.Second))
			u.end.Mute(false)
		case 5: // it dies
			u.leave()
			u.end.Cut(true)
			u.sync.Stop()
			*u = begin()
		case 6:
			u.leave()
			stop(u.instance)
			*u = begin()
		}
		time.Sleep(upTo(3 * time.Second))
	}
	cancel()
	wants.Wait()
	for _, u := range all {
		stop(u.instance)
	}
	went.check(t)
	return went.sum()
}
