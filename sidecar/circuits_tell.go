package sidecar

import (
	"math"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

// wait notes that q has messages parked here. From now on core.wakeCircuit tells
// it when the circuit may admit more by an outcome or by hand, or when the time
// that admits gave has changed: once until somebody has looked with admits, and
// found it shut. What opens by time each queue sees by its own timer; since the
// circuit may have changed after the look that made q wait, q is told at once if
// another look is worth it.
func (ci *circuit) wait(q *queue) {
	now := ci.cs.now()
	ci.mu.Lock()
	if ci.mu.waiters == nil {
		ci.mu.waiters = make(map[*queue]uint64)
	}
	ci.mu.waiters[q] = 0
	ci.mu.quiet = false
	var told []*queue
	if n, at := ci.mu.m.Admits(now); n > 0 || at != math.MaxInt64 {
		ci.mu.waiters[q] = ci.mu.epoch
		told = []*queue{q}
	}
	ci.finish(told)
}

// leave is the opposite of wait.
func (ci *circuit) leave(q *queue) {
	ci.mu.Lock()
	defer ci.mu.Unlock()
	delete(ci.mu.waiters, q)
}

// tell collects the waiting queues that have not been told yet. Its caller holds
// mu.
func (ci *circuit) tell() []*queue {
	if ci.mu.quiet {
		return nil
	}
	var told []*queue
	for q, at := range ci.mu.waiters {
		if at != ci.mu.epoch {
			ci.mu.waiters[q] = ci.mu.epoch
			told = append(told, q)
		}
	}
	ci.mu.quiet = true
	return told
}

// notice is a transition, or a hold, to be made known.
type notice struct {
	change breaker.Change
	cause  string
	until  int64 // of an opening
	held   int64 // the number of failures; 0: this is not about a hold
	window int64 // in which they occurred, ns
}

// publish makes the notices known, in their order: one goroutine at a time.
func (ci *circuit) publish() {
	for {
		ci.mu.Lock()
		notices := ci.mu.notices
		if ci.mu.telling || len(notices) == 0 {
			ci.mu.Unlock()
			return
		}
		ci.mu.notices, ci.mu.telling = nil, true
		ci.mu.Unlock()
		for i := range notices {
			ci.cs.publish(ci.key, &notices[i])
		}
		ci.mu.Lock()
		ci.mu.telling = false
		ci.mu.Unlock()
	}
}

// publish makes a notice known.
func (cs *circuits) publish(key string, n *notice) {
	if n.held > 0 {
		cs.log.Warn("circuit held: too many failures", "circuit", key, "failures", n.held,
			"window_ms", n.window/1e6, "until", openUntil(n.until))
		cs.event(wire.EventHeld, key, wire.Event{Key: key, Data: map[string]any{
			"kind": wire.PauseCircuit, "cause": causeMaxFailures, "failures": n.held,
			"window_ms": n.window / 1e6, "until": openUntil(n.until),
		}})
		return
	}
	c := n.change
	data := map[string]any{
		"old": c.Old.String(), "new": c.New.String(), "consecutive_failures": c.ConsecutiveFailures,
		"cause": n.cause, "at": timestamp(c.At),
	}
	if c.New == breaker.Open {
		data["until"] = openUntil(n.until)
	}
	say := cs.log.Info
	switch {
	case n.cause == causeRetryAfter || n.cause == causeTime || n.cause == causeUnused:
		say = cs.log.Debug // as often as a destination likes
	case c.New == breaker.Open:
		say = cs.log.Warn
	}
	say("circuit "+c.New.String(), "circuit", key, "was", c.Old.String(), "cause", n.cause,
		"consecutive_failures", c.ConsecutiveFailures)
	cs.event(wire.EventCircuitChanged, key, wire.Event{Key: key, Data: data})
}

// info describes the circuit at time now.
func (ci *circuit) info(now int64) wire.CircuitInfo {
	ci.mu.Lock()
	defer ci.mu.Unlock()
	i := circuitInfo(ci.key, ci.mu.m.Config())
	at := ci.mu.m.Info(now)
	i.State, i.ConsecutiveFailures, i.Probes = at.State.String(), at.ConsecutiveFailures, at.Probes
	if at.State != breaker.Closed {
		i.Cause = ci.mu.cause
	}
	if at.State == breaker.Open {
		i.OpenUntil = openUntil(at.OpenUntil)
	}
	i.Waiting = len(ci.mu.waiters)
	return i
}

// circuitInfo describes a closed circuit.
func circuitInfo(key string, c breaker.Config) wire.CircuitInfo {
	return wire.CircuitInfo{
		Key: key, State: breaker.Closed.String(),
		Threshold: c.Threshold, CooldownMs: c.Cooldown.Milliseconds(),
		HalfOpenMaxCalls: c.HalfOpenMaxCalls, HalfOpenSuccesses: c.HalfOpenSuccesses,
	}
}

// openUntil writes when an opening ends as people and clients see it.
func openUntil(t int64) string {
	if t == math.MaxInt64 {
		return "closed"
	}
	return timestamp(t)
}
