package throttle

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The ranges of limits and costs.
const (
	One            = 1000                            // a cost of 1, in thousandths
	MaxCost        = 1_000_000_000                   // thousandths: a cost of 1e6
	MaxBurst       = 1_000_000_000 * One             // thousandths: a burst of 1e9
	MaxRate        = 1_000_000_000                   // per second
	MaxWindow      = 365 * 24 * 3600 * 1_000_000_000 // ns: 365 days
	MaxLimit       = 1_000_000_000                   // messages in a window
	MaxConcurrency = 1_000_000_000                   // messages at once
	MaxKeys        = 16                              // gates of one message
	second         = 1_000_000_000                   // ns
	maxRateCost    = 1_000_000_000 * 1_000_000_000   // keeps products of a Rate within 128 bits
	maxDecimals    = 9                               // digits after the point that ParseRate takes
	maxPer         = MaxWindow                       // ns: the slowest rate is a thousandth a year
)

// ErrLimits is wrapped by every error about limits that are out of range. The
// whole text names the field and says what is allowed.
var ErrLimits = errors.New("limits out of range")

// Rate is an exact fraction: Cost thousandths per Per nanoseconds. The zero
// Rate means no rate limit.
type Rate struct {
	Cost int64 // thousandths, 1..1e18
	Per  int64 // ns, 1..365 days
}

// PerSecond is the Rate of so many thousandths per second: PerSecond(500) is
// one message of cost 1 every two seconds.
func PerSecond(thousandths int64) Rate { return Rate{Cost: thousandths, Per: second} }

// ParseRate reads a rate per second without rounding: a decimal number with up
// to nine digits after the point ("10", "0.5") or a fraction of two whole
// numbers ("1/3", one every three seconds). It takes rates from one in 365 days
// to 1e9 a second.
func ParseRate(s string) (Rate, error) {
	num, den, fraction := strings.Cut(s, "/")
	if !fraction {
		whole, decimals, point := strings.Cut(s, ".")
		if point && (decimals == "" || len(decimals) > maxDecimals) {
			return Rate{}, rateError(s)
		}
		num, den = whole+decimals, "1"+strings.Repeat("0", len(decimals))
	}
	n, err1 := strconv.ParseUint(num, 10, 63)
	d, err2 := strconv.ParseUint(den, 10, 63)
	if err1 != nil || err2 != nil || n == 0 || d == 0 {
		return Rate{}, rateError(s)
	}
	g := gcd(n, d)
	n, d = n/g, d/g
	if n > maxRateCost/One || d > maxPer/second {
		return Rate{}, rateError(s)
	}
	r := Rate{Cost: int64(n) * One, Per: int64(d) * second}
	if err := r.validate(); err != nil {
		return Rate{}, rateError(s)
	}
	return r, nil
}

func rateError(s string) error {
	return fmt.Errorf("%w: rate %q: allowed is a number per second such as 10 or 0.5, or a fraction such as 1/3, from 1/31536000 to %d", ErrLimits, s, MaxRate)
}

// String writes the rate as ParseRate reads it if it can be written so, and as
// thousandths per nanoseconds otherwise.
func (r Rate) String() string {
	if r == (Rate{}) {
		return "none"
	}
	if r.Per%second != 0 || r.Cost%One != 0 {
		if r.Per == second {
			return fmt.Sprintf("%d.%03d", r.Cost/One, r.Cost%One)
		}
		return fmt.Sprintf("%d/%dns", r.Cost, r.Per)
	}
	if r.Per == second {
		return strconv.FormatInt(r.Cost/One, 10)
	}
	return fmt.Sprintf("%d/%d", r.Cost/One, r.Per/second)
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

// Limits are what a throttle key is limited by. Each of the three may be
// missing; the zero Limits admit everything.
type Limits struct {
	// Rate fills the token bucket; a message takes its cost from it. Zero: no
	// bucket.
	Rate Rate
	// Burst is the size of the bucket in thousandths, 1..MaxBurst. Zero: the
	// larger of One and what the rate brings in a second.
	Burst int64
	// Limit is how many messages, whatever they cost, may go in any Window:
	// 1..MaxLimit. Zero: no sliding window.
	Limit int64
	// Window in nanoseconds, 1..MaxWindow; with Limit only.
	Window int64
	// Concurrency is how many messages may be in flight at once,
	// 1..MaxConcurrency. Zero: any number.
	Concurrency int64
}

// Validate returns an error that wraps ErrLimits and names the field if a value
// is out of its range, or comes without the one that it belongs to.
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
	case l.Rate != (Rate{}):
		return l.Rate.validate()
	}
	return nil
}

// or is l, or other if l limits nothing.
func (l Limits) or(other Limits) Limits {
	if l == (Limits{}) {
		return other
	}
	return l
}

// burst is the size of the bucket, the default filled in.
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

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// String puts limits into words: "rate 10 per second, burst 20; 5 in 1m0s; 3 in flight".
func (l Limits) String() string {
	var parts []string
	if l.Rate != (Rate{}) {
		text := "rate " + l.Rate.String() + " per second"
		if l.Burst > 0 {
			text += ", burst " + strconv.FormatFloat(float64(l.Burst)/One, 'f', -1, 64)
		}
		parts = append(parts, text)
	}
	if l.Limit > 0 {
		parts = append(parts, fmt.Sprintf("%d in %s", l.Limit, time.Duration(l.Window)))
	}
	if l.Concurrency > 0 {
		parts = append(parts, fmt.Sprintf("%d in flight", l.Concurrency))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, "; ")
}

// Gives is what the rate brings in d nanoseconds, in thousandths rounded down; at most
// MaxBurst.
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

// Takes is how long it takes the rate to bring so many thousandths, in nanoseconds
// rounded up; Never if that is beyond all bounds.
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

// Full is the size of the bucket in thousandths, the default filled in; 0 without a
// rate.
func (l Limits) Full() int64 {
	if l.Rate == (Rate{}) {
		return 0
	}
	return l.burst()
}
