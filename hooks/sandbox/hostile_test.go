package sandbox

import (
	"fmt"
	"os"
	osexec "os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostile is the corpus and the variations of this package.
func hostile(t testing.TB) []corpusScript {
	t.Helper()
	all := readCorpus(t, "hostile")
	for i, v := range variations {
		all = append(all, corpusScript{
			name: fmt.Sprintf("v%03d %s", i, v.name), text: variationScript(v.body), function: onEnqueue,
			message: message{Headers: map[string][]string{"tenant": {"acme"}}, PayloadSize: 1, Queue: "orders"},
		})
	}
	return all
}

// newHealthy returns a hook that must work during and after attacks.
func newHealthy(t testing.TB) (check func(t testing.TB)) {
	h := newHook(t, onEnqueue, `function on_enqueue(msg) return { fairness_key = msg.headers.tenant, weight = 2 } end`, Limits{})
	in := &message{Headers: map[string][]string{"tenant": {"acme"}}, Queue: "healthy"}
	check = func(t testing.TB) {
		t.Helper()
		res := h.run(in)
		require.Nil(t, res.Err)
		require.Equal(t, map[string]any{"fairness_key": "acme", "weight": int64(2)}, res.Returned)
	}
	check(t)
	return check
}

// attack runs a hostile script on several messages, as often as the circuit of a
// hook lets it fail, and returns the results.
func attack(c corpusScript) (results []result, err error) {
	script, err := compileHook(c.name, c.text, Limits{})
	if err != nil {
		return nil, err
	}
	h := hook{New(script, c.function, Limits{}, Env{})}
	for range 3 {
		results = append(results, h.run(&c.message))
	}
	return results, nil
}

// maxGrowth bounds how much a process may grow by a hostile script.
const maxGrowth = 16 << 20

// hostileChild is set in a process that attacks itself: the index of its first
// script and the distance to the next ones.
const hostileChild = "FILA_TEST_HOSTILE_CHILD"

// TestHostile runs every hostile script next to a healthy one, in other processes with
// a hard limit on their address space, and measures the peak of their memory. A process
// runs many scripts; if it dies, another one continues behind the script that killed it.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("attacks processes")
	}
	if _, ok := readStatus("VmHWM"); !ok {
		t.Skip("needs /proc")
	}
	all := hostile(t)
	if text := os.Getenv(hostileChild); text != "" {
		var first, step int
		_, err := fmt.Sscan(text, &first, &step)
		require.NoError(t, err)
		attackSelf(t, all, first, step)
		return
	}
	step := max(2, runtime.GOMAXPROCS(0))
	if raceDetector {
		step *= 8 // the race detector is slow and hides the memory anyway
	}
	for first := range max(2, runtime.GOMAXPROCS(0)) {
		t.Run(strconv.Itoa(first), func(t *testing.T) {
			t.Parallel()
			for next := first; next < len(all); {
				cmd := osexec.Command(os.Args[0], "-test.run=^TestHostile$", "-test.v")
				cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", hostileChild, next, step))
				out, err := cmd.CombinedOutput()
				survived := strings.Count(string(out), "healthy after the attack")
				if err == nil {
					require.Equal(t, (len(all)-next+step-1)/step, survived)
					return
				}
				killer := next + survived*step
				t.Errorf("%s: %v\n%s", all[min(killer, len(all)-1)].name, err, out)
				next = killer + step
			}
		})
	}
}

// attackSelf runs scripts next to a healthy one. Each is refused, stopped or harmless,
// never returns a result after a kill, and the healthy script continues.
func attackSelf(t *testing.T, all []corpusScript, first, step int) {
	healthy := newHealthy(t)
	for i := first; i < len(all); i += step {
		c := all[i]
		runtime.GC()
		debug.FreeOSMemory()
		size, _ := readStatus("VmSize")
		require.NoError(t, limitAddressSpace(uint64(size)+256<<20))
		peak := resetPeak(t)

		var before, later runtime.MemStats
		runtime.ReadMemStats(&before)
		results, err := attack(c)
		runtime.ReadMemStats(&later)
		perRun := int64(later.TotalAlloc-before.TotalAlloc) / int64(max(len(results), 1))
		after, _ := readStatus("VmHWM")
		t.Logf("%s: peak growth %d KiB, %d KiB allocated per run", c.name, (after-peak)>>10, perRun>>10)
		if !raceDetector {
			require.Less(t, perRun, int64(maxGrowth), "even if nothing is collected")
			require.Less(t, after-peak, int64(maxGrowth))
		}
		if err != nil {
			t.Log(err)
			var le *LoadError
			require.ErrorAs(t, err, &le)
			require.NotEmpty(t, le.Message)
		}
		for _, res := range results {
			require.NotEqual(t, "escaped", res.field("fairness_key"), c.name)
			if res.Err != nil {
				require.NotEmpty(t, res.Err.Message, c.name)
			}
		}
		healthy(t)
		t.Log("healthy after the attack")
	}
}

// resetPeak resets the peak of the resident memory and returns it.
func resetPeak(t *testing.T) int64 {
	require.NoError(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200))
	peak, ok := readStatus("VmHWM")
	require.True(t, ok)
	return peak
}

// readStatus returns a size in bytes from /proc/self/status.
func readStatus(field string) (int64, bool) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
