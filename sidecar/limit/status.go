package limit

import (
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/throttle"
)

// Status is how a key is shared, as far as this instance knows.
type Status struct {
	Away    bool             // the bucket cannot be reached, or the record cannot be read
	Alone   bool             // this instance applies the limits alone
	Owned   bool             // this or another instance does, so the usage in the record is out of date
	Users   map[string]int64 // permits by name of the instance
	Tokens  int64            // not leased, in thousandths
	Slots   int64            // used or leased
	InForce throttle.Limits
	By      string // name of the instance that has set InForce; empty: as set here
	SetAt   int64  // Unix ns of this host's clock; 0: not known
}

// Status returns how a key is shared. ok is false if the key has no shared gate.
func (l *Limits) Status(key string) (s Status, ok bool) {
	own, alone, shared := l.gates.Shared(key)
	mem := l.find(key)
	if !shared || mem == nil {
		return Status{}, false
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	rec, _ := mem.m.Record()
	s = Status{Away: mem.foreign != nil || l.opt.Fleet.Away() != nil, Alone: alone, Owned: alone || rec.Owner != "" || len(rec.Users) == 0, Users: make(map[string]int64, len(rec.Users)), Tokens: rec.Tokens}
	for name, u := range rec.Users {
		s.Users[fleet.NameOf(name)] += u.Permits
	}
	for _, slot := range rec.Slots {
		s.Slots += slot.N
	}
	var by string
	if s.InForce, by = mem.m.InForce(own, l.opt.SetAt(key)); s.InForce != own && !l.opt.Kin(by) {
		s.By, s.SetAt = fleet.NameOf(by), max(0, rec.Terms.At-l.opt.Fleet.Offset())
	}
	return s, true
}

// Answered returns a channel that is closed when the next record of a key has been applied;
// nil: the key has no member.
func (l *Limits) Answered(key string) <-chan struct{} {
	mem := l.find(key)
	if mem == nil {
		return nil
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if mem.answered == nil {
		mem.answered = make(chan struct{})
	}
	return mem.answered
}

// Outlook fills i with the state of the limits in the fleet. It returns the kind of limit that
// a call of this cost has to wait for, and until when (Unix ns): now if nothing is missing,
// throttle.Never if the time is unknown. ok is false if the gate does not depend on leases.
func (l *Limits) Outlook(i *throttle.Info, cost, now int64) (kind throttle.Kind, at int64, ok bool) {
	own, alone, shared := l.gates.Shared(i.Key)
	mem := l.find(i.Key)
	if !shared || alone || mem == nil || l.opt.Fleet.Away() != nil {
		return throttle.Open, 0, false
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if mem.foreign != nil {
		return throttle.Open, 0, false
	}
	limits := mem.m.Effective(own, l.opt.SetAt(i.Key))
	clock := l.read(now)
	v, known := mem.m.Level(now, clock, limits)
	kind, at = i.Kind, now
	if !known { // it is about to hand over
		return kind, at, true
	}
	later := func(k throttle.Kind, t int64) {
		if t > at {
			kind, at = k, t
		}
	}
	if full := limits.Full(); full > 0 {
		i.Tokens = v.Tokens // without leases
		i.BucketFull = limits.Rate.Takes(max(0, full-i.Tokens))
		later(throttle.ByRate, now+limits.Rate.Takes(max(0, min(cost, full)-v.Tokens)))
	}
	if limits.Limit > 0 {
		n, first, last := v.InWindow(clock, limits.Window)
		i.InWindow, i.WindowEmpty = n, max(0, last)
		if n >= limits.Limit {
			later(throttle.ByWindow, now+first)
		}
	}
	if limits.Concurrency > 0 {
		rec, _ := mem.m.Record()
		permits := int64(0)
		for _, u := range rec.Users {
			permits += u.Permits
		}
		if i.InFlight = max(i.InFlight, permits); permits >= limits.Concurrency {
			later(throttle.ByInFlight, throttle.Never)
		}
	}
	return kind, at, true
}
