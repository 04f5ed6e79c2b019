package provider

import "github.com/filaq/fila/throttle/adapt"

// Learner is a client with a learned level of calls at once.
type Learner struct {
	Bounds adapt.Bounds
	adapt.Level
	inFlight int64
}

// Begin implements [Client].
func (c *Learner) Begin(now int64) (func(bool, int64), int64) {
	if c.inFlight >= c.Thousandths(&c.Bounds)/adapt.One {
		return nil, 0
	}
	c.inFlight++
	began := now
	return func(refused bool, now int64) {
		limit := c.Thousandths(&c.Bounds) / adapt.One
		switch {
		case refused:
			c.Cut(began, now, &c.Bounds)
		case c.inFlight*10 >= limit*9 && c.inFlight <= limit:
			c.Succeed(adapt.One, now, &c.Bounds)
		}
		c.inFlight--
	}, 0
}

// Cuts implements [Client].
func (c *Learner) Cuts() uint64 { return c.Level.Cuts }

// AIMD is a client with additive increase by 1 per limit's worth of successes, and the same
// backoff, once per generation. Many client libraries limit themselves so, each process for
// itself.
type AIMD struct {
	Bounds   adapt.Bounds
	level    float64
	cutAt    int64
	cuts     uint64
	inFlight int64
}

// Begin implements [Client].
func (c *AIMD) Begin(now int64) (func(bool, int64), int64) {
	if c.level == 0 {
		c.level = float64(c.Bounds.Ceiling) / adapt.One
	}
	if c.inFlight >= int64(c.level) {
		return nil, 0
	}
	c.inFlight++
	began := now
	return func(refused bool, now int64) {
		switch {
		case refused && began > c.cutAt:
			c.level = max(c.level*float64(c.Bounds.Backoff)/adapt.One, float64(c.Bounds.Min)/adapt.One)
			c.cutAt = now
			c.cuts++
		case !refused && c.inFlight*10 >= int64(c.level)*9:
			c.level = min(c.level+1/c.level, float64(c.Bounds.Ceiling)/adapt.One)
		}
		c.inFlight--
	}, 0
}

// Cuts implements [Client].
func (c *AIMD) Cuts() uint64 { return c.cuts }
