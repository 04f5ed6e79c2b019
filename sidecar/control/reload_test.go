package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// withRules is a configuration file with something of everything.
func withRules() config.Config {
	c := config.Default()
	c.Throttles = []config.ThrottleTable{{Key: "tenant:*", Rate: "10"}}
	c.Circuits = []config.CircuitTable{{Key: "stripe", CircuitLimits: config.CircuitLimits{Threshold: 3, MaxFailures: 50}}}
	c.RetryPolicies = []rules.RetryPolicy{{Name: "slow", InitialDelayMs: 100}}
	c.ErrorRules = []rules.ErrorRule{{Name: "timeouts", Code: "timeout", RetryPolicy: "slow"}, {Name: "fire", Code: "fire", Severity: "critical"}}
	q := wire.DefaultQueueSettings("orders")
	q.RetryPolicy = "slow"
	c.Queues = []wire.QueueSettings{q}
	return c
}

// started is a rig whose configuration file is *file.
func (r *rig) started(file *config.Config) {
	r.t.Helper()
	r.cfg = *file
	r.cfg.Reload = func() (config.Config, error) { return *file, nil }
	r.restart(false, 0)
	require.NoError(r.t, r.c.DeclareQueues(r.t.Context()))
	r.events.take()
}

// reloaded returns the changes of a reload.
func (r *rig) reloaded() []string {
	r.t.Helper()
	before := r.state()
	planned, err := r.c.ReloadDryRun()
	require.Nil(r.t, err)
	require.Equal(r.t, before, r.state(), "a dry run changes nothing")
	reply, err := r.c.Reload(r.t.Context())
	require.Nil(r.t, err)
	require.Equal(r.t, append([]string{}, reply.Changes...), planned.Changes, "a dry run says what a reload does")
	require.True(r.t, planned.DryRun)
	events := r.events.take()
	e := events[len(events)-1]
	require.Equal(r.t, wire.EventRulesReloaded, e.Type)
	require.Equal(r.t, reply.Changes, e.Data["changes"])
	return reply.Changes
}

func TestReload(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		r.started(&file)
		require.Equal(t, []string{}, r.reloaded(), "the same file")

		// Everything changes.
		file.Throttles = []config.ThrottleTable{{Key: "tenant:*", Rate: "20"}}
		file.Circuits = []config.CircuitTable{{Key: "stripe", CircuitLimits: config.CircuitLimits{Threshold: 5, MaxFailures: 60}}, {Key: "paypal", CircuitLimits: config.CircuitLimits{CooldownMs: 1000}}}
		file.CircuitDefaults.Threshold = 20
		file.RetryPolicies = []rules.RetryPolicy{{Name: "slow", InitialDelayMs: 200, Jitter: 0.25}}
		file.ErrorRules = []rules.ErrorRule{{Name: "fire", Code: "fire", Severity: "high"}, {Name: "input", Pattern: "bad input", Retry: new(false)}}
		file.Queues = append([]wire.QueueSettings{wire.DefaultQueueSettings("mail")}, file.Queues...)
		file.Queues[1].VisibilityTimeoutMs, file.Queues[1].Quantum = 60_000, 2000
		require.Equal(t, []string{
			"circuit_defaults: threshold 10 -> 20",
			"retry_policy slow: initial_delay_ms 100 -> 200, jitter 0 -> 0.25",
			"error_rule fire: severity critical -> high",
			"error_rule input: added",
			"error_rule timeouts: removed",
			"throttle tenant:*: rate 10 -> 20",
			"circuit paypal: cooldown_ms none -> 1000",
			"circuit stripe: max_failures 50 -> 60",
			"circuit stripe: threshold 3 -> 5",
			"queue mail: added",
			"queue orders: visibility_timeout_ms 30000 -> 60000, quantum 1 -> 2000",
		}, r.reloaded())
		v := r.c.Rules().Judge("orders", "slow", "fire", "", 1, func() float64 { return 0.5 })
		require.Equal(t, rules.Verdict{Rule: "fire", Severity: "high", Policy: "slow", Retry: true, Delay: 200e6}, v)
		value, _ := r.c.Get("throttle:tenant:*:rate")
		require.Equal(t, "20", value)
		require.Equal(t, perSecond(20), r.limits("tenant:a").Rate)
		require.Equal(t, file.Queues[1], r.queues.settings["orders"])
		require.True(t, r.c.InFile("mail"))
		require.False(t, r.c.InFile("other"))
		require.Equal(t, 5, r.circuit("stripe").Threshold)
		require.Equal(t, 20, r.circuit("paypal").Threshold, "of the defaults")
		require.EqualValues(t, 1000, r.circuit("paypal").CooldownMs)
		require.Equal(t, []string{}, r.reloaded(), "the same file again")

		// The file wins over changes by an operator.
		r.put("circuit:stripe:threshold", "7")
		r.put("throttle:tenant:*:burst", "2.5")
		require.Equal(t, []string{"throttle tenant:*: burst 2.5 -> none", "circuit stripe: threshold 7 -> 5"}, r.reloaded())
		trail := r.trail()
		require.Equal(t, "file throttle:tenant:*:burst: 2.5 -> none", trail[len(trail)-1])

		// Settings of a removed table stay.
		file.Throttles, file.Circuits, file.Queues = nil, nil, nil
		require.Equal(t, []string{
			"circuit stripe: no longer in the file; its settings stay in the runtime configuration",
			"circuit paypal: no longer in the file; its settings stay in the runtime configuration",
			"throttle tenant:*: no longer in the file; its settings stay",
			"queue mail: no longer in the file; its settings stay",
			"queue orders: no longer in the file; its settings stay",
		}, r.reloaded())
		require.Len(t, r.queues.settings, 2)
		value, _ = r.c.Get("circuit:stripe:threshold")
		require.Equal(t, "5", value)
		require.Equal(t, perSecond(20), r.limits("tenant:a").Rate)
		require.Len(t, r.trail(), len(trail))

		// A queue may outlive its policy; other keys wait for a restart.
		file.RetryPolicies = nil
		file.DataDir, file.NATS.Embedded.Token, file.HTTP.Pprof = "elsewhere", "secret", true
		require.Equal(t, []string{
			"retry_policy slow: removed",
			"data_dir: differs, but needs a restart; not applied",
			"nats.embedded.token: differs, but needs a restart; not applied",
			"http.pprof: differs, but needs a restart; not applied",
			"queue orders: its retry_policy slow is not in the configuration file; what no error rule fits is retried after the default backoff of the queue",
		}, r.reloaded())
	})
}

// The source of a setting is the file or an operator, at once and after a reload.
// TestReloadOfRoutes: routes of a choice have the order of their tables, and a reload replaces them.
func TestReloadOfRoutes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		file.Routes = []config.RouteTable{{Choice: "large", Name: "one", ThrottleKeys: []string{"k"}}, {Choice: "small", Name: "only"}, {Choice: "large", Name: "two", CircuitKey: "c", Weight: 2.5}}
		r.started(&file)
		require.Equal(t, map[string][]store.Route{
			"large": {{Name: "one", ThrottleKeys: []string{"k"}}, {Name: "two", CircuitKey: "c", Weight: 2500}},
			"small": {{Name: "only"}},
		}, r.c.Routes())
		file.Routes = file.Routes[:1]
		require.Equal(t, []string{"route small/only: removed", "route large/two: removed"}, r.reloaded())
		require.Equal(t, map[string][]store.Route{"large": {{Name: "one", ThrottleKeys: []string{"k"}}}}, r.c.Routes())
	})
}

func TestLimitsSayWhoSetThem(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		file.Throttles = append(file.Throttles, config.ThrottleTable{Key: "mail", Rate: "10.0", Concurrency: 5})
		r.started(&file)
		circuitBy := func(key string) string {
			info, err := r.c.CircuitShow(api.GateKeyRequest{Key: key})
			require.Nil(t, err)
			for _, listed := range r.c.CircuitList(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Prefix: key, Limit: 1}}).Circuits {
				require.Equal(t, info.Source, listed.Source)
			}
			return info.Source
		}
		limitsBy := func(key string) string {
			_, by := r.c.LimitsOf(key)
			return by
		}
		require.Equal(t, "file", r.show("mail").Source)
		require.Equal(t, "file", limitsBy("mail"))
		require.Equal(t, "prefix tenant:*, file", r.show("tenant:a").Source)
		require.Equal(t, "prefix tenant:*, file", limitsBy("tenant:a"))
		require.Equal(t, "file", circuitBy("stripe"))
		r.open1("api", "")
		require.Equal(t, "default", circuitBy("api"))

		require.Equal(t, "operator", r.set("mail", `{"limit":3,"window_ms":1000}`).Source, "a limit that the table does not have")
		require.Equal(t, "operator", limitsBy("mail"))
		require.Equal(t, "operator", r.set("sms", `{"rate":1}`).Source)
		r.set("tenant:*", `{"rate":1,"for_ms":1000}`)
		require.Equal(t, "prefix tenant:*, override", r.show("tenant:a").Source)
		_, err := r.c.ConfigSet(verb(api.VerbConfigSet), "circuit:stripe:threshold", api.ConfigSetRequest{Value: "4"})
		require.Nil(t, err)
		require.Equal(t, "operator", circuitBy("stripe"))

		r.reloaded()
		require.Equal(t, "file", r.show("mail").Source, "the file wins")
		require.Equal(t, "operator", r.show("sms").Source)
		require.Equal(t, "file", circuitBy("stripe"))
	})
}

// state is everything that a reload may change.
type state struct {
	applied  *applied
	entries  []api.ConfigEntry
	stored   map[string]string
	throttle throttle.Limits
	circuits api.CircuitList
	queues   []wire.QueueSettings
}

func (r *rig) state() state {
	r.t.Helper()
	return state{
		r.c.applied.Load(), r.c.values.all(""), r.stored(""), r.limits("tenant:a"),
		r.c.CircuitList(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Limit: 100}}), r.queues.Settings(),
	}
}

// everything changes a part of everything in a file.
func everything(file *config.Config) {
	file.Throttles = []config.ThrottleTable{{Key: "tenant:*", Rate: "99"}, {Key: "new", Concurrency: 9}}
	file.Circuits = []config.CircuitTable{{Key: "stripe", CircuitLimits: config.CircuitLimits{Threshold: 99}}, {Key: "new", CircuitLimits: config.CircuitLimits{Threshold: 9}}}
	file.CircuitDefaults.CooldownMs = 99
	file.RetryPolicies = []rules.RetryPolicy{{Name: "slow", InitialDelayMs: 99}}
	file.ErrorRules = []rules.ErrorRule{{Name: "timeouts", Code: "timeout", RetryPolicy: "slow"}}
	file.Queues = []wire.QueueSettings{file.Queues[0]}
	file.Queues[0].Quantum = 99
}

// A file with a mistake changes nothing, however late it is found.
func TestReloadAllOrNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		good := file
		r.started(&file)
		before := r.state()
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
			"a queue": {func() {
				file.Queues = append(file.Queues, wire.DefaultQueueSettings("mail"))
				r.queues.check = func(s wire.QueueSettings) error {
					if s.Name == "mail" {
						return errors.New("queue mail, on_enqueue: line 1")
					}
					return nil
				}
			}, "queue mail, on_enqueue: line 1"},
		} {
			file = good
			everything(&file)
			tc.change()
			_, err := r.c.plan(file)
			require.ErrorContains(t, err, tc.want, name)
			require.NotContains(t, err.Error(), "\n", name)
			_, werr := r.c.Reload(t.Context())
			refused(t, wire.CodeReloadFailed, werr, name)
			require.Contains(t, werr.Description, "nothing was reloaded: "+tc.want, name)
			require.Equal(t, before, r.state(), name)
			require.Empty(t, r.events.take(), name)
			r.queues.check = nil
		}
	})
}

// The settings of a plan are one write: a store that fails leaves everything as it
// was, in memory and on disk.
func TestApplyIsOneWrite(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		r.started(&file)
		before := r.state()
		everything(&file)
		p, err := r.c.plan(file)
		require.NoError(t, err)
		require.Equal(t, before, r.state(), "a plan changes nothing")

		r.kv.fail(errDisk)
		_, werr := r.c.apply(t.Context(), p)
		refused(t, wire.CodeOutcomeUnknown, werr)
		require.Len(t, r.kv.writes, 1)
		require.Equal(t, before, r.state())
		require.Empty(t, r.events.take())

		r.kv.fail(nil)
		lines, werr := r.c.apply(t.Context(), p)
		require.Nil(t, werr)
		require.Len(t, r.kv.writes, 1, "throttles, circuits and the audit log at once")
		require.Len(t, lines, 9)
		require.Contains(t, lines, "circuit stripe: max_failures 50 -> none")
		after := r.state()
		require.NotEqual(t, before.stored, after.stored)
		require.Equal(t, perSecond(99), after.throttle.Rate)
		require.Equal(t, p.rules, r.c.Rules())
		require.EqualValues(t, 99, r.circuit("new").CooldownMs)
	})
}

// The file wins over a change between the plan and its application.
func TestApplyWinsOverWhatCameMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		r.started(&file)
		everything(&file)
		p, err := r.c.plan(file)
		require.NoError(t, err)
		r.put("circuit:stripe:threshold", "77")
		r.put("throttle:new:rate", "1")
		lines, werr := r.c.apply(t.Context(), p)
		require.Nil(t, werr)
		require.Contains(t, lines, "circuit stripe: threshold 77 -> 99")
		require.Contains(t, lines, "throttle new: rate 1 -> none")
		require.Equal(t, throttle.Limits{Concurrency: 9}, r.limits("new"))
	})
}

// A queue that cannot be declared is reported, and declared by the next reload.
func TestReloadInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := withRules()
		r.started(&file)
		everything(&file)
		r.queues.refuse = wire.OutcomeUnknown()
		_, err := r.c.Reload(t.Context())
		refused(t, wire.CodeOutcomeUnknown, err)
		require.Equal(t, 1, r.log.count("a reload was interrupted; reload again"))
		require.EqualValues(t, 99, r.circuit("new").CooldownMs, "the settings are in force")
		r.queues.refuse = nil
		require.Equal(t, []string{"queue orders: quantum 1 -> 99"}, r.reloaded())
	})
}

func TestReloadOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		_, err := r.c.Reload(t.Context())
		refused(t, wire.CodeReloadFailed, err)
		require.Contains(t, err.Description, "fila was started without a configuration file")
		r.cfg.Reload = func() (config.Config, error) { return config.Config{}, errors.New("config.toml: file does not exist") }
		r.restart(false, 0)
		_, err = r.c.Reload(t.Context())
		refused(t, wire.CodeReloadFailed, err)
		require.Contains(t, err.Description, "config.toml: file does not exist")
	})
}

// The file wins at every start and reload for every key of its tables. Other keys stay.
func TestTheFileWins(t *testing.T) {
	all := config.Default()
	all.Throttles = []config.ThrottleTable{{Key: "k", Rate: "1", Burst: 2, Concurrency: 3, Limit: 4, WindowMs: 5, Adapt: config.AdaptTable{Signal: "overload"}, Budget: 6, Period: "day", Zone: "Asia/Tokyo", WarnAt: []float64{0.5}, OnEmpty: "refuse"}}
	all.Circuits = []config.CircuitTable{{Key: "k", CircuitLimits: config.CircuitLimits{
		Threshold: 1, CooldownMs: 2, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 4, MaxFailures: 5, FailureWindowMs: 6, FailureHoldMs: 7,
	}}}
	little := config.Default()
	little.Throttles = []config.ThrottleTable{{Key: "k", Concurrency: 1}}
	little.Circuits = []config.CircuitTable{{Key: "k"}}
	bubble(t, func(t *testing.T, r *rig) {
		for _, s := range settings {
			for way, restart := range map[string]bool{"start": true, "reload": false} {
				for name, file := range map[string]config.Config{"all": all, "little": little} {
					about := s.key("k") + " " + way + " " + name
					r.started(&file)
					said, isSaid := r.c.Get(s.key("k"))
					other := cmp.Or(map[string]string{
						"adapt": "overload,min=9,backoff=0.9", "period": "hour", "zone": "Europe/Berlin", "warn_at": "0.9", "on_empty": "hold",
					}[s.name], "9")
					require.Equal(t, name == "all" && s.name != "level" || s.name == "concurrency", isSaid, about)
					r.put(s.key("k"), other)
					r.put(s.key("other"), other)
					if restart {
						r.restart(false, 0)
					} else {
						r.reloaded()
					}
					value, ok := r.c.Get(s.key("k"))
					require.Equal(t, isSaid, ok, about)
					require.Equal(t, said, value, about)
					value, _ = r.c.Get(s.key("other"))
					require.Equal(t, other, value)
				}
			}
		}
		require.NotZero(t, r.log.count("the configuration file wins over what was changed at run time"))
	})
}

// 10 instead of 10.0 is no change. Overrides and keys without a table stay.
func TestDeclaredThrottles(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.set("a", `{"rate":"10.0","concurrency":3}`)
		r.set("b", `{"rate":7}`)
		r.set("a", `{"rate":1,"for_ms":60000}`)
		file := config.Default()
		file.Throttles = []config.ThrottleTable{
			{Key: "a", Rate: "10", Burst: 2.5}, {Key: "c:*", Limit: 5, WindowMs: 1000}, {Key: "a key", Concurrency: 4},
		}
		p, err := r.c.plan(file)
		require.NoError(t, err)
		lines, werr := r.c.apply(t.Context(), p)
		require.Nil(t, werr)
		require.Equal(t, []string{
			"throttle a key: concurrency none -> 4",
			"throttle a: burst none -> 2.5",
			"throttle a: concurrency 3 -> none",
			"throttle c:*: limit none -> 5",
			"throttle c:*: window_ms none -> 1000",
		}, lines)
		require.Equal(t, perSecond(1), r.limits("a").Rate, "an override stays")
		require.Equal(t, perSecond(7), r.limits("b").Rate)
		require.Equal(t, throttle.Limits{Limit: 5, Window: 1e9}, r.limits("c:x"))
		trail := r.trail()
		require.Equal(t, "file throttle:c:*:window_ms: none -> 1000", trail[len(trail)-1])

		before := r.stored("")
		file.Throttles = []config.ThrottleTable{{Key: "y", Rate: "1"}, {Key: "z", Limit: -1}}
		require.ErrorContains(t, r.c.Start(file), "throttle[z].")
		require.Equal(t, before, r.stored(""))
	})
}

// A start logs the settings of the file, and the ones that it has changed.
func TestStartWithAFile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.put("circuit:stripe:threshold", "7")
		r.put("circuit:stripe:cooldown_ms", "8000")
		r.put("circuit:paypal:threshold", "9")
		r.create("orders")
		file := withRules()
		file.Throttles[0].Rate = "1/3"
		file.Circuits[0].MaxFailures = 0
		r.started(&file)
		require.Equal(t, []api.ConfigEntry{
			{Key: "circuit:paypal:threshold", Value: "9"}, {Key: "circuit:stripe:threshold", Value: "3"}, {Key: "throttle:tenant:*:rate", Value: "1/3"},
		}, r.c.values.all(""))
		require.Equal(t, 2, r.log.count(`the configuration file wins over what was changed at run time" change="circuit stripe: `))
		require.Equal(t, 1, r.log.count(`set by the configuration file" change="throttle tenant:*: rate none -> 1/3"`))
		require.Equal(t, 1, r.log.count("the settings in the configuration file win over those that were changed at run time"))
		file.RetryPolicies, file.ErrorRules, file.Queues = nil, nil, nil
		r.started(&file)
		require.Equal(t, 1, r.log.count("its retry_policy slow is not in the configuration file"))
		r.queues.refuse = wire.Internal("no")
		file = withRules()
		r.cfg = file
		r.restart(false, 0)
		require.ErrorContains(t, r.c.DeclareQueues(context.Background()), "no")

		r.kv.fail(errDisk)
		file.Throttles[0].Rate = "5"
		require.ErrorIs(t, r.c.Start(file), wire.OutcomeUnknown())
		r.c.opening.put("x", "y")
		require.ErrorContains(t, r.c.Save(), "the state of the gates: disk on fire")
		r.kv.fail(nil)
	})
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

// DeclareMissing creates missing queues, even if one of them cannot be created, and leaves
// existing ones as they are.
func TestDeclareMissing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		there := wire.DefaultQueueSettings("there")
		there.MaxDepth = 5
		r.queues.settings["there"] = there
		for _, name := range []string{"first", "there", "last"} {
			r.cfg.Queues = append(r.cfg.Queues, wire.DefaultQueueSettings(name))
		}
		r.restart(false, 0)
		r.queues.refuse, r.queues.refused = wire.NoOwner("first"), "first"
		require.ErrorContains(t, r.c.DeclareMissing(t.Context()), "queue first: ")
		require.False(t, r.queues.Exists("first"))
		require.True(t, r.queues.Exists("last"))
		require.Equal(t, there, r.queues.settings["there"])
		r.queues.refuse = nil
		require.NoError(t, r.c.DeclareMissing(t.Context()))
		require.True(t, r.queues.Exists("first"))
	})
}
