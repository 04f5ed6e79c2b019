package wire

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/filaq/fila/throttle/rate"
)

// Rate is a number of messages per second as text, so that nothing is rounded:
// a decimal number ("10", "0.5") or a fraction of whole numbers ("1/3"), from
// one in 365 days to 1e9 a second. In JSON it may also be a number. Empty means
// none.
type Rate string

// UnmarshalJSON accepts a string or a number. [Rate.Check] checks its value.
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
// allowed. It refuses the empty Rate.
func (r Rate) Check() error {
	_, _, err := rate.Parse(string(r))
	return err
}

// Text returns the rate in words: "10/s", and "1 every 3 s" for 1/3.
func (r Rate) Text() string {
	if n, seconds, fraction := strings.Cut(string(r), "/"); fraction {
		return n + " every " + seconds + " s"
	}
	return string(r) + "/s"
}

// PerSecond returns the rate in messages per second, 0 if it is none.
func (r Rate) PerSecond() float64 {
	messages, seconds, err := rate.Parse(string(r))
	if err != nil {
		return 0
	}
	return float64(messages) / float64(seconds)
}

// TextWithBurst is Text with the burst; 0: its default.
func (r Rate) TextWithBurst(burst float64) string {
	if burst == 0 {
		return r.Text()
	}
	return r.Text() + ", " + BurstText(burst)
}

// BurstText returns the burst of a rate in words: "burst 20".
func BurstText(burst float64) string { return "burst " + strconv.FormatFloat(burst, 'f', -1, 64) }
