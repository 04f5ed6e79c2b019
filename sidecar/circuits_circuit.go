package sidecar

import (
	"math"
	"sync"

	"github.com/filaq/fila/breaker"
)

// Causes of openings, and of what ends them, in events and in CircuitInfo.
const (
	causeFailures    = "failures"
	causeRetryAfter  = "retry_after"
	causeByHand      = "by hand"
	causeMaxFailures = "max_failures"
	causeTime        = "time"    // of the opening is over
	causeProbes      = "success" // of probes
	causeUnused      = "unused"  // forgotten
)

// circuit is the circuit breaker around one destination that consumers call.
// All queues whose messages name its key share it. Its methods may be called
// from any goroutine; sync is the only one that waits for the disk.
//
// mu is held for a few instructions only, and nothing outside of the circuit is
// called under it. What is to be told and written is collected under mu and
// carried out by finish, events in the order of the transitions.
type circuit struct {
	key string
	cs  *circuits

	refs int // guarded by cs.mu
	idle int // place in cs.mu.idle, -1: none; guarded by cs.mu

	mu struct {
		sync.Mutex
		m        breaker.Machine
		cause    string // of the opening, unless closed
		hold     int64  // circuitSettings.failureHold
		failures failureWindow

		// waiters are the queues that have messages parked here, with the epoch
		// in which they were told to look. Told are those of the present epoch;
		// quiet is set when all are. A look that finds nothing ends the epoch.
		waiters map[*queue]uint64
		epoch   uint64
		quiet   bool

		notices []notice // to be published
		telling bool     // somebody is publishing
		save    saveState
	}
}

// circuitPass is the right to deliver one message. The zero value is none.
type circuitPass struct {
	pass breaker.Pass
	held bool
}

func newCircuit(cs *circuits, key string, s circuitSettings, now int64) *circuit {
	ci := &circuit{key: key, cs: cs, idle: -1}
	ci.mu.m = breaker.NewMachine(s.breaker)
	ci.mu.hold = s.failureHold
	ci.mu.failures.set(s.maxFailures, s.failureWindow, now)
	ci.mu.epoch = 1
	return ci
}

// admits says how many messages could go at time now: math.MaxInt64 when closed.
// If it is 0, at is when to look again; math.MaxInt64 is when told (see wait).
func (ci *circuit) admits(now int64) (n, at int64) {
	ci.mu.Lock()
	defer ci.mu.Unlock()
	if n, at = ci.mu.m.Admits(now); n == 0 {
		// Whoever looks has nothing to hope for before the next change, of which
		// it must be told. We do not know who it is, so all will be.
		ci.mu.epoch++
		ci.mu.quiet = false
	}
	return n, at
}

// allow asks to deliver one message at time now. A pass that is granted must be
// given to done, before the drop of the use that it came from.
func (ci *circuit) allow(now int64) (circuitPass, bool) {
	ci.mu.Lock()
	p, c := ci.mu.m.Allow(now)
	if p == 0 { // as in admits
		ci.mu.epoch++
		ci.mu.quiet = false
	}
	if !c.Turned() {
		ci.mu.Unlock()
		return circuitPass{pass: p, held: p != 0}, p != 0
	}
	ci.turned(c, causeTime)
	ci.finish(nil)
	return circuitPass{pass: p, held: true}, true
}

// done takes a pass back at time now, with how the delivery ended. A zero pass
// is ignored; one of an earlier state counts for nothing.
func (ci *circuit) done(p *circuitPass, now int64, o breaker.Outcome) {
	pass := p.pass
	*p = circuitPass{}
	if pass == 0 {
		return
	}
	ci.mu.Lock()
	c, counted := ci.mu.m.Done(now, pass, o)
	if !counted || o != breaker.Failure && !c.Turned() && ci.mu.m.State() == breaker.Closed {
		ci.mu.Unlock()
		return
	}
	switch {
	case o == breaker.Failure && ci.mu.failures.add(now):
		ci.holdBack(c, now)
	case c.New == breaker.Closed && c.Turned():
		ci.turned(c, causeProbes)
	case c.Turned():
		ci.turned(c, causeFailures)
	}
	// A place for a probe is free, or the time to look again is another one.
	var told []*queue
	if c.Turned() || ci.mu.m.State() != breaker.Closed {
		told = ci.tell()
	}
	ci.finish(told)
}

// holdBack opens the circuit because of too many failures in the window, after
// the last of them has made the transition c, if any. Its caller holds mu.
func (ci *circuit) holdBack(c breaker.Change, now int64) {
	until := int64(math.MaxInt64)
	if ci.mu.hold > 0 && now < math.MaxInt64-ci.mu.hold {
		until = now + ci.mu.hold
	}
	if byHand := ci.mu.m.Open(now, until, breaker.HalfOpen); !c.Turned() {
		c = byHand
	}
	ci.turned(c, causeMaxFailures)
	ci.mu.notices = append(ci.mu.notices, notice{
		until: until, held: int64(ci.mu.failures.limit) + 1, window: ci.mu.failures.window,
	})
}

// retryAfter shuts the circuit for everybody until the given time, since the
// destination has asked for it. It never shortens an opening; afterwards the
// circuit is closed again if it was closed before.
func (ci *circuit) retryAfter(now, until int64) {
	ci.mu.Lock()
	ci.lapse(now)
	before := ci.mu.m.OpenUntil()
	c := ci.mu.m.RetryAfter(now, until)
	var told []*queue
	switch {
	case c.Turned():
		ci.turned(c, causeRetryAfter)
		told = ci.tell()
	case ci.mu.m.OpenUntil() != before:
		ci.mu.save.dirty = true // longer; those who wait see it when they look
	}
	ci.finish(told)
}

// open shuts the circuit by hand until the given time, math.MaxInt64 being for
// good. after is what follows for one that was closed.
func (ci *circuit) open(now, until int64, after breaker.State) {
	ci.mu.Lock()
	ci.lapse(now)
	was := ci.mu.m.Save()
	if was.State == breaker.Open && was.OpenUntil == until && ci.mu.cause == causeByHand &&
		(was.After == after || was.After == breaker.HalfOpen) {
		ci.finish(nil) // a pause that a restart has brought back, or a repetition
		return
	}
	c := ci.mu.m.Open(now, until, after)
	if !c.Turned() { // it was open, but until another time
		c = breaker.Change{
			Old: breaker.Open, New: breaker.Open,
			ConsecutiveFailures: ci.mu.m.Info(now).ConsecutiveFailures, At: now,
		}
	}
	ci.turned(c, causeByHand)
	told := ci.tell()
	ci.finish(told)
}

// close makes it closed now, whatever has opened it. A row of failures stays in
// mind unless forget is set: the next one opens it again.
func (ci *circuit) close(now int64, forget bool) {
	ci.mu.Lock()
	ci.lapse(now)
	var c breaker.Change
	if forget {
		c = ci.mu.m.Reset(now)
		ci.mu.failures.clear()
	} else {
		c = ci.mu.m.Close(now)
	}
	ci.moved(c, causeByHand)
}

// release ends an opening by hand, or one by max_failures, before its time.
func (ci *circuit) release(now int64) {
	ci.mu.Lock()
	ci.lapse(now)
	var c breaker.Change
	if ci.mu.cause == causeByHand || ci.mu.cause == causeMaxFailures {
		c = ci.mu.m.Release(now)
	}
	ci.moved(c, causeByHand)
}

// moved ends a change by hand. It gives mu back.
func (ci *circuit) moved(c breaker.Change, cause string) {
	var told []*queue
	if c.Turned() {
		ci.turned(c, cause)
		told = ci.tell()
	}
	ci.finish(told)
}

// set changes the limits.
func (ci *circuit) set(s circuitSettings, now int64) {
	ci.mu.Lock()
	was := ci.mu.m.OpenUntil()
	changed := ci.mu.m.Config() != s.breaker
	ci.mu.m.SetConfig(s.breaker)
	ci.mu.hold = s.failureHold
	ci.mu.failures.set(s.maxFailures, s.failureWindow, now)
	if ci.mu.m.OpenUntil() != was {
		ci.mu.save.dirty = true
	}
	var told []*queue
	if changed {
		told = ci.tell()
	}
	ci.finish(told)
}

// lapse makes the transition to closed that time has brought. Its caller holds
// mu.
func (ci *circuit) lapse(now int64) {
	if c := ci.mu.m.Settle(now); c.Turned() {
		ci.turned(c, causeTime)
	}
}

// turned notes a transition, to be published and written. Its caller holds mu.
func (ci *circuit) turned(c breaker.Change, cause string) {
	n := notice{change: c, cause: cause}
	switch c.New {
	case breaker.Open:
		ci.mu.cause = cause
		n.until = ci.mu.m.OpenUntil()
		ci.mu.save.dirty = true
	case breaker.Closed:
		ci.mu.cause = ""
		ci.mu.save.dirty = true
	default:
		// What is on disk is the opening before, whose time is over, or after a
		// release is not.
		ci.mu.save.dirty = ci.mu.save.dirty || cause != causeTime
	}
	ci.mu.notices = append(ci.mu.notices, n)
}

// finish gives mu back and carries out what was collected under it.
func (ci *circuit) finish(told []*queue) {
	nothing := len(told) == 0 && len(ci.mu.notices) == 0 && !ci.mu.save.dirty
	ci.mu.Unlock()
	if nothing {
		return
	}
	for _, q := range told {
		ci.cs.wake(q, ci)
	}
	ci.publish()
	ci.write()
}
