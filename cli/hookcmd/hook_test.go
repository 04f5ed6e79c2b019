package hookcmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
)

var program = clitest.Program(Commands)

// hookCommand runs `fila hook ...` on scripts in a new directory.
func hookCommand(t *testing.T, scripts map[string]string, args ...string) (code int, out, errOut string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for i, a := range args {
		if _, ok := scripts[a]; ok {
			args[i] = filepath.Join(dir, a)
		}
	}
	r := program.Run(t, "", append([]string{"hook"}, args...)...)
	return r.Code, r.Out, r.Err
}

const fairHook = `function on_enqueue(msg)
  return { fairness_key = msg.headers["tenant"], weight = 2.5, throttle_keys = { "q:" .. msg.queue, fila.get("k") }, size = msg.payload_size }
end`

const retryHook = `function on_failure(msg)
  if msg.attempts > 2 then return { action = "dlq" } end
  return { action = "retry", delay_ms = 1500, why = msg.error .. "/" .. msg.error_code .. "/" .. msg.id }
end`

func TestHookRunJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		script  string
		args    []string
		code    int
		outcome string
		line    float64
		want    map[string]any
	}{
		"decides": {fairHook, []string{"--hook", "on_enqueue", "--header", "tenant=a,b=c", "-H", "x=1", "--payload-size", "7", "--config", "k=v=w"}, 0, "ok", 0, map[string]any{
			"fairness_key": "a,b=c", "weight": 2.5, "cost": 1.0, "circuit_key": "", "throttle_keys": []any{"q:orders", "v=w"},
			"returned": map[string]any{"fairness_key": "a,b=c", "weight": 2.5, "throttle_keys": []any{"q:orders", "v=w"}, "size": 7.0},
		}},
		"defaults": {`function on_enqueue() return {} end`, nil, 0, "ok", 0, map[string]any{
			"fairness_key": "default", "weight": 1.0, "cost": 1.0, "circuit_key": "", "throttle_keys": []any{}, "returned": map[string]any{},
		}},
		"retries": {retryHook, []string{"--error", "503", "--error-code", "up", "--repeat", "5"}, 0, "ok", 0, map[string]any{
			"action": "retry", "delay_ms": 1500.0, "returned": map[string]any{"action": "retry", "delay_ms": 1500.0, "why": "503/up/m1"},
		}},
		"leaves the delay to the nack": {`function on_failure(m) return { action = "retry", asked = m.requested_delay_ms } end`, []string{"--requested-delay", "2s"}, 0, "ok", 0, map[string]any{
			"action": "retry", "delay_ms": 2000.0, "returned": map[string]any{"action": "retry", "asked": 2000.0},
		}},
		"knows the route": {`function on_failure(m) return { action = "retry", by = m.route } end`, []string{"--route", "openai"}, 0, "ok", 0, map[string]any{
			"action": "retry", "delay_ms": 0.0, "returned": map[string]any{"action": "retry", "by": "openai"},
		}},
		"has no route": {`function on_failure(m) return { action = "retry", by = tostring(m.route) } end`, nil, 0, "ok", 0, map[string]any{
			"action": "retry", "delay_ms": 0.0, "returned": map[string]any{"action": "retry", "by": "nil"},
		}},
		"gives up": {retryHook, []string{"--hook", "on_failure", "--attempts", "3"}, 0, "ok", 0, map[string]any{
			"action": "dlq", "delay_ms": 0.0, "returned": map[string]any{"action": "dlq"},
		}},
		"fails": {"function on_enqueue(msg)\n  error('no')\nend", nil, 1, "error", 2, map[string]any{
			"fairness_key": "default", "weight": 1.0, "cost": 1.0, "circuit_key": "", "throttle_keys": []any{}, "returned": nil,
		}},
		"a key nobody can name": {"function on_enqueue(m) return { fairness_key = 'a\\0', why = 'b\\255' } end", nil, 1, "refused", 0, map[string]any{
			"fairness_key": `a\x00`, "weight": 1.0, "cost": 1.0, "circuit_key": "", "throttle_keys": []any{}, "returned": map[string]any{"fairness_key": "a\x00", "why": `b\xff`},
		}},
		"a circuit nobody can name":  {"function on_enqueue(m) return { circuit_key = '\\255' } end", nil, 1, "refused", 0, nil},
		"a throttle nobody can name": {"function on_enqueue(m) return { throttle_keys = { 'a', 'b\\n' } } end", nil, 1, "refused", 0, nil},
		"no table":                   {`function on_enqueue(msg) return 1 end`, nil, 1, "error", 0, nil},
		"loops":                      {"function on_enqueue(msg)\n\n  while true do end\nend", nil, 3, "timeout", 3, nil},
		"allocates":                  {"function on_enqueue(msg)\n  local s = 'x' while true do s = s .. s end\nend", nil, 3, "memory", 2, nil},
		"a smaller limit":            {"function on_enqueue(msg) local t = {} for i = 1, 100 do t[i] = {} end return t end", []string{"--lua-memory", "5000"}, 3, "memory", 1, nil},
		"does not compile":           {"function on_enqueue(msg)\n  return {{\nend", nil, 2, "load", 3, nil},
		"wrong hook":                 {fairHook, []string{"--hook", "on_failure"}, 2, "load", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := "1m" // a busy machine may stop the test for longer than the default
			if tc.outcome == "timeout" {
				timeout = "10ms"
			}
			code, out, errOut := hookCommand(t, map[string]string{"s.lua": tc.script}, append([]string{"run", "s.lua", "--json", "--lua-timeout", timeout}, tc.args...)...)
			require.Equal(t, tc.code, code, errOut)
			var got map[string]any
			require.NoError(t, json.Unmarshal([]byte(out), &got), out)
			require.Equal(t, tc.outcome, got["outcome"])
			require.Equal(t, tc.line, got["line"])
			if tc.want != nil {
				require.Equal(t, tc.want, got["decision"])
			}
			require.Equal(t, tc.code != 0, got["error"] != "")
			require.Equal(t, tc.code != 0, errOut != "")
			if tc.outcome == "ok" {
				require.Positive(t, got["instructions"])
			}
			for _, field := range []string{"allocated_bytes", "elapsed_us"} {
				require.Contains(t, got, field)
			}
		})
	}
}

func TestHookRunTable(t *testing.T) {
	code, out, _ := hookCommand(t, map[string]string{"s.lua": fairHook}, "run", "s.lua", "-H", "tenant: acme")
	require.Zero(t, code)
	for _, line := range []string{"outcome          ok", "fairness_key     acme", "weight           2.5", "throttle_keys    q:orders", `returned         {"fairness_key":"acme"`} {
		require.Contains(t, out, line)
	}
	code, _, errOut := hookCommand(t, map[string]string{"s.lua": "function on_enqueue(msg)\n  local x = msg.nothing.at_all\nend"}, "run", "s.lua")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "s.lua:2:25: attempt to index")
	require.Contains(t, errOut, "\n      local x = msg.nothing.at_all\n                            ^\n")
}

// Headers have the syntax of other commands; the former flag name works.
func TestHookRunHeaders(t *testing.T) {
	for _, header := range [][]string{{"-H", "tenant=a:b"}, {"-H", "tenant:a:b"}, {"--header", "tenant: a:b"}, {"--headers", "tenant=a:b"}} {
		code, out, errOut := hookCommand(t, map[string]string{"s.lua": fairHook}, append([]string{"run", "s.lua"}, header...)...)
		require.Zero(t, code, errOut)
		require.Contains(t, out, "fairness_key     a:b\n", header)
	}
}

func TestHookRunMistakes(t *testing.T) {
	scripts := map[string]string{"s.lua": fairHook}
	for _, args := range [][]string{
		{"run", "s.lua", "--hook", "on_delete"},
		{"run", "s.lua", "--headers", "tenant"},
		{"run", "s.lua", "--config", "=v"},
		{"run", "s.lua", "--payload-size", "x"},
		{"run"},
		{"run", "s.lua", "s.lua"},
		{"check"},
	} {
		code, out, errOut := hookCommand(t, scripts, args...)
		require.Equal(t, command.ExitUsage, code, "%v: %s", args, errOut)
		require.Empty(t, out)
		require.NotEmpty(t, errOut)
	}
	code, _, errOut := hookCommand(t, scripts, "run", "gone.lua")
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "cannot read the script")
}

// The output names ignored keys.
func TestHookRunNotes(t *testing.T) {
	const script = `function on_enqueue(m) return { fairness_key = ("x"):rep(257), throttle_keys = { "a", "", ("y"):rep(300) }, circuit_key = ("z"):rep(256) } end`
	code, out, errOut := hookCommand(t, map[string]string{"s.lua": script}, "run", "s.lua", "--json")
	require.Zero(t, code, errOut)
	var o hookOutcome
	require.NoError(t, json.Unmarshal([]byte(out), &o))
	require.Equal(t, []string{
		"fairness_key is longer than 256 bytes and does not count",
		"one of throttle_keys is empty and does not count", "one of throttle_keys is longer than 256 bytes and does not count",
	}, o.Notes)
	require.Equal(t, "default", o.Decision["fairness_key"])
	require.Equal(t, []any{"a"}, o.Decision["throttle_keys"])
	code, out, _ = hookCommand(t, map[string]string{"s.lua": script}, "run", "s.lua")
	require.Zero(t, code)
	require.Contains(t, out, "fairness_key is longer than 256 bytes and does not count")
}

// TestHookCheckRuns: check runs each loaded hook once.
func TestHookCheckRuns(t *testing.T) {
	scripts := map[string]string{
		"both.lua":   fairHook + "\n" + retryHook,
		"picky.lua":  "function on_enqueue(msg)\n  return { fairness_key = msg.headers.tenant:lower() }\nend",
		"bad.lua":    "function on_enqueue(msg) return { fairness_key = 'a\\n' } end",
		"long.lua":   "function on_enqueue(msg) return { circuit_key = ('x'):rep(257) } end",
		"loop.lua":   "function on_enqueue(msg)\n  while true do end\nend",
		"broken.lua": "x =",
	}
	for name, tc := range map[string]struct {
		args []string
		code int
		out  []string
		err  string
	}{
		"what it returns": {[]string{"both.lua"}, 0, []string{
			"both.lua: ok, defines on_enqueue and on_failure\n", `on_enqueue on a sample: returned {"size":0,"throttle_keys":["q:orders"],"weight":2.5}`,
			"decides fairness_key default, weight 2.5, cost 1, throttle_keys q:orders\n", `on_failure on a sample: returned {"action":"retry","delay_ms":1500,"why":"//m1"}`,
			"decides action retry, delay_ms 1500\n",
		}, ""},
		"with headers":     {[]string{"picky.lua", "-H", "tenant=ACME"}, 0, []string{"decides fairness_key acme,"}, ""},
		"without":          {[]string{"picky.lua", "both.lua"}, 1, []string{"picky.lua:2:46: attempt to index", "                                                 ^\n", "both.lua: ok"}, "1 of 2 scripts failed on the sample: --header gives it headers"},
		"a key is refused": {[]string{"bad.lua"}, 1, []string{"on_enqueue on a sample: the server would refuse the message: ", "fairness key"}, "1 of 1 script failed"},
		"a key too long":   {[]string{"long.lua"}, 0, []string{"warnings: 1 (", "circuit_key is longer than 256 bytes"}, ""},
		"a limit":          {[]string{"loop.lua", "bad.lua"}, 3, []string{"loop.lua:2: time limit of 10ms exceeded"}, "1 of 2 scripts met a limit on the sample"},
		"a refused script": {[]string{"loop.lua", "broken.lua"}, 2, []string{"broken.lua: refused\n"}, "1 of 2 scripts refused"},
		"only loaded":      {[]string{"loop.lua", "--no-run"}, 0, []string{"loop.lua: ok, defines on_enqueue\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := hookCommand(t, scripts, append([]string{"check"}, tc.args...)...)
			require.Equal(t, tc.code, code, "%s\n%s", out, errOut)
			for _, text := range tc.out {
				require.Contains(t, out, text)
			}
			require.Contains(t, errOut, tc.err)
			require.Equal(t, tc.code != 0, errOut != "")
			if name == "only loaded" {
				require.NotContains(t, out, "sample")
			}
		})
	}
	code, out, _ := hookCommand(t, scripts, "check", "both.lua", "--json")
	require.Zero(t, code)
	var r hookCheck
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, "default", r.Runs["on_enqueue"].Decision["fairness_key"])
	require.Equal(t, "retry", r.Runs["on_failure"].Decision["action"])
}

func TestHookCheck(t *testing.T) {
	scripts := map[string]string{
		"good.lua":   fairHook + "\n" + retryHook,
		"global.lua": "function on_enqueue(msg)\n  n = 1\n  return {}\nend",
		"bad.lua":    "function on_enqueue(msg)\n  return { a = 1 | 2 }\nend",
	}
	code, out, _ := hookCommand(t, scripts, "check", "good.lua", "global.lua")
	require.Zero(t, code)
	require.Contains(t, out, "good.lua: ok, defines on_enqueue and on_failure\n")
	require.Contains(t, out, "global.lua:2: a function assigns to the global 'n'")

	code, out, errOut := hookCommand(t, scripts, "check", "good.lua", "bad.lua", "--json")
	require.Equal(t, 2, code)
	require.Contains(t, errOut, "1 of 2 scripts refused")
	dec := json.NewDecoder(strings.NewReader(out))
	var good, bad hookCheck
	require.NoError(t, dec.Decode(&good))
	require.NoError(t, dec.Decode(&bad))
	require.True(t, good.OK)
	require.Len(t, good.Hooks, 2)
	require.False(t, bad.OK)
	require.Equal(t, 2, bad.Line)
	require.Equal(t, 18, bad.Column)
	require.Contains(t, bad.Error, "use bit32.bor(a, b)")
}
