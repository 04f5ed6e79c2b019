package shard

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/wire"
)

// HookDefaults are the limits of hooks whose queues set none.
type HookDefaults struct {
	Limits  hooks.Limits
	Breaker breaker.Config
}

// Check returns why the hooks of a queue cannot be loaded.
func (d HookDefaults) Check(settings wire.QueueSettings) error {
	for _, kind := range hookKinds {
		if _, err := d.compile(kind, settings); err != nil {
			return fmt.Errorf("queue %s, %s: %w", settings.Name, kind, err)
		}
	}
	return nil
}

// compile compiles a hook; it returns nil if the queue has none.
func (d HookDefaults) compile(kind hooks.Kind, settings wire.QueueSettings) (*hooks.Script, error) {
	text := hookText(kind, &settings)
	if text == "" {
		return nil, nil
	}
	return hooks.Compile(kind, settings.Name+"/"+string(kind), text, d.limits(settings))
}

// limits returns the limits of the queue's settings, with defaults.
func (d HookDefaults) limits(q wire.QueueSettings) hooks.Limits {
	return hooks.Limits{
		Timeout:     cmp.Or(time.Duration(q.LuaTimeoutMs)*time.Millisecond, d.Limits.Timeout),
		MemoryBytes: cmp.Or(q.LuaMemoryLimitBytes, d.Limits.MemoryBytes),
	}
}

func (d HookDefaults) breaker(q wire.QueueSettings) breaker.Config {
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

// policy is the settings of a queue with what is derived from them. It is replaced as a whole.
type policy struct {
	settings wire.QueueSettings
	keys     keyTemplates
	hooks    map[hooks.Kind]*queueHook
	broken   []wire.HookInfo // stored hooks that fail to load
}

// keyTemplates compute the keys of messages in a queue without on_enqueue.
type keyTemplates struct {
	fairness, circuit wire.KeyTemplate
	throttles         []wire.KeyTemplate
}

// newKeyTemplates parses the templates of checked settings.
func newKeyTemplates(s *wire.QueueSettings) (k keyTemplates) {
	read := func(text string) wire.KeyTemplate {
		t, err := wire.ParseKeyTemplate(text)
		if err != nil {
			return wire.KeyTemplate{} // a later version wrote it
		}
		return t
	}
	k.fairness, k.circuit = read(s.FairnessHeader), read(s.CircuitHeader)
	for _, text := range s.ThrottleHeaders {
		k.throttles = append(k.throttles, read(text))
	}
	return k
}

// newPolicy compiles the settings of a queue. Hooks with the script and limits of old keep
// their breaker; old may be nil.
func (s *Shard) newPolicy(settings wire.QueueSettings, old *policy) (*policy, *wire.Error) {
	p := &policy{settings: settings, keys: newKeyTemplates(&settings), hooks: make(map[hooks.Kind]*queueHook)}
	for _, kind := range hookKinds {
		if err := s.loadHook(p, kind, old); err != nil {
			return nil, wire.HookLoad(settings.Name, string(kind), brief(err))
		}
	}
	return p, nil
}

// brief is an error of a hook as one line, since a reply has no room for more.
func brief(err error) string {
	var refused *hooks.LoadError
	if errors.As(err, &refused) {
		return refused.Brief()
	}
	return err.Error()
}

// recoveredPolicy compiles the settings of a stored queue. A script that fails to load, for
// instance after an upgrade, does not stop the queue: messages get the safe defaults, and the
// log and inspect say why.
func (s *Shard) recoveredPolicy(settings wire.QueueSettings) *policy {
	p := &policy{settings: settings, keys: newKeyTemplates(&settings), hooks: make(map[hooks.Kind]*queueHook)}
	for _, kind := range hookKinds {
		if err := s.loadHook(p, kind, nil); err != nil {
			s.Log.Error("a stored hook does not load; messages go on with the safe defaults until it is replaced",
				"queue", settings.Name, "hook", string(kind), "error", err)
			p.broken = append(p.broken, wire.HookInfo{Hook: string(kind), State: "not loaded", LastError: err.Error()})
		}
	}
	return p
}

// loadHook loads a hook into p.
func (s *Shard) loadHook(p *policy, kind hooks.Kind, old *policy) error {
	settings := p.settings
	if old != nil && hookText(kind, &settings) == hookText(kind, &old.settings) && sameHookLimits(&settings, &old.settings) {
		if had := old.hooks[kind]; had != nil {
			p.hooks[kind] = had
			return nil
		}
	}
	script, err := s.Hooks.compile(kind, settings)
	if script == nil || err != nil {
		return err
	}
	p.hooks[kind] = &queueHook{
		metrics: s.Metrics.Queue(settings.Name).Hook(string(kind)),
		hook: hooks.NewRunner(hooks.RunnerOptions{
			Kind: kind, Queue: settings.Name, Script: script, Limits: s.Hooks.limits(settings), Breaker: s.Hooks.breaker(settings),
			Get: s.Control.Get, Logger: telemetry.Unlimited(s.Log), // a Runner limits its own lines
			Now: s.Now, OnChange: s.hookCircuitChanged,
		}),
	}
	return nil
}

// forTrial returns a copy of a policy for a dry run. Its on_enqueue has its own sandbox,
// breaker and counters, so a failure does not count for the queue's hook. over closes it.
func (s *Shard) forTrial(p *policy) (trial *policy, over func(), err error) {
	trial = &policy{settings: p.settings, keys: p.keys}
	if p.hooks[hooks.OnEnqueue] == nil {
		return trial, func() {}, nil
	}
	script, err := s.Hooks.compile(hooks.OnEnqueue, p.settings)
	if err != nil {
		return nil, nil, err
	}
	hook := hooks.NewRunner(hooks.RunnerOptions{
		Kind: hooks.OnEnqueue, Queue: p.settings.Name, Script: script, Limits: s.Hooks.limits(p.settings),
		Breaker: s.Hooks.breaker(p.settings), Get: s.Control.Get, Now: s.Now,
	})
	trial.hooks = map[hooks.Kind]*queueHook{hooks.OnEnqueue: {hook: hook}}
	return trial, hook.Close, nil
}

func sameHookLimits(a, b *wire.QueueSettings) bool {
	return a.LuaTimeoutMs == b.LuaTimeoutMs && a.LuaMemoryLimitBytes == b.LuaMemoryLimitBytes &&
		a.LuaCircuitBreakerThreshold == b.LuaCircuitBreakerThreshold &&
		a.LuaCircuitBreakerCooldownMs == b.LuaCircuitBreakerCooldownMs
}

func (s *Shard) hookCircuitChanged(ch hooks.CircuitChange) {
	s.event(wire.EventHookCircuitChanged, ch.Queue, wire.Event{Queue: ch.Queue, Data: map[string]any{
		"hook": ch.Hook, "old": ch.Old.String(), "new": ch.New.String(),
		"consecutive_failures": ch.ConsecutiveFailures, "at": wire.Timestamp(ch.At),
	}})
}

// closeReplaced closes the hooks of p that next does not have; next may be nil.
func (p *policy) closeReplaced(next *policy) {
	for kind, had := range p.hooks {
		if next == nil || next.hooks[kind] != had {
			had.close()
		}
	}
}

// describe describes the hooks of a policy, loaded ones first.
func (p *policy) describe() []wire.HookInfo {
	list := []wire.HookInfo{}
	for _, kind := range hookKinds {
		if g := p.hooks[kind]; g != nil {
			s := g.hook.Stats()
			list = append(list, wire.HookInfo{
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

// CountHooks brings the metrics of all hooks up to date.
func (s *Set) CountHooks() {
	for _, q := range s.queues.main() {
		for _, g := range q.policy.Load().hooks {
			g.count()
		}
	}
}
