package control

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// configureCircuits applies the limits of circuits: the runtime configuration, which
// includes the [[circuit]] tables, over [circuit_defaults].
func (c *Control) configureCircuits() {
	c.acting.Lock()
	defer c.acting.Unlock()
	base := limits{CircuitLimits: c.applied.Load().config.CircuitDefaults}
	perKey := make(map[string]circuit.Settings)
	for key, l := range c.values.limits(kindCircuit, base) {
		perKey[key] = circuitSettings(&l.CircuitLimits)
	}
	c.opt.Circuits.Configure(circuitSettings(&base.CircuitLimits), perKey, c.circuitsSetAt(&base.CircuitLimits))
}

// circuitsSetAt returns a function that returns when the limits of a circuit were set
// here (Unix ns): its own, or [circuit_defaults] unless it has all of its own; 0: not
// known.
func (c *Control) circuitsSetAt(defaults *config.CircuitLimits) func(key string) int64 {
	whole := make(map[string]bool)
	for key, l := range c.values.limits(kindCircuit, limits{}) {
		whole[key] = l.Threshold > 0 && l.CooldownMs > 0 && l.HalfOpenMaxCalls > 0 && l.HalfOpenSuccesses > 0
	}
	others := c.defaultsKey(defaults)
	return func(key string) int64 {
		at := c.setTimes.of(kindCircuit, key)
		if !whole[key] {
			at = max(at, c.setTimes.of(kindCircuitDefaults, others))
		}
		return at
	}
}

func circuitSettings(l *config.CircuitLimits) circuit.Settings {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return circuit.Settings{
		Breaker: breaker.Config{
			Threshold: int(l.Threshold), Cooldown: ms(l.CooldownMs),
			HalfOpenMaxCalls: int(l.HalfOpenMaxCalls), HalfOpenSuccesses: int(l.HalfOpenSuccesses),
		},
		MaxFailures: l.MaxFailures, FailureWindow: ms(l.FailureWindowMs), FailureHold: ms(l.FailureHoldMs),
	}
}

// CircuitShow describes a circuit.
func (c *Control) CircuitShow(req api.GateKeyRequest) (api.CircuitInfo, *wire.Error) {
	info, ok := c.CircuitInfo(req.Key)
	if !ok {
		return info, wire.CircuitNotFound(req.Key)
	}
	info.LastFailure, info.History = c.opt.Circuits.Past(req.Key)
	info.Sources = c.circuitSources(&info)
	return info, nil
}

// CircuitHistory returns the last hour of a circuit; nil: this process does not know it.
func (c *Control) CircuitHistory(key string) *api.CircuitHistory {
	_, h := c.opt.Circuits.Past(key)
	return h
}

// LastFailure returns the last failure behind a circuit; nil: none is known.
func (c *Control) LastFailure(key string) *api.CircuitFailure {
	last, _ := c.opt.Circuits.Past(key)
	return last
}

// CircuitInfo describes the circuit of a key, with the source of its limits. It reports
// false if there is none.
func (c *Control) CircuitInfo(key string) (info api.CircuitInfo, ok bool) {
	info, ok = c.opt.Circuits.Info(key)
	return c.withSource(info), ok
}

// withSource adds the source of its limits to a circuit.
func (c *Control) withSource(info api.CircuitInfo) api.CircuitInfo {
	info.Source = cmp.Or(c.setBy(kindCircuit, wire.NamedKey(info.Key)), api.SetByDefault)
	if info.LimitsBy != "" {
		info.Source = "fila " + info.LimitsBy
	}
	return info
}

// CircuitList lists circuits.
func (c *Control) CircuitList(req api.CircuitListRequest) api.CircuitList {
	var list api.CircuitList
	list.Circuits, list.Total, list.Next = c.opt.Circuits.List(req)
	for i := range list.Circuits {
		list.Circuits[i] = c.withSource(list.Circuits[i])
	}
	return list
}

// CircuitOpen shuts a circuit, also one of which nothing is known yet. When its time
// is over, probes decide.
func (c *Control) CircuitOpen(by Actor, req api.CircuitOpenRequest) (api.CircuitInfo, *wire.Error) {
	until := int64(math.MaxInt64)
	if req.ForMs > 0 {
		until = c.opt.Now() + req.ForMs*int64(time.Millisecond)
	}
	info, saved := c.opt.Circuits.Open(req.Key, until, by.Client)
	err := <-saved
	return c.newest(info), outcome(err)
}

// newest returns the state of a circuit after a change. At a shared circuit a change
// applies only when it is written.
func (c *Control) newest(info api.CircuitInfo) api.CircuitInfo {
	if now, ok := c.CircuitInfo(wire.NamedKey(info.Key)); ok {
		return now
	}
	info = c.withSource(info)
	info.State, info.OpenUntil, info.Cause = breaker.Closed.String(), "", "" // it has been forgotten, so that is all
	info.ConsecutiveFailures, info.Probes, info.ProbesBy = 0, 0, nil
	return info
}

// CircuitResumed ends the pause of a shared circuit here after another fila has ended
// it.
func (c *Control) CircuitResumed(key string) {
	if c.shared() { // the other node has ended it for all
		return
	}
	c.endPauses(byFleet, Actor{By: byFleet}, math.MaxInt64, pauseID{api.PauseCircuit, "", key})
}

// CircuitClose makes a circuit closed now, with no failures in a row.
func (c *Control) CircuitClose(by Actor, req api.GateKeyRequest) (api.CircuitInfo, *wire.Error) {
	return c.closeCircuit(by, req.Key, false)
}

// CircuitReset is CircuitClose that also forgets the failures that max_failures counts.
func (c *Control) CircuitReset(by Actor, req api.GateKeyRequest) (api.CircuitInfo, *wire.Error) {
	return c.closeCircuit(by, req.Key, true)
}

func (c *Control) closeCircuit(by Actor, key string, forget bool) (api.CircuitInfo, *wire.Error) {
	info, saved, ok := c.opt.Circuits.Close(key, forget)
	if !ok {
		return info, wire.CircuitNotFound(key)
	}
	if saved == nil { // one that is only configured is closed and has failed nothing so far
		return c.withSource(info), nil
	}
	// A pause would shut it again at the next start.
	_, forgotten := c.endPauses(byOperator, by, math.MaxInt64, pauseID{api.PauseCircuit, "", key})
	err := errors.Join(<-saved, <-forgotten)
	return c.newest(info), outcome(err)
}
