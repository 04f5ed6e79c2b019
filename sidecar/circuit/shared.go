package circuit

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/fleet/record"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// recordKind is the prefix of records of circuits in the bucket of a fleet.
const recordKind = "c"

// share is the state of a shared circuit: a replica of its record instead of a machine. Its times
// are of the fleet's clock, all others of this host's.
type share struct {
	r       *record.Replica
	settled []chan error // each gets a value when pending changes count
	byHand  bool         // it was open by hand at the last absorb
	resumed bool         // another instance has ended an opening by hand; to be reported
	foreign bool         // the record cannot be read: the circuit is not shared meanwhile
}

// newShare begins with the known record. Its caller holds r.mu.
func (r *Registry) newShare(key string, s *Settings, now int64, e fleet.Entry) *share {
	sh := &share{}
	now += r.opt.Fleet.Offset()
	rec, readable := r.decode(key, e)
	sh.r = record.NewReplica(r.opt.Fleet.Me(), s.Breaker, now, e.Rev, rec)
	sh.r.SetConfig(s.Breaker, r.limitsSetAt(key))
	sh.foreign = !readable
	if r.opt.Fleet.Away() != nil || sh.foreign {
		sh.r.Away(now)
	}
	sh.byHand = sh.r.Cause() == causeByHand
	sh.r.News()
	if _, differs := sh.r.Terms(); differs != nil || sh.r.Pending() {
		r.opt.Fleet.Touch(recordKind, key) // Swap reports the conflict or writes newer limits
	}
	return sh
}

// decode decodes a record. One that cannot be read is never overwritten.
func (r *Registry) decode(key string, e fleet.Entry) (rec record.Circuit, readable bool) {
	if e.Value == nil {
		return rec, true
	}
	rec, err := record.Decode(e.Value)
	switch {
	case errors.Is(err, record.ErrVersion):
		r.opt.Log.Error("a newer version of fila has written the shared record of a circuit; this fila decides alone about it", "circuit", key, "error", err)
	case err != nil:
		r.opt.Log.Error("the shared record of a circuit cannot be read; it is local until the record is deleted", "circuit", key, "error", err)
	}
	return rec, err == nil
}

// toFleet and toHost convert times; math.MaxInt64 means no time.
func (c *Circuit) toFleet(t int64) int64 { return shift(t, c.r.opt.Fleet.Offset()) }
func (c *Circuit) toHost(t int64) int64  { return shift(t, -c.r.opt.Fleet.Offset()) }

func shift(t, by int64) int64 {
	if t == 0 || t == math.MaxInt64 {
		return t
	}
	return max(t+by, 1)
}

// machine returns the machine of the circuit, with times of the fleet's clock if it is shared. Its
// caller holds mu.
func (c *Circuit) machine() *breaker.Machine {
	if c.mu.share != nil {
		return c.mu.share.r.Machine()
	}
	return &c.mu.m
}

// admits is Admits, or Peek with look. Its caller holds mu.
func (c *Circuit) admits(now int64, look bool) (n, at int64) {
	if c.mu.share == nil {
		n, at = c.mu.m.Admits(now)
	} else {
		n, at = c.mu.share.r.Admits(c.toFleet(now), look)
		c.absorb()
		at = c.toHost(at)
	}
	if n > 0 && c.awaitsVerdicts() {
		return 0, math.MaxInt64
	}
	return n, at
}

// absorb handles changes of the replica and requests a swap if it has something to write. Its caller
// holds mu.
func (c *Circuit) absorb() {
	c.takeNews()
	if c.mu.share.r.Pending() {
		c.r.opt.Fleet.Touch(recordKind, c.key)
	}
}

// takeNews handles changes of the replica. Its caller holds mu.
func (c *Circuit) takeNews() {
	sh := c.mu.share
	news, stirred := sh.r.News()
	for i := range news {
		n := &news[i]
		told := changed(n.Change, n.Cause)
		told.shared, told.version, told.by = true, n.Version, fleet.NameOf(n.By)
		told.change.At, told.changedAt = c.toHost(n.At), n.ChangedAt
		told.until, told.threshold = c.toHost(n.Until), sh.r.Machine().Config().Threshold
		c.mark(told.change, told.cause)
		c.mu.news = append(c.mu.news, told)
		c.mu.save.dirty = true
	}
	byHand := sh.r.Cause() == causeByHand
	if sh.byHand && !byHand && !sh.r.Alone() {
		rec, _ := sh.r.Record()
		sh.resumed = sh.resumed || rec.By != c.r.opt.Fleet.Me()
	}
	sh.byHand = byHand
	if stirred {
		c.markWaiters()
	}
	if sh.r.Settled() {
		answer(sh.settled, nil)
		sh.settled = nil
	}
}

// allowShared is Allow for a shared circuit. Its caller holds mu.
func (c *Circuit) allowShared(now int64) (pass breaker.Pass, pending bool) {
	if !c.awaitsVerdicts() {
		pass = c.mu.share.r.Allow(c.toFleet(now))
	}
	if pass == 0 {
		c.noteShut()
	}
	c.absorb()
	return pass, c.pending()
}

// doneShared is Done for a shared circuit. Its caller holds mu.
func (c *Circuit) doneShared(pass breaker.Pass, now int64, o breaker.Outcome, f gates.FailedCall) (pending bool) {
	r := c.mu.share.r
	counted := r.Done(c.toFleet(now), pass, o)
	c.recordFailure(now, o, f, counted)
	if counted && o == breaker.Failure && c.mu.failures.Add(now) {
		until, s := c.holdUntil(now), &c.mu.settings
		r.Do(c.toFleet(now), record.Step{
			Kind: record.Open, At: c.toFleet(now), Until: c.toFleet(until), After: breaker.HalfOpen, Cause: causeMaxFailures,
		})
		c.mu.news = append(c.mu.news, news{until: until, failures: s.MaxFailures + 1, window: s.FailureWindow})
		c.r.opt.Held()
	}
	if !counted || o == breaker.Success && !r.Pending() && r.Machine().State() == breaker.Closed {
		return false // the common case
	}
	c.absorb()
	return c.pending()
}

// doShared performs a step by hand or by RetryAfter. Its caller holds mu.
func (c *Circuit) doShared(now int64, s record.Step) {
	c.mu.share.r.Do(c.toFleet(now), s)
	c.absorb()
}

// Records is the fleet.Kind of circuits.
type Records struct{ r *Registry }

// Swap returns the next record of a circuit.
func (k Records) Swap(key string) (value []byte, over uint64, again time.Duration, ok bool) {
	c := k.r.find(key)
	if c == nil {
		return nil, 0, 0, false
	}
	c.mu.Lock()
	sh := c.mu.share
	if sh == nil {
		c.mu.Unlock()
		return nil, 0, 0, false
	}
	f := k.r.opt.Fleet
	sh.r.SetConfig(c.mu.settings.Breaker, k.r.limitsSetAt(key))
	next, over, again, ok := sh.r.Swap(f.Now(), f.Live)
	if ok {
		value = next.Encode()
	} else {
		over = 0
		c.takeNews() // steps that change nothing are dropped
	}
	conflict := c.conflict()
	c.mu.Unlock()
	k.r.report(key, conflict)
	c.Announce()
	return value, over, again, ok
}

// Learn takes in a record. The record of a circuit that is not used here creates one only if it is
// not closed.
func (k Records) Learn(key string, e fleet.Entry) { k.take(key, e, false, false) }

func (k Records) take(key string, e fleet.Entry, join, quiet bool) {
	r := k.r
	c := r.lookup(key)
	if c == nil {
		if c = k.meet(key, e, quiet); c == nil {
			if e.Value == nil {
				r.report(key, nil)
			}
			return
		}
	}
	defer r.giveBack(c)
	rec, readable := r.decode(key, e)
	c.mu.Lock()
	sh := c.mu.share
	if sh == nil {
		c.mu.Unlock()
		return
	}
	now, awaited := r.opt.Fleet.Now(), c.awaitsVerdicts()
	sh.r.SetConfig(c.mu.settings.Breaker, r.limitsSetAt(key))
	switch {
	case !readable:
		sh.foreign = true
		sh.r.Away(now)
	case join || sh.foreign:
		sh.foreign = false
		sh.r.Back(now, e.Rev, rec)
	default:
		sh.r.Learn(now, e.Rev, rec, false)
	}
	c.absorb()
	c.resume(awaited)
	conflict := c.conflict()
	resumed := sh.resumed
	sh.resumed = false
	c.mu.Unlock()
	r.report(key, conflict)
	c.Announce()
	if on := r.onResumed.Load(); resumed && on != nil {
		(*on)(key)
	}
}

// limitsSetAt returns when the limits of a key were set here, by the fleet's clock; 0: not known.
// Nodes of a cluster share that time, so none of them converts it.
func (r *Registry) limitsSetAt(key string) (at int64) {
	if f := r.setAt.Load(); f != nil {
		at = (*f)(key)
	}
	if at != 0 && r.opt.Node == "" {
		at += r.opt.Fleet.Offset()
	}
	return at
}

// conflict returns the conflict of limits to report, or nil. Its caller holds mu.
func (c *Circuit) conflict() *Conflict {
	terms, own := c.mu.share.r.Terms()
	if own == nil || c.r.opt.Kin(terms.By) {
		return nil
	}
	return &Conflict{Key: c.key, Own: *own, InForce: terms.Limits, By: fleet.NameOf(terms.By), At: terms.At}
}

// report reports a conflict of a key, unless it has been reported; nil means that there is none.
func (r *Registry) report(key string, con *Conflict) {
	r.mu.Lock()
	told, known := r.mu.conflicts[key]
	if con == nil {
		delete(r.mu.conflicts, key)
	} else {
		r.mu.conflicts[key] = con.InForce
	}
	r.mu.Unlock()
	if con != nil && (!known || told != con.InForce) {
		r.opt.Conflict(*con)
	}
}

// LimitsText formats the limits of a shared circuit for people.
func LimitsText(l breaker.Config) string {
	return fmt.Sprintf("threshold %d, cooldown %s, half_open_max_calls %d, half_open_successes %d",
		l.Threshold, l.Cooldown, l.HalfOpenMaxCalls, l.HalfOpenSuccesses)
}

// meet creates the circuit of a record that is not closed, or has older limits than this instance,
// if the circuit is shared here. With quiet, its state is not reported as news. The caller gets a use
// of the circuit, as from [Registry.lookup], because until the record is applied the circuit could be
// forgotten.
func (k Records) meet(key string, e fleet.Entry, quiet bool) *Circuit {
	r := k.r
	if e.Value == nil || !r.opt.Shares(key) {
		return nil
	}
	rec, err := record.Decode(e.Value)
	if err != nil {
		return nil
	}
	now := r.opt.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.State == breaker.Closed && !rec.Older(r.opt.Fleet.Me(), r.settings(key).Breaker, r.limitsSetAt(key)) {
		return nil
	}
	known := fleet.Entry{}
	if quiet {
		known = e
	}
	c := r.getWith(key, now, known)
	c.refs++
	r.updateIdle(c)
	return c
}

// Join takes in all existing records.
func (k Records) Join(entries map[string]fleet.Entry) {
	k.r.mu.Lock()
	all := k.r.all()
	k.r.mu.Unlock()
	for _, c := range all {
		if _, ok := entries[c.key]; !ok {
			k.take(c.key, fleet.Entry{}, true, true)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		k.take(key, entries[key], true, true)
	}
}

// Away makes every circuit act without its record.
func (k Records) Away() {
	k.r.mu.Lock()
	all := k.r.all()
	k.r.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		if c.mu.share != nil {
			c.mu.share.r.Away(k.r.opt.Fleet.Now())
			c.absorb()
		}
		c.mu.Unlock()
		c.Announce()
	}
}

// Idle reports whether a record is equal to none.
func (k Records) Idle(_ string, value []byte) bool {
	rec, err := record.Decode(value)
	return err == nil && rec.Idle(k.r.opt.Fleet.Now())
}

// find returns an existing circuit, or nil.
func (r *Registry) find(key string) *Circuit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.byKey[key]
}

// OnResumed sets the function that is called, by a goroutine of the fleet, when another instance has
// ended an opening by hand.
func (r *Registry) OnResumed(told func(key string)) { r.onResumed.Store(&told) }

// Held reports whether a shared circuit is open by hand, by any instance.
func (r *Registry) Held(key string) bool {
	c := r.known(key)
	if c == nil {
		return false
	}
	defer r.giveBack(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.share != nil && c.mu.share.r.Cause() == causeByHand
}

// describe adds the state of a shared circuit to i. Its caller holds mu.
func (c *Circuit) describe(i *api.CircuitInfo, now int64) {
	sh := c.mu.share
	rec, _ := sh.r.Record()
	at := sh.r.Machine().Info(c.toFleet(now))
	i.State, i.Cause, i.ConsecutiveFailures = at.State.String(), sh.r.Cause(), sh.r.Failures(c.toFleet(now))
	_, openedBy, client := sh.r.Opening()
	i.OpenedBy, i.OpenedByClient = fleet.NameOf(openedBy), client
	if at.State == breaker.Open {
		i.OpenUntil = openUntil(c.toHost(at.OpenUntil))
	}
	terms, own := sh.r.Terms()
	l := terms.Limits
	i.Threshold, i.CooldownMs, i.HalfOpenMaxCalls, i.HalfOpenSuccesses = l.Threshold, l.Cooldown.Milliseconds(), l.HalfOpenMaxCalls, l.HalfOpenSuccesses
	if own != nil && !c.r.opt.Kin(terms.By) {
		i.Own = &api.CircuitLimits{
			Threshold: own.Threshold, CooldownMs: own.Cooldown.Milliseconds(),
			HalfOpenMaxCalls: own.HalfOpenMaxCalls, HalfOpenSuccesses: own.HalfOpenSuccesses,
		}
		if i.LimitsBy = fleet.NameOf(terms.By); terms.At > 0 {
			i.LimitsChangedAt = wire.Timestamp(terms.At)
		}
	}
	i.Shared, i.Probes, i.Degraded = true, sh.r.Busy(), sh.r.Alone()
	if i.Degraded {
		return
	}
	i.Version, i.By, i.Probes = sh.r.Version(), fleet.NameOf(rec.TurnBy), rec.Probes
	if rec.TurnAt > 0 {
		i.ChangedAt = wire.Timestamp(rec.TurnAt)
	}
	if len(rec.Permits) > 0 {
		i.ProbesBy = make(map[string]int, len(rec.Permits))
		for holder, n := range rec.Permits {
			i.ProbesBy[fleet.NameOf(holder)] += n
		}
	}
}
