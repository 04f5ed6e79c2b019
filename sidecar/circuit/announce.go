package circuit

import (
	"math"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Announce wakes waiters, publishes events and writes the record in the store, as far as changes
// of the circuit require it. It blocks only as long as Options.Event and Options.Submit do.
func (c *Circuit) Announce() {
	for _, o := range c.takeDue() {
		o.CircuitOpened(c)
	}
	c.publish()
	c.write()
}

// pending reports whether there is something to announce. While a goroutine publishes, or a write
// is running, later changes are left to it. Its caller holds mu.
func (c *Circuit) pending() bool {
	return c.mu.due || len(c.mu.news) > 0 && !c.mu.publishing || c.mu.save.dirty && !c.mu.save.saving
}

// takeDue returns the waiters to wake, in the order of their arrival.
func (c *Circuit) takeDue() []gates.Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.due {
		return nil
	}
	c.mu.due = false
	var owners []gates.Owner
	for i := range c.mu.waiters {
		if w := &c.mu.waiters[i]; w.due {
			w.due = false
			owners = append(owners, w.owner)
		}
	}
	return owners
}

// news is a transition to publish or, if failures is set, the reason of one.
type news struct {
	change    breaker.Change
	cause     string
	until     int64         // of an opening
	threshold int           // at that time
	failures  int64         // number that was too many
	window    time.Duration // in which they occurred

	// Of a shared circuit.
	shared    bool
	version   uint64 // of the record; 0: this instance acted without it
	changedAt int64  // by the fleet's clock
	by        string // name of the instance
}

func changed(change breaker.Change, cause string) news { return news{change: change, cause: cause} }

// publish publishes news in order, from one goroutine at a time.
func (c *Circuit) publish() {
	for {
		c.mu.Lock()
		all := c.mu.news
		if c.mu.publishing || len(all) == 0 {
			c.mu.Unlock()
			return
		}
		c.mu.news, c.mu.publishing = nil, true
		c.mu.Unlock()
		for i := range all {
			c.r.publish(c.key, &all[i])
		}
		c.mu.Lock()
		c.mu.publishing = false
		c.mu.Unlock()
	}
}

func (r *Registry) publish(key string, n *news) {
	if n.failures > 0 {
		window, until := n.window.Milliseconds(), openUntil(n.until)
		r.opt.Log.Warn("circuit open: more than max_failures", "circuit", key, "failures", n.failures,
			"window_ms", window, "until", until)
		r.opt.Event(wire.EventHeld, key, wire.Event{Key: key, Data: map[string]any{
			"kind": api.PauseCircuit, "cause": causeMaxFailures, "failures": n.failures,
			"window_ms": window, "until": until,
		}})
		return
	}
	c := n.change
	data := map[string]any{
		"old": c.Old.String(), "new": c.New.String(), "consecutive_failures": c.ConsecutiveFailures,
		"cause": n.cause, "at": wire.Timestamp(c.At),
	}
	if c.New == breaker.Open {
		data["until"] = openUntil(n.until)
	}
	if n.shared {
		data["shared"], data["version"], data["by"], data["changed_at"] = true, n.version, n.by, wire.Timestamp(n.changedAt)
	}
	say := r.opt.Log.Info
	switch {
	case n.cause == causeTime || n.cause == causeUnused:
		say = r.opt.Log.Debug // the line about the opening contains its end
	case c.New == breaker.Open:
		say = r.opt.Log.Warn
	}
	args := []any{"circuit", key, "was", c.Old.String(), "cause", n.cause, "failures", c.ConsecutiveFailures}
	if c.New == breaker.Open {
		args = append(args, "threshold", n.threshold, "timeout", openFor(n.until, c.At), "until", openUntil(n.until))
	}
	if n.shared {
		args = append(args, "by", n.by)
	}
	say("circuit "+c.New.String(), args...)
	if n.shared && r.opt.Node != "" && n.by != r.opt.Node {
		return
	}
	r.opt.Event(wire.EventCircuitChanged, key, wire.Event{Key: key, Data: data})
}

// info describes the circuit.
func (c *Circuit) info(now int64) api.CircuitInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := closedInfo(c.key, &c.mu.settings)
	i.Waiting, i.Openings = len(c.mu.waiters), c.openings(now)
	if c.mu.share != nil {
		c.describe(&i, now)
		return i
	}
	at := c.mu.m.Info(now)
	i.State, i.ConsecutiveFailures, i.Probes = at.State.String(), at.ConsecutiveFailures, at.Probes
	if at.State != breaker.Closed {
		i.Cause, i.OpenedByClient = c.mu.cause, c.mu.client
	}
	if at.State == breaker.Open {
		i.OpenUntil = openUntil(at.OpenUntil)
	}
	return i
}

// closedInfo describes a closed circuit.
func closedInfo(key string, s *Settings) api.CircuitInfo {
	m := breaker.NewMachine(s.Breaker)
	b := m.Config() // with its defaults
	return api.CircuitInfo{
		Key: wire.ShowKey(key), State: breaker.Closed.String(),
		Threshold: b.Threshold, CooldownMs: b.Cooldown.Milliseconds(),
		HalfOpenMaxCalls: b.HalfOpenMaxCalls, HalfOpenSuccesses: b.HalfOpenSuccesses,
		MaxFailures: s.MaxFailures, FailureWindowMs: s.FailureWindow.Milliseconds(), FailureHoldMs: s.FailureHold.Milliseconds(),
	}
}

// openFor formats the duration of an opening that begins at time at.
func openFor(until, at int64) string {
	if until == math.MaxInt64 {
		return "until closed"
	}
	return time.Duration(until - at).String()
}

// openUntil formats the end of an opening for people and clients.
func openUntil(t int64) string {
	if t == math.MaxInt64 {
		return "closed"
	}
	return wire.Timestamp(t)
}
