package sidecar

import (
	"math"

	"github.com/filaq/fila/breaker"
)

// circuitBook is a circuit as the documentation tells it.
type circuitBook struct {
	cfg       breaker.Config
	state     breaker.State
	gen       int // of the state: deliveries of an earlier one do not count
	failures  int // in a row
	until     int64
	thenClose bool
	byHand    bool
	probes    int
	successes int
}

func (c *circuitBook) turn(s breaker.State) {
	c.state, c.probes, c.successes = s, 0, 0
	c.gen++
}

// over ends an opening whose time is over.
func (c *circuitBook) over(now int64) {
	if c.state != breaker.Open || now < c.until {
		return
	}
	if c.turn(breaker.HalfOpen); c.thenClose {
		c.state = breaker.Closed
	}
}

func (c *circuitBook) allow(now int64) (pass int, ok bool) {
	c.over(now)
	switch c.state {
	case breaker.Open:
		return 0, false
	case breaker.HalfOpen:
		if c.probes >= c.cfg.HalfOpenMaxCalls {
			return 0, false
		}
		c.probes++
	}
	return c.gen, true
}

func (c *circuitBook) done(now int64, pass int, o breaker.Outcome) {
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
	}
}

// retryAfter shuts it as its destination asks for.
func (c *circuitBook) retryAfter(now, until int64) {
	if c.over2(now); until <= now {
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

// over2 ends an opening that ends closed: the other kind needs a delivery.
func (c *circuitBook) over2(now int64) {
	if c.thenClose {
		c.over(now)
	}
}

func (c *circuitBook) open(now, until int64) {
	c.over2(now)
	if c.state != breaker.Open {
		c.thenClose = c.state == breaker.Closed
		c.turn(breaker.Open)
	}
	c.until, c.byHand = until, true
}

func (c *circuitBook) release(now int64) {
	if c.over2(now); c.state == breaker.Open && c.byHand {
		c.until = math.MinInt64
		c.over(now)
	}
}

// restart is what an orderly stop leaves of it.
func (c *circuitBook) restart(now int64) {
	switch c.state {
	case breaker.Closed:
		c.failures = 0
	case breaker.HalfOpen:
		c.until, c.thenClose = now, false
		c.state = breaker.Open
	}
	c.gen++
	c.probes, c.successes = 0, 0
}

// shown is the state that others see.
func (c *circuitBook) shown(now int64) (string, int) {
	s := *c
	s.over(now)
	return s.state.String(), s.probes
}
