package gates

import (
	"fmt"
	"math"

	"github.com/filaq/fila/drr"
	"github.com/filaq/fila/throttle"
)

// Check returns the first broken invariant between subqueues, wait lists and heaps, or
// nil. Tests call it after each step. loose says that subqueues may wait at a gate that
// would admit one: the clock was set back, so that a timer is late, or another queue has
// the turn.
func (g *Gates) Check(now int64, loose bool) (err error) {
	check := func(ok bool, format string, args ...any) {
		if !ok && err == nil {
			err = fmt.Errorf(format, args...)
		}
	}
	heaps, used, blockedBy := make(map[drr.Flow]int), 0, [BlockKinds]int64{}
	probing, messages, subs, aside := make(map[WaitID]int32), make(map[WaitID]int64), make(map[WaitID]int), make(map[WaitID]int32)
	for i := 1; i < len(g.Subs.Items); i++ {
		id, sub := ID(i), &g.Subs.Items[i]
		if sub.refs == 0 && (sub.name != "" || g.links.Count(&sub.List) == 0) {
			check(sub.pos == 0 && sub.Wait == 0, "subqueue %d is free and in use", id)
			continue
		}
		used++
		check(sub.name == "" || g.Subs.ids[sub.name] == id, "subqueue %d: not found by its name", id)
		check(g.Eligible(sub) == (sub.pos != 0), "subqueue %d: eligible %v, place %d", id, g.Eligible(sub), sub.pos)
		if sub.pos != 0 {
			heaps[sub.Flow]++
		}
		if sub.probe.at != 0 {
			probing[sub.probe.at]++
			check(g.links.Count(&sub.List) > 0, "subqueue %d probes with nothing", id)
		}
		want := int32(0)
		if sub.Wait != 0 {
			if want = g.links.Count(&sub.List); g.Eligible(sub) {
				want--
			}
			cost := max(1, min(g.backlog.Cost(g.FirstBlocked(sub)), drr.MaxCost))
			check(want > 0, "subqueue %d: waits with %d messages", id, want)
			messages[sub.Wait] += int64(sub.Counted)
			list, n := sub.lists()
			for _, w := range list[:n] {
				if waiters := &g.Waits.At(w).Waiters; sub.choice != nil && sub.probe.at != 0 && sub.probe.at != w {
					check(!waiters.Has(uint32(id)), "subqueue %d: in line %d while it probes %d", id, w, sub.probe.at)
					aside[w]++
				} else {
					check(waiters.Cost(uint32(id)) == cost, "subqueue %d: not in line %d at cost %d", id, w, cost)
					subs[w]++
				}
			}
		}
		for i := range sub.Routes() {
			check((sub.RouteAt(i).Wait == 0) == (sub.Wait == 0), "subqueue %d: waits for some routes only", id)
		}
		check(sub.Counted == want, "subqueue %d counts %d blocked messages, has %d", id, sub.Counted, want)
		blockedBy[sub.Kind] += int64(want)
	}
	check(used+len(g.Subs.free) == len(g.Subs.Items)-1, "%d subqueues used, %d free of %d", used, len(g.Subs.free), len(g.Subs.Items)-1)
	check(blockedBy == g.BlockedBy, "blocked %v, counted %v", blockedBy, g.BlockedBy)
	check(len(heaps) == len(g.heaps)-1-len(g.freeHeaps), "%d flows have eligible subqueues", len(heaps))
	for f, n := range heaps {
		h := g.heaps[g.backlog.Flow(f).heap]
		check(len(h) == n, "flow %d: %d subqueues in its heap, want %d", f, len(h), n)
		for i, id := range h {
			check(int(g.Subs.At(id).pos) == i+1 && !g.before(id, h[(i-1)/2]), "flow %d: not a heap", f)
		}
	}
	check(len(g.rechecks)+len(g.probed) == 0, "rechecks are left")
	for i, wl := range g.Waits.Items {
		if wl == nil || wl.kind == waitFree {
			continue
		}
		id := WaitID(i)
		check(probing[id] == wl.probing && messages[id] == wl.Messages && subs[id] == wl.Waiters.Len() && aside[id] == wl.aside && wl.probing+wl.aside+int32(subs[id]) > 0,
			"wait list %d: %d probes, %d messages of %d subqueues, %d aside", id, probing[id], messages[id], subs[id], aside[id])
		check(wl.at == 0 || wl.at > now && wl.at < math.MaxInt64 || loose || wl.notBefore > now, "wait list %d: timer at %d", id, wl.at)
		check(g.checkCoalesced(wl), "wait list %d: what its subqueues pass", id)
		first, _, waits := wl.Waiters.Peek()
		if c := &wl.coalesced; c.into != 0 && !c.mixed || wl.probing > 0 || !waits || wl.notBefore > now || loose || g.Eligible(g.Subs.At(ID(first))) {
			continue
		}
		if wl.kind == waitThrottle {
			gate := wl.gate.Info(now)
			check(gate.Kind != throttle.Open || gate.Unbooked, "wait list %d: subqueues wait at an open gate", id)
		}
		check(wl.kind != waitPause || g.backlog.KeyPaused(wl.flow, now) != 0, "wait list %d: subqueues wait, but the key is not paused", id)
	}
	return err
}

// checkCoalesced checks that the subqueues of a wait list that is not mixed pass the
// same gates, and that what it waits for exists.
func (g *Gates) checkCoalesced(wl *WaitList) bool {
	c := &wl.coalesced
	if c.mixed {
		return true
	}
	for n := range wl.Waiters.All() {
		if sub := g.Subs.At(ID(n)); sub.choice != nil || sub.Set != c.set || sub.Circuit != c.circuit {
			return false
		}
	}
	other := g.Waits.Items[c.into]
	return c.into == 0 || other.kind != waitFree && (other.Waiters.Len() > 0 || other.probing+other.aside > 0)
}

// Empty reports whether nothing is left of what there was.
func (g *Gates) Empty() bool {
	return len(g.Subs.ids)+len(g.Subs.first)+len(g.Waits.byGate)+len(g.Waits.byCircuit)+len(g.Waits.byFlow) == 0 &&
		len(g.Waits.free) == len(g.Waits.Items)-1 && len(g.freeHeaps) == len(g.heaps)-1 && g.reserving == 0
}
