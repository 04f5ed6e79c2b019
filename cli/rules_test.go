package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/sidecar/rules"
)

const rulesConfig = `
[[queue]]
name = "mail"
retry_policy = "slow"

[[queue]]
name = "quick"
retry_initial_ms = 0
max_deliveries = 3

[[retry_policy]]
name = "slow"
initial_delay_ms = 500
max_retries = 2

[[retry_policy]]
name = "spread"
retry = true
max_delay_ms = 4000
jitter = 0.5

[[error_rule]]
name = "busy"
description = "the provider wants us to wait"
code = "429"
severity = "low"
retry_policy = "spread"

[[error_rule]]
name = "bad-card"
queue = "mail"
pattern = "declined"
retry = false
message_fault = true

[[error_rule]]
name = "fire"
code = "fire"
severity = "critical"
`

func TestRulesList(t *testing.T) {
	file := clitest.WriteFile(t, "fila.toml", rulesConfig)
	r := clitest.OK(t, program.Run(t, "", "rules", "list", "--config", file))
	require.Equal(t, `RULE      QUEUE  CODE  PATTERN   SEVERITY  POLICY       RETRY          DESCRIPTION
busy      any    429   any       low       spread       as the policy  the provider wants us to wait
bad-card  mail   any   declined  medium    the queue's  never          -
fire      any    fire  any       critical  the queue's  never          -

POLICY  RETRIES            FIRST DELAY  MULTIPLIER  LONGEST  JITTER
slow    2                  500ms        2           5m       0
spread  as max_deliveries  1s           2           4s       0.5
`, r.Out)
	list := clitest.JSON[ruleList](t, program.Run(t, "", "rules", "ls", "--config", file, "--json"))
	require.Equal(t, file, list.File)
	require.Len(t, list.Rules, 3)
	require.Equal(t, rules.RetryPolicy{Name: "spread", Retry: new(true), InitialDelayMs: 1000, MaxDelayMs: 4000, Multiplier: 2, Jitter: 0.5}, list.Policies[1])

	empty := clitest.WriteFile(t, "empty.toml", "")
	require.Equal(t, "no error rules\n\nno retry policies\n", clitest.OK(t, program.Run(t, "", "rules", "list", "--config", empty)).Out)
}

// TestRulesTest gives the same result as a running fila.
func TestRulesTest(t *testing.T) {
	file := clitest.WriteFile(t, "fila.toml", rulesConfig)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a rule with a policy": {
			[]string{"--code", "429", "--error", "too many requests"},
			"rule          busy\ndescription   the provider wants us to wait\nseverity      low\nretry policy  spread\n" +
				"retries       after 500ms to 1.5s, 1s to 3s, 2s to 4s, 2s to 4s, 2s to 4s, 2s to 4s, ...\n",
		},
		"a rule that gives up": {
			[]string{"--queue", "mail", "--error", "card declined"},
			"rule          bad-card\nseverity      medium\nretry policy  slow\ncircuit       does not count it\nretries       none: a dead letter at once\n",
		},
		"a critical one": {
			[]string{"--code", "fire"},
			"rule          fire\nseverity      critical\nretry policy  none, the backoff of the queue\nretries       none: a dead letter at once\n",
		},
		"the queue's policy": {
			[]string{"--queue", "mail", "--code", "x"},
			"rule          none fits\nseverity      medium\nretry policy  slow\nretries       after 500ms, 1s, then a dead letter\n",
		},
		"the queue's backoff": {
			[]string{"--queue", "quick"},
			"rule          none fits\nseverity      medium\nretry policy  none, the backoff of the queue\nretries       after 0s, 0s, then a dead letter\n",
		},
		"of a queue that is not in the file": {
			[]string{"--error", "declined"},
			"rule          none fits\nseverity      medium\nretry policy  none, the backoff of the queue\n" +
				"retries       after 0s to 1s, 0s to 2s, 0s to 4s, 0s to 8s, 0s to 16s, 0s to 32s, ...\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := clitest.OK(t, program.Run(t, "", append([]string{"rules", "test", "--config", file}, tc.args...)...))
			require.Equal(t, tc.want, r.Out)
		})
	}
	test := clitest.JSON[failureTest](t, program.Run(t, "", "rules", "test", "--config", file, "--queue", "mail", "--json"))
	require.Equal(t, failureTest{Severity: "medium", Policy: "slow", Retry: true, Delays: []delayRange{{500, 500}, {1000, 1000}}, Ends: true}, test)
}

func TestRulesWithoutAFile(t *testing.T) {
	r := program.Run(t, "", "rules", "list", "--config", "")
	require.Equal(t, command.ExitUsage, r.Code)
	require.Contains(t, r.Err, "--config is empty: name a file")
	r = program.Run(t, "", "rules", "test", "--config", clitest.WriteFile(t, "bad.toml", "[[error_rule]]\nname = \"x\""))
	require.Equal(t, command.ExitUsage, r.Code)
	require.Contains(t, r.Err, "code and pattern are both empty")
}
