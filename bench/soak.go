package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/filaq/fila/bench/system"
)

// soakName is the soak workload. It runs only if it is named, and alone: it takes as long as
// all others together.
const soakName = "soak"

const (
	quickSoakDuration = 3 * time.Second
	minSoakDuration   = time.Second
	// soakShare is the load as a share of the maximum.
	soakShare = 0.7
	// soakNackEvery fails one of this many messages once.
	soakNackEvery = 100
	// soakIntervals is the largest number of intervals; none is shorter than soakInterval,
	// unless there would be fewer than soakFewest.
	soakIntervals = 180
	soakFewest    = 6
	soakInterval  = time.Second
	// soakMaximum is the time to find the maximum, in a soak of at least four times that.
	soakMaximum = 15 * time.Second
)

func (o *Options) soak() bool { return slices.Contains(o.Workloads, soakName) }

// checkSoak refuses options that have no meaning in a soak.
func (o *Options) checkSoak() error {
	switch {
	case !o.soak():
		return nil
	case slices.ContainsFunc(o.Workloads, func(name string) bool { return name != soakName }):
		return errors.New("workload soak takes the machine to itself: name it alone")
	case o.Rounds > 1:
		return fmt.Errorf("rounds is %d: a soak is one long round: allowed is 1", o.Rounds)
	case o.Count != 0:
		return fmt.Errorf("count is %d: a soak goes by time: give it a duration", o.Count)
	case o.Duration != 0 && o.Duration < minSoakDuration:
		return fmt.Errorf("duration is %s: allowed for a soak is %s to %s", o.Duration, minSoakDuration, MaxDuration)
	}
	return nil
}

func soakLanes(o *Options) []lane {
	maximum, steady := o.life(8, window), o.life(8, window)
	maximum.Name = "max"
	maximum.DurationMs = min(soakMaximum, o.Duration/4).Milliseconds()
	steady.Share, steady.SampleMs = soakShare, soakEvery(o.Duration).Milliseconds()
	steady.Follow, steady.NackEvery = true, soakNackEvery
	return []lane{{Case: "70 % of maximum", quick: true, ownGC: true, spec: o.load(system.Fila, maximum, steady)}}
}

// soakEvery returns the length of an interval.
func soakEvery(whole time.Duration) time.Duration {
	return max(whole/soakIntervals, min(soakInterval, whole/soakFewest))
}
