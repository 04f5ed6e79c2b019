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
		}, []string{"error_rule: the order has changed; the first matching rule decides"}},
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
		"what is declared": {func(c *Config) {
			c.Throttles[0].Rate, c.Circuits[0].Threshold, c.Circuits[0].MaxFailures, c.Queues[0].Quantum = "20", 5, 60, 7
			c.Circuits = append(c.Circuits, CircuitTable{Key: "paypal"})
		}, nil},
		"everything is gone": {func(c *Config) { *c = Default() }, []string{
			"circuit stripe: no longer in the file; its settings stay in the runtime configuration",
			"retry_policy slow: removed",
			"error_rule timeouts: removed",
			"error_rule fire: removed",
			"throttle tenant:*: no longer in the file; its settings stay",
			"queue orders: no longer in the file; its settings stay",
		}},
	} {
		next := base()
		tc.change(next)
		require.Equal(t, tc.want, Diff(base(), next), name)
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

// TestEveryKeyOfTheProcessNeedsARestart: a reload names each key of the file outside of
// the tables that it applies, [lua] and [limits] among them.
func TestEveryKeyOfTheProcessNeedsARestart(t *testing.T) {
	running := Default()
	var named int
	var walk func(prefix string, at func(c *Config) reflect.Value)
	walk = func(prefix string, at func(c *Config) reflect.Value) {
		for field := range at(&running).Type().Fields() {
			key := field.Tag.Get("koanf")
			of := func(c *Config) reflect.Value { return at(c).FieldByIndex(field.Index) }
			next := Default()
			switch v := of(&next); {
			case key == "-" || v.Kind() == reflect.Slice || prefix+key == "circuit_defaults":
				continue
			case v.Kind() == reflect.Struct:
				walk(prefix+key+".", of)
				continue
			case v.Kind() == reflect.String:
				v.SetString("another")
			case v.Kind() == reflect.Bool:
				v.SetBool(!v.Bool())
			default:
				v.SetInt(v.Int() + 1)
			}
			require.Equal(t, []string{prefix + key}, RestartKeys(&running, &next))
			require.Empty(t, Diff(&running, &next))
			named++
		}
	}
	walk("", func(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() })
	require.Greater(t, named, 25, "the keys were not found")
}

func TestQueueDiff(t *testing.T) {
	old := wire.DefaultQueueSettings("orders")
	require.Empty(t, QueueDiff(&old, wire.DefaultQueueSettings("orders")))
	next := old
	next.VisibilityTimeoutMs, next.OnEnqueue, next.MaxDeliveries = 60_000, "function on_enqueue(msg)\nend", new(int64(3))
	require.Equal(t, []string{
		"queue orders: on_enqueue changed, visibility_timeout_ms 30000 -> 60000, max_deliveries unset -> 3",
	}, QueueDiff(&old, next))
}

// A reload says which routes of a choice have changed, and whether their order has.
func TestDiffOfRoutes(t *testing.T) {
	old, next := Default(), Default()
	old.Routes = []RouteTable{{Choice: "a", Name: "one"}, {Choice: "a", Name: "two", Weight: 1}}
	next.Routes = []RouteTable{{Choice: "a", Name: "two", Weight: 2}, {Choice: "a", Name: "one"}}
	require.Equal(t, []string{
		"route a/two: weight 1 -> 2",
		"route: the order has changed; a message goes by the first route that admits it",
	}, Diff(&old, &next))
	require.Empty(t, RestartKeys(&old, &next))
}
