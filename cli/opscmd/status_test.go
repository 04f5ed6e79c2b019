package opscmd

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/wire/api"
)

// wrong is what a fila says with a critical finding and a warning.
func wrong() api.Attention {
	shard := 3
	return api.Attention{Severity: "critical", Total: 3, Truncated: 1, Unanswered: []string{"b"}, Findings: []api.Finding{
		{
			Condition: "no-consumers", Severity: "critical", Since: "2026-01-02T11:55:00Z", Queue: "orders\x1b[2J", Messages: 3, Title: "Ready messages, no consumers",
			Whom: "3 messages wait.", Why: "No consumer is registered.", Action: api.FindingAction{Text: "Start a consumer.", Command: "fila queue inspect orders"},
			Before: []api.Mark{
				{At: "2026-01-02T11:54:48Z", Kind: "annotation", Text: "release 2", Client: "deploy-bot"},
				{At: "2026-01-02T11:54:59.5Z", Kind: "config", Text: "release from 1 to 2", Client: "deploy-bot", Undo: &api.Undo{Command: "fila config set release 1"}},
			},
		},
		{Condition: "standby-lags", Severity: "warning", Since: "2026-01-02T11:59:00Z", Shard: &shard, Node: "c", Title: "A standby lags", Whom: "Nobody yet.", Why: "It is behind.", Action: api.FindingAction{Text: "Look."}},
	}}
}

func TestStatus(t *testing.T) {
	f := clitest.StartFake(t)
	f.Answer("fila.admin.attention", wrong())
	r := program.Run(t, "", "status", "--queue", "orders", "--limit", "2")
	require.Equal(t, command.ExitCritical, r.Code)
	require.JSONEq(t, `{"queue":"orders","limit":2}`, string(f.Next().Data))
	lines := strings.Split(r.Out, "\n")
	require.Contains(t, lines[0], "CRITICAL  Ready messages, no consumers: queue orders?[2J  since ")
	require.Equal(t, []string{
		"  3 messages wait. No consumer is registered.",
		"  Start a consumer.",
		"  $ fila queue inspect orders",
		"  Changed: release 2 by deploy-bot, 12 s before",
		"  Changed: release from 1 to 2 by deploy-bot, just before",
		"  $ fila config set release 1",
		"",
	}, lines[1:8])
	require.Contains(t, lines[8], "WARNING  A standby lags: shard 3, node c  since ")
	require.Contains(t, r.Out, "\n1 finding more; --limit shows them\nnode b did not answer: findings of its shards are missing\n")
	require.Contains(t, r.Err, "the worst of 3 findings is critical")
}

func TestStatusExitCodes(t *testing.T) {
	f := clitest.StartFake(t)
	for _, tc := range []struct {
		name  string
		reply api.Attention
		code  int
		out   string
	}{
		{"nothing", api.Attention{}, command.ExitOK, "All is well.\n"},
		{"information", api.Attention{Severity: "info", Total: 1, Findings: []api.Finding{{Severity: "info", Title: "Paused"}}}, command.ExitOK, "INFO  Paused"},
		{"a warning", api.Attention{Severity: "warning", Total: 1, Findings: []api.Finding{{Severity: "warning", Title: "Late"}}}, command.ExitWarning, "WARNING  Late"},
		{"a silent node", api.Attention{Unanswered: []string{"b"}}, command.ExitWarning, "node b did not answer"},
		{"critical", wrong(), command.ExitCritical, "CRITICAL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f.Handle("fila.admin.attention", func(*nats.Msg) any { return tc.reply })
			r := program.Run(t, "", "status")
			require.Equal(t, tc.code, r.Code, r.Err)
			require.Contains(t, r.Out, tc.out)
			if tc.reply.Total+len(tc.reply.Unanswered) > 0 {
				require.NotContains(t, r.Out, "All is well")
			}
			var reply api.Attention
			r = program.Run(t, "", "status", "--json")
			require.Equal(t, tc.code, r.Code)
			reply = clitest.JSON[api.Attention](t, clitest.Ended(0, r.Out, ""))
			require.Equal(t, tc.reply.Severity, reply.Severity)
		})
	}
}

// Without a fila the exit code is no finding's.
func TestStatusWithoutFila(t *testing.T) {
	clitest.Isolate(t)
	s := clitest.StartNATS(t, nil)
	require.Equal(t, command.ExitConnect, program.Run(t, "", "status", "-s", s.ClientURL()).Code)
}

// The head of fila top has the worst findings.
func TestTopShowsFindings(t *testing.T) {
	s := testScreen()
	s.frame.Attention = wrong()
	lines := s.lines(100)
	require.Equal(t, []string{
		"CRITICAL  Ready messages, no consumers: queue orders?[2J",
		"WARNING  A standby lags: shard 3, node c",
		"1 finding more: fila status",
	}, lines[2:5])
}
