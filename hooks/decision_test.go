package hooks

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
)

// TestDecisionFields: a missing or unusable field has its default and does not affect
// the others, a number beyond the bounds is clipped, and each mistake is a warning.
func TestDecisionFields(t *testing.T) {
	longest := strings.Repeat("k", MaxKeyBytes)
	for returned, want := range map[string]struct {
		key, circuit string
		weight, cost uint32 // 0: the default
		throttles    []string
		priority     uint8
		routes       []Route
		warnings     int64
	}{
		`{}`: {},
		`{ fairness_key = "a", circuit_key = "b", weight = 2.5, cost = 0.25, throttle_keys = { "x", "y" } }`: {
			key: "a", circuit: "b", weight: 2500, cost: 250, throttles: []string{"x", "y"},
		},
		`{ fairness_key = {}, circuit_key = 5, weight = "x", throttle_keys = 1 }`:       {warnings: 4},
		`{ fairness_key = "", circuit_key = "" }`:                                       {warnings: 2},
		`{ fairness_key = string.rep("k", 256), circuit_key = string.rep("k", 256) }`:   {key: longest, circuit: longest},
		`{ fairness_key = string.rep("k", 257), circuit_key = string.rep("k", 257) }`:   {warnings: 2},
		`{ weight = 0, cost = 0 }`:                                                      {warnings: 2},
		`{ weight = 0.999, cost = -1 }`:                                                 {warnings: 2},
		`{ weight = 0/0, cost = 0/0 }`:                                                  {warnings: 2},
		`{ weight = 1/0, cost = 1/0 }`:                                                  {weight: MaxThousandths, cost: MaxThousandths, warnings: 2},
		`{ weight = 1, cost = 0.0001 }`:                                                 {cost: 1},
		`{ throttle_keys = { "x", 5, string.rep("k", 257), string.rep("k", 256), "" }}`: {throttles: []string{"x", longest}, warnings: 1},
		`{ priority = 7 }`:                {priority: 7},
		`{ priority = 10 }`:               {priority: 9, warnings: 1},
		`{ priority = 1/0 }`:              {priority: 9, warnings: 1},
		`{ priority = -1 }`:               {warnings: 1},
		`{ priority = 1.5 }`:              {warnings: 1},
		`{ priority = 0/0 }`:              {warnings: 1},
		`{ priority = "9" }`:              {warnings: 1},
		`{ throttle_keys = { a = "x" } }`: {warnings: 1},

		`{ routes = { { name = "one", circuit_key = "a", throttle_keys = { "x" }, weight = 2.5 }, { name = "two" } } }`: {
			routes: []Route{{Name: "one", CircuitKey: "a", ThrottleKeys: []string{"x"}, Weight: 2500}, {Name: "two"}},
		},
		`{ routes = {} }`:               {},
		`{ routes = "one" }`:            {warnings: 1},
		`{ routes = { name = "one" } }`: {warnings: 1},
		`{ routes = { {}, "x", { name = 5 }, { name = "" }, { name = string.rep("n", 65) }, { name = "last" }, { name = "last" } } }`: {
			routes: []Route{{Name: "last"}}, warnings: 6,
		},
		`{ routes = { { name = "one", circuit_key = 5, throttle_keys = { "" }, weight = 0 } } }`: {
			routes: []Route{{Name: "one", ThrottleKeys: []string{}}}, warnings: 3,
		},
		`(function() local r = {}; for i = 1, 9 do r[i] = { name = "r" .. i } end; return { routes = r } end)()`: {
			routes: []Route{{Name: "r1"}, {Name: "r2"}, {Name: "r3"}, {Name: "r4"}, {Name: "r5"}, {Name: "r6"}, {Name: "r7"}, {Name: "r8"}}, warnings: 1,
		},
	} {
		t.Run(returned, func(t *testing.T) {
			r := newTestRunner(t, OnEnqueue, "function on_enqueue(msg) return "+returned+" end", RunnerOptions{})
			decision := DefaultEnqueueDecision()
			decision.CircuitKey, decision.ThrottleKeys, decision.Priority = want.circuit, want.throttles, want.priority
			decision.Routes = want.routes
			if want.key != "" {
				decision.Key = want.key
			}
			if want.weight != 0 {
				decision.Weight = want.weight
			}
			if want.cost != 0 {
				decision.Cost = want.cost
			}
			require.Equal(t, decision, r.OnEnqueue(&EnqueueInput{Queue: "orders"}))
			require.Equal(t, want.warnings, r.Stats().Warnings)
			require.Zero(t, r.Stats().Failures)
		})
	}
	for returned, want := range map[string]struct {
		decision FailureDecision
		warnings int64
	}{
		`{ action = "dlq", delay_ms = 5 }`:     {FailureDecision{Action: DeadLetter}, 0},
		`{ action = "retry" }`:                 {FailureDecision{}, 0},
		`{ action = "retry", delay_ms = 1.5 }`: {FailureDecision{Delay: 1500 * time.Microsecond, HasDelay: true}, 0},
		`{ delay_ms = 5 }`:                     {FailureDecision{Delay: 5 * time.Millisecond, HasDelay: true}, 0},
		`{ delay_ms = 0 }`:                     {FailureDecision{HasDelay: true}, 0},
		`{ delay_ms = 1/0 }`:                   {FailureDecision{Delay: MaxDelay, HasDelay: true}, 1},
		`{ action = "retry", delay_ms = 0 }`:   {FailureDecision{HasDelay: true}, 0},
		`{ action = "retry", delay_ms = "x" }`: {FailureDecision{}, 1},
		`{ action = "retry", delay_ms = -1 }`:  {FailureDecision{}, 1},
		`{ action = "retry", delay_ms = 0/0 }`: {FailureDecision{}, 1},
		`{ action = "retry", delay_ms = 1/0 }`: {FailureDecision{Delay: MaxDelay, HasDelay: true}, 1},
	} {
		t.Run(returned, func(t *testing.T) {
			r := newTestRunner(t, OnFailure, "function on_failure(msg) return "+returned+" end", RunnerOptions{})
			want.decision.Decided = true
			require.Equal(t, want.decision, r.OnFailure(&FailureInput{Attempts: 1}))
			require.Equal(t, want.warnings, r.Stats().Warnings)
		})
	}
}

// TestUnknownActionsFail: an unknown action is a failure of the hook. It decides
// nothing, and opens the circuit when it repeats.
func TestUnknownActionsFail(t *testing.T) {
	for returned, want := range map[string]string{
		`{ action = "explode", delay_ms = 5 }`: `on_failure must return the action "retry" or "dlq", or delay_ms, it returned "explode"`,
		`{ action = "a\27" .. ("x"):rep(99) }`: `it returned "a\x1b` + strings.Repeat("x", 62) + `"`,
		`{ action = 5 }`:                       "it returned a number",
		`{}`:                                   "it returned nothing or nil",
		`{ action = 5, delay_ms = 5 }`:         "it returned a number",
	} {
		t.Run(returned, func(t *testing.T) {
			r := newTestRunner(t, OnFailure, "function on_failure(msg) return "+returned+" end", RunnerOptions{Breaker: breaker.Config{Threshold: 2, Cooldown: time.Hour}})
			for range 3 {
				require.Equal(t, FailureDecision{}, r.OnFailure(&FailureInput{Attempts: 1}))
			}
			s := r.Stats()
			require.EqualValues(t, 2, s.Types)
			require.EqualValues(t, 1, s.Bypassed)
			require.Zero(t, s.Warnings)
			require.Contains(t, s.LastError, want)
		})
	}
}

// TestCompileChecksTheFunction: a script must define the function of its kind as a
// global, or either one if there is no kind.
func TestCompileChecksTheFunction(t *testing.T) {
	for text, want := range map[string]string{
		"x = 1":                            "does not define function on_enqueue(msg)",
		"function on_failure(m) end":       "does not define function on_enqueue(msg)",
		"local function on_enqueue(m) end": "does not define function on_enqueue(msg)",
	} {
		_, err := Compile(OnEnqueue, "fair.lua", text, patient)
		var le *LoadError
		require.ErrorAs(t, err, &le)
		require.Equal(t, "fair.lua: the script "+want+" at its top level", err.Error())
	}
	_, err := Compile("", "s", "x = 1", patient)
	require.ErrorContains(t, err, "does not define function on_enqueue(msg) or function on_failure(msg)")
	script, err := Compile("", "s", "function on_enqueue(m) end function on_failure(m) end", patient)
	require.NoError(t, err)
	require.Equal(t, []Kind{OnEnqueue, OnFailure}, script.Defines())
}
