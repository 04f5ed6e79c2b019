package guard

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strconv"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// origin is where a request comes from.
type origin struct {
	caller string // as the check gives it
	user   string // the NATS user; empty: not known
}

// holder is whom permits count for: the NATS user or, if that is not known, the caller's own
// name. All callers without either are one holder.
type holder struct {
	user bool
	name string
}

func (o origin) holder() holder {
	if o.user != "" {
		return holder{true, o.user}
	}
	return holder{false, o.caller}
}

func (h holder) String() string {
	switch {
	case h.user:
		return "NATS user " + strconv.Quote(h.name)
	case h.name != "":
		return "caller " + strconv.Quote(h.name)
	}
	return "callers without a name"
}

// Names of the caps, which are keys of [limits].
const (
	capPermits       = "max_guard_permits"
	capKeyPermits    = "max_guard_key_permits"
	capCallerPermits = "max_guard_caller_permits"
	capThrottleKeys  = "max_throttle_keys"
	capCircuits      = "max_circuits"
)

// reachedCap is a cap that a request would exceed.
type reachedCap struct {
	name string
	what string // what there is too much of, in the plural
	most int64
}

func (c *reachedCap) refusal() *wire.Error { return wire.LimitReached(c.what, c.most, capRetryAfter) }

// answer is the answer of state in place of the error of check.
func (c *reachedCap) answer(key string) api.GuardAnswer {
	return api.GuardAnswer{
		Gate: c.name, Key: key, RetryAfterMs: capRetryAfter.Milliseconds(),
		Limit: &api.GuardLimit{Key: key, Gate: c.name, Limit: c.most},
	}
}

// room returns the cap that one more permit with these keys would exceed, on top of the given
// ones, or nil.
func (g *Service) room(keys []string, by holder, given []*permit, now int64) *reachedCap {
	caps := &g.opt.Caps
	var all, ofKey, ofHolder int64
	g.atTime(now, func() {
		all, ofKey, ofHolder = int64(len(g.mu.ends)), int64(g.mu.byKey[keys[0]]), int64(g.mu.byHolder[by])
	})
	for _, p := range given {
		all++
		if p.key == keys[0] {
			ofKey++
		}
		if p.holder() == by {
			ofHolder++
		}
	}
	reached := func(n, most int64) bool { return most > 0 && n >= most }
	switch {
	case reached(ofKey, caps.KeyPermits):
		return &reachedCap{capKeyPermits, "permits of key " + strconv.Quote(keys[0]) + " (limits." + capKeyPermits + ", so that other keys have some)", caps.KeyPermits}
	case reached(ofHolder, caps.CallerPermits):
		return &reachedCap{capCallerPermits, "permits of " + by.String() + " (limits." + capCallerPermits + ", so that other callers have some)", caps.CallerPermits}
	case reached(all, caps.Permits):
		return &reachedCap{capPermits, "permits of the guard (limits." + capPermits + ")", caps.Permits}
	case caps.ThrottleKeys > 0 && g.opt.Gates.Full(keys, caps.ThrottleKeys, now):
		return &reachedCap{capThrottleKeys, "throttle keys (limits." + capThrottleKeys + ")", caps.ThrottleKeys}
	case caps.Circuits > 0 && g.opt.Circuits.Full(keys[0], caps.Circuits):
		return &reachedCap{capCircuits, "circuits (limits." + capCircuits + ")", caps.Circuits}
	}
	return nil
}

// hold makes a permit live. It needs mu.
func (g *Service) hold(p *permit) {
	g.mu.number++
	p.number = g.mu.number
	g.mu.permits[p.number] = p
	g.mu.ends.add(p)
	g.mu.byKey[p.key]++
	g.mu.byHolder[p.holder()]++
	g.mu.listed.add(p)
}

// end removes a live permit and returns what it holds. It needs mu.
func (g *Service) end(p *permit) resources {
	h := p.resources
	p.resources = resources{}
	delete(g.mu.permits, p.number)
	g.mu.ends.remove(p)
	g.mu.listed.remove(p.number)
	if g.mu.byKey[p.key]--; g.mu.byKey[p.key] == 0 {
		delete(g.mu.byKey, p.key)
	}
	by := p.holder()
	if g.mu.byHolder[by]--; g.mu.byHolder[by] == 0 {
		delete(g.mu.byHolder, by)
	}
	if len(g.mu.ends) == 0 && g.mu.idle != nil {
		close(g.mu.idle)
		g.mu.idle = nil
	}
	return h
}

// remember keeps a done permit, so that a repeated done is recognised. It keeps at most as many
// as may be live. It needs mu.
func (g *Service) remember(p *permit) {
	g.mu.permits[p.number] = p
	g.mu.done = append(g.mu.done, p)
	if most := g.opt.Caps.Permits; most > 0 && int64(len(g.mu.done)) > most {
		g.forgetDone()
	}
}

// forgetDone forgets the permit that was done first. It needs mu.
func (g *Service) forgetDone() {
	delete(g.mu.permits, g.mu.done[0].number)
	g.mu.done[0] = nil
	g.mu.done = g.mu.done[1:]
}

// givenList has the live permits in the order in which they were given.
type givenList struct {
	lines []line
	gone  int // lines without a permit
}

// line is one entry of a givenList. Its number stays when the permit has ended.
type line struct {
	number uint64
	permit *permit // nil: it has ended
}

func (l *givenList) add(p *permit) { l.lines = append(l.lines, line{p.number, p}) }

// after is the index of the first line with a larger number.
func (l *givenList) after(number uint64) int {
	return sort.Search(len(l.lines), func(i int) bool { return l.lines[i].number > number })
}

// minCapacity is the capacity below which a givenList does not shrink.
const minCapacity = 1024

// remove removes a permit. When half of the lines have no permit, it compacts them.
func (l *givenList) remove(number uint64) {
	l.lines[l.after(number)-1].permit = nil
	if l.gone++; l.gone > len(l.lines)/2 {
		l.lines = slices.DeleteFunc(l.lines, func(n line) bool { return n.permit == nil })
		if l.gone = 0; cap(l.lines) > minCapacity && cap(l.lines) > 4*len(l.lines) {
			l.lines = slices.Clone(l.lines)
		}
	}
}

// Operators read permits in pages and end them in pieces; other requests run in between.
const (
	pageLines = 10_000 // lines of the givenList
	endPiece  = 1000   // permits
)

// Permits lists the live permits.
func (g *Service) Permits(r api.GuardPermitsRequest) api.GuardPermitList {
	list := api.GuardPermitList{Permits: []api.GuardPermit{}}
	var byKey map[string]int
	var byHolder map[holder]int
	g.atTime(g.opt.Now(), func() {
		list.Total = len(g.mu.ends)
		if r.After == "" {
			byKey, byHolder = maps.Clone(g.mu.byKey), maps.Clone(g.mu.byHolder)
		}
	})
	if r.After == "" {
		list.Keys, list.Callers = mostPermits(byKey, byHolder)
	}
	from := uint64(0)
	if issuer, number, ok := api.ParsePermitID(r.After); ok {
		switch cmp.Compare(issuer, g.run) {
		case 0:
			from = number
		case 1: // all of this process came before
			return list
		}
	}
	want := func(p *permit) bool { return p.fits(&r.PermitFilter) }
	for more := true; more; {
		from, more = g.page(from, func(p *permit) bool {
			if want(p) {
				if len(list.Permits) == r.Limit {
					list.Next = list.Permits[r.Limit-1].ID
					return false
				}
				list.Permits = append(list.Permits, g.describe(p))
			}
			return true
		})
	}
	return list
}

// page calls each with live permits that were given after a number, while it returns true. It
// reads one page, and returns where the next one begins, if any.
func (g *Service) page(from uint64, each func(*permit) bool) (last uint64, more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lines := g.mu.listed.lines[g.mu.listed.after(from):]
	for i := range lines[:min(len(lines), pageLines)] {
		if p := lines[i].permit; p != nil && !each(p) {
			return from, false
		}
		from = lines[i].number
	}
	return from, len(lines) > pageLines
}

// mostPermits returns the keys and callers with the most permits.
func mostPermits(byKey map[string]int, byHolder map[holder]int) (keys, callers []api.GuardHolder) {
	for key, n := range byKey {
		keys = append(keys, api.GuardHolder{Key: wire.ShowKey(key), Permits: n})
	}
	for by, n := range byHolder {
		h := api.GuardHolder{Caller: by.name, Permits: n}
		if by.user {
			h.Caller, h.User = "", by.name
		}
		callers = append(callers, h)
	}
	return api.MostPermits(keys), api.MostPermits(callers)
}

// describe describes a live permit for operators. It needs mu.
func (g *Service) describe(p *permit) api.GuardPermit {
	d := api.GuardPermit{
		ID: api.PermitID(g.run, p.number), Key: wire.ShowKey(p.key), Caller: p.caller, User: p.user,
		GivenAt: wire.Timestamp(p.given), ExpiresAt: wire.Timestamp(p.until), Probe: p.probe,
	}
	for _, gate := range p.resources.set.Gates() {
		if key := gate.Key(); key != p.key {
			d.With = append(d.With, wire.ShowKey(key))
		}
	}
	return d
}

// fits reports whether a filter selects a permit.
func (p *permit) fits(f *api.PermitFilter) bool {
	return (f.Key == "" || p.key == f.Key) && (f.Caller == nil || p.caller == *f.Caller) && (f.User == "" || p.user == f.User)
}

// EndPermits ends live permits and returns what they hold. Their circuits get no outcome, since
// the outcome of the calls is unknown.
func (g *Service) EndPermits(r api.GuardEndRequest) (ended int64) {
	g.mu.Lock()
	last := g.mu.number
	g.mu.Unlock()
	if len(r.IDs) > 0 {
		var meant []uint64
		for _, id := range r.IDs {
			if issuer, number, ok := api.ParsePermitID(id); ok && issuer == g.run {
				meant = append(meant, number)
			}
		}
		return g.endThese(meant, &r.PermitFilter)
	}
	for from, more := uint64(0), true; more && from < last; {
		var meant []uint64
		from, more = g.page(from, func(p *permit) bool {
			if p.number <= last && p.fits(&r.PermitFilter) {
				meant = append(meant, p.number)
			}
			return p.number < last
		})
		ended += g.endThese(meant, &r.PermitFilter)
	}
	return ended
}

// endThese ends the live permits with these numbers that a filter selects.
func (g *Service) endThese(numbers []uint64, f *api.PermitFilter) (ended int64) {
	for piece := range slices.Chunk(numbers, endPiece) {
		now := g.opt.Now()
		var over []ending
		g.atTime(now, func() {
			for _, number := range piece {
				if p := g.mu.permits[number]; p != nil && !p.done && p.fits(f) {
					over = append(over, ending{resources: g.end(p), outcome: breaker.Neutral})
				}
			}
		})
		if len(over) > 0 {
			g.opt.Metrics.GuardEnded(byOperator, int64(len(over)))
			g.release(over, now)
		}
		ended += int64(len(over))
	}
	return ended
}
