package hooks

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// snippet is one Lua block of docs/hooks.md with the comments at its top.
type snippet struct {
	line                                   int
	text, hook, id, route, errorCode, want string
	headers, config                        map[string]string
	payloadSize, attempts, repeat          int
}

func readSnippets(t *testing.T) []snippet {
	text, err := os.ReadFile("../docs/hooks.md")
	require.NoError(t, err)
	var out []snippet
	var s *snippet
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		switch {
		case strings.HasPrefix(line, "```lua"):
			s = &snippet{line: n, id: "m1", repeat: 1, headers: map[string]string{}, config: map[string]string{}}
		case s != nil && strings.HasPrefix(line, "```"):
			out = append(out, *s)
			s = nil
		case s != nil:
			s.text += line
			if key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "-- "), ": "); ok && strings.HasPrefix(line, "-- ") {
				s.set(t, key, value)
			}
		}
	}
	return out
}

func (s *snippet) set(t *testing.T, key, value string) {
	number := func() int {
		n, err := strconv.Atoi(value)
		require.NoError(t, err, "line %d", s.line)
		return n
	}
	pairs := func(m map[string]string) {
		for _, p := range strings.Fields(value) {
			k, v, _ := strings.Cut(p, "=")
			m[k] = v
		}
	}
	switch key {
	case "hook":
		s.hook = value
	case "headers":
		pairs(s.headers)
	case "config":
		pairs(s.config)
	case "payload-size":
		s.payloadSize = number()
	case "attempts":
		s.attempts = number()
	case "repeat":
		s.repeat = number()
	case "error-code":
		s.errorCode = value
	case "id":
		s.id = value
	case "route":
		s.route = value
	case "want":
		s.want = value
	default:
		require.Failf(t, "unknown comment", "line %d: %s", s.line, key)
	}
}

// effective is a decision as `fila hook run` prints it.
func effective(kind Kind, r Result) map[string]any {
	if kind == OnFailure {
		return map[string]any{"action": r.Failure.Action.String(), "delay_ms": float64(r.Failure.Delay) / 1e6}
	}
	var routes []map[string]any
	for _, one := range r.Enqueue.Routes {
		route := map[string]any{"name": one.Name, "throttle_keys": one.ThrottleKeys, "circuit_key": one.CircuitKey}
		if one.Weight > 0 {
			route["weight"] = float64(one.Weight) / 1000
		}
		routes = append(routes, route)
	}
	return map[string]any{
		"routes":       routes,
		"fairness_key": r.Enqueue.Key, "weight": float64(r.Enqueue.Weight) / 1000,
		"cost": float64(r.Enqueue.Cost) / 1000, "throttle_keys": r.Enqueue.ThrottleKeys, "circuit_key": r.Enqueue.CircuitKey, "priority": r.Enqueue.Priority,
	}
}

// TestSnippetsOfTheDocumentation runs every Lua block of docs/hooks.md.
func TestSnippetsOfTheDocumentation(t *testing.T) {
	all := readSnippets(t)
	require.GreaterOrEqual(t, len(all), 10)
	for _, s := range all {
		t.Run("line "+strconv.Itoa(s.line), func(t *testing.T) {
			require.NotEmpty(t, s.want, "a snippet names its decision")
			kind := Kind(s.hook)
			script, err := Compile(kind, "s", s.text, patient)
			require.NoError(t, err)
			tester := NewTester(TesterOptions{
				Kind: kind, Script: script, Limits: patient,
				Get: func(k string) (string, bool) { v, ok := s.config[k]; return v, ok },
			})
			headers := map[string][]string{}
			for k, v := range s.headers {
				headers[k] = []string{v}
			}
			for range s.repeat {
				var res Result
				if kind == OnFailure {
					res = tester.OnFailure(&FailureInput{Headers: headers, ID: s.id, Route: s.route, Queue: "orders", Attempts: uint32(s.attempts), ErrorCode: s.errorCode})
				} else {
					res = tester.OnEnqueue(&EnqueueInput{Headers: headers, PayloadSize: s.payloadSize, Queue: "orders"})
				}
				require.Nil(t, res.Err)
				require.Zero(t, res.Warnings)
				var want map[string]any
				require.NoError(t, json.Unmarshal([]byte(s.want), &want))
				text, err := json.Marshal(effective(kind, res))
				require.NoError(t, err)
				var got map[string]any
				require.NoError(t, json.Unmarshal(text, &got))
				for k, v := range want {
					require.Equal(t, v, got[k], k)
				}
			}
		})
	}
}

// TestErrorInTheDocumentation: docs/hooks.md quotes an error exactly.
func TestErrorInTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../docs/hooks.md")
	require.NoError(t, err)
	script, err := Compile(OnEnqueue, "fair.lua", "function on_enqueue(msg)\n  return { fairness_key = msg.user.name }\nend", patient)
	require.NoError(t, err)
	res := NewTester(TesterOptions{Kind: OnEnqueue, Script: script, Limits: patient}).OnEnqueue(&EnqueueInput{})
	require.NotNil(t, res.Err)
	require.Contains(t, string(page), "```text\n"+res.Err.Error()+"\n```\n")
}
