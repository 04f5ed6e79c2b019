package sidecar

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// registry finds queues by name. Reading takes no lock: every change makes a
// new map.
type registry struct {
	change sync.Mutex
	byName atomic.Pointer[map[string]*queue]
}

func (r *registry) get(name string) *queue {
	if m := r.byName.Load(); m != nil {
		return (*m)[name]
	}
	return nil
}

// all returns the queues in the order of their names.
func (r *registry) all() []*queue {
	m := r.byName.Load()
	if m == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(*m), func(a, b *queue) int { return cmp.Compare(a.name, b.name) })
}

func (r *registry) update(fn func(m map[string]*queue)) {
	r.change.Lock()
	defer r.change.Unlock()
	m := make(map[string]*queue)
	if old := r.byName.Load(); old != nil {
		maps.Copy(m, *old)
	}
	fn(m)
	r.byName.Store(&m)
}

// policy compiles the settings of a queue. Hooks whose script and limits are
// those of old are taken over with their circuits.
func (s *Server) policy(settings wire.QueueSettings, old *policy) (*policy, *wire.Error) {
	p := &policy{settings: settings}
	var err error
	if p.onEnqueue, err = s.guard(hooks.OnEnqueue, settings, old); err != nil {
		return nil, wire.HookLoad(settings.Name, string(hooks.OnEnqueue), err)
	}
	if p.onFailure, err = s.guard(hooks.OnFailure, settings, old); err != nil {
		return nil, wire.HookLoad(settings.Name, string(hooks.OnFailure), err)
	}
	return p, nil
}

// script returns the text of a hook and the guard that a policy has for it.
func (p *policy) script(kind hooks.Kind) (string, *guard) {
	if kind == hooks.OnEnqueue {
		return p.settings.OnEnqueue, p.onEnqueue
	}
	return p.settings.OnFailure, p.onFailure
}

func (s *Server) guard(kind hooks.Kind, settings wire.QueueSettings, old *policy) (*guard, error) {
	text, _ := (&policy{settings: settings}).script(kind)
	if text == "" {
		return nil, nil
	}
	if old != nil {
		if had, g := old.script(kind); g != nil && had == text && sameLimits(settings, old.settings) {
			return g, nil
		}
	}
	limits := s.hookLimits(settings)
	script, err := hooks.Compile(kind, settings.Name+"/"+string(kind), text, limits)
	if err != nil {
		return nil, err
	}
	c := s.core
	return newGuard(hooks.NewGuard(hooks.GuardOptions{
		Kind: kind, Queue: settings.Name, Script: script, Limits: limits, Breaker: s.hookBreaker(settings),
		Get: c.config.Get, Logger: c.log, Now: c.clock.Now, OnChange: c.circuitChanged,
	}), kind, c.metrics.queue(settings.Name)), nil
}

func sameLimits(a, b wire.QueueSettings) bool {
	return a.LuaTimeoutMs == b.LuaTimeoutMs && a.LuaMemoryLimitBytes == b.LuaMemoryLimitBytes &&
		a.LuaCircuitBreakerThreshold == b.LuaCircuitBreakerThreshold &&
		a.LuaCircuitBreakerCooldownMs == b.LuaCircuitBreakerCooldownMs
}

// hookLimits are the queue's own limits, or the global ones.
func (s *Server) hookLimits(q wire.QueueSettings) hooks.Limits {
	lua := s.cfg.Lua
	return hooks.Limits{
		Timeout:     time.Duration(cmp.Or(q.LuaTimeoutMs, lua.DefaultTimeoutMs)) * time.Millisecond,
		MemoryBytes: cmp.Or(q.LuaMemoryLimitBytes, lua.DefaultMemoryLimitBytes),
	}
}

func (s *Server) hookBreaker(q wire.QueueSettings) breaker.Config {
	lua := s.cfg.Lua
	return breaker.Config{
		Threshold:        int(cmp.Or(q.LuaCircuitBreakerThreshold, lua.CircuitBreakerThreshold)),
		Cooldown:         time.Duration(cmp.Or(q.LuaCircuitBreakerCooldownMs, lua.CircuitBreakerCooldownMs)) * time.Millisecond,
		HalfOpenMaxCalls: 1,
	}
}

// recoveredPolicy is the policy of a queue from the store. A script that does
// not load any more, after an upgrade say, must not take the queue's messages
// away: they go on with the safe defaults, and the log and inspect say why.
func (s *Server) recoveredPolicy(settings wire.QueueSettings) *policy {
	p := &policy{settings: settings}
	for _, kind := range []hooks.Kind{hooks.OnEnqueue, hooks.OnFailure} {
		g, err := s.guard(kind, settings, nil)
		if err != nil {
			s.core.log.Error("a stored hook does not load; messages go on with the safe defaults until it is replaced",
				"queue", settings.Name, "hook", string(kind), "error", err)
			p.broken = append(p.broken, wire.HookInfo{Hook: string(kind), State: "not loaded", LastError: err.Error()})
			continue
		}
		if kind == hooks.OnEnqueue {
			p.onEnqueue = g
		} else {
			p.onFailure = g
		}
	}
	return p
}

// dlqSettings are what a dead letter queue has of its queue's settings: the
// visibility timeout. It has no hooks and no limits.
func dlqSettings(q wire.QueueSettings) wire.QueueSettings {
	d := wire.DefaultQueueSettings(wire.DLQ(q.Name))
	d.VisibilityTimeoutMs = q.VisibilityTimeoutMs
	d.MaxDeliveries = new(int64)
	d.DedupeWindowMs = 0
	return d
}

func record(id store.QueueID, settings wire.QueueSettings) (store.QueueRecord, error) {
	data, err := json.Marshal(settings)
	if err != nil {
		return store.QueueRecord{}, fmt.Errorf("encode settings of queue %s: %w", settings.Name, err)
	}
	return store.QueueRecord{ID: id, Name: settings.Name, Settings: data}, nil
}

// create makes a queue with its dead letter queue, and returns when it can be
// published to. A queue that exists with the same settings is fine.
func (s *Server) create(settings wire.QueueSettings) (wire.QueueSettings, *wire.Error) {
	s.admin.Lock()
	defer s.admin.Unlock()
	if s.core.draining.Load() {
		return settings, wire.Draining(drainRetryAfter)
	}
	if q := s.queues.get(settings.Name); q != nil {
		if have := q.policy.Load().settings; have.Equal(settings) {
			return have, nil
		}
		return settings, wire.QueueExists(settings.Name)
	}
	p, werr := s.policy(settings, nil)
	if werr != nil {
		s.core.metrics.dropQueue(settings.Name) // one of its hooks may have got some
		return settings, werr
	}
	rec, err := record(s.nextQueue, settings)
	if err != nil {
		return settings, wire.Internal(err.Error())
	}
	dlqRec, err := record(s.nextQueue+1, dlqSettings(settings))
	if err != nil {
		return settings, wire.Internal(err.Error())
	}
	s.nextQueue += 2
	if err := s.core.commit(&store.Batch{PutQueues: []store.QueueRecord{rec, dlqRec}}); err != nil {
		return settings, s.core.commitError(err)
	}
	q, dlq := newQueue(s.core, rec, p), newQueue(s.core, dlqRec, &policy{settings: dlqSettings(settings)})
	q.dlq, dlq.source = dlq, q
	for _, q := range []*queue{dlq, q} {
		l := newLoop(q)
		l.keys.overrides = s.core.config.weights(q.name)
		s.applyPauses(l)
		q.start(l)
	}
	s.queues.update(func(m map[string]*queue) { m[q.name], m[dlq.name] = q, dlq })
	for _, q := range []*queue{q, dlq} {
		// A weight that was set before the queue could be found.
		for key, weight := range s.core.config.weights(q.name) {
			q.tell(func(l *loop) { l.overrideWeight(key, weight) })
		}
		if err := s.subscribe(q); err != nil {
			s.core.log.Error("a new queue cannot be subscribed to; a restart will try again", "queue", q.name, "error", err)
			return settings, wire.Internal(err.Error())
		}
	}
	if err := s.flush(); err != nil {
		return settings, wire.Internal(err.Error())
	}
	s.core.event(wire.EventQueueCreated, q.name, wire.Event{Queue: q.name})
	s.core.log.Info("queue created", "queue", q.name)
	return settings, nil
}

// update changes the settings of a queue. patch makes the new ones of the old.
func (s *Server) update(q *queue, patch func(wire.QueueSettings) (wire.QueueSettings, *wire.Error)) (wire.QueueSettings, *wire.Error) {
	q.admin.Lock()
	defer q.admin.Unlock()
	if q.deleted.Load() {
		return wire.QueueSettings{}, wire.QueueNotFound(q.name)
	}
	old := q.policy.Load()
	settings, werr := patch(old.settings)
	if werr != nil {
		return old.settings, werr
	}
	if settings.Equal(old.settings) && len(old.broken) == 0 {
		return settings, nil
	}
	p, werr := s.policy(settings, old)
	if werr != nil {
		return old.settings, werr
	}
	rec, err := record(q.id, settings)
	if err != nil {
		return old.settings, wire.Internal(err.Error())
	}
	dlqRec, err := record(q.dlq.id, dlqSettings(settings))
	if err != nil {
		return old.settings, wire.Internal(err.Error())
	}
	if err := s.core.commit(&store.Batch{PutQueues: []store.QueueRecord{rec, dlqRec}}); err != nil {
		return old.settings, s.core.commitError(err)
	}
	q.policy.Store(p)
	q.dlq.policy.Store(&policy{settings: dlqSettings(settings)})
	// What the answer says is so: the intake asks for limits that the loop sets.
	q.call(func(l *loop) {
		l.sched.SetQuantum(settings.Quantum)
		l.applyOrdering()
		l.applyLimits()
	})
	for _, kind := range []hooks.Kind{hooks.OnEnqueue, hooks.OnFailure} {
		_, had := old.script(kind)
		if _, has := p.script(kind); had != has {
			had.close()
		}
	}
	s.core.event(wire.EventQueueUpdated, q.name, wire.Event{Queue: q.name})
	s.core.log.Info("queue updated", "queue", q.name)
	return settings, nil
}

// remove deletes a queue, its dead letter queue and, if force is set, their
// messages. It returns how many these were.
func (s *Server) remove(q *queue, force bool) (int64, *wire.Error) {
	s.admin.Lock()
	defer s.admin.Unlock()
	q.admin.Lock()
	defer q.admin.Unlock()
	if q.deleted.Load() {
		return 0, wire.QueueNotFound(q.name)
	}
	held := func() int64 { return q.depth.Load() + q.dlq.depth.Load() }
	if n := held(); n > 0 && !force {
		return 0, wire.QueueNotEmpty(q.name, n)
	}
	// From here on the intake answers with 404; what had been accepted before is
	// counted.
	q.deleted.Store(true)
	if n := held(); n > 0 && !force {
		q.deleted.Store(false)
		return 0, wire.QueueNotEmpty(q.name, n)
	}
	q.dlq.deleted.Store(true)
	s.queues.update(func(m map[string]*queue) { delete(m, q.name); delete(m, q.dlq.name) })
	select {
	case <-s.drainIntake(q, q.dlq):
	case <-time.After(flushTimeout):
	case <-s.killed:
	}
	q.end()
	q.dlq.end()
	deleted := held()
	if err := s.core.commit(&store.Batch{DeleteQueues: []store.QueueID{q.id, q.dlq.id}}); err != nil {
		return 0, s.core.commitError(err)
	}
	s.forgetPauses(q.name, q.dlq.name)
	p := q.policy.Load()
	p.onEnqueue.close()
	p.onFailure.close()
	for _, q := range []*queue{q, q.dlq} {
		s.core.metrics.dropQueue(q.name)
	}
	s.core.event(wire.EventQueueDeleted, q.name, wire.Event{Queue: q.name, Data: map[string]any{"messages": deleted}})
	s.core.log.Info("queue deleted", "queue", q.name, "messages", deleted)
	return deleted, nil
}

// declare brings the queues of the configuration file about: what it says wins
// over what the store has.
func (s *Server) declare() error {
	for _, settings := range s.cfg.Queues {
		q := s.queues.get(settings.Name)
		if q == nil {
			if _, err := s.create(settings); err != nil {
				return err
			}
			continue
		}
		if !q.policy.Load().settings.Equal(settings) {
			s.core.log.Warn("the settings in the configuration file win over those that were changed at run time", "queue", q.name)
		}
		_, err := s.update(q, func(wire.QueueSettings) (wire.QueueSettings, *wire.Error) { return settings, nil })
		if err != nil {
			return err
		}
	}
	return nil
}
