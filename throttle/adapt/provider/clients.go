package provider

import (
	"cmp"

	"github.com/filaq/fila/throttle/adapt"
)

// Limit is how many calls a client makes at once, or how much cost it spends per second if
// the scenario has costs.
type Limit interface {
	// Value returns the limit.
	Value(now int64) float64
	// Refuse is called for each refused call with the time at which it began.
	Refuse(began, now int64)
	// Succeed is called for each call that succeeded while the limit held others back; n is 1,
	// or the cost of the call.
	Succeed(n float64, now int64)
	// Cuts returns how often the limit was cut.
	Cuts() uint64
}

// Learned is a limit that learns. Late is how long (ns) a cut takes to be known to all filas
// that share the limit; 0: one fila has it alone.
type Learned struct {
	Bounds adapt.Bounds
	Level  adapt.Level
	Late   int64
}

// Value implements [Limit].
func (l *Learned) Value(now int64) float64 {
	if l.Level.Cuts > 0 && now < l.Level.CutAt+l.Late {
		return l.Level.Last
	}
	return l.Level.Value(&l.Bounds)
}

// Refuse implements [Limit].
func (l *Learned) Refuse(began, now int64) { l.Level.Cut(began-l.Late, now, &l.Bounds) }

// Succeed implements [Limit].
func (l *Learned) Succeed(n float64, now int64) { l.Level.Succeed(int64(n*adapt.One), now, &l.Bounds) }

// Cuts implements [Limit].
func (l *Learned) Cuts() uint64 { return l.Level.Cuts }

// AIMD is a limit with additive increase per limit's worth of successes, by the Grow of
// Bounds, and the same backoff as a learned one, once per generation. Many client libraries
// limit themselves so, each process for itself.
type AIMD struct {
	Bounds adapt.Bounds
	level  float64
	cutAt  int64
	cuts   uint64
}

// Value implements [Limit].
func (l *AIMD) Value(int64) float64 {
	if l.level == 0 {
		return float64(cmp.Or(l.Bounds.Start, l.Bounds.Ceiling)) / adapt.One
	}
	return l.level
}

// Refuse implements [Limit].
func (l *AIMD) Refuse(began, now int64) {
	if l.cuts > 0 && began <= l.cutAt {
		return
	}
	l.level = max(l.Value(now)*float64(l.Bounds.Backoff)/adapt.One, float64(l.Bounds.Min)/adapt.One)
	l.cutAt = now
	l.cuts++
}

// Succeed implements [Limit].
func (l *AIMD) Succeed(n float64, now int64) {
	level := l.Value(now)
	l.level = min(level+n*float64(l.Bounds.Grow)/adapt.One/level, float64(l.Bounds.Ceiling)/adapt.One)
}

// Cuts implements [Limit].
func (l *AIMD) Cuts() uint64 { return l.cuts }

// Fixed is a limit that stays.
type Fixed float64

// Value implements [Limit].
func (f Fixed) Value(int64) float64 { return float64(f) }

// Refuse implements [Limit].
func (Fixed) Refuse(int64, int64) {}

// Succeed implements [Limit].
func (Fixed) Succeed(float64, int64) {}

// Cuts implements [Limit].
func (Fixed) Cuts() uint64 { return 0 }

// Caller makes calls of the provider. It always has messages.
type Caller interface {
	// Begin reports whether a call of a number begins now. again is when to ask again without a
	// call having returned; 0: then only.
	Begin(number int, now int64) (ok bool, again int64)
	// Done ends a call. Its cost is exact now.
	Done(call *Call, now int64)
	// Cuts returns how often the limit of the caller was cut.
	Cuts() uint64
}

// Call is a call that has ended.
type Call struct {
	Number  int
	Began   int64
	Refused bool
	Cost    float64
}

// client is a caller that keeps within a limit.
type client struct {
	Limit
	estimate float64 // cost of a call before it is known; 0: the limit is one of calls at once
	inFlight int
	tokens   float64 // of the bucket, as of filled
	filled   int64
}

// Begin implements [Caller].
func (c *client) Begin(_ int, now int64) (ok bool, again int64) {
	limit := c.Value(now)
	if c.estimate > 0 {
		c.tokens = min(c.tokens+limit*float64(now-c.filled)/second, limit)
		c.filled = now
		if missing := c.estimate - c.tokens; missing > 0 {
			return false, now + max(second/1000, int64(missing/limit*second))
		}
		c.tokens -= c.estimate
	} else if c.inFlight >= int(limit) {
		return false, 0
	}
	c.inFlight++
	return true, 0
}

// Done implements [Caller].
func (c *client) Done(call *Call, now int64) {
	limit := int(c.Value(now))
	switch {
	case call.Refused:
		c.Refuse(call.Began, now)
	case c.estimate > 0:
		c.tokens += c.estimate - call.Cost
		c.Succeed(call.Cost, now)
	case c.inFlight*10 >= limit*9 && c.inFlight <= limit:
		c.Succeed(1, now)
	}
	c.inFlight--
}
