package gatecmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire/api"
)

func TestGuardCheck(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.guard.check.vendor:x", api.GuardAnswer{Allowed: true, Permit: "P", ExpiresAt: "2026-01-02T12:00:30Z", Probe: true})
	r := clitest.OK(t, program.RunAt(t, "guard", "check", "vendor:x", "tenant:a", "--caller", "me", "--cost", "2", "--ttl", "5s"))
	require.Contains(t, r.Out, "permit  P\n")
	require.Contains(t, r.Out, "half-open")
	require.JSONEq(t, `{"with":["tenant:a"],"caller":"me","cost":2,"ttl_ms":5000}`, string(f.Next().Data))

	refusal := api.GuardAnswer{
		Gate: "window", Key: "tenant:a", RetryAfterMs: 1500,
		Limit: &api.GuardLimit{Key: "tenant:a", Gate: "window", Limit: 10, ResetS: 60, WindowMs: 60_000},
	}
	f.Answer("fila.guard.check._", refusal)
	r = program.RunAt(t, "guard", "check", "two words")
	require.Equal(t, command.ExitRefused, r.Code)
	require.Equal(t, "refused by  window of tenant:a\nask again   in 1.5s\nlimit       0 of 10 left in 1m, all in 1m\n", r.Out)
	require.Equal(t, "fila: the guard refuses the call: window tenant:a, ask again in 1.5s\n", r.Err)
	require.JSONEq(t, `{"key":"two words"}`, string(f.Next().Data))
	r = program.RunAt(t, "guard", "check", "two words", "--json")
	require.Equal(t, command.ExitRefused, r.Code)
	require.Contains(t, r.Out, `"retry_after_ms": 1500`)
}

func TestGuardDone(t *testing.T) {
	f := clitest.StartFake(t)
	left := int64(3)
	f.Answer("fila.guard.done.v", api.GuardVerdict{
		Severity: "high", Rule: "down", Description: "the vendor is down", Retry: true, DelayMs: 2000, RetriesLeft: &left,
	})
	r := clitest.OK(t, program.RunAt(t, "guard", "done", "v", "P", "--error-code", "503", "--error", "x", "--retry-after", "1m", "--attempt", "2", "--caller", "me"))
	require.Equal(t, "counted   yes\nseverity  high\nrule      down  the vendor is down\nretry     in 2s, 3 left\n", r.Out)
	require.JSONEq(t, `{"permit":"P","outcome":"error","error_code":"503","error":"x","retry_after_ms":60000,"attempt":2,"caller":"me"}`, string(f.Next().Data))
	f.Answer("fila.guard.done.v", api.GuardVerdict{Duplicate: true})
	require.Equal(t, "counted  no: it was reported before\n", clitest.OK(t, program.RunAt(t, "guard", "done", "v", "P")).Out)
	require.JSONEq(t, `{"permit":"P","outcome":"ok","attempt":1}`, string(f.Next().Data))
	clitest.OK(t, program.RunAt(t, "guard", "done", "v", "P", "--cost", "0"))
	require.JSONEq(t, `{"permit":"P","outcome":"ok","attempt":1,"cost":0}`, string(f.Next().Data))
	clitest.OK(t, program.RunAt(t, "guard", "done", "v", "P", "--remaining", "0", "--reset", "1s"))
	require.JSONEq(t, `{"permit":"P","outcome":"ok","attempt":1,"remaining":0,"reset_ms":1000}`, string(f.Next().Data))
	require.Contains(t, program.RunAt(t, "guard", "done", "v", "P", "--remaining", "-1").Err, "remaining is -1: allowed is a number from 0 to 1e12")
	require.Contains(t, program.RunAt(t, "guard", "done", "v", "P", "--cost", "-1").Err, "cost is -1: allowed is a number from 0 to 1000000")
	clitest.OK(t, program.RunAt(t, "guard", "done", "v", "P", "--failed"))
	require.JSONEq(t, `{"permit":"P","outcome":"error","attempt":1}`, string(f.Next().Data))
}

func TestGuardJudge(t *testing.T) {
	f := clitest.StartFake(t)
	left := int64(3)
	f.Answer("fila.guard.state.v", api.GuardStatus{Verdict: &api.GuardVerdict{Severity: "high", Rule: "down", Retry: true, DelayMs: 2000, RetriesLeft: &left}})
	r := clitest.OK(t, program.RunAt(t, "guard", "judge", "v", "--error-code", "503", "--attempt", "2"))
	require.Equal(t, "severity  high\nrule      down\nretry     in 2s, 3 left\n", r.Out)
	require.JSONEq(t, `{"error_code":"503","attempt":2}`, string(f.Next().Data))
	f.Answer("fila.guard.state.v", api.GuardStatus{})
	r = program.RunAt(t, "guard", "judge", "v", "--error", "x")
	require.Contains(t, r.Err, "fila is older")
}

func TestGuardState(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.guard.state.v", api.GuardStatus{
		Key: "v", Answer: api.GuardAnswer{Gate: "circuit", Key: "v", RetryAfterMs: 60_000}, Permits: 2,
		Circuit: &api.CircuitInfo{State: "open"}, Limits: []api.GuardLimit{{Gate: "rate", Limit: 10, Remaining: 4, ResetS: 1}},
	})
	require.Equal(t, `key              v
a call now       refused by circuit, ask again in 1m
circuit          open: it blocks messages
rate             4 of 10 left, all in 1s
calls under way  2
`, clitest.OK(t, program.RunAt(t, "guard", "state", "v")).Out)
}

func TestGuardUsage(t *testing.T) {
	clitest.Isolate(t)
	t.Setenv("NATS_URL", "nats://127.0.0.1:1")
	program.Mistakes(t, map[string]string{
		"guard check":               "KEY is missing",
		"guard check k --ttl 5":     "write 5ms or 5s",
		"guard done k":              "PERMIT is missing",
		"guard done k P --reset 1s": "without --remaining",
		"guard state":               "KEY is missing",
		"guard judge k":             "error-code",
		"guard check k --cost dear": "dear",
	})
}
