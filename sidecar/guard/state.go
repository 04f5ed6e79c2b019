package guard

import (
	"math"
	"time"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire/api"
)

// Retry times of refusals whose end is unknown: until a queue passes the turn, until a call under
// way may have ended, until requests arrive in time again.
const (
	lateRetryAfter = 50 * time.Millisecond
	turnRetryAfter = 50 * time.Millisecond
	busyRetryAfter = 200 * time.Millisecond
)

// state describes a key for a caller by its limits and its circuit; with shared, only by those
// that filas share. It takes nothing.
func (g *Service) state(key string, from origin, shared bool) api.GuardStatus {
	now := g.opt.Now()
	st := api.GuardStatus{Key: key, Answer: api.GuardAnswer{Allowed: true}, Limits: []api.GuardLimit{}}
	full := g.room([]string{key}, from.holder(), nil, now) // before stateOfLimits makes its gate
	g.atTime(now, func() { st.Permits = g.mu.byKey[key] })
	if !shared || g.opt.SharesLimits(key) {
		g.stateOfLimits(&st, now)
	}
	if info, ok := g.opt.Circuits.Info(key); ok && (info.Shared || !shared) {
		st.Circuit = &info
		c := g.opt.Circuits.Use(key, now)
		if n, at := c.Peek(now); n <= 0 {
			st.Answer = g.byCircuit(key, at, now)
		}
		for _, c := range g.opt.Circuits.Drop(c, now, nil) {
			c.Announce()
		}
	}
	if full != nil {
		st.Answer = full.answer(key)
	}
	return st
}

func (g *Service) stateOfLimits(st *api.GuardStatus, now int64) {
	set, err := g.opt.Gates.Set([]string{st.Key}, now)
	if err != nil { // impossible with one key
		return
	}
	defer g.opt.Gates.Close(set, now)
	for _, gate := range set.Gates() {
		info := gate.Info(now)
		if g.opt.Fleet != nil {
			g.opt.Fleet.Outlook(&info, throttle.One, now)
		}
		for _, kind := range []throttle.Kind{throttle.ByRate, throttle.ByWindow, throttle.ByInFlight} {
			if l := limit(&info, kind, now); l != nil {
				st.Limits = append(st.Limits, *l)
			}
		}
	}
	if block, ok := set.Check(now, throttle.One, throttle.Guest); !ok && !block.Unbooked {
		if answer, missing := g.byThrottle(block, throttle.One, now); missing == "" {
			st.Answer = answer // otherwise there is enough, and a check would get a lease
		}
	}
}

// byCircuit is the refusal by a circuit that admits again at a time.
func (g *Service) byCircuit(key string, at, now int64) api.GuardAnswer {
	a := api.GuardAnswer{Gate: "circuit", Key: key}
	if at == math.MaxInt64 {
		if info, _ := g.opt.Circuits.Info(key); info.OpenUntil == "closed" {
			return a // only an operator closes it
		}
		at = now + int64(busyRetryAfter) // probes are under way
	}
	a.RetryAfterMs = millis(at - now)
	return a
}

// byThrottle is the refusal by the gate of a throttle key. missing is the key if the fleet can
// lease what the call needs.
func (g *Service) byThrottle(b throttle.Block, cost, now int64) (a api.GuardAnswer, missing string) {
	info, kind, at := b.Gate.Info(now), b.Kind, b.At
	if g.opt.Fleet != nil && (kind == throttle.ByRate || kind == throttle.ByWindow || kind == throttle.ByInFlight) {
		if k, t, ok := g.opt.Fleet.Outlook(&info, cost, now); ok {
			kind, at = k, t
			if at <= now {
				missing, at = info.Key, now+int64(leaseRetryAfter)
			}
		}
	}
	if kind == throttle.ByBudget && at == throttle.Never && g.opt.Fleet != nil && g.opt.Fleet.BudgetComes(info.Key) {
		missing, at = info.Key, now+int64(leaseRetryAfter)
	}
	a = api.GuardAnswer{Gate: kind.String(), Key: info.Key}
	switch {
	case at != throttle.Never:
	case kind == throttle.ByTurn, kind == throttle.ByRate, kind == throttle.ByWindow:
		// By rate or window, leases end within busyRetryAfter.
		at = now + int64(turnRetryAfter)
	case kind != throttle.ByPause:
		at = now + int64(busyRetryAfter)
	}
	if at != throttle.Never {
		a.RetryAfterMs = millis(at - now)
	}
	a.Limit = limit(&info, kind, now)
	return a, missing
}

// limit describes a limit of a gate; nil if it has none of that kind.
func limit(i *throttle.Info, kind throttle.Kind, now int64) *api.GuardLimit {
	l := &api.GuardLimit{Key: i.Key, Gate: kind.String()}
	var reset int64
	switch {
	case kind == throttle.ByRate && i.Limits.Rate != (throttle.Rate{}):
		l.Limit, l.Remaining, reset = i.Limits.Burst/throttle.One, max(i.Tokens/throttle.One, 0), i.BucketFull
	case kind == throttle.ByWindow && i.Limits.Limit > 0:
		l.Limit, l.Remaining, reset = i.Limits.Limit, max(i.Limits.Limit-i.InWindow, 0), i.WindowEmpty
		l.WindowMs = i.Limits.Window / int64(time.Millisecond)
	case kind == throttle.ByInFlight && i.Limits.Concurrency > 0:
		l.Limit, l.Remaining = i.Limits.Concurrency, max(i.Limits.Concurrency-i.InFlight, 0)
	default:
		return nil
	}
	if reset > 0 {
		l.ResetS = up(reset, time.Second)
		l.ResetEpoch = up(now+reset, time.Second)
	}
	return l
}

func millis(ns int64) int64 { return up(max(ns, 0), time.Millisecond) }

// up rounds nanoseconds up to whole units.
func up(ns int64, unit time.Duration) int64 {
	n := ns / int64(unit)
	if ns%int64(unit) > 0 {
		n++
	}
	return n
}
