package throttle

import "github.com/filaq/fila/ordered"

// pastCounts are how often gates that are gone have admitted and blocked something. The gate of a
// key without limits of its own comes and goes with its messages; a new one goes on counting where
// the one before has ended.
type pastCounts struct {
	recent ordered.Recent[pastCount]
}

type pastCount struct {
	admitted int64
	blocked  [kindsOfGate]int64
}

// pastKeys is how many keys pastCounts keep: those whose gates went last, up to twice as many.
const pastKeys = 1000

// keep keeps the counts of a gate that goes.
func (p *pastCounts) keep(g *Gate) {
	c := pastCount{admitted: g.mu.admitted}
	for k := range c.blocked {
		c.blocked[k] = g.blocked[k].Load()
	}
	if c == (pastCount{}) {
		return
	}
	p.recent.Put(g.key, c, pastKeys)
}

// resume gives a gate the counts of the one of its key before it, and removes them.
func (p *pastCounts) resume(g *Gate) {
	if p.copyTo(g) {
		p.recent.Remove(g.key)
	}
}

// copyTo is resume that keeps them. It reports whether there are any.
func (p *pastCounts) copyTo(g *Gate) bool {
	c, ok := p.recent.Get(g.key)
	if !ok {
		return false
	}
	g.mu.admitted = c.admitted
	for k, n := range c.blocked {
		g.blocked[k].Store(n)
	}
	return true
}

// Counts returns how often the gates of a key that has none have admitted and blocked something, 0
// if that is not known any more.
func (g *Gates) Counts(key string) (admitted, blocked int64) {
	g.mu.Lock()
	c, _ := g.mu.past.recent.Get(key)
	g.mu.Unlock()
	for _, n := range c.blocked {
		blocked += n
	}
	return c.admitted, blocked
}
