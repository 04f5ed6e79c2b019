package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// Rate is a number of messages per second as text, so that nothing is rounded:
// a decimal number ("10", "0.5") or a fraction of whole numbers ("1/3"), from
// one in 365 days to 1e9 a second. In JSON it may also be a number. Empty means
// none.
type Rate string

// Bounds of a Rate, the same as in package throttle.
const (
	maxRate      = 1_000_000_000         // a second
	minRate      = 365 * 24 * 3600       // seconds for one message; the largest denominator
	maxRateParts = 1_000_000_000_000_000 // the largest numerator
	maxDecimals  = 9                     // digits after the point
)

var errRate = errors.New("allowed is a number per second such as 10 or 0.5, or a fraction such as 1/3, from 1/31536000 to 1000000000")

// UnmarshalJSON takes a string or a number. What it says is for [Rate.Check] to
// judge.
func (r *Rate) UnmarshalJSON(data []byte) error {
	switch c := data[0]; {
	case c == '"', c == 'n': // null changes nothing
		return json.Unmarshal(data, (*string)(r))
	case c == '-', c >= '0' && c <= '9':
		*r = Rate(data)
		return nil
	}
	kind := map[byte]string{'{': "object", '[': "array"}[data[0]]
	if kind == "" {
		kind = "bool"
	}
	return &json.UnmarshalTypeError{Value: kind, Type: reflect.TypeFor[Rate]()}
}

// Check returns nil if r is a rate, and otherwise an error that says what is
// allowed. The empty Rate is refused, too.
func (r Rate) Check() error {
	num, den, fraction := strings.Cut(string(r), "/")
	if !fraction {
		whole, decimals, point := strings.Cut(string(r), ".")
		if point && (decimals == "" || len(decimals) > maxDecimals) {
			return errRate
		}
		num, den = whole+decimals, "1"+strings.Repeat("0", len(decimals))
	}
	n, err1 := strconv.ParseUint(num, 10, 63)
	d, err2 := strconv.ParseUint(den, 10, 63)
	if err1 != nil || err2 != nil || n == 0 || d == 0 {
		return errRate
	}
	a, b := n, d
	for b != 0 {
		a, b = b, a%b
	}
	if n, d = n/a, d/a; d > minRate || n > maxRateParts || n > d*maxRate {
		return errRate
	}
	return nil
}
