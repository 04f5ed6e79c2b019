package throttle

import (
	"encoding/binary"
	"strings"
)

// dormant is the exact state of a gate that only waits for its bucket to fill or
// its window to empty: no Set, Grant or Wait refers to it, and it has neither limits
// of its own nor a pause. It takes some 30 bytes instead of several hundred, and at
// most 8 more for each entry of the window:
//
//	ends    varint: the instant from which on the gate is like a new one
//	at      varint: the instant of the state that follows
//	parts   byte: hasBucket, hasWindow, isOpen
//	tokens  varint  \ of the bucket
//	frac    uvarint /
//	first   uvarint, with isOpen: time from the first entry of the newest span to its end
//	spans   from the newest to the oldest, to the end of the text: a uvarint of the
//	        time from its end to the end of the span before (for the newest: to at),
//	        doubled, plus 1 if a uvarint of its count follows; otherwise the count is 1
//
// The limits are not included: the longest prefix has them, and SetPrefix rewrites
// the dormant gates that it changes. Nor is the room for refunds: no Grant is out.
//
// The empty string means no dormant gate.
type dormant string

const (
	hasBucket byte = 1 << iota
	hasWindow
	isOpen // the newest span may take more
)

// awakeIdle is how many idle gates stay awake, since they may be used again soon.
const awakeIdle = 256

// canSleep reports whether bucket and window are all the state of the gate. It needs
// g.mu.
func (g *Gate) canSleep(last int64) bool {
	return g.mu.share == nil && g.mu.inFlight == 0 && g.mu.reserved == 0 && g.mu.waiting.head == nil && g.pause(last) == 0 && !g.mu.learner.rests(last)
}

// asDormant appends the dormant form of the gate to buf. v is the time of its last
// advance, and canSleep must be true. It needs g.mu.
func (g *Gate) asDormant(v instant, buf []byte) []byte {
	ends, parts := v, byte(0)
	b, w := g.mu.bucket, g.mu.window
	if b != nil {
		parts |= hasBucket
		if b.tokens < b.burst {
			ends = v + instant(b.until(b.burst))
		}
	}
	if w != nil && w.n > 0 {
		parts |= hasWindow
		if !w.closed && w.part > 0 {
			parts |= isOpen
		}
		if e := w.at(w.n-1).last + instant(w.width); e.after(ends) {
			ends = e
		}
	}
	buf = binary.AppendVarint(buf, int64(ends))
	buf = binary.AppendVarint(buf, int64(v))
	buf = append(buf, parts)
	if b != nil {
		buf = binary.AppendVarint(buf, b.tokens)
		buf = binary.AppendUvarint(buf, b.frac)
	}
	if parts&hasWindow != 0 {
		buf = w.appendSpans(buf, v, parts&isOpen != 0)
	}
	return buf
}

func (w *window) appendSpans(buf []byte, v instant, open bool) []byte {
	if open {
		buf = binary.AppendUvarint(buf, w.at(w.n-1).last.since(w.first))
	}
	for i := w.n - 1; i >= 0; i-- {
		s := w.at(i)
		earlier := v.since(s.last) << 1
		if s.n == 1 {
			buf = binary.AppendUvarint(buf, earlier)
		} else {
			buf = binary.AppendUvarint(buf, earlier|1)
			buf = binary.AppendUvarint(buf, uint64(s.n))
		}
		v = s.last
	}
	return buf
}

// over reports whether the gate is like a new one at time v.
func (d dormant) over(v instant) bool {
	r := reader{text: string(d)}
	return !instant(r.varint()).after(v)
}

// body is one allocation for a gate with bucket and window.
type body struct {
	gate   Gate
	bucket bucket
	window window
}

// wake rebuilds a gate from d and its limits l in p. p may have held another gate.
func (g *Gates) wake(p *body, key string, d dormant, l Limits) *Gate {
	spans := p.window.spans
	*p = body{gate: Gate{key: key, gates: g}}
	gate := &p.gate
	gate.mu.limits = gate.learn(l)
	r := reader{text: string(d)}
	r.varint()
	at := instant(r.varint())
	parts := r.byte()
	if parts&hasBucket != 0 {
		p.bucket = bucket{rate: l.Rate, burst: l.burst(), at: at, changed: at - 1}
		p.bucket.tokens = r.varint()
		p.bucket.frac = r.uvarint()
		gate.mu.bucket = &p.bucket
	}
	if l.Limit != 0 {
		p.window = window{spans: spans, changed: at - 1}
		w := &p.window
		w.setLimits(l)
		if parts&hasWindow != 0 {
			w.readSpans(&r, at, parts&isOpen != 0)
		}
		gate.mu.window = w
	}
	return gate
}

// readSpans reads the text of appendSpans.
func (w *window) readSpans(r *reader, v instant, open bool) {
	var first uint64
	if open {
		first = r.uvarint()
	}
	for r.text != "" {
		earlier := r.uvarint()
		v -= instant(earlier >> 1)
		n := int64(1)
		if earlier&1 != 0 {
			n = int64(r.uvarint())
		}
		w.total += n
		w.push(span{last: v, n: n})
	}
	for i, j := 0, w.n-1; i < j; i, j = i+1, j-1 { // the oldest first
		*w.at(i), *w.at(j) = *w.at(j), *w.at(i)
	}
	if w.closed = !open; open {
		w.first = w.at(w.n-1).last - instant(first)
	}
}

// The functions below need g.mu.

// exists reports whether a key has a gate, awake or dormant.
func (g *Gates) exists(key string) bool {
	if g.mu.gates.all[key] != nil {
		return true
	}
	d, _ := g.mu.listed.Get(key)
	return d != ""
}

// awake returns the gate of a key, woken if it was dormant, or nil.
func (g *Gates) awake(key string) *Gate {
	if gate := g.mu.gates.all[key]; gate != nil {
		return gate
	}
	d, _ := g.mu.listed.Get(key)
	if d == "" {
		return nil
	}
	key = strings.Clone(key) // as in newGate
	gate := g.wake(new(body), key, d, g.mu.prefixes.of(key))
	gate.mu.Lock()
	g.mu.past.resume(gate)
	gate.keepLedger(g.clock.latestTime(), g.clock.latest())
	gate.attach(g.clock.latest())
	gate.mu.Unlock()
	g.mu.listed.Put(key, "")
	g.mu.gates.put(key, gate)
	g.addIdle(gate)
	return gate
}

// sleep makes an idle gate dormant if it can. It reports whether the gate has left
// the idle list.
func (g *Gates) sleep(gate *Gate, now int64) bool {
	gate.mu.Lock()
	v, last := g.clock.tick(now)
	ok := !gate.declared && gate.canSleep(last)
	if ok {
		gate.advance(v)
		g.mu.buf = gate.asDormant(v, g.mu.buf[:0])
		g.mu.past.keep(gate)
	}
	gate.mu.Unlock()
	if !ok {
		return false
	}
	g.removeIdle(gate)
	g.mu.gates.remove(gate.key)
	g.mu.listed.Put(gate.key, dormant(g.mu.buf))
	return true
}

// changeDormant gives a dormant gate other limits. It reports whether the gate is
// still needed.
func (g *Gates) changeDormant(key string, d dormant, old, next Limits, now int64) bool {
	if old == next {
		return true
	}
	gate := g.wake(new(body), key, d, old)
	gate.mu.Lock()
	defer gate.mu.Unlock()
	v, last := g.clock.tick(now)
	gate.setLimits(next, v, false)
	if gate.fresh(v, last) {
		return false
	}
	g.mu.buf = gate.asDormant(v, g.mu.buf[:0])
	g.mu.listed.Put(key, dormant(g.mu.buf))
	return true
}

// checkDormant drops the next dormant gate if it is not needed any more.
func (g *Gates) checkDormant(now int64) {
	key, d, _ := g.mu.listed.Next(&g.mu.dormantCursor)
	if d != "" {
		g.forgetDormant(key, d, now)
	}
}

// forgetDormant drops a dormant gate whose state is the state of a new gate.
func (g *Gates) forgetDormant(key string, d dormant, now int64) bool {
	g.mu.visits++
	if v, _ := g.clock.tick(now); !d.over(v) {
		return false
	}
	g.drop(key)
	return true
}

// drop removes a gate from the registry.
func (g *Gates) drop(key string) {
	if gate := g.mu.gates.all[key]; gate != nil {
		gate.mu.Lock()
		if g.mu.past.keep(gate); gate.mu.share != nil {
			g.fleet.Request(key) // the fleet may forget it, too
		}
		gate.mu.Unlock()
	}
	g.mu.gates.remove(key)
	g.count.Add(-1)
	if g.mu.named[key] {
		g.mu.listed.Put(key, "")
	} else {
		g.mu.listed.Remove(key)
	}
}
