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
)

// bench is a Guard with a clock, a log and the events that it caused.
type testGuard struct {
	*Guard
	now     int64
	log     bytes.Buffer
	changes []CircuitChange
	config  map[string]string
}

func newTestGuard(t *testing.T, kind Kind, text string, o GuardOptions) *testGuard {
	t.Helper()
	if o.Limits.Timeout == 0 {
		o.Limits = patient
	}
	script, err := Compile(kind, "script.lua", text, o.Limits)
	require.NoError(t, err)
	g := &testGuard{now: 1, config: map[string]string{}}
	o.Kind, o.Queue, o.Script = kind, "orders", script
	o.Now = func() int64 { return g.now }
	o.Logger = slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.OnChange = func(c CircuitChange) { g.changes = append(g.changes, c) }
	o.Get = func(k string) (string, bool) { v, ok := g.config[k]; return v, ok }
	g.Guard = NewGuard(o)
	return g
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
	g := newTestGuard(t, OnEnqueue, failsForBad, GuardOptions{})
	def := DefaultEnqueueDecision()
	require.Equal(t, def, g.OnEnqueue(tenant("bad")))
	require.Equal(t, def, g.OnEnqueue(tenant("bad")))
	require.Equal(t, "good", g.OnEnqueue(tenant("good")).FairnessKey, "not before the threshold")
	require.Zero(t, g.Stats().ConsecutiveFailures, "a success ends the row")
	for range 3 {
		require.Equal(t, def, g.OnEnqueue(tenant("bad")))
	}
	require.Equal(t, []CircuitChange{{"orders", "on_enqueue", breaker.Change{Old: breaker.Closed, New: breaker.Open, ConsecutiveFailures: 3, At: 1}}}, g.changes)
	for range 100 {
		require.Equal(t, def, g.OnEnqueue(tenant("good")), "bypassed")
	}
	s := g.Stats()
	require.Equal(t, "open", s.State)
	require.EqualValues(t, 6, s.Runs)
	require.EqualValues(t, 5, s.Failures)
	require.EqualValues(t, 5, s.Errors)
	require.EqualValues(t, 100, s.Bypassed)
	require.Equal(t, 3, s.ConsecutiveFailures)
	require.Contains(t, s.LastError, "script.lua:3:5: no such tenant")
	require.Contains(t, s.LastError, `error("no such tenant")`)
	require.Equal(t, 1, strings.Count(g.log.String(), "circuit opened"), "one line per opening")
	require.Equal(t, 1, strings.Count(g.log.String(), "hook failed"), "failures are limited to a line per second")
	require.Contains(t, g.log.String(), "queue=orders hook=on_enqueue cause=error line=3")

	g.now += int64(10 * time.Second)
	require.Equal(t, def, g.OnEnqueue(tenant("bad")), "the probe fails")
	require.Equal(t, def, g.OnEnqueue(tenant("good")))
	require.Contains(t, g.log.String(), "suppressed=4")
	g.now += int64(10 * time.Second)
	require.Equal(t, "half-open", g.Stats().State)
	require.Equal(t, "good", g.OnEnqueue(tenant("good")).FairnessKey, "the probe succeeds")
	require.Equal(t, "good", g.OnEnqueue(tenant("good")).FairnessKey)
	var states []string
	for _, c := range g.changes {
		states = append(states, c.Old.String()+">"+c.New.String())
	}
	require.Equal(t, []string{"closed>open", "open>half-open", "half-open>open", "open>half-open", "half-open>closed"}, states)
	require.Equal(t, g.now, g.changes[4].At)
	require.Equal(t, "closed", g.Stats().State)
	require.Zero(t, g.Stats().ConsecutiveFailures)
}

// TestRunawaysOpenWhateverComesBetween puts good messages and short failures between
// the runs that use up their time limit.
func TestRunawaysOpenWhateverComesBetween(t *testing.T) {
	const text = `function on_enqueue(msg)
  if msg.headers.tenant == "loop" then while true do end end
  if msg.headers.tenant == "bad" then error("no such tenant") end
  return { fairness_key = msg.headers.tenant }
end`
	g := newTestGuard(t, OnEnqueue, text, GuardOptions{Limits: Limits{Timeout: time.Hour, Steps: 10_000}})
	between := func() {
		g.OnEnqueue(tenant("bad"))
		require.Equal(t, "good", g.OnEnqueue(tenant("good")).FairnessKey)
		g.now += int64(4 * time.Second)
	}
	for range 2 {
		g.OnEnqueue(tenant("loop"))
		between()
	}
	require.Equal(t, "closed", g.Stats().State)
	g.OnEnqueue(tenant("loop"))
	require.Equal(t, "open", g.Stats().State, "the third one within ten seconds")
	require.Contains(t, g.log.String(), `reason="runs that used up the time limit" consecutive_failures=1`)
	require.Equal(t, "default", g.OnEnqueue(tenant("good")).FairnessKey, "bypassed")

	g.now += int64(10 * time.Second)
	require.Equal(t, "good", g.OnEnqueue(tenant("good")).FairnessKey, "the probe")
	for range 10 {
		require.Equal(t, "closed", g.Stats().State, "the older ones do not count any more")
		g.OnEnqueue(tenant("loop"))
		between()
		between()
	}
	g.SetBreaker(breaker.Config{Threshold: 2})
	g.OnEnqueue(tenant("loop"))
	require.Equal(t, "open", g.Stats().State, "the second one, by the new threshold")
}

// TestABusyMachineIsNoRunaway stops runs for their wall time, in which they did not run.
func TestABusyMachineIsNoRunaway(t *testing.T) {
	g := newTestGuard(t, OnEnqueue, loopHook, GuardOptions{Limits: Limits{Timeout: 10 * time.Millisecond}})
	clock := g.vm.x.clock
	for range 5 {
		at := int64(0)
		g.vm.x.clock = func() int64 { at += int64(40 * time.Millisecond); return at }
		g.OnEnqueue(&EnqueueInput{PayloadSize: 10_000})
		g.vm.x.clock = clock
		g.OnEnqueue(&EnqueueInput{})
	}
	require.EqualValues(t, 5, g.Stats().Timeouts)
	require.Equal(t, "closed", g.Stats().State)
}

func TestResetByHand(t *testing.T) {
	g := newTestGuard(t, OnEnqueue, failsForBad, GuardOptions{Breaker: breaker.Config{Threshold: 1}})
	g.OnEnqueue(tenant("bad"))
	require.Equal(t, "open", g.Stats().State)
	g.Reset()
	require.Equal(t, "closed", g.Stats().State)
	require.Equal(t, "good", g.OnEnqueue(tenant("good")).FairnessKey)
	g.Reset()
	require.Len(t, g.changes, 2, "a reset of a closed circuit is no change")
	g.SetBreaker(breaker.Config{Threshold: 2})
	g.OnEnqueue(tenant("bad"))
	require.Equal(t, "closed", g.Stats().State)
}

func TestFailuresByCause(t *testing.T) {
	for cause, text := range map[Cause]string{
		CauseError:   `function on_failure(m) return 1 + nil end`,
		CauseTimeout: `function on_failure(m) while true do end end`,
		CauseMemory:  `function on_failure(m) local t = {} while true do t = { t } end end`,
		CauseType:    `function on_failure(m) return "retry" end`,
		CauseMissing: `if not fila.get("gone") then function on_failure(m) return {} end end`,
	} {
		t.Run(string(cause), func(t *testing.T) {
			o := GuardOptions{}
			if cause == CauseTimeout {
				o.Limits.Timeout = time.Millisecond
			}
			g := newTestGuard(t, OnFailure, text, o)
			g.config["gone"] = "yes"
			require.Equal(t, FailureDecision{}, g.OnFailure(&FailureInput{Attempts: 1}))
			s := g.Stats()
			require.EqualValues(t, 1, s.Failures)
			n := map[Cause]int64{CauseError: s.Errors, CauseTimeout: s.Timeouts, CauseMemory: s.Memory, CauseType: s.Types, CauseMissing: s.Gone}
			require.EqualValues(t, 1, n[cause])
			require.Contains(t, s.LastError, string(cause)+": ")
			require.Contains(t, g.log.String(), "cause="+string(cause))
		})
	}
}

func TestFilaGetIsFresh(t *testing.T) {
	for name, text := range map[string]string{
		"in the function":  `function on_enqueue(m) return { fairness_key = fila.get("k") or "none" } end`,
		"at the top level": `local k = fila.get("k") or "none" function on_enqueue(m) return { fairness_key = k } end`,
	} {
		t.Run(name, func(t *testing.T) {
			g := newTestGuard(t, OnEnqueue, text, GuardOptions{})
			require.Equal(t, "none", g.OnEnqueue(tenant("a")).FairnessKey)
			g.config["k"] = "v1"
			require.Equal(t, "v1", g.OnEnqueue(tenant("a")).FairnessKey)
			g.config["k"] = "v2"
			require.Equal(t, "v2", g.OnEnqueue(tenant("a")).FairnessKey)
		})
	}
}

func TestScriptLog(t *testing.T) {
	g := newTestGuard(t, OnEnqueue, `function on_enqueue(m)
		for i = 1, 100 do fila.log("line", i, m.headers.tenant) end
		print("a\n\255b", nil, true)
		return {} end`, GuardOptions{})
	g.OnEnqueue(tenant("a"))
	require.Equal(t, 10, strings.Count(g.log.String(), "hook says"), "ten lines a run")
	require.Contains(t, g.log.String(), `level=INFO msg="hook says" queue=orders hook=on_enqueue text="line\t1\ta"`)
	for range 50 {
		g.OnEnqueue(tenant("a"))
	}
	require.Equal(t, 20, strings.Count(g.log.String(), "hook says"), "twenty at once")
	g.now += int64(time.Second)
	g.OnEnqueue(tenant("a"))
	require.Equal(t, 30, strings.Count(g.log.String(), "hook says"))
	require.Contains(t, g.log.String(), "suppressed=")

	g = newTestGuard(t, OnEnqueue, `function on_enqueue(m) print(("x"):rep(5000)) return {} end`, GuardOptions{})
	g.OnEnqueue(tenant("a"))
	require.Contains(t, g.log.String(), "level=DEBUG")
	require.Less(t, g.log.Len(), 1300)
}

func TestRateLimit(t *testing.T) {
	r := rateLimit{burst: 2, every: time.Second}
	allow := func(now time.Duration) int {
		n, ok := r.allow(int64(now))
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
	g := newTestGuard(t, OnEnqueue, typicalHook, GuardOptions{})
	require.Equal(t, "a", g.OnEnqueue(tenant("a")).FairnessKey)
	g.Close()
	g.Close()
	require.Equal(t, "b", g.OnEnqueue(tenant("b")).FairnessKey)
}

// TestManyGuards runs many guards of shared scripts at once, with good,
// failing, hostile and dirty hooks, while others look at them.
func TestManyGuards(t *testing.T) {
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
			g := NewGuard(GuardOptions{
				Kind: OnEnqueue, Queue: "q", Script: script, Limits: patient,
				Get: func(string) (string, bool) { return "v", true },
			})
			wg.Go(func() {
				for range 50 {
					if d := g.OnEnqueue(tenant("t")); d.FairnessKey != want[i] {
						t.Errorf("script %d: got %q, want %q", i, d.FairnessKey, want[i])
						return
					}
				}
				g.Close()
			})
			wg.Go(func() {
				for range 50 {
					g.Stats()
					if i == 3 {
						g.Reset()
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
