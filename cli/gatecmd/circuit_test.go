package gatecmd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func openCircuit() api.CircuitInfo {
	return api.CircuitInfo{
		Key: "stripe", State: "open", ConsecutiveFailures: 10, OpenUntil: "2026-01-02T12:05:00Z", Cause: "failures",
		Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1, Waiting: 2,
		MaxFailures: 50, FailureWindowMs: 60_000, FailureHoldMs: 600_000,
	}
}

func TestCircuitCommands(t *testing.T) {
	f := clitest.StartFake(t)
	byHand := openCircuit()
	byHand.OpenUntil, byHand.Cause, byHand.HalfOpenSuccesses, byHand.FailureHoldMs = "closed", "by hand", 2, 0
	closed := openCircuit()
	closed.State, closed.OpenUntil, closed.Cause, closed.ConsecutiveFailures, closed.MaxFailures = "closed", "", "", 0, 0
	shown := openCircuit()
	shown.LastFailure = &api.CircuitFailure{At: "2026-01-02T12:00:00Z", Caller: "billing", Attempt: 1, ErrorCode: "429", Error: "slow\ndown"}
	shown.Sources = api.Sources{
		"threshold": {By: "operator", Client: "maria\n@ops", At: "2026-01-02T11:00:00Z"}, "cooldown_ms": {By: "default"}, "max_failures": {By: "file"},
	}
	f.Answer("fila.admin.circuit-show.stripe", shown)
	f.Answer("fila.admin.circuit-open.stripe", byHand)
	f.Answer("fila.admin.circuit-open._", byHand)
	f.Answer("fila.admin.circuit-close.stripe", closed)
	f.Answer("fila.admin.circuit-reset.stripe", closed)
	for _, tc := range []struct {
		args, body string
		out        []string
	}{
		{"circuit show stripe", `{}`, []string{
			"circuit            stripe",
			"state              open: it blocks messages",
			"until              2026-01-02T12:05:00Z (in 5m)",
			"cause              failures",
			"last failure       2026-01-02T12:00:00Z (now), a call of billing: [429] slow?down",
			"failures in a row  10 of 10",
			"max failures       50 in 1m, then open for 10m",
			"cooldown           5m",
			"probes             0 of 3 in flight, 1 success to close",
			"waiting queues     2",
			"shared             local",
			"",
			"SETTING       SET BY    CLIENT      AT",
			"max_failures  file      -           -",
			"threshold     operator  maria?@ops  2026-01-02T11:00:00Z (1h ago)",
		}},
		{"circuit open stripe --for 5m", `{"for_ms":300000}`, []string{
			"circuit            stripe",
			"state              open: it blocks messages",
			"until              `fila circuit close stripe`",
			"cause              by hand",
			"failures in a row  10 of 10",
			"max failures       50 in 1m, then open until closed by hand",
			"cooldown           5m",
			"probes             0 of 3 in flight, 2 successes to close",
			"waiting queues     2",
			"shared             local",
		}},
		{"circuit open a..b", `{"key":"a..b"}`, nil},
		{"circuit close stripe", `{}`, []string{
			"circuit            stripe",
			"state              closed: it admits messages",
			"failures in a row  0 of 10",
			"max failures       not limited",
			"cooldown           5m",
			"probes             0 of 3 in flight, 1 success to close",
			"waiting queues     2",
			"shared             local",
		}},
		{"circuit reset stripe", `{}`, nil},
	} {
		r := clitest.OK(t, program.RunAt(t, strings.Fields(tc.args)...))
		require.JSONEq(t, tc.body, string(f.Next().Data), tc.args)
		if tc.out != nil {
			require.Equal(t, clitest.Lines(tc.out...), r.Out, tc.args)
		}
		got := clitest.JSON[api.CircuitInfo](t, program.RunAt(t, append(strings.Fields(tc.args), "--json")...))
		require.Equal(t, "stripe", got.Key)
		f.Next()
	}
	f.Answer("fila.admin.circuit-show.gone", wire.CircuitNotFound("gone"))
	r := program.RunAt(t, "circuit", "show", "gone")
	require.Equal(t, clitest.Ended(command.ExitNotFound, "", "fila: no such circuit \"gone\": `fila circuit list` lists the known circuits [err_code 15404]\n"), r)
}

func TestCircuitList(t *testing.T) {
	f := clitest.StartFake(t)
	byHand := openCircuit()
	byHand.Key, byHand.OpenUntil, byHand.Cause, byHand.OpenedByClient = "mail", "closed", "by hand", "bob"
	of := api.CircuitInfo{
		Key: "sms", State: "half-open", Probes: 3, Threshold: 5, Shared: true, By: "host-1",
		ProbesBy: map[string]int{"host-2": 1, "host-1": 2}, ChangedAt: "2026-01-02T11:59:00Z",
		Cause: "by hand", OpenedBy: "host-2", OpenedByClient: "alice", Version: 12,
		Own:      &api.CircuitLimits{Threshold: 3, CooldownMs: 60_000, HalfOpenMaxCalls: 1, HalfOpenSuccesses: 2},
		LimitsBy: "host-2", LimitsChangedAt: "2026-01-02T11:55:00Z",
	}
	degraded := api.CircuitInfo{Key: "voice", State: "closed", Threshold: 5, Shared: true, Degraded: true}
	list := api.CircuitList{Total: 4, Circuits: []api.CircuitInfo{byHand, openCircuit(), of, degraded}}
	clitest.Shows(f, program, "circuit list", "fila.admin.circuit-list", list,
		"CIRCUIT  STATE      UNTIL                 CAUSE     FAILURES IN A ROW  MAX FAILURES                 PROBES              WAITING QUEUES  SHARED                             OPENED BY        CHANGED",
		"mail     open       until closed by hand  by hand   10 of 10           50 in 1m, then open for 10m  0                   2               local                              bob              -",
		"stripe   open       in 5m                 failures  10 of 10           50 in 1m, then open for 10m  0                   2               local                              -                -",
		"sms      half-open  -                     by hand   0 of 5             not limited                  host-1 2, host-2 1  0               shared                             alice at host-2  1m ago by host-1, version 12",
		"voice    closed     -                     -         0 of 5             not limited                  0                   0               degraded: this fila decides alone  -                -",
	)
	f.Answer("fila.admin.circuit-show.sms", of)
	shown := program.RunAt(t, "circuit", "show", "sms").Out
	for _, line := range []string{"shared             shared", "probes by          host-1 2, host-2 1", "opened by          alice at host-2", "set here           open for 1m after 3 failures in a row, 1 probe at once, 2 successes to close; fila host-2 set others later 2026-01-02T11:55:00Z (5m ago)", "changed            2026-01-02T11:59:00Z (1m ago) by host-1, version 12"} {
		require.Contains(t, shown, line)
	}
	f.Answer("fila.admin.circuit-list", api.CircuitList{})
	require.Contains(t, program.RunAt(t, "circuit", "ls").Out, "no circuits; messages get one by circuit_key")
}
