package record

import "github.com/filaq/fila/throttle"

// remaining is the most that the bucket may have at a time of this host, by the feedback of a destination.
type remaining struct{ tokens, at int64 }

// tokensAt returns it at a later time: it refills like the bucket.
func (r *remaining) tokensAt(now int64, rate throttle.Rate) int64 {
	return min(r.tokens+rate.Gives(now-r.at), throttle.MaxBurst)
}

// Lower has the next write lower the bucket to a number of tokens, which the destination admits beside
// the leases of this instance at time now of this host.
func (m *Member) Lower(tokens, now int64, rate throttle.Rate) {
	if m.remaining == nil || tokens < m.remaining.tokensAt(now, rate) {
		m.remaining = &remaining{tokens, now}
	}
}

// lower lowers the bucket as an instance asks. It reports whether that has changed it. The level is settled.
func (l *Limit) lower(a *Ask, env *LimitEnv) bool {
	if a.Remaining == nil || *a.Remaining >= l.Tokens {
		return false
	}
	l.Tokens, l.Rest = max(*a.Remaining, -throttle.MaxBurst), 0
	l.Lowered = max(env.Now, l.Lowered+1)
	return true
}

// lowered takes in that another instance has lowered the bucket since the leases of this one were taken
// from it: none of their tokens goes back. If nothing is left, g has none either.
func (m *Member) lowered(g *Grant) {
	for i := range m.returns {
		m.returns[i].Tokens = min(m.returns[i].Tokens, 0)
	}
	if m.rec.Tokens < throttle.One {
		g.Tokens = 0
	}
}
