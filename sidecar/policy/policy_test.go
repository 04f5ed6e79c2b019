package policy

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// TestRoutesOfAHeader: a header names a choice of the configuration.
func TestRoutesOfAHeader(t *testing.T) {
	p := WithoutHooks(wire.QueueSettings{RouteHeader: "class"})
	routes := []store.Route{{Name: "one", CircuitKey: "a"}, {Name: "two", Weight: 2000}}
	_, werr := p.Classify(map[string][]string{"class": {"large"}}, 0)
	require.Contains(t, werr.Description, "the configuration has no choice of routes")
	p.routes = func() map[string][]store.Route { return map[string][]store.Route{"large": routes, "small": nil} }
	c, werr := p.Classify(map[string][]string{"class": {"large"}}, 0)
	require.Nil(t, werr)
	require.Equal(t, routes, c.Routes)
	c, werr = p.Classify(map[string][]string{"other": {"large"}}, 0)
	require.Nil(t, werr)
	require.Empty(t, c.Routes)
	_, werr = p.Classify(map[string][]string{"class": {"huge"}}, 0)
	require.Equal(t, wire.CodeBadHeaderValue, werr.ErrCode)
	require.Contains(t, werr.Description, `huge`)
	require.Contains(t, werr.Description, "large, small")
}

// TestKeysByTemplates: keys come from several headers; there is none if one is missing.
func TestKeysByTemplates(t *testing.T) {
	p := WithoutHooks(wire.QueueSettings{
		FairnessHeader: "{tenant}/{user}", ThrottleHeaders: []string{"tenant:{tenant}", "{vendor}", "plan:{plan}"}, CircuitHeader: "vendor:{vendor}",
	})
	d, werr := p.Classify(map[string][]string{"tenant": {"mailer", "other"}, "user": {"ann"}, "vendor": {"mailer"}, "plan": {""}}, 0)
	require.Nil(t, werr)
	require.Equal(t, "mailer/ann", d.Key)
	require.Equal(t, []string{"tenant:mailer", "mailer"}, d.ThrottleKeys, "a tenant is no vendor of that name")
	require.Equal(t, "vendor:mailer", d.CircuitKey)
	d, werr = p.Classify(map[string][]string{"tenant": {"acme"}}, 0)
	require.Nil(t, werr)
	require.Equal(t, "default", d.Key)
	require.Equal(t, []string{"tenant:acme"}, d.ThrottleKeys)
	require.Empty(t, d.CircuitKey)
	long := strings.Repeat("x", 250)
	_, werr = p.Classify(map[string][]string{"tenant": {long}}, 0)
	require.Equal(t, wire.BadMessageKey("throttle", "tenant:"+long), werr)
	_, werr = p.Classify(map[string][]string{"tenant": {"a\x01"}}, 0)
	require.NotNil(t, werr)
}

// TestPolicyWithoutLua reads key, weight, gates and priority from headers.
func TestPolicyWithoutLua(t *testing.T) {
	p := WithoutHooks(wire.QueueSettings{
		FairnessHeader: "tenant", WeightHeader: "weight", ThrottleHeaders: []string{"a", "b", "c"}, CircuitHeader: "to", PriorityHeader: "urgency",
	})
	d, werr := p.Classify(map[string][]string{
		"tenant": {"acme", "other"}, "weight": {"2.5"}, "a": {"x"}, "b": {"x"}, "c": {strings.Repeat("y", 256)}, "to": {"stripe"}, "urgency": {"9"},
	}, 0)
	require.Nil(t, werr)
	require.Equal(t, "acme", d.Key)
	require.EqualValues(t, 2500, d.Weight)
	require.EqualValues(t, 1000, d.Cost)
	require.Equal(t, []string{"x", strings.Repeat("y", 256)}, d.ThrottleKeys, "once")
	require.Equal(t, "stripe", d.CircuitKey)
	require.EqualValues(t, 9, d.Priority)
	for _, h := range []map[string][]string{nil, {"tenant": {""}, "weight": {""}, "urgency": {""}, "to": {""}, "a": {""}}} {
		d, werr = p.Classify(h, 0)
		require.Nil(t, werr)
		require.Equal(t, "default", d.Key)
		require.EqualValues(t, 1000, d.Weight)
		require.Empty(t, d.ThrottleKeys)
		require.Empty(t, d.CircuitKey)
		require.Zero(t, d.Priority)
	}
}

// TestHookLimits come from the queue or the defaults; one message at a time probes a hook.
func TestHookLimits(t *testing.T) {
	d := Defaults{
		Limits: hooks.Limits{Timeout: time.Second, MemoryBytes: 1 << 20}, Breaker: breaker.Config{Threshold: 3, Cooldown: time.Minute, HalfOpenMaxCalls: 1},
	}
	require.Equal(t, d.Limits, d.limits(wire.QueueSettings{}))
	require.Equal(t, hooks.Limits{Timeout: 5 * time.Millisecond, MemoryBytes: 2048},
		d.limits(wire.QueueSettings{LuaTimeoutMs: 5, LuaMemoryLimitBytes: 2048}))
	require.Equal(t, breaker.Config{Threshold: 3, Cooldown: time.Minute, HalfOpenMaxCalls: 1}, d.breaker(wire.QueueSettings{}))
	require.Equal(t, breaker.Config{Threshold: 7, Cooldown: time.Millisecond, HalfOpenMaxCalls: 1},
		d.breaker(wire.QueueSettings{LuaCircuitBreakerThreshold: 7, LuaCircuitBreakerCooldownMs: 1}))
}

// TestPrioritiesHaveOneBound in packages that do not import each other.
func TestPrioritiesHaveOneBound(t *testing.T) {
	require.EqualValues(t, wire.MaxPriority, hooks.MaxPriority)
	require.EqualValues(t, wire.MaxPriority, store.MaxPriority)
}

// TestResetInOrder: a reset of both hooks closes the circuit of on_enqueue first, as its events say.
func TestResetInOrder(t *testing.T) {
	var closed []string
	o := Options{
		Defaults: Defaults{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Hour}},
		Log:      slog.New(slog.DiscardHandler), Now: func() int64 { return 1 }, Metrics: telemetry.New(),
		OnChange: func(c hooks.CircuitChange) {
			if c.New == breaker.Closed {
				closed = append(closed, c.Hook)
			}
		},
	}
	p, werr := o.New(wire.QueueSettings{
		Name: "orders", OnEnqueue: "function on_enqueue() error('') end", OnFailure: "function on_failure() error('') end",
	}, nil)
	require.Nil(t, werr)
	defer p.CloseReplaced(nil)
	for range 10 { // a map has another order each time
		closed = nil
		_, _ = p.Classify(nil, 0)
		p.OnFailure(func() *hooks.FailureInput { return &hooks.FailureInput{} })
		require.True(t, p.Reset(""))
		require.Equal(t, []string{wire.HookOnEnqueue, wire.HookOnFailure}, closed)
	}
}
