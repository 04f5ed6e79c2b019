package cli

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
)

// Bounds of the heap's growth between two collections. A sidecar has a small live heap and
// makes much garbage. At the default (collect when the heap has doubled) it would collect all
// the time; with a growth of 400 % the same work takes less CPU. With a large backlog that
// would waste gigabytes, and messages in transit during a collection would count five times, so
// the growth is bounded in bytes.
const (
	gcPercent    = 400      // maximum, in percent of the live heap
	gcLeast      = 25       // minimum, in percent of the live heap
	gcRoom       = 40 << 20 // maximum growth in bytes
	memoryOfHost = 0.9      // share of a container's memory limit that is the limit of the Go runtime
)

// tuneMemory sets up garbage collection for a server, unless GOGC and GOMEMLIMIT are set. It
// returns a function that ends it.
func tuneMemory(environ func(string) string) (stop func()) {
	if environ("GOMEMLIMIT") == "" {
		if limit, ok := containerMemory(os.ReadFile); ok {
			debug.SetMemoryLimit(int64(float64(limit) * memoryOfHost))
		}
	}
	if environ("GOGC") != "" {
		return func() {}
	}
	t := &gcTuner{before: debug.SetGCPercent(gcPercent), percent: gcPercent}
	t.arm()
	return func() {
		t.stopped.Store(true)
		debug.SetGCPercent(t.before)
	}
}

// gcTuner adjusts the GC percentage after each collection. The finalizer of an unreachable
// object tells it about collections.
type gcTuner struct {
	before, percent int
	stopped         atomic.Bool
}

func (t *gcTuner) arm() {
	sentinel := new([16]byte)
	runtime.SetFinalizer(sentinel, func(*[16]byte) {
		if t.stopped.Load() {
			return
		}
		t.tune()
		t.arm()
	})
}

func (t *gcTuner) tune() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return
	}
	percent := gcPercentFor(sample[0].Value.Uint64())
	// Each change stops the world briefly, so small changes are skipped.
	if d := percent - t.percent; d > t.percent/8 || d < -t.percent/8 {
		t.percent = percent
		debug.SetGCPercent(percent)
	}
}

// gcPercentFor returns the growth in percent until the next collection.
func gcPercentFor(alive uint64) int {
	if alive == 0 {
		return gcPercent
	}
	return int(min(max(gcRoom*100/alive, gcLeast), gcPercent))
}

// containerMemory returns the memory limit of the container (cgroup v2), if there is one.
func containerMemory(read func(string) ([]byte, error)) (int64, bool) {
	text, err := read("/sys/fs/cgroup/memory.max")
	if err != nil {
		return 0, false
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return limit, err == nil && limit > 0
}
