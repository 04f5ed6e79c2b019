package sidecar

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// reloadable is a site whose configuration file is the Config in the pointer.
func reloadable(t *testing.T, dir string, change func(*Config)) (*testSite, *Config) {
	t.Helper()
	file := &Config{}
	x := startSite(t, dir, func(c *Config) {
		if change != nil {
			change(c)
		}
		*file = *c
		c.Reload = func() (Config, error) { return *file, nil }
	})
	x.s.cfg.NATS.Embedded.Port = file.NATS.Embedded.Port // startSite took another
	return x, file
}

func withRules(c *Config) {
	c.Throttles = []ThrottleTable{{Key: "tenant:*", Rate: "10"}}
	c.Circuits = []CircuitTable{{Key: "stripe", Threshold: 3, MaxFailures: 50}}
	c.RetryPolicies = []RetryPolicy{{Name: "slow", InitialDelayMs: 100}}
	c.ErrorRules = []ErrorRule{{Name: "timeouts", Code: "timeout", RetryPolicy: "slow"}, {Name: "fire", Code: "fire", Severity: "critical"}}
	q := wire.DefaultQueueSettings("orders")
	q.RetryPolicy = "slow"
	c.Queues = []wire.QueueSettings{q}
}

func TestReload(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x, file := reloadable(t, dir, withRules)
		events := make(chan *nats.Msg, 10)
		_, err := x.nc.Subscribe("fila.event.rules-reloaded.>", func(m *nats.Msg) { events <- m })
		require.NoError(t, err)
		require.NoError(t, x.nc.Flush())
		changed := func() []string {
			t.Helper()
			require.NoError(t, x.s.Reload())
			var e wire.Event
			require.NoError(t, json.Unmarshal((<-events).Data, &e))
			lines := []string{}
			for _, line := range e.Data["changes"].([]any) {
				lines = append(lines, line.(string))
			}
			return lines
		}
		require.Empty(t, changed(), "the same file")

		// Everything changes.
		fresh := wire.DefaultQueueSettings("mail")
		file.Throttles = []ThrottleTable{{Key: "tenant:*", Rate: "20"}}
		file.Circuits = []CircuitTable{{Key: "stripe", Threshold: 5, MaxFailures: 60}, {Key: "paypal", CooldownMs: 1000}}
		file.CircuitDefaults.Threshold = 20
		file.RetryPolicies = []RetryPolicy{{Name: "slow", InitialDelayMs: 200, Jitter: 0.25}}
		file.ErrorRules = []ErrorRule{{Name: "fire", Code: "fire", Severity: "high"}, {Name: "input", Pattern: "bad input", Retry: new(false)}}
		file.Queues = append([]wire.QueueSettings{fresh}, file.Queues...)
		file.Queues[1].VisibilityTimeoutMs = 60_000
		require.Equal(t, []string{
			"circuit_defaults: threshold 10 -> 20",
			"circuit stripe: max_failures 50 -> 60",
			"circuit paypal: added",
			"retry_policy slow: initial_delay_ms 100 -> 200, jitter 0 -> 0.25",
			"error_rule fire: severity critical -> high",
			"error_rule input: added",
			"error_rule timeouts: removed",
			"throttle tenant:*: rate 10 -> 20",
			"circuit paypal: cooldown_ms none -> 1000",
			"circuit stripe: threshold 3 -> 5",
			"queue mail: added",
			"queue orders: visibility_timeout_ms 30000 -> 60000",
		}, changed())
		v := x.s.core.rules.Load().judge("orders", "slow", "fire", "", 1, middle)
		require.Equal(t, verdict{rule: "fire", severity: "high", retry: true, delay: 200 * ms, decided: true}, v)
		value, _ := x.s.core.config.Get("throttle:tenant:*:rate")
		require.Equal(t, "20", value)
		require.EqualValues(t, 60_000, x.s.queues.get("orders").policy.Load().settings.VisibilityTimeoutMs)
		require.NotNil(t, x.s.queues.get("mail"))
		var circuit wire.CircuitInfo
		x.must("fila.admin.circuit-show.stripe", "", &circuit)
		require.Equal(t, 5, circuit.Threshold)
		x.must("fila.admin.circuit-show.paypal", "", &circuit)
		require.Equal(t, 20, circuit.Threshold, "of the defaults")
		require.EqualValues(t, 1000, circuit.CooldownMs)
		var reply wire.ReloadReply
		x.must("fila.admin.reload", "", &reply)
		require.Equal(t, wire.ReloadReply{Changes: []string{}}, reply, "the same file again")
		<-events

		// What an operator has changed meanwhile loses against the file.
		x.must("fila.admin.config-set.circuit:stripe:threshold", `{"value":"7"}`, nil)
		require.Equal(t, []string{"circuit stripe: threshold 7 -> 5"}, changed())

		// Tables that are gone leave what they have set.
		file.Throttles, file.Circuits, file.Queues = nil, nil, nil
		require.Equal(t, []string{
			"circuit stripe: not in the file any more; what it has set in the runtime configuration stays",
			"circuit paypal: not in the file any more; what it has set in the runtime configuration stays",
			"throttle tenant:*: not in the file any more; what it has set stays",
			"queue mail: not in the file any more; what it has set stays",
			"queue orders: not in the file any more; what it has set stays",
		}, changed())
		require.NotNil(t, x.s.queues.get("mail"))
		value, _ = x.s.core.config.Get("circuit:stripe:threshold")
		require.Equal(t, "5", value)

		// A queue may outlive its policy; other keys wait for a restart.
		file.RetryPolicies = nil
		file.DataDir, file.NATS.Embedded.Token, file.HTTP.Pprof = "elsewhere", "secret", true
		require.Equal(t, []string{
			"retry_policy slow: removed",
			"data_dir: differs, but needs a restart; not applied",
			"nats.embedded.token: differs, but needs a restart; not applied",
			"http.pprof: differs, but needs a restart; not applied",
			"queue orders: its retry_policy slow is not in the configuration file; what no error rule fits is retried at once",
		}, changed())
		x.end()
	})
}

// A file with a mistake changes nothing, however late it is found.
func TestReloadAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x, file := reloadable(t, dir, withRules)
		c := x.s.core
		good := *file
		type state struct {
			rules   *rules
			cfg     *Config
			entries []wire.ConfigEntry
			queues  int
			orders  *policy
		}
		now := func() state {
			entries, _ := c.config.list("", 0, 1000)
			return state{c.rules.Load(), x.s.reloading.cfg.Load(), entries, len(x.s.queues.all()), x.s.queues.get("orders").policy.Load()}
		}
		before := now()
		require.NotEmpty(t, before.entries)
		for name, tc := range map[string]struct {
			change func()
			want   string
		}{
			"an impossible value":   {func() { file.RetryPolicies[0].Jitter = 2 }, "retry_policy[slow].jitter = 2: allowed is 0 to 1"},
			"a bad pattern":         {func() { file.ErrorRules[0].Pattern = "(" }, `error_rule[timeouts].pattern = "(": missing closing )`},
			"a policy that is gone": {func() { file.RetryPolicies, file.ErrorRules = nil, nil }, `queue[orders].retry_policy = "slow": there is no`},
			"a rate":                {func() { file.Throttles[0].Rate = "fast" }, `throttle[tenant:*].rate = "fast": allowed`},
			"a key for a restart":   {func() { file.DrainTimeoutMs = -1 }, "drain_timeout_ms = -1: allowed is 0 to"},
			"a script": {func() {
				file.Queues[0].OnFailure = "function on_failure(msg"
			}, "queue orders, on_failure:"},
			"a script of a new queue": {func() {
				q := wire.DefaultQueueSettings("mail")
				q.OnEnqueue = "return 1"
				file.Queues = append(file.Queues, q)
			}, "queue mail, on_enqueue:"},
			"a queue without NATS": {func() {
				c.offline.Store(true)
				file.Queues = append(file.Queues, wire.DefaultQueueSettings("mail"))
			}, "queue mail cannot be created while NATS is not connected"},
		} {
			*file = good
			file.Throttles = []ThrottleTable{{Key: "tenant:*", Rate: "99"}}
			file.Circuits = []CircuitTable{{Key: "stripe", Threshold: 99}}
			file.RetryPolicies = []RetryPolicy{{Name: "slow", InitialDelayMs: 99}}
			file.ErrorRules = []ErrorRule{{Name: "timeouts", Code: "timeout", RetryPolicy: "slow"}}
			file.Queues = []wire.QueueSettings{good.Queues[0]}
			file.Queues[0].Quantum = 99
			tc.change()
			err := x.s.Reload()
			require.ErrorContains(t, err, tc.want, name)
			require.NotContains(t, err.Error(), "\n", name)
			var werr *wire.Error
			require.ErrorAs(t, err, &werr)
			require.Equal(t, wire.CodeReloadFailed, werr.ErrCode, name)
			require.Equal(t, before, now(), name)
			c.offline.Store(false)
		}
		x.end()
	})
}

func TestReloadOfNothing(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, nil)
		err := x.s.Reload()
		require.ErrorContains(t, err, "fila was started without a configuration file")

		x.s.reloading.cfg.Load().Reload = func() (Config, error) { return Config{}, errors.New("config.toml: file does not exist") }
		_, werr := x.s.reloadVerb("", nil)
		require.Equal(t, wire.CodeReloadFailed, werr.ErrCode)
		require.Contains(t, werr.Description, "config.toml: file does not exist")
		_, werr = x.s.reloadVerb("", []byte(`{"force":true}`))
		require.Equal(t, 400, werr.Code)

		x.s.core.draining.Store(true)
		require.EqualError(t, x.s.Reload(), "fila is stopping")
		x.s.core.draining.Store(false)
		x.end()
	})
	s, err := New(Default(), nil, "")
	require.NoError(t, err)
	require.EqualError(t, s.Reload(), "fila is still starting")
}

// The file wins at a start, too, for the keys that it names.
func TestStartDeclaresGates(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x := startSite(t, dir, nil)
		x.must("fila.admin.config-set.circuit:stripe:threshold", `{"value":"7"}`, nil)
		x.must("fila.admin.config-set.circuit:stripe:cooldown_ms", `{"value":"8000"}`, nil)
		x.must("fila.admin.config-set.circuit:paypal:threshold", `{"value":"9"}`, nil)
		x.end()
		x = startSite(t, dir, func(c *Config) {
			c.Circuits = []CircuitTable{{Key: "stripe", Threshold: 3}}
			c.Throttles = []ThrottleTable{{Key: "tenant:*", Rate: "1/3"}}
		})
		entries, _ := x.s.core.config.list("", 0, 10)
		require.Equal(t, []wire.ConfigEntry{
			{Key: "circuit:paypal:threshold", Value: "9"}, {Key: "circuit:stripe:threshold", Value: "3"}, {Key: "throttle:tenant:*:rate", Value: "1/3"},
		}, entries)
		x.end()
	})
}

func TestRulesDiff(t *testing.T) {
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
			c.ErrorRules = append([]ErrorRule{{Name: "first", Code: "c"}}, c.ErrorRules...)
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
		require.Equal(t, tc.want, rulesDiff(base(), next), name)
	}
}

// A reload must say of every key that it is applied or that it is not.
func TestRestartKeys(t *testing.T) {
	a, b := Default(), Default()
	b.DataDir, b.Log.Level, b.NATS.TLS.CA, b.Lua.DefaultTimeoutMs = "x", "debug", "ca.pem", 11
	b.Throttles = []ThrottleTable{{Key: "k", Rate: "1"}}
	b.CircuitDefaults.Threshold = 3
	b.Reload = func() (Config, error) { return Config{}, nil }
	require.Equal(t, []string{"data_dir", "log.level", "nats.tls.ca", "lua.default_timeout_ms"}, restartKeys(&a, &b))
	require.Equal(t, "x", b.DataDir, "the configurations stay as they are")
	require.Len(t, b.Throttles, 1)
}

func TestFitting(t *testing.T) {
	lines := []string{"a -> b", "c", strings.Repeat("d", 50), "e"}
	require.Equal(t, lines, fitting(lines, 1000))
	require.Equal(t, []string{"a -> b", "c", "... and 2 more, see the log"}, fitting(lines, 150))
	require.Equal(t, []string{"... and 4 more, see the log"}, fitting(lines, 0))
	require.NotNil(t, fitting(nil, 1000), "an empty list in JSON, not null")
	data, err := json.Marshal(fitting([]string{strings.Repeat("<", 1000), "x"}, 2000))
	require.NoError(t, err)
	require.LessOrEqual(t, len(data), 2000)
}

// TestRetryPolicyOfAQueueAtRunTime: a queue that is made or changed at run time
// names a policy of the file, or none, or the one it has.
func TestRetryPolicyOfAQueueAtRunTime(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, func(t *testing.T) {
		x, file := reloadable(t, dir, withRules)
		_, err := x.s.queueCreate("mail", []byte(`{"retry_policy":"slow"}`))
		require.Nil(t, err)
		refused := func(_ any, err *wire.Error) {
			t.Helper()
			require.NotNil(t, err)
			require.Contains(t, err.Error(), `retry_policy is "sloow": allowed is the name of a [[retry_policy]]`)
		}
		refused(x.s.queueCreate("other", []byte(`{"retry_policy":"sloow"}`)))
		refused(x.s.queueUpdate("mail", []byte(`{"retry_policy":"sloow","max_depth":7}`)))
		require.Equal(t, "slow", x.s.queues.get("mail").policy.Load().settings.RetryPolicy)

		// The file drops it: the queue keeps the name, and may be changed otherwise.
		file.RetryPolicies, file.ErrorRules, file.Queues[0].RetryPolicy = nil, file.ErrorRules[1:], ""
		require.NoError(t, x.s.Reload())
		_, err = x.s.queueUpdate("mail", []byte(`{"max_depth":7}`))
		require.Nil(t, err)
		_, err = x.s.queueUpdate("mail", []byte(`{"retry_policy":""}`))
		require.Nil(t, err)
		refused(x.s.queueUpdate("mail", []byte(`{"retry_policy":"sloow"}`)))
	})
}
