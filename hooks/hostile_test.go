package hooks

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
			name: fmt.Sprintf("v%03d %s", i, v.name), text: variationScript(v.body), kind: OnEnqueue,
			enqueue: EnqueueInput{Headers: map[string][]string{"tenant": {"acme"}}, PayloadSize: 1, Queue: "orders"},
		})
	}
	return all
}

const healthyHook = `function on_enqueue(msg) return { fairness_key = msg.headers.tenant, weight = 2 } end`

// attack runs a hostile script as a live hook for several messages and reports
// what its decisions were.
func attack(c corpusScript) ([]EnqueueDecision, GuardStats, error) {
	script, err := Compile(c.kind, c.name, c.text, Limits{})
	if err != nil {
		return nil, GuardStats{}, err
	}
	g := NewGuard(GuardOptions{Kind: c.kind, Queue: "hostile", Script: script})
	var ds []EnqueueDecision
	for range 4 {
		ds = append(ds, g.OnEnqueue(&c.enqueue))
	}
	return ds, g.Stats(), nil
}

// TestHostile runs every hostile script as a live hook next to a healthy one:
// it is refused, stopped or harmless, it never gets its own result out after a
// kill, and the healthy hook goes on.
func TestHostile(t *testing.T) {
	script, err := Compile(OnEnqueue, "healthy", healthyHook, patient)
	require.NoError(t, err)
	healthy := NewGuard(GuardOptions{Kind: OnEnqueue, Queue: "healthy", Script: script, Limits: patient})
	in := &EnqueueInput{Headers: map[string][]string{"tenant": {"acme"}}, Queue: "healthy"}
	for i, c := range hostile(t) {
		t.Run(c.name, func(t *testing.T) {
			if raceDetector && i%4 != 0 {
				t.Skip("one in four with the race detector")
			}
			ds, stats, err := attack(c)
			if err != nil {
				var le *LoadError
				require.ErrorAs(t, err, &le)
				require.NotEmpty(t, le.Message)
			}
			for _, d := range ds {
				require.NotEqual(t, "escaped", d.FairnessKey)
			}
			if len(ds) > 0 {
				require.EqualValues(t, 4, stats.Runs+stats.Bypassed)
				if stats.Runs == stats.Failures { // not near a limit by chance
					require.Equal(t, "open", stats.State)
					require.EqualValues(t, 3, stats.Failures)
					require.EqualValues(t, 1, stats.Bypassed)
					require.Equal(t, DefaultEnqueueDecision(), ds[0])
				}
			}
			d := healthy.OnEnqueue(in)
			require.Equal(t, EnqueueDecision{FairnessKey: "acme", Weight: 2000, Cost: 1000}, d)
		})
	}
	require.Zero(t, healthy.Stats().Failures)
}

// maxGrowth is how much a process may grow by a hostile hook.
const maxGrowth = 16 << 20

// hostileChild is set in the process of one attack: the index of the script.
const hostileChild = "FILA_TEST_HOSTILE_CHILD"

// TestHostileInSubprocess attacks a process of its own per script, with a hard
// limit on its address space, and measures the peak of its memory.
func TestHostileInSubprocess(t *testing.T) {
	if testing.Short() {
		t.Skip("one process per script")
	}
	if _, ok := readStatus("VmHWM"); !ok {
		t.Skip("needs /proc")
	}
	all := hostile(t)
	if n := os.Getenv(hostileChild); n != "" {
		i, err := strconv.Atoi(n)
		require.NoError(t, err)
		attackedChild(t, all[i])
		return
	}
	for i, c := range all {
		t.Run(c.name, func(t *testing.T) {
			if raceDetector && i%16 != 0 {
				t.Skip("one in sixteen with the race detector, which hides the memory anyway")
			}
			t.Parallel()
			cmd := osexec.Command(os.Args[0], "-test.run=^TestHostileInSubprocess$", "-test.v")
			cmd.Env = append(os.Environ(), hostileChild+"="+strconv.Itoa(i))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "healthy after the attack")
			for line := range strings.Lines(string(out)) {
				if _, growth, ok := strings.Cut(line, "peak growth "); ok {
					t.Log("peak growth", strings.TrimSpace(growth))
				}
			}
		})
	}
}

func attackedChild(t *testing.T, c corpusScript) {
	script, err := Compile(OnEnqueue, "healthy", healthyHook, patient)
	require.NoError(t, err)
	healthy := NewGuard(GuardOptions{Kind: OnEnqueue, Queue: "healthy", Script: script, Limits: patient})
	in := &EnqueueInput{Headers: map[string][]string{"tenant": {"acme"}}, Queue: "healthy"}
	want := healthy.OnEnqueue(in)
	require.Equal(t, "acme", want.FairnessKey)

	runtime.GC()
	debug.FreeOSMemory()
	size, _ := readStatus("VmSize")
	require.NoError(t, limitAddressSpace(uint64(size)+256<<20))
	peak := resetPeak(t)

	var before, later runtime.MemStats
	runtime.ReadMemStats(&before)
	_, stats, err := attack(c)
	runtime.ReadMemStats(&later)
	runs := max(stats.Runs, 1)
	perRun := int64(later.TotalAlloc-before.TotalAlloc) / runs
	after, _ := readStatus("VmHWM")
	t.Logf("peak growth %d KiB, %d KiB allocated per run", (after-peak)>>10, perRun>>10)
	if !raceDetector {
		require.Less(t, perRun, int64(maxGrowth), "even if nothing is collected")
		require.Less(t, after-peak, int64(maxGrowth))
	}
	if err != nil {
		t.Log(err)
	}
	require.Equal(t, want, healthy.OnEnqueue(in))
	t.Log("healthy after the attack")
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
