package queuetest

import (
	"fmt"
	"math"
	"math/big"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/throttle"
)

// gateModel is a throttle key by its documentation: it keeps every delivery,
// and checks each new one against all that went before. It knows
// nothing of how package throttle does it.
type gateModel struct {
	limits   throttle.Limits
	bucket   []bucketPassage
	entries  []*passage
	inFlight int64
	paused   int64 // until when; 0: it is not

	force  forceModel
	learn  learnModel
	budget spendModel
}

// passage is a delivery that has gone through a throttle key.
type passage struct {
	at, cost int64
	taken    int64 // what was taken for it: its ack may have said another cost since
	undone   bool  // nobody received it
}

// bucketPassage is a passage with what the rate had brought so far.
type bucketPassage struct {
	*passage
	brought *big.Rat
}

// limit changes limits. Use that was counted stays counted.
func (g *gateModel) limit(l throttle.Limits) {
	old := g.limits
	if l.Rate != old.Rate || burstOf(l) != burstOf(old) {
		g.bucket = nil
	}
	if old.Limit == 0 || l.Window > old.Window {
		g.entries = nil
	}
	if l.Budget.Amount == 0 {
		g.budget.spent, g.budget.loose = nil, true // nothing is counted from here on
	}
	g.limits, g.learn.known = l, false
}

// burstOf is the larger of 1 and what the rate brings in a second, if none is set.
func burstOf(l throttle.Limits) int64 {
	if l.Burst != 0 || l.Rate.Per == 0 {
		return l.Burst
	}
	n := new(big.Int).Mul(big.NewInt(l.Rate.Cost), big.NewInt(1e9))
	return max(1000, n.Div(n, big.NewInt(l.Rate.Per)).Int64())
}

// crash models a crash: a bucket begins empty, and not below zero after a message that cost
// more than the burst, or more than estimated.
func (g *gateModel) crash() {
	g.budget.crash()
	for _, p := range g.bucket {
		if p.cost > min(p.taken, burstOf(g.limits)) {
			g.bucket = nil
			return
		}
	}
}

// pass models a delivery and checks it against the limits.
func (g *gateModel) pass(t T, what string, p *passage) {
	g.inFlight++
	if c := g.force.limits.Concurrency; c != 0 && g.inFlight > c {
		require.Fail(t, "concurrency", "%s: %d in flight", what, g.inFlight)
	}
	g.bucket, g.entries = append(g.bucket, bucketPassage{p, g.force.brought}), append(g.entries, p)
	if g.limits.Rate.Per != 0 {
		g.checkRate(t, what, p)
	}
	if g.limits.Limit != 0 {
		n := int64(0)
		for _, e := range g.entries {
			if !e.undone && p.at-e.at < g.limits.Window {
				n++
			}
		}
		if n > g.limits.Limit {
			require.Fail(t, "window", "%s: %d in the window", what, n)
		}
	}
}

// checkRate checks all intervals that end with p against max(burst, largest cost) + rate * t,
// with the costs that are known then: a bucket below zero admits nothing.
func (g *gateModel) checkRate(t T, what string, p *passage) {
	var sum, largest int64
	for i := len(g.bucket) - 1; i >= 0; i-- {
		e := g.bucket[i]
		if e.undone {
			continue
		}
		sum, largest = sum+e.cost, max(largest, e.taken)
		most := new(big.Rat).Sub(g.force.brought, e.brought)
		most.Add(most, new(big.Rat).SetInt64(max(burstOf(g.limits), largest)))
		if new(big.Rat).SetInt64(sum).Cmp(most) > 0 {
			require.Fail(t, "rate", "%s: cost %d in %d ns, %s are allowed", what, sum, p.at-e.at, most.FloatString(3))
		}
	}
}

// circuitModel is a circuit by its documentation.
type circuitModel struct {
	cfg       breaker.Config
	state     breaker.State
	gen       int // of the state: deliveries of an earlier one do not count
	failures  int // in a row
	until     int64
	thenClose bool
	byHand    bool
	probes    int
	successes int
	judging   int // failures of the state that are judged
}

func (c *circuitModel) turn(s breaker.State) {
	c.state, c.probes, c.successes, c.judging = s, 0, 0, 0
	c.gen++
}

// over ends an opening whose time is over.
func (c *circuitModel) over(now int64) {
	if c.state != breaker.Open || now < c.until {
		return
	}
	if c.turn(breaker.HalfOpen); c.thenClose {
		c.state = breaker.Closed
	}
}

// lapse ends an opening that ends closed: the other kind needs a delivery.
func (c *circuitModel) lapse(now int64) {
	if c.thenClose {
		c.over(now)
	}
}

func (c *circuitModel) allow(now int64) (pass int, ok bool) {
	c.over(now)
	switch c.state {
	case breaker.Open:
		return 0, false
	case breaker.HalfOpen:
		if c.probes >= c.cfg.HalfOpenMaxCalls || c.judging > 0 {
			return 0, false
		}
		c.probes++
	case breaker.Closed:
		// After Threshold failures in a row nothing goes, whether or not they are judged yet.
		if c.failures+c.judging >= c.cfg.Threshold {
			return 0, false
		}
	}
	return c.gen, true
}

// admits reports whether allow would.
func (c *circuitModel) admits(now int64) bool {
	look := *c
	_, ok := look.allow(now)
	return ok
}

// suspect notes a failure that is judged from now on.
func (c *circuitModel) suspect(pass int) {
	if pass == c.gen {
		c.judging++
	}
}

// decided is done for one that was judged.
func (c *circuitModel) decided(now int64, pass int, o breaker.Outcome) {
	if pass == c.gen {
		c.judging--
	}
	c.done(now, pass, o)
}

func (c *circuitModel) done(now int64, pass int, o breaker.Outcome) {
	if pass != c.gen {
		return
	}
	probe := c.state == breaker.HalfOpen
	if probe {
		c.probes--
	}
	switch o {
	case breaker.Success:
		if !probe {
			c.failures = 0
		} else if c.successes++; c.successes >= c.cfg.HalfOpenSuccesses {
			c.failures = 0
			c.turn(breaker.Closed)
		}
	case breaker.Failure:
		if c.failures++; probe || c.failures >= c.cfg.Threshold {
			c.until, c.thenClose, c.byHand = now+int64(c.cfg.Cooldown), false, false
			c.turn(breaker.Open)
		}
	case breaker.Neutral:
	}
}

// retryAfter opens it as its destination asks.
func (c *circuitModel) retryAfter(now, until int64) {
	if c.lapse(now); until <= now {
		return
	}
	if c.state == breaker.Open {
		c.until = max(c.until, until)
		return
	}
	c.thenClose = c.state == breaker.Closed
	c.until, c.byHand = until, false
	c.turn(breaker.Open)
}

// open opens it by hand until a time.
func (c *circuitModel) open(now, until int64) {
	c.lapse(now)
	if c.state != breaker.Open {
		c.thenClose = c.state == breaker.Closed
		c.turn(breaker.Open)
	}
	c.until, c.byHand = until, true
}

// release ends an opening by hand.
func (c *circuitModel) release(now int64) {
	if c.lapse(now); c.state == breaker.Open && c.byHand {
		c.until = math.MinInt64
		c.over(now)
	}
}

// shown is the state that others see.
func (c *circuitModel) shown(now int64) string {
	look := *c
	look.over(now)
	return fmt.Sprint(look.state, " with ", look.probes, " probes")
}
