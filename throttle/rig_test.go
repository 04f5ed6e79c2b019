package throttle

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const sec = int64(second)

// start is the time at which tests begin.
const start = int64(1_700_000_000) * sec

func newGates() *Gates { return New(Start{}, start) }

func limit(t testing.TB, g *Gates, key string, l Limits, now int64) []*Wait {
	t.Helper()
	wake, err := g.SetLimits(key, l, now, nil)
	require.NoError(t, err)
	return wake
}

func set(t testing.TB, g *Gates, keys ...string) *Set {
	t.Helper()
	return setAt(t, g, g.clock.mu.last, keys...)
}

func setAt(t testing.TB, g *Gates, now int64, keys ...string) *Set {
	t.Helper()
	s, err := g.Set(keys, now)
	require.NoError(t, err)
	return s
}

// modelClock is the rule for times, written plainly with big numbers.
type modelClock struct {
	last int64
	at   *big.Int
}

func newModelClock(now int64) *modelClock { return &modelClock{now, new(big.Int)} }

func (c *modelClock) tick(now int64) *big.Int {
	step := new(big.Int).Sub(big.NewInt(now), big.NewInt(c.last))
	switch {
	case step.Sign() > 0:
		if far := big.NewInt(farAhead); step.Cmp(far) > 0 {
			step = far
		}
		c.at = new(big.Int).Add(c.at, step)
		c.last = now
	case step.Cmp(big.NewInt(-stale)) < 0:
		c.last = now
	}
	return c.at
}

// went is a message that a gate has admitted.
type went struct {
	at     *big.Int
	cost   int64 // that was taken for it
	step   int   // when it went
	undone bool

	settled  int // the step at which the final cost was known; 0: it is not
	realCost int64
}

// known is the cost as known at a step.
func (w *went) known(step int) int64 {
	if w.settled != 0 && w.settled < step {
		return w.realCost
	}
	return w.cost
}

// period has the messages that a gate admitted under an unchanged limit.
type period struct {
	limits Limits
	went   []*went
}

// checkBucket holds every interval to max(burst, largest cost) + rate * t, with the costs
// that were known at its end: a bucket in debt admits nothing.
func (p *period) checkBucket(t require.TestingT) {
	if p.limits.Rate == (Rate{}) {
		return
	}
	for i, to := range p.went {
		sum, largest := int64(0), int64(0)
		if to.undone {
			continue
		}
		for _, from := range slices.Backward(p.went[:i+1]) {
			if from.undone {
				continue
			}
			sum += from.known(to.step)
			largest = max(largest, from.cost)
			// sum <= max(burst, largest) + Cost/Per * span, times Per
			span := new(big.Int).Sub(to.at, from.at)
			right := span.Mul(span, big.NewInt(p.limits.Rate.Cost))
			left := new(big.Int).Mul(big.NewInt(sum-max(p.limits.burst(), largest)), big.NewInt(p.limits.Rate.Per))
			require.LessOrEqual(t, left.Cmp(right), 0, "%v: %d thousandths went from %v to %v", p.limits, sum, from.at, to.at)
		}
	}
}

// checkWindow compares every entry with the one limit places before it.
func (p *period) checkWindow(t require.TestingT) {
	if p.limits.Limit == 0 {
		return
	}
	var live []*big.Int
	for _, w := range p.went {
		if !w.undone {
			live = append(live, w.at)
		}
	}
	for i := int(p.limits.Limit); i < len(live); i++ {
		span := new(big.Int).Sub(live[i], live[i-int(p.limits.Limit)])
		require.GreaterOrEqual(t, span.Cmp(big.NewInt(p.limits.Window)), 0, "%v: too many from %v to %v", p.limits, live[i-int(p.limits.Limit)], live[i])
	}
}

// modelGate decides with fractions and lists.
type modelGate struct {
	limits   Limits
	level    *big.Rat // thousandths
	at       *big.Int
	entries  []*big.Int
	inFlight int64
	paused   int64
}

// pause is the rule of Gates.Pause.
func (m *modelGate) pause(until, now int64) {
	m.paused = 0
	if until > now || until == Never {
		m.paused = until
	}
}

// pausedAt reports whether the gate is paused at a time of the clock, and removes a pause
// that is over.
func (m *modelGate) pausedAt(now int64) bool {
	if m.paused != Never && m.paused <= now {
		m.paused = 0
	}
	return m.paused != 0
}

func (m *modelGate) advance(at *big.Int) {
	if m.limits.Rate != (Rate{}) {
		step := new(big.Rat).SetInt(new(big.Int).Sub(at, m.at))
		step.Mul(step, big.NewRat(m.limits.Rate.Cost, m.limits.Rate.Per))
		m.level = new(big.Rat).Add(m.level, step)
		if full := new(big.Rat).SetInt64(m.limits.burst()); m.level.Cmp(full) > 0 {
			m.level = full
		}
	}
	m.at = at
	for len(m.entries) > 0 && m.limits.Limit != 0 {
		if age := new(big.Int).Sub(at, m.entries[0]); age.Cmp(big.NewInt(m.limits.Window)) < 0 {
			break
		}
		m.entries = m.entries[1:]
	}
}

func (m *modelGate) setLimits(l Limits, at *big.Int) {
	m.advance(at)
	if l.Rate != (Rate{}) && (m.limits.Rate == (Rate{})) {
		m.level = new(big.Rat).SetInt64(l.burst())
	}
	if l.Limit == 0 || m.limits.Limit == 0 {
		m.entries = nil
	}
	m.limits = l
	m.advance(at)
}

func (m *modelGate) admits(at *big.Int, cost int64) bool {
	m.advance(at)
	l := m.limits
	if l.Rate != (Rate{}) && m.level.Cmp(new(big.Rat).SetInt64(min(cost, l.burst()))) < 0 {
		return false
	}
	return (l.Limit == 0 || int64(len(m.entries)) < l.Limit) && (l.Concurrency == 0 || m.inFlight < l.Concurrency)
}

// charge takes the extra cost of a message.
func (m *modelGate) charge(at *big.Int, cost int64) {
	if m.advance(at); m.limits.Rate != (Rate{}) {
		m.level = new(big.Rat).Sub(m.level, new(big.Rat).SetInt64(cost))
	}
}

func (m *modelGate) take(cost int64) {
	if m.limits.Rate != (Rate{}) {
		m.level = new(big.Rat).Sub(m.level, new(big.Rat).SetInt64(cost))
	}
	if m.limits.Limit != 0 {
		m.entries = append(m.entries, m.at)
	}
	m.inFlight++
}

// safeAdd adds without overflow.
func safeAdd(now, d int64) int64 {
	switch {
	case d > 0 && now > math.MaxInt64-d:
		return math.MaxInt64
	case d < 0 && now < math.MinInt64-d:
		return math.MinInt64
	}
	return now + d
}

// turn is the result of Wait.Turn.
func turn(w *Wait, now int64) [2]int64 {
	n, at := w.Turn(now)
	return [2]int64{n, at}
}

// goes reports whether a message goes, and takes for it.
func goes(s *Set, now, cost int64, owner any) bool {
	_, _, ok := s.Acquire(now, cost, owner)
	return ok
}

// open reports whether a message could go, and takes nothing.
func open(s *Set, now, cost int64) bool {
	_, ok := s.Check(now, cost, nil)
	return ok
}

// Keys returns the keys of all gates that exist, in order.
func (g *Gates) Keys() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var keys []string
	awake := 0
	for key, d := range g.mu.listed.From("") {
		gate := g.mu.gates.all[key]
		if gate != nil && d != "" || gate == nil && d == "" && !g.mu.named[key] {
			panic(key + " is both awake and dormant, or neither")
		}
		if gate != nil {
			awake++
		}
		if gate != nil || d != "" {
			keys = append(keys, key)
		}
	}
	if awake != len(g.mu.gates.all) || int64(len(keys)) != g.Count() {
		panic("the list differs from the gates")
	}
	return keys
}

// sweepAll drops every gate that is not needed.
func (g *Gates) sweepAll(now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(now, len(g.mu.idle)+g.mu.listed.Len())
	g.sweep(now, len(g.mu.idle)+g.mu.listed.Len())
}

// sleepAll makes every possible gate dormant and returns their number.
func (g *Gates) sleepAll(now int64) (dormant int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, gate := range slices.Clone(g.mu.idle) {
		g.sleep(gate, now)
	}
	for _, d := range g.mu.listed.From("") {
		if d != "" {
			dormant++
		}
	}
	return dormant
}
