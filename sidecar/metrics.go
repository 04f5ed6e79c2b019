package sidecar

import (
	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/attention"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/shard"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// connectMetrics lets scrapes read the parts of the node.
func (s *Server) connectMetrics() {
	r := &s.parts
	s.metrics.SetGauges(r.admin.Gauges)
	s.metrics.SetNode(func() telemetry.Node {
		return telemetry.Node{Connected: s.endpoints.nc.IsConnected(), StoreBytes: s.storage.bytes(), Permits: r.guard.Live()}
	})
	s.metrics.SetDisk(func() (free int64, low, known bool) {
		if d := r.shards.Disk(); d != nil {
			return d.Free, d.Low, true
		}
		return 0, false, false
	})
	s.metrics.SetStuck(func() int { return len(r.shards.Stuck()) })
	s.metrics.SetLimits(s.limits)
	s.metrics.SetCircuits(s.circuitStates)
	s.metrics.SetThrottles(s.throttlesHeld)
	s.metrics.SetLevels(s.throttleLevels)
	s.metrics.SetBudgets(s.throttleBudgets)
	s.metrics.SetSync(r.shards.CountHooks)
}

// caps returns the limits of names that clients create.
func caps(l *config.LimitsConfig) shard.Caps {
	return shard.Caps{
		ThrottleKeys: l.MaxThrottleKeys, Circuits: l.MaxCircuits, RateKeys: l.MaxRateKeys, DedupeIDs: l.MaxDedupeIDs, Consumers: l.MaxConsumers,
		Fetches: l.MaxFetches, ConsumerFetches: l.MaxConsumerFetches,
		Schedules: l.MaxSchedules, EnqueuedSchedules: l.MaxEnqueuedSchedules,
	}
}

// limits returns the caps and how much of each is in use.
func (s *Server) limits() []telemetry.Limit {
	most, used := caps(&s.cfg.Limits), s.parts.shards.Usage()
	return []telemetry.Limit{
		{Name: "max_throttle_keys", Used: used.ThrottleKeys, Max: most.ThrottleKeys},
		{Name: "max_circuits", Used: used.Circuits, Max: most.Circuits},
		{Name: "max_rate_keys", Used: used.RateKeys, Max: most.RateKeys},
		{Name: "max_dedupe_ids", Used: used.DedupeIDs, Max: most.DedupeIDs},
		{Name: "max_consumers", Used: used.Consumers, Max: most.Consumers},
		{Name: "max_fetches", Used: used.Fetches, Max: most.Fetches},
		{Name: "max_schedules", Used: used.Schedules, Max: most.Schedules},
		{Name: "max_enqueued_schedules", Used: used.EnqueuedSchedules, Max: most.EnqueuedSchedules},
		{Name: "max_guard_permits", Used: int64(s.parts.guard.Live()), Max: s.cfg.Limits.MaxGuardPermits},
	}
}

// nearLimits returns limits as findings know them.
func (s *Server) nearLimits() (all []attention.Limit) {
	for _, l := range s.limits() {
		all = append(all, attention.Limit(l))
	}
	return all
}

// maxNamedCircuits is how many circuits metrics name besides the configured ones.
const maxNamedCircuits = 100

// circuitStates returns the states of circuits for metrics.
func (s *Server) circuitStates() (c telemetry.Circuits) {
	others := maxNamedCircuits
	if len(s.cfg.HTTP.MetricsCircuits) == 0 {
		others = 0
	}
	for _, one := range s.parts.circuits.States(others, s.cfg.HTTP.NamesCircuit) {
		state := telemetry.CircuitState{Key: one.Key, State: one.State.String(), Held: one.Held}
		one.EachTransition(func(from, to breaker.State, n int64) { state.Turns = append(state.Turns, circuitTurn(from, to, n)) })
		c.States = append(c.States, state)
	}
	unwell := s.parts.circuits.Unwell()
	c.Open, c.HalfOpen, c.Longest = unwell.Open, unwell.HalfOpen, unwell.Longest
	s.parts.circuits.EachTransition(func(from, to breaker.State, n int64) {
		c.Turns = append(c.Turns, circuitTurn(from, to, n))
	})
	return c
}

func circuitTurn(from, to breaker.State, n int64) telemetry.CircuitTurn {
	return telemetry.CircuitTurn{From: from.String(), To: to.String(), N: n}
}

// maxNamedThrottles is how many throttle keys metrics name.
const maxNamedThrottles = 1000

// throttleLevels returns the learned limits of throttle keys, for metrics.
func (s *Server) throttleLevels() (list []telemetry.ThrottleLevel) {
	for key, l := range s.parts.control.LearnedLevels(maxNamedThrottles) {
		list = append(list, telemetry.ThrottleLevel{Key: wire.ShowKey(key), Level: l.Level, Cuts: l.Cuts})
	}
	return list
}

// throttleBudgets returns the budgets of throttle keys, for metrics.
func (s *Server) throttleBudgets() (list []telemetry.ThrottleBudget) {
	for _, b := range s.parts.control.BudgetList(api.KeyListRequest{Limit: maxNamedThrottles}).Budgets {
		list = append(list, telemetry.ThrottleBudget{Key: b.Key, Total: b.Budget + b.Added, Used: b.Used})
	}
	return list
}

// throttlesHeld returns how often throttle keys have blocked messages, for metrics.
func (s *Server) throttlesHeld() (list []telemetry.ThrottleHeld) {
	for _, h := range s.parts.control.Gates().BlockedCounts(maxNamedThrottles) {
		list = append(list, telemetry.ThrottleHeld{Key: wire.ShowKey(h.Key), BlockedBy: h.Kind.String(), N: h.N})
	}
	return list
}
