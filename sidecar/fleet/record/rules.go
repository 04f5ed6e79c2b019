package record

import (
	"maps"
	"time"

	"github.com/filaq/fila/breaker"
)

// Batch is what one instance writes to a record at once. Number counts the batches of the instance for
// this record, from 1.
type Batch struct {
	By     string
	Number uint64
	Steps  []Step
}

// Env is the environment of a rule.
type Env struct {
	Now  int64  // by the fleet's clock
	Rev  uint64 // revision of the record
	Live func(instance string) bool

	breaker.Config       // limits of the instance
	Set            int64 // when they were set, by the fleet's clock; 0: not known
}

// normal returns limits with the defaults of a machine.
func normal(c breaker.Config) breaker.Config {
	m := breaker.NewMachine(c)
	return m.Config()
}

const (
	// lateAfter is how much later than an operation by hand a record may have changed without
	// outdating it: clocks agree no better, and an operator reacts to what is shown.
	lateAfter = int64(time.Second)
	// maxSeen is how many instances a record remembers; beyond it, dead ones are forgotten.
	maxSeen = 32
)

// Apply returns the record after a batch that is not in it yet, and whether it has changed. It applies
// the newest limits, of the record or the instance. A batch without steps only brings newer limits.
func (c *Circuit) Apply(b Batch, env Env) (after Circuit, changed bool) {
	next := c.clone()
	own := Terms[breaker.Config]{normal(env.Config), env.Set, b.By}
	changed = next.Terms.meet(own) && c.Terms.By != ""
	if own.Limits == next.Terms.Limits && own.At == next.Terms.At {
		next.Terms.By = b.By // of those with equal limits, one that is certainly alive
	}
	m := breaker.Thaw(next.Terms.Limits, c.Frozen)
	for holder, n := range c.Permits {
		if holder != b.By && !env.Live(holder) {
			delete(next.Permits, holder)
			m.GiveUp(n)
		}
	}
	if m.Advance(env.Now).Turned() {
		next.Cause, next.OpenedBy, next.Client = "", "", ""
		next.Turn++ // for instances that have not seen its end
		next.TurnAt, next.Why = c.OpenUntil, CauseTime
	}
	for i := range b.Steps {
		if next.step(&m, &b.Steps[i], b.By, env.Now) {
			changed = true
		}
	}
	if !changed {
		return *c, false
	}
	switch {
	case next.Turn != c.Turn:
		next.TurnRev = 0
	case c.TurnRev == 0:
		next.TurnRev = env.Rev
	}
	next.Frozen = m.Freeze()
	next.Seen[b.By] = b.Number
	if len(next.Seen) > maxSeen {
		maps.DeleteFunc(next.Seen, func(holder string, _ uint64) bool { return holder != b.By && !env.Live(holder) })
	}
	return next, true
}

// step applies one step of an instance and reports whether it has changed anything.
func (c *Circuit) step(m *breaker.Machine, s *Step, by string, now int64) (changed bool) {
	before, held := m.Freeze(), c.Permits[by]
	var change breaker.Change
	var cause string
	told := false // report a change without a transition
	switch s.Kind {
	case Outcomes:
		change, cause = outcomes(m, s, now), CauseFailures
	case Probe:
		if s.Gen != m.Gen() || m.State() != breaker.HalfOpen || held == 0 {
			return false
		}
		c.hold(by, held-1)
		change, _ = m.Done(now, breaker.Pass(s.Gen), s.Outcome)
		if cause = CauseFailures; s.Outcome == breaker.Success {
			cause = CauseProbes
		}
	case Want:
		if m.State() == breaker.Closed {
			return false
		}
		pass, turned := m.Allow(now)
		if pass == 0 {
			return false
		}
		change, cause = turned, CauseTime
		if m.State() == breaker.HalfOpen { // not if the opening ended closed
			defer func() { c.hold(by, held+1) }() // after a transition has removed older permits
		}
	case RetryAfter:
		change, cause = m.RetryAfter(now, s.Until), CauseRetryAfter
	default:
		if s.At+lateAfter < c.ChangedAt || s.Kind == Adopt && s.At <= c.ChangedAt {
			return false
		}
		change, cause, told = c.byHand(m, s, now)
	}
	after := m.Freeze()
	if change.Turned() || told {
		c.Turn++
		c.TurnAt, c.TurnBy, c.Why = now, by, cause
	}
	if change.Turned() {
		clear(c.Permits)
		held = 0
	}
	switch {
	case m.State() == breaker.Closed:
		c.Cause, c.OpenedBy, c.Client = "", "", ""
	case m.State() == breaker.Open && (change.Turned() || told):
		c.Cause, c.OpenedBy, c.Client = cause, by, s.Client
	}
	if change.Turned() || told || after.OpenUntil != before.OpenUntil {
		c.ChangedAt, c.By = now, by
		if s.Kind == Adopt {
			c.ChangedAt, c.TurnAt = s.At, s.At
		}
	}
	return after != before || told || s.Kind == Probe
}

// outcomes applies the outcomes of calls, until they open the circuit.
func outcomes(m *breaker.Machine, s *Step, now int64) (change breaker.Change) {
	pass := breaker.Pass(s.Gen)
	done := func(o breaker.Outcome, n int) {
		for range n {
			if m.State() != breaker.Closed || m.Gen() != s.Gen {
				return
			}
			change, _ = m.Done(now, pass, o)
		}
	}
	done(breaker.Failure, s.Run.Lead)
	if s.Run.Reset {
		done(breaker.Success, 1)
		done(breaker.Failure, s.Run.Most)
		done(breaker.Success, 1)
		done(breaker.Failure, s.Run.Tail)
	}
	return change
}

// byHand applies an operation by hand. told means that it is reported although the state is the same.
func (c *Circuit) byHand(m *breaker.Machine, s *Step, now int64) (change breaker.Change, cause string, told bool) {
	cause = CauseByHand
	switch s.Kind {
	case Open:
		was := m.Save()
		if was.State == breaker.Open && was.OpenUntil == s.Until && c.Cause == s.Cause &&
			(was.After == s.After || was.After == breaker.HalfOpen) {
			return change, cause, false // a repetition
		}
		change = m.Open(now, s.Until, s.After)
		return change, s.Cause, true
	case Reset:
		change = m.Reset(now)
	case Release:
		if c.Cause == CauseByHand || c.Cause == CauseMaxFailures {
			change = m.Release(now)
		}
	case Adopt:
		before := m.Freeze()
		*m = breaker.Thaw(m.Config(), breaker.Frozen{Saved: breaker.Saved{Failures: s.State.Failures}, Gen: before.Gen + 1})
		m.Restore(now, s.State)
		f := m.Freeze()
		f.Gen = before.Gen + 1
		*m = breaker.Thaw(m.Config(), f)
		return breaker.Change{Old: before.State, New: f.State, ConsecutiveFailures: f.Failures, At: now}, s.Cause, true
	}
	return change, cause, false
}

// hold sets how many permits an instance has.
func (c *Circuit) hold(instance string, n int) {
	if n <= 0 {
		delete(c.Permits, instance)
		return
	}
	c.Permits[instance] = n
}
