// Package policy is what the settings of a queue decide: its hooks, and the keys, weight and
// gates of its messages.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Defaults are the limits of hooks whose queues set none.
type Defaults struct {
	Limits  hooks.Limits
	Breaker breaker.Config
}

// Check returns why the hooks of a queue cannot be loaded.
func (d Defaults) Check(settings wire.QueueSettings) error {
	for _, kind := range hookKinds {
		if _, err := d.compile(kind, settings); err != nil {
			return fmt.Errorf("queue %s, %s: %w", settings.Name, kind, err)
		}
	}
	return nil
}

// compile compiles a hook; it returns nil if the queue has none.
func (d Defaults) compile(kind hooks.Kind, settings wire.QueueSettings) (*hooks.Script, error) {
	text := hookText(kind, &settings)
	if text == "" {
		return nil, nil
	}
	return hooks.Compile(kind, settings.Name+"/"+string(kind), text, d.limits(settings))
}

// limits returns the limits of the queue's settings, with defaults.
func (d Defaults) limits(q wire.QueueSettings) hooks.Limits {
	return hooks.Limits{
		Timeout:     cmp.Or(time.Duration(q.LuaTimeoutMs)*time.Millisecond, d.Limits.Timeout),
		MemoryBytes: cmp.Or(q.LuaMemoryLimitBytes, d.Limits.MemoryBytes),
	}
}

func (d Defaults) breaker(q wire.QueueSettings) breaker.Config {
	b := d.Breaker
	b.Threshold = cmp.Or(int(q.LuaCircuitBreakerThreshold), b.Threshold)
	b.Cooldown = cmp.Or(time.Duration(q.LuaCircuitBreakerCooldownMs)*time.Millisecond, b.Cooldown)
	return b
}

var hookKinds = [...]hooks.Kind{hooks.OnEnqueue, hooks.OnFailure}

func hookText(kind hooks.Kind, s *wire.QueueSettings) string {
	if kind == hooks.OnEnqueue {
		return s.OnEnqueue
	}
	return s.OnFailure
}

// Policy is the settings of a queue with data derived from them. It is replaced as a whole.
type Policy struct {
	Settings wire.QueueSettings
	keys     keyTemplates
	routes   func() map[string][]store.Route // of the configuration, by choice; nil: there are none
	hooks    map[hooks.Kind]*queueHook
	broken   []api.HookInfo // stored hooks that fail to load
}

// Options of policies with hooks.
type Options struct {
	Defaults
	Log     *slog.Logger
	Now     func() int64 // Unix ns
	Metrics *telemetry.Metrics
	// Get returns a value of the runtime configuration.
	Get func(key string) (string, bool)
	// Routes returns the routes of the configuration by choice.
	Routes func() map[string][]store.Route
	// OnChange is called when the circuit of a hook changes.
	OnChange func(hooks.CircuitChange)
}

// WithoutHooks returns the policy of a queue that has no hooks.
func WithoutHooks(settings wire.QueueSettings) *Policy {
	return &Policy{Settings: settings, keys: newKeyTemplates(&settings)}
}

// New compiles the settings of a queue. Hooks with the script and limits of old keep their
// breaker; old may be nil.
func (o *Options) New(settings wire.QueueSettings, old *Policy) (*Policy, *wire.Error) {
	p := WithoutHooks(settings)
	p.routes = o.Routes
	for _, kind := range hookKinds {
		if err := o.loadHook(p, kind, old); err != nil {
			return nil, wire.HookLoad(settings.Name, string(kind), Brief(err))
		}
	}
	return p, nil
}

// Brief is an error of a hook as one line, since a reply has no room for more.
func Brief(err error) string {
	var refused *hooks.LoadError
	if errors.As(err, &refused) {
		return refused.Brief()
	}
	return err.Error()
}

// Recovered compiles the settings of a stored queue. A script that fails to load, for
// instance after an upgrade, does not stop the queue: messages get the safe defaults, and the
// log and inspect say why.
func (o *Options) Recovered(settings wire.QueueSettings) *Policy {
	p := WithoutHooks(settings)
	p.routes = o.Routes
	for _, kind := range hookKinds {
		if err := o.loadHook(p, kind, nil); err != nil {
			o.Log.Error("a stored hook does not load; messages continue with the defaults until it is replaced",
				"queue", settings.Name, "hook", string(kind), "error", err)
			p.broken = append(p.broken, api.HookInfo{Hook: string(kind), State: "not loaded", LastError: err.Error()})
		}
	}
	return p
}

// loadHook loads a hook into p.
func (o *Options) loadHook(p *Policy, kind hooks.Kind, old *Policy) error {
	settings := &p.Settings
	if old != nil && hookText(kind, settings) == hookText(kind, &old.Settings) && sameHookLimits(settings, &old.Settings) {
		if had := old.hooks[kind]; had != nil {
			p.add(kind, had)
			return nil
		}
	}
	script, err := o.compile(kind, *settings)
	if script == nil || err != nil {
		return err
	}
	p.add(kind, &queueHook{
		metrics: o.Metrics.Queue(settings.Name).Hook(string(kind)),
		hook:    o.runner(kind, *settings, script, telemetry.Unlimited(o.Log), o.OnChange), // it limits its own lines
	})
	return nil
}

func (p *Policy) add(kind hooks.Kind, g *queueHook) {
	if p.hooks == nil {
		p.hooks = make(map[hooks.Kind]*queueHook)
	}
	p.hooks[kind] = g
}

func (o *Options) runner(kind hooks.Kind, settings wire.QueueSettings, script *hooks.Script, log *slog.Logger, changed func(hooks.CircuitChange)) *hooks.Runner {
	return hooks.NewRunner(hooks.RunnerOptions{
		Kind: kind, Queue: settings.Name, Script: script, Limits: o.limits(settings), Breaker: o.breaker(settings),
		Get: o.Get, Logger: log, Now: o.Now, OnChange: changed,
	})
}

// Trial returns a copy of a policy for a dry run. Its on_enqueue has its own sandbox, breaker
// and counters, so a failure does not count for the queue's hook. over closes it.
func (o *Options) Trial(p *Policy) (trial *Policy, over func(), err error) {
	trial = &Policy{Settings: p.Settings, keys: p.keys, routes: p.routes}
	if !p.Has(hooks.OnEnqueue) {
		return trial, func() {}, nil
	}
	script, err := o.compile(hooks.OnEnqueue, p.Settings)
	if err != nil {
		return nil, nil, err
	}
	hook := o.runner(hooks.OnEnqueue, p.Settings, script, nil, nil)
	trial.add(hooks.OnEnqueue, &queueHook{hook: hook})
	return trial, hook.Close, nil
}

func sameHookLimits(a, b *wire.QueueSettings) bool {
	return a.LuaTimeoutMs == b.LuaTimeoutMs && a.LuaMemoryLimitBytes == b.LuaMemoryLimitBytes &&
		a.LuaCircuitBreakerThreshold == b.LuaCircuitBreakerThreshold &&
		a.LuaCircuitBreakerCooldownMs == b.LuaCircuitBreakerCooldownMs
}

// Has reports whether a hook of that kind is loaded.
func (p *Policy) Has(kind hooks.Kind) bool { return p.hooks[kind] != nil }

// Intact reports whether all stored hooks were loaded.
func (p *Policy) Intact() bool { return len(p.broken) == 0 }

// CloseReplaced closes the hooks of p that next does not have; next may be nil.
func (p *Policy) CloseReplaced(next *Policy) {
	for kind, had := range p.hooks {
		if next == nil || next.hooks[kind] != had {
			had.close()
		}
	}
}

// Describe describes the hooks of a policy, on_enqueue first, then those that failed to load.
func (p *Policy) Describe() []api.HookInfo {
	list := []api.HookInfo{}
	for _, kind := range hookKinds {
		if g := p.hooks[kind]; g != nil {
			s := g.hook.Stats()
			list = append(list, api.HookInfo{
				Hook: s.Hook, State: s.State, Runs: s.Runs, Failures: s.Failures, Bypassed: s.Bypassed,
				Warnings: s.Warnings, ConsecutiveFailures: s.ConsecutiveFailures, LastError: s.LastError,
			})
		}
	}
	return append(list, p.broken...)
}

// queueHook serialises the runs of a hook and keeps its metrics.
type queueHook struct {
	mu   sync.Mutex // held during a run
	hook *hooks.Runner

	metrics *telemetry.Hook
	counted struct {
		sync.Mutex
		hooks.Stats // the part of the hook's own counters that metrics have
	}
}

func (g *queueHook) enqueue(in *hooks.EnqueueInput) hooks.EnqueueDecision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hook.OnEnqueue(in)
}

// OnFailure runs on_failure, if there is one.
func (p *Policy) OnFailure(in func() *hooks.FailureInput) (d hooks.FailureDecision) {
	if g := p.hooks[hooks.OnFailure]; g != nil {
		d = g.failure(in())
	}
	return d
}

func (g *queueHook) failure(in *hooks.FailureInput) hooks.FailureDecision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hook.OnFailure(in)
}

// count adds to the metrics what the hook has counted since the last call. It is called before
// a scrape, not after each run.
func (g *queueHook) count() {
	now, c := g.hook.Stats(), &g.counted
	c.Lock()
	defer c.Unlock()
	g.metrics.Add(now.Runs-c.Runs, now.Failures-c.Failures, now.Bypassed-c.Bypassed, now.Warnings-c.Warnings)
	c.Stats = now
}

func (g *queueHook) close() {
	g.count()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook.Close()
}

// CountHooks brings the metrics of the hooks up to date.
func (p *Policy) CountHooks() {
	for _, g := range p.hooks {
		g.count()
	}
}

// Reset closes the breaker of a hook, or of both if hook is empty. It reports whether there is
// such a hook.
func (p *Policy) Reset(hook string) (found bool) {
	for _, kind := range hookKinds {
		if g := p.hooks[kind]; g != nil && (hook == "" || hook == string(kind)) {
			g.hook.Reset()
			found = true
		}
	}
	return found
}
