package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/cli/clitest"
	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/schemas/schematest"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

const applied = `# what a team needs
kind: RetryPolicy
name: patient
spec: {initial_delay: 5s, max_retries: 3}
---
kind: ErrorRule
name: card-declined
spec: {code: card_declined, retry: false}
---
kind: Guard
name: stripe
spec: {with: ["tenant:*"]}
---
kind: RouteChoice
name: large
spec:
  routes:
  - {name: openai, circuit_key: openai, throttle_keys: ["openai:tpm"]}
  - {name: anthropic, circuit_key: anthropic, weight: 2}
---
kind: Throttle
name: tenant:*
spec: {rate: 10, burst: 20}
---
kind: Throttle
name: stripe
spec: {limit: 100, window: 1m, concurrency: 5}
---
kind: Circuit
name: stripe
spec: {threshold: 5, cooldown: 30s}
---
kind: Queue
name: orders
spec:
  fairness_header: tenant
  throttle_headers: ["tenant:{tenant}"]
  visibility_timeout: 45s
  retry_policy: patient
  on_failure_file: hooks/retry.lua
---
kind: Schedule
name: nightly
spec:
  queue: orders
  schedule: "@daily"
  payload: {job: cleanup}
  headers: {tenant: [system]}
`

// write writes files below a new directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

const retryHook = `function on_failure(msg) return { action = "retry" } end`

func TestApply(t *testing.T) {
	startReal(t)
	dir := write(t, map[string]string{"queues/orders.yaml": applied, "queues/hooks/retry.lua": retryHook, "README.md": "no document"})
	apply := func(args ...string) clitest.Result {
		return program.Run(t, "", append([]string{"apply", "-f", dir, "--owner", "team-a", "--reason", "3f2c1"}, args...)...)
	}

	dry := apply("--dry-run")
	require.Equal(t, 2, dry.Code, dry.Err)
	require.Contains(t, dry.Out, "+ Queue orders\n")
	require.Contains(t, dry.Out, "    visibility_timeout_ms: 45000\n")
	require.Contains(t, dry.Out, "9 to create\n")
	require.Equal(t, "fila: 9 objects would change\n", dry.Err)
	require.Equal(t, "no queues; create one with `fila queue create NAME`\n", must(t, "", "queue", "list"))

	require.Contains(t, clitest.OK(t, apply()).Out, "9 created\n")
	require.Equal(t, "nothing to change\n", clitest.OK(t, apply()).Out)
	require.Equal(t, "nothing to change\n", clitest.OK(t, apply("--dry-run", "--prune")).Out)
	require.Contains(t, must(t, "", "throttle", "show", "stripe"), "5 at once, 100 in any 1m")
	require.Contains(t, must(t, "", "schedule", "show", "orders", "nightly"), `{"job":"cleanup"}`)
	require.Contains(t, must(t, "", "config", "log", "owner:"), `{"owner":"team-a","reason":"3f2c1"}`)

	// Changes by hand stay, unless a document says otherwise.
	must(t, "", "throttle", "set", "stripe", "--rate", "1", "--for", "10m")
	must(t, "", "pause", "queue", "orders")
	require.Equal(t, "nothing to change\n", clitest.OK(t, apply()).Out)
	update := []string{"queue", "update", "orders", "--visibility-timeout", "30s"}
	require.Equal(t, command.ExitConflict, program.Run(t, "", update...).Code)
	require.Contains(t, must(t, "", append(update, "--force")...), "warning: queue:orders belongs to team-a: visibility_timeout_ms 45000 -> 30000\n")
	require.Contains(t, apply("--dry-run").Out, "~ Queue orders\n    visibility_timeout_ms: 30000 -> 45000\n1 to update\n")
	clitest.OK(t, apply())

	// The same objects in the same form.
	export := must(t, "", "export-config")
	again := write(t, map[string]string{"all.yaml": export})
	require.Equal(t, "nothing to change\n", must(t, "", "diff", "-f", again, "--owner", "team-a"))
	require.Equal(t, export, must(t, "", "export-config", "--owner", "team-a"))
	require.Empty(t, must(t, "", "export-config", "--owner", "team-b"))
	var documents []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(must(t, "", "export-config", "--json")), &documents))
	require.Len(t, documents, 9)
	for _, d := range documents {
		schematest.Check(t, "apply", d)
	}

	// Another owner.
	other := program.Run(t, "", "apply", "-f", dir, "--owner", "team-b")
	require.Equal(t, command.ExitConflict, other.Code)
	require.Contains(t, other.Err, "RetryPolicy patient belongs to team-a, not to team-b")

	// Less than before.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "queues", "orders.yaml"), []byte("kind: Throttle\nname: stripe\nspec: {concurrency: 7}\n"), 0o600))
	asked := apply("--prune")
	require.Equal(t, command.ExitUsage, asked.Code)
	require.Contains(t, asked.Err, "nothing was done: --yes deletes Schedule orders/nightly, Queue orders, Circuit stripe, Throttle tenant:*, RouteChoice large, Guard stripe, ErrorRule card-declined, RetryPolicy patient")
	pruned := clitest.OK(t, apply("--prune", "--yes"))
	require.Contains(t, pruned.Out, "~ Throttle stripe\n    concurrency: 5 -> 7\n    limit: 100 -> none\n    window_ms: 60000 -> none\n")
	require.Contains(t, pruned.Out, "1 updated, 8 deleted\n")
	require.Equal(t, "kind: Throttle\nname: stripe\nspec:\n    concurrency: 7\n", must(t, "", "export-config"))
	require.NotContains(t, must(t, "", "config", "list"), "owner:queue")
}

// A queue with messages is not deleted, and what nobody owned is adopted.
func TestApplyBesideOthers(t *testing.T) {
	startReal(t)
	must(t, "", "queue", "create", "orders", "--visibility-timeout", "1m")
	must(t, "", "publish", "orders", "x")
	dir := write(t, map[string]string{"a.yml": "kind: Queue\nname: orders\nspec: {visibility_timeout_ms: 60000}\n"})
	require.Contains(t, must(t, "", "apply", "-f", dir, "--owner", "team-a"), "= Queue orders: nobody has it yet\n1 adopted\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yml"), []byte("kind: Throttle\nname: x\nspec: {rate: 1/3}\n"), 0o600))
	r := program.Run(t, "", "apply", "-f", dir, "--owner", "team-a", "--prune", "--yes")
	require.Equal(t, command.ExitConflict, r.Code, r.Err)
	require.Contains(t, r.Err, "Queue orders: ")
	require.Contains(t, must(t, "", "config", "list"), "owner:queue:orders")
	var got struct {
		Steps []struct{ Kind, Action string }
	}
	out := program.Run(t, "", "apply", "-f", dir, "--owner", "team-a", "--prune", "--dry-run", "--json")
	require.NoError(t, json.Unmarshal([]byte(out.Out), &got))
	require.Len(t, got.Steps, 1)
	require.Equal(t, "delete", got.Steps[0].Action)
}

// Apply prints the warnings of all replies, and makes a queue although an earlier one of its name had
// another owner.
func TestApplyWarns(t *testing.T) {
	startReal(t, func(c *config.Config) { c.Queues = []wire.QueueSettings{wire.DefaultQueueSettings("filed")} })
	must(t, "", "config", "set", "owner:queue:gone", "team-b")
	const gone = "---\nkind: Queue\nname: gone\n"
	out := must(t, "kind: Queue\nname: filed\nspec: {max_depth: 5}\n"+gone, "apply", "-f", "-", "--owner", "team-a")
	require.Contains(t, out, "warning: Queue filed: the configuration file has queue filed")
	require.Contains(t, out, "1 created, 1 updated\n")
	out = must(t, gone, "apply", "-f", "-", "--owner", "team-a", "--prune", "--yes")
	require.Contains(t, out, "warning: Queue filed: the configuration file has queue filed")
	require.Contains(t, out, "1 deleted\n")
}

// Documents of a platform: applied twice, and once more with an interruption in the middle.
func TestApplyMany(t *testing.T) {
	startReal(t)
	var docs strings.Builder
	for i := range 200 {
		fmt.Fprintf(&docs, "---\nkind: Queue\nname: q%d\nspec: {fairness_header: tenant, max_depth: %d}\n", i, i+1)
	}
	for i := range 50 {
		fmt.Fprintf(&docs, "---\nkind: Throttle\nname: t%d\nspec: {rate: %d}\n", i, i+1)
	}
	for i := range 30 {
		fmt.Fprintf(&docs, "---\nkind: Schedule\nname: s%d\nspec: {queue: q%d, schedule: '@daily'}\n", i, i)
	}
	require.Contains(t, must(t, docs.String(), "apply", "-f", "-", "--owner", "team-a"), "280 created\n")
	require.Equal(t, "nothing to change\n", must(t, docs.String(), "apply", "-f", "-", "--owner", "team-a"))

	bad := strings.Replace(docs.String(), "name: q100\nspec: {fairness_header: tenant, max_depth: 101}", "name: q100\nspec: {max_depth: 102, on_enqueue: '('}", 1)
	bad = strings.ReplaceAll(bad, "fairness_header: tenant", "fairness_header: customer")
	r := program.Run(t, bad, "apply", "-f", "-", "--owner", "team-a")
	require.NotZero(t, r.Code)
	require.Contains(t, r.Err, "Queue q100: ")
	good := strings.ReplaceAll(docs.String(), "fairness_header: tenant", "fairness_header: customer")
	require.Contains(t, must(t, good, "apply", "-f", "-", "--owner", "team-a"), "100 updated\n")
	require.Equal(t, "nothing to change\n", must(t, good, "apply", "-f", "-", "--owner", "team-a"))
}

// A field that is removed from a document has its default again, and a value has one form.
func TestApplyAgain(t *testing.T) {
	startReal(t)
	again := func(text string) string {
		must(t, text, "apply", "-f", "-", "--owner", "team-a")
		return must(t, text, "apply", "-f", "-", "--owner", "team-a")
	}
	const queue, none = "kind: Queue\nname: q\n", "nothing to change\n"
	require.Equal(t, none, again(queue+"spec: {throttle_headers: [a, b], max_deliveries: 3, retry_jitter: 0.5}\n"))
	require.Equal(t, none, again(queue+"spec: {throttle_headers: []}\n"))
	require.Equal(t, none, again(queue+"spec: {throttle_headers: [a, b], max_deliveries: 3}\n"))
	require.Equal(t, none, again(queue))
	require.Equal(t, "kind: Queue\nname: q\nspec: {}\n", must(t, "", "export-config"))
	require.Equal(t, none, again("kind: Throttle\nname: t\nspec: {rate: 10.0, burst: 20.50}\n"))
}
