package hooks

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks/sandbox"
)

// patient limits are for tests that are not about time: a busy machine may
// leave a test without the processor for longer than the hard wall limit.
var patient = Limits{Timeout: time.Minute}

// testRunner is a Runner with a clock, a log and the transitions of its circuit.
type testRunner struct {
	*Runner
	now     int64
	log     bytes.Buffer
	changes []CircuitChange
	config  map[string]string
}

func newTestRunner(t *testing.T, kind Kind, text string, o RunnerOptions) *testRunner {
	t.Helper()
	if o.Limits.Timeout == 0 {
		o.Limits = patient
	}
	script, err := Compile(kind, "script.lua", text, o.Limits)
	require.NoError(t, err)
	r := &testRunner{now: 1, config: map[string]string{}}
	o.Kind, o.Queue, o.Script = kind, "orders", script
	o.Now = func() int64 { return r.now }
	o.Logger = slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.OnChange = func(c CircuitChange) { r.changes = append(r.changes, c) }
	o.Get = func(k string) (string, bool) { v, ok := r.config[k]; return v, ok }
	r.Runner = NewRunner(o)
	return r
}

func tenant(name string) *EnqueueInput {
	return &EnqueueInput{Headers: map[string][]string{"tenant": {name}}, PayloadSize: 10, Queue: "orders"}
}

const failsForBad = `function on_enqueue(msg)
  if msg.headers.tenant == "bad" then
    error("no such tenant")
  end
  return { fairness_key = msg.headers.tenant }
end`

func TestCircuitOfAHook(t *testing.T) {
	r := newTestRunner(t, OnEnqueue, failsForBad, RunnerOptions{})
	def := DefaultEnqueueDecision()
	require.Equal(t, def, r.OnEnqueue(tenant("bad")))
	require.Equal(t, def, r.OnEnqueue(tenant("bad")))
	require.Equal(t, "good", r.OnEnqueue(tenant("good")).Key, "not before the threshold")
	require.Zero(t, r.Stats().ConsecutiveFailures, "a success resets the count")
	for range 3 {
		require.Equal(t, def, r.OnEnqueue(tenant("bad")))
	}
	require.Equal(t, []CircuitChange{{"orders", "on_enqueue", breaker.Change{Old: breaker.Closed, New: breaker.Open, ConsecutiveFailures: 3, At: 1}}}, r.changes)
	for range 100 {
		require.Equal(t, def, r.OnEnqueue(tenant("good")), "bypassed")
	}
	s := r.Stats()
	require.Equal(t, "open", s.State)
	require.EqualValues(t, 6, s.Runs)
	require.EqualValues(t, 5, s.Failures)
	require.EqualValues(t, 5, s.Errors)
	require.EqualValues(t, 100, s.Bypassed)
	require.Equal(t, 3, s.ConsecutiveFailures)
	require.Contains(t, s.LastError, "script.lua:3:5: no such tenant")
	require.Contains(t, s.LastError, `error("no such tenant")`)
	require.Equal(t, 1, strings.Count(r.log.String(), "circuit opened"), "one line per opening")
	require.Equal(t, 1, strings.Count(r.log.String(), "hook failed"), "failures are limited to a line per second")
	require.Contains(t, r.log.String(), "queue=orders hook=on_enqueue cause=error line=3")

	r.now += int64(10 * time.Second)
	require.Equal(t, def, r.OnEnqueue(tenant("bad")), "the probe fails")
	require.Equal(t, def, r.OnEnqueue(tenant("good")))
	require.Contains(t, r.log.String(), "suppressed=4")
	r.now += int64(10 * time.Second)
	require.Equal(t, "half-open", r.Stats().State)
	require.Equal(t, "good", r.OnEnqueue(tenant("good")).Key, "the probe succeeds")
	require.Equal(t, "good", r.OnEnqueue(tenant("good")).Key)
	var states []string
	for _, c := range r.changes {
		states = append(states, c.Old.String()+">"+c.New.String())
	}
	require.Equal(t, []string{"closed>open", "open>half-open", "half-open>open", "open>half-open", "half-open>closed"}, states)
	require.Equal(t, r.now, r.changes[4].At)
	require.Equal(t, "closed", r.Stats().State)
	require.Zero(t, r.Stats().ConsecutiveFailures)
}

// TestRunawaysOpenTheCircuit has good messages and short failures between the runs
// that use up their time limit.
func TestRunawaysOpenTheCircuit(t *testing.T) {
	const text = `function on_enqueue(msg)
  if msg.headers.tenant == "loop" then while true do end end
  if msg.headers.tenant == "bad" then error("no such tenant") end
  return { fairness_key = msg.headers.tenant }
end`
	r := newTestRunner(t, OnEnqueue, text, RunnerOptions{Limits: Limits{Timeout: time.Hour, Steps: 10_000}})
	between := func() {
		r.OnEnqueue(tenant("bad"))
		require.Equal(t, "good", r.OnEnqueue(tenant("good")).Key)
		r.now += int64(4 * time.Second)
	}
	for range 2 {
		r.OnEnqueue(tenant("loop"))
		between()
	}
	require.Equal(t, "closed", r.Stats().State)
	r.OnEnqueue(tenant("loop"))
	require.Equal(t, "open", r.Stats().State, "the third run within ten seconds")
	require.Contains(t, r.log.String(), `reason="runs that used up the time limit" consecutive_failures=1`)
	require.Equal(t, "default", r.OnEnqueue(tenant("good")).Key, "bypassed")

	r.now += int64(10 * time.Second)
	require.Equal(t, "good", r.OnEnqueue(tenant("good")).Key, "the probe")
	for range 10 {
		require.Equal(t, "closed", r.Stats().State, "older runs do not count")
		r.OnEnqueue(tenant("loop"))
		between()
		between()
	}
	r.SetBreaker(breaker.Config{Threshold: 2})
	r.OnEnqueue(tenant("loop"))
	require.Equal(t, "open", r.Stats().State, "the second run, by the new threshold")
}

func TestResetByHand(t *testing.T) {
	r := newTestRunner(t, OnEnqueue, failsForBad, RunnerOptions{Breaker: breaker.Config{Threshold: 1}})
	r.OnEnqueue(tenant("bad"))
	require.Equal(t, "open", r.Stats().State)
	r.Reset()
	require.Equal(t, "closed", r.Stats().State)
	require.Equal(t, "good", r.OnEnqueue(tenant("good")).Key)
	r.Reset()
	require.Len(t, r.changes, 2, "a reset of a closed circuit is no change")
	r.SetBreaker(breaker.Config{Threshold: 2})
	r.OnEnqueue(tenant("bad"))
	require.Equal(t, "closed", r.Stats().State)
}

func TestFailuresByCause(t *testing.T) {
	for cause, text := range map[sandbox.Cause]string{
		sandbox.CauseError:   `function on_failure(m) return 1 + nil end`,
		sandbox.CauseTimeout: `function on_failure(m) while true do end end`,
		sandbox.CauseMemory:  `function on_failure(m) local t = {} while true do t = { t } end end`,
		sandbox.CauseType:    `function on_failure(m) return "retry" end`,
		sandbox.CauseMissing: `if not fila.get("gone") then function on_failure(m) return {} end end`,
	} {
		t.Run(string(cause), func(t *testing.T) {
			o := RunnerOptions{}
			if cause == sandbox.CauseTimeout {
				o.Limits.Timeout = time.Millisecond
			}
			r := newTestRunner(t, OnFailure, text, o)
			r.config["gone"] = "yes"
			require.Equal(t, FailureDecision{}, r.OnFailure(&FailureInput{Attempts: 1}))
			s := r.Stats()
			require.EqualValues(t, 1, s.Failures)
			n := map[sandbox.Cause]int64{sandbox.CauseError: s.Errors, sandbox.CauseTimeout: s.Timeouts, sandbox.CauseMemory: s.Memory, sandbox.CauseType: s.Types, sandbox.CauseMissing: s.Gone}
			require.EqualValues(t, 1, n[cause])
			require.Contains(t, s.LastError, string(cause)+": ")
			require.Contains(t, r.log.String(), "cause="+string(cause))
		})
	}
}

func TestFilaGetIsFresh(t *testing.T) {
	for name, text := range map[string]string{
		"in the function":  `function on_enqueue(m) return { fairness_key = fila.get("k") or "none" } end`,
		"at the top level": `local k = fila.get("k") or "none" function on_enqueue(m) return { fairness_key = k } end`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRunner(t, OnEnqueue, text, RunnerOptions{})
			require.Equal(t, "none", r.OnEnqueue(tenant("a")).Key)
			r.config["k"] = "v1"
			require.Equal(t, "v1", r.OnEnqueue(tenant("a")).Key)
			r.config["k"] = "v2"
			require.Equal(t, "v2", r.OnEnqueue(tenant("a")).Key)
		})
	}
}

func TestScriptLog(t *testing.T) {
	r := newTestRunner(t, OnEnqueue, `function on_enqueue(m)
		for i = 1, 100 do fila.log("line", i, m.headers.tenant) end
		print("a\n\255b", nil, true)
		return {} end`, RunnerOptions{})
	r.OnEnqueue(tenant("a"))
	require.Equal(t, 10, strings.Count(r.log.String(), "hook log"), "ten lines a run")
	require.Contains(t, r.log.String(), `level=INFO msg="hook log" queue=orders hook=on_enqueue text="line\t1\ta"`)
	for range 50 {
		r.OnEnqueue(tenant("a"))
	}
	require.Equal(t, 20, strings.Count(r.log.String(), "hook log"), "twenty at once")
	r.now += int64(time.Second)
	r.OnEnqueue(tenant("a"))
	require.Equal(t, 30, strings.Count(r.log.String(), "hook log"))
	require.Contains(t, r.log.String(), "suppressed=")

	r = newTestRunner(t, OnEnqueue, `function on_enqueue(m) print(("x"):rep(5000)) return {} end`, RunnerOptions{})
	r.OnEnqueue(tenant("a"))
	require.Contains(t, r.log.String(), "level=DEBUG")
	require.Less(t, r.log.Len(), 1300)
}

func TestRateLimit(t *testing.T) {
	limit := rateLimit{burst: 2, every: time.Second}
	allow := func(now time.Duration) int {
		n, ok := limit.allow(int64(now))
		if !ok {
			return -1
		}
		return n
	}
	got := []int{allow(0), allow(0), allow(0), allow(0), allow(time.Second), allow(time.Second), allow(time.Hour), allow(time.Hour), allow(time.Hour)}
	require.Equal(t, []int{0, 0, -1, -1, 2, -1, 1, 0, -1}, got)
	require.Equal(t, []int{-1, 2}, []int{allow(0), allow(2 * time.Second)}, "a clock that jumps back")
}

func TestClose(t *testing.T) {
	r := newTestRunner(t, OnEnqueue, typicalHook, RunnerOptions{})
	require.Equal(t, "a", r.OnEnqueue(tenant("a")).Key)
	r.Close()
	r.Close()
	require.Equal(t, "b", r.OnEnqueue(tenant("b")).Key)
}

// TestManyRunners runs many Runners of shared scripts at once, with good, failing,
// hostile and dirty hooks, while other goroutines read their figures.
func TestManyRunners(t *testing.T) {
	texts := []string{
		typicalHook, failsForBad,
		`n = 0 function on_enqueue(m) n = n + 1 return { fairness_key = m.headers.tenant .. n } end`,
		`function on_enqueue(m) local t = {} while true do t = { t } end end`,
		`function on_enqueue(m) local s = m.headers.tenant for w in ("a b"):gmatch("%a") do s = s .. string.format("%s", w) end return { fairness_key = s } end`,
		`function on_enqueue(m) pcall(table.insert, string, 1) pcall(rawset, math, "pi", 1) return { fairness_key = tostring(fila.get("k")) } end`,
	}
	want := []string{"t", "t", "t1", "default", "tab", "v"}
	var wg sync.WaitGroup
	for i, text := range texts {
		script, err := Compile(OnEnqueue, "s", text, patient)
		require.NoError(t, err)
		for range 6 {
			r := NewRunner(RunnerOptions{
				Kind: OnEnqueue, Queue: "q", Script: script, Limits: patient,
				Get: func(string) (string, bool) { return "v", true },
			})
			wg.Go(func() {
				for range 50 {
					if d := r.OnEnqueue(tenant("t")); d.Key != want[i] {
						t.Errorf("script %d: got %q, want %q", i, d.Key, want[i])
						return
					}
				}
				r.Close()
			})
			wg.Go(func() {
				for range 50 {
					r.Stats()
					if i == 3 {
						r.Reset()
					}
				}
			})
		}
		wg.Go(func() {
			_, err := Compile(OnEnqueue, "s", text, patient)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
