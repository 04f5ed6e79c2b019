// Package rate has the one grammar of rates: a number of messages per second as
// text, parsed and printed without rounding.
package rate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxPerSecond is the highest rate.
	MaxPerSecond = 1_000_000_000
	// MaxSeconds is the largest denominator: one message in 365 days.
	MaxSeconds = 365 * 24 * 3600
	// MaxMessages is the largest numerator.
	MaxMessages = 1_000_000_000_000_000

	maxDecimals = 9 // digits after the point
)

// ErrSyntax names the allowed forms. Parse returns it for every text that is no rate.
var ErrSyntax = errors.New("allowed is a number per second such as 10 or 0.5, or a fraction such as 1/3, from 1/31536000 to 1000000000")

// Parse parses a decimal number with up to nine digits after the point ("10",
// "0.5") or a fraction of two whole numbers ("1/3", one message every three
// seconds). It returns the reduced fraction of messages and seconds. The range is
// from one message in MaxSeconds to MaxPerSecond.
func Parse(text string) (messages, seconds int64, err error) {
	num, den, fraction := strings.Cut(text, "/")
	if !fraction {
		whole, decimals, point := strings.Cut(text, ".")
		if point && (decimals == "" || len(decimals) > maxDecimals) {
			return 0, 0, ErrSyntax
		}
		num, den = whole+decimals, "1"+strings.Repeat("0", len(decimals))
	}
	n, err1 := strconv.ParseUint(num, 10, 63)
	d, err2 := strconv.ParseUint(den, 10, 63)
	if err1 != nil || err2 != nil || n == 0 || d == 0 {
		return 0, 0, ErrSyntax
	}
	g := gcd(n, d)
	if n, d = n/g, d/g; d > MaxSeconds || n > MaxMessages || n > d*MaxPerSecond {
		return 0, 0, ErrSyntax
	}
	return int64(n), int64(d), nil
}

// Format prints a fraction in the range of Parse as a decimal number if there is
// one with up to nine digits after the point ("0.5"), and as a reduced fraction
// otherwise ("1/3"). Both numbers are at least 1.
func Format(messages, seconds int64) string {
	g := int64(gcd(uint64(messages), uint64(seconds)))
	messages, seconds = messages/g, seconds/g
	for digits, scale := 0, int64(1); digits <= maxDecimals; digits, scale = digits+1, scale*10 {
		if scale%seconds != 0 {
			continue
		}
		n := messages * (scale / seconds) // scale times the rate: at most 1e18
		text := strconv.FormatInt(n/scale, 10)
		if digits > 0 {
			text += fmt.Sprintf(".%0*d", digits, n%scale)
		}
		return text
	}
	return fmt.Sprintf("%d/%d", messages, seconds)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
