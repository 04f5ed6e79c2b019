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

// How far the heap may grow between two collections. A sidecar has little on its
// heap and makes much garbage, so the usual rule (collect when it has doubled)
// collects all the time: with four times as much room the same work takes less of
// the processor. With a large backlog the same rule would waste memory by the
// gigabyte, and what is on its way at the moment of a collection would count five
// times, so the room is bounded.
const (
	gcPercent    = 400      // of what is alive, at most
	gcLeast      = 25       // and at least
	gcRoom       = 40 << 20 // bytes
	memoryOfHost = 0.9      // of a container's limit: the limit of the Go runtime
)

// tuneMemory sets up garbage collection for a server. GOGC and GOMEMLIMIT in the
// environment are left alone. It returns a function that ends it.
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

// gcTuner sets the GC percentage anew after each collection, of which it learns by
// the finalizer of an object that nobody refers to.
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
	// Each change stops the world for a moment: small ones are not worth it.
	if d := percent - t.percent; d > t.percent/8 || d < -t.percent/8 {
		t.percent = percent
		debug.SetGCPercent(percent)
	}
}

// gcPercentFor is how much of what is alive may be added before the next
// collection.
func gcPercentFor(alive uint64) int {
	if alive == 0 {
		return gcPercent
	}
	return int(min(max(gcRoom*100/alive, gcLeast), gcPercent))
}

// containerMemory reads the limit of a container's memory (cgroup v2), if it has
// one.
func containerMemory(read func(string) ([]byte, error)) (int64, bool) {
	text, err := read("/sys/fs/cgroup/memory.max")
	if err != nil {
		return 0, false
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return limit, err == nil && limit > 0
}
