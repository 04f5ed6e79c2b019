package sandbox

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/hooks/sandbox/source"
)

const loopHook = `function on_enqueue(m) local n = 0 for i = 1, m.payload_size do n = n + i end return {} end`

// TestStepLimitIsExact: a run that takes n steps passes with a limit of n, and
// fails with n-1.
func TestStepLimitIsExact(t *testing.T) {
	for _, size := range []int{0, 1, 10, 63, 64, 65, 1000} {
		run := func(steps int64) result {
			h := newHook(t, onEnqueue, loopHook, Limits{Steps: steps, Timeout: time.Hour})
			h.run(&message{}) // load
			return h.run(&message{PayloadSize: size})
		}
		n := run(1_000_000).Instructions
		require.Greater(t, n, int64(2*size))
		require.Nil(t, run(n).Err, "size %d", size)
		res := run(n - 1)
		require.NotNil(t, res.Err, "size %d", size)
		require.Equal(t, CauseTimeout, res.Err.Cause)
	}
}

// TestClockGaps: time in which the goroutine was not scheduled counts for 1 ms
// per gap, up to the hard limit on wall time.
func TestClockGaps(t *testing.T) {
	run := func(gap time.Duration) (checks int, err *RunError) {
		h := newHook(t, onEnqueue, `function on_enqueue(m) while true do end end`, Limits{}.withDefaults())
		h.x.clock = func() int64 { return 0 }
		require.Nil(t, h.load())
		now := int64(0)
		h.x.clock = func() int64 {
			checks++
			now += int64(gap)
			return now
		}
		h.x.sleep = nil // a rest would read the clock, too
		return checks, h.run(&message{}).Err
	}
	for gap, want := range map[time.Duration]int{
		500 * time.Microsecond: 22, // 21 gaps of 0.5 ms are more than 10 ms
		time.Millisecond:       12,
		2 * time.Millisecond:   12, // each counts as 1 ms
		4 * time.Millisecond:   9,  // 8 gaps are more than 30 ms of wall time
		40 * time.Millisecond:  2,
	} {
		checks, err := run(gap)
		require.Equal(t, want, checks, gap)
		require.Equal(t, CauseTimeout, err.Cause)
		require.Equal(t, 1, err.Line)
	}
	h := newHook(t, onEnqueue, loopHook, Limits{}.withDefaults())
	back := int64(1 << 40)
	h.x.clock = func() int64 { back -= int64(time.Second); return back }
	require.Nil(t, h.run(&message{PayloadSize: 10_000}).Err, "a clock that runs backwards stops nothing")
}

// TestWallTimeAloneIsNotUsedUp: a run that exceeds its wall time without running did
// not use up its limit.
func TestWallTimeAloneIsNotUsedUp(t *testing.T) {
	h := newHook(t, onEnqueue, loopHook, Limits{Timeout: 10 * time.Millisecond})
	require.Nil(t, h.load())
	now := int64(0)
	h.x.clock = func() int64 { now += int64(40 * time.Millisecond); return now }
	err := h.run(&message{PayloadSize: 10_000}).Err
	require.Equal(t, CauseTimeout, err.Cause)
	require.False(t, err.UsedUp)
}

func TestMemoryLimitIsExact(t *testing.T) {
	text := `function on_enqueue(m) local t for i = 1, m.payload_size do t = {} end return { fairness_key = "ok" } end`
	run := func(n int, memory int64) result {
		return newHook(t, onEnqueue, text, Limits{Timeout: time.Minute, MemoryBytes: memory}).run(&message{PayloadSize: n})
	}
	used := run(100, 1<<20).Allocated
	require.Equal(t, int64(100*source.CostTable+source.ConstructorCost(0, 1)), used)
	require.Nil(t, run(100, used).Err)
	res := run(100, used-1)
	require.Equal(t, CauseMemory, res.Err.Cause)
	require.Contains(t, res.Err.Message, "bytes exceeded")
}

func TestAKillDropsTheState(t *testing.T) {
	h := newHook(t, onEnqueue, `function on_enqueue(m) if m.payload_size == 1 then while true do end end return { r = "fine" } end`, Limits{Timeout: time.Minute, Steps: 10_000})
	require.Nil(t, h.run(&message{PayloadSize: 2}).Err)
	state := h.L
	res := h.run(&message{PayloadSize: 1})
	require.Equal(t, CauseTimeout, res.Err.Cause)
	require.True(t, res.Err.UsedUp)
	require.Nil(t, h.L)
	require.Equal(t, "fine", h.run(&message{PayloadSize: 2}).field("r"))
	require.NotSame(t, state, h.L)
}

func TestLimitsDefaults(t *testing.T) {
	l := Limits{Timeout: -1, MemoryBytes: -1, Steps: -1}.withDefaults()
	require.Equal(t, Limits{DefaultTimeout, DefaultMemoryBytes, 100 * int64(DefaultTimeout)}, l)
	require.Equal(t, Limits{}.withDefaults(), l)
}

func TestLoadErrors(t *testing.T) {
	hook := "\nfunction on_enqueue(m) return {} end"
	for name, tc := range map[string]struct {
		text         string
		line, column int
		message      string
		source       string
	}{
		"syntax":            {"x = 1\n  y = = 2" + hook, 2, 7, "syntax error", "  y = = 2"},
		"unfinished string": {"\nx = \"abc" + hook, 2, 5, "unterminated string", "x = \"abc"},
		"at the end":        {"function on_enqueue(m)", 1, 1, "the 'function' here is not closed", "function on_enqueue(m)"},
		"goto":              {"x = 1\ngoto nowhere" + hook, 2, 6, "no visible label 'nowhere'", ""},
		"break":             {"\n\nif x then break end" + hook, 3, 11, "no loop to break", "if x then break end"},
		"bit operator":      {"x = 1\nlocal y = x & 3" + hook, 2, 13, "hooks are Lua 5.1, which has no operator &: use bit32.band(a, b)", "local y = x & 3"},
		"bit or":            {"local y = 1 | 3" + hook, 1, 13, "Lua 5.1, which has no operator |: use bit32.bor", "local y = 1 | 3"},
		"right shift":       {"local y = 1 >> 3" + hook, 1, 13, "Lua 5.1, which has no operator >>: use bit32.rshift", "local y = 1 >> 3"},
		"and of C":          {"local y = 1 && 3" + hook, 1, 13, "no operator &&: use and", "local y = 1 && 3"},
		"or of C":           {"local y = 1 || 3" + hook, 1, 13, "no operator ||: use or", "local y = 1 || 3"},
		"unequal of C":      {"local y = 1 != 3" + hook, 1, 13, "no operator !=: use ~=", "local y = 1 != 3"},
		"not of C":          {"local y = !x" + hook, 1, 11, "no operator !: use not", "local y = !x"},
		"xor":               {"local y = 1 ~ 3" + hook, 1, 13, "use bit32.bxor", "local y = 1 ~ 3"},
		"shift":             {"local y = 1 << 3" + hook, 1, 13, "use bit32.lshift", "local y = 1 << 3"},
		"top level fails":   {"\nlocal x = nil .. 1" + hook, 2, 15, "the top level of the script fails: attempt to concatenate", "local x = nil .. 1"},
		"top level loops":   {"while true do end" + hook, 1, -1, "the top level of the script fails: limit of 100000 steps", "while true do end"},
		"too large":         {strings.Repeat(" ", MaxSource) + hook, 0, 0, "at most 65536 are allowed", ""},
		"reserved":          {"\nx = '\\0fila:set'" + hook, 2, -1, "reserved", "x = '\\0fila:set'"},
		"nesting":           {"x = " + strings.Repeat("(", 101) + "1" + strings.Repeat(")", 101) + hook, 1, 105, "at most 100 levels", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := compileHook("fair.lua", tc.text, Limits{Timeout: time.Minute, Steps: 100_000})
			var le *LoadError
			require.ErrorAs(t, err, &le)
			require.Contains(t, le.Message, tc.message)
			require.Equal(t, tc.line, le.Line, le.Error())
			if tc.source != "" {
				require.Equal(t, tc.source, le.Source)
				require.Contains(t, err.Error(), tc.source)
			}
			if tc.column != 0 {
				require.Equal(t, max(tc.column, 0), le.Column) // -1: it has none
			}
			require.True(t, strings.HasPrefix(err.Error(), "fair.lua"))
		})
	}
}

func TestWarnings(t *testing.T) {
	script, err := compileHook("s", `x = 1
local n = 0
local k = fila.get("k")
function on_enqueue(m)
  n = n + 1
  y = io
  local t = {}
  t.z = 1
  return t
end
function on_failure(m) return {} end`, Limits{})
	require.NoError(t, err)
	require.Equal(t, []string{onEnqueue, onFailure}, script.Defines())
	var got []string
	for _, w := range script.Warnings() {
		got = append(got, w.Message)
	}
	all := strings.Join(got, "\n")
	require.Contains(t, all, "assigns to the top-level local 'n'")
	require.Contains(t, all, "assigns to the global 'y'")
	require.Contains(t, all, "'io' is not available")
	require.Contains(t, all, "calls fila.get")
	require.Len(t, got, 4)
	require.Equal(t, 5, script.Warnings()[0].Line)
}
