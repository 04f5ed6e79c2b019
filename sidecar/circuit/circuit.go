package circuit

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/record"
	"github.com/filaq/fila/sidecar/queue"
)

// Causes of openings, and of what ends them, in events and in wire.CircuitInfo.
const (
	causeFailures    = record.CauseFailures
	causeRetryAfter  = record.CauseRetryAfter
	causeByHand      = record.CauseByHand
	causeMaxFailures = record.CauseMaxFailures
	causeTime        = record.CauseTime   // of the opening is over
	causeProbes      = record.CauseProbes // that have succeeded
	causeUnused      = "unused"           // forgotten
)

// Circuit is the circuit breaker around one destination that consumers call. Its
// methods may be called from any goroutine.
//
// mu is held for a few instructions only, and nothing outside of the circuit is
// called under it but Fleet.Touch, which only notes, and what looks something up:
// who lives, who is kin, when limits were set.
type Circuit struct {
	key string
	r   *Registry

	refs int // guarded by r.mu
	idle int // place in r.mu.idle, -1: none; guarded by r.mu

	held atomic.Int64 // messages that have begun to wait, and calls that were refused

	mu struct {
		sync.Mutex
		share     *share          // nil: it is this process's alone
		m         breaker.Machine // of one that is not shared
		cause     string          // of the opening of m, unless closed
		client    string          // that has opened it by hand, as far as it is known
		settings  Settings
		failures  breaker.FailureWindow
		undecided undecided

		// waiters are in the order in which they came. Those that were told in the
		// present epoch know that a look is worth it; quiet says that all were. A look
		// that finds nothing ends the epoch.
		waiters []waiter
		epoch   uint64
		quiet   bool
		due     bool // some of waiters are to be told

		news   []news // to be published
		saying bool   // somebody is publishing
		marked int64  // when it has failed or turned last; 0: never
		turns  *turns // nil: none yet
		unwell int64  // since when it is not closed, probes that failed included; 0: it is, or that is not known
		save   saveState
	}
}

// undecided counts deliveries of a state of the circuit that have failed, while it is judged
// whether that counts. gen is the generation of their passes: after a transition none counts.
type undecided struct {
	gen uint64
	n   int
}

// waiter is an owner of machines with messages blocked at a circuit.
type waiter struct {
	owner queue.Owner
	n     int    // how often it waits: both sides of a machine may
	told  uint64 // the epoch in which it was told to look
	due   bool   // it is to be told, by Announce
}

// newCircuit returns one that begins closed, or as its record e says if it is shared.
func newCircuit(r *Registry, key string, s Settings, now int64, e fleet.Entry) *Circuit {
	c := &Circuit{key: key, r: r, idle: -1}
	if r.opt.Fleet != nil && r.opt.Shares(key) {
		c.mu.share = r.newShare(key, &s, now, e)
	}
	c.mu.m = breaker.NewMachine(s.Breaker)
	c.mu.settings = s
	c.mu.failures.Set(s.MaxFailures, int64(s.FailureWindow), now)
	c.mu.epoch = 1
	return c
}

// Key is the circuit key.
func (c *Circuit) Key() string { return c.key }

// Admits says how many messages could go at time now: math.MaxInt64 when closed.
// If it is 0, at is when to look again; math.MaxInt64 is when told (see Wait).
func (c *Circuit) Admits(now int64) (n, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, at = c.admits(now, false); n == 0 {
		c.lookedInVain()
	}
	return n, at
}

// Peek is Admits for those who only look: nobody has to be told afterwards.
func (c *Circuit) Peek(now int64) (n, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admits(now, true)
}

// lookedInVain notes that somebody has nothing to hope for before the next change,
// of which it must be told. It is not known who that is: all will be told. Its
// caller holds mu.
func (c *Circuit) lookedInVain() {
	c.mu.epoch++
	c.mu.quiet = false
}

// Allow asks to deliver one message at time now; 0 is no. A pass that is granted
// must be given to Done, before the Drop of the use that it came from.
func (c *Circuit) Allow(now int64) (pass breaker.Pass, pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.share != nil {
		return c.allowShared(now)
	}
	if c.awaitsVerdicts() {
		c.lookedInVain()
		return 0, false
	}
	pass, change := c.mu.m.Allow(now)
	switch {
	case pass == 0:
		c.lookedInVain()
	case change.Turned():
		c.turned(change, causeTime)
		pending = true
	}
	return pass, pending
}

// Done takes a pass back at time now, with how the delivery ended. The zero pass is
// ignored; one of an earlier state counts for nothing.
func (c *Circuit) Done(pass breaker.Pass, now int64, o breaker.Outcome) (pending bool) {
	if pass == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	awaited := c.awaitsVerdicts()
	pending = c.done(pass, now, o)
	return c.resume(awaited) || pending
}

// Undecided notes that the delivery of a pass has failed, and that it is still judged whether
// this counts. Decided takes the pass back. Until then a closed circuit counts the failure
// towards its threshold, and a half-open one lets no further probe through, so that nothing
// goes that must not go if the verdict is a failure.
func (c *Circuit) Undecided(pass breaker.Pass, _ int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gen := c.machine().Gen()
	if uint64(pass) != gen {
		return // it counts for nothing
	}
	if c.mu.undecided.gen != gen {
		c.mu.undecided = undecided{gen: gen}
	}
	c.mu.undecided.n++
}

// Decided is Done for a pass that Undecided had.
func (c *Circuit) Decided(pass breaker.Pass, now int64, o breaker.Outcome) (pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	awaited := c.awaitsVerdicts()
	if u := &c.mu.undecided; u.n > 0 && uint64(pass) == u.gen {
		u.n--
	}
	pending = c.done(pass, now, o)
	return c.resume(awaited) || pending
}

// resume tells those who waited for verdicts, if they need not any more: a success of another
// delivery may have ended the row as well. Its caller holds mu.
func (c *Circuit) resume(awaited bool) (pending bool) {
	if !awaited || c.awaitsVerdicts() {
		return false
	}
	c.tell()
	return c.pending()
}

// awaitsVerdicts reports whether nothing may be admitted before it is known whether failures
// count. Its caller holds mu.
func (c *Circuit) awaitsVerdicts() bool {
	u := &c.mu.undecided
	if u.n == 0 {
		return false
	}
	m := c.machine()
	switch {
	case u.gen != m.Gen():
		return false
	case m.State() == breaker.Closed:
		return c.failuresInRow()+u.n >= m.Config().Threshold
	}
	return m.State() == breaker.HalfOpen
}

// failuresInRow are those that are known here. Its caller holds mu.
func (c *Circuit) failuresInRow() int {
	if c.mu.share != nil {
		return c.mu.share.r.Failures(0)
	}
	return c.mu.m.Info(0).ConsecutiveFailures
}

// done is Done under mu.
func (c *Circuit) done(pass breaker.Pass, now int64, o breaker.Outcome) (pending bool) {
	if c.mu.share != nil {
		return c.doneShared(pass, now, o)
	}
	change, counted := c.mu.m.Done(now, pass, o)
	if o == breaker.Failure {
		c.mu.marked = now
	}
	if !counted || o != breaker.Failure && !change.Turned() && c.mu.m.State() == breaker.Closed {
		return false
	}
	switch {
	case o == breaker.Failure && c.mu.failures.Add(now):
		c.tooManyFailures(change, now)
	case change.New == breaker.Closed && change.Turned():
		c.turned(change, causeProbes)
	case change.Turned():
		c.turned(change, causeFailures)
	}
	// A place for a probe is free, or the time to look again is another one.
	if change.Turned() || c.mu.m.State() != breaker.Closed {
		c.tell()
	}
	return c.pending()
}

// tooManyFailures opens the circuit because of those in the window, after the last
// of them has made the transition change, if any. Its caller holds mu.
func (c *Circuit) tooManyFailures(change breaker.Change, now int64) {
	until, s := c.holdUntil(now), &c.mu.settings
	if byHand := c.mu.m.Open(now, until, breaker.HalfOpen); !change.Turned() {
		change = byHand
	}
	c.turned(change, causeMaxFailures)
	c.mu.news = append(c.mu.news, news{until: until, failures: s.MaxFailures + 1, window: s.FailureWindow})
	c.r.opt.Held()
}

// holdUntil is until when too many failures open the circuit at time now. Its caller
// holds mu.
func (c *Circuit) holdUntil(now int64) int64 {
	if hold := int64(c.mu.settings.FailureHold); hold > 0 && now < math.MaxInt64-hold {
		return now + hold
	}
	return math.MaxInt64
}

// RetryAfter shuts the circuit for everybody until the given time, since the
// destination has asked for it. It never shortens an opening; afterwards the
// circuit is closed again if it was closed before.
func (c *Circuit) RetryAfter(now, until int64) (pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lapse(now)
	if c.mu.share != nil {
		if until > now {
			c.doShared(now, record.Step{Kind: record.RetryAfter, Until: c.toFleet(until)})
		}
		return c.pending()
	}
	before := c.mu.m.OpenUntil()
	change := c.mu.m.RetryAfter(now, until)
	switch {
	case change.Turned():
		c.turned(change, causeRetryAfter)
		c.tell()
	case c.mu.m.OpenUntil() != before:
		c.mu.save.dirty = true // longer; those who wait see it when they look
	}
	return c.pending()
}

// open shuts the circuit by hand until the given time, math.MaxInt64 being for
// good. after is what follows for one that was closed, client who asks for it.
func (c *Circuit) open(now, until int64, after breaker.State, client string) {
	c.openSince(now, now, until, after, client)
}

// openSince is open by somebody who has decided it at time since: what has become of a
// shared circuit since then counts for more.
func (c *Circuit) openSince(now, since, until int64, after breaker.State, client string) {
	c.byHand(now, func() {
		if c.mu.share != nil {
			c.doShared(now, record.Step{
				Kind: record.Open, At: c.toFleet(since), Until: c.toFleet(until), After: after, Cause: causeByHand, Client: client,
			})
			return
		}
		was := c.mu.m.Save()
		if was.State == breaker.Open && was.OpenUntil == until && c.mu.cause == causeByHand &&
			(was.After == after || was.After == breaker.HalfOpen) {
			return // a pause that a restart has brought back, or a repetition
		}
		change := c.mu.m.Open(now, until, after)
		if !change.Turned() { // it was open, but until another time
			change = breaker.Change{
				Old: breaker.Open, New: breaker.Open,
				ConsecutiveFailures: c.mu.m.Info(now).ConsecutiveFailures, At: now,
			}
		}
		c.turned(change, causeByHand)
		c.mu.client = client
		c.tell()
	})
}

// close makes it closed now, whatever has opened it, with no failures in a row. forget
// forgets the failures that MaxFailures counts as well.
func (c *Circuit) close(now int64, forget bool) {
	c.byHand(now, func() {
		if forget {
			c.mu.failures.Clear()
		}
		awaited := c.awaitsVerdicts()
		if c.mu.share != nil {
			c.doShared(now, record.Step{Kind: record.Reset, At: c.toFleet(now)})
		} else {
			c.ended(c.mu.m.Reset(now))
		}
		c.resume(awaited)
	})
}

// release ends an opening by hand, or one by MaxFailures, before its time.
func (c *Circuit) release(now int64) {
	c.byHand(now, func() {
		if c.mu.share != nil {
			c.doShared(now, record.Step{Kind: record.Release, At: c.toFleet(now)})
		} else if c.mu.cause == causeByHand || c.mu.cause == causeMaxFailures {
			c.ended(c.mu.m.Release(now))
		}
	})
}

// byHand makes a change under mu and announces it.
func (c *Circuit) byHand(now int64, do func()) {
	c.mu.Lock()
	c.lapse(now)
	do()
	c.mu.Unlock()
	c.Announce()
}

// ended notes what has ended an opening by hand. Its caller holds mu.
func (c *Circuit) ended(change breaker.Change) {
	if change.Turned() {
		c.turned(change, causeByHand)
		c.tell()
	}
}

// set changes the limits.
func (c *Circuit) set(s Settings, now int64) {
	c.mu.Lock()
	if c.mu.share != nil {
		c.mu.share.r.SetConfig(s.Breaker, c.r.limitsSetAt(c.key))
		c.absorb()
	}
	was := c.mu.m.OpenUntil()
	changed := c.mu.m.Config() != s.Breaker
	c.mu.m.SetConfig(s.Breaker)
	c.mu.settings = s
	c.mu.failures.Set(s.MaxFailures, int64(s.FailureWindow), now)
	if c.mu.m.OpenUntil() != was {
		c.mu.save.dirty = true
	}
	if changed {
		c.tell()
	}
	c.mu.Unlock()
	c.Announce()
}

// lapse makes the transition to closed that time has brought. Its caller holds mu.
func (c *Circuit) lapse(now int64) {
	if c.mu.share != nil {
		c.admits(now, true)
		return
	}
	if change := c.mu.m.Settle(now); change.Turned() {
		c.turned(change, causeTime)
	}
}

// forgive closes a circuit that would admit something, and forgets its row of
// failures. Those of MaxFailures count until their window is over, or that limit
// would be exceeded. Its caller holds mu.
func (c *Circuit) forgive(now int64) {
	if n, _ := c.admits(now, true); n == 0 || c.mu.failures.Count(now) > 0 || c.mu.share != nil {
		return // a shared one has its record
	}
	if change := c.mu.m.Reset(now); change.Turned() {
		c.turned(change, causeUnused)
	}
}

// forgettable reports whether a new circuit would be the same as this one, which
// nobody uses. Its caller holds mu.
func (c *Circuit) forgettable(now int64) bool {
	if c.mu.saying || c.mu.save.saving || c.mu.failures.Count(now) > 0 || c.machine().State() != breaker.Closed {
		return false
	}
	if sh := c.mu.share; sh != nil {
		// Failures that the record has in mind are there for the next one.
		return !sh.r.Pending() && (!sh.r.Alone() || sh.r.Failures(c.toFleet(now)) == 0)
	}
	return c.mu.m.Info(now).ConsecutiveFailures == 0
}

// turned notes a transition, to be published and written. Its caller holds mu.
func (c *Circuit) turned(change breaker.Change, cause string) {
	c.mark(change)
	n := changed(change, cause)
	switch change.New {
	case breaker.Open:
		c.mu.cause, c.mu.client = cause, ""
		n.until, n.threshold = c.mu.m.OpenUntil(), c.mu.m.Config().Threshold
		c.mu.save.dirty = true
	case breaker.Closed:
		c.mu.cause, c.mu.client = "", ""
		c.mu.save.dirty = true
	default:
		// What is on disk is the opening before, whose time is over, or after a
		// release is not.
		c.mu.save.dirty = c.mu.save.dirty || cause != causeTime
	}
	c.mu.news = append(c.mu.news, n)
}

// Wait notes that o has messages blocked here. From now on it is told when the
// circuit may admit more by an outcome or by hand, or when the time that Admits
// gave has changed: once until somebody has looked with Admits, and found it shut.
// What opens by time each queue sees by its own timer; since the circuit may have
// changed after the look that made o wait, o is told at once if another look is
// worth it.
func (c *Circuit) Wait(o queue.Owner, now int64) (pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.waiting(o)
	if i < 0 {
		i = len(c.mu.waiters)
		c.mu.waiters = append(c.mu.waiters, waiter{owner: o})
	}
	w := &c.mu.waiters[i]
	w.n++
	w.told, c.mu.quiet = 0, false
	if n, at := c.admits(now, false); n > 0 || at != math.MaxInt64 {
		w.told, w.due, c.mu.due = c.mu.epoch, true, true
	}
	return c.pending()
}

// Leave is the opposite of Wait.
func (c *Circuit) Leave(o queue.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.waiting(o)
	if i < 0 {
		return
	}
	if c.mu.waiters[i].n--; c.mu.waiters[i].n == 0 {
		c.mu.waiters = slices.Delete(c.mu.waiters, i, i+1)
	}
}

// waiting finds o among the waiters, or returns -1. Its caller holds mu.
func (c *Circuit) waiting(o queue.Owner) int {
	return slices.IndexFunc(c.mu.waiters, func(w waiter) bool { return w.owner == o })
}

// tell marks the waiters that have not been told yet. Its caller holds mu.
func (c *Circuit) tell() {
	if c.mu.quiet {
		return
	}
	for i := range c.mu.waiters {
		if w := &c.mu.waiters[i]; w.told != c.mu.epoch {
			w.told, w.due, c.mu.due = c.mu.epoch, true, true
		}
	}
	c.mu.quiet = true
}
