package queuetest

import (
	"math/big"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/throttle/adapt"
)

// learnModel models the level of a limit that learns: when it is cut and when it may grow. How much
// a success grows it is tested in package adapt.
type learnModel struct {
	known     bool // the level that follows
	level     int64
	ceiling   int64
	cuts      uint64
	cutAt     int64
	successes int // since the level was seen
}

// overload cuts the level after the overload of a message that was delivered at a time.
func (g *gateModel) overload(delivered, now int64, expired bool) (cut bool) {
	l := &g.learn
	if a := g.limits.Adapt; a == (adapt.Settings{}) || g.limits.Level != 0 || expired && !a.Expired {
		return false
	}
	same := l.cutAt
	if g.limits.Concurrency == 0 {
		same += 5e8
	}
	if l.cuts > 0 && delivered <= same {
		return false
	}
	l.cuts++
	l.cutAt = now
	return true
}

// overloaded tells the throttle keys on the way of a delivery of an overload.
func (n *node) overloaded(by way, delivered int64, expired bool) {
	for _, key := range by.throttles {
		if n.s.gate(key).overload(delivered, n.s.clock.last, expired) {
			n.s.Seen.Cuts++
		}
	}
}

// succeeded tells them of a success.
func (n *node) succeeded(by way) {
	for _, key := range by.throttles {
		n.s.gate(key).learn.successes++
	}
}

// seeLimits compares the levels of limits that learn with the model, and notes which limits are in force.
func (s *Sim) seeLimits() {
	for i := range throttleKeys {
		key := throttleKey(i)
		info, g := s.Fleet.gate(key), s.gate(key)
		if g.limits.Adapt == (adapt.Settings{}) {
			g.seeForce(g.limits, s.clock.at)
			continue
		}
		g.seeForce(info.Limits, s.clock.at)
		s.seeLevel(key, g, info.Learned)
	}
}

func (s *Sim) seeLevel(key string, g *gateModel, now *throttle.Learned) {
	require.NotNil(s.T, now, key)
	l := &g.learn
	fail := func(what string) { require.Fail(s.T, what, "%s: %+v, was %+v", key, *now, *l) }
	switch {
	case now.Level < now.Min || now.Level > now.Ceiling:
		fail("a level out of its bounds")
	case now.Rate != (g.limits.Concurrency == 0) || !now.Rate && now.Ceiling != g.limits.Concurrency*throttle.One:
		fail("another ceiling")
	case !l.known || !s.exact:
	case now.Cuts != l.cuts || now.CutAt != l.cutAt:
		fail("cuts")
	case l.level > now.Level && now.CutAt != s.clock.last:
		fail("the level falls without a cut")
	case l.level < now.Level && (l.successes == 0 || now.Fixed):
		fail("the level grows without a success")
	}
	if l.known && now.Level > l.level {
		s.Seen.Grown++
	}
	if c := g.force.limits.Concurrency; c != 0 && g.inFlight > c {
		s.Seen.Crowded++
	}
	*l = learnModel{known: true, level: now.Level, ceiling: now.Ceiling, cuts: now.Cuts, cutAt: now.CutAt}
}

// restart models the end of a process, for the level.
func (l *learnModel) restart(crash bool) {
	if crash || l.level == l.ceiling { // cuts that were not on disk are forgotten, and a level at its ceiling is not kept
		l.known = false
	}
}

// forceModel is the limits in force over time.
type forceModel struct {
	limits  throttle.Limits
	at      int64    // of the gates' clock
	brought *big.Rat // thousandths that the rate has brought so far
}

// seeForce notes the limits that are in force from a time on.
func (g *gateModel) seeForce(l throttle.Limits, at int64) {
	f := &g.force
	if f.brought == nil {
		f.brought = new(big.Rat)
	}
	if r := f.limits.Rate; r.Per != 0 && at > f.at {
		more := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(r.Cost), big.NewInt(at-f.at)), big.NewInt(r.Per))
		f.brought = more.Add(more, f.brought)
	}
	f.limits, f.at = l, at
}

// learnSome draws a limit that learns, from limits that may be its ceiling.
func (s *Sim) learnSome(l *throttle.Limits) {
	if l.Concurrency == 0 && l.Rate.Per == 0 {
		l.Concurrency = 1
	}
	if l.Concurrency > 0 {
		l.Concurrency += pick(s, []int64{0, 2, 4})
	}
	l.Adapt = adapt.Settings{
		Min: pick(s, []int64{1, 500, 1000}), Backoff: pick(s, []int64{200, 700}),
		GrowPerS: pick(s, []int64{0, 1000, 100_000}), Start: pick(s, []int64{0, 0, 1500}), Expired: s.chance(2),
	}
	if s.chance(6) {
		l.Level = pick(s, []int64{1, 1000, 2500})
	}
}
