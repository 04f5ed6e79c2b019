package throttle

import (
	"errors"
	"fmt"

	"github.com/filaq/fila/throttle/adapt"
	"github.com/filaq/fila/throttle/budget"
	"github.com/filaq/fila/throttle/rate"
)

// Ranges of limits and costs.
const (
	One            = 1000                            // a cost of 1, in thousandths
	MaxCost        = 1_000_000_000                   // thousandths: a cost of 1e6
	MaxBurst       = 1_000_000_000 * One             // thousandths: a burst of 1e9
	MaxRate        = rate.MaxPerSecond               // messages per second
	MaxWindow      = 365 * 24 * 3600 * 1_000_000_000 // ns: 365 days
	MaxLimit       = 1_000_000_000                   // messages in a window
	MaxConcurrency = 1_000_000_000                   // messages at once
	MaxKeys        = 16                              // gates of one message
	second         = 1_000_000_000                   // ns
	maxRateCost    = rate.MaxMessages * One          // keeps products of a Rate within 128 bits
	maxPer         = MaxWindow                       // ns: the slowest rate is a thousandth a year
)

// ErrLimits is wrapped by every error about limits that are out of range. The error
// text names the field and the allowed range.
var ErrLimits = errors.New("limits out of range")

// Rate is an exact fraction: Cost thousandths per Per nanoseconds. The zero
// Rate means no rate limit.
type Rate struct {
	Cost int64 // thousandths, 1..1e18
	Per  int64 // ns, 1..365 days
}

// PerSecond returns the Rate of a number of thousandths per second: PerSecond(500) is
// one message of cost 1 every two seconds.
func PerSecond(thousandths int64) Rate { return Rate{Cost: thousandths, Per: second} }

// ParseRate parses a rate per second without rounding: a decimal number with up to
// nine digits after the point ("10", "0.5") or a fraction of two whole numbers
// ("1/3", one every three seconds). The range is one in 365 days to 1e9 a second.
func ParseRate(s string) (Rate, error) {
	messages, seconds, err := rate.Parse(s)
	if err != nil {
		return Rate{}, fmt.Errorf("%w: rate %q: %w", ErrLimits, s, err)
	}
	return Rate{Cost: messages * One, Per: seconds * second}, nil
}

// String returns the text that ParseRate parses to r. A Rate that ParseRate cannot
// return becomes thousandths per nanoseconds, and the zero Rate "none".
func (r Rate) String() string {
	switch {
	case r == (Rate{}):
		return "none"
	case r.Per%second != 0:
		return fmt.Sprintf("%d/%dns", r.Cost, r.Per)
	}
	return rate.Format(r.Cost, r.Per/second*One)
}

func (r Rate) validate() error {
	switch {
	case r.Cost < 1 || r.Cost > maxRateCost:
		return fmt.Errorf("%w: rate: %d thousandths: allowed is 1 to %d", ErrLimits, r.Cost, int64(maxRateCost))
	case r.Per < 1 || r.Per > maxPer:
		return fmt.Errorf("%w: rate: per %d ns: allowed is 1 to %d", ErrLimits, r.Per, int64(maxPer))
	case (r.Cost-1)/(MaxRate*One/second) >= r.Per:
		return fmt.Errorf("%w: rate: %d thousandths per %d ns: allowed is up to %d per second", ErrLimits, r.Cost, r.Per, MaxRate)
	}
	return nil
}

// Limits are the limits of a throttle key. Each of the four kinds is optional. The
// zero Limits admit everything.
type Limits struct {
	// Rate fills the token bucket, from which each message takes its cost. Zero:
	// no bucket.
	Rate Rate
	// Burst is the size of the bucket in thousandths, 1..MaxBurst. Zero: the
	// tokens of one second, at least One.
	Burst int64
	// Limit is the number of messages of any cost in any Window, 1..MaxLimit.
	// Zero: no sliding window.
	Limit int64
	// Window is in nanoseconds, 1..MaxWindow. It needs a Limit.
	Window int64
	// Budget is the cost of the messages in a calendar period. Zero: any cost.
	Budget budget.Terms
	// OnEmpty is what becomes of messages that cost more than is left of the Budget.
	OnEmpty OnEmpty
	// Concurrency is the number of messages in flight, 1..MaxConcurrency. Zero:
	// any number.
	Concurrency int64
	// Adapt makes Concurrency, or Rate if there is no Concurrency, the ceiling of a level
	// that is learned. With both, the rate follows in proportion. Zero: nothing is learned.
	Adapt adapt.Settings
	// Level fixes that level, in thousandths of messages at once or of cost per second,
	// within Adapt.Min and the ceiling. Zero: it is learned.
	Level int64
}

// Validate returns an error that wraps ErrLimits and names the field if a value is out
// of range or lacks the field that it depends on.
func (l Limits) Validate() error {
	switch {
	case l.Burst != 0 && l.Rate == (Rate{}):
		return fmt.Errorf("%w: burst: needs a rate", ErrLimits)
	case l.Burst < 0 || l.Burst > MaxBurst:
		return fmt.Errorf("%w: burst: %d thousandths: allowed is 1 to %d", ErrLimits, l.Burst, int64(MaxBurst))
	case l.Limit < 0 || l.Limit > MaxLimit:
		return fmt.Errorf("%w: limit: %d: allowed is 1 to %d", ErrLimits, l.Limit, MaxLimit)
	case l.Window < 0 || l.Window > MaxWindow:
		return fmt.Errorf("%w: window: %d ns: allowed is 1 to %d", ErrLimits, l.Window, int64(MaxWindow))
	case (l.Limit == 0) != (l.Window == 0):
		return fmt.Errorf("%w: limit and window: one needs the other", ErrLimits)
	case l.Concurrency < 0 || l.Concurrency > MaxConcurrency:
		return fmt.Errorf("%w: concurrency: %d: allowed is 1 to %d", ErrLimits, l.Concurrency, MaxConcurrency)
	case l.OnEmpty > Refuse:
		return fmt.Errorf("%w: on_empty: %d: allowed is 0 to %d", ErrLimits, l.OnEmpty, Refuse)
	case l.OnEmpty != OnEmptyUnset && l.Budget.Amount == 0:
		return fmt.Errorf("%w: on_empty: needs a budget", ErrLimits)
	case l.Adapt != (adapt.Settings{}) && l.Concurrency == 0 && l.Rate == (Rate{}):
		return fmt.Errorf("%w: adapt: needs concurrency or a rate, which is its ceiling", ErrLimits)
	case l.Level != 0 && l.Adapt == (adapt.Settings{}):
		return fmt.Errorf("%w: level: needs adapt", ErrLimits)
	case l.Level < 0 || l.Level > adapt.Most:
		return fmt.Errorf("%w: level: %d thousandths: allowed is 1 to %d", ErrLimits, l.Level, int64(adapt.Most))
	}
	if err := l.Adapt.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrLimits, err)
	}
	if l.Rate != (Rate{}) {
		if err := l.Rate.validate(); err != nil {
			return err
		}
	}
	if err := l.Budget.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrLimits, err)
	}
	return nil
}

// or returns l, or other if l is zero.
func (l Limits) or(other Limits) Limits {
	if l == (Limits{}) {
		return other
	}
	return l
}

// burst returns the size of the bucket, with the default filled in.
func (l Limits) burst() int64 {
	if l.Burst != 0 {
		return l.Burst
	}
	inASecond, _, ok := mulDiv(second, uint64(l.Rate.Cost), 0, uint64(l.Rate.Per))
	if !ok || inASecond > MaxBurst {
		return MaxBurst
	}
	return max(One, int64(inASecond))
}

// Gives returns how many thousandths the rate brings in d nanoseconds, rounded down and
// at most MaxBurst.
func (r Rate) Gives(d int64) int64 {
	if d <= 0 || r == (Rate{}) {
		return 0
	}
	n, _, ok := mulDiv(uint64(d), uint64(r.Cost), 0, uint64(r.Per))
	if !ok || n > MaxBurst {
		return MaxBurst
	}
	return int64(n)
}

// Takes returns how long the rate takes to bring a number of thousandths, in
// nanoseconds rounded up; Never if that overflows.
func (r Rate) Takes(thousandths int64) int64 {
	if thousandths <= 0 {
		return 0
	}
	if r == (Rate{}) {
		return Never
	}
	n, _, ok := mulDiv(uint64(thousandths), uint64(r.Per), uint64(r.Cost)-1, uint64(r.Cost))
	if !ok || n > Never {
		return Never
	}
	return int64(n)
}

// Full returns the size of the bucket in thousandths, with the default filled in; 0
// without a rate.
func (l Limits) Full() int64 {
	if l.Rate == (Rate{}) {
		return 0
	}
	return l.burst()
}
