package circuit

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/record"
	"github.com/filaq/fila/sidecar/queue/gates"
)

// Causes of openings and of closings, in events and in api.CircuitInfo.
const (
	causeFailures    = record.CauseFailures
	causeRetryAfter  = record.CauseRetryAfter
	causeByHand      = record.CauseByHand
	causeMaxFailures = record.CauseMaxFailures
	causeTime        = record.CauseTime   // the opening is over
	causeProbes      = record.CauseProbes // probes have succeeded
	causeUnused      = "unused"           // forgotten
)

// Circuit is the circuit breaker of a circuit key, around one destination that consumers call. Its
// methods may be called from any goroutine.
//
// mu is held for a few instructions only. Under it, the circuit calls nothing outside except
// Fleet.Touch, which only records, and lookups: who lives, who is kin, when limits were set.
type Circuit struct {
	key string
	r   *Registry

	refs int // guarded by r.mu
	idle int // index in r.mu.idle, -1: none; guarded by r.mu

	since int64        // when it was created
	held  atomic.Int64 // messages that began to wait, and refused calls

	mu struct {
		sync.Mutex
		share    *share          // nil: the circuit is not shared
		m        breaker.Machine // if it is not shared
		cause    string          // of the opening of m; empty if closed
		client   string          // that opened it by hand, if known
		settings Settings
		failures breaker.FailureWindow
		awaiting awaiting

		// waiters are in the order of their arrival. Those woken in the present epoch know
		// that a recheck is worth it; quiet means that all were. A recheck that finds the
		// circuit shut ends the epoch.
		waiters []waiter
		epoch   uint64
		quiet   bool
		due     bool // some waiters are due

		news        []news       // to be published
		publishing  bool         // a goroutine is publishing
		marked      int64        // time of the last failure or transition; 0: none
		transitions *transitions // nil: none yet
		past        *past        // nil: no transition and no failure yet
		unwell      int64        // since when it is not closed, including failed probes; 0: it is, or unknown
		save        saveState
	}
}

// awaiting counts failed deliveries that are still being judged. gen is the generation of their
// passes: after a transition none counts.
type awaiting struct {
	gen uint64
	n   int
}

// waiter is the owner of a machine with messages blocked at the circuit.
type waiter struct {
	owner gates.Owner
	n     int    // number of waits: both roles of a machine may wait
	woken uint64 // epoch in which it was last woken
	due   bool   // Announce will wake it
}

// newCircuit returns a closed circuit, or one as in its record e if it is shared.
func newCircuit(r *Registry, key string, s Settings, now int64, e fleet.Entry) *Circuit {
	c := &Circuit{key: key, r: r, idle: -1, since: now}
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

// Admits returns how many messages may go now: math.MaxInt64 when closed. If it is 0, at is when to
// check again; math.MaxInt64 means when woken (see Wait).
func (c *Circuit) Admits(now int64) (n, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, at = c.admits(now, false); n == 0 {
		c.noteShut()
	}
	return n, at
}

// Peek is Admits without asking to be woken.
func (c *Circuit) Peek(now int64) (n, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admits(now, true)
}

// AdmitsBy returns how many messages the circuit would admit until a time if no outcome changed
// it before.
func (c *Circuit) AdmitsBy(now, until int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, at := c.admits(now, true)
	if n > 0 || at > until {
		return n
	}
	m := &c.mu.m
	if c.mu.share != nil {
		m, at = c.mu.share.r.Machine(), c.toFleet(at)
	}
	n, _ = m.Admits(at)
	return n
}

// noteShut records that a caller has found the circuit shut and has to be woken by the next
// change. It is not known which one, so all will be. Its caller holds mu.
func (c *Circuit) noteShut() {
	c.mu.epoch++
	c.mu.quiet = false
}

// Allow asks to deliver one message; 0 means no. A pass must be given to Done, before the Drop of
// the use that it came from.
func (c *Circuit) Allow(now int64) (pass breaker.Pass, pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.share != nil {
		return c.allowShared(now)
	}
	if c.awaitsVerdicts() {
		c.noteShut()
		return 0, false
	}
	pass, change := c.mu.m.Allow(now)
	switch {
	case pass == 0:
		c.noteShut()
	case change.Turned():
		c.recordTransition(change, causeTime)
		pending = true
	}
	return pass, pending
}

// Done returns a pass with the outcome of the delivery. It ignores the zero pass; a pass of an
// earlier generation counts for nothing.
func (c *Circuit) Done(pass breaker.Pass, now int64, o breaker.Outcome) (pending bool) {
	return c.returnPass(pass, now, o, gates.FailedCall{}, false)
}

// Failed is Done, or Decided if judged is set, for a failure. The circuit remembers f as its last
// failure if it counts.
func (c *Circuit) Failed(pass breaker.Pass, now int64, f gates.FailedCall, judged bool) (pending bool) {
	return c.returnPass(pass, now, breaker.Failure, f, judged)
}

// returnPass returns a pass; f is the call of a failure, judged as in Failed.
func (c *Circuit) returnPass(pass breaker.Pass, now int64, o breaker.Outcome, f gates.FailedCall, judged bool) (pending bool) {
	if pass == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	awaited := c.awaitsVerdicts()
	if u := &c.mu.awaiting; judged && u.n > 0 && uint64(pass) == u.gen {
		u.n--
	}
	pending = c.done(pass, now, o, f)
	return c.resume(awaited) || pending
}

// AwaitVerdict records that the delivery of a pass has failed and is still being judged; Decided
// returns the pass. Until then a closed circuit counts the failure towards its threshold, and a
// half-open one admits no further probe, so that nothing goes that must not go if the failure
// counts.
func (c *Circuit) AwaitVerdict(pass breaker.Pass, _ int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gen := c.machine().Gen()
	if uint64(pass) != gen {
		return // a pass of an earlier generation
	}
	if c.mu.awaiting.gen != gen {
		c.mu.awaiting = awaiting{gen: gen}
	}
	c.mu.awaiting.n++
}

// Decided is Done for a pass of AwaitVerdict.
func (c *Circuit) Decided(pass breaker.Pass, now int64, o breaker.Outcome) (pending bool) {
	return c.returnPass(pass, now, o, gates.FailedCall{}, true)
}

// resume wakes the waiters if verdicts no longer hold them back (awaited: they did before). A success
// of another delivery may be the reason. Its caller holds mu.
func (c *Circuit) resume(awaited bool) (pending bool) {
	if !awaited || c.awaitsVerdicts() {
		return false
	}
	c.markWaiters()
	return c.pending()
}

// awaitsVerdicts reports whether nothing may be admitted until it is known whether failures count.
// Its caller holds mu.
func (c *Circuit) awaitsVerdicts() bool {
	u := &c.mu.awaiting
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

// cause returns the cause of the opening, empty if the circuit is closed. Its caller holds mu.
func (c *Circuit) cause() string {
	if c.mu.share != nil {
		return c.mu.share.r.Cause()
	}
	return c.mu.cause
}

// failuresInRow returns the consecutive failures known here. Its caller holds mu.
func (c *Circuit) failuresInRow() int {
	if c.mu.share != nil {
		return c.mu.share.r.Failures(0)
	}
	return c.mu.m.Info(0).ConsecutiveFailures
}

// done returns a pass; f is the call of a failure. Its caller holds mu.
func (c *Circuit) done(pass breaker.Pass, now int64, o breaker.Outcome, f gates.FailedCall) (pending bool) {
	if c.mu.share != nil {
		return c.doneShared(pass, now, o, f)
	}
	change, counted := c.mu.m.Done(now, pass, o)
	c.recordFailure(now, o, f, counted)
	if !counted || o != breaker.Failure && !change.Turned() && c.mu.m.State() == breaker.Closed {
		return false
	}
	switch {
	case o == breaker.Failure && c.mu.failures.Add(now):
		c.tooManyFailures(change, now)
	case change.New == breaker.Closed && change.Turned():
		c.recordTransition(change, causeProbes)
	case change.Turned():
		c.recordTransition(change, causeFailures)
	}
	// There is room for another probe, or the time of the next check has changed.
	if change.Turned() || c.mu.m.State() != breaker.Closed {
		c.markWaiters()
	}
	return c.pending()
}

// recordFailure records a failure. A late one, which no longer counts, is not the last failure of a
// circuit that others have opened. It is if a Retry-After has: that comes with a failure and ends
// the state in which the failure would count. Its caller holds mu.
func (c *Circuit) recordFailure(now int64, o breaker.Outcome, f gates.FailedCall, counted bool) {
	if o != breaker.Failure {
		return
	}
	c.mu.marked = now
	p := c.remember()
	p.failures.add(now)
	if cause := c.cause(); counted || cause != causeFailures && cause != causeMaxFailures {
		p.setLast(now, f)
	}
}

// tooManyFailures opens the circuit because of the failures in the window. change is the transition
// that the last of them has caused, if any. Its caller holds mu.
func (c *Circuit) tooManyFailures(change breaker.Change, now int64) {
	until, s := c.holdUntil(now), &c.mu.settings
	if byHand := c.mu.m.Open(now, until, breaker.HalfOpen); !change.Turned() {
		change = byHand
	}
	c.recordTransition(change, causeMaxFailures)
	c.mu.news = append(c.mu.news, news{until: until, failures: s.MaxFailures + 1, window: s.FailureWindow})
	c.r.opt.Held()
}

// holdUntil returns the end of an opening by too many failures. Its caller holds mu.
func (c *Circuit) holdUntil(now int64) int64 {
	if hold := int64(c.mu.settings.FailureHold); hold > 0 && now < math.MaxInt64-hold {
		return now + hold
	}
	return math.MaxInt64
}

// RetryAfter opens the circuit until a time, because the destination has asked for it. It never
// shortens an opening. Afterwards the circuit is closed if it was closed before.
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
		c.recordTransition(change, causeRetryAfter)
		c.markWaiters()
	case c.mu.m.OpenUntil() != before:
		c.mu.save.dirty = true // longer; waiters see that at their next check
	}
	return c.pending()
}

// open opens the circuit by hand until a time; math.MaxInt64 means until closed by hand. after is
// the state that follows for a closed circuit, client the client that asks.
func (c *Circuit) open(now, until int64, after breaker.State, client string) {
	c.openSince(now, now, until, after, client)
}

// openSince is open for a decision made at time since: later changes of a shared circuit win.
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
			return // a pause repeated after a restart
		}
		change := c.mu.m.Open(now, until, after)
		if !change.Turned() { // it was open until another time
			change = breaker.Change{
				Old: breaker.Open, New: breaker.Open,
				ConsecutiveFailures: c.mu.m.Info(now).ConsecutiveFailures, At: now,
			}
		}
		c.recordTransition(change, causeByHand)
		c.mu.client = client
		c.markWaiters()
	})
}

// close closes the circuit, whatever has opened it, and clears its consecutive failures; with
// forget also the failures that MaxFailures counts.
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

// release ends an opening by hand or by MaxFailures before its time.
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

// ended records the end of an opening by hand. Its caller holds mu.
func (c *Circuit) ended(change breaker.Change) {
	if change.Turned() {
		c.recordTransition(change, causeByHand)
		c.markWaiters()
	}
}

// set sets the limits.
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
		c.markWaiters()
	}
	c.mu.Unlock()
	c.Announce()
}

// lapse makes the transition to closed that is due by time. Its caller holds mu.
func (c *Circuit) lapse(now int64) {
	if c.mu.share != nil {
		c.admits(now, true)
		return
	}
	if change := c.mu.m.Advance(now); change.Turned() {
		c.recordTransition(change, causeTime)
	}
}

// forgive closes a circuit that would admit something and clears its consecutive failures, unless
// it is shared or failures in the window of MaxFailures still count. Its caller holds mu.
func (c *Circuit) forgive(now int64) {
	if n, _ := c.admits(now, true); n == 0 || c.mu.failures.Count(now) > 0 || c.mu.share != nil {
		return // the record of a shared one has its failures
	}
	if change := c.mu.m.Reset(now); change.Turned() {
		c.recordTransition(change, causeUnused)
	}
}

// forgettable reports whether a new circuit would be equal to this unused one. Its caller holds mu.
func (c *Circuit) forgettable(now int64) bool {
	if c.mu.publishing || c.mu.save.saving || c.mu.failures.Count(now) > 0 || c.machine().State() != breaker.Closed {
		return false
	}
	if sh := c.mu.share; sh != nil {
		// A later circuit of this key gets the failures of the record.
		return !sh.r.Pending() && (!sh.r.Alone() || sh.r.Failures(c.toFleet(now)) == 0)
	}
	return c.mu.m.Info(now).ConsecutiveFailures == 0
}

// recordTransition records a transition, to publish and to write. Its caller holds mu.
func (c *Circuit) recordTransition(change breaker.Change, cause string) {
	c.mark(change, cause)
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
		// The store has the opening before, whose time is over, unless it was released.
		c.mu.save.dirty = c.mu.save.dirty || cause != causeTime
	}
	c.mu.news = append(c.mu.news, n)
}

// Wait records that o has messages blocked here. It is woken when the circuit may admit more by an
// outcome or by hand, or when the time that Admits returned has changed: once, until a caller of
// Admits has found the circuit shut again. For openings that end by time each queue has its own
// timer. Since the circuit may have changed after the check that made o wait, o is woken at once if
// another check is worth it.
func (c *Circuit) Wait(o gates.Owner, now int64) (pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.waiting(o)
	if i < 0 {
		i = len(c.mu.waiters)
		c.mu.waiters = append(c.mu.waiters, waiter{owner: o})
	}
	w := &c.mu.waiters[i]
	w.n++
	w.woken, c.mu.quiet = 0, false
	if n, at := c.admits(now, false); n > 0 || at != math.MaxInt64 {
		w.woken, w.due, c.mu.due = c.mu.epoch, true, true
	}
	return c.pending()
}

// Leave undoes one Wait.
func (c *Circuit) Leave(o gates.Owner) {
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

// waiting returns the index of o among the waiters, or -1. Its caller holds mu.
func (c *Circuit) waiting(o gates.Owner) int {
	return slices.IndexFunc(c.mu.waiters, func(w waiter) bool { return w.owner == o })
}

// markWaiters marks the waiters that have not been woken in this epoch. Its caller holds mu.
func (c *Circuit) markWaiters() {
	if c.mu.quiet {
		return
	}
	for i := range c.mu.waiters {
		if w := &c.mu.waiters[i]; w.woken != c.mu.epoch {
			w.woken, w.due, c.mu.due = c.mu.epoch, true, true
		}
	}
	c.mu.quiet = true
}
