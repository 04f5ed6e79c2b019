package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

func TestDiff(t *testing.T) {
	base := func() *Config { c := Default(); withRules(&c); return &c }
	for name, tc := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"nothing": {func(*Config) {}, nil},
		"nil and empty lists": {func(c *Config) {
			c.Queues[0].ThrottleHeaders = []string{}
		}, nil},
		"order": {func(c *Config) {
			c.ErrorRules[0], c.ErrorRules[1] = c.ErrorRules[1], c.ErrorRules[0]
		}, []string{"error_rule: the order has changed, the first that fits counts"}},
		"in front, but the order of the others is the same": {func(c *Config) {
			c.ErrorRules = append([]rules.ErrorRule{{Name: "first", Code: "c"}}, c.ErrorRules...)
		}, []string{"error_rule first: added"}},
		"optional values": {func(c *Config) {
			c.ErrorRules[0].Retry, c.ErrorRules[0].MessageFault = new(false), true
		}, []string{"error_rule timeouts: retry unset -> false, message_fault false -> true"}},
		"texts": {func(c *Config) {
			c.ErrorRules[0].Pattern, c.ErrorRules[0].Queue = "a, b", "orders"
		}, []string{`error_rule timeouts: queue "" -> orders, pattern "" -> "a, b"`}},
		"long texts": {func(c *Config) {
			c.ErrorRules[0].Pattern = strings.Repeat("x", 101)
		}, []string{"error_rule timeouts: pattern changed"}},
		"lines": {func(c *Config) {
			c.ErrorRules[0].Pattern = "a\nb"
		}, []string{"error_rule timeouts: pattern changed"}},
		"what only a start applies": {func(c *Config) { c.DataDir = "x" }, nil},
	} {
		next := base()
		tc.change(next)
		require.Equal(t, tc.want, Lines(Diff(base(), next)), name)
	}
}

// A reload must say of every key that it is applied or that it is not.
func TestRestartKeys(t *testing.T) {
	a, b := Default(), Default()
	b.DataDir, b.Log.Level, b.NATS.TLS.CA, b.Lua.DefaultTimeoutMs = "x", "debug", "ca.pem", 11
	b.Throttles = []ThrottleTable{{Key: "k", Rate: "1"}}
	b.CircuitDefaults.Threshold = 3
	b.Reload = func() (Config, error) { return Config{}, nil }
	require.Equal(t, []string{"data_dir", "log.level", "nats.tls.ca", "lua.default_timeout_ms"}, RestartKeys(&a, &b))
	require.Equal(t, "x", b.DataDir, "the configurations stay as they are")
	require.Len(t, b.Throttles, 1)
}

// Everything in one reload: what the lines of the log and of the reply say, in
// order.
func TestDiffOfEverything(t *testing.T) {
	old := Default()
	withRules(&old)
	next := Default()
	next.CircuitDefaults.Threshold = 20
	next.Circuits = []CircuitTable{{Key: "stripe", Threshold: 5, MaxFailures: 60}, {Key: "paypal", CooldownMs: 1000}}
	next.RetryPolicies = []rules.RetryPolicy{{Name: "slow", InitialDelayMs: 200, Jitter: 0.25}}
	next.ErrorRules = []rules.ErrorRule{{Name: "fire", Code: "fire", Severity: "high"}, {Name: "input", Pattern: "bad input", Retry: new(false)}}
	changes := Diff(&old, &next)
	require.Equal(t, []string{
		"circuit_defaults: threshold 10 -> 20",
		"circuit stripe: max_failures 50 -> 60",
		"circuit paypal: added",
		"retry_policy slow: initial_delay_ms 100 -> 200, jitter 0 -> 0.25",
		"error_rule fire: severity critical -> high",
		"error_rule input: added",
		"error_rule timeouts: removed",
		"throttle tenant:*: not in the file any more; what it has set stays",
		"queue orders: not in the file any more; what it has set stays",
	}, Lines(changes))
	require.Equal(t, Change{Table: "circuit_defaults", Field: "threshold", Old: int64(10), New: int64(20)}, changes[0])
	require.Equal(t, Change{Table: "circuit", Name: "paypal", New: CircuitTable{Key: "paypal"}}, changes[2])
	require.Equal(t, Change{Table: "error_rule", Name: "timeouts", Old: old.ErrorRules[0]}, changes[7])

	next.Circuits = nil
	require.Contains(t, Lines(Diff(&old, &next)), "circuit stripe: not in the file any more; what it has set in the runtime configuration stays")
}

// Limits of the runtime configuration are texts, and may not be set.
func TestChangeOfALimit(t *testing.T) {
	for want, c := range map[string]Change{
		"throttle tenant:*: rate 10 -> 20":         {Table: "throttle", Name: "tenant:*", Field: "rate", Old: "10", New: "20"},
		"circuit paypal: cooldown_ms none -> 1000": {Table: "circuit", Name: "paypal", Field: "cooldown_ms", New: "1000"},
		"throttle a.b: concurrency 3 -> none":      {Table: "throttle", Name: "a.b", Field: "concurrency", Old: "3"},
		"queue mail: added":                        {Table: "queue", Name: "mail", New: wire.DefaultQueueSettings("mail")},
	} {
		require.Equal(t, want, c.String())
		require.Equal(t, []string{want}, Lines([]Change{c}))
	}
}

func TestQueueChanges(t *testing.T) {
	old := wire.DefaultQueueSettings("orders")
	require.Empty(t, QueueChanges(old, wire.DefaultQueueSettings("orders")))
	next := old
	next.VisibilityTimeoutMs, next.OnEnqueue, next.MaxDeliveries = 60_000, "function on_enqueue(msg)\nend", new(int64(3))
	require.Equal(t, []string{
		"queue orders: on_enqueue changed, visibility_timeout_ms 30000 -> 60000, max_deliveries unset -> 3",
	}, Lines(QueueChanges(old, next)))
}

func circuitChanges(old, next CircuitTable) []Change {
	return fieldChanges("circuit", next.Key, "", reflect.ValueOf(old), reflect.ValueOf(next))
}
